//! `cargo vram diff`: what changed between two reports.

use camino::{Utf8Path, Utf8PathBuf};
use clap::{Args, ValueEnum};

use super::exit::{Exit, exit_codes};
use super::options::Loudness;
use super::{Stopped, explanations, pipeline, terminal};
use crate::explain::Explanation;
use crate::report::diff::{diff, explain, human, markdown};
use crate::report::markdown::COMMENT;
use crate::report::{REPORT_VERSION, Report, Status};

/// Tell what changed between two reports, or two explanations
///
/// Compares every figure of two reports, and tells what else changed that may be why: phases, parameters, inputs,
/// choices of autotune, Burn's version. Of two explanations it tells categories and layers, too.
#[derive(Debug, Args)]
#[command(after_help = concat!("\
Examples:
  cargo vram diff base.json head.json
  cargo vram diff base.json head.json --fail     fail where live grew by more than 5 % and 16 MiB, or past the growth
                                                 that head.json was judged by
  cargo vram diff base.json head.json --message-format markdown
  cargo vram explain resnet18 --message-format json -o after.json
  cargo vram diff before.json after.json         which categories and layers changed

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
        let mut diff = diff(&base.report, &head.report);
        explain(&mut diff, &base.explanations, &head.explanations);
        let table = human(&diff, loudness.quiet);
        let text = match self.message_format {
            Format::Human => table.clone(),
            Format::Json => pipeline::json(&diff)?,
            Format::Markdown => markdown(&diff, COMMENT),
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
