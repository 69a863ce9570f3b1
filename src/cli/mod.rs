//! The command line: one file a command, each of which parses, calls, renders, and tells how it ended.

mod archive;
mod base;
mod bless;
mod card;
mod cases;
mod check;
mod comment;
mod diff;
mod doctor;
mod estimate;
mod exit;
mod explain;
mod explanation;
mod explanations;
mod fit;
mod gpus;
mod init;
mod interrupt;
mod list;
mod measure;
mod merge;
mod options;
mod pipeline;
mod report;
mod savings;
mod schema;
mod source;
mod survey;
mod terminal;
mod texts;
mod timings;
mod what_if;

use std::io::Write;
use std::process::ExitCode;

use clap::{Parser, Subcommand};

use crate::archive::ArchiveError;
use exit::Exit;
use options::Loudness;

/// Budgets for the GPU memory of Burn models: estimated without a GPU, measured with one, and a gate for CI.
#[derive(Debug, Parser)]
#[command(name = "cargo", bin_name = "cargo", disable_help_subcommand = true)]
struct Cargo {
    #[command(subcommand)]
    command: CargoCommand,
}

#[derive(Debug, Subcommand)]
enum CargoCommand {
    Vram(Vram),
}

/// Budgets for the GPU memory of Burn models: estimated without a GPU, measured with one, and a gate for CI
///
/// Builds the Burn models that a workspace declares, runs their real training step on the CUDA backend over a
/// virtual GPU, and compares what it holds with the limits in budgets.yaml.
#[derive(Debug, Parser)]
#[command(version, arg_required_else_help = true, after_help = concat!("\
Examples:
  cargo vram init                      write a benchmark, its Cargo.toml entries and a first budgets.yaml
  cargo vram check                     judge every model against budgets.yaml
  cargo vram estimate --gpu h200       what the models need, on another card
  cargo vram measure                   what they hold, on the GPU of this machine
  cargo vram estimate -m 'resnet*' --set batch_size=128 --gpu l4
"))]
struct Vram {
    #[command(subcommand)]
    command: Command,
    #[command(flatten)]
    loudness: Loudness,
}

#[derive(Debug, Subcommand)]
enum Command {
    Init(init::Init),
    List(list::List),
    Estimate(estimate::Estimate),
    Measure(measure::Measure),
    Check(check::Check),
    Bless(bless::Bless),
    Explain(Box<explain::Explain>),
    Fit(Box<fit::Fit>),
    Report(Box<report::Report>),
    Diff(diff::Diff),
    Merge(merge::Merge),
    Comment(comment::Comment),
    Archive(archive::Archive),
    Doctor(doctor::Doctor),
    Gpus(gpus::Gpus),
    Schema(schema::Schema),
}

/// Why a command ended before it had something to show.
type Stopped = miette::Report;

/// What goes wrong with models is in the report. This is what keeps a command from getting that far: mostly what was
/// asked for, and sometimes the machine.
fn exit_of(stopped: &Stopped) -> Exit {
    if let Some(explanation::ExplainError::Run { code, .. }) = stopped.downcast_ref() {
        return Exit::of_code(code);
    }
    if let Some(interrupt::Interrupted { signal, .. }) = stopped.downcast_ref() {
        return Exit::of_signal(Some(*signal));
    }
    let by_the_machine = matches!(stopped.downcast_ref(), Some(pipeline::Asked::File { .. }))
        || matches!(
            stopped.downcast_ref(),
            Some(ArchiveError::Io { .. } | ArchiveError::InUse(_))
        )
        || matches!(
            stopped.downcast_ref(),
            Some(crate::workspace::WorkspaceError::Program { .. })
        )
        || matches!(
            stopped.downcast_ref(),
            Some(
                crate::driver::DriverError::Rustc { .. }
                    | crate::driver::DriverError::Compile { .. }
                    | crate::driver::DriverError::Io { .. }
            )
        )
        || stopped
            .downcast_ref::<card::CardError>()
            .is_some_and(card::CardError::is_by_the_machine)
        || matches!(
            stopped.downcast_ref(),
            Some(explanation::ExplainError::NoTrace { .. } | explanation::ExplainError::Problem(..))
        )
        || matches!(stopped.downcast_ref(), Some(fit::FitError::Problem(..)))
        || stopped.downcast_ref::<bless::Incomplete>().is_some()
        || matches!(stopped.downcast_ref(), Some(init::Refused::Unwritable { .. }))
        || stopped.downcast_ref::<crate::gpu::SurveyError>().is_some()
        || stopped
            .downcast_ref::<base::BaseError>()
            .is_some_and(base::BaseError::is_by_the_machine)
        || stopped
            .downcast_ref::<crate::report::ReadError>()
            .is_some_and(crate::report::ReadError::is_by_the_machine)
        || stopped
            .downcast_ref::<crate::report::merge::MergeError>()
            .is_some_and(crate::report::merge::MergeError::is_by_a_job)
        || stopped
            .downcast_ref::<crate::github::GithubError>()
            .is_some_and(|error| !error.is_by_the_user())
        || matches!(
            stopped.downcast_ref(),
            Some(crate::recording::RecordingError::Io { .. })
        );
    if by_the_machine {
        Exit::Incomplete
    } else {
        Exit::Unusable
    }
}

/// Runs the command line. Whatever goes wrong is said on standard error, with what to do about it.
pub fn main() -> ExitCode {
    let began = std::time::Instant::now();
    let arguments = std::env::args_os().enumerate();
    // Called by Cargo, the first argument is `vram`; called directly, it need not be.
    let own: Vec<_> = arguments
        .filter(|(at, argument)| *at != 1 || argument != "vram")
        .map(|(_, argument)| argument)
        .collect();
    let mut arguments = vec!["cargo".into(), "vram".into()];
    arguments.extend(own.into_iter().skip(1));
    let Cargo {
        command: CargoCommand::Vram(Vram { command, loudness }),
    } = match Cargo::try_parse_from(arguments) {
        Ok(cargo) => cargo,
        Err(error) => {
            let code = if error.use_stderr() {
                Exit::Unusable
            } else {
                Exit::Success
            };
            let printed = error.print().and_then(|()| std::io::stdout().flush());
            if !error.use_stderr() {
                terminal::written(printed);
            }
            return code.or(unwritten()).into();
        }
    };
    terminal::set_up(loudness);
    let result = match command {
        Command::Init(init) => init.run(loudness),
        Command::List(list) => list.run(loudness),
        Command::Estimate(estimate) => estimate.run(loudness),
        Command::Measure(measure) => measure.run(loudness),
        Command::Check(check) => check.run(loudness),
        Command::Bless(bless) => bless.run(loudness),
        Command::Explain(explain) => explain.run(loudness),
        Command::Fit(fit) => fit.run(loudness),
        Command::Report(report) => report.run(loudness),
        Command::Diff(diff) => diff.run(loudness),
        Command::Merge(merge) => merge.run(loudness),
        Command::Comment(comment) => comment.run(loudness),
        Command::Archive(archive) => archive.run(loudness),
        Command::Doctor(doctor) => doctor.run(loudness),
        Command::Gpus(gpus) => gpus.run(),
        Command::Schema(schema) => schema.run(),
    };
    let exit = result.unwrap_or_else(|stopped| {
        terminal::complain(&stopped);
        exit_of(&stopped)
    });
    timings::print(began.elapsed());
    exit.or(unwritten()).into()
}

/// What a result calls for that could not be written.
fn unwritten() -> Exit {
    match terminal::unwritten() {
        true => Exit::Incomplete,
        false => Exit::Success,
    }
}
