//! `cargo vram doctor`: what is here, and what is missing.

mod card;
mod project;
mod toolchain;

use clap::Args;

use super::exit::Exit;
use super::options::{Loudness, Packages};
use super::{Stopped, pipeline, survey, terminal};

/// Tell what is here, and what to do about what is missing
///
/// Each line is a pass, a warning or a failure, the latter two with what to do. Without a GPU nothing of what only a
/// measurement needs can fail.
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  cargo vram doctor
  cargo vram doctor -p my-models

Exit codes:
  0    nothing failed (warnings allowed)
  101  something failed")]
pub(super) struct Doctor {
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

impl Doctor {
    pub(super) fn run(&self, _: Loudness) -> Result<Exit, Stopped> {
        let prepared = pipeline::prepare(&self.packages, None, None);
        let target_folder = prepared
            .as_ref()
            .ok()
            .and_then(|prepared| prepared.source.workspace())
            .map(|workspace| workspace.target_directory().as_std_path());
        let built = survey::built(target_folder);
        let mut findings = toolchain::findings(&built);
        let program = built.as_ref().ok().map(|built| built.library.survey.as_path());
        findings.extend(card::findings(program));
        match &prepared {
            Ok(prepared) => findings.extend(project::findings(prepared, &self.packages)),
            Err(error) => findings.push(Fail(error.to_string(), help(&**error))),
        }
        let failed = findings.iter().any(|finding| matches!(finding, Fail(..)));
        terminal::show(&findings.iter().map(line).collect::<String>());
        Ok(if failed { Exit::Incomplete } else { Exit::Success })
    }
}

fn help(error: &(impl miette::Diagnostic + ?Sized)) -> String {
    error.help().map(|help| help.to_string()).unwrap_or_default()
}

fn line(finding: &Finding) -> String {
    let (status, what, fix) = match finding {
        Pass(what) => ("pass", what, ""),
        Warn(what, fix) => ("warn", what, fix.as_str()),
        Fail(what, fix) => ("fail", what, fix.as_str()),
    };
    // A text of several lines stays under its status.
    let what = what.trim_end().replace('\n', "\n      ");
    if fix.is_empty() {
        format!("{status}  {what}\n")
    } else {
        format!("{status}  {what}\n      help: {fix}\n")
    }
}
