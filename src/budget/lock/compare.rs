//! Finds what each run of a report is compared with.

use super::{Entry, Key, Lock};
use crate::report::words::count;
use crate::report::{Baseline, BaselineFrom, Mode, Report, Rule, Run, Skipped, Status, Verdict};

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

    /// A failure for each estimate that is not what was accepted, to the byte; and, where the report is of all that there is,
    /// for each that was accepted of a model that is no more.
    #[must_use]
    pub fn inexact(&self, report: &Report, file: &str, of_all: bool) -> Vec<Verdict> {
        let is_gone = |key: &Key| {
            let mut own = report.runs.iter().filter(|run| run.mode == key.mode);
            key.mode == Mode::Estimate && own.all(|run| (&run.package, run.name()) != (&key.package, &key.model))
        };
        let keys = self.entries().map(|(key, _)| key);
        let gone = keys
            .filter(|key| of_all && is_gone(key))
            .zip(report.runs.first().into_iter().cycle())
            .map(|(key, run)| Verdict {
                package: key.package.clone(),
                model: key.model.clone(),
                gpu: key.gpu.clone(),
                mode: key.mode,
                ..failed(
                    run,
                    format!("{file} is out of date; there is no such model, and `cargo vram bless` leaves it out"),
                    file,
                )
            });
        let estimates = report
            .runs
            .iter()
            .filter(|run| run.mode == Mode::Estimate && is_whole(run));
        estimates
            .filter(|run| self.get(&Key::of(run)) != Some(&Entry::of(run, &report.tool.fingerprint)))
            .map(|run| failed(run, format!("{file} is out of date; {}", advice(run)), file))
            .chain(gone)
            .collect()
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
        ..Verdict::of(run, Rule::Growth, Status::Fail, message)
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
