//! How each value changed: before, after, and the verdicts about it.

use std::collections::HashMap;

use super::words::{of_gpu, percent};
use super::{Metric, Mode, Pass, Peaks, Report, Rule, Run, Status, Verdict};
use crate::bytes::Bytes;
use crate::untrusted::PlainName;

/// One value of one run, before and after.
#[derive(Debug, Clone, Copy)]
pub(crate) struct ValueChange<'a> {
    pub(crate) run: &'a Run,
    /// The number of the GPU, if the value is from one of several.
    pub(crate) gpu_number: Option<u32>,
    pub(crate) pass: Pass,
    pub(crate) metric: Metric,
    pub(crate) before: Option<Bytes>,
    pub(crate) after: Option<Bytes>,
    /// The worst verdict about the value.
    pub(crate) verdict: Option<&'a Verdict>,
    /// The worst growth verdict about the value.
    pub(crate) growth: Option<&'a Verdict>,
    /// The worst budget verdict about the value.
    pub(crate) budget: Option<&'a Verdict>,
}

impl ValueChange<'_> {
    /// Returns the name of the value: `cold reserved on GPU 1`.
    pub(crate) fn figure(&self) -> String {
        format!("{}{}", metric_name(self.pass, self.metric), of_gpu(self.gpu_number))
    }

    pub(crate) fn status(&self) -> Status {
        self.verdict.map_or(Status::Pass, |verdict| verdict.status)
    }

    pub(crate) fn is_improvement(&self) -> bool {
        // A verdict may use the branch's own baseline, which says nothing about the distance from the base.
        let own = |verdict: &Verdict| verdict.is_improvement() && verdict.baseline == self.before;
        self.verdict.is_some_and(own)
    }

    /// Whether the growth verdict is a warning or worse.
    pub(crate) fn is_regression(&self) -> bool {
        self.growth.is_some_and(|verdict| verdict.status >= Status::Warn)
    }

    /// Returns the growth in bytes; 0 if the value shrank or one side is unknown.
    pub(crate) fn growth_bytes(&self) -> u64 {
        match (self.before, self.after) {
            (Some(before), Some(after)) => after.saturating_sub(before).0,
            _ => 0,
        }
    }

    /// Returns the difference in bytes, in either direction; 0 if one side is unknown.
    pub(crate) fn distance(&self) -> u64 {
        match (self.before, self.after) {
            (Some(before), Some(after)) => before.0.abs_diff(after.0),
            _ => 0,
        }
    }
}

/// What a run and its verdicts share: package, name, GPU and mode.
type RunKey<'a> = (&'a PlainName, &'a PlainName, &'a PlainName, Mode);

/// Returns the key of a run.
pub(crate) fn key_of_run(run: &Run) -> RunKey<'_> {
    (&run.package, run.name(), &run.gpu.id, run.mode)
}

/// Returns the key of the run that a verdict is about.
pub(crate) fn key_of_verdict(verdict: &Verdict) -> RunKey<'_> {
    (&verdict.package, &verdict.model, &verdict.gpu, verdict.mode)
}

/// The verdicts of a report, by run.
pub(crate) struct Judged<'a> {
    verdicts: HashMap<RunKey<'a>, Vec<&'a Verdict>>,
}

impl<'a> Judged<'a> {
    pub(crate) fn new(report: &'a Report) -> Self {
        let mut verdicts: HashMap<_, Vec<_>> = HashMap::new();
        for verdict in &report.verdicts {
            verdicts.entry(key_of_verdict(verdict)).or_default().push(verdict);
        }
        Self { verdicts }
    }

    pub(crate) fn of(&self, run: &'a Run) -> &[&'a Verdict] {
        self.verdicts.get(&key_of_run(run)).map_or(&[], Vec::as_slice)
    }

