//! The command line. Each command has one file, which parses its options, calls the library, prints the result and
//! returns the exit code.

mod archive;
mod bless;
mod check;
mod comment;
mod completions;
mod diff;
mod doctor;
mod error;
mod escaped;
mod estimate;
mod exit;
mod explain;
mod explanations;
mod fit;
mod gpus;
mod init;
mod interrupt;
mod list;
mod man;
mod measure;
mod merge;
mod options;
mod report;
mod schema;
mod session;
mod source_text;
mod temporary;
mod terminal;
mod timings;

use std::process::ExitCode;

use clap::{CommandFactory, Parser, Subcommand};

use error::CliError;
use exit::Exit;
use options::Verbosity;

/// The command line as Cargo sees it: `cargo vram ...`.
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

/// Estimate and measure the GPU memory of Burn models, and compare it with budgets
///
/// Builds the Burn models that a workspace declares and runs their real training steps with the CUDA backend, on a
/// virtual GPU or on a real one. `cargo vram check` compares the memory peaks with the limits in budgets.yaml, and
/// fails CI on regressions.
#[derive(Debug, Parser)]
#[command(version, arg_required_else_help = true, after_help = concat!("\
Examples:
  cargo vram init                   write a benchmark, its Cargo.toml entries
                                    and a first budgets.yaml
  cargo vram check                  check every model against budgets.yaml
  cargo vram estimate --gpu h200    estimate every model on another GPU
  cargo vram measure                measure every model on this machine's GPU
  cargo vram estimate -m 'resnet*' --set batch_size=128 --gpu l4
"))]
struct Vram {
    #[command(subcommand)]
    command: Command,
    #[command(flatten)]
    verbosity: Verbosity,
}

#[derive(Debug, Subcommand)]
enum Command {
    Init(init::Init),
    List(list::ListCommand),
    Estimate(estimate::Estimate),
    Measure(measure::Measure),
    Check(check::CheckCommand),
    Bless(bless::Bless),
    Explain(Box<explain::Explain>),
    Fit(Box<fit::FitCommand>),
    Report(Box<report::ReportCommand>),
    Diff(diff::DiffCommand),
    Merge(merge::Merge),
    Comment(comment::CommentCommand),
    Archive(archive::ArchiveCommand),
    Doctor(doctor::Doctor),
    Gpus(gpus::GpusCommand),
    Schema(schema::Schema),
    Completions(completions::Completions),
    Man(man::Man),
}

/// Returns the command line as clap describes it, named like the program: for completions and manual pages.
fn program() -> clap::Command {
    Vram::command().name("cargo-vram").bin_name("cargo-vram")
}

/// Runs the command line and returns its exit code. Errors go to standard error.
pub fn main() -> ExitCode {
    let began = std::time::Instant::now();
    let arguments = std::env::args_os().enumerate();
    // Cargo passes `vram` as the first argument. If the program is started directly, `vram` is optional.
    let own: Vec<_> = arguments
        .filter(|(at, argument)| *at != 1 || argument != "vram")
        .map(|(_, argument)| argument)
        .collect();
    let mut arguments = vec!["cargo".into(), "vram".into()];
    arguments.extend(own.into_iter().skip(1));
    let Cargo {
        command: CargoCommand::Vram(Vram { command, verbosity }),
    } = match Cargo::try_parse_from(arguments) {
        Ok(cargo) => cargo,
        Err(mut error) => {
            let code = if error.use_stderr() {
                Exit::Unusable
            } else {
                Exit::Success
            };
            // An error quotes arguments and variables, which can be names of foreign files or branches.
            let quoted: Vec<_> = error
                .context()
                .map(|(kind, value)| (kind, escaped::context(value)))
                .collect();
            for (kind, value) in quoted {
                error.insert(kind, value);
            }
            // With colors: `anstream` removes them if the stream is no terminal.
            let text = error.render().ansi().to_string();
            // Help is a result: if it cannot be written, the command must not succeed.
            match error.use_stderr() {
                true => terminal::remark(text.trim_end()),
                false => terminal::show(&text),
            }
            return code.or(unwritten()).into();
        }
    };
    terminal::set_up(verbosity);
    interrupt::handle_signals();
    let result = match command {
        Command::Init(init) => init.run(),
        Command::List(list) => list.run(),
        Command::Estimate(estimate) => estimate.run(),
        Command::Measure(measure) => measure.run(),
        Command::Check(check) => check.run(),
        Command::Bless(bless) => bless.run(),
        Command::Explain(explain) => explain.run(),
        Command::Fit(fit) => fit.run(),
        Command::Report(report) => report.run(),
        Command::Diff(diff) => diff.run(),
        Command::Merge(merge) => merge.run(),
        Command::Comment(comment) => comment.run(),
        Command::Archive(archive) => archive.run(),
        Command::Doctor(doctor) => doctor.run(),
        Command::Gpus(gpus) => gpus.run(),
        Command::Schema(schema) => schema.run(),
        Command::Completions(completions) => completions.run(),
        Command::Man(man) => man.run(),
    };
    interrupt::wait_for_end();
    let exit = result.unwrap_or_else(|stopped: CliError| {
        terminal::complain(&stopped);
        stopped.exit_code()
    });
    timings::print(began.elapsed());
    exit.or(unwritten()).into()
}

/// Returns [`Exit::Incomplete`] if a result could not be written to standard output, and success otherwise.
fn unwritten() -> Exit {
    match terminal::unwritten() {
        true => Exit::Incomplete,
        false => Exit::Success,
    }
}
