//! `cargo vram diff`: what changed between two reports.

use camino::Utf8PathBuf;
use clap::{Args, ValueEnum};

use super::exit::{Exit, exit_codes};
use super::options::Loudness;
use super::{Stopped, pipeline, terminal};
use crate::report::diff::{diff, human, markdown};
use crate::report::markdown::COMMENT;
use crate::report::{Report, Status};

/// Tell what changed between two reports
///
/// Compares every figure of two reports, and tells what else changed that may be why: phases, parameters, inputs,
/// choices of autotune, Burn's version.
#[derive(Debug, Args)]
#[command(after_help = concat!("\
Examples:
  cargo vram diff base.json head.json
  cargo vram diff base.json head.json --fail     fail where live grew by more than 5 % and 16 MiB, or past the growth
                                                 that head.json was judged by
  cargo vram diff base.json head.json --message-format markdown

", exit_codes!()))]
pub(super) struct Diff {
    /// The older report, as `check`, `estimate` or `measure --message-format json -o FILE` wrote it
    #[arg(value_name = "BASE")]
    base: Utf8PathBuf,
    /// The newer report
    #[arg(value_name = "HEAD")]
    head: Utf8PathBuf,
    /// Exit with 100 where a figure grew past its limit
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
        let diff = diff(&Report::read(&self.base)?, &Report::read(&self.head)?);
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
        Ok(match self.fail && diff.status == Status::Fail {
            true => Exit::OverBudget,
            false => Exit::Success,
        })
    }
}
