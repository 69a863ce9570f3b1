//! Compares runs with the accepted baseline: growth.

use camino::Utf8Path;

use super::Judge;
use super::words::{advice, qualifier};
use crate::budget::scalar::Percent;
use crate::budget::source::{Span, Spanned};
use crate::bytes::Bytes;
use crate::report::LET_BE;
use crate::report::upgrade::is_upgrade;
use crate::report::words::{listed, percent};
use crate::report::{AllowedGrowth, Baseline, BaselineFrom, Metric, Pass, Rule, Status, Verdict};

/// The allowed growth over the baseline. Growth warns or fails only if it exceeds both the percentage and `ignore`.
struct AllowedGrowthRule {
    warn: Option<Percent>,
    fail: Option<Percent>,
    ignore: Bytes,
    /// `ignore` as the file writes it.
    ignore_written: String,
    /// The position of the limit in the file; absent for the built-in default.
    span: Option<Span>,
}

impl AllowedGrowthRule {
    /// Returns the allowed growth in bytes: the larger of `ignore` and the percentage of the baseline, rounded down.
    fn bytes(&self, percent: Percent, baseline: Bytes) -> Bytes {
        percent.of(baseline).max(self.ignore)
    }

    /// Returns the allowed growth as text: `5 % or 16 MiB, whichever is more`.
    fn told(&self, percent: Percent) -> String {
        let percent = percent.to_string().replace('%', " %");
        AllowedGrowth::in_words(&percent, self.ignore, &self.ignore_written)
    }
}

