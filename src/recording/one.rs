//! The recording of one card and driver.

use std::collections::BTreeSet;
use std::path::Path;

use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};
use serde_json::Value;
use sha2::{Digest, Sha256};

use super::card::CardFacts;
use super::choices::{Choices, Entry, RunFacts, VERSION, damaged};
use super::error::{RecordingError, Refusal};
use super::folder::{self, CARD, CHOICES, REPORT, Texts};
use super::identity::RunIdentity;
use crate::report::{Mode, REPORT_VERSION, Report, Run, Tuning};

/// The measurements of one card with one driver.
#[derive(Debug, Clone, PartialEq)]
pub struct Recording {
    card: CardFacts,
    report: Report,
    choices: Choices,
    digest: String,
}

/// `card.json`.
#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct CardFile {
    version: u64,
    card: CardFacts,
}

impl Recording {
    /// Checks that the report may be recorded and puts its parts together.
    pub(super) fn new(card: CardFacts, mut report: Report, mut choices: Choices) -> Result<Self, RecordingError> {
        report.runs.sort_by_cached_key(RunIdentity::of);
        let mut seen = BTreeSet::new();
        for run in &report.runs {
            let identity = RunIdentity::of(run);
            if let Some(refusal) = refusal(run, &card) {
                return Err(refusal.of(identity));
            }
            if !choices.runs.contains_key(&identity) {
                return Err(Refusal::NoChoices.of(identity));
            }
            if !seen.insert(identity.clone()) {
                return Err(Refusal::Twice.of(identity));
            }
        }
        choices.keep(&seen);
        Ok(Self {
            card,
            report,
            choices,
            digest: String::new(),
        })
    }

    /// Reads a recording; `folder` is what errors name, `gpu` and `driver` are the names of its two folders.
    pub(super) fn parse(texts: &Texts, folder: &Path, gpu: &str, driver: &str) -> Result<Self, RecordingError> {
        let path = folder.join(CARD);
        version(&texts.card, &path, VERSION)?;
        let CardFile { card, .. } = read(&texts.card, &path)?;
        if (card.gpu.as_str(), card.driver.as_str()) != (gpu, driver) {
            let what = format!("this is `{}`, driver {}, in a folder of another", card.gpu, card.driver);
            return Err(damaged(&path, 1, what));
        }
        let path = folder.join(REPORT);
        version(&texts.report, &path, REPORT_VERSION)?;
        let report = read(&texts.report, &path)?;
        let choices = Choices::parse(&texts.choices, &folder.join(CHOICES))?;
        let mut recording = Self::new(card, report, choices)?;
        recording.digest = texts.digest();
        Ok(recording)
    }

    /// Adds what `newer` has; what both have is taken from `newer`.
    pub(super) fn merge(self, newer: Self) -> Result<Self, RecordingError> {
        let mut choices = self.choices;
        choices.merge(newer.choices);
        let mut report = newer.report;
        let replaced: BTreeSet<_> = report.runs.iter().map(RunIdentity::of).collect();
        let kept = self.report.runs.into_iter();
        report
            .runs
            .extend(kept.filter(|run| !replaced.contains(&RunIdentity::of(run))));
        report.expected.extend(self.report.expected);
        report.expected.sort();
        report.expected.dedup();
        Self::new(newer.card, report, choices)
    }

    /// Writes the recording into its folder of `dir`, over what is there.
    pub(super) fn write(&self, dir: &Path) -> Result<(), RecordingError> {
        let folder = dir.join(&self.card.gpu).join(&self.card.driver);
        let unwritable = |error: serde_json::Error| RecordingError::Io {
            action: "write",
            path: folder.clone(),
            source: error.into(),
        };
        let card = CardFile {
            version: VERSION.into(),
            card: self.card.clone(),
        };
        let texts = Texts {
            card: pretty(&card).map_err(unwritable)?,
            report: pretty(&self.report).map_err(unwritable)?,
            choices: self.choices.to_text().map_err(unwritable)?,
        };
        folder::write(&folder, &texts)
    }

    /// The card's id.
    #[must_use]
    pub fn gpu(&self) -> &str {
        &self.card.gpu
    }

    /// The version of the kernel driver.
    #[must_use]
    pub fn driver(&self) -> &str {
        &self.card.driver
    }

    /// What the driver said of the card.
    #[must_use]
    pub const fn card(&self) -> &CardFacts {
        &self.card
    }

    /// The measurements.
    #[must_use]
    pub const fn report(&self) -> &Report {
        &self.report
    }

    /// Whether this run was measured.
    #[must_use]
    pub fn holds(&self, run: &RunIdentity) -> bool {
        self.choices.runs.contains_key(run)
    }

    /// The measured runs and what made them, sorted.
    pub fn runs(&self) -> impl Iterator<Item = &RunFacts> {
        self.choices.runs.values()
    }

    /// Every choice, sorted by module, key, checksum and run.
    #[must_use]
    pub fn entries(&self) -> &[Entry] {
        &self.choices.entries
    }

    /// The choices of one module, in the same order.
    #[must_use]
    pub fn of_module(&self, module: &str) -> &[Entry] {
        let entries = self.entries();
        let from = entries.partition_point(|entry| entry.module.as_str() < module);
        let to = entries.partition_point(|entry| entry.module.as_str() <= module);
        entries.get(from..to).unwrap_or_default()
    }

    /// A hash over its files; empty where it was not read from any.
    pub(super) fn digest(&self) -> &str {
        &self.digest
    }
}

/// Why a run must not become a recording.
pub(super) fn refusal(run: &Run, card: &CardFacts) -> Option<Refusal> {
    if run.mode != Mode::Measure {
        return Some(Refusal::Estimate);
    }
    if let Some(error) = &run.error {
        return Some(Refusal::Incomplete(error.code.clone()));
    }
    let Some(measurement) = &run.measurement else {
        return Some(Refusal::NoMeasurement);
    };
    if measurement.proof.computed != measurement.proof.expected {
        return Some(Refusal::NoProof);
    }
    if run.gpu.id != card.gpu {
        return Some(Refusal::OtherCard(run.gpu.id.clone()));
    }
    if measurement.limit.is_some() {
        return Some(Refusal::Limited);
    }
    (measurement.tuning == Tuning::Replayed).then_some(Refusal::Replayed)
}

/// Refuses another version before the rest is read, which may look different there.
fn version(text: &str, path: &Path, known: u32) -> Result<(), RecordingError> {
    let value: Value = read(text, path)?;
    match value.get("version").and_then(Value::as_u64) {
        Some(found) if found == u64::from(known) => Ok(()),
        Some(found) => Err(RecordingError::Version {
            path: path.to_owned(),
            line: 1,
            found,
            known,
        }),
        None => Err(damaged(path, 1, "there is no version")),
    }
}

fn read<T: DeserializeOwned>(text: &str, path: &Path) -> Result<T, RecordingError> {
    serde_json::from_str(text).map_err(|error| damaged(path, error.line(), error))
}

fn pretty(document: &impl Serialize) -> serde_json::Result<String> {
    Ok(serde_json::to_string_pretty(document)? + "\n")
}

impl Texts {
    /// A hash over the files.
    pub(super) fn digest(&self) -> String {
        let mut hash = Sha256::new();
        for text in [&self.card, &self.report, &self.choices] {
            hash.update(text);
            hash.update([0]);
        }
        hash.finalize().iter().map(|byte| format!("{byte:02x}")).collect()
    }
}
