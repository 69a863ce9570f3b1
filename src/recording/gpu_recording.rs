//! The recording of one GPU and driver.

use std::collections::BTreeSet;
use std::path::Path;

use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};
use serde_json::Value;
use sha2::{Digest, Sha256};

use super::choices::{ChoiceEntry, Choices, RunFacts, VERSION, damaged};
use super::error::{RecordingError, RecordingRefusal};
use super::folder::{self, CHOICES, GPU, REPORT, Texts};
use super::gpu_facts::GpuFacts;
use super::identity::RunIdentity;
use crate::report::{Mode, REPORT_VERSION, Report, Run, Tuning};

/// The measurements of one GPU with one driver.
#[derive(Debug, Clone, PartialEq)]
pub struct Recording {
    gpu: GpuFacts,
    report: Report,
    choices: Choices,
    digest: String,
}

/// The content of `gpu.json`.
#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct GpuFile {
    version: u64,
    gpu: GpuFacts,
}

impl Recording {
    /// Creates a recording after it has checked that each run may be part of one.
    pub(super) fn new(gpu: GpuFacts, mut report: Report, mut choices: Choices) -> Result<Self, RecordingError> {
        report.runs.sort_by_cached_key(RunIdentity::from_run);
        let mut seen = BTreeSet::new();
        for run in &report.runs {
            let identity = RunIdentity::from_run(run);
            if let Some(refusal) = refusal(run, &gpu) {
                return Err(refusal.of(identity));
            }
            if !choices.runs.contains_key(&identity) {
                return Err(RecordingRefusal::NoChoices.of(identity));
            }
            if !seen.insert(identity.clone()) {
                return Err(RecordingRefusal::Twice.of(identity));
            }
        }
        // Every recorded run needs measured values that an estimate can be compared with.
        choices.keep(&seen);
        Ok(Self {
            gpu,
            report,
            choices,
            digest: String::new(),
        })
    }

    /// Parses a recording. Errors name `folder`. `gpu` and `driver` are the names of the recording's two folders.
    pub(super) fn parse(texts: &Texts, folder: &Path, gpu: &str, driver: &str) -> Result<Self, RecordingError> {
        let path = folder.join(GPU);
        version(&texts.gpu, &path, VERSION)?;
        let GpuFile { gpu: facts, .. } = read(&texts.gpu, &path)?;
        // A recording that was copied into another folder must not pass for one of that GPU or driver.
        if (facts.gpu.as_str(), facts.driver.as_str()) != (gpu, driver) {
            let what = format!(
                "this file is for GPU `{}` and driver {}, but its folders are {gpu}/{driver}",
                facts.gpu, facts.driver
            );
            return Err(damaged(&path, 1, what));
        }
        let path = folder.join(REPORT);
        version(&texts.report, &path, REPORT_VERSION)?;
        let report = read(&texts.report, &path)?;
        let choices = Choices::parse(&texts.choices, &folder.join(CHOICES))?;
        let mut recording = Self::new(facts, report, choices)?;
        recording.digest = texts.digest();
        Ok(recording)
    }

    /// Adds the runs of `newer`. Takes runs that both have from `newer`.
    pub(super) fn merge(self, newer: Self) -> Result<Self, RecordingError> {
        let mut choices = self.choices;
        choices.merge(newer.choices);
        // The newer report's tool and commit describe this file from now on. Older runs keep theirs in
        // `RunFacts`.
        let mut report = newer.report;
        let replaced: BTreeSet<_> = report.runs.iter().map(RunIdentity::from_run).collect();
        let kept = self.report.runs.into_iter();
        report
            .runs
            .extend(kept.filter(|run| !replaced.contains(&RunIdentity::from_run(run))));
        report.expected.extend(self.report.expected);
        report.expected.sort();
        report.expected.dedup();
        Self::new(newer.gpu, report, choices)
    }

    /// Writes the recording into its folder in `dir`, and overwrites existing files.
    pub(super) fn write(&self, dir: &Path) -> Result<(), RecordingError> {
        let folder = dir.join(&self.gpu.gpu).join(&self.gpu.driver);
        let unwritable = |error: serde_json::Error| RecordingError::Io {
            action: "write",
            path: folder.clone(),
            source: error.into(),
        };
        let gpu = GpuFile {
            version: VERSION.into(),
            gpu: self.gpu.clone(),
        };
        let texts = Texts {
            gpu: pretty(&gpu).map_err(unwritable)?,
            report: pretty(&self.report).map_err(unwritable)?,
            choices: self.choices.to_text().map_err(unwritable)?,
        };
        folder::write(&folder, &texts)
    }

