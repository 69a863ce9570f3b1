//! The selected parts of an explanation, and the properties of the terminal.

use crate::bytes::Bytes;
use crate::untrusted::named;

/// A function that reads a line of source code. Its arguments are the file, as
/// [`SourceLocation`](crate::explain::SourceLocation) names it, and the line, from 1.
pub type SourceLine<'a> = &'a dyn Fn(&str, u32) -> Option<String>;

/// The parts of an explanation to show. If no part is selected, an overview is shown.
#[derive(Clone, Copy, Default)]
pub struct View<'a> {
    /// The whole table of layers.
    pub layers: bool,
    /// The table of layers, down to this depth: deeper layers are summed into one row per module.
    pub depth: Option<usize>,
    /// Every phase of every step, cold and warm.
    pub phases: bool,
    /// This many of the largest tensors at the peak.
    pub tensors: Option<usize>,
    /// The tensors that were made and freed, by source line. Each line has its eight largest kinds of tensors, or
    /// `tensors` kinds.
    pub lines: bool,
    /// Live memory that grows from step to step.
    pub leak: bool,
    /// Changes that save memory.
    pub savings: bool,
    /// Sizes to the byte.
    pub exact: bool,
    /// Only problems, whatever is selected.
    pub quiet: bool,
    /// The assumptions, too.
    pub verbose: bool,
    /// The package in the title. Set it if another package has a model with the same name.
    pub package: bool,
    /// A budget of reserved memory, drawn into the timeline.
    pub limit: Option<Bytes>,
    /// The budget as its file writes it: `300 MB`.
    pub limit_written: Option<&'a str>,
    /// The reader of source lines. Without it, the tables have only line numbers.
    pub source_line: Option<SourceLine<'a>>,
}

impl View<'_> {
    /// Returns the limit with its text.
    pub(super) fn drawn_limit(&self) -> Option<(Bytes, String)> {
        let limit = self.limit?;
        Some((limit, self.limit_written.map_or_else(|| limit.to_string(), named)))
    }

    pub(super) const fn is_overview(&self) -> bool {
        !(self.layers
            || self.depth.is_some()
            || self.phases
            || self.tensors.is_some()
            || self.lines
            || self.leak
            || self.savings)
    }
}

/// The properties of the terminal.
#[derive(Debug, Clone, Copy, Default)]
pub struct TerminalStyle {
    /// The width in columns; absent for a pipe, which has no maximum width.
    pub width: Option<usize>,
    /// Whether the terminal shows colours.
    pub color: bool,
    /// Whether the terminal shows characters other than ASCII.
    pub unicode: bool,
}
