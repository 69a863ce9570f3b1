//! Growth: how far a figure is from what was last accepted.

use camino::Utf8Path;

use super::Judge;
use super::words::{advice, qualifier};
use crate::budget::scalar::Percent;
use crate::budget::source::{Span, Spanned};
use crate::bytes::Bytes;
use crate::report::LET_BE;
use crate::report::upgrade::is_upgrade;
use crate::report::words::percent;
use crate::report::{AllowedGrowth, Baseline, BaselineFrom, Metric, Pass, Rule, Status, Verdict};

/// How far a figure may be from its baseline: both the percentage and the bytes must be passed.
struct Allowed {
    warn: Option<Percent>,
    fail: Option<Percent>,
    ignore: Bytes,
    /// The same as the file writes it.
    ignore_written: String,
    /// Where the file says so.
    span: Option<Span>,
}

impl Allowed {
    /// Bytes by which it may exceed the baseline. Percentages are taken on the baseline, rounded down.
    fn bytes(&self, percent: Percent, baseline: Bytes) -> Bytes {
        percent.of(baseline).max(self.ignore)
    }

    /// `+5 % or +16 MiB`: whichever is more.
    fn told(&self, percent: Percent) -> String {
        let percent = percent.to_string().replace('%', " %");
        match self.ignore {
            Bytes(0) => format!("+{percent}"),
            _ => format!("+{percent} or +{}", self.ignore_written),
        }
    }
}

impl Judge<'_> {
    /// What the budgets say about the distance between this run and its baseline. A run that has none of a figure, because
    /// it died, is judged by other rules.
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

    /// A baseline without the value that the file wants compared.
    fn without_baseline(&self, metric: Metric, allowed: &Allowed, after: Bytes) -> Verdict {
        let message = format!(
            "the baseline has no warm {}, so that its growth cannot be judged: `cargo vram bless -m {}` accepts {after}",
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

    /// The model's own limit, or the defaults'; live is judged without any.
    fn allowed(&self, metric: Metric) -> Option<Allowed> {
        let growth = match self.budget() {
            Some(budget) => budget.settings.growth.as_ref(),
            None => self.budgets.defaults.growth.as_ref(),
        };
        let Some(growth) = growth else {
            return (metric == Metric::Live).then_some(Allowed {
                warn: Some(Percent::whole(LET_BE.warn)),
                fail: Some(Percent::whole(LET_BE.fail)),
                ignore: LET_BE.ignore,
                ignore_written: LET_BE.ignore.to_string(),
                span: None,
            });
        };
        let limit = growth.get(metric)?;
        let value = |limit: Option<Spanned<Percent>>| limit.map(|limit| limit.value);
        Some(Allowed {
            warn: value(limit.limit.warn),
            fail: value(limit.limit.fail),
            ignore: limit.ignore.map_or(Bytes(0), |ignore| ignore.value),
            ignore_written: limit
                .ignore
                .map_or_else(String::new, |ignore| self.budgets.as_written(ignore)),
            span: limit.limit.fail.or(limit.limit.warn).map(|limit| limit.span),
        })
    }

    /// What a run is compared with, as people name it: the file of the baseline, or the revision that was built and run.
    fn since(&self, baseline: &Baseline) -> String {
        match (baseline.from, self.revision) {
            (BaselineFrom::Rebuilt | BaselineFrom::Base, Some(revision)) => revision.to_owned(),
            (BaselineFrom::Rebuilt | BaselineFrom::Base, None) => "the base".to_owned(),
            (BaselineFrom::Lock, _) => Utf8Path::new(self.file).with_extension("lock").into_string(),
        }
    }

    fn grown(&self, metric: Metric, allowed: &Allowed, baseline: &Baseline, before: Bytes, after: Bytes) -> Verdict {
        let change = Bytes(after.0.abs_diff(before.0));
        let passed = |percent: Option<Percent>| percent.filter(|percent| change > allowed.bytes(*percent, before));
        let decided = match (passed(allowed.fail), passed(allowed.warn)) {
            (Some(percent), _) => Some((Status::Fail, percent)),
            (None, Some(percent)) => Some((Status::Warn, percent)),
            (None, None) => None,
        };
        let name = format!("warm {}{}", metric.name(), qualifier(self.run, metric));
        let since = self.since(baseline);
        let by = percent(change, before).map_or_else(|| change.to_string(), |percent| format!("{percent} ({change})"));
        let moved = match after > before {
            true => format!("{name} grew by {by} since {since}, from {before} to {after}"),
            false => format!("{name} shrank by {by} since {since}, from {before} to {after}"),
        };
        let (status, message) = match decided {
            // Whoever upgrades Burn gets another allocator and other kernels: that is no growth of the model.
            Some(_) if after > before && is_upgrade(&baseline.burn, &self.run.burn) => {
                let (old, new, model) = (&baseline.burn, &self.run.burn, self.run.full_name());
                let message = format!(
                    "{moved}; Burn was upgraded from {old} to {new}, so this is not judged as growth of the model: to accept the new \
                     baseline, run `cargo vram bless -m {model}`"
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
                    // Live is hardly another with other kernels; what is reserved for them is.
                    None if metric != Metric::Live && self.run.chose_kernels() => (Status::Warn, message),
                    None => (status, message),
                }
            }
            _ if change == Bytes(0) => (Status::Pass, format!("{name} {after} is unchanged since {since}")),
            None if after > before => {
                let least = allowed.warn.or(allowed.fail);
                let told = least.map_or_else(String::new, |percent| format!("; allowed: {}", allowed.told(percent)));
                (Status::Pass, moved + &told)
            }
            _ => (Status::Pass, moved),
        };
        let likely = match baseline.differs.as_slice() {
            [] => String::new(),
            _ if change == Bytes(0) => String::new(),
            differs => format!("; likely because of {}", differs.join(", ")),
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