    /// Returns the GPU's id.
    #[must_use]
    pub fn gpu(&self) -> &str {
        &self.gpu.gpu
    }

    /// Returns the version of the kernel driver.
    #[must_use]
    pub fn driver(&self) -> &str {
        &self.gpu.driver
    }

    /// Returns the facts about the GPU.
    #[must_use]
    pub const fn gpu_facts(&self) -> &GpuFacts {
        &self.gpu
    }

    /// Returns the report of the measurements.
    #[must_use]
    pub const fn report(&self) -> &Report {
        &self.report
    }

    /// Whether the recording contains this run.
    #[must_use]
    pub fn holds(&self, run: &RunIdentity) -> bool {
        self.choices.runs.contains_key(run)
    }

    /// Iterates over the measured runs and the versions that produced them, sorted.
    pub fn runs(&self) -> impl Iterator<Item = &RunFacts> {
        self.choices.runs.values()
    }

    /// Returns all choices, sorted by module, key, checksum and run.
    #[must_use]
    pub fn entries(&self) -> &[ChoiceEntry] {
        &self.choices.entries
    }

    /// Returns the choices of one module, in the same order.
    #[must_use]
    pub fn of_module(&self, module: &str) -> &[ChoiceEntry] {
        let entries = self.entries();
        let from = entries.partition_point(|entry| entry.module.as_str() < module);
        let to = entries.partition_point(|entry| entry.module.as_str() <= module);
        entries.get(from..to).unwrap_or_default()
    }

    /// Returns a hash over the files, or an empty text if the recording was not read from files.
    pub(super) fn digest(&self) -> &str {
        &self.digest
    }
}

/// Returns why a run must not be part of a recording, or `None` if it may.
pub(super) fn refusal(run: &Run, gpu: &GpuFacts) -> Option<RecordingRefusal> {
    // An out of memory is not refused: an estimate must run out of memory, too (`agreement`).
    if run.mode != Mode::Measure {
        return Some(RecordingRefusal::Estimate);
    }
    if let Some(error) = &run.error {
        return Some(RecordingRefusal::Incomplete(error.code.clone()));
    }
    let Some(measurement) = &run.measurement else {
        return Some(RecordingRefusal::NoMeasurement);
    };
    // Only something that runs kernels gets this right, unlike our own posing driver.
    // See docs/design/real-gpus.md.
    if measurement.proof.computed != measurement.proof.expected {
        return Some(RecordingRefusal::NoProof);
    }
    if run.gpu.id != gpu.gpu {
        return Some(RecordingRefusal::OtherGpu(run.gpu.id.to_string()));
    }
    // Burn sizes its pages by the GPU's total, which a limit changes.
    if measurement.limit.is_some() {
        return Some(RecordingRefusal::Limited);
    }
    // The keys of other sizes would be missing, and a later run would take the recording for complete.
    if run.varying.is_some() {
        return Some(RecordingRefusal::SizesVary);
    }
    // A replayed choice would be recorded as if autotune had made it on this GPU.
    // See docs/design/autotune-plan.md.
    (measurement.tuning == Tuning::Replayed).then_some(RecordingRefusal::Replayed)
}

/// Checks the format version first, because another version may have another structure.
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
        None => Err(damaged(path, 1, "`version` is missing or not a number")),
    }
}

fn read<T: DeserializeOwned>(text: &str, path: &Path) -> Result<T, RecordingError> {
    serde_json::from_str(text).map_err(|error| damaged(path, error.line(), error))
}

fn pretty(document: &impl Serialize) -> serde_json::Result<String> {
    Ok(serde_json::to_string_pretty(document)? + "\n")
}

impl Texts {
    /// Computes a hash over the texts.
    pub(super) fn digest(&self) -> String {
        let mut hash = Sha256::new();
        for text in [&self.gpu, &self.report, &self.choices] {
            hash.update(text);
            // Bytes that move from the end of one file to the start of the next must change the hash.
            hash.update([0]);
        }
        hash.finalize().iter().map(|byte| format!("{byte:02x}")).collect()
    }
}
