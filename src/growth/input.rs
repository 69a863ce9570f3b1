//! What is needed to find out why a value grew.

use super::changes::SourceChanges;
use crate::bytes::Bytes;
use crate::explain::Explanation;
use crate::report::{Metric, Pass, Run};

/// Returns the text of a file of the workspace, by its path relative to the workspace root.
pub type ReadSource<'a> = &'a dyn Fn(&str) -> Option<String>;

/// The input of [`growth`](super::growth()).
pub struct GrowthInput<'a> {
    /// The run whose value grew.
    pub run: &'a Run,
    /// The pass and the kind of the value.
    pub value: (Pass, Metric),
    /// The value before the change and with it.
    pub grown: (Bytes, Bytes),
    /// The explanation before the change.
    pub before: &'a Explanation,
    /// The explanation with the change.
    pub after: &'a Explanation,
    /// The lines that the change edits.
    pub changes: &'a SourceChanges,
    /// Returns the text of a file of the workspace with the change, by its path relative to the workspace root. `None` if
    /// there is no workspace: then only the lines are known that the explanation has.
    pub read: Option<ReadSource<'a>>,
}
