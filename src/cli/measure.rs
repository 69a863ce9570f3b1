//! `cargo vram measure`: measures the memory that models hold on a real GPU.

use std::path::PathBuf;

use camino::{Utf8Path, Utf8PathBuf};
use clap::Args;
use miette::Diagnostic;
use thiserror::Error;

use super::exit::Exit;
use super::options::{ArchiveOptions, InputOptions, Packages, ReportOutput, Running};
use super::terminal;
use crate::bytes::Bytes;
use crate::cli::error::{CliError, ExitCoded};
use crate::cli::session::FinishedCases;
use crate::cli::session::cases;
use crate::cli::session::real_gpu::{self, Measuring};
use crate::cli::session::{self, Context, TableSetup};
use crate::recording::{self, GpuFacts, RunIdentity};
use crate::report::{Obtained, ProcessOf, ProcessOverhead, Report, Run, RunGpu, WrittenBy};
use crate::run::Hardware;
use crate::untrusted::{named, words};

/// Measure the memory that models hold, on a real GPU
///
/// Runs the same passes as an estimate, with a driver that counts every call and passes it on to the real driver. The
/// measurements are not compared with budgets. The exit code is 0 if every model was measured, 101 if not, and 2 if the
/// command line is unusable.
///
/// Needs NVIDIA's driver, NVRTC and CUDA's headers. `cargo vram doctor` shows what is missing.
#[derive(Debug, Args)]
// `measure` refuses `--gpu` and ignores `--jobs`, because it measures one GPU with one process at a time.
#[command(mut_arg("gpu", |gpu| gpu.hide(true)), mut_arg("jobs", |jobs| jobs.hide(true)))]
#[command(after_long_help = "\
Examples:
  cargo vram measure
      measure every model on the first GPU
  cargo vram measure -m resnet18 --device 1
      measure one model on the second GPU
  cargo vram measure --repeat 5
      show how far repeated runs differ, with new autotune choices in each
  cargo vram measure --limit 20GiB
      measure as on a GPU with 20 GiB
  cargo vram measure --record fixtures/recordings
      keep the values and the autotune choices, for estimates to use")]
pub(super) struct Measure {
    #[command(flatten)]
    running: Running,
    #[command(flatten)]
    inputs: InputOptions,
    #[command(flatten)]
    measuring: Measuring,
    /// Measure as on a GPU with this much memory
    ///
    /// The driver reports no more memory than that, and refuses allocations beyond it.
    #[arg(long, value_name = "SIZE", value_parser = super::options::size, help_heading = "GPU")]
    limit: Option<Bytes>,
    /// Write a recording of this GPU to this folder, for estimates to use
    ///
    /// It contains the values and the autotune choices. `cargo vram estimate --recordings FOLDER` reads it.
    #[arg(
        long,
        value_name = "FOLDER",
        // With any of these, the run is not what a program
        // gets on this GPU. Only free choices can be recorded.
        conflicts_with_all = ["limit", "recordings", "plan", "fault"],
        help_heading = "GPU"
    )]
    record: Option<Utf8PathBuf>,
    /// Run each model this many times, and show how far the values differ
    ///
    /// Autotune makes new choices each time.
    #[arg(
        long,
        value_name = "N",
        default_value_t = 1,
        value_parser = clap::value_parser!(u32).range(1..=1000),
        help_heading = "Run"
    )]
    repeat: u32,
    #[command(flatten)]
    output: ReportOutput,
    #[command(flatten)]
    archive: ArchiveOptions,
    #[command(flatten)]
    packages: Packages,
}

#[derive(Debug, Error, Diagnostic)]
enum MeasureError {
    #[error("`measure` does not support --gpu, because it measures a GPU of this machine")]
    #[diagnostic(
        code(cli::gpu),
        help(
            "choose one of several GPUs with --device, imitate a smaller one with --limit, or run \
             `cargo vram estimate --gpu ID`, which needs no GPU"
        )
    )]
    Gpu,
}

