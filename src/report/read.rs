//! Reads a report from a file, which is untrusted.

use std::io::Read;

use camino::{Utf8Path, Utf8PathBuf};
use miette::Diagnostic;
use serde::Deserialize;
use thiserror::Error;

use super::{REPORT_VERSION, Report};

/// The largest report file that is read: 64 MiB. A report of thousands of models is smaller.
pub const MOST_BYTES: u64 = 64 << 20;

/// Why a file is not a report.
#[derive(Debug, Error, Diagnostic)]
pub enum ReadError {
    /// The file cannot be read.
    #[error("cannot read {path}")]
    #[diagnostic(code(report::unreadable))]
    Io {
        /// The file.
        path: Utf8PathBuf,
        /// The cause.
        source: std::io::Error,
    },
    /// The file is larger than any report.
    #[error("{0} is not a report: it is larger than 64 MiB")]
    #[diagnostic(code(report::too_large))]
    TooLarge(Utf8PathBuf),
    /// The file is not a report.
    #[error("{path} is not a cargo-vram report")]
    #[diagnostic(
        code(report::invalid),
        help("write one with `cargo vram check --message-format json -o FILE`; `cargo vram schema` prints its format")
    )]
    Invalid {
        /// The file.
        path: Utf8PathBuf,
        /// Where the JSON is not a report.
        source: serde_json::Error,
    },
    /// The report has another format version.
    #[error("{path} has report version {found}, but this cargo-vram reads version {REPORT_VERSION}")]
    #[diagnostic(
        code(report::version),
        help("use the version of cargo-vram that wrote it, or run the check again with this version")
    )]
    Version {
        /// The file.
        path: Utf8PathBuf,
        /// The version in the file.
        found: u64,
    },
}

#[derive(Deserialize)]
struct ReportHeader {
    version: u64,
}

impl Report {
    /// Reads a report. Fields that this version does not know are ignored.
    ///
    /// # Errors
    /// Returns an error if the file cannot be read, is too large, or is not a report of this format version.
    pub fn read(path: &Utf8Path) -> Result<Self, ReadError> {
        let io = |source| ReadError::Io {
            path: path.to_owned(),
            source,
        };
        let mut bytes = Vec::new();
        let file = std::fs::File::open(path).map_err(io)?;
        // The byte past the limit shows that the file is too large, without reading all of it.
        file.take(MOST_BYTES + 1).read_to_end(&mut bytes).map_err(io)?;
        if bytes.len() as u64 > MOST_BYTES {
            return Err(ReadError::TooLarge(path.to_owned()));
        }
        let invalid = |source| ReadError::Invalid {
            path: path.to_owned(),
            source,
        };
        // The version comes first: otherwise, a report of another version would fail with a message about
        // some field.
        let ReportHeader { version } = serde_json::from_slice(&bytes).map_err(invalid)?;
        if version != u64::from(REPORT_VERSION) {
            return Err(ReadError::Version {
                path: path.to_owned(),
                found: version,
            });
        }
        serde_json::from_slice(&bytes).map_err(invalid)
    }
}
