//! `cargo vram estimate`: what the models need on a card, without one.

use clap::Args;

use super::exit::Exit;
use super::options::{Archive, Inputs, Loudness, Output, Packages, Running};
use super::{Stopped, cases, pipeline};
use crate::protocol::WhatIf;
use crate::run::Hardware;

/// Estimate what models need, on a virtual GPU
///
/// Nothing is judged: the exit code tells only whether it could be done.
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  cargo vram estimate                               every model, on the card of budgets.yaml
  cargo vram estimate -m resnet18 --gpu a100-80gb   one model, another card
  cargo vram estimate --set batch_size=64 --message-format json -o report.json
  cargo vram estimate --archive-file zoo-vram.tar.zst --gpu h200")]
pub(super) struct Estimate {
    #[command(flatten)]
    running: Running,
    #[command(flatten)]
    inputs: Inputs,
    #[command(flatten)]
    output: Output,
    #[command(flatten)]
    archive: Archive,
    #[command(flatten)]
    packages: Packages,
}

impl Estimate {
    pub(super) fn run(&self, loudness: Loudness) -> Result<Exit, Stopped> {
        let prepared = pipeline::prepare(&self.packages, self.archive.file(), self.running.budgets.as_deref())?;
        let folder = prepared.source.scratch(self.running.keep.as_deref())?;
        let models = pipeline::models(&prepared, &self.packages, Some(&self.running), loudness, folder.path())?;
        let recordings = pipeline::recordings(&self.running)?;
        let profile = cases::estimated(cases::declared_card(&prepared, &self.running)?, &recordings);
        let cases = cases::cases(&prepared, &models, &self.running, &self.inputs.values(), &profile)?;
        let on = pipeline::On {
            driver: &prepared.source.driver()?,
            hardware: Hardware::Virtual,
            repeat: 1,
            recordings,
            what_if: WhatIf::default(),
            trace: false,
            folder: folder.path().join("estimate"),
        };
        let (runs, _) = pipeline::run(&cases, &self.running, on, loudness);
        let mut report = pipeline::report(&prepared, &models, &self.running, runs);
        let headline = cases.first().map_or_else(String::new, |case| {
            format!(
                "estimated on a virtual {} ({}); no GPU was used",
                case.profile.name, case.profile.total.value
            )
        });
        pipeline::write(&mut report, &self.output, loudness, &headline, false)?;
        Ok(Exit::of_errors(&report))
    }
}
