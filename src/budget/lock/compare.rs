//! Finds what each run of a report is compared with.

use super::{Entry, Key, Lock};
use crate::bytes::Bytes;
use crate::report::change::metric_name;
use crate::report::words::count;
use crate::report::{Baseline, BaselineFrom, EditedLimit, Mode, Report, Rule, Run, Skipped, Status, Verdict};

impl Lock {
    /// Gives every run its baseline, and tells which are not compared, and why.
    pub fn compare(&self, report: &mut Report, from: BaselineFrom) {
        let judged = match from {
            BaselineFrom::Lock => "growth",
            BaselineFrom::Base | BaselineFrom::Rebuilt => "the change since the base",
        };
        for run in &mut report.runs {
            match self.of(run, &report.tool.fingerprint) {
                Ok(entry) => {
                    run.baseline = entry.map(|entry| Baseline {
                        from,
                        burn: entry.burn.clone(),
                        inputs: entry.inputs.clone(),
                        parameters: entry.parameters,
                        peaks: entry.peaks,
                        differs: differs(entry, run),
                    });
                }
                Err(why) => report.skipped.push(Skipped {
                    what: format!("{judged} of {}", run.full_name()),
                    why,
                }),
            }
        }
    }

    /// A failure for each run that is compared with nothing. Runs without figures fail by other rules.
    #[must_use]
    pub fn missing(&self, report: &Report, file: &str) -> Vec<Verdict> {
        let without = report.runs.iter().filter(|run| run.baseline.is_none() && is_whole(run));
        without
            .map(|run| {
                let why = self
                    .of(run, &report.tool.fingerprint)
                    .err()
                    .unwrap_or_else(|| format!("there is none in {file}"));
                let message = format!("no baseline to compare with: {why}; {}", advice(run));
                failed(run, message, file)
            })
            .collect()
    }

    /// Runs whose growth this baseline cannot judge, though another revision's has an entry for them.
    pub fn incomparable(&self, before: &Self, report: &Report) -> Vec<Skipped> {
        let known = report.runs.iter().filter(|run| before.get(&Key::of(run)).is_some());
        let unjudged = known.filter_map(|run| {
            let why = self.of(run, &report.tool.fingerprint).err()?;
            Some(Skipped {
                what: format!("growth of {}", run.full_name()),
                why,
            })
        });
        unjudged.collect()
    }

    /// A failure for each estimate that is not what was accepted, to the byte; and, where the report is of all that there is,
    /// for each that was accepted of a model that is no more.
    #[must_use]
    pub fn inexact(&self, report: &Report, file: &str, of_all: bool) -> Vec<Verdict> {
        let gone = self.gone(report).filter(|_| of_all).filter_map(|key| {
            let message =
                format!("{file} is out of date; there is no such model, and `cargo vram bless` leaves it out");
            Some(Verdict {
                package: key.package.clone(),
                model: key.model.clone(),
                gpu: key.gpu.clone(),
                mode: key.mode,
                ..failed(report.runs.first()?, message, file)
            })
        });
        let estimates = report
            .runs
            .iter()
            .filter(|run| run.mode == Mode::Estimate && is_whole(run));
        let stale = estimates.filter_map(|run| {
            let (accepted, now) = (self.get(&Key::of(run)), Entry::of(run, &report.tool.fingerprint));
            (accepted != Some(&now)).then(|| {
                let which = accepted.map_or_else(|| "it has none of this".to_owned(), |accepted| stale(accepted, &now));
                failed(run, format!("{file} is out of date: {which}; {}", advice(run)), file)
            })
        });
        stale.chain(gone).collect()
    }

    /// What was accepted of models that are not among the estimates of a report of all that there is.
    pub fn gone<'a>(&'a self, report: &'a Report) -> impl Iterator<Item = &'a Key> {
        let is_gone = |key: &Key| {
            let mut own = report.runs.iter().filter(|run| run.mode == key.mode);
            key.mode == Mode::Estimate && own.all(|run| (&run.package, run.name()) != (&key.package, &key.model))
        };
        self.entries().map(|(key, _)| key).filter(move |key| is_gone(key))
    }

