//! Reads a report from a file, which anybody may have written.

use std::io::Read;

use camino::{Utf8Path, Utf8PathBuf};
use miette::Diagnostic;
use serde::Deserialize;
use thiserror::Error;

use super::{REPORT_VERSION, Report};

/// A report of thousands of models is smaller.
pub const MOST_BYTES: u64 = 64 << 20;

/// Why a file is no report.
#[derive(Debug, Error, Diagnostic)]
pub enum ReadError {
    /// It cannot be read.
    #[error("{path} cannot be read")]
    #[diagnostic(code(report::unreadable))]
    Io {
        /// Which.
        path: Utf8PathBuf,
        /// Why.
        source: std::io::Error,
    },
    /// It is larger than any report.
    #[error("{0} is larger than 64 MiB, which no report is")]
    #[diagnostic(code(report::too_large))]
    TooLarge(Utf8PathBuf),
    /// It is something else.
    #[error("{path} is no report of cargo-vram")]
    #[diagnostic(
        code(report::invalid),
        help("`cargo vram check --message-format json -o FILE` writes one; `cargo vram schema` describes it")
    )]
    Invalid {
        /// Which.
        path: Utf8PathBuf,
        /// Where it stops making sense.
        source: serde_json::Error,
    },
    /// It is of another version.
    #[error("{path} is a report of version {found}, and this program reads version {REPORT_VERSION}")]
    #[diagnostic(
        code(report::version),
        help("read it with the version of cargo-vram that wrote it, or run the check again with this one")
    )]
    Version {
        /// Which.
        path: Utf8PathBuf,
        /// Its version.
        found: u64,
    },
}

impl ReadError {
    /// Whether the machine is at fault, rather than what was given.
    #[must_use]
    pub const fn is_by_the_machine(&self) -> bool {
        matches!(self, Self::Io { .. })
    }
}

#[derive(Deserialize)]
struct Versioned {
    version: u64,
}

impl Report {
    /// Reads a report. What this version does not know is left out.
    ///
    /// # Errors
    /// The file is no report of this version.
    pub fn read(path: &Utf8Path) -> Result<Self, ReadError> {
        let io = |source| ReadError::Io {
            path: path.to_owned(),
            source,
        };
        let mut bytes = Vec::new();
        let file = std::fs::File::open(path).map_err(io)?;
        file.take(MOST_BYTES + 1).read_to_end(&mut bytes).map_err(io)?;
        if bytes.len() as u64 > MOST_BYTES {
            return Err(ReadError::TooLarge(path.to_owned()));
        }
        let invalid = |source| ReadError::Invalid {
            path: path.to_owned(),
            source,
        };
        let Versioned { version } = serde_json::from_slice(&bytes).map_err(invalid)?;
        if version != u64::from(REPORT_VERSION) {
            return Err(ReadError::Version {
                path: path.to_owned(),
                found: version,
            });
        }
        serde_json::from_slice(&bytes).map_err(invalid)
    }
}
