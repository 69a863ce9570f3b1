//! [`CliError`]: why a command ended before it had a result, and its exit code.

use std::fmt;

use miette::Diagnostic;
use thiserror::Error;

use super::exit::Exit;
use crate::archive::ArchiveError;
use crate::budget::BudgetError;
use crate::driver::DriverError;
use crate::github::GithubError;
use crate::gpu::{DeviceError, GpuError, SurveyError};
use crate::recording::RecordingError;
use crate::report::ReadError;
use crate::report::merge::MergeError;
use crate::workspace::WorkspaceError;

/// An error that ends a command. It can only be made from an [`ExitCoded`] type, so every error has a chosen exit code.
pub(crate) struct CliError {
    report: miette::Report,
    exit: Exit,
}

/// An error type that knows its exit codes. Implementations match every variant, so that a new one needs a decision.
pub(crate) trait ExitCoded: Diagnostic + Send + Sync + 'static {
    /// Returns the exit code.
    fn exit(&self) -> Exit;
}

impl<E: ExitCoded> From<E> for CliError {
    fn from(error: E) -> Self {
        Self {
            exit: error.exit(),
            report: error.into(),
        }
    }
}

impl CliError {
    /// Returns the exit code of the command.
    pub(crate) const fn exit_code(&self) -> Exit {
        self.exit
    }

    /// Returns the message, the help and the causes.
    pub(crate) fn diagnostic(&self) -> &dyn Diagnostic {
        &*self.report
    }

    /// Returns the error if it has this type.
    pub(crate) fn downcast_ref<E: ExitCoded + fmt::Display + fmt::Debug>(&self) -> Option<&E> {
        self.report.downcast_ref()
    }
}

/// The whole message as users see it, with causes and help.
impl fmt::Debug for CliError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Debug::fmt(&self.report, f)
    }
}

impl fmt::Display for CliError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(&self.report, f)
    }
}

/// An error that no user can cause, such as a document that cannot be written as JSON.
#[derive(Debug, Error, Diagnostic)]
#[error("internal error: {0}")]
#[diagnostic(code(cli::internal), help("report this bug in cargo-vram"))]
pub(crate) struct Internal(String);

impl Internal {
    pub(crate) fn new(error: impl fmt::Display) -> Self {
        Self(error.to_string())
    }
}

impl ExitCoded for Internal {
    fn exit(&self) -> Exit {
        Exit::Incomplete
    }
}

/// A path that is not UTF-8.
#[derive(Debug, Error, Diagnostic)]
#[error("the path {} is not UTF-8", .0.as_path().display())]
#[diagnostic(code(cli::path), help("rename the file or folder, or pass another path"))]
pub(crate) struct NotUtf8(pub(crate) camino::FromPathBufError);

impl ExitCoded for NotUtf8 {
    fn exit(&self) -> Exit {
        Exit::Unusable
    }
}

impl ExitCoded for ArchiveError {
    fn exit(&self) -> Exit {
        match self {
            Self::Io { .. } | Self::InUse(_) | Self::DiskFull { .. } => Exit::Incomplete,
            Self::Refused { .. }
            | Self::NotEmpty(_)
            | Self::NoModels
            | Self::NotAProgram(_)
            | Self::TwoTargets { .. }
            | Self::Name { .. }
            | Self::TooLarge(_)
            | Self::UnknownPackage { .. }
            | Self::OtherModels { .. } => Exit::Unusable,
        }
    }
}

impl ExitCoded for BudgetError {
    fn exit(&self) -> Exit {
        Exit::Unusable
    }
}

impl ExitCoded for DriverError {
    fn exit(&self) -> Exit {
        match self {
            Self::Rustc { .. } | Self::Compile { .. } | Self::Io { .. } => Exit::Incomplete,
            Self::UnsupportedHost { .. } => Exit::Unusable,
        }
    }
}

impl ExitCoded for GithubError {
    fn exit(&self) -> Exit {
        match self {
            Self::NoEvent(_)
            | Self::OtherEvent(_)
            | Self::OtherRun(_)
            | Self::EventInvalid { .. }
            | Self::NoRepository
            | Self::Repository(_)
            | Self::SeveralPulls(_)
            | Self::ApiUrl { .. }
            | Self::NoToken(_)
            | Self::TokenCharacters(_) => Exit::Unusable,
            Self::EventFile { .. }
            | Self::BadToken(_)
            | Self::Forbidden { .. }
            | Self::Locked(_)
            | Self::RateLimit { .. }
            | Self::Unreachable { .. }
            | Self::Elsewhere { .. }
            | Self::Refused { .. }
            | Self::Endless(_) => Exit::Incomplete,
        }
    }
}

impl ExitCoded for GpuError {
    fn exit(&self) -> Exit {
        Exit::Unusable
    }
}

impl ExitCoded for DeviceError {
    fn exit(&self) -> Exit {
        match self {
            Self::Unknown { .. } | Self::Ambiguous { .. } => Exit::Unusable,
        }
    }
}

impl ExitCoded for SurveyError {
    fn exit(&self) -> Exit {
        Exit::Incomplete
    }
}

impl ExitCoded for RecordingError {
    fn exit(&self) -> Exit {
        match self {
            Self::Io { .. } => Exit::Incomplete,
            Self::Folder { .. }
            | Self::TooLarge { .. }
            | Self::Version { .. }
            | Self::Damaged { .. }
            | Self::Nothing { .. }
            | Self::Refused { .. } => Exit::Unusable,
        }
    }
}

impl ExitCoded for ReadError {
    fn exit(&self) -> Exit {
        match self {
            Self::Io { .. } => Exit::Incomplete,
            Self::TooLarge(_) | Self::Invalid { .. } | Self::Version { .. } => Exit::Unusable,
        }
    }
}

impl ExitCoded for MergeError {
    fn exit(&self) -> Exit {
        match self {
            Self::Gap { .. } | Self::Unjudged { .. } | Self::Interrupted { .. } => Exit::Incomplete,
            Self::Different { .. } | Self::Unnamed { .. } | Self::Overlap { .. } | Self::Unexpected { .. } => {
                Exit::Unusable
            }
        }
    }
}

impl ExitCoded for WorkspaceError {
    fn exit(&self) -> Exit {
        match self {
            Self::Program { .. } => Exit::Incomplete,
            Self::Metadata { .. } | Self::UnknownPackage(..) | Self::NoModels(_) => Exit::Unusable,
        }
    }
}
