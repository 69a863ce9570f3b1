//! Holds budgets against runs.

#[cfg(unix)]
mod build;
mod drift;
mod growth;
mod words;

#[cfg(unix)]
pub use build::judge_build;

use super::source::{Position, Span, Spanned};
use super::types::{Budgets, CardLimits, Limit, Limits, ModelBudget};
use crate::bytes::Bytes;
use crate::report::words::{of_card, pass_name};
use crate::report::{ENOUGH_STEPS, Metric, Oom, Pass, Peak, Peaks, Rule, Run, Skipped, Status, Trend, Verdict};
use words::{advice, ended_early, place, qualifier};

/// What the budgets say about each run: one verdict a limit, one an out of memory, one a run without limits; and of a
/// measurement, how far its estimate is from it; and of a run with a baseline, how far it is from that.
///
/// `file` is the budget file, relative to the workspace root. Over means more than the limit.
///
/// A run that died proves by its figures that a limit was exceeded, and never that one was kept: such a verdict is
/// [`Status::Error`]. Of the pass that ran out of memory there is that verdict alone, next to limits it had exceeded.
///
/// A measurement is judged by the limits of its card, as an estimate is. An estimated process figure that rests on what
/// nobody has measured or stated never fails: it warns.
#[must_use]
pub fn judge(runs: &[Run], budgets: &Budgets, file: &str) -> Vec<Verdict> {
    judge_since(runs, budgets, file, None)
}

/// [`judge`] of runs whose baselines may be of a revision that was built and run: messages then name that revision.
#[must_use]
pub fn judge_since(runs: &[Run], budgets: &Budgets, file: &str, revision: Option<&str>) -> Vec<Verdict> {
    runs.iter()
        .flat_map(|run| {
            let judge = Judge {
                run,
                budgets,
                file,
                revision,
            };
            let mut verdicts = judge.verdicts();
            verdicts.extend(judge.growth());
            verdicts.extend(judge.drift(runs));
            verdicts
        })
        .collect()
}

/// What the runs were too short for, where any was: leaks show after [`ENOUGH_STEPS`] alone.
#[must_use]
pub fn unjudged(runs: &[Run]) -> Option<Skipped> {
    let ended = |run: &&Run| run.error.is_none() && run.oom.is_none();
    let short = |run: &Run| matches!(run.trend(), Trend::Unknown { .. });
    runs.iter().filter(ended).any(short).then(|| Skipped {
        what: "leaks".to_owned(),
        why: format!("needs {ENOUGH_STEPS} steps"),
    })
}

struct Judge<'a> {
    run: &'a Run,
    budgets: &'a Budgets,
    file: &'a str,
    /// The revision whose models were built and run to be compared with.
    revision: Option<&'a str>,
}

