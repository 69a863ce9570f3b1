//! Why one value of a model grew: the causes, and the same growth by category, layer and source line.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::words::counted;
use super::{Metric, Mode, Pass, Run};
use crate::bytes::Bytes;
use crate::untrusted::{Foreign, PlainName};

/// Where the growth of one value comes from, found by explaining the model on both sides of a change.
///
/// The changes of `causes`, of `categories`, of `layers` and of `lines` each add up to the growth together with
/// `allocator` and `unexplained`: four views of the same bytes.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct GrowthExplanation {
    /// The package that declares the model.
    pub package: PlainName,
    /// The model's name, or its budget's name if that differs.
    pub model: PlainName,
    /// The GPU's id, such as `l4`.
    pub gpu: PlainName,
    /// Whether the value is estimated or measured. The two explanations are always estimates.
    pub mode: Mode,
    /// The pass that the value is from.
    pub pass: Pass,
    /// The kind of value.
    pub metric: Metric,
    /// The value before the change, in bytes.
    pub before: Bytes,
    /// The value with the change, in bytes.
    pub after: Bytes,
    /// What made the value grow, the largest change first.
    pub causes: Vec<GrowthCause>,
    /// The growth by category of live memory, in the order of the categories.
    pub categories: Vec<GrowthPart>,
    /// The growth by layer, the largest change first. Memory of no layer has a part of its own.
    pub layers: Vec<GrowthPart>,
    /// The growth by source line, the largest change first. Memory of no line has a part of its own.
    pub lines: Vec<GrowthLine>,
    /// The growth of memory that holds no tensor: unused parts of the allocator's pages, CUDA context, kernels.
    pub allocator: Vec<GrowthPart>,
    /// The part of the growth in bytes that the explanations do not show, negative if they show more.
    pub unexplained: i64,
    /// Other differences that change how much memory the allocator takes, such as another version of Burn.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub notes: Vec<Foreign>,
    /// What this explanation lacks, with the reason. Absent if it lacks nothing.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub limits: Vec<Foreign>,
}

/// One cause of growth.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct GrowthCause {
    /// What changed, in words: `hidden is larger`.
    pub what: Foreign,
    /// The bytes at the peak that it adds, negative if it saves them.
    pub change: i64,
    /// The line to look at; null if unknown.
    pub place: Option<GrowthPlace>,
}

/// The line of source code that a cause points at.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct GrowthPlace {
    /// The file, relative to the workspace root.
    pub file: Foreign,
    /// The line with the change, from 1.
    pub line: u32,
    /// The text of the line without indentation; null if unknown.
    pub text: Option<Foreign>,
    /// Whether the change under review edits this line.
    pub edited: bool,
}

impl GrowthPlace {
    /// Returns what follows the place in output: that the change does not edit this line, if that is so.
    #[must_use]
    pub const fn remark(&self) -> &'static str {
        if self.edited { "" } else { " (not edited)" }
    }
}

/// The growth of one category, layer or other part.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct GrowthPart {
    /// The name: of a category, or the path of a module.
    pub name: Foreign,
    /// Its bytes before the change.
    pub before: Bytes,
    /// Its bytes with the change.
    pub after: Bytes,
    /// The difference in bytes.
    pub change: i64,
}

/// The growth of the tensors that one source line asked for.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct GrowthLine {
    /// The line with the change; null for memory of no line.
    pub place: Option<GrowthPlace>,
    /// The bytes of its tensors before the change.
    pub before: Bytes,
    /// The bytes of its tensors with the change.
    pub after: Bytes,
    /// The difference in bytes.
    pub change: i64,
}

/// A row of the table of causes.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct GrowthRow<'a> {
    /// The bytes that it adds, negative if it saves them.
    pub change: i64,
    /// What changed, in words.
    pub what: Foreign,
    /// The line to look at; `None` if unknown.
    pub place: Option<&'a GrowthPlace>,
}

/// How a part of a model changed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum PartState {
    /// Only the model with the change has it.
    New,
    /// Only the model before the change has it.
    Removed,
    /// It needs more memory.
    Larger,
    /// It needs less memory.
    Smaller,
}

impl PartState {
    /// Returns the state in words.
    #[must_use]
    pub const fn word(self) -> &'static str {
        match self {
            Self::New => "new",
            Self::Removed => "removed",
            Self::Larger => "larger",
            Self::Smaller => "smaller",
        }
    }
}

impl GrowthPart {
    /// Creates a part from its bytes on both sides.
    #[must_use]
    pub fn new(name: Foreign, before: Bytes, after: Bytes) -> Self {
        Self {
            name,
            before,
            after,
            change: after.less(before),
        }
    }

    /// Returns how the part changed.
    #[must_use]
    pub const fn state(&self) -> PartState {
        match (self.before.0, self.after.0) {
            (0, _) => PartState::New,
            (_, 0) => PartState::Removed,
            // Not by the two sizes: the part without a layer also has what no tensor has.
            _ if self.change >= 0 => PartState::Larger,
            _ => PartState::Smaller,
        }
    }
}

impl GrowthExplanation {
    /// Whether this explains a value of the run.
    #[must_use]
    pub fn is_of(&self, run: &Run) -> bool {
        (self.package.as_str(), self.model.as_str(), self.gpu.as_str(), self.mode)
            == (&run.package, run.name(), &run.gpu.id, run.mode)
    }

    /// Returns the rows of a table that add up to the growth: the `most` causes with the largest changes, the others as one
    /// row, the memory outside of tensors, and what is not explained.
    #[must_use]
    pub fn rows(&self, most: usize) -> Vec<GrowthRow<'_>> {
        let row = |change, what, place| GrowthRow { change, what, place };
        let mut by_size: Vec<usize> = (0..self.causes.len()).collect();
        by_size.sort_by_key(|at| std::cmp::Reverse(self.causes[*at].change.unsigned_abs()));
        // A row for a single cause would say less than the cause.
        if by_size.len() > most + 1 {
            by_size.truncate(most);
        }
        let causes = self.causes.iter().enumerate();
        let (shown, rest): (Vec<_>, Vec<_>) = causes.partition(|(at, _)| by_size.contains(at));
        let mut rows: Vec<_> = shown
            .into_iter()
            .map(|(_, cause)| row(cause.change, cause.what.clone(), cause.place.as_ref()))
            .collect();
        if !rest.is_empty() {
            let what = counted(rest.len() as u64, "more cause");
            // A report from elsewhere may have any numbers.
            let change = rest.iter().map(|(_, cause)| cause.change).fold(0, i64::saturating_add);
            rows.push(row(change, what.into(), None));
        }
        rows.extend(
            self.allocator
                .iter()
                .map(|part| row(part.change, part.name.clone(), None)),
        );
        if self.unexplained != 0 {
            rows.push(row(self.unexplained, "not explained".into(), None));
        }
        rows
    }

    /// Returns the cause that adds the most bytes; `None` if nothing grew.
    #[must_use]
    pub fn largest(&self) -> Option<&GrowthCause> {
        self.causes.iter().find(|cause| cause.change > 0)
    }

    /// Returns the difference of the value in bytes.
    #[must_use]
    pub fn growth(&self) -> i64 {
        self.after.less(self.before)
    }
}