    /// Returns the values of a run that changed, and those with a warning or worse.
    pub(crate) fn changes(&self, run: &'a Run) -> Vec<ValueChange<'a>> {
        let verdicts = self.of(run);
        let mut changes = Vec::new();
        for (pass, metric) in FIGURES {
            let before = run
                .baseline
                .as_ref()
                .and_then(|baseline| figure(&baseline.peaks, pass, metric));
            let after = figure(&run.peaks, pass, metric);
            // Drift compares a measurement with an estimate, not with a baseline, so its verdicts are shown on their
            // own.
            let said = verdicts.iter().copied().filter(|verdict| {
                verdict.metric == Some(metric) && verdict.pass == Some(pass) && verdict.rule != Rule::Drift
            });
            let (of_gpus, said): (Vec<_>, Vec<_>) = said.partition(|verdict| verdict.gpu_number.is_some());
            let worst = |rule: Option<Rule>| {
                let said = said.iter().copied();
                said.filter(|verdict| rule.is_none_or(|rule| verdict.rule == rule))
                    // Of two passes, an improvement is the one to show.
                    .max_by_key(|verdict| (verdict.status, verdict.is_improvement()))
            };
            let verdict = worst(None);
            // A report may have a growth verdict but no baseline.
            let judged = verdict.filter(|verdict| verdict.rule == Rule::Growth);
            let change = ValueChange {
                run,
                gpu_number: None,
                pass,
                metric,
                before: before.or_else(|| judged.and_then(|verdict| verdict.baseline)),
                after,
                verdict,
                growth: worst(Some(Rule::Growth)),
                budget: worst(Some(Rule::Budget)),
            };
            let wrong = verdict.is_some_and(|verdict| verdict.status >= Status::Warn);
            if change.distance() > 0 || wrong {
                changes.push(change);
            }
            // One of several GPUs gets a row only if its verdict is a warning or worse.
            let wrong = of_gpus.into_iter().filter(|verdict| verdict.status >= Status::Warn);
            changes.extend(wrong.map(|verdict| ValueChange {
                run,
                gpu_number: verdict.gpu_number,
                pass,
                metric,
                // There is no baseline per GPU. See docs/design/several-gpus.md.
                before: None,
                after: verdict.actual,
                verdict: Some(verdict),
                growth: None,
                budget: Some(verdict).filter(|verdict| verdict.rule == Rule::Budget),
            }));
        }
        changes
    }
}

/// The default limits for the growth of live memory, if `budgets.yaml` has none. Growth must exceed both the percentage
/// and the bytes.
pub(crate) const LET_BE: DefaultGrowth = DefaultGrowth {
    warn: 2,
    fail: 5,
    ignore: Bytes(16 << 20),
};

/// Growth limits: percentages of the baseline, and the bytes that are always allowed.
pub(crate) struct DefaultGrowth {
    pub(crate) warn: u64,
    pub(crate) fail: u64,
    pub(crate) ignore: Bytes,
}

/// How the models of a report changed, in the order of output.
pub(crate) struct ChangeSummary<'a> {
    pub(crate) report: &'a Report,
    /// Sorted by status (worst first), then improvements, then the largest difference.
    pub(crate) changed: Vec<ValueChange<'a>>,
    /// Runs without a baseline, if any other run has one.
    pub(crate) new: Vec<&'a Run>,
    /// Runs without a changed value and without a warning or worse.
    pub(crate) unchanged: Vec<&'a Run>,
}

impl<'a> ChangeSummary<'a> {
    pub(crate) fn new(report: &'a Report) -> Self {
        let judged = Judged::new(report);
        // If no run has a baseline, no model counts as new.
        // Otherwise, a project without `budgets.lock` would get a comment on every pull request. See
        // docs/design/comments.md.
        let compared = report.runs.iter().any(|run| run.baseline.is_some());
        let mut told = Self {
            report,
            changed: Vec::new(),
            new: Vec::new(),
            unchanged: Vec::new(),
        };
        for run in &report.runs {
            let changes = judged.changes(run);
            match () {
                () if !changes.is_empty() => told.changed.extend(changes),
                // What died is neither new nor unchanged: `is_news` looks at errors itself.
                () if run.error.is_some() || run.oom.is_some() => {}
                () if compared && run.baseline.is_none() => told.new.push(run),
                () => told.unchanged.push(run),
            }
        }
        told.changed
            .sort_by_key(|change| std::cmp::Reverse((change.status(), change.is_improvement(), change.distance())));
        told
    }

