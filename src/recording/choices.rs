//! `autotune.jsonl`: the choices of autotune on a GPU, one fact per line.
//!
//! ```text
//! {"version":1}
//! {"run":{"burn":…,"commit":…,"dirty":…,"fingerprint":…,"keys":64,"run":{"inputs":{…},"model":…,"package":…},"tool":…}}
//! {"key":{"candidates":8,"checksum":…,"fastest":2,"key":{…},"module":…,"run":{…}}}
//! {"outcome":{"Ok":{"computation":{…},"index":2,"name":…}}}
//! ```
//!
//! First come the runs, sorted. Then come the keys, sorted by module, key, checksum and run. Each key is followed by
//! the outcomes of its candidates exactly as Burn wrote them, in Burn's order (the fastest first).

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;

use serde::{Deserialize, Serialize};
use serde_json::Value;

use super::canonical;
use super::error::RecordingError;
use super::identity::RunIdentity;
use super::tuned::Tuned;

/// The format version of `autotune.jsonl` and `gpu.json`.
pub(super) const VERSION: u32 = 1;

/// A run whose choices were recorded, with the versions that produced it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct RunFacts {
    /// The identity of the run.
    pub run: RunIdentity,
    /// Burn's version.
    pub burn: String,
    /// The version of the cargo-vram that measured the run.
    pub tool: String,
    /// The fingerprint of that cargo-vram.
    pub fingerprint: String,
    /// The measured commit.
    pub commit: Option<String>,
    /// Whether the working tree had changes on top of the commit.
    pub dirty: Option<bool>,
    /// The number of keys that the run tuned.
    pub keys: usize,
}

/// One key that one run tuned.
#[derive(Debug, Clone, PartialEq)]
pub struct ChoiceEntry {
    /// The operation: the name of Burn's file without its extension.
    pub module: String,
    /// The [`canonical()`](super::canonical()) text of the key.
    pub text: String,
    /// The run that tuned the key.
    pub run: RunIdentity,
    /// The key, the choice and the outcomes of the candidates.
    pub tuned: Tuned,
}

impl ChoiceEntry {
    /// Creates an entry.
    #[must_use]
    pub fn new(module: String, run: RunIdentity, tuned: Tuned) -> Self {
        Self {
            module,
            text: canonical::text(&tuned.key),
            run,
            tuned,
        }
    }

    /// Returns the name of the chosen candidate.
    #[must_use]
    pub fn name(&self) -> &str {
        // The name exists, because every source of entries checks that the chosen candidate ran.
        self.tuned.name_of(self.tuned.fastest).unwrap_or_default()
    }

    fn order(&self) -> (&str, &str, &str, &RunIdentity) {
        (&self.module, &self.text, &self.tuned.checksum, &self.run)
    }
}

/// The content of the file.
#[derive(Debug, Clone, Default, PartialEq)]
pub(super) struct Choices {
    pub(super) runs: BTreeMap<RunIdentity, RunFacts>,
    pub(super) entries: Vec<ChoiceEntry>,
}

#[derive(Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
enum ChoiceLine {
    // Not `u32`: a number that is too large is an unsupported version, not damage.
    Version(u64),
    Run(RunFacts),
    Key(KeyLine),
    Outcome(Value),
}

#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct KeyLine {
    module: String,
    key: Value,
    checksum: String,
    run: RunIdentity,
    fastest: usize,
    // With this count and that of a run's keys, a file that was cut short between two lines is an error.
    candidates: usize,
}

impl Choices {
    /// Adds the runs of `newer` with their entries, and replaces those that exist already.
    pub(super) fn merge(&mut self, newer: Self) {
        self.entries.retain(|entry| !newer.runs.contains_key(&entry.run));
        self.entries.extend(newer.entries);
        self.runs.extend(newer.runs);
        self.sort();
    }

    /// Removes the runs that are not in `known`, with their entries.
    pub(super) fn keep(&mut self, known: &BTreeSet<RunIdentity>) {
        self.runs.retain(|run, _| known.contains(run));
        self.entries.retain(|entry| known.contains(&entry.run));
    }

    fn sort(&mut self) {
        self.entries.sort_by(|one, other| one.order().cmp(&other.order()));
    }

    /// Formats the file's text.
    pub(super) fn to_text(&self) -> serde_json::Result<String> {
        // Sorted and canonical, so that the same recordings are the same bytes in whatever order they came.
        // The fingerprint depends on them.
        let mut lines = vec![ChoiceLine::Version(VERSION.into())];
        lines.extend(self.runs.values().cloned().map(ChoiceLine::Run));
        for entry in &self.entries {
            lines.push(ChoiceLine::Key(KeyLine {
                module: entry.module.clone(),
                key: entry.tuned.key.clone(),
                checksum: entry.tuned.checksum.clone(),
                run: entry.run.clone(),
                fastest: entry.tuned.fastest,
                candidates: entry.tuned.outcomes.len(),
            }));
            lines.extend(entry.tuned.outcomes.iter().cloned().map(ChoiceLine::Outcome));
        }
        let mut text = String::new();
        for line in lines {
            text.push_str(&canonical::text(&serde_json::to_value(line)?));
            text.push('\n');
        }
        Ok(text)
    }

