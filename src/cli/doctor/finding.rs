//! The result of one check, with its fix.

use serde::Serialize;

use crate::report::Status;
use crate::untrusted::clean;

/// The result of one check: what was found and, for a warning or a failure, how to fix it.
pub(super) enum Finding {
    Pass(String),
    Warn(String, String),
    Fail(String, String),
}

use Finding::{Fail, Pass, Warn};

/// A check in the JSON output.
#[derive(Serialize)]
pub(super) struct DoctorCheck {
    /// A short, stable name, such as `cuda-driver`.
    pub(super) name: &'static str,
    pub(super) status: Status,
    pub(super) what: String,
    pub(super) fix: Option<String>,
}

impl Finding {
    pub(super) fn of(self, name: &'static str) -> DoctorCheck {
        let (status, what, fix) = match self {
            Pass(what) => (Status::Pass, what, String::new()),
            Warn(what, fix) => (Status::Warn, what, fix),
            Fail(what, fix) => (Status::Fail, what, fix),
        };
        DoctorCheck {
            name,
            status,
            what: what.trim_end().to_owned(),
            fix: Some(fix).filter(|fix| !fix.is_empty()),
        }
    }
}

/// Joins the messages of an error and of its causes with colons.
pub(super) fn said(error: &(impl miette::Diagnostic + ?Sized)) -> String {
    let mut text = error.to_string();
    let mut cause = error.source();
    while let Some(error) = cause {
        text.push_str(&format!(": {error}"));
        cause = error.source();
    }
    text
}

pub(super) fn help(error: &(impl miette::Diagnostic + ?Sized)) -> String {
    error.help().map(|help| help.to_string()).unwrap_or_default()
}

impl DoctorCheck {
    pub(super) fn line(&self) -> String {
        let status = match self.status {
            Status::Pass => "pass",
            Status::Warn => "warn",
            Status::Fail | Status::Error => "fail",
        };
        // Indent the further lines of a text below the first one.
        let escaped = |text: &str| clean(text).replace('\n', "\n      ");
        let what = escaped(&self.what);
        match &self.fix {
            None => format!("{status}  {what}\n"),
            Some(fix) => format!("{status}  {what}\n      help: {}\n", escaped(fix)),
        }
    }
}
