//! `cargo vram doctor`: what is here, and what is missing.

mod card;
mod project;
mod toolchain;

use clap::Args;
use serde::Serialize;

use super::exit::Exit;
use super::options::{Archive, Format, Loudness, Output, Packages};
use super::source::Source;
use super::{Stopped, pipeline, survey, terminal};
use crate::report::Status;

/// Tell what is here, and what to do about what is missing
///
/// Each line is a pass, a warning or a failure, the latter two with what to do. Without a GPU nothing of what only a
/// measurement needs can fail.
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  cargo vram doctor
  cargo vram doctor -q                                only warnings and failures
  cargo vram doctor -p my-models
  cargo vram doctor --message-format json             a list of checks: name, status, what, fix
  cargo vram doctor --archive-file models.tar.zst     on a machine without Rust

Exit codes:
  0    nothing failed (warnings allowed)
  101  something failed
  2    command line or archive unusable")]
pub(super) struct Doctor {
    #[command(flatten)]
    output: Output,
    #[command(flatten)]
    archive: Archive,
    #[command(flatten)]
    packages: Packages,
}

/// What was found of one thing; with what to do about it, where that is needed.
enum Finding {
    Pass(String),
    Warn(String, String),
    Fail(String, String),
}

use Finding::{Fail, Pass, Warn};

/// What was found, as programs are told it.
#[derive(Serialize)]
struct Check {
    /// Short and stable: `cuda-driver`.
    name: &'static str,
    status: Status,
    what: String,
    fix: Option<String>,
}

impl Finding {
    fn of(self, name: &'static str) -> Check {
        let (status, what, fix) = match self {
            Pass(what) => (Status::Pass, what, String::new()),
            Warn(what, fix) => (Status::Warn, what, fix),
            Fail(what, fix) => (Status::Fail, what, fix),
        };
        Check {
            name,
            status,
            what: what.trim_end().to_owned(),
            fix: Some(fix).filter(|fix| !fix.is_empty()),
        }
    }
}

impl Doctor {
    pub(super) fn run(&self, loudness: Loudness) -> Result<Exit, Stopped> {
        let source = Source::open(&self.packages, self.archive.file());
        let source = match source {
            // Nothing else can be asked there, where an archive stands for Rust.
            Err(error) if self.archive.file().is_some() => return Err(error),
            source => source,
        };
        let built = survey::built(source.as_ref().ok());
        let mut checks = toolchain::checks(source.as_ref().ok(), &built);
        let program = built.as_ref().ok().map(|built| built.library.survey.as_path());
        let needs_libdevice = source.as_ref().is_ok_and(project::needs_libdevice);
        checks.extend(card::checks(program, needs_libdevice));
        match &source {
            Ok(source) => checks.extend(project::checks(source)),
            Err(error) => checks.push(Fail(said(&**error), help(&**error)).of("workspace")),
        }
        let failed = checks.iter().any(|check| check.status == Status::Fail);
        self.show(&checks, loudness)?;
        Ok(if failed { Exit::Incomplete } else { Exit::Success })
    }

    fn show(&self, checks: &[Check], loudness: Loudness) -> Result<(), Stopped> {
        let shown = |check: &&Check| !loudness.quiet || check.status != Status::Pass;
        let lines: String = checks.iter().filter(shown).map(Check::line).collect();
        let output = self.output.output.as_deref();
        let text = match self.output.message_format {
            Format::Human => lines.clone(),
            Format::Json => pipeline::json(&checks)?,
        };
        if output.is_some() {
            terminal::show(&lines);
        }
        Ok(pipeline::put(&text, output)?)
    }
}

/// An error and its causes, in a line.
fn said(error: &(impl miette::Diagnostic + ?Sized)) -> String {
    let mut text = error.to_string();
    let mut cause = error.source();
    while let Some(error) = cause {
        text.push_str(&format!(": {error}"));
        cause = error.source();
    }
    text
}

fn help(error: &(impl miette::Diagnostic + ?Sized)) -> String {
    error.help().map(|help| help.to_string()).unwrap_or_default()
}

impl Check {
    fn line(&self) -> String {
        let status = match self.status {
            Status::Pass => "pass",
            Status::Warn => "warn",
            Status::Fail | Status::Error => "fail",
        };
        // A text of several lines stays under its status.
        let what = self.what.replace('\n', "\n      ");
        match &self.fix {
            None => format!("{status}  {what}\n"),
            Some(fix) => format!("{status}  {what}\n      help: {fix}\n"),
        }
    }
}