    /// Parses the file's text. Errors name `path`.
    pub(super) fn parse(text: &str, path: &Path) -> Result<Self, RecordingError> {
        let mut reader = ChoiceReader {
            path,
            line: 0,
            choices: Self::default(),
            missing: 0,
        };
        for line in text.lines() {
            reader.line += 1;
            let parsed = serde_json::from_str(line).map_err(|error| reader.damaged(error))?;
            reader.take(parsed)?;
        }
        // What is missing belongs behind the last line.
        reader.line += 1;
        if reader.line == 1 {
            return Err(reader.damaged("the file is empty"));
        }
        reader.complete()?;
        let mut choices = std::mem::take(&mut reader.choices);
        // `Recording::of_module` searches by halves, and nothing above checks the order of the lines.
        choices.sort();
        for (run, facts) in &choices.runs {
            let keys = choices.entries.iter().filter(|entry| entry.run == *run).count();
            if keys != facts.keys {
                let what = format!("{run} has {keys} keys, but its `run` line says {}", facts.keys);
                return Err(damaged(path, reader.line, what));
            }
        }
        // Two entries of one run for one key would count as two votes for its choice.
        if let Some(pair) = choices
            .entries
            .windows(2)
            .find(|pair| pair[0].order() == pair[1].order())
        {
            let what = format!(
                "duplicate key {} of {} for {}",
                pair[0].text, pair[0].module, pair[0].run
            );
            return Err(damaged(path, reader.line, what));
        }
        Ok(choices)
    }
}

struct ChoiceReader<'a> {
    path: &'a Path,
    line: usize,
    choices: Choices,
    /// The number of candidates that the last key still needs.
    missing: usize,
}

impl ChoiceReader<'_> {
    fn take(&mut self, line: ChoiceLine) -> Result<(), RecordingError> {
        match line {
            ChoiceLine::Version(found) if self.line == 1 => {
                if found != u64::from(VERSION) {
                    return Err(RecordingError::Version {
                        path: self.path.to_owned(),
                        line: self.line,
                        found,
                        known: VERSION,
                    });
                }
            }
            ChoiceLine::Version(_) => return Err(self.damaged("the version must be in the first line only")),
            _ if self.line == 1 => return Err(self.damaged("the first line must be the version")),
            ChoiceLine::Run(facts) => {
                self.complete()?;
                let run = facts.run.clone();
                if self.choices.runs.insert(run.clone(), facts).is_some() {
                    return Err(self.damaged(format!("duplicate `run` line for {run}")));
                }
            }
            ChoiceLine::Key(key) => {
                self.complete()?;
                if !self.choices.runs.contains_key(&key.run) {
                    return Err(self.damaged(format!("there is no `run` line for {}", key.run)));
                }
                if !is_module(&key.module) {
                    return Err(self.damaged(format!("`{}` is not a valid operation name", key.module.escape_debug())));
                }
                if key.candidates == 0 {
                    return Err(self.damaged("a key must have at least one candidate"));
                }
                self.missing = key.candidates;
                let tuned = Tuned {
                    key: key.key,
                    checksum: key.checksum,
                    fastest: key.fastest,
                    outcomes: Vec::new(),
                };
                self.choices.entries.push(ChoiceEntry::new(key.module, key.run, tuned));
            }
            ChoiceLine::Outcome(outcome) => {
                let Some(entry) = self.choices.entries.last_mut().filter(|_| self.missing > 0) else {
                    return Err(self.damaged("this candidate does not belong to a key"));
                };
                entry.tuned.outcomes.push(outcome);
                self.missing -= 1;
                let entry = self.choices.entries.last();
                if self.missing == 0
                    && let Some(ChoiceEntry { tuned, .. }) = entry
                    && tuned.name_of(tuned.fastest).is_none()
                {
                    return Err(self.damaged(format!(
                        "the chosen candidate {} is not a candidate that ran",
                        tuned.fastest
                    )));
                }
            }
        }
        Ok(())
    }

    /// Returns an error if the last key has fewer candidates than its line says.
    fn complete(&self) -> Result<(), RecordingError> {
        match self.missing {
            0 => Ok(()),
            missing => Err(self.damaged(format!("candidates missing for the last key: {missing}"))),
        }
    }

    fn damaged(&self, what: impl ToString) -> RecordingError {
        damaged(self.path, self.line, what)
    }
}

/// Whether a name is a valid operation name. It becomes a file name, so it must not contain a path to another folder.
fn is_module(name: &str) -> bool {
    let plain = |c: char| c.is_ascii_alphanumeric() || matches!(c, '_' | '-' | '.');
    !name.is_empty() && name.len() <= 200 && !name.starts_with('.') && name.chars().all(plain)
}

pub(super) fn damaged(path: &Path, line: usize, what: impl ToString) -> RecordingError {
    RecordingError::Damaged {
        path: path.to_owned(),
        line,
        what: what.to_string(),
    }
}