impl ExitCoded for MeasureError {
    fn exit(&self) -> Exit {
        match self {
            Self::Gpu => Exit::Unusable,
        }
    }
}

impl Measure {
    pub(super) fn run(&self) -> Result<Exit, CliError> {
        if !self.running.gpu.is_empty() {
            return Err(MeasureError::Gpu.into());
        }
        let prepared = session::prepare(&self.packages, self.archive.file(), self.running.budgets.as_deref())?;
        let driver = prepared.source.driver()?;
        // The GPU is locked before the models are built: without a GPU, the build would be useless.
        let taken = real_gpu::take(&self.measuring, self.limit, &driver, &prepared.profiles)?;
        let folder = prepared.source.scratch(self.running.keep.as_deref())?;
        let context = Context {
            prepared: &prepared,
            packages: &self.packages,
            running: &self.running,
        };
        let models = session::models(&context, folder.path())?;
        let known = session::recordings(&self.running)?;
        let profile = cases::measured(&taken.profile, &taken.real.driver, &known);
        let cases = cases::cases(&prepared, &models, &self.running, &self.inputs.values(), &profile)?;
        let headline = taken.headline();
        let facts = taken.facts();
        let on = session::RunSetup {
            repeat: self.repeat,
            ..session::RunSetup::new(
                &driver,
                Hardware::Real(taken.real),
                // Autotune makes its own choices on this GPU, unless the user asks to replay recorded ones.
                session::own_recordings(&self.running)?.unwrap_or_default(),
                folder.path().join("measure"),
            )
        };
        let partly = session::run_partly(&cases, &context, on);
        let (problems, signal) = (partly.problems(), partly.signal);
        let FinishedCases { runs, choices, .. } = partly.ran;
        let mut report = session::report(Some(WrittenBy::Measure), &context, &models, runs);
        report.problems.extend(problems);
        let table = TableSetup {
            headline: &headline,
            ..TableSetup::default()
        };
        session::write(&mut report, &self.output, table, &prepared.source)?;
        if let Some(folder) = &self.record {
            record(folder, &report, &choices, facts)?;
        }
        Ok(Exit::from_errors(&report).or(Exit::from_signal(signal)))
    }
}

/// Writes a measurement as a recording.
fn record(folder: &Utf8Path, report: &Report, choices: &[PathBuf], facts: GpuFacts) -> Result<(), CliError> {
    // Memory of the whole device may belong to other processes, so only values of the process itself describe the GPU.
    let is_own = |run: &&Run| {
        let process = run
            .measurement
            .as_ref()
            .and_then(|measurement| measurement.process.as_ref());
        process.is_some_and(|process| process.of == ProcessOf::Process)
    };
    let measured = |outside: fn(&RunGpu) -> &Option<ProcessOverhead>| {
        let all = report
            .runs
            .iter()
            .filter(is_own)
            .filter_map(|run| outside(&run.gpu).clone());
        all.filter(|outside| outside.obtained == Obtained::Measured)
            .max_by_key(|outside| outside.bytes)
    };
    let facts = GpuFacts {
        context: measured(|gpu| &gpu.context),
        modules: measured(|gpu| &gpu.modules),
        ..facts
    };
    let runs = report
        .runs
        .iter()
        .map(RunIdentity::from_run)
        .zip(choices.iter().cloned());
    let recorded = recording::record(folder.as_std_path(), report, &runs.collect::<Vec<_>>(), &facts)?;
    for (run, why) in &recorded.refused {
        terminal::remark(&format!(
            "not recorded: {}: {}",
            named(&run.to_string()),
            words(&why.to_string())
        ));
    }
    if !terminal::is_quiet() {
        terminal::remark(&format!(
            "recorded {} new and {} replaced runs with {} autotune choices in {}",
            recorded.added,
            recorded.replaced,
            recorded.choices,
            recorded.folder.display(),
        ));
    }
    Ok(())
}
