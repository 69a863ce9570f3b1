//! `cargo vram merge`: joins the reports of several jobs.

use camino::{Utf8Path, Utf8PathBuf};
use clap::Args;
use miette::Diagnostic;
use thiserror::Error;

use super::exit::{Exit, exit_codes};
use super::options::{Loudness, ReportOutput};
use super::{Stopped, pipeline};
use crate::report::{Report, WrittenBy, merge};

/// Join the reports of several jobs into one
///
/// Reads what `cargo vram check --partition hash:K/N --message-format json -o FILE` wrote in each job, and ends as one
/// check of everything would have. Refuses reports of different commits, versions or lists of models, a run that is in
/// two of them, and models that are in none.
#[derive(Debug, Args)]
#[command(after_help = concat!("\
Examples:
  cargo vram merge part-*.json                                       the table of all
  cargo vram merge part-*.json --message-format json -o report.json
  cargo vram merge part-*.json --message-format markdown >> $GITHUB_STEP_SUMMARY

", exit_codes!()))]
pub(super) struct Merge {
    /// Reports, as JSON
    #[arg(value_name = "FILE", required = true)]
    files: Vec<Utf8PathBuf>,
    #[command(flatten)]
    output: ReportOutput,
    /// Treat warnings as failures
    #[arg(long)]
    deny_warnings: bool,
}

#[derive(Debug, Error, Diagnostic)]
#[error("there is nothing to merge")]
#[diagnostic(code(merge::nothing))]
struct Nothing;

impl Merge {
    pub(super) fn run(&self, loudness: Loudness) -> Result<Exit, Stopped> {
        let mut reports = Vec::new();
        for file in &self.files {
            reports.push((file.to_string(), Report::read(file)?));
        }
        let headline = match reports.len() {
            1 => "of 1 report".to_owned(),
            count => format!("merged from {count} reports"),
        };
        let report = merge::merge(reports)?.ok_or(Nothing)?;
        // An estimate is not judged, and neither are many of them.
        let judged = report.command == Some(WrittenBy::Check);
        pipeline::show(&report, &self.output, loudness, &headline, judged, Utf8Path::new("."))?;
        Ok(pipeline::exit_of_judged(&report, self.deny_warnings))
    }
}
