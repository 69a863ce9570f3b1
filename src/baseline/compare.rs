//! Finds the baseline of each run of a report.

use std::collections::BTreeSet;

use super::{BaselineEntry, BaselineFile, BaselineKey};
use crate::bytes::Bytes;
use crate::report::change::metric_name;
use crate::report::upgrade::is_upgrade;
use crate::report::words::count;
use crate::report::{
    Baseline, BaselineFrom, EditedLimit, Mode, Report, Rule, Run, Skipped, SkippedCheck, Status, Verdict,
};

impl BaselineFile {
    /// Adds the baseline to each run of a report. Records each run that cannot be compared as skipped, with the reason.
    pub fn compare(&self, report: &mut Report, from: BaselineFrom) {
        let judged = match from {
            BaselineFrom::Lock => SkippedCheck::Growth,
            BaselineFrom::Base | BaselineFrom::Rebuilt => SkippedCheck::GrowthSinceBase,
        };
        for run in &mut report.runs {
            match self.entry_for(run, report.tool.fingerprint.raw()) {
                Ok(entry) => {
                    run.baseline = entry.map(|entry| Baseline {
                        from,
                        burn: entry.burn.clone(),
                        inputs: entry.inputs.clone(),
                        parameters: entry.parameters,
                        peaks: entry.peaks,
                        differs: differs(entry, run).into_iter().map(Into::into).collect(),
                    });
                }
                // Only `--require-baseline` makes this a failure (`missing`).
                Err(why) => report.skipped.push(Skipped {
                    check: judged,
                    model: Some(run.full_name().into()),
                    why: why.into(),
                }),
            }
        }
    }

    /// Returns a failure per run without a baseline. Skips runs that died or ran out of memory: other rules report
    /// them.
    #[must_use]
    pub fn missing(&self, report: &Report, file: &str) -> Vec<Verdict> {
        let without = report.runs.iter().filter(|run| run.baseline.is_none() && is_whole(run));
        without
            .map(|run| {
                let why = self
                    .entry_for(run, report.tool.fingerprint.raw())
                    .err()
                    .unwrap_or_else(|| format!("{file} has no entry for this run"));
                let message = format!("no baseline to compare with: {why}; {}", advice(run));
                failed(run, message, file)
            })
            .collect()
    }

    /// Returns the runs that have an entry in `before`, but that cannot be compared with this baseline.
    pub fn incomparable(&self, before: &Self, report: &Report) -> Vec<Skipped> {
        let known = report
            .runs
            .iter()
            .filter(|run| before.get(&BaselineKey::from_run(run)).is_some());
        let unjudged = known.filter_map(|run| {
            let why = self.entry_for(run, report.tool.fingerprint.raw()).err()?;
            Some(Skipped {
                check: SkippedCheck::Growth,
                model: Some(run.full_name().into()),
                why: why.into(),
            })
        });
        unjudged.collect()
    }

    /// Returns a failure per estimate that differs from its entry in any byte.
    ///
    /// If the report is `of_all` models, also returns a failure per entry whose model no longer exists.
    #[must_use]
    pub fn inexact(&self, report: &Report, file: &str, of_all: bool) -> Vec<Verdict> {
        let gone = self.gone(report).filter(|_| of_all).filter_map(|key| {
            let message =
                format!("{file} is out of date: the model no longer exists; to remove it, run `cargo vram bless`");
            Some(Verdict {
                package: key.package.clone(),
                model: key.model.clone(),
                gpu: key.gpu.clone(),
                mode: key.mode,
                // The model has no run. Any run will do, because the fields above replace what differs. A part of a check
                // without runs leaves this to the other parts.
                ..failed(report.runs.first()?, message, file)
            })
        });
        // Measurements vary from run to run, so only estimates can agree to the byte.
        let estimates = report
            .runs
            .iter()
            .filter(|run| run.mode == Mode::Estimate && is_whole(run));
        let stale = estimates.filter_map(|run| {
            let (accepted, now) = (
                self.get(&BaselineKey::from_run(run)),
                BaselineEntry::from_run(run, report.tool.fingerprint.raw()),
            );
            (accepted != Some(&now)).then(|| {
                let which =
                    accepted.map_or_else(|| "this run is not in it".to_owned(), |accepted| stale(accepted, &now));
                failed(run, format!("{file} is out of date: {which}; {}", advice(run)), file)
            })
        });
        stale.chain(gone).collect()
    }

    /// Returns the keys of estimates whose model is not expected: neither in the report of this check of all models, nor
    /// in that of another part of it.
    pub fn gone<'a>(&'a self, report: &'a Report) -> impl Iterator<Item = &'a BaselineKey> {
        let expected = report.expected_verdicts.iter();
        let expected: BTreeSet<_> = expected.map(|expected| (&expected.package, &expected.model)).collect();
        let keys = self.entries().map(|(key, _)| key);
        keys.filter(move |key| key.mode == Mode::Estimate && !expected.contains(&(&key.package, &key.model)))
    }