impl Judge<'_> {
    fn verdicts(&self) -> Vec<Verdict> {
        let mut verdicts: Vec<Verdict> = self.run.oom.iter().map(|oom| self.out_of_memory(oom)).collect();
        verdicts.extend(self.leak());
        match self.budget() {
            Some(budget) => self.limits(budget, &mut verdicts),
            None => verdicts.push(Verdict {
                file: Some(self.file.to_owned()),
                ..self.verdict(Rule::Budget, Status::Warn, format!("`{}` has no budget", self.name()))
            }),
        }
        verdicts
    }

    /// Live memory that grows with each step fails whatever the budget says.
    fn leak(&self) -> Option<Verdict> {
        let Trend::Growing(growing) = self.run.trend() else {
            return None;
        };
        let last = growing.steps.last().copied()?;
        let mut message = growing.summary(&of_card(growing.card), |bytes| bytes.to_string());
        // An explanation is of one card.
        if growing.card.is_none() {
            let (name, package, all) = (self.name(), &self.run.package, growing.steps.len());
            message += &format!(": `cargo vram explain {name} -p {package} --leak --steps {all}` names the tensors");
        }
        Some(Verdict {
            card: growing.card,
            pass: Some(Pass::Traced),
            metric: Some(Metric::Live),
            actual: Some(last),
            ..self.verdict(Rule::Leak, Status::Fail, message)
        })
    }

    fn budget(&self) -> Option<&ModelBudget> {
        let run = self.run;
        self.budgets
            .for_model(&run.package, &run.model)
            .into_iter()
            .find(|budget| budget.name.value == self.name())
    }

    /// The name of the run's budget.
    fn name(&self) -> &str {
        self.run.name()
    }

    fn limits(&self, budget: &ModelBudget, verdicts: &mut Vec<Verdict>) {
        let gpu = &self.run.gpu.id;
        let declared = self.budgets.gpu.as_ref().map(|gpu| gpu.value.as_str());
        verdicts.extend(budget.cards.iter().flat_map(|(card, limits)| self.card(*card, limits)));
        let Some(limits) = budget.limits_on(gpu, declared) else {
            if !budget.cards.is_empty() {
                verdicts.extend(self.unjudged_cards(budget));
                return;
            }
            let message = format!("`{}` has no limits for `{gpu}`: unjudged", self.name());
            verdicts.push(self.written_at(budget.name.span, self.verdict(Rule::Budget, Status::Warn, message)));
            return;
        };
        verdicts.extend(self.figures(None, limits, &self.run.peaks));
    }

    /// One of several cards.
    fn card(&self, card: u32, limits: &Spanned<CardLimits>) -> Vec<Verdict> {
        if let Some(on) = self.run.cards.iter().find(|on| on.card == card) {
            return self.figures(Some(card), &limits.value, &on.peaks);
        }
        // Where there is one card, it is the first.
        if card == 0 && self.run.cards.is_empty() {
            return self.figures(None, &limits.value, &self.run.peaks);
        }
        let message = match self.unfinished() {
            Some(why) => format!("card {card} cannot be judged: {why}"),
            None => format!(
                "there is no card {card}: the model is over {}",
                match self.run.cards.len() {
                    0 | 1 => "one, which is card 0".to_owned(),
                    several => format!("{several}, numbered from 0"),
                }
            ),
        };
        let verdict = Verdict {
            card: Some(card),
            ..self.verdict(Rule::Budget, Status::Error, message)
        };
        vec![self.written_at(limits.span, verdict)]
    }

    /// A warning for each of several cards that nothing is said of.
    fn unjudged_cards(&self, budget: &ModelBudget) -> Vec<Verdict> {
        let is_judged = |card: &u32| budget.cards.get(card).is_some_and(|limits| !limits.value.is_empty());
        let numbers: Vec<u32> = match self.run.cards.as_slice() {
            [] => vec![0],
            cards => cards.iter().map(|on| on.card).collect(),
        };
        let warn = |card: u32| {
            let message = format!("card {card} of `{}` has no limits: unjudged", self.name());
            let verdict = Verdict {
                card: Some(card),
                ..self.verdict(Rule::Budget, Status::Warn, message)
            };
            self.written_at(budget.name.span, verdict)
        };
        numbers.into_iter().filter(|card| !is_judged(card)).map(warn).collect()
    }

    /// What limits say of a card; of the one that holds the most, where none is named.
    fn figures(&self, card: Option<u32>, limits: &CardLimits, peaks: &Peaks) -> Vec<Verdict> {
        let passes = [
            (Pass::Warm, &limits.warm, &peaks.warm),
            (Pass::Cold, &limits.cold, &peaks.cold),
        ];
        let verdicts = passes.into_iter().flat_map(|(pass, limits, peak)| {
            let metrics = Metric::ALL.into_iter();
            metrics.filter_map(move |metric| self.limit(card, (pass, metric), limits, peak))
        });
        verdicts.collect()
    }

    fn limit(
        &self,
        card: Option<u32>,
        (pass, metric): (Pass, Metric),
        limits: &Limits,
        peak: &Peak,
    ) -> Option<Verdict> {
        let limit = limits.get(metric)?;
        // The one that is reported while neither is exceeded.
        let last = limit.fail.or(limit.warn)?;
        let of = of_card(card);
        let figure = format!(
            "{} {}{of}{}",
            pass_name(pass),
            metric.name(),
            qualifier(self.run, metric)
        );
        let actual = peak.get(metric);
        let (status, decided, message) = match actual {
            Some(actual) => match over(limit, actual) {
                Some((status, decided)) => {
                    let (status, message) = self.exceeded(metric, &figure, actual, status, decided);
                    (status, decided, message)
                }
                None if self.ended_in(pass) => return None,
                None => match self.unfinished() {
                    Some(why) => (
                        Status::Error,
                        last,
                        format!("{figure} cannot be judged: {why} at {actual}"),
                    ),
                    None => (
                        Status::Pass,
                        last,
                        format!(
                            "{figure} {actual} is within its limit of {}",
                            self.budgets.as_written(last)
                        ),
                    ),
                },
            },
            None if self.run.oom.is_some() => return None,
            None => {
                let why = self
                    .unfinished()
                    .unwrap_or_else(|| "the run gave no such figure".to_owned());
                (Status::Error, last, format!("{figure} cannot be judged: {why}"))
            }
        };
        let verdict = Verdict {
            card,
            pass: Some(pass),
            metric: Some(metric),
            limit: Some(decided.value),
            limit_written: Some(self.budgets.as_written(decided)),
            actual,
            ..self.verdict(Rule::Budget, status, message)
        };
        Some(self.written_at(decided.span, verdict))
    }

    /// A limit that is exceeded fails, unless it is only known to be on an assumption.
    fn exceeded(
        &self,
        metric: Metric,
        figure: &str,
        actual: Bytes,
        status: Status,
        limit: Spanned<Bytes>,
    ) -> (Status, String) {
        let kind = if status == Status::Warn {
            "warning limit"
        } else {
            "limit"
        };
        let by = actual.saturating_sub(limit.value);
        let written = self.budgets.written_size(limit);
        // In the units of the limit, so that the two can be compared, and in those of the table.
        let (actual, by) = match written.is_decimal {
            true => (format!("{actual} ({})", actual.decimal()), by.decimal()),
            false => (actual.to_string(), by.to_string()),
        };
        let message = format!("{figure} {actual} is over its {kind} of {} by {by}", written.text);
        match advice(self.run).filter(|_| metric == Metric::Process && status == Status::Fail) {
            Some(advice) => (Status::Warn, format!("{message}; {advice}")),
            None => (status, message),
        }
    }

    fn ended_in(&self, pass: Pass) -> bool {
        self.run.oom.as_ref().is_some_and(|oom| oom.pass == pass)
    }

    fn unfinished(&self) -> Option<String> {
        ended_early(self.run).map(|why| format!("the {why}"))
    }

    fn out_of_memory(&self, oom: &Oom) -> Verdict {
        let Oom {
            requested,
            reserved,
            available,
            function,
            tensor,
            ..
        } = oom;
        let wanted = match (requested, function) {
            (Some(requested), _) => format!("{requested} were asked for"),
            (None, Some(function)) => format!("{function} had no room"),
            (None, None) => "there was no room".to_owned(),
        };
        let rule = tensor.as_ref().map_or_else(String::new, |tensor| {
            format!(
                "; Burn gives one tensor at most a quarter of the GPU, {}",
                tensor.largest
            )
        });
        let which = oom.card.map_or_else(String::new, |card| format!("card {card}, "));
        let message = format!(
            "out of memory on {which}`{}` {}: {wanted}, {reserved} were reserved and {available} left{rule}",
            self.run.gpu.id,
            place(oom),
        );
        Verdict {
            card: oom.card,
            pass: Some(oom.pass),
            limit: Some(self.run.gpu.available_bytes),
            actual: requested
                .and_then(|requested| reserved.0.checked_add(requested.0))
                .map(Bytes),
            ..self.verdict(Rule::Oom, Status::Fail, message)
        }
    }

    fn written_at(&self, span: Span, verdict: Verdict) -> Verdict {
        let Position { line, column } = self.budgets.position(span);
        Verdict {
            file: Some(self.file.to_owned()),
            line: Some(line),
            column: Some(column),
            ..verdict
        }
    }

    fn verdict(&self, rule: Rule, status: Status, message: String) -> Verdict {
        Verdict::of(self.run, rule, status, message)
    }
}

/// The worst that a figure exceeds.
fn over(limit: &Limit<Bytes>, actual: Bytes) -> Option<(Status, Spanned<Bytes>)> {
    let exceeded = |limit: Option<Spanned<Bytes>>| limit.filter(|limit| actual > limit.value);
    exceeded(limit.fail)
        .map(|fail| (Status::Fail, fail))
        .or_else(|| exceeded(limit.warn).map(|warn| (Status::Warn, warn)))
}

#[cfg(test)]
pub(super) mod tests;
