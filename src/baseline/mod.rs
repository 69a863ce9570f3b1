//! The baseline, budgets.lock: the accepted values per model, GPU and mode. Only `cargo vram bless` writes it.
//!
//! The file is sorted TOML with one line per value and one paragraph per entry. So two branches that accept values of
//! different models merge without a conflict.

mod accept;
mod compare;
mod denied;
mod read;
#[cfg(test)]
mod tests;
mod write;

use std::collections::BTreeMap;

pub use accept::Accepted;
pub use compare::edits;
pub use denied::{denied, worse};

use crate::bytes::Bytes;
use crate::report::change::metric_name;
use crate::report::words::count;
use crate::report::{EditedLimit, Metric, Mode, Pass, Peaks, Run};
use crate::untrusted::{Foreign, PlainName};

/// The version of the file that this program reads and writes.
pub const LOCK_VERSION: u32 = 1;

/// The content of budgets.lock.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct BaselineFile {
    entries: BTreeMap<BaselineKey, BaselineEntry>,
}

/// The key of an entry: what was run, and on which GPU.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct BaselineKey {
    /// The package that declares the model.
    pub package: PlainName,
    /// The model's name, or the budget's name if the budget runs a model with other inputs.
    pub model: PlainName,
    /// The ID of the GPU.
    pub gpu: PlainName,
    /// Whether the values are estimated or measured.
    pub mode: Mode,
}

/// The accepted values of one run.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct BaselineEntry {
    /// The version of Burn in the run.
    pub burn: Foreign,
    /// What the values depend on besides the model: the estimator's fingerprint, or the driver version of a
    /// measurement.
    pub rests_on: Foreign,
    /// The inputs of the run.
    pub inputs: BTreeMap<PlainName, u64>,
    /// The number of parameters, learnable or not, if it is known.
    pub parameters: Option<u64>,
    /// The accepted peaks.
    pub peaks: Peaks,
}

impl BaselineKey {
    /// Returns the model with its package: `zoo/resnet18`.
    #[must_use]
    pub fn full_name(&self) -> String {
        format!("{}/{}", self.package, self.model)
    }

    /// Makes an edit of one value, or of the whole entry if `value` is `None`.
    fn edit(
        &self,
        value: Option<(Pass, Metric)>,
        change: [Option<Bytes>; 2],
        file: &str,
        loosens: bool,
    ) -> EditedLimit {
        let [before, after] = change.map(|bytes| bytes.map(exact));
        let of = value.map_or_else(String::new, |(pass, metric)| format!(", {}", metric_name(pass, metric)));
        EditedLimit {
            model: Some(self.model.as_str().into()),
            limit: format!("baseline on {}{of}", self.gpu).into(),
            before: before.map(Foreign::from),
            after: after.map(Foreign::from),
            file: file.into(),
            line: None,
            loosens,
        }
    }

    /// Returns the key of a run's entry.
    #[must_use]
    pub fn from_run(run: &Run) -> Self {
        Self {
            package: run.package.clone(),
            model: run.name().to_owned(),
            gpu: run.gpu.id.clone(),
            mode: run.mode,
        }
    }
}

impl BaselineEntry {
    /// Makes the entry that `bless` writes for a run.
    #[must_use]
    pub fn from_run(run: &Run, fingerprint: &str) -> Self {
        Self {
            burn: run.burn.clone(),
            // No plan: an estimate's choices follow from the fingerprint, a measurement's are in recordings.
            // See docs/design/baseline.md.
            rests_on: match run.mode {
                Mode::Estimate => fingerprint.into(),
                Mode::Measure => run.gpu.driver.clone(),
            },
            inputs: run.inputs.clone(),
            parameters: run.parameters.as_ref().map(|parameters| parameters.count),
            peaks: run.peaks,
        }
    }
}

impl BaselineFile {
    /// Returns the entries, sorted by key.
    pub fn entries(&self) -> impl Iterator<Item = (&BaselineKey, &BaselineEntry)> {
        self.entries.iter()
    }

    /// Returns the entry with this key.
    #[must_use]
    pub fn get(&self, key: &BaselineKey) -> Option<&BaselineEntry> {
        self.entries.get(key)
    }

    /// Adds or replaces an entry. Returns the entry before.
    pub fn insert(&mut self, key: BaselineKey, entry: BaselineEntry) -> Option<BaselineEntry> {
        self.entries.insert(key, entry)
    }

    /// Keeps only the entries for which `keeps` returns true.
    pub fn retain(&mut self, mut keeps: impl FnMut(&BaselineKey) -> bool) {
        self.entries.retain(|key, _| keeps(key));
    }

    /// Whether there is no entry.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.entries.is_empty()
    }
}

/// Returns the exact number of bytes, in groups of three digits: `1,024 B`.
fn exact(bytes: Bytes) -> String {
    format!("{} B", count(bytes.0))
}
