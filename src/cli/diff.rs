//! `cargo vram diff`: shows what changed between two reports.

use camino::{Utf8Path, Utf8PathBuf};
use clap::{Args, ValueEnum};
use miette::Diagnostic;
use thiserror::Error;

use super::exit::{Exit, with_exit_codes};
use super::{explanations, terminal};
use crate::cli::error::{CliError, ExitCoded};
use crate::cli::session;
use crate::explain::{Explanation, add_causes};
use crate::growth::growth_between;
use crate::render::markdown::{self, COMMENT};
use crate::render::terminal as on_terminal;
use crate::report::change::key_of_run;
use crate::report::diff::diff;
use crate::report::{GrowthExplanation, REPORT_VERSION, Report, Status};

/// Show what changed between two reports or two explanations
///
/// Compares every value of two reports, and lists other changes that may be the cause: inputs, Burn's version,
/// parameters, phases, autotune choices. For two explanations, it also lists layers and categories. With --quiet, it
/// prints only problems and the most likely cause of each.
#[derive(Debug, Args)]
#[command(after_long_help = with_exit_codes("\
Examples:
  cargo vram diff base.json head.json
  cargo vram diff base.json head.json --fail
      fail if live memory grew by more than 5 % and 16 MiB, or past the growth
      that head.json was checked against
  cargo vram diff base.json head.json --message-format markdown
  cargo vram explain resnet18 --message-format json -o after.json
  cargo vram diff before.json after.json
      show which layers and categories changed"))]
pub(super) struct DiffCommand {
    /// The older report or explanation
    ///
    /// `check`, `estimate` and `measure` write reports with `--message-format json -o FILE`, and `explain` writes
    /// explanations.
    #[arg(value_name = "BASE")]
    base: Utf8PathBuf,
    /// The newer report or explanation
    #[arg(value_name = "HEAD")]
    head: Utf8PathBuf,
    /// Fail if a model regressed, ran out of memory or could not run
    ///
    /// The exit code is 100 if a value grew past its limit or a model ran out of memory. It is 101 if a model could not
    /// be built or run, or if no model is in both reports.
    #[arg(long, help_heading = "Baseline")]
    fail: bool,
    /// Show what made live memory grow, and the source lines
    ///
    /// Needs two explanations. A line counts as edited if the older explanation has no line with this text; inside a git
    /// repository, `cargo vram check --base REV --why` reads the edited lines from git.
    #[arg(long, help_heading = "Baseline")]
    why: bool,
    /// Set the output format
    #[arg(
        long,
        value_enum,
        value_name = "FORMAT",
        default_value = "human",
        help_heading = "Output"
    )]
    message_format: DiffFormat,
    /// Write the output to this file
    ///
    /// The table is still printed to the terminal.
    #[arg(short, long, value_name = "FILE", help_heading = "Output")]
    output: Option<Utf8PathBuf>,
}

/// The format of a difference.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
enum DiffFormat {
    /// A table
    Human,
    /// A JSON document
    Json,
    /// Markdown
    Markdown,
}

impl From<DiffFormat> for session::Audience {
    fn from(format: DiffFormat) -> Self {
        match format {
            DiffFormat::Human => Self::People,
            DiffFormat::Json | DiffFormat::Markdown => Self::Programs,
        }
    }
}

impl DiffCommand {
    pub(super) fn run(&self) -> Result<Exit, CliError> {
        let (base, head) = (DiffSide::read(&self.base)?, DiffSide::read(&self.head)?);
        match (base.explanations.is_empty(), head.explanations.is_empty()) {
            (true, false) => return Err(MixedKinds::new(&self.base, &self.head).into()),
            (false, true) => return Err(MixedKinds::new(&self.head, &self.base).into()),
            (true, true) | (false, false) => {}
        }
        let mut diff = diff(&base.report, &head.report);
        add_causes(&mut diff, &base.explanations, &head.explanations);
        if self.why {
            if head.explanations.is_empty() {
                return Err(NoExplanations.into());
            }
            diff.growth = grown(&base.explanations, &head.explanations);
        }
        let table = on_terminal::diff::render(&diff, terminal::is_quiet());
        let text = match self.message_format {
            DiffFormat::Human => table.clone(),
            DiffFormat::Json => session::json(&diff)?,
            DiffFormat::Markdown => markdown::diff::render(&diff, COMMENT, terminal::is_quiet()),
        };
        if self.output.is_some() {
            terminal::show(&table);
        }
        session::put(&text, self.message_format, self.output.as_deref())?;
        // Otherwise, reports of two different projects would always pass.
        if self.fail && diff.compares_nothing() {
            terminal::remark("nothing was compared: no model is in both reports on the same GPU");
            return Ok(Exit::Incomplete);
        }
        Ok(match diff.status {
            Status::Error if self.fail => Exit::Incomplete,
            Status::Fail if self.fail => Exit::OverBudget,
            _ => Exit::Success,
        })
    }
}