    /// Returns the worst status of the report and of its verdicts.
    pub(crate) fn worst(&self) -> Status {
        let verdicts = self.report.verdicts.iter().map(|verdict| verdict.status).max();
        verdicts.unwrap_or(Status::Pass).max(self.report.status)
    }

    /// Whether the report has something to look at: a status other than pass, a problem, a failed run, a changed value,
    /// an edited limit, a new model or an improvement.
    pub(crate) fn is_news(&self) -> bool {
        let Report {
            base,
            runs,
            verdicts,
            problems,
            ..
        } = self.report;
        self.worst() != Status::Pass
            || !problems.is_empty()
            || runs.iter().any(|run| run.error.is_some() || run.oom.is_some())
            || base.as_ref().is_some_and(|base| !base.edited.is_empty())
            || !self.changed.is_empty()
            || !self.new.is_empty()
            || verdicts.iter().any(Verdict::is_improvement)
    }
}

/// The values that are compared. Cold values depend on which kernels win autotune, so growth never judges them.
const FIGURES: [(Pass, Metric); 5] = [
    (Pass::Warm, Metric::Live),
    (Pass::Warm, Metric::Reserved),
    (Pass::Warm, Metric::Process),
    (Pass::Cold, Metric::Reserved),
    (Pass::Cold, Metric::Process),
];

pub(crate) const fn figure(peaks: &Peaks, pass: Pass, metric: Metric) -> Option<Bytes> {
    // Only the warm and the cold pass have peaks: a traced pass observes the work of the warm one.
    let peak = match pass {
        Pass::Cold => peaks.cold,
        Pass::Warm | Pass::Traced => peaks.warm,
    };
    peak.get(metric)
}

/// Returns the name of a value: `live`, `cold reserved`.
pub(crate) const fn metric_name(pass: Pass, metric: Metric) -> &'static str {
    match (pass, metric) {
        (Pass::Cold, Metric::Live) => "cold live",
        (Pass::Cold, Metric::Reserved) => "cold reserved",
        (Pass::Cold, Metric::Process) => "cold process",
        (_, metric) => metric.name(),
    }
}

/// Formats a difference with its sign: `+36.01 MiB`.
pub(crate) fn signed_bytes(change: i64) -> String {
    let bytes = Bytes(change.unsigned_abs());
    match change {
        0 => "0 B".to_owned(),
        ..0 => format!("−{bytes}"),
        _ => format!("+{bytes}"),
    }
}

/// Formats a difference in bytes with its sign: `+223 MiB`.
pub(crate) fn signed(before: Bytes, after: Bytes) -> String {
    let sign = match after.cmp(&before) {
        std::cmp::Ordering::Less => "−",
        std::cmp::Ordering::Equal => return "0 B".to_owned(),
        std::cmp::Ordering::Greater => "+",
    };
    format!("{sign}{}", Bytes(before.0.abs_diff(after.0)))
}

/// Formats a difference that is already computed, as [`signed`] does.
pub(crate) fn change(bytes: i64) -> String {
    let size = Bytes(bytes.unsigned_abs());
    match bytes < 0 {
        true => signed(size, Bytes(0)),
        false => signed(Bytes(0), size),
    }
}

/// Formats a difference in percent with its sign; `None` if the value before was 0.
pub(crate) fn signed_percent(before: Bytes, after: Bytes) -> Option<String> {
    let sign = match after.cmp(&before) {
        std::cmp::Ordering::Less => "−",
        std::cmp::Ordering::Equal => "",
        std::cmp::Ordering::Greater => "+",
    };
    percent(Bytes(before.0.abs_diff(after.0)), before).map(|percent| format!("{sign}{percent}"))
}
