//! `cargo vram measure`: what the models hold on a real GPU.

use clap::Args;
use miette::Diagnostic;
use thiserror::Error;

use super::card::{self, Measuring};
use super::exit::Exit;
use super::options::{Inputs, Loudness, Output, Packages, Running};
use super::{Stopped, cases, pipeline};
use crate::bytes::Bytes;
use crate::run::Hardware;

/// Measure what models hold, on a real GPU
///
/// Runs the same passes as an estimate, through a driver that counts and passes every call on to the real one. Nothing
/// is judged: the exit code tells only whether it could be done.
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  cargo vram measure                                   every model, on the first GPU
  cargo vram measure -m resnet18 --device 1            one model, on the second
  cargo vram measure --repeat 5                        how far freely tuned runs lie apart
  cargo vram measure --limit 20GiB                     as on a card of 20 GiB
  cargo vram measure --record fixtures/recordings      keep figures and autotune's choices, for estimates to use")]
pub(super) struct Measure {
    #[command(flatten)]
    running: Running,
    #[command(flatten)]
    inputs: Inputs,
    #[command(flatten)]
    measuring: Measuring,
    /// Measure as on a card of this much memory: the driver reports no more, and refuses what is beyond
    #[arg(long, value_name = "SIZE", value_parser = super::options::size, help_heading = "Measuring")]
    limit: Option<Bytes>,
    /// Run each model so many times, tuned anew each time, and tell how far the figures lie apart
    #[arg(long, value_name = "N", default_value_t = 1, value_parser = clap::value_parser!(u32).range(1..=1000), help_heading = "Measuring")]
    repeat: u32,
    #[command(flatten)]
    output: Output,
    #[command(flatten)]
    packages: Packages,
}

#[derive(Debug, Error, Diagnostic)]
enum Refused {
    #[error("measure takes no --gpu: it measures the card that is there")]
    #[diagnostic(
        code(cli::gpu),
        help("--device chooses one of several cards, --limit makes one smaller, `cargo vram estimate --gpu` needs none")
    )]
    Gpu,
}

impl Measure {
    pub(super) fn run(&self, loudness: Loudness) -> Result<Exit, Stopped> {
        if self.running.gpu.is_some() {
            return Err(Refused::Gpu.into());
        }
        let prepared = pipeline::prepare(&self.packages, self.running.budgets.as_deref())?;
        let driver = pipeline::driver(&prepared)?;
        // Before the models are built: without a card there is nothing to build them for.
        let taken = card::take(&self.measuring, self.limit, &driver, &prepared.profiles, loudness)?;
        let folder = pipeline::scratch(&prepared.workspace, self.running.keep.as_deref())?;
        let models = pipeline::models(&prepared, &self.packages, Some(&self.running), loudness, folder.path())?;
        let cases = cases::cases(&prepared, &models, &self.running, &self.inputs.values(), &taken.profile)?;
        let headline = taken.headline();
        let on = pipeline::On {
            driver: &driver,
            hardware: Hardware::Real(taken.real),
            repeat: self.repeat,
            folder: folder.path().join("measure"),
        };
        let (runs, _) = pipeline::run(&cases, &self.running, on, loudness);
        let mut report = pipeline::report(&prepared, &models, &self.running, runs);
        pipeline::write(&mut report, &self.output, loudness, &headline, false)?;
        Ok(Exit::of_errors(&report))
    }
}