    /// Returns the entry that a run is compared with; `None` if the model is new.
    ///
    /// # Errors
    /// The reason why the run cannot be compared, such as an entry for another GPU only.
    pub fn entry_for(&self, run: &Run, fingerprint: &str) -> Result<Option<&BaselineEntry>, String> {
        // Inputs are not part of the key. If they changed, the comparison happens, and `differs` names them.
        // See docs/design/baseline.md.
        let key = BaselineKey::from_run(run);
        let Some(entry) = self.get(&key) else {
            let mut others = self
                .entries()
                .filter(|(other, _)| (&other.package, &other.model) == (&key.package, &key.model))
                .map(|(other, _)| match other.mode {
                    Mode::Estimate => format!("an estimate for {}", other.gpu),
                    Mode::Measure => format!("a measurement on {}", other.gpu),
                });
            return match others.next() {
                // Without any entry the model is new, and nothing was skipped.
                None => Ok(None),
                Some(first) => Err(others.fold(format!("the baseline has only {first}"), |text, other| {
                    format!("{text} and {other}")
                })),
            };
        };
        // Values of another estimator are not a regression of the model.
        if run.mode == Mode::Estimate && entry.rests_on != fingerprint {
            return Err("the estimator changed since the baseline was accepted; run `cargo vram bless`".to_owned());
        }
        Ok(Some(entry))
    }
}

/// Returns why an entry is out of date: the first value that differs, in bytes, or what else changed.
fn stale(accepted: &BaselineEntry, now: &BaselineEntry) -> String {
    let shown = |bytes: Option<Bytes>| bytes.map_or_else(|| "none".to_owned(), super::exact);
    match accepted.peaks.first_other(&now.peaks) {
        Some((pass, metric, before, after)) => {
            let figure = metric_name(pass, metric);
            format!("{figure} was {} and is now {}", shown(before), shown(after))
        }
        None => "the values are the same, but the estimator, Burn, the inputs or the parameters changed".to_owned(),
    }
}

/// Returns the edit of the version of Burn in an entry, if growth would only warn because of it: after an upgrade from the
/// version in the file, which is none from the version at the base.
pub(super) fn edited_burn(
    key: &BaselineKey,
    before: &BaselineEntry,
    own: &BaselineEntry,
    report: &Report,
    file: &str,
) -> Option<EditedLimit> {
    // Every run of the model has the same Burn, whatever its GPU is.
    let is_of = |run: &&Run| (&run.package, run.name()) == (&key.package, &key.model);
    let run = report.runs.iter().find(is_of)?;
    let is_upgraded = |entry: &BaselineEntry| is_upgrade(entry.burn.raw(), run.burn.raw());
    (is_upgraded(own) && !is_upgraded(before)).then(|| EditedLimit {
        limit: format!("baseline on {}, burn", key.gpu).into(),
        before: Some(before.burn.raw().into()),
        after: Some(own.burn.raw().into()),
        ..key.edit(None, [None, None], file, false)
    })
}

/// Returns the edits by hand between two baselines: removed entries, and changed entries whose values, or whose version of
/// Burn, are not those of the report.
#[must_use]
pub fn edits(before: &BaselineFile, own: &BaselineFile, report: &Report, file: &str) -> Vec<EditedLimit> {
    let edited_values = before.entries().filter_map(|(key, entry)| {
        let Some(own) = own.get(key) else {
            return Some(key.edit(None, [entry.peaks.warm.live, None], file, false));
        };
        let run = report.runs.iter().find(|run| BaselineKey::from_run(run) == *key)?;
        let other = entry.peaks.first_other(&own.peaks);
        // If the new values are those of the run, `bless` wrote them, and nobody edited them by hand.
        let (pass, metric, before, after) = other.filter(|_| own.peaks != run.peaks)?;
        Some(key.edit(Some((pass, metric)), [before, after], file, false))
    });
    let burns = before.entries().filter_map(|(key, entry)| {
        let own = own.get(key)?;
        edited_burn(key, entry, own, report, file)
    });
    edited_values.chain(burns).collect()
}

fn is_whole(run: &Run) -> bool {
    run.error.is_none() && run.oom.is_none()
}

fn advice(run: &Run) -> String {
    match run.mode {
        Mode::Estimate => format!(
            "to accept the current values, run `cargo vram bless -m {}`",
            run.full_name()
        ),
        Mode::Measure => format!(
            "to accept this measurement, run `cargo vram bless -m {} --report FILE`",
            run.full_name()
        ),
    }
}

fn failed(run: &Run, message: String, file: &str) -> Verdict {
    Verdict {
        file: Some(file.into()),
        ..run.verdict(Rule::Baseline, Status::Fail, message)
    }
}

/// Returns what else changed between the baseline and the run: the likely causes of changed values.
fn differs(entry: &BaselineEntry, run: &Run) -> Vec<String> {
    let mut differs = Vec::new();
    let shown = |value: Option<&u64>| value.map_or_else(|| "none".to_owned(), ToString::to_string);
    let names: std::collections::BTreeSet<_> = entry.inputs.keys().chain(run.inputs.keys()).collect();
    for name in names {
        let (before, after) = (entry.inputs.get(name), run.inputs.get(name));
        if before != after {
            differs.push(format!("{name} {} → {}", shown(before), shown(after)));
        }
    }
    if entry.burn != run.burn {
        differs.push(format!("burn {} → {}", entry.burn, run.burn));
    }
    // An estimate with another fingerprint is not compared at all, so it cannot differ here.
    if run.mode == Mode::Measure && entry.rests_on != run.gpu.driver {
        differs.push(format!("driver {} → {}", entry.rests_on, run.gpu.driver));
    }
    // Other kernels need other workspaces, so they are a likely cause of growth.
    if run.chose_kernels() {
        differs.push("kernels that autotune chose in this measurement".to_owned());
    }
    let parameters = run.parameters.as_ref().map(|parameters| parameters.count);
    if entry.parameters != parameters {
        let shown = |parameters: Option<u64>| parameters.map_or_else(|| "unknown".to_owned(), count);
        differs.push(format!(
            "parameters {} → {}",
            shown(entry.parameters),
            shown(parameters)
        ));
    }
    differs
}
