//! Reads budgets.lock; every mistake is told with its line.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use camino::Utf8Path;
use serde::Deserialize;

use super::{Entry, Key, LOCK_VERSION, Lock};
use crate::budget::problem::{BudgetError, Problem};
use crate::budget::source::{self, Source, Span};
use crate::bytes::Bytes;
use crate::report::{Mode, Peak, Peaks};

const ANEW: &str = "correct it, or take it as it was (`git checkout`); deleting it and `cargo vram bless` accepts everything as it is now";
const BLESS: &str = "`cargo vram bless` writes this file anew";
/// What git leaves where two branches changed the same lines.
const CONFLICT: [&str; 4] = ["<<<<<<<", "|||||||", "=======", ">>>>>>>"];

#[derive(Deserialize)]
struct Version {
    version: Option<i64>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Document {
    #[serde(rename = "version")]
    _version: i64,
    #[serde(default)]
    baseline: Vec<Written>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Written {
    package: String,
    model: String,
    gpu: String,
    mode: Mode,
    burn: String,
    estimator: Option<String>,
    driver: Option<String>,
    #[serde(default)]
    inputs: BTreeMap<String, u64>,
    parameters: Option<u64>,
    #[serde(default)]
    warm: Figures,
    #[serde(default)]
    cold: Figures,
}

#[derive(Default, Deserialize)]
#[serde(deny_unknown_fields)]
struct Figures {
    live: Option<Bytes>,
    reserved: Option<Bytes>,
    process: Option<Bytes>,
}

impl Lock {
    /// Reads the file; absent where there is none. `display_name` is what people are shown of `path`.
    ///
    /// # Errors
    /// What is wrong with it, and in which line.
    pub fn load(path: &Utf8Path, display_name: &str) -> Result<Option<Self>, BudgetError> {
        if !path.exists() {
            return Ok(None);
        }
        Self::parse(&Source::read(path, display_name)?, display_name).map(Some)
    }

    /// The same for a file that has been read.
    ///
    /// # Errors
    /// As for [`Lock::load`].
    pub fn parse(bytes: &[u8], display_name: &str) -> Result<Self, BudgetError> {
        if bytes.len() as u64 > source::MAX_FILE {
            return Err(source::too_large(display_name));
        }
        let source = Source::from_bytes(display_name, bytes)?;
        if let Some(span) = conflict(source.text()) {
            return Err(
                Problem::new("budgets::lock-conflict", "a merge left a conflict here".to_owned())
                    .at(span, "by git")
                    .help("take either side, so that the file can be read again, and then `cargo vram bless` the models that both changed")
                    .alone(&source),
            );
        }
        let other = |error: &toml_edit::de::Error| {
            let problem = Problem::new("budgets::lock", error.message().to_owned());
            let span = error.span().map(|range| Span::new(range.start, range.end));
            match span {
                Some(span) => problem.at(span, "here"),
                None => problem,
            }
            .help(ANEW)
            .alone(&source)
        };
        let version: Version = toml_edit::de::from_str(source.text()).map_err(|error| other(&error))?;
        if version.version != Some(LOCK_VERSION.into()) {
            let found = version
                .version
                .map_or_else(|| "none".to_owned(), |version| version.to_string());
            let message = format!("this is version {found} of the file, and this program reads version {LOCK_VERSION}");
            let help =
                "use the version of cargo-vram that wrote it, or delete the file and `cargo vram bless` with this one";
            let problem = Problem::new("budgets::lock-version", message).help(help);
            let at = source
                .text()
                .match_indices("version")
                .map(|(at, _)| at)
                .find(|at| *at == 0 || source.text().as_bytes()[at - 1] == b'\n')
                .map(|at| Span::new(at, at + "version".len()));
            return Err(match at {
                Some(span) => problem.at(span, "here"),
                None => problem,
            }
            .alone(&source));
        }
        let document: Document = toml_edit::de::from_str(source.text()).map_err(|error| other(&error))?;
        entries(document, &source)
    }
}

fn entries(document: Document, source: &Arc<Source>) -> Result<Lock, BudgetError> {
    let mut lock = Lock::default();
    let mut seen = BTreeSet::new();
    for (at, written) in document.baseline.into_iter().enumerate() {
        let wrong = |message: String, help: &str| {
            Problem::new("budgets::lock", message)
                .at(header(source.text(), at), "this entry")
                .help(help)
                .alone(source)
        };
        let rests_on = match (written.mode, written.estimator, written.driver) {
            (Mode::Estimate, Some(estimator), None) => estimator,
            (Mode::Measure, None, Some(driver)) => driver,
            (Mode::Estimate, ..) => {
                return Err(wrong(
                    "an estimate has an `estimator`, and no `driver`".to_owned(),
                    BLESS,
                ));
            }
            (Mode::Measure, ..) => {
                return Err(wrong(
                    "a measurement has a `driver`, and no `estimator`".to_owned(),
                    BLESS,
                ));
            }
        };
        let key = Key {
            package: written.package,
            model: written.model,
            gpu: written.gpu,
            mode: written.mode,
        };
        if !seen.insert(key.clone()) {
            let message = format!("`{}/{}` on `{}` is there twice", key.package, key.model, key.gpu);
            return Err(wrong(message, "keep one of them; a merge can do this"));
        }
        // Whatever was accepted ran to its end, and so had both.
        let missing = [("live", written.warm.live), ("reserved", written.warm.reserved)];
        if let Some((metric, _)) = missing.into_iter().find(|(_, bytes)| bytes.is_none()) {
            let message = format!(
                "`{}/{}` on `{}` has no `warm.{metric}`, so that nothing could be compared with it",
                key.package, key.model, key.gpu
            );
            return Err(wrong(message, ANEW));
        }
        let entry = Entry {
            burn: written.burn,
            rests_on,
            inputs: written.inputs,
            parameters: written.parameters,
            peaks: Peaks {
                warm: written.warm.into(),
                cold: written.cold.into(),
            },
        };
        lock.insert(key, entry);
    }
    Ok(lock)
}

impl From<Figures> for Peak {
    fn from(figures: Figures) -> Self {
        Self {
            live: figures.live,
            reserved: figures.reserved,
            process: figures.process,
        }
    }
}

/// The first line that is one of git's.
fn conflict(text: &str) -> Option<Span> {
    let mut offset = 0;
    for line in text.split_inclusive('\n') {
        if CONFLICT.iter().any(|marker| line.starts_with(marker)) {
            return Some(Span::new(offset, offset + line.trim_end().len()));
        }
        offset += line.len();
    }
    None
}

/// Where an entry begins.
fn header(text: &str, number: usize) -> Span {
    let found = text.match_indices("[[baseline]]").nth(number);
    found.map_or(Span::new(0, 0), |(at, header)| Span::new(at, at + header.len()))
}