impl Judge<'_> {
    /// Compares this run with its baseline. Skips a metric for which the run has no value, because it died: other rules
    /// report that.
    pub(super) fn growth(&self) -> Vec<Verdict> {
        let Some(baseline) = &self.run.baseline else {
            return Vec::new();
        };
        let judged = Metric::ALL.iter().filter_map(|&metric| {
            let allowed = self.allowed(metric)?;
            let after = self.run.peaks.warm.get(metric)?;
            Some(match baseline.peaks.warm.get(metric) {
                Some(before) => self.grown(metric, &allowed, baseline, before, after),
                None => self.without_baseline(metric, &allowed, after),
            })
        });
        judged.collect()
    }

    /// Warns that the baseline has no value of a metric whose growth the file limits.
    fn without_baseline(&self, metric: Metric, allowed: &AllowedGrowthRule, after: Bytes) -> Verdict {
        let message = format!(
            "the baseline has no value for warm {} memory, so its growth was not checked; to accept {after}, run \
             `cargo vram bless -m {}`",
            metric.name(),
            self.run.full_name()
        );
        let verdict = Verdict {
            pass: Some(Pass::Warm),
            metric: Some(metric),
            actual: Some(after),
            ..self.verdict(Rule::Baseline, Status::Warn, message)
        };
        match allowed.span {
            Some(span) => self.written_at(span, verdict),
            None => verdict,
        }
    }

    /// Returns the allowed growth: of the model, or of the file's defaults. Live memory has a built-in default.
    fn allowed(&self, metric: Metric) -> Option<AllowedGrowthRule> {
        let growth = match self.budget() {
            Some(budget) => budget.settings.growth.as_ref(),
            None => self.budgets.defaults.growth.as_ref(),
        };
        let Some(growth) = growth else {
            // Reserved memory, which process memory includes, changes in whole pages. So only live memory has
            // a default.
            return (metric == Metric::Live).then_some(AllowedGrowthRule {
                warn: Some(Percent::from_percent(LET_BE.warn)),
                fail: Some(Percent::from_percent(LET_BE.fail)),
                ignore: LET_BE.ignore,
                ignore_written: LET_BE.ignore.to_string(),
                span: None,
            });
        };
        let limit = growth.get(metric)?;
        let value = |limit: Option<Spanned<Percent>>| limit.map(|limit| limit.value);
        Some(AllowedGrowthRule {
            warn: value(limit.limit.warn),
            fail: value(limit.limit.fail),
            ignore: limit.ignore.map_or(Bytes(0), |ignore| ignore.value),
            ignore_written: limit
                .ignore
                .map_or_else(String::new, |ignore| self.budgets.as_written(ignore)),
            span: limit.limit.fail.or(limit.limit.warn).map(|limit| limit.span),
        })
    }

    /// Returns the name of the baseline's origin: the lock file or the revision.
    fn since(&self, baseline: &Baseline) -> String {
        match (baseline.from, self.revision) {
            (BaselineFrom::Rebuilt | BaselineFrom::Base, Some(revision)) => revision.to_owned(),
            (BaselineFrom::Rebuilt | BaselineFrom::Base, None) => "the base".to_owned(),
            (BaselineFrom::Lock, _) => Utf8Path::new(self.file).with_extension("lock").into_string(),
        }
    }

    fn grown(
        &self,
        metric: Metric,
        allowed: &AllowedGrowthRule,
        baseline: &Baseline,
        before: Bytes,
        after: Bytes,
    ) -> Verdict {
        // In both directions: for a value that shrank, `is_improvement` compares with the same limit.
        let change = Bytes(after.0.abs_diff(before.0));
        let passed = |percent: Option<Percent>| percent.filter(|percent| change > allowed.bytes(*percent, before));
        let decided = match (passed(allowed.fail), passed(allowed.warn)) {
            (Some(percent), _) => Some((Status::Fail, percent)),
            (None, Some(percent)) => Some((Status::Warn, percent)),
            (None, None) => None,
        };
        let name = format!("warm {} memory{}", metric.name(), qualifier(self.run, metric));
        let since = self.since(baseline);
        let by = percent(change, before).map_or_else(|| change.to_string(), |percent| format!("{change} ({percent})"));
        let moved = match after > before {
            true => format!("{name} grew {by} since {since}, from {before} to {after}"),
            false => format!("{name} shrank {by} since {since}, from {before} to {after}"),
        };
        let (status, message) = match decided {
            // An upgrade of Burn changes the allocator and the kernels, so the growth is not the model's.
            Some(_) if after > before && is_upgrade(baseline.burn.raw(), self.run.burn.raw()) => {
                let (old, new, model) = (&baseline.burn, &self.run.burn, self.run.full_name());
                let message = format!(
                    "{moved}; this is only a warning because Burn was upgraded from {old} to {new}; to accept the new \
                     value, run `cargo vram bless -m {model}`"
                );
                (Status::Warn, message)
            }
            Some((status, percent)) if after > before => {
                let without = if status == Status::Warn {
                    " without a warning"
                } else {
                    ""
                };
                let message = format!("{moved}; allowed{without}: {}", allowed.told(percent));
                match advice(self.run).filter(|_| metric == Metric::Process && status == Status::Fail) {
                    Some(advice) => (Status::Warn, format!("{message}; {advice}")),
                    // Other kernels change reserved and process memory, but hardly live memory. So growth only warns.
                    None if metric != Metric::Live && self.run.chose_kernels() => (Status::Warn, message),
                    None => (status, message),
                }
            }
            _ if change == Bytes(0) => (Status::Pass, format!("{name} is {after}, unchanged since {since}")),
            None if after > before => {
                // A value that passes is within the stricter of both limits.
                let least = allowed.warn.or(allowed.fail);
                let told = least.map_or_else(String::new, |percent| format!("; allowed: {}", allowed.told(percent)));
                (Status::Pass, moved + &told)
            }
            _ => (Status::Pass, moved),
        };
        let likely = match baseline.differs.as_slice() {
            [] => String::new(),
            _ if change == Bytes(0) => String::new(),
            differs => format!("; likely cause: {}", listed(differs)),
        };
        let limit = decided.map(|(_, percent)| percent).or(allowed.fail).or(allowed.warn);
        let verdict = Verdict {
            pass: Some(Pass::Warm),
            metric: Some(metric),
            limit: limit.map(|percent| Bytes(before.0.saturating_add(allowed.bytes(percent, before).0))),
            actual: Some(after),
            baseline: Some(before),
            allowed: limit.map(|percent| AllowedGrowth {
                parts_per_million: percent.parts_per_million(),
                at_least: allowed.ignore,
            }),
            ..self.verdict(Rule::Growth, status, message + &likely)
        };
        match allowed.span {
            Some(span) => self.written_at(span, verdict),
            None => verdict,
        }
    }
}

#[cfg(test)]
mod tests;
