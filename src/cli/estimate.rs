//! `cargo vram estimate`: what the models need on a card, without one.

use clap::Args;

use super::exit::Exit;
use super::options::{Archive, Inputs, Loudness, Packages, ReportOutput, Running};
use super::what_if::WhatIfs;
use super::{Stopped, cases, pipeline};

/// Estimate what models need, on a virtual GPU
///
/// Nothing is judged: the exit code tells only whether it could be done. When SIGINT or SIGTERM stops it, it prints the models that
/// are finished and exits with 130 or 143; its report then says that it is incomplete.
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  cargo vram estimate                               every model, on the card of budgets.yaml
  cargo vram estimate -m resnet18 --gpu a100-80gb   one model, another GPU
  cargo vram estimate --gpu l4,h100-80gb            every model, on each of two GPUs
  cargo vram estimate --set batch_size=64 --message-format json -o report.json
  cargo vram estimate -m resnet18 --optimizer sgd,adam --dtype f16   what if it were so, against the model as it is
  cargo vram estimate --archive-file zoo-vram.tar.zst --gpu h200")]
pub(super) struct Estimate {
    #[command(flatten)]
    running: Running,
    #[command(flatten)]
    inputs: Inputs,
    #[command(flatten)]
    what_ifs: WhatIfs,
    #[command(flatten)]
    output: ReportOutput,
    #[command(flatten)]
    archive: Archive,
    #[command(flatten)]
    packages: Packages,
}

impl Estimate {
    pub(super) fn run(&self, loudness: Loudness) -> Result<Exit, Stopped> {
        let packages = self.what_ifs.packages(&self.packages);
        let prepared = pipeline::prepare(&packages, self.archive.file(), self.running.budgets.as_deref())?;
        self.what_ifs.announce(&prepared.source, loudness);
        let inputs = self.inputs.values();
        let estimated = pipeline::estimate(
            &prepared,
            &self.packages,
            &self.running,
            &inputs,
            &self.what_ifs,
            false,
            loudness,
        )?;
        let mut report = estimated.report;
        let headline = match report.runs.is_empty() {
            true => String::new(),
            false => format!(
                "estimated on {}; no GPU was used",
                cases::virtual_cards(&estimated.cards)
            ),
        };
        pipeline::write(&mut report, &self.output, loudness, &headline, false, &prepared.source)?;
        Ok(Exit::of_errors(&report).or(Exit::of_signal(estimated.signal)))
    }
}
