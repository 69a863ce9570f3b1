//! Records a measurement.

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};

use super::choices::{ChoiceEntry, Choices, RunFacts, damaged};
use super::error::{RecordingError, RecordingRefusal};
use super::folder;
use super::gpu_facts::GpuFacts;
use super::gpu_recording::{Recording, refusal};
use super::identity::RunIdentity;
use super::tuned::{Tuned, read_folder};
use crate::report::{Mode, Report, Run, Status};
use crate::untrusted::Foreign;

/// The summary of what [`record`] wrote.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Recorded {
    /// The folder of the GPU and driver.
    pub folder: PathBuf,
    /// The number of new runs.
    pub added: usize,
    /// The number of runs that replaced an older measurement.
    pub replaced: usize,
    /// The number of choices of these runs.
    pub choices: usize,
    /// The measurements that were not recorded, with the reason.
    pub refused: Vec<(RunIdentity, RecordingRefusal)>,
}

/// Records the measurements of a report in `dir`, and keeps those of other models and inputs on the same GPU and
/// driver.
///
/// `choices` contains the autotune folder of each run's cold pass. Ignores estimates, because a report may contain
/// both. Lists the following measurements in [`Recorded::refused`]: incomplete runs, runs without proof of a GPU, runs
/// on another GPU, runs with limited memory, runs that replayed older choices,
/// runs whose sizes vary, and repeated runs.
///
/// # Errors
/// If no run can be recorded, if the existing recording is damaged, or if files cannot be read or written. Nothing is
/// written in the first two cases.
pub fn record(
    dir: &Path,
    report: &Report,
    choices: &[(RunIdentity, PathBuf)],
    gpu: &GpuFacts,
) -> Result<Recorded, RecordingError> {
    let target = dir.join(&gpu.gpu).join(&gpu.driver);
    // Both become names of folders. Loading refuses others, so refuse them before anything is written.
    if !folder::is_gpu(&gpu.gpu) || !folder::is_driver(&gpu.driver) {
        let what = format!(
            "`{}` is not a valid GPU id or `{}` is not a valid driver version",
            gpu.gpu, gpu.driver
        );
        return Err(folder::misnamed(target, what));
    }
    let (report, refused) = measured(report, gpu)?;
    let new: BTreeSet<_> = report.runs.iter().map(RunIdentity::from_run).collect();
    let choices = read_choices(&report, choices)?;
    let count = choices.entries.len();
    let mut recording = Recording::new(gpu.clone(), report, choices)?;
    let mut replaced = 0;
    if target.exists() {
        // Read before writing, so that a damaged recording is never overwritten.
        let before = Recording::parse(&folder::read(&target)?, &target, &gpu.gpu, &gpu.driver)?;
        replaced = new.iter().filter(|run| before.holds(run)).count();
        recording = before.merge(recording)?;
    }
    recording.write(dir)?;
    Ok(Recorded {
        folder: target,
        added: new.len() - replaced,
        replaced,
        choices: count,
        refused,
    })
}

/// Reduces a report to the runs that can be recorded. Returns the refused runs, too.
///
/// Removes everything that belongs to one invocation only: verdicts, and models that were not run.
fn measured(report: &Report, gpu: &GpuFacts) -> Result<(Report, Vec<(RunIdentity, RecordingRefusal)>), RecordingError> {
    let mut runs: Vec<Run> = Vec::new();
    let mut refused = Vec::new();
    let is_measured = |run: &&Run| run.mode == Mode::Measure;
    for run in report.runs.iter().filter(is_measured) {
        let identity = RunIdentity::from_run(run);
        let twice = runs.iter().any(|other| RunIdentity::from_run(other) == identity);
        match refusal(run, gpu).or(twice.then_some(RecordingRefusal::Twice)) {
            Some(why) => refused.push((identity, why)),
            None => runs.push(run.clone()),
        }
    }
    if runs.is_empty() {
        // An estimate beside measurements is normal. Alone, it is why there is nothing to record.
        let estimate = report
            .runs
            .first()
            .map(|run| (RunIdentity::from_run(run), RecordingRefusal::Estimate));
        let (run, why) = refused.into_iter().next().or(estimate).ok_or(RecordingError::Nothing)?;
        return Err(why.of(run));
    }
    let mut expected: Vec<_> = runs
        .iter()
        .map(|run| format!("{}/{}", run.package, run.model))
        .collect();
    expected.sort();
    expected.dedup();
    let report = Report {
        runs,
        expected: expected.into_iter().map(Into::into).collect(),
        partition: None,
        status: Status::Pass,
        verdicts: Vec::new(),
        skipped: Vec::new(),
        base: None,
        problems: Vec::new(),
        growth: Vec::new(),
        ..report.clone()
    };
    Ok((report, refused))
}

fn read_choices(report: &Report, folders: &[(RunIdentity, PathBuf)]) -> Result<Choices, RecordingError> {
    let mut choices = Choices::default();
    for run in &report.runs {
        let identity = RunIdentity::from_run(run);
        let Some((_, folder)) = folders.iter().find(|(of, _)| *of == identity) else {
            return Err(RecordingRefusal::NoChoices.of(identity));
        };
        let tuned = read_tuned(folder)?;
        let facts = RunFacts {
            run: identity.clone(),
            burn: run.burn.raw().to_owned(),
            tool: report.tool.version.raw().to_owned(),
            fingerprint: report.tool.fingerprint.raw().to_owned(),
            commit: report.commit.clone().map(Foreign::into_raw),
            dirty: report.dirty,
            keys: tuned.len(),
        };
        let entries = tuned.into_iter();
        choices
            .entries
            .extend(entries.map(|(module, tuned)| ChoiceEntry::new(module, identity.clone(), tuned)));
        choices.runs.insert(identity, facts);
    }
    let mut sorted = Choices::default();
    sorted.merge(choices);
    Ok(sorted)
}

/// Reads the keys of an autotune folder by module, each key once.
///
/// If several devices have a key, takes that of the first device. Within a file, takes the last line, as Burn does.
fn read_tuned(folder: &Path) -> Result<Vec<(String, Tuned)>, RecordingError> {
    let files = read_folder(folder).map_err(|source| folder::io_error("read", folder, source))?;
    let mut by_key: BTreeMap<(String, String, String), Tuned> = BTreeMap::new();
    for file in files {
        let mut of_file = BTreeMap::new();
        for (at, line) in file.text.split_inclusive('\n').enumerate() {
            match Tuned::parse(line) {
                Some(tuned) if tuned.name_of(tuned.fastest).is_some() => {
                    let key = (
                        file.module.clone(),
                        super::canonical(&tuned.key),
                        tuned.checksum.clone(),
                    );
                    of_file.insert(key, tuned);
                }
                // An incomplete line: Burn was tuning this key when the process ran out of memory.
                None if !line.ends_with('\n') => {}
                // This includes a line without outcomes: a plan made it, so nothing was measured for it.
                _ => {
                    let what = "unknown format: this line is not an entry of Burn's autotune";
                    return Err(damaged(&folder.join(&file.path), at + 1, what));
                }
            }
        }
        for (key, tuned) in of_file {
            by_key.entry(key).or_insert(tuned);
        }
    }
    Ok(by_key
        .into_iter()
        .map(|((module, ..), tuned)| (module, tuned))
        .collect())
}
