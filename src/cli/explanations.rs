//! Explanations that were written to files.

use std::fs::File;
use std::io::Read;

use camino::{Utf8Path, Utf8PathBuf};
use miette::Diagnostic;
use serde::Deserialize;
use serde::de::IgnoredAny;
use thiserror::Error;

use super::{Stopped, pipeline};
use crate::bytes::Bytes;
use crate::explain::{EXPLANATION_VERSION, Explanation, Unsound};

/// The largest file that is read.
const MOST: Bytes = Bytes(256 << 20);

/// Why a file's explanations cannot be read.
#[derive(Debug, Error, Diagnostic)]
pub(super) enum Unreadable {
    #[error("{path}: is larger than {MOST}")]
    #[diagnostic(code(report::too_large), help("explain fewer steps: `cargo vram explain --steps 3`"))]
    TooLarge { path: Utf8PathBuf },
    #[error("{path}: this is no explanation")]
    #[diagnostic(
        code(report::no_explanation),
        help("it should be what `cargo vram explain --message-format json -o FILE` wrote")
    )]
    Json {
        path: Utf8PathBuf,
        source: serde_json::Error,
    },
    #[error("{path}: this is a report of `cargo vram check`, `estimate` or `measure`")]
    #[diagnostic(
        code(report::no_explanation),
        help(
            "`report` draws explanations: `cargo vram explain MODEL --message-format json -o FILE`; `diff` compares two of a kind"
        )
    )]
    Report { path: Utf8PathBuf },
    #[error("{path}: this is a list of no explanation")]
    #[diagnostic(
        code(report::no_explanation),
        help("it should be what `cargo vram explain --message-format json -o FILE` wrote")
    )]
    Empty { path: Utf8PathBuf },
    #[error("{path}: this is not UTF-8")]
    #[diagnostic(
        code(report::no_explanation),
        help("it should be what `cargo vram explain --message-format json -o FILE` wrote")
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

/// The part of an explanation that tells whether the rest can be read.
#[derive(Deserialize)]
struct Versioned {
    version: u32,
    /// What a report has, and an explanation has not.
    runs: Option<IgnoredAny>,
    /// What an explanation has, and a report has not.
    layers: Option<IgnoredAny>,
}

/// Reads the explanations of a file, which nobody vouches for: one, or a list of them.
pub(super) fn read(path: &Utf8Path) -> Result<Vec<Explanation>, Stopped> {
    parse(path, &text(path)?)
}

/// The same, where the file begins as explanations do, rather than as a report.
pub(super) fn read_unless_report(path: &Utf8Path) -> Result<Option<Vec<Explanation>>, Stopped> {
    let text = text(path)?;
    let is_list = text.trim_start().starts_with('[');
    let is_one = is_list || serde_json::from_str::<Versioned>(&text).is_ok_and(|each| each.layers.is_some());
    is_one.then(|| parse(path, &text)).transpose()
}

fn parse(path: &Utf8Path, text: &str) -> Result<Vec<Explanation>, Stopped> {
    let json = |source| Unreadable::Json {
        path: path.to_owned(),
        source,
    };
    let many = text.trim_start().starts_with('[');
    let versions: Vec<Versioned> = if many {
        serde_json::from_str(text).map_err(json)?
    } else {
        vec![serde_json::from_str(text).map_err(json)?]
    };
    if versions.iter().any(|each| each.runs.is_some()) {
        Err(Unreadable::Report { path: path.to_owned() })?;
    }
    let unsound = |source: Unsound| Unreadable::Unsound {
        path: path.to_owned(),
        help: Diagnostic::help(&source).map(|help| help.to_string()),
        source,
    };
    // Another version may well have other parts: told before they are looked for.
    if let Some(Versioned { version, .. }) = versions.iter().find(|each| each.version != EXPLANATION_VERSION) {
        Err(unsound(Unsound::Version { found: *version }))?;
    }
    let explanations: Vec<Explanation> = if many {
        serde_json::from_str(text).map_err(json)?
    } else {
        vec![serde_json::from_str(text).map_err(json)?]
    };
    if explanations.is_empty() {
        Err(Unreadable::Empty { path: path.to_owned() })?;
    }
    for explanation in &explanations {
        explanation.check().map_err(unsound)?;
    }
    Ok(explanations)
}

fn text(path: &Utf8Path) -> Result<String, Stopped> {
    let failed = |source| pipeline::Asked::File {
        path: path.to_owned(),
        source,
    };
    // Asked first, because opening a pipe would wait for its other end.
    if !std::fs::metadata(path).map_err(failed)?.is_file() {
        return Err(failed(std::io::Error::other("not a regular file")).into());
    }
    let mut bytes = Vec::new();
    // One byte past the limit tells, without trusting a size that may change meanwhile.
    File::open(path)
        .and_then(|file| file.take(MOST.0 + 1).read_to_end(&mut bytes))
        .map_err(failed)?;
    if bytes.len() as u64 > MOST.0 {
        Err(Unreadable::TooLarge { path: path.to_owned() })?;
    }
    Ok(String::from_utf8(bytes).map_err(|_| Unreadable::Text { path: path.to_owned() })?)
}
