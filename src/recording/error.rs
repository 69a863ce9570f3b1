//! What can be wrong with a recording, and why a measurement is not recorded.

use std::fmt;
use std::path::PathBuf;

use miette::Diagnostic;
use thiserror::Error;

use super::RunIdentity;
use crate::report::ErrorCode;

/// What can be wrong with a recording.
#[derive(Debug, Error, Diagnostic)]
pub enum RecordingError {
    /// A file or folder cannot be used.
    #[error("cannot {action} {}", path.display())]
    #[diagnostic(
        code(recording::io),
        help(
            "a folder of recordings has one folder a card and driver, such as l4/580.82.07, as `cargo vram measure --record DIR` writes it"
        )
    )]
    Io {
        /// What was to be done.
        action: &'static str,
        /// With what.
        path: PathBuf,
        /// Why not.
        source: std::io::Error,
    },
    /// A folder's name is none of a card or of a driver's version.
    #[error("{}: {what}", path.display())]
    #[diagnostic(
        code(recording::folder),
        help(
            "a recording lies in a folder named after the card's id and one after the driver's version: l4/580.82.07"
        )
    )]
    Folder {
        /// The folder.
        path: PathBuf,
        /// What is wrong with it.
        what: String,
    },
    /// A file is too large to have been written by this program.
    #[error("{}: is larger than {} MiB", path.display(), limit >> 20)]
    #[diagnostic(code(recording::too_large), help("record this card anew into an empty folder"))]
    TooLarge {
        /// The file.
        path: PathBuf,
        /// The most that is read, in bytes.
        limit: u64,
    },
    /// A file of another version of the format.
    #[error("{}:{line}: this is version {found} of the format; this program knows version {known}", path.display())]
    #[diagnostic(
        code(recording::version),
        help("use the version of cargo-vram that made the recording, or record anew")
    )]
    Version {
        /// The file.
        path: PathBuf,
        /// The line, from 1.
        line: usize,
        /// What it says.
        found: u64,
        /// What is known.
        known: u32,
    },
    /// A file holds something else than what was written.
    #[error("{}:{line}: {what}", path.display())]
    #[diagnostic(
        code(recording::damaged),
        help("restore the file from version control, or record this card anew into an empty folder")
    )]
    Damaged {
        /// The file.
        path: PathBuf,
        /// The line, from 1.
        line: usize,
        /// What is wrong with it.
        what: String,
    },
    /// A report without any run.
    #[error("there is nothing to record: the report has no run")]
    #[diagnostic(
        code(recording::nothing),
        help("see the report's problems, or select other models with -m")
    )]
    Nothing,
    /// A run that must not become a recording.
    #[error("{run} is not recorded: {why}")]
    #[diagnostic(code(recording::refused))]
    Refused {
        /// Which run.
        run: Box<RunIdentity>,
        /// Why not.
        why: Refusal,
        /// What to do about it.
        #[help]
        help: &'static str,
    },
}

/// Why a run is not recorded.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub enum Refusal {
    /// It is an estimate.
    Estimate,
    /// It did not come to its end.
    Incomplete(ErrorCode),
    /// It does not say how it was measured.
    NoMeasurement,
    /// No kernel ran: what was computed is not what was expected.
    NoProof,
    /// It was made for another card than the recording.
    OtherCard(String),
    /// The card was made smaller than it is.
    Limited,
    /// Its choices are those of an older recording.
    Replayed,
    /// Where its choices are was not said.
    NoChoices,
    /// The report has it twice.
    Twice,
}

impl Refusal {
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
            Self::Estimate => "`cargo vram measure --record DIR` measures on a card and records that",
            Self::Incomplete(_) => "look at the run's error; a model that fails has no figures",
            Self::NoMeasurement | Self::NoProof => "see `cargo vram doctor`: a recording needs a GPU that runs kernels",
            Self::OtherCard(_) => "record each card by itself",
            Self::Limited => "leave out --limit: an estimate for the whole card has pages of another size",
            Self::Replayed => "leave out --recordings: what is recorded is what autotune chose by itself",
            Self::NoChoices => "this is a mistake of cargo-vram",
            Self::Twice => "measure each model with each of its inputs once",
        }
    }
}

impl fmt::Display for Refusal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Estimate => f.write_str("it is an estimate"),
            Self::Incomplete(code) => write!(f, "it is incomplete ({code})"),
            Self::NoMeasurement => f.write_str("it does not say how it was measured"),
            Self::NoProof => f.write_str("no kernel ran on the card"),
            Self::OtherCard(gpu) => write!(f, "it was measured on `{gpu}`"),
            Self::Limited => f.write_str("the card was made smaller than it is"),
            Self::Replayed => f.write_str("its choices were replayed from another recording"),
            Self::NoChoices => f.write_str("the choices of its autotune are not known"),
            Self::Twice => f.write_str("it is there twice"),
        }
    }
}
