//! `cargo vram doctor`: checks the toolchain, the GPU and the project.

mod finding;
mod gpu;
mod project;
mod toolchain;

use clap::Args;

use super::exit::Exit;
use super::options::{ArchiveOptions, Format, OutputOptions, Packages};
use super::terminal;
use crate::cli::error::CliError;
use crate::cli::session;
use crate::cli::session::source::ModelSource;
use crate::cli::session::survey;
use crate::report::Status;
use finding::DoctorCheck;
use finding::Finding::Fail;
use finding::{help, said};

/// Check the toolchain, the GPU and the project, and print how to fix problems
///
/// Each line is a pass, a warning or a failure. Warnings and failures come with a fix. Without a GPU, checks that only
/// measurements need cannot fail.
#[derive(Debug, Args)]
#[command(after_long_help = "\
Examples:
  cargo vram doctor
  cargo vram doctor -q                                print only warnings and failures
  cargo vram doctor -p my-models
  cargo vram doctor --message-format json             print a list of checks: name, status, what, fix
  cargo vram doctor --archive-file models.tar.zst     check a machine without Rust

Exit codes:
  0    no check failed (warnings allowed)
  101  a check failed
  2    the command line or the archive is unusable")]
pub(super) struct Doctor {
    #[command(flatten)]
    archive: ArchiveOptions,
    #[command(flatten)]
    output: OutputOptions,
    #[command(flatten)]
    packages: Packages,
}

impl Doctor {
    pub(super) fn run(&self) -> Result<Exit, CliError> {
        let source = ModelSource::open(&self.packages, self.archive.file());
        let source = match source {
            // A machine that uses an archive may lack Rust, so that no other check could run.
            Err(error) if self.archive.file().is_some() => return Err(error),
            source => source,
        };
        let built = survey::built(source.as_ref().ok());
        let mut checks = toolchain::checks(source.as_ref().ok(), &built);
        let program = built.as_ref().ok().map(|built| built.library.survey.as_path());
        let needs_libdevice = source.as_ref().is_ok_and(project::needs_libdevice);
        checks.extend(gpu::checks(program, needs_libdevice));
        match &source {
            Ok(source) => checks.extend(project::checks(source)),
            // Outside of a workspace, the checks of the machine are still useful.
            Err(error) => checks.push(Fail(said(error.diagnostic()), help(error.diagnostic())).of("workspace")),
        }
        let failed = checks.iter().any(|check| check.status == Status::Fail);
        self.show(&checks)?;
        Ok(if failed { Exit::Incomplete } else { Exit::Success })
    }

    fn show(&self, checks: &[DoctorCheck]) -> Result<(), CliError> {
        let shown = |check: &&DoctorCheck| !terminal::is_quiet() || check.status != Status::Pass;
        let lines: String = checks.iter().filter(shown).map(DoctorCheck::line).collect();
        let output = self.output.output.as_deref();
        let text = match self.output.message_format {
            Format::Human => lines.clone(),
            Format::Json => session::json(&checks)?,
        };
        if output.is_some() {
            terminal::show(&lines);
        }
        Ok(session::put(&text, self.output.message_format, output)?)
    }
}
