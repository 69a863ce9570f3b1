//! `cargo vram merge`: merges the reports of several jobs.

use camino::{Utf8Path, Utf8PathBuf};
use clap::Args;
use miette::Diagnostic;
use thiserror::Error;

use super::exit::{Exit, with_exit_codes};
use super::options::ReportOutput;
use crate::cli::error::{CliError, ExitCoded};
use crate::cli::session::{self, TableSetup};
use crate::report::{Report, WrittenBy, merge};

/// Merge the reports of several jobs into one
///
/// Reads the reports that `cargo vram check --partition hash:K/N --message-format json -o FILE` wrote in each job. The
/// exit code is the same as that of one check of all models.
///
/// Refuses reports of different commits, versions or lists of models, runs that are in two reports, and models that are
/// in no report.
#[derive(Debug, Args)]
#[command(after_long_help = with_exit_codes("\
Examples:
  cargo vram merge part-*.json    print the table of all models
  cargo vram merge part-*.json --message-format json -o report.json
  cargo vram merge part-*.json --message-format markdown >> $GITHUB_STEP_SUMMARY"))]
pub(super) struct Merge {
    /// The JSON reports to merge
    #[arg(value_name = "FILE", required = true)]
    files: Vec<Utf8PathBuf>,
    /// Treat warnings as failures
    #[arg(long, help_heading = "Baseline")]
    deny_warnings: bool,
    #[command(flatten)]
    output: ReportOutput,
}

#[derive(Debug, Error, Diagnostic)]
#[error("there is nothing to merge")]
#[diagnostic(code(merge::nothing))]
struct NothingToMerge;

impl ExitCoded for NothingToMerge {
    fn exit(&self) -> Exit {
        Exit::Unusable
    }
}

impl Merge {
    pub(super) fn run(&self) -> Result<Exit, CliError> {
        let mut reports = Vec::new();
        for file in &self.files {
            reports.push((file.to_string(), Report::read(file)?));
        }
        let headline = match reports.len() {
            1 => "merged from 1 report".to_owned(),
            count => format!("merged from {count} reports"),
        };
        let report = merge::merge(reports)?.ok_or(NothingToMerge)?;
        // Only `check` compares with budgets. Merged estimates and measurements have no verdicts.
        let judged = report.command == Some(WrittenBy::Check);
        let table = TableSetup {
            headline: &headline,
            judged,
            ..TableSetup::default()
        };
        session::show(&report, &self.output, table, Utf8Path::new("."))?;
        Ok(session::exit_of_judged(&report, self.deny_warnings))
    }
}
