//! The settings for rendering a report.

use std::collections::BTreeSet;

/// The settings for rendering a report on a terminal.
#[derive(Debug, Clone, Default)]
pub struct ReportStyle {
    /// The first line: how the values were obtained.
    pub headline: String,
    /// The width of the terminal, in columns.
    pub width: usize,
    /// Whether text is wrapped to that width. Set it to `false` if a program may search the text.
    pub wraps: bool,
    /// Whether to print only problems.
    pub quiet: bool,
    /// Whether to print measurement details and assumptions, too.
    pub verbose: bool,
    /// Whether the runs were checked against budgets.
    pub judged: bool,
    /// The full names of the runs whose unknown input the caller reports itself, with its place in `budgets.yaml`.
    pub located_inputs: BTreeSet<String>,
}
