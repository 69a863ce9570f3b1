//! `cargo vram estimate`: estimates the memory that models need, without a GPU.

use clap::Args;

use super::exit::Exit;
use super::options::{ArchiveOptions, InputOptions, Packages, ReportOutput, Running};
use crate::cli::error::CliError;
use crate::cli::session::cases;
use crate::cli::session::what_if::WhatIfs;
use crate::cli::session::{self, Context, TableSetup};

/// Estimate the memory that models need, on a virtual GPU
///
/// The estimates are not compared with budgets: the exit code only says whether every model could be estimated.
///
/// If a signal stops the command, it prints the finished models and exits with 130, 143 or 129. The report then
/// says that it is incomplete.
#[derive(Debug, Args)]
#[command(after_long_help = "\
Examples:
  cargo vram estimate
      estimate every model on the GPU in budgets.yaml
  cargo vram estimate -m resnet18 --gpu a100-80gb
      estimate one model on another GPU
  cargo vram estimate --gpu l4,h100-80gb
      estimate every model on two GPUs
  cargo vram estimate --set batch_size=64 --message-format json -o report.json
  cargo vram estimate -m resnet18 --optimizer sgd,adam --dtype f16
      show what changes with other settings
  cargo vram estimate --archive-file zoo-vram.tar.zst --gpu h200")]
pub(super) struct Estimate {
    // The inputs come first, so that the heading `What-if` is the second one.
    #[command(flatten)]
    inputs: InputOptions,
    #[command(flatten)]
    what_ifs: WhatIfs,
    #[command(flatten)]
    running: Running,
    #[command(flatten)]
    output: ReportOutput,
    #[command(flatten)]
    archive: ArchiveOptions,
    #[command(flatten)]
    packages: Packages,
}

impl Estimate {
    pub(super) fn run(&self) -> Result<Exit, CliError> {
        let packages = self.what_ifs.packages(&self.packages);
        let prepared = session::prepare(&packages, self.archive.file(), self.running.budgets.as_deref())?;
        let inputs = self.inputs.values();
        let context = Context {
            prepared: &prepared,
            packages: &self.packages,
            running: &self.running,
        };
        let estimated = session::estimate(&context, &inputs, &self.what_ifs, false)?;
        let mut report = estimated.report;
        let headline = match report.runs.is_empty() {
            true => String::new(),
            false => format!("estimated on {}; no GPU was used", cases::virtual_gpus(&estimated.gpus)),
        };
        let table = TableSetup {
            headline: &headline,
            ..TableSetup::default()
        };
        session::write(&mut report, &self.output, table, &prepared.source)?;
        Ok(Exit::from_errors(&report).or(Exit::from_signal(estimated.signal)))
    }
}
