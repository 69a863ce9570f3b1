//! Makes a recording of a measurement.

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};

use super::card::CardFacts;
use super::choices::{Choices, Entry, RunFacts, damaged};
use super::error::{RecordingError, Refusal};
use super::folder;
use super::identity::RunIdentity;
use super::one::{Recording, refusal};
use super::tuned::{Tuned, read_folder};
use crate::report::{Mode, Report, Run, Status};

/// What was recorded.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Recorded {
    /// The folder of the card and driver.
    pub folder: PathBuf,
    /// Runs that were not there before.
    pub added: usize,
    /// Runs that were there and are measured anew.
    pub replaced: usize,
    /// Choices of these runs.
    pub choices: usize,
    /// Measurements that were not recorded, and why.
    pub refused: Vec<(RunIdentity, Refusal)>,
}

/// Records the measurements of a report in `dir`, beside those of other models and inputs on the same card and driver.
///
/// `choices` has the autotune folder of the cold pass of each run. Estimates in the report are left out, for a report may
/// hold both. So are measurements that are incomplete, prove no GPU, are of another card, were made on a card made smaller
/// or replay older choices; those are told.
///
/// # Errors
/// Where no run can be recorded; where files cannot be read or written; where what is there already is damaged. Nothing is
/// written then.
pub fn record(
    dir: &Path,
    report: &Report,
    choices: &[(RunIdentity, PathBuf)],
    card: &CardFacts,
) -> Result<Recorded, RecordingError> {
    let target = dir.join(&card.gpu).join(&card.driver);
    if !folder::is_gpu(&card.gpu) || !folder::is_driver(&card.driver) {
        let what = format!("`{}` and `{}` are no card and driver", card.gpu, card.driver);
        return Err(folder::misnamed(target, what));
    }
    let (report, refused) = measured(report, card)?;
    let new: BTreeSet<_> = report.runs.iter().map(RunIdentity::of).collect();
    let choices = read_choices(&report, choices)?;
    let count = choices.entries.len();
    let mut recording = Recording::new(card.clone(), report, choices)?;
    let mut replaced = 0;
    if target.exists() {
        let before = Recording::parse(&folder::read(&target)?, &target, &card.gpu, &card.driver)?;
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

/// The report without what belongs to one invocation only (verdicts, and models that were not run) and without the runs
/// that are not recorded.
fn measured(report: &Report, card: &CardFacts) -> Result<(Report, Vec<(RunIdentity, Refusal)>), RecordingError> {
    let mut runs: Vec<Run> = Vec::new();
    let mut refused = Vec::new();
    let is_measured = |run: &&Run| run.mode == Mode::Measure;
    for run in report.runs.iter().filter(is_measured) {
        let identity = RunIdentity::of(run);
        let twice = runs.iter().any(|other| RunIdentity::of(other) == identity);
        match refusal(run, card).or(twice.then_some(Refusal::Twice)) {
            Some(why) => refused.push((identity, why)),
            None => runs.push(run.clone()),
        }
    }
    if runs.is_empty() {
        let estimate = report.runs.first().map(|run| (RunIdentity::of(run), Refusal::Estimate));
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
        expected,
        partition: None,
        status: Status::Pass,
        verdicts: Vec::new(),
        skipped: Vec::new(),
        base: None,
        problems: Vec::new(),
        ..report.clone()
    };
    Ok((report, refused))
}

fn read_choices(report: &Report, folders: &[(RunIdentity, PathBuf)]) -> Result<Choices, RecordingError> {
    let mut choices = Choices::default();
    for run in &report.runs {
        let identity = RunIdentity::of(run);
        let Some((_, folder)) = folders.iter().find(|(of, _)| *of == identity) else {
            return Err(Refusal::NoChoices.of(identity));
        };
        let tuned = read_tuned(folder)?;
        let facts = RunFacts {
            run: identity.clone(),
            burn: run.burn.clone(),
            tool: report.tool.version.clone(),
            fingerprint: report.tool.fingerprint.clone(),
            commit: report.commit.clone(),
            dirty: report.dirty,
            keys: tuned.len(),
        };
        let entries = tuned.into_iter();
        choices
            .entries
            .extend(entries.map(|(module, tuned)| Entry::new(module, identity.clone(), tuned)));
        choices.runs.insert(identity, facts);
    }
    let mut sorted = Choices::default();
    sorted.merge(choices);
    Ok(sorted)
}

/// The keys of a folder by module, each once: with several devices the first one's, as Burn itself takes the last line.
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
                // Cut short: the key was being tuned when the process ran out of memory.
                None if !line.ends_with('\n') => {}
                _ => {
                    let what = "this is not what Burn's autotune writes: its format is not known";
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
