//! The files of Burn's autotune. Only this module knows their format.
//!
//! `{root}/autotune/0.10.0/device-0-0-cuda/MODULE.json.log` has one JSON document per line, and one line per key:
//! `{"key":{"key":…,"checksum":…},"value":{"fastest_index":…,"results":[{"outcome":…},…]}}`. The checksum is a hash
//! over the names of all candidates. So with the same checksum, an index means the same candidate. The results are
//! sorted by time, failed ones last. (cubecl-runtime 0.10, `tune/tune_cache.rs` and `tune/tuner.rs`.)

use std::io;
use std::path::{Path, PathBuf};

use serde::Deserialize;
use serde_json::{Value, json};

/// The end of the names of these files.
const SUFFIX: &str = ".json.log";
/// The end of the names of files that a plan copies unchanged: the throughput that Burn 0.22 measures before it tunes.
const MEASURED_SUFFIX: &str = ".jsonl";

/// One key that was tuned.
#[derive(Debug, Clone, PartialEq)]
pub struct Tuned {
    /// The operation and its sizes, as Burn describes them.
    pub key: Value,
    /// A hash over the names of the candidates.
    pub checksum: String,
    /// The index of the chosen candidate.
    pub fastest: usize,
    /// The outcome of each candidate, as Burn wrote it; empty in a plan.
    pub outcomes: Vec<Value>,
}

#[derive(Deserialize)]
struct TunedLine {
    key: TunedKey,
    value: TunedChoice,
}

#[derive(Deserialize)]
struct TunedKey {
    key: Value,
    checksum: String,
}

#[derive(Deserialize)]
struct TunedChoice {
    fastest_index: usize,
    results: Vec<Candidate>,
}

#[derive(Deserialize)]
// Only the outcome is kept. A line with another field is another format, and must not lose it silently.
#[serde(deny_unknown_fields)]
struct Candidate {
    outcome: Value,
}

impl Tuned {
    /// Parses a line. Returns `None` if the line is incomplete or has another format.
    #[must_use]
    pub fn parse(line: &str) -> Option<Self> {
        let TunedLine { key, value } = serde_json::from_str(line).ok()?;
        Some(Self {
            key: key.key,
            checksum: key.checksum,
            fastest: value.fastest_index,
            outcomes: value.results.into_iter().map(|candidate| candidate.outcome).collect(),
        })
    }

    /// Returns the line of a plan that makes Burn choose `index` for this key without timing any candidate.
    #[must_use]
    pub fn planned(&self, index: usize) -> String {
        // Burn loads only the checksum and the index (`load` in `tune_cache.rs`). With another checksum, it
        // tunes again.
        json!({
            "key": { "key": self.key, "checksum": self.checksum },
            "value": { "fastest_index": index, "results": [] },
        })
        .to_string()
    }

    /// Iterates over the candidates that ran, the fastest first: index and name.
    pub fn succeeded(&self) -> impl Iterator<Item = (usize, &str)> {
        self.outcomes.iter().filter_map(|outcome| {
            let ran = outcome.get("Ok")?;
            let index = usize::try_from(ran.get("index")?.as_u64()?).ok()?;
            Some((index, ran.get("name")?.as_str()?))
        })
    }

    /// Returns the name of a candidate, if it ran.
    #[must_use]
    pub fn name_of(&self, index: usize) -> Option<&str> {
        self.succeeded().find(|(at, _)| *at == index).map(|(_, name)| name)
    }

    /// Whether Burn never tried the candidate of this name, because an earlier candidate ran.
    #[must_use]
    pub fn skipped(&self, name: &str) -> bool {
        self.outcomes
            .iter()
            .filter_map(|outcome| outcome.get("Err")?.get("Skip")?.get("name")?.as_str())
            .any(|skipped| skipped == name)
    }

    /// Whether Burn tried the candidate and it did not run.
    ///
    /// Some failures do not name their candidate. So a candidate failed if it neither ran nor was skipped.
    #[must_use]
    pub fn failed(&self, index: usize, name: &str) -> bool {
        // A plan has no outcomes, which does not mean that every candidate failed.
        !self.outcomes.is_empty() && self.name_of(index).is_none() && !self.skipped(name)
    }
}

/// One file of Burn's autotune.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TuneFile {
    /// The path within the folder: `autotune/0.10.0/device-0-0-cuda/MODULE.json.log`.
    pub path: PathBuf,
    /// The operation: the file name without its extension.
    pub module: String,
    /// The content of the file.
    pub text: String,
}

impl TuneFile {
    /// Returns the path of a module's file in a folder.
    #[must_use]
    pub fn path_in(folder: &Path, module: &str) -> PathBuf {
        folder.join(format!("{module}{SUFFIX}"))
    }
}

/// Reads all autotune files of a folder, sorted by path.
///
/// Returns an empty list if the folder does not exist, because Burn creates it when it first tunes.
///
/// # Errors
/// If a folder or file cannot be read.
pub fn read_folder(folder: &Path) -> io::Result<Vec<TuneFile>> {
    read_files(folder, SUFFIX)
}

/// Reads all files of a folder with the GPU's throughput that Burn measured, sorted by path.
///
/// # Errors
/// If a folder or file cannot be read.
pub fn read_measured(folder: &Path) -> io::Result<Vec<TuneFile>> {
    read_files(folder, MEASURED_SUFFIX)
}

fn read_files(folder: &Path, suffix: &str) -> io::Result<Vec<TuneFile>> {
    let mut files = Vec::new();
    if folder.exists() {
        collect(folder, folder, suffix, &mut files)?;
    }
    // `read_dir` has no order. If several devices have a key, the first one counts.
    files.sort_by(|one, other| one.path.cmp(&other.path));
    Ok(files)
}

fn collect(root: &Path, folder: &Path, suffix: &str, files: &mut Vec<TuneFile>) -> io::Result<()> {
    for entry in std::fs::read_dir(folder)? {
        let entry = entry?;
        let path = entry.path();
        if entry.file_type()?.is_dir() {
            collect(root, &path, suffix, files)?;
            continue;
        }
        let name = entry.file_name();
        let Some(module) = name.to_str().and_then(|name| name.strip_suffix(suffix)) else {
            continue;
        };
        files.push(TuneFile {
            path: path.strip_prefix(root).unwrap_or(&path).to_owned(),
            module: module.to_owned(),
            text: std::fs::read_to_string(&path)?,
        });
    }
    Ok(())
}
