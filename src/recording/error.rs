//! The errors of recordings, and the reasons to refuse a run.

use std::fmt;
use std::path::PathBuf;

use miette::Diagnostic;
use thiserror::Error;

use super::RunIdentity;
use crate::report::ErrorCode;

/// An error while a recording is read or written.
#[derive(Debug, Error, Diagnostic)]
pub enum RecordingError {
    /// The tool cannot use a file or folder.
    #[error("cannot {action} {}", path.display())]
    #[diagnostic(
        code(recording::io),
        help(
            "check the path: a folder of recordings has one folder per GPU and driver, such as l4/580.82.07; \
             `cargo vram measure --record DIR` writes one"
        )
    )]
    Io {
        /// What the tool tried to do: `read`, `write` or `create`.
        action: &'static str,
        /// The file or folder.
        path: PathBuf,
        /// The cause.
        source: std::io::Error,
    },
    /// The name of a folder is not a valid GPU id or driver version.
    #[error("{}: {what}", path.display())]
    #[diagnostic(
        code(recording::folder),
        help("name the folders of a recording after the GPU's id and the driver's version, such as l4/580.82.07")
    )]
    Folder {
        /// The folder.
        path: PathBuf,
        /// What is wrong with the name.
        what: String,
    },
    /// A file is too large. The tool does not write such files.
    #[error("{} is larger than {} MiB", path.display(), limit >> 20)]
    #[diagnostic(code(recording::too_large), help("record this GPU again into an empty folder"))]
    TooLarge {
        /// The file.
        path: PathBuf,
        /// The maximum size in bytes.
        limit: u64,
    },
    /// A file has another version of the format.
    #[error(
        "{}:{line}: unsupported format version {found}; this cargo-vram supports version {known}",
        path.display()
    )]
    #[diagnostic(
        code(recording::version),
        help("use the version of cargo-vram that made the recording, or record this GPU again into an empty folder")
    )]
    Version {
        /// The file.
        path: PathBuf,
        /// The line, counted from 1.
        line: usize,
        /// The version in the file.
        found: u64,
        /// The supported version.
        known: u32,
    },
    /// The content of a file is not valid.
    #[error("{}:{line}: {what}", path.display())]
    #[diagnostic(
        code(recording::damaged),
        help("restore the file from version control, or record this GPU again into an empty folder")
    )]
    Damaged {
        /// The file.
        path: PathBuf,
        /// The line, counted from 1.
        line: usize,
        /// What is wrong with the line.
        what: String,
    },
    /// The report has no runs.
    #[error("nothing to record: the report has no run")]
    #[diagnostic(
        code(recording::nothing),
        help("look at the report's problems, or select other models with -m")
    )]
    Nothing,
    /// A run must not be part of a recording.
    #[error("cannot use {run} as a recording: {why}")]
    #[diagnostic(code(recording::refused))]
    Refused {
        /// The run.
        run: Box<RunIdentity>,
        /// The reason.
        why: RecordingRefusal,
        /// What to do about it.
        #[help]
        help: &'static str,
    },
}

/// The reason why a run must not be part of a recording.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub enum RecordingRefusal {
    /// The run is an estimate.
    Estimate,
    /// The run is incomplete.
    Incomplete(ErrorCode),
    /// The run does not say how it was measured.
    NoMeasurement,
    /// The result of the proof kernel is wrong, so no kernel ran on the GPU.
    NoProof,
    /// The run was measured on this GPU, which is not the GPU of the recording.
    OtherGpu(String),
    /// The measurement limited the GPU's memory.
    Limited,
    /// The run replayed autotune choices from an older recording.
    Replayed,
    /// The folder of the run's autotune choices is unknown.
    NoChoices,
    /// The sizes of the run's inputs vary, and the folder has the choices for one order only.
    SizesVary,
    /// The report contains the run twice.
    Twice,
}

impl RecordingRefusal {
    /// Builds the error for a refused run.
    pub(super) fn of(self, run: RunIdentity) -> RecordingError {
        let help = self.help();
        RecordingError::Refused {
            run: Box::new(run),
            why: self,
            help,
        }
    }

    const fn help(&self) -> &'static str {
        match self {
            Self::Estimate => "run `cargo vram measure --record DIR` on a machine with a GPU",
            Self::Incomplete(_) => "correct the run's error first; a run that fails has no values",
            Self::NoMeasurement | Self::NoProof => "run `cargo vram doctor`; a recording needs a GPU that runs kernels",
            Self::OtherGpu(_) => "record each GPU separately",
            Self::Limited => "leave out --limit; estimates for the whole GPU have pages of another size",
            Self::Replayed => "leave out --recordings; a recording must contain choices that autotune made itself",
            Self::NoChoices => "report this bug of cargo-vram",
            Self::SizesVary => "set the ranges to one size with `--set`, and record each size separately",
            Self::Twice => "measure each model with the same inputs only once",
        }
    }
}

impl fmt::Display for RecordingRefusal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Estimate => f.write_str("it is an estimate"),
            Self::Incomplete(code) => write!(f, "it is incomplete ({code})"),
            Self::NoMeasurement => f.write_str("it does not say how it was measured"),
            Self::NoProof => f.write_str("no kernel ran on the GPU"),
            Self::OtherGpu(gpu) => write!(f, "it was measured on another GPU, `{gpu}`"),
            Self::Limited => f.write_str("the measurement limited the GPU's memory"),
            Self::Replayed => f.write_str("it replayed autotune choices from another recording"),
            Self::NoChoices => f.write_str("its autotune choices are unknown"),
            Self::SizesVary => f.write_str("the sizes of its inputs vary from step to step"),
            Self::Twice => f.write_str("the report contains it twice"),
        }
    }
}
