//! Compares measurements with estimates of the same model on the same GPU: drift.

use super::Judge;
use super::words::{ended_early, place};
use crate::budget::scalar::Percent;
use crate::budget::source::{Span, Spanned};
use crate::budget::types::Limit;
use crate::bytes::Bytes;
use crate::report::words::percent;
use crate::report::{Metric, Mode, Oom, Pass, Rule, Run, Status, Verdict};

impl Judge<'_> {
    /// Compares this run with its estimate. Returns nothing if the run is not a measurement, or if drift has no limit.
    pub(super) fn drift(&self, runs: &[Run]) -> Vec<Verdict> {
        let Some(limit) = self.drift_limit().filter(|_| self.run.mode == Mode::Measure) else {
            return Vec::new();
        };
        let Some(estimate) = self.estimate(runs) else {
            let why = format!(
                "there is no estimate of this model on `{}` with the same inputs",
                self.run.gpu.id
            );
            return self.incomparable(limit, None, &why).into_iter().collect();
        };
        // Out of memory comes first, because such a run has no complete peaks to compare.
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

    /// Returns the drift limit of the model, or of the file's defaults.
    fn drift_limit(&self) -> Option<&Limit<Percent>> {
        match self.budget() {
            Some(budget) => budget.settings.drift.as_ref(),
            None => self.budgets.defaults.drift.as_ref(),
        }
    }

    /// Returns the estimate of the same model with the same inputs on the same GPU. Prefers one for the same total
    /// memory.
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
        // The size of Burn's pages depends on the total memory, so an estimate for another size can differ.
        let as_large = |other: &&Run| other.gpu.total_bytes == run.gpu.total_bytes;
        let mut estimates = runs.iter().filter(same);
        estimates.clone().find(as_large).or_else(|| estimates.next())
    }

    fn unfinished_of(&self, estimate: &Run) -> Option<String> {
        ended_early(self.run)
            .map(|why| format!("the measured {why}"))
            .or_else(|| ended_early(estimate).map(|why| format!("the estimated {why}")))
    }

    /// Compares one metric of the measurement and the estimate.
    fn apart(&self, limit: &Limit<Percent>, metric: Metric, estimate: &Run) -> Option<Verdict> {
        let of = |run: &Run| run.peaks.warm.get(metric);
        let figure = format!("warm {} memory", metric.name());
        let (measured, estimated) = match (of(self.run), of(estimate)) {
            (Some(measured), Some(estimated)) => (measured, estimated),
            (None, _) => return self.incomparable(limit, Some(metric), "the measurement has no value for it"),
            (_, None) => return self.incomparable(limit, Some(metric), "the estimate has no value for it"),
        };
        let difference = Bytes(measured.0.abs_diff(estimated.0));
        let (status, decided) = over(limit, measured, difference)?;
        let allowed = decided.value.of(measured);
        let share = decided.value.to_string().replace('%', " %");
        let judged = match status {
            Status::Pass => format!("within the drift limit of {share}"),
            Status::Warn => format!("a drift above {share} ({allowed}) is a warning"),
            _ => format!("the drift limit is {share} ({allowed})"),
        };
        let distance = match percent(difference, measured) {
            _ if difference == Bytes(0) => "equal to the byte".to_owned(),
            Some(percent) => format!("the difference is {difference} ({percent})"),
            None => format!("the difference is {difference}"),
        };
        // With different autotune choices, kernels use different workspaces, so neither value is wrong.
        // See docs/design/autotune-plan.md.
        let (status, only) = if status == Status::Fail && metric == Metric::Reserved && !estimate.is_tuned_here() {
            (
                Status::Warn,
                "; this is only a warning because not all autotune choices were recorded on this GPU",
            )
        } else {
            (status, "")
        };
        let message = format!(
            "{figure}: measured {measured}, estimated {estimated}; {distance}; {judged}{}{only}",
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

    /// Returns other reasons why the two may differ: autotune choices, and another total memory.
    fn rests_on(&self, estimate: &Run) -> String {
        let mut text = String::new();
        let autotune = &estimate.autotune;
        let choices: Vec<_> = [
            (autotune.assumed, "assumed"),
            (autotune.nearest, "from the nearest recorded key"),
        ]
        .into_iter()
        .filter(|&(number, _)| number > 0)
        .map(|(number, kind)| format!("{number} {kind}"))
        .collect();
        if !choices.is_empty() {
            let all = u64::from(autotune.recorded) + u64::from(autotune.nearest) + u64::from(autotune.assumed);
            text = format!("; the estimate used {all} autotune choices ({})", choices.join(", "));
        }
        if let Some(recording) = &estimate.recording
            && recording.gpu != estimate.gpu.id
        {
            text += &format!("; the autotune choices were recorded on `{}`", recording.gpu);
        }
        let (measured, estimated) = (self.run.gpu.total_bytes, estimate.gpu.total_bytes);
        if measured != estimated {
            text += &format!("; the estimate is for a GPU with {estimated}, but this GPU has {measured}");
        }
        text
    }

    /// Reports that only one of the two ran out of memory. That always exceeds the limit, because an estimate must
    /// predict it.
    fn disagreed(&self, limit: &Limit<Percent>, oom: &Oom, estimate: &Run) -> Option<Verdict> {
        let (status, decided) = worst(limit)?;
        let held = |run: &Run| {
            run.peaks
                .warm
                .reserved
                .map(|bytes| format!(" with {bytes} reserved"))
                .unwrap_or_default()
        };
        let message = if self.run.oom.is_some() {
            format!(
                "the measurement ran out of memory {}, but the estimate fits{}{}{}",
                place(oom),
                held(estimate),
                self.others(),
                self.rests_on(estimate)
            )
        } else {
            format!(
                "the estimate ran out of memory {}, but the measurement fits{}{}",
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

    /// Returns what other processes held on the GPU, because that memory was missing in the measurement.
    fn others(&self) -> String {
        let others = self.run.measurement.iter().flat_map(|measured| &measured.others);
        let (mut number, mut held) = (0, 0_u64);
        for other in others {
            number += 1;
            held = held.saturating_add(other.bytes.map_or(0, |bytes| bytes.0));
        }
        match number {
            0 => String::new(),
            1 => format!("; another process on the GPU held memory ({} known)", Bytes(held)),
            _ => format!(
                "; {number} other processes on the GPU held memory ({} known)",
                Bytes(held)
            ),
        }
    }

    fn agreed_on_memory(&self, limit: &Limit<Percent>, measured: &Oom, estimated: &Oom) -> Option<Verdict> {
        let (_, decided) = worst(limit)?;
        let message = format!(
            "both ran out of memory: the measurement {}, the estimate {}",
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
            || "the measurement and the estimate".to_owned(),
            |metric| format!("warm {} memory", metric.name()),
        );
        let message = format!("{figure} cannot be compared: {why}");
        Some(self.drift_at(
            decided.span,
            Verdict {
                pass: Some(Pass::Warm),
                metric,
                // A warning: nothing disagrees, but without a verdict it would look like agreement.
                ..self.verdict(Rule::Drift, Status::Warn, message)
            },
        ))
    }

    /// Adds a position to a verdict. For a limit of the file's defaults, it is the model's budget, because models share
    /// the default.
    fn drift_at(&self, limit: Span, verdict: Verdict) -> Verdict {
        let inherited = self
            .budget()
            .filter(|budget| budget.settings.drift == self.budgets.defaults.drift);
        self.written_at(inherited.map_or(limit, |budget| budget.name.span), verdict)
    }
}

/// Returns the most severe limit that a difference exceeds. If it exceeds none, returns the limit to report.
fn over(limit: &Limit<Percent>, measured: Bytes, difference: Bytes) -> Option<(Status, Spanned<Percent>)> {
    let exceeded = |limit: Option<Spanned<Percent>>| limit.filter(|limit| difference > limit.value.of(measured));
    exceeded(limit.fail)
        .map(|fail| (Status::Fail, fail))
        .or_else(|| exceeded(limit.warn).map(|warn| (Status::Warn, warn)))
        .or_else(|| limit.fail.or(limit.warn).map(|last| (Status::Pass, last)))
}

/// Returns the most severe limit, for a result that no percentage can express: `fail`, or `warn` if there is no `fail`.
fn worst(limit: &Limit<Percent>) -> Option<(Status, Spanned<Percent>)> {
    limit
        .fail
        .map(|fail| (Status::Fail, fail))
        .or_else(|| limit.warn.map(|warn| (Status::Warn, warn)))
}

#[cfg(test)]
mod tests;