/// One file is a report and the other one an explanation. They cannot be compared, because their runs differ.
#[derive(Debug, Error, Diagnostic)]
#[error("{report} is a report, but {explanation} is an explanation")]
#[diagnostic(
    code(diff::mixed),
    help(
        "compare two reports (of `check`, `estimate` or `measure`) or two explanations (of `explain`); each command \
         writes its file with `--message-format json -o FILE`"
    )
)]
struct MixedKinds {
    report: Utf8PathBuf,
    explanation: Utf8PathBuf,
}

impl ExitCoded for MixedKinds {
    fn exit(&self) -> Exit {
        Exit::Unusable
    }
}

impl MixedKinds {
    fn new(report: &Utf8Path, explanation: &Utf8Path) -> Self {
        Self {
            report: report.to_owned(),
            explanation: explanation.to_owned(),
        }
    }
}

/// `--why` got reports, which say how much memory a model needs, but not what for.
#[derive(Debug, Error, Diagnostic)]
#[error("--why needs two explanations, but these files are reports")]
#[diagnostic(
    code(diff::no_explanations),
    help(
        "write an explanation of each version with `cargo vram explain MODEL --message-format json -o FILE`, or run \
         `cargo vram check --base REV --why` in a git checkout"
    )
)]
struct NoExplanations;

impl ExitCoded for NoExplanations {
    fn exit(&self) -> Exit {
        Exit::Unusable
    }
}

/// Explains the growth of live memory of each model that is on both sides.
fn grown(base: &[Explanation], head: &[Explanation]) -> Vec<GrowthExplanation> {
    let explained = head.iter().filter_map(|after| {
        let before = base
            .iter()
            .find(|before| key_of_run(&before.run) == key_of_run(&after.run))?;
        growth_between(before, after)
    });
    explained.collect()
}

/// One side of the comparison: a report, or explanations and a report with their runs.
struct DiffSide {
    report: Report,
    explanations: Vec<Explanation>,
}

impl DiffSide {
    fn read(path: &Utf8Path) -> Result<Self, CliError> {
        let Some(explanations) = explanations::read_unless_report(path)? else {
            return Ok(Self {
                report: Report::read(path)?,
                explanations: Vec::new(),
            });
        };
        let report = Report {
            version: REPORT_VERSION,
            command: None,
            expected_verdicts: Vec::new(),
            // `explanations::read_unless_report` refuses an empty list.
            tool: explanations[0].tool.clone(),
            commit: explanations[0].commit.clone(),
            dirty: None,
            partition: None,
            expected: Vec::new(),
            status: Status::Pass,
            runs: explanations.iter().map(|each| each.run.clone()).collect(),
            verdicts: Vec::new(),
            skipped: Vec::new(),
            base: None,
            problems: Vec::new(),
            growth: Vec::new(),
        };
        Ok(Self { report, explanations })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::explain::sample;

    /// Compares a report with an explanation, in either order.
    fn mixed(report_first: bool) -> (Exit, String) {
        let folder = tempfile::tempdir().unwrap();
        let path = |name: &str| Utf8PathBuf::from_path_buf(folder.path().join(name)).unwrap();
        let explanation = sample::resnet_of(2, 2);
        let report = crate::report::sample::report(vec![explanation.run.clone()]);
        std::fs::write(path("report.json"), serde_json::to_string(&report).unwrap()).unwrap();
        std::fs::write(path("explained.json"), serde_json::to_string(&explanation).unwrap()).unwrap();
        let (base, head) = match report_first {
            true => (path("report.json"), path("explained.json")),
            false => (path("explained.json"), path("report.json")),
        };
        let diff = DiffCommand {
            base,
            head,
            fail: false,
            why: false,
            message_format: DiffFormat::Human,
            output: None,
        };
        let stopped = diff.run().unwrap_err();
        (stopped.exit_code(), stopped.to_string())
    }

    #[test]
    fn a_report_is_not_compared_with_an_explanation_and_the_message_says_which_is_which() {
        for report_first in [true, false] {
            let (exit, message) = mixed(report_first);
            assert_eq!(exit, Exit::Unusable);
            let (report, explanation) = message.split_once(" is a report, but ").unwrap();
            assert!(report.ends_with("report.json"), "{message}");
            assert!(explanation.ends_with("explained.json is an explanation"), "{message}");
        }
    }
}
