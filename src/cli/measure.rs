//! `cargo vram measure`: what the models hold on a real GPU.

use std::path::PathBuf;

use camino::{Utf8Path, Utf8PathBuf};
use clap::Args;
use miette::Diagnostic;
use thiserror::Error;

use super::card::{self, Measuring};
use super::exit::Exit;
use super::options::{Archive, Inputs, Loudness, Packages, ReportOutput, Running};
use super::pipeline::{self, Ran};
use super::{Stopped, cases, terminal};
use crate::bytes::Bytes;
use crate::recording::{self, CardFacts, RunIdentity};
use crate::report::{Gpu, Obtained, Outside, ProcessOf, Report, Run, WrittenBy};
use crate::run::Hardware;

/// Measure what models hold, on a real GPU
///
/// Runs the same passes as an estimate, through a driver that counts and passes every call on to the real one. Nothing
/// is judged: the exit code tells only whether it could be done (0, 101, or 2 for the command line). Needs NVIDIA's driver,
/// NVRTC and CUDA's headers: `cargo vram doctor` tells what is missing.
#[derive(Debug, Args)]
// Refused, and without effect: one card is measured, by one process at a time.
#[command(mut_arg("gpu", |gpu| gpu.hide(true)), mut_arg("jobs", |jobs| jobs.hide(true)))]
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
    /// Write a recording into this folder: the figures, and what autotune chose on this card. Read it later with
    /// `cargo vram estimate --recordings FOLDER`
    #[arg(long, value_name = "FOLDER", conflicts_with_all = ["limit", "recordings", "plan", "fault"], help_heading = "Measuring")]
    record: Option<Utf8PathBuf>,
    #[command(flatten)]
    output: ReportOutput,
    #[command(flatten)]
    archive: Archive,
    #[command(flatten)]
    packages: Packages,
}

#[derive(Debug, Error, Diagnostic)]
enum Refused {
    #[error("measure takes no --gpu: it measures the card that is there")]
    #[diagnostic(
        code(cli::gpu),
        help(
            "--device chooses one of several cards, --limit makes one smaller, `cargo vram estimate --gpu` needs none"
        )
    )]
    Gpu,
}

impl Measure {
    pub(super) fn run(&self, loudness: Loudness) -> Result<Exit, Stopped> {
        if !self.running.gpu.is_empty() {
            return Err(Refused::Gpu.into());
        }
        let prepared = pipeline::prepare(&self.packages, self.archive.file(), self.running.budgets.as_deref())?;
        let driver = prepared.source.driver()?;
        // Before the models are built: without a card there is nothing to build them for.
        let taken = card::take(&self.measuring, self.limit, &driver, &prepared.profiles, loudness)?;
        let folder = prepared.source.scratch(self.running.keep.as_deref())?;
        let models = pipeline::models(&prepared, &self.packages, Some(&self.running), loudness, folder.path())?;
        let known = pipeline::recordings(&self.running)?;
        let profile = cases::measured(&taken.profile, &taken.real.driver, &known);
        let cases = cases::cases(&prepared, &models, &self.running, &self.inputs.values(), &profile)?;
        let headline = taken.headline();
        let facts = taken.facts();
        let on = pipeline::On {
            repeat: self.repeat,
            ..pipeline::On::new(
                &driver,
                Hardware::Real(taken.real),
                // A card makes its own choices, unless others are to be replayed.
                pipeline::own_recordings(&self.running)?.unwrap_or_default(),
                folder.path().join("measure"),
            )
        };
        let partly = pipeline::run_partly(&cases, &self.running, on, loudness);
        let (problems, signal) = (partly.problems(), partly.signal);
        let Ran { runs, choices, .. } = partly.ran;
        let mut report = pipeline::report(Some(WrittenBy::Measure), &prepared, &models, &self.running, runs);
        report.problems.extend(problems);
        pipeline::write(&mut report, &self.output, loudness, &headline, false, &prepared.source)?;
        if let Some(folder) = &self.record {
            record(folder, &report, &choices, facts, loudness)?;
        }
        Ok(Exit::of_errors(&report).or(Exit::of_signal(signal)))
    }
}

/// Keeps a measurement as a recording.
fn record(
    folder: &Utf8Path,
    report: &Report,
    choices: &[PathBuf],
    facts: CardFacts,
    loudness: Loudness,
) -> Result<(), Stopped> {
    // What the whole device holds may be another process's: it says nothing of the GPU itself.
    let is_own = |run: &&Run| {
        let process = run
            .measurement
            .as_ref()
            .and_then(|measurement| measurement.process.as_ref());
        process.is_some_and(|process| process.of == ProcessOf::Process)
    };
    let measured = |outside: fn(&Gpu) -> &Option<Outside>| {
        let all = report
            .runs
            .iter()
            .filter(is_own)
            .filter_map(|run| outside(&run.gpu).clone());
        all.filter(|outside| outside.obtained == Obtained::Measured)
            .max_by_key(|outside| outside.bytes)
    };
    let facts = CardFacts {
        context: measured(|gpu| &gpu.context),
        modules: measured(|gpu| &gpu.modules),
        ..facts
    };
    let runs = report.runs.iter().map(RunIdentity::of).zip(choices.iter().cloned());
    let recorded = recording::record(folder.as_std_path(), report, &runs.collect::<Vec<_>>(), &facts)?;
    for (run, why) in &recorded.refused {
        terminal::remark(&format!("not recorded: {run}: {why}"));
    }
    if !loudness.quiet {
        terminal::remark(&format!(
            "recorded {} new and {} known runs with {} choices in {}",
            recorded.added,
            recorded.replaced,
            recorded.choices,
            recorded.folder.display(),
        ));
    }
    Ok(())
}
