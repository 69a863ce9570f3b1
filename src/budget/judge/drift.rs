//! Drift: how far an estimate is from the measurement of the same model on the same card.

use super::Judge;
use super::words::{ended_early, place};
use crate::budget::scalar::Percent;
use crate::budget::source::{Span, Spanned};
use crate::budget::types::Limit;
use crate::bytes::Bytes;
use crate::report::words::percent;
use crate::report::{Metric, Mode, Oom, Pass, Rule, Run, Status, Verdict};

impl Judge<'_> {
    /// What the budgets say about the distance between this run, if it is a measurement, and its estimate.
    pub(super) fn drift(&self, runs: &[Run]) -> Vec<Verdict> {
        let Some(limit) = self.drift_limit().filter(|_| self.run.mode == Mode::Measure) else {
            return Vec::new();
        };
        let Some(estimate) = self.estimate(runs) else {
            let why = format!("there is no estimate of it on `{}` with these inputs", self.run.gpu.id);
            return self.incomparable(limit, None, &why).into_iter().collect();
        };
        match (&self.run.oom, &estimate.oom) {
            (Some(measured), Some(estimated)) => self.agreed_on_memory(limit, measured, estimated),
            (Some(oom), None) if estimate.error.is_none() => self.disagreed(limit, oom, estimate),
            (None, Some(oom)) if self.run.error.is_none() => self.disagreed(limit, oom, estimate),
            _ => match self.unfinished_of(estimate) {
                Some(why) => self.incomparable(limit, None, &why),
                None => {
                    let figures = [Metric::Live, Metric::Reserved];
                    return figures
                        .into_iter()
                        .filter_map(|metric| self.apart(limit, metric, estimate))
                        .collect();
                }
            },
        }
        .into_iter()
        .collect()
    }

    /// The model's own limit, or the defaults'.
    fn drift_limit(&self) -> Option<&Limit<Percent>> {
        match self.budget() {
            Some(budget) => budget.settings.drift.as_ref(),
            None => self.budgets.defaults.drift.as_ref(),
        }
    }

    /// The estimate of the same model with the same inputs on the same card; of several, one for a card as large.
    fn estimate<'a>(&self, runs: &'a [Run]) -> Option<&'a Run> {
        let run = self.run;
        let same = |other: &&Run| {
            other.mode == Mode::Estimate
                && other.package == run.package
                && other.model == run.model
                && other.budget == run.budget
                && other.gpu.id == run.gpu.id
                && other.inputs == run.inputs
        };
        let as_large = |other: &&Run| other.gpu.total_bytes == run.gpu.total_bytes;
        let mut estimates = runs.iter().filter(same);
        estimates.clone().find(as_large).or_else(|| estimates.next())
    }

    fn unfinished_of(&self, estimate: &Run) -> Option<String> {
        ended_early(self.run)
            .map(|why| format!("the measured {why}"))
            .or_else(|| ended_early(estimate).map(|why| format!("the estimated {why}")))
    }

    /// One figure of both.
    fn apart(&self, limit: &Limit<Percent>, metric: Metric, estimate: &Run) -> Option<Verdict> {
        let of = |run: &Run| run.peaks.warm.get(metric);
        let figure = format!("warm {}", metric.name());
        let (measured, estimated) = match (of(self.run), of(estimate)) {
            (Some(measured), Some(estimated)) => (measured, estimated),
            (None, _) => return self.incomparable(limit, Some(metric), "the measurement gave no such figure"),
            (_, None) => return self.incomparable(limit, Some(metric), "the estimate gave no such figure"),
        };
        let difference = Bytes(measured.0.abs_diff(estimated.0));
        let (status, decided) = over(limit, measured, difference)?;
        let allowed = decided.value.of(measured);
        let share = decided.value.to_string().replace('%', " %");
        let judged = match status {
            Status::Pass => format!("within the limit of {share}"),
            Status::Warn => format!(
                "over the warning limit of {share} by {}",
                difference.saturating_sub(allowed)
            ),
            _ => format!("over the limit of {share} by {}", difference.saturating_sub(allowed)),
        };
        let distance = match percent(difference, measured) {
            _ if difference == Bytes(0) => "equal to the byte".to_owned(),
            Some(percent) => format!("{percent} ({difference}) apart"),
            None => format!("{difference} apart"),
        };
        // With other choices of autotune the two hold different workspaces: that is no mistake of either.
        let (status, only) = if status == Status::Fail && metric == Metric::Reserved && !estimate.is_tuned_here() {
            (
                Status::Warn,
                "; only a warning, until autotune's choices are recorded on this card",
            )
        } else {
            (status, "")
        };
        let message = format!(
            "{figure}: measured {measured}, estimated {estimated}: {distance}, {judged}{}{only}",
            self.rests_on(estimate)
        );
        Some(self.drift_at(
            decided.span,
            Verdict {
                pass: Some(Pass::Warm),
                metric: Some(metric),
                limit: Some(allowed),
                actual: Some(measured),
                baseline: Some(estimated),
                ..self.verdict(Rule::Drift, status, message)
            },
        ))
    }

    /// What else may keep the two apart.
    fn rests_on(&self, estimate: &Run) -> String {
        let mut text = String::new();
        let autotune = &estimate.autotune;
        let choices: Vec<_> = [(autotune.assumed, "assumed"), (autotune.nearest, "nearest")]
            .into_iter()
            .filter(|&(number, _)| number > 0)
            .map(|(number, kind)| format!("{number} {kind}"))
            .collect();
        if !choices.is_empty() {
            let all = u64::from(autotune.recorded) + u64::from(autotune.nearest) + u64::from(autotune.assumed);
            text = format!(
                "; the estimate rests on {} of {all} choices of autotune",
                choices.join(" and ")
            );
        }
        if let Some(recording) = &estimate.recording
            && recording.gpu != estimate.gpu.id
        {
            text += &format!("; what was recorded was recorded on `{}`", recording.gpu);
        }
        let (measured, estimated) = (self.run.gpu.total_bytes, estimate.gpu.total_bytes);
        if measured != estimated {
            text += &format!("; it is for a card of {estimated}, and this one has {measured}");
        }
        text
    }

    /// Whether the card suffices is what an estimate is for: the two may not differ there.
    fn disagreed(&self, limit: &Limit<Percent>, oom: &Oom, estimate: &Run) -> Option<Verdict> {
        let (status, decided) = worst(limit)?;
        let held = |run: &Run| {
            run.peaks
                .warm
                .reserved
                .map(|bytes| format!(", with {bytes} reserved"))
                .unwrap_or_default()
        };
        let message = if self.run.oom.is_some() {
            format!(
                "measured out of memory {}, estimated to fit{}{}{}",
                place(oom),
                held(estimate),
                self.others(),
                self.rests_on(estimate)
            )
        } else {
            format!(
                "estimated out of memory {}, measured to fit{}{}",
                place(oom),
                held(self.run),
                self.rests_on(estimate)
            )
        };
        Some(self.drift_at(
            decided.span,
            Verdict {
                pass: Some(oom.pass),
                ..self.verdict(Rule::Drift, status, message)
            },
        ))
    }

    /// A card that others use as well is smaller than the one that was estimated.
    fn others(&self) -> String {
        let others = self.run.measurement.iter().flat_map(|measured| &measured.others);
        let (mut number, mut held) = (0, 0_u64);
        for other in others {
            number += 1;
            held = held.saturating_add(other.bytes.map_or(0, |bytes| bytes.0));
        }
        match number {
            0 => String::new(),
            1 => format!(", beside another process on the card ({} known)", Bytes(held)),
            _ => format!(", beside {number} other processes on the card ({} known)", Bytes(held)),
        }
    }

    fn agreed_on_memory(&self, limit: &Limit<Percent>, measured: &Oom, estimated: &Oom) -> Option<Verdict> {
        let (_, decided) = worst(limit)?;
        let message = format!(
            "out of memory both measured, {}, and estimated, {}",
            place(measured),
            place(estimated)
        );
        Some(self.drift_at(
            decided.span,
            Verdict {
                pass: Some(measured.pass),
                ..self.verdict(Rule::Drift, Status::Pass, message)
            },
        ))
    }

    fn incomparable(&self, limit: &Limit<Percent>, metric: Option<Metric>, why: &str) -> Option<Verdict> {
        let (_, decided) = worst(limit)?;
        let figure = metric.map_or_else(
            || "measurement and estimate".to_owned(),
            |metric| format!("warm {}", metric.name()),
        );
        let message = format!("{figure} cannot be compared: {why}");
        Some(self.drift_at(
            decided.span,
            Verdict {
                pass: Some(Pass::Warm),
                metric,
                ..self.verdict(Rule::Drift, Status::Warn, message)
            },
        ))
    }

    /// A limit that many models share is no place to look for one of them: there, it is the model's.
    fn drift_at(&self, limit: Span, verdict: Verdict) -> Verdict {
        let inherited = self
            .budget()
            .filter(|budget| budget.settings.drift == self.budgets.defaults.drift);
        self.written_at(inherited.map_or(limit, |budget| budget.name.span), verdict)
    }
}

/// The worst that a difference exceeds; where it exceeds nothing, the limit that is reported.
fn over(limit: &Limit<Percent>, measured: Bytes, difference: Bytes) -> Option<(Status, Spanned<Percent>)> {
    let exceeded = |limit: Option<Spanned<Percent>>| limit.filter(|limit| difference > limit.value.of(measured));
    exceeded(limit.fail)
        .map(|fail| (Status::Fail, fail))
        .or_else(|| exceeded(limit.warn).map(|warn| (Status::Warn, warn)))
        .or_else(|| limit.fail.or(limit.warn).map(|last| (Status::Pass, last)))
}

/// What no percentage can express: a failure where one can fail at all.
fn worst(limit: &Limit<Percent>) -> Option<(Status, Spanned<Percent>)> {
    limit
        .fail
        .map(|fail| (Status::Fail, fail))
        .or_else(|| limit.warn.map(|warn| (Status::Warn, warn)))
}

#[cfg(test)]
mod tests;
