//! `cargo vram diff`: what changed between two reports.

use camino::{Utf8Path, Utf8PathBuf};
use clap::{Args, ValueEnum};
use miette::Diagnostic;
use thiserror::Error;

use super::exit::{Exit, exit_codes};
use super::options::Loudness;
use super::{Stopped, explanations, pipeline, terminal};
use crate::explain::Explanation;
use crate::report::diff::{diff, explain, human, markdown};
use crate::report::markdown::COMMENT;
use crate::report::{REPORT_VERSION, Report, Status};

/// Tell what changed between two reports, or two explanations
///
/// Compares every figure of two reports, and lists what else changed that may be why: inputs, Burn's version, parameters,
/// phases, choices of autotune. Of two explanations it lists layers and categories, too. With --quiet it prints only what
/// is wrong, and the likeliest reason of each.
#[derive(Debug, Args)]
#[command(after_help = concat!("\
Examples:
  cargo vram diff base.json head.json
  cargo vram diff base.json head.json --fail     fail where live grew by more than 5 % and 16 MiB, or past the growth
                                                 that head.json was judged by
  cargo vram diff base.json head.json --message-format markdown
  cargo vram explain resnet18 --message-format json -o after.json
  cargo vram diff before.json after.json         which layers and categories changed

", exit_codes!()))]
pub(super) struct Diff {
    /// The older report, as `check`, `estimate` or `measure --message-format json -o FILE` wrote it, or an
    /// explanation, as `explain` did
    #[arg(value_name = "BASE")]
    base: Utf8PathBuf,
    /// The newer report or explanation
    #[arg(value_name = "HEAD")]
    head: Utf8PathBuf,
    /// Exit with 100 where a figure grew past its limit or a model ran out of memory, 101 where one died
    #[arg(long)]
    fail: bool,
    /// What the output looks like
    #[arg(long, value_enum, value_name = "FORMAT", default_value = "human")]
    message_format: Format,
    /// Write the output to a file; people are then shown the table all the same
    #[arg(short, long, value_name = "FILE")]
    output: Option<Utf8PathBuf>,
}

/// What a difference looks like.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
enum Format {
    /// A table
    Human,
    /// A JSON document
    Json,
    /// Markdown
    Markdown,
}

impl Diff {
    pub(super) fn run(&self, loudness: Loudness) -> Result<Exit, Stopped> {
        let (base, head) = (Side::read(&self.base)?, Side::read(&self.head)?);
        match (base.explanations.is_empty(), head.explanations.is_empty()) {
            (true, false) => return Err(Mixed::new(&self.base, &self.head).into()),
            (false, true) => return Err(Mixed::new(&self.head, &self.base).into()),
            (true, true) | (false, false) => {}
        }
        let mut diff = diff(&base.report, &head.report);
        explain(&mut diff, &base.explanations, &head.explanations);
        let table = human(&diff, loudness.quiet);
        let text = match self.message_format {
            Format::Human => table.clone(),
            Format::Json => pipeline::json(&diff)?,
            Format::Markdown => markdown(&diff, COMMENT, loudness.quiet),
        };
        if self.output.is_some() {
            terminal::show(&table);
        }
        pipeline::put(&text, self.output.as_deref())?;
        if self.fail && diff.compares_nothing() {
            terminal::remark("nothing was compared: no model of the one report is in the other, on the same GPU");
            return Ok(Exit::Incomplete);
        }
        Ok(match diff.status {
            Status::Error if self.fail => Exit::Incomplete,
            Status::Fail if self.fail => Exit::OverBudget,
            _ => Exit::Success,
        })
    }
}

/// A report is to be compared with an explanation, which has other runs behind it.
#[derive(Debug, Error, Diagnostic)]
#[error("{report} is a report, and {explanation} is an explanation")]
#[diagnostic(
    code(diff::mixed),
    help(
        "compare two reports, which `check`, `estimate` and `measure` write, or two explanations, which `explain` writes: each with `--message-format json -o FILE`"
    )
)]
struct Mixed {
    report: Utf8PathBuf,
    explanation: Utf8PathBuf,
}

impl Mixed {
    fn new(report: &Utf8Path, explanation: &Utf8Path) -> Self {
        Self {
            report: report.to_owned(),
            explanation: explanation.to_owned(),
        }
    }
}

/// One of the two.
struct Side {
    report: Report,
    explanations: Vec<Explanation>,
}

impl Side {
    fn read(path: &Utf8Path) -> Result<Self, Stopped> {
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
        };
        Ok(Self { report, explanations })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cli::options::Color;
    use crate::explain::sample;

    /// Compares a report with an explanation, the one or the other first.
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
        let diff = Diff {
            base,
            head,
            fail: false,
            message_format: Format::Human,
            output: None,
        };
        let stopped = diff
            .run(Loudness {
                quiet: false,
                verbose: false,
                color: Color::Never,
            })
            .unwrap_err();
        (super::super::exit_of(&stopped), stopped.to_string())
    }

    #[test]
    fn a_report_is_not_compared_with_an_explanation_and_the_message_says_which_is_which() {
        for report_first in [true, false] {
            let (exit, message) = mixed(report_first);
            assert_eq!(exit, Exit::Unusable);
            let (report, explanation) = message.split_once(" is a report, and ").unwrap();
            assert!(report.ends_with("report.json"), "{message}");
            assert!(explanation.ends_with("explained.json is an explanation"), "{message}");
        }
    }
}