    /// The entry that a run is compared with; absent where the model is new, an error where there is one of another kind.
    fn of(&self, run: &Run, fingerprint: &str) -> Result<Option<&Entry>, String> {
        let key = Key::of(run);
        let Some(entry) = self.get(&key) else {
            let mut others = self
                .entries()
                .filter(|(other, _)| (&other.package, &other.model) == (&key.package, &key.model))
                .map(|(other, _)| match other.mode {
                    Mode::Estimate => format!("an estimate for {}", other.gpu),
                    Mode::Measure => format!("a measurement on {}", other.gpu),
                });
            return match others.next() {
                None => Ok(None),
                Some(first) => Err(others.fold(format!("its baseline is {first}"), |text, other| {
                    format!("{text} and {other}")
                })),
            };
        };
        if run.mode == Mode::Estimate && entry.rests_on != fingerprint {
            return Err("the estimator changed since it was accepted: `cargo vram bless` again".to_owned());
        }
        Ok(Some(entry))
    }
}

/// The first figure that is another now, to the byte.
fn stale(accepted: &Entry, now: &Entry) -> String {
    let shown = |bytes: Option<Bytes>| bytes.map_or_else(|| "none".to_owned(), exact);
    match accepted.peaks.first_other(&now.peaks) {
        Some((pass, metric, before, after)) => {
            let figure = metric_name(pass, metric);
            format!("{figure} was {} and is {}", shown(before), shown(after))
        }
        None => "the figures are the same, of another estimator, Burn or inputs".to_owned(),
    }
}

/// What a change edits of the baseline by hand: entries that it takes out, and figures that are neither what they were nor
/// what the models need now.
#[must_use]
pub fn edits(before: &Lock, own: &Lock, report: &Report, file: &str) -> Vec<EditedLimit> {
    let edit = |key: &Key, limit: String, before: Option<Bytes>, after: Option<Bytes>| EditedLimit {
        model: Some(key.model.clone()),
        limit,
        before: before.map(exact),
        after: after.map(exact),
        file: file.to_owned(),
        line: None,
        loosens: false,
    };
    let edited = before.entries().filter_map(|(key, entry)| {
        let Some(own) = own.get(key) else {
            return Some(edit(
                key,
                format!("baseline on {}", key.gpu),
                entry.peaks.warm.live,
                None,
            ));
        };
        let run = report.runs.iter().find(|run| Key::of(run) == *key)?;
        let other = entry.peaks.first_other(&own.peaks);
        let (pass, metric, before, after) = other.filter(|_| own.peaks != run.peaks)?;
        let limit = format!("baseline on {}, {}", key.gpu, metric_name(pass, metric));
        Some(edit(key, limit, before, after))
    });
    edited.collect()
}

fn exact(bytes: Bytes) -> String {
    format!("{} B", count(bytes.0))
}

fn is_whole(run: &Run) -> bool {
    run.error.is_none() && run.oom.is_none()
}

fn advice(run: &Run) -> String {
    match run.mode {
        Mode::Estimate => format!("`cargo vram bless -m {}` accepts what it needs now", run.full_name()),
        Mode::Measure => format!(
            "`cargo vram bless -m {} --report FILE` accepts this report of it",
            run.full_name()
        ),
    }
}

fn failed(run: &Run, message: String, file: &str) -> Verdict {
    Verdict {
        file: Some(file.to_owned()),
        ..Verdict::of(run, Rule::Baseline, Status::Fail, message)
    }
}

/// What else changed, which is the likely cause where figures did.
fn differs(entry: &Entry, run: &Run) -> Vec<String> {
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
    if run.mode == Mode::Measure && entry.rests_on != run.gpu.driver {
        differs.push(format!("driver {} → {}", entry.rests_on, run.gpu.driver));
    }
    if run.chose_kernels() {
        differs.push("kernels that this measurement chose itself".to_owned());
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
