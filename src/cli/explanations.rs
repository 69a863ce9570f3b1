//! Reads explanations from files.

use std::fs::File;
use std::io::Read;

use camino::{Utf8Path, Utf8PathBuf};
use miette::Diagnostic;
use serde::Deserialize;
use serde::de::IgnoredAny;
use thiserror::Error;

use crate::bytes::Bytes;
use crate::cli::error::{CliError, ExitCoded};
use crate::cli::exit::Exit;
use crate::cli::session;
use crate::explain::{EXPLANATION_VERSION, Explanation, Unsound};

/// The size of the largest file that is read.
const MOST: Bytes = Bytes(256 << 20);

/// Why the explanations of a file cannot be used.
#[derive(Debug, Error, Diagnostic)]
pub(super) enum ExplanationFileError {
    #[error("{path} is larger than {MOST}")]
    #[diagnostic(code(report::too_large), help("explain fewer steps: `cargo vram explain --steps 3`"))]
    TooLarge { path: Utf8PathBuf },
    #[error("{path} is not an explanation")]
    #[diagnostic(
        code(report::no_explanation),
        help("pass a file that `cargo vram explain MODEL --message-format json -o FILE` wrote")
    )]
    Json {
        path: Utf8PathBuf,
        source: serde_json::Error,
    },
    #[error("{path} is a report of `cargo vram check`, `estimate` or `measure`, not an explanation")]
    #[diagnostic(
        code(report::no_explanation),
        help(
            "pass a file that `cargo vram explain MODEL --message-format json -o FILE` wrote; run `cargo vram diff` to \
             compare two reports"
        )
    )]
    Report { path: Utf8PathBuf },
    #[error("{path} is an empty list of explanations")]
    #[diagnostic(
        code(report::no_explanation),
        help("pass a file that `cargo vram explain MODEL --message-format json -o FILE` wrote")
    )]
    Empty { path: Utf8PathBuf },
    #[error("{path} is not an explanation: it is not UTF-8")]
    #[diagnostic(
        code(report::no_explanation),
        help("pass a file that `cargo vram explain MODEL --message-format json -o FILE` wrote")
    )]
    Text { path: Utf8PathBuf },
    #[error("{path} cannot be used")]
    #[diagnostic(code(report::unsound))]
    Unsound {
        path: Utf8PathBuf,
        source: Unsound,
        #[help]
        help: Option<String>,
    },
}

impl ExitCoded for ExplanationFileError {
    fn exit(&self) -> Exit {
        Exit::Unusable
    }
}

/// The part of an explanation that shows whether the rest can be read.
#[derive(Deserialize)]
struct ExplanationHeader {
    version: u32,
    /// A field that only reports have.
    runs: Option<IgnoredAny>,
    /// A field that only explanations have.
    layers: Option<IgnoredAny>,
}

/// Reads the explanations of a file: one, or a list. The file may be from anybody, so its content is checked.
pub(super) fn read(path: &Utf8Path) -> Result<Vec<Explanation>, CliError> {
    parse(path, &text(path)?)
}

/// Reads the explanations of a file. Returns `None` if the file looks like a report.
pub(super) fn read_unless_report(path: &Utf8Path) -> Result<Option<Vec<Explanation>>, CliError> {
    let text = text(path)?;
    // Reports are never lists.
    let is_list = text.trim_start().starts_with('[');
    let is_one = is_list || serde_json::from_str::<ExplanationHeader>(&text).is_ok_and(|each| each.layers.is_some());
    is_one.then(|| parse(path, &text)).transpose()
}

fn parse(path: &Utf8Path, text: &str) -> Result<Vec<Explanation>, CliError> {
    let json = |source| ExplanationFileError::Json {
        path: path.to_owned(),
        source,
    };
    let many = text.trim_start().starts_with('[');
    let versions: Vec<ExplanationHeader> = if many {
        serde_json::from_str(text).map_err(json)?
    } else {
        vec![serde_json::from_str(text).map_err(json)?]
    };
    if versions.iter().any(|each| each.runs.is_some()) {
        Err(ExplanationFileError::Report { path: path.to_owned() })?;
    }
    let unsound = |source: Unsound| ExplanationFileError::Unsound {
        path: path.to_owned(),
        help: Diagnostic::help(&source).map(|help| help.to_string()),
        source,
    };
    // Another version may have other fields. So the version is checked before the rest is parsed.
    if let Some(ExplanationHeader { version, .. }) = versions.iter().find(|each| each.version != EXPLANATION_VERSION) {
        Err(unsound(Unsound::Version { found: *version }))?;
    }
    let explanations: Vec<Explanation> = if many {
        serde_json::from_str(text).map_err(json)?
    } else {
        vec![serde_json::from_str(text).map_err(json)?]
    };
    if explanations.is_empty() {
        Err(ExplanationFileError::Empty { path: path.to_owned() })?;
    }
    for explanation in &explanations {
        explanation.check().map_err(unsound)?;
    }
    Ok(explanations)
}

fn text(path: &Utf8Path) -> Result<String, CliError> {
    let failed = |source| session::SelectionError::File {
        path: path.to_owned(),
        source,
    };
    // The kind of file is checked first, because opening a pipe would wait for a writer.
    if !std::fs::metadata(path).map_err(failed)?.is_file() {
        return Err(failed(std::io::Error::other("not a regular file")).into());
    }
    let mut bytes = Vec::new();
    // Reading one byte past the limit shows that a file is too large. Its reported size may change meanwhile.
    File::open(path)
        .and_then(|file| file.take(MOST.0 + 1).read_to_end(&mut bytes))
        .map_err(failed)?;
    if bytes.len() as u64 > MOST.0 {
        Err(ExplanationFileError::TooLarge { path: path.to_owned() })?;
    }
    Ok(String::from_utf8(bytes).map_err(|_| ExplanationFileError::Text { path: path.to_owned() })?)
}
