//! Reads budgets.lock and reports a mistake with its line.

use std::collections::{BTreeMap, BTreeSet};
use std::io::ErrorKind;
use std::sync::Arc;

use camino::Utf8Path;
use serde::Deserialize;

use super::{BaselineEntry, BaselineFile, BaselineKey, LOCK_VERSION};
use crate::budget::problem::{BudgetError, BudgetProblem};
use crate::budget::source::{self, BudgetText, Span};
use crate::bytes::Bytes;
use crate::report::{Mode, Peak, Peaks};
use crate::untrusted::PlainName;

const ANEW: &str = "correct it, or restore the file with `git checkout`; to accept all current values, delete the file \
                    and run `cargo vram bless`";
const BLESS: &str = "restore the file with `git checkout`, or delete it and run `cargo vram bless`";
/// The markers that git writes around conflicting lines.
const CONFLICT: [&str; 4] = ["<<<<<<<", "|||||||", "=======", ">>>>>>>"];

#[derive(Deserialize)]
struct Version {
    version: Option<i64>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct LockDocument {
    #[serde(rename = "version")]
    _version: i64,
    #[serde(default)]
    baseline: Vec<WrittenEntry>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct WrittenEntry {
    package: PlainName,
    model: PlainName,
    gpu: PlainName,
    mode: Mode,
    burn: String,
    estimator: Option<String>,
    driver: Option<String>,
    #[serde(default)]
    inputs: BTreeMap<PlainName, u64>,
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

impl BaselineFile {
    /// Reads the file at `path`; returns `None` if it does not exist. Messages show `display_name` instead of `path`.
    ///
    /// # Errors
    /// The file cannot be read, or has a mistake. The error has the line of the mistake, if it is known.
    pub fn load(path: &Utf8Path, display_name: &str) -> Result<Option<Self>, BudgetError> {
        // `exists` would overlook a broken link, and every model would be new.
        if path
            .symlink_metadata()
            .is_err_and(|error| error.kind() == ErrorKind::NotFound)
        {
            return Ok(None);
        }
        Self::parse(&BudgetText::read(path, display_name)?, display_name).map(Some)
    }

    /// Checks the content of a file. Messages call the file `display_name`.
    ///
    /// # Errors
    /// The content has a mistake, as for [`BaselineFile::load`].
    pub fn parse(bytes: &[u8], display_name: &str) -> Result<Self, BudgetError> {
        // `load` checked this, but the bytes of a base come from git or from an archive.
        if bytes.len() as u64 > source::MAX_FILE {
            return Err(source::too_large(display_name));
        }
        let source = BudgetText::from_bytes(display_name, bytes)?;
        // TOML would call a conflict marker a syntax error, and would not say that a merge is unfinished.
        if let Some(span) = conflict(source.text()) {
            return Err(
                BudgetProblem::new("budgets::lock-conflict", "unresolved merge conflict".to_owned())
                    .at(span, "git's conflict marker")
                    .help(
                        "keep either side, then run `cargo vram bless -m MODEL` for each model that both sides changed",
                    )
                    .alone(&source),
            );
        }
        let other = |error: &toml_edit::de::Error| {
            let problem = BudgetProblem::new("budgets::lock", error.message().to_owned());
            let span = error.span().map(|range| Span::new(range.start, range.end));
            match span {
                Some(span) => problem.at(span, "here"),
                None => problem,
            }
            .help(ANEW)
            .alone(&source)
        };
        // The version alone comes first, because another version may have fields that this one does not know.
        let version: Version = toml_edit::de::from_str(source.text()).map_err(|error| other(&error))?;
        if version.version != Some(LOCK_VERSION.into()) {
            let found = version
                .version
                .map_or_else(|| "no version".to_owned(), |version| format!("version {version}"));
            let message = format!("the file has {found}, but this cargo-vram reads version {LOCK_VERSION}");
            let help = "use the cargo-vram version that wrote the file, or delete the file and run `cargo vram bless`";
            let problem = BudgetProblem::new("budgets::lock-version", message).help(help);
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
        let document: LockDocument = toml_edit::de::from_str(source.text()).map_err(|error| other(&error))?;
        entries(document, &source)
    }
}

fn entries(document: LockDocument, source: &Arc<BudgetText>) -> Result<BaselineFile, BudgetError> {
    let mut lock = BaselineFile::default();
    let mut seen = BTreeSet::new();
    for (at, written) in document.baseline.into_iter().enumerate() {
        let wrong = |message: String, help: &str| {
            BudgetProblem::new("budgets::lock", message)
                .at(header(source.text(), at), "this entry")
                .help(help)
                .alone(source)
        };
        let rests_on = match (written.mode, written.estimator, written.driver) {
            (Mode::Estimate, Some(estimator), None) => estimator,
            (Mode::Measure, None, Some(driver)) => driver,
            (Mode::Estimate, ..) => {
                return Err(wrong(
                    "an estimate must have `estimator` and no `driver`".to_owned(),
                    BLESS,
                ));
            }
            (Mode::Measure, ..) => {
                return Err(wrong(
                    "a measurement must have `driver` and no `estimator`".to_owned(),
                    BLESS,
                ));
            }
        };
        let key = BaselineKey {
            package: written.package,
            model: written.model,
            gpu: written.gpu,
            mode: written.mode,
        };
        if !seen.insert(key.clone()) {
            let message = format!("duplicate entry for `{}/{}` on `{}`", key.package, key.model, key.gpu);
            return Err(wrong(message, "remove one of them; a merge can cause this"));
        }
        // Every accepted run finished, so it has both values.
        let missing = [("live", written.warm.live), ("reserved", written.warm.reserved)];
        if let Some((metric, _)) = missing.into_iter().find(|(_, bytes)| bytes.is_none()) {
            let message = format!(
                "`{}/{}` on `{}` has no `warm.{metric}`, so no run can be compared with it",
                key.package, key.model, key.gpu
            );
            return Err(wrong(message, ANEW));
        }
        let entry = BaselineEntry {
            burn: written.burn.into(),
            rests_on: rests_on.into(),
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

/// Returns the first line with a conflict marker of git.
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

/// Returns the position of an entry's header.
fn header(text: &str, number: usize) -> Span {
    let found = text.match_indices("[[baseline]]").nth(number);
    found.map_or(Span::new(0, 0), |(at, header)| Span::new(at, at + header.len()))
}
