//! `autotune.jsonl`: what autotune chose on a card, one fact a line.
//!
//! ```text
//! {"version":1}
//! {"run":{"burn":…,"commit":…,"dirty":…,"fingerprint":…,"keys":64,"run":{"inputs":{…},"model":…,"package":…},"tool":…}}
//! {"key":{"candidates":8,"checksum":…,"fastest":2,"key":{…},"module":…,"run":{…}}}
//! {"outcome":{"Ok":{"computation":{…},"index":2,"name":…}}}
//! ```
//!
//! First the runs, sorted; then the keys, sorted by module, key, checksum and run, each followed by what became of its
//! candidates, exactly as Burn wrote it and in Burn's order, the fastest first.

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;

use serde::{Deserialize, Serialize};
use serde_json::Value;

use super::canonical;
use super::error::RecordingError;
use super::identity::RunIdentity;
use super::tuned::Tuned;

/// The version of the recording's own files.
pub(super) const VERSION: u32 = 1;

/// A run whose choices were recorded, and what made it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct RunFacts {
    /// Which run.
    pub run: RunIdentity,
    /// Burn's version.
    pub burn: String,
    /// The version of the tool that measured.
    pub tool: String,
    /// That tool's fingerprint.
    pub fingerprint: String,
    /// The commit that was measured.
    pub commit: Option<String>,
    /// Whether there were changes on top of it.
    pub dirty: Option<bool>,
    /// How many keys it tuned.
    pub keys: usize,
}

/// One key as it was tuned in one run.
#[derive(Debug, Clone, PartialEq)]
pub struct Entry {
    /// The operation, which is the name of Burn's file without its ending.
    pub module: String,
    /// [`canonical()`](super::canonical()) text of the key.
    pub text: String,
    /// The run it was tuned in.
    pub run: RunIdentity,
    /// The key, the choice and what became of the candidates.
    pub tuned: Tuned,
}

impl Entry {
    /// An entry, as it was read from Burn's file.
    #[must_use]
    pub fn new(module: String, run: RunIdentity, tuned: Tuned) -> Self {
        Self {
            module,
            text: canonical::text(&tuned.key),
            run,
            tuned,
        }
    }

    /// The name of the candidate that was chosen.
    #[must_use]
    pub fn name(&self) -> &str {
        // One that ran, which is checked wherever an entry comes from.
        self.tuned.name_of(self.tuned.fastest).unwrap_or_default()
    }

    fn order(&self) -> (&str, &str, &str, &RunIdentity) {
        (&self.module, &self.text, &self.tuned.checksum, &self.run)
    }
}

/// Everything that the file holds.
#[derive(Debug, Clone, Default, PartialEq)]
pub(super) struct Choices {
    pub(super) runs: BTreeMap<RunIdentity, RunFacts>,
    pub(super) entries: Vec<Entry>,
}

#[derive(Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
enum Line {
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
    candidates: usize,
}

impl Choices {
    /// Replaces what is known of the runs of `newer`.
    pub(super) fn merge(&mut self, newer: Self) {
        self.entries.retain(|entry| !newer.runs.contains_key(&entry.run));
        self.entries.extend(newer.entries);
        self.runs.extend(newer.runs);
        self.sort();
    }

    /// Forgets the runs that are not in `known`.
    pub(super) fn keep(&mut self, known: &BTreeSet<RunIdentity>) {
        self.runs.retain(|run, _| known.contains(run));
        self.entries.retain(|entry| known.contains(&entry.run));
    }

    fn sort(&mut self) {
        self.entries.sort_by(|one, other| one.order().cmp(&other.order()));
    }

    /// The file's text.
    pub(super) fn to_text(&self) -> serde_json::Result<String> {
        let mut lines = vec![Line::Version(VERSION.into())];
        lines.extend(self.runs.values().cloned().map(Line::Run));
        for entry in &self.entries {
            lines.push(Line::Key(KeyLine {
                module: entry.module.clone(),
                key: entry.tuned.key.clone(),
                checksum: entry.tuned.checksum.clone(),
                run: entry.run.clone(),
                fastest: entry.tuned.fastest,
                candidates: entry.tuned.outcomes.len(),
            }));
            lines.extend(entry.tuned.outcomes.iter().cloned().map(Line::Outcome));
        }
        let mut text = String::new();
        for line in lines {
            text.push_str(&canonical::text(&serde_json::to_value(line)?));
            text.push('\n');
        }
        Ok(text)
    }

