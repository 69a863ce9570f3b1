//! Writes a report or a document in the selected format, to standard output or to a file.

use std::collections::BTreeSet;

use camino::Utf8Path;

use crate::cli::error::{CliError, Internal};
use crate::cli::exit::Exit;
use crate::cli::interrupt;
use crate::cli::options::{Format, ReportFormat, ReportOutput};
use crate::cli::session::error::SelectionError;
use crate::cli::session::source::ModelSource;
use crate::cli::terminal::{self};
use crate::cli::timings;
use crate::render;
use crate::render::markdown::{self, Markdown};
use crate::render::terminal::report::ReportStyle;
use crate::render::{github, junit};
use crate::report::{Report, Status};

/// What the table shows besides the report.
#[derive(Debug, Default)]
pub(in crate::cli) struct TableSetup<'a> {
    /// The first line.
    pub(in crate::cli) headline: &'a str,
    /// Whether the runs were checked against budgets.
    pub(in crate::cli) judged: bool,
    /// The full names of the runs whose unknown input the command reports itself, with its place in `budgets.yaml`.
    pub(in crate::cli) located_inputs: BTreeSet<String>,
}

/// Sets the report's status and shows the report.
///
/// The status is that of the worst verdict, or an error if a run failed or the report has problems.
pub(in crate::cli) fn write(
    report: &mut Report,
    output: &ReportOutput,
    table: TableSetup<'_>,
    source: &ModelSource,
) -> Result<(), CliError> {
    // Also without verdicts: `estimate` and `measure` judge nothing, and must not pass with a failed run.
    let errors = report.problems.len() + report.runs.iter().filter(|run| run.error.is_some()).count();
    let worst = report
        .verdicts
        .iter()
        .map(|verdict| verdict.status)
        .max()
        .unwrap_or(Status::Pass);
    report.status = if errors > 0 { Status::Error } else { worst };
    timings::timed("writing the output", || show(report, output, table, source.root()))
}

/// Shows a report in the selected format. If it goes to a file, standard output shows the table.
///
/// The report's file paths are relative to `root`.
pub(in crate::cli) fn show(
    report: &Report,
    output: &ReportOutput,
    table: TableSetup<'_>,
    root: &Utf8Path,
) -> Result<(), CliError> {
    let style = ReportStyle {
        headline: table.headline.to_owned(),
        width: terminal::width(),
        wraps: terminal::wraps(),
        quiet: terminal::is_quiet(),
        verbose: terminal::is_verbose(),
        judged: table.judged,
        located_inputs: table.located_inputs,
    };
    // A closure, because a document on standard output needs no table.
    let table = || render::terminal::report::render(report, &style);
    let rendered = match output.message_format {
        ReportFormat::Human => table(),
        ReportFormat::Json => json(report)?,
        ReportFormat::Markdown => markdown::render(report, &Markdown::default()),
        ReportFormat::Github => {
            // GitHub resolves file paths from the top folder of the repository.
            let prefix = crate::cli::session::git::git(root, &["rev-parse", "--show-prefix"]);
            github::render(report, prefix.unwrap_or_default().trim())
        }
        ReportFormat::Junit => junit::render(report).map_err(Internal::new)?,
    };
    if output.output.is_some() {
        terminal::show(&table());
    }
    put(&rendered, output.message_format, output.output.as_deref())?;
    Ok(())
}

/// Who reads a result.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(in crate::cli) enum Audience {
    People,
    Programs,
}

impl From<Format> for Audience {
    fn from(format: Format) -> Self {
        match format {
            Format::Human => Self::People,
            Format::Json => Self::Programs,
        }
    }
}

impl From<ReportFormat> for Audience {
    fn from(format: ReportFormat) -> Self {
        match format {
            ReportFormat::Human => Self::People,
            _ => Self::Programs,
        }
    }
}

/// Writes a result to `file`, or to standard output if there is no file.
pub(in crate::cli) fn put(
    text: &str,
    audience: impl Into<Audience>,
    file: Option<&Utf8Path>,
) -> Result<(), SelectionError> {
    let Some(path) = file else {
        match audience.into() {
            Audience::People => terminal::show(text),
            Audience::Programs => terminal::show_document(text),
        }
        return Ok(());
    };
    interrupt::wait_for_end();
    match std::fs::write(path, strip(text)) {
        // A broken pipe is not an error, as on standard output: the reader stopped reading early.
        Err(source) if source.kind() != std::io::ErrorKind::BrokenPipe => Err(SelectionError::File {
            path: path.to_owned(),
            source,
        }),
        _ => Ok(()),
    }
}

/// Returns a document as indented JSON that ends with a newline.
pub(in crate::cli) fn json(document: &impl serde::Serialize) -> Result<String, CliError> {
    serde_json::to_string_pretty(document)
        .map(escape_json)
        .map_err(|error| Internal::new(error).into())
}

/// Escapes the control characters that JSON allows, and ends a document with a newline.
pub(in crate::cli) fn escape_json(document: String) -> String {
    let mut text = document;
    let is_control = |c: char| matches!(c, '\u{7f}'..='\u{9f}');
    // They are only in strings.
    while let Some(c) = text.chars().find(|c| is_control(*c)) {
        text = text.replace(c, &format!("\\u{:04x}", u32::from(c)));
    }
    text.push('\n');
    text
}

/// Removes terminal colours from a text for a file.
fn strip(text: &str) -> String {
    anstream::adapter::strip_str(text).to_string()
}

/// Returns the exit code of a judged report.
///
/// If only `--deny-warnings` makes it a failure, prints that, because the report itself shows only warnings.
pub(in crate::cli) fn exit_of_judged(report: &Report, deny_warnings: bool) -> Exit {
    let exit = Exit::from_judged(report, deny_warnings);
    if exit != Exit::from_judged(report, false) {
        terminal::remark("failed: --deny-warnings turns warnings into failures");
    }
    exit
}
