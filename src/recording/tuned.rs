//! The files that Burn's autotune keeps: everything that knows their format.
//!
//! `{root}/autotune/0.10.0/device-0-0-cuda/MODULE.json.log` has one JSON document a line, one line a key:
//! `{"key":{"key":…,"checksum":…},"value":{"fastest_index":…,"results":[{"outcome":…},…]}}`. The checksum is a hash over
//! the names of all candidates, so an index means the same candidate wherever the checksum is the same. Results are
//! sorted by time, failed ones last. (cubecl-runtime 0.10, `tune/tune_cache.rs` and `tune/tuner.rs`.)

use std::io;
use std::path::{Path, PathBuf};

use serde::Deserialize;
use serde_json::{Value, json};

/// How the names of these files end.
const SUFFIX: &str = ".json.log";
/// How the names of files end that a plan takes over as they are: the throughput that Burn 0.22 measures before it tunes.
const MEASURED_SUFFIX: &str = ".jsonl";

/// One key that was tuned.
#[derive(Debug, Clone, PartialEq)]
pub struct Tuned {
    /// The operation and its sizes, as Burn describes them.
    pub key: Value,
    /// A hash over the names of the candidates.
    pub checksum: String,
    /// The candidate that was chosen.
    pub fastest: usize,
    /// What became of each candidate, as Burn wrote it; empty in a plan.
    pub outcomes: Vec<Value>,
}

#[derive(Deserialize)]
struct Line {
    key: Key,
    value: Found,
}

#[derive(Deserialize)]
struct Key {
    key: Value,
    checksum: String,
}

#[derive(Deserialize)]
struct Found {
    fastest_index: usize,
    results: Vec<Candidate>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Candidate {
    outcome: Value,
}

impl Tuned {
    /// Reads a line, unless it is none of Burn's: cut short, or of another format.
    #[must_use]
    pub fn parse(line: &str) -> Option<Self> {
        let Line { key, value } = serde_json::from_str(line).ok()?;
        Some(Self {
            key: key.key,
            checksum: key.checksum,
            fastest: value.fastest_index,
            outcomes: value.results.into_iter().map(|candidate| candidate.outcome).collect(),
        })
    }

    /// The line of a plan that has Burn take `index` for this key, and time nothing.
    #[must_use]
    pub fn planned(&self, index: usize) -> String {
        json!({
            "key": { "key": self.key, "checksum": self.checksum },
            "value": { "fastest_index": index, "results": [] },
        })
        .to_string()
    }

    /// The candidates that ran, the fastest first: index and name.
    pub fn succeeded(&self) -> impl Iterator<Item = (usize, &str)> {
        self.outcomes.iter().filter_map(|outcome| {
            let ran = outcome.get("Ok")?;
            let index = usize::try_from(ran.get("index")?.as_u64()?).ok()?;
            Some((index, ran.get("name")?.as_str()?))
        })
    }

    /// The name of a candidate that ran.
    #[must_use]
    pub fn name_of(&self, index: usize) -> Option<&str> {
        self.succeeded().find(|(at, _)| *at == index).map(|(_, name)| name)
    }

    /// Whether the candidate of this name was never tried, because one that Burn tries earlier ran.
    #[must_use]
    pub fn skipped(&self, name: &str) -> bool {
        self.outcomes
            .iter()
            .filter_map(|outcome| outcome.get("Err")?.get("Skip")?.get("name")?.as_str())
            .any(|skipped| skipped == name)
    }

    /// Whether the candidate was tried and did not run. Some failures do not say of which candidate they are, so this is
    /// told by what is missing.
    #[must_use]
    pub fn failed(&self, index: usize, name: &str) -> bool {
        !self.outcomes.is_empty() && self.name_of(index).is_none() && !self.skipped(name)
    }
}

/// One file of Burn's autotune.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TuneFile {
    /// Where it is within the folder: `autotune/0.10.0/device-0-0-cuda/MODULE.json.log`.
    pub path: PathBuf,
    /// The operation that it belongs to, which is its name without the ending.
    pub module: String,
    /// What it holds.
    pub text: String,
}

impl TuneFile {
    /// The file of a module in the same folder as another file.
    #[must_use]
    pub fn path_in(folder: &Path, module: &str) -> PathBuf {
        folder.join(format!("{module}{SUFFIX}"))
    }
}

/// All files of a folder, sorted by path; none where there is no such folder, for Burn makes it when it first tunes.
///
/// # Errors
/// Where a folder or file cannot be read.
pub fn read_folder(folder: &Path) -> io::Result<Vec<TuneFile>> {
    read_files(folder, SUFFIX)
}

/// All files of a folder that hold what Burn measured of the GPU, sorted by path.
///
/// # Errors
/// Where a folder or file cannot be read.
pub fn read_measured(folder: &Path) -> io::Result<Vec<TuneFile>> {
    read_files(folder, MEASURED_SUFFIX)
}

fn read_files(folder: &Path, suffix: &str) -> io::Result<Vec<TuneFile>> {
    let mut files = Vec::new();
    if folder.exists() {
        collect(folder, folder, suffix, &mut files)?;
    }
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
