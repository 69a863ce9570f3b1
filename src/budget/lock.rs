//! budgets.lock: the figures last accepted, per model, card and mode. Only `cargo vram bless` writes it.
//!
//! It is TOML, sorted, one line a figure, a paragraph an entry, so that two branches that accept figures of different
//! models merge without a conflict.

mod accept;
mod compare;
mod read;
#[cfg(test)]
mod tests;
mod write;

use std::collections::BTreeMap;

pub use accept::Accepted;
pub use compare::edits;

use crate::report::{Mode, Peaks, Run};

/// The version of the file that this program reads and writes.
pub const LOCK_VERSION: u32 = 1;

/// The file, read or to be written.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Lock {
    entries: BTreeMap<Key, Entry>,
}

/// What an entry is of.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct Key {
    /// The package that declares the model.
    pub package: String,
    /// The model, or the budget's name where it stands for a model with other inputs.
    pub model: String,
    /// The card's id.
    pub gpu: String,
    /// Estimated or measured.
    pub mode: Mode,
}

/// What was accepted.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Entry {
    /// The Burn that it was run with.
    pub burn: String,
    /// What the figures rest on besides the model: of an estimate the tool's fingerprint, of a measurement the driver.
    pub rests_on: String,
    /// The inputs.
    pub inputs: BTreeMap<String, u64>,
    /// Parameters, learnable and not.
    pub parameters: Option<u64>,
    /// The figures.
    pub peaks: Peaks,
}

impl Key {
    /// What a run's entry is found by.
    #[must_use]
    pub fn of(run: &Run) -> Self {
        Self {
            package: run.package.clone(),
            model: run.name().to_owned(),
            gpu: run.gpu.id.clone(),
            mode: run.mode,
        }
    }
}

impl Entry {
    /// What accepting a run would write.
    #[must_use]
    pub fn of(run: &Run, fingerprint: &str) -> Self {
        Self {
            burn: run.burn.clone(),
            rests_on: match run.mode {
                Mode::Estimate => fingerprint.to_owned(),
                Mode::Measure => run.gpu.driver.clone(),
            },
            inputs: run.inputs.clone(),
            parameters: run.parameters.as_ref().map(|parameters| parameters.count),
            peaks: run.peaks,
        }
    }
}

impl Lock {
    /// The entries, sorted.
    pub fn entries(&self) -> impl Iterator<Item = (&Key, &Entry)> {
        self.entries.iter()
    }

    /// The entry of that model, card and mode.
    #[must_use]
    pub fn get(&self, key: &Key) -> Option<&Entry> {
        self.entries.get(key)
    }

    /// Accepts an entry. Gives what was accepted before.
    pub fn insert(&mut self, key: Key, entry: Entry) -> Option<Entry> {
        self.entries.insert(key, entry)
    }

    /// Leaves out the entries for which this is false.
    pub fn retain(&mut self, mut keeps: impl FnMut(&Key) -> bool) {
        self.entries.retain(|key, _| keeps(key));
    }

    /// Whether nothing was accepted.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.entries.is_empty()
    }
}