    /// Reads the file's text; `path` is what errors name.
    pub(super) fn parse(text: &str, path: &Path) -> Result<Self, RecordingError> {
        let mut reader = Reader {
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
        reader.line += 1;
        if reader.line == 1 {
            return Err(reader.damaged("the file is empty"));
        }
        reader.complete()?;
        let mut choices = std::mem::take(&mut reader.choices);
        choices.sort();
        for (run, facts) in &choices.runs {
            let keys = choices.entries.iter().filter(|entry| entry.run == *run).count();
            if keys != facts.keys {
                let what = format!("{run} has {keys} keys where {} were expected", facts.keys);
                return Err(damaged(path, reader.line, what));
            }
        }
        if let Some(pair) = choices
            .entries
            .windows(2)
            .find(|pair| pair[0].order() == pair[1].order())
        {
            let what = format!("{} {} is there twice for {}", pair[0].module, pair[0].text, pair[0].run);
            return Err(damaged(path, reader.line, what));
        }
        Ok(choices)
    }
}

struct Reader<'a> {
    path: &'a Path,
    line: usize,
    choices: Choices,
    /// Candidates that the last key has not got yet.
    missing: usize,
}

impl Reader<'_> {
    fn take(&mut self, line: Line) -> Result<(), RecordingError> {
        match line {
            Line::Version(found) if self.line == 1 => {
                if found != u64::from(VERSION) {
                    return Err(RecordingError::Version {
                        path: self.path.to_owned(),
                        line: self.line,
                        found,
                        known: VERSION,
                    });
                }
            }
            Line::Version(_) => return Err(self.damaged("the version belongs into the first line")),
            _ if self.line == 1 => return Err(self.damaged("the first line must be the version")),
            Line::Run(facts) => {
                self.complete()?;
                let run = facts.run.clone();
                if self.choices.runs.insert(run.clone(), facts).is_some() {
                    return Err(self.damaged(format!("{run} is there twice")));
                }
            }
            Line::Key(key) => {
                self.complete()?;
                if !self.choices.runs.contains_key(&key.run) {
                    return Err(self.damaged(format!("there is no line for {}", key.run)));
                }
                if !is_module(&key.module) {
                    return Err(self.damaged(format!("`{}` is no name of an operation", key.module.escape_debug())));
                }
                if key.candidates == 0 {
                    return Err(self.damaged("a key has at least one candidate"));
                }
                self.missing = key.candidates;
                let tuned = Tuned {
                    key: key.key,
                    checksum: key.checksum,
                    fastest: key.fastest,
                    outcomes: Vec::new(),
                };
                self.choices.entries.push(Entry::new(key.module, key.run, tuned));
            }
            Line::Outcome(outcome) => {
                let Some(entry) = self.choices.entries.last_mut().filter(|_| self.missing > 0) else {
                    return Err(self.damaged("this candidate belongs to no key"));
                };
                entry.tuned.outcomes.push(outcome);
                self.missing -= 1;
                let entry = self.choices.entries.last();
                if self.missing == 0
                    && let Some(Entry { tuned, .. }) = entry
                    && tuned.name_of(tuned.fastest).is_none()
                {
                    return Err(self.damaged(format!("the choice, {}, is no candidate that ran", tuned.fastest)));
                }
            }
        }
        Ok(())
    }

    /// Refuses a key that has fewer candidates than it says.
    fn complete(&self) -> Result<(), RecordingError> {
        match self.missing {
            0 => Ok(()),
            missing => Err(self.damaged(format!("{missing} more candidates of the last key were expected"))),
        }
    }

    fn damaged(&self, what: impl ToString) -> RecordingError {
        damaged(self.path, self.line, what)
    }
}

/// It becomes the name of a file, so it must not lead out of its folder.
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
