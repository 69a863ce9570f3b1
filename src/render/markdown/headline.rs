//! The first line of a comment: the state of the report and its worst result.

use super::escape::name;
use crate::bytes::Bytes;
use crate::report::change::{ChangeSummary, ValueChange, metric_name};
use crate::report::words::{of_gpu, percent};
use crate::report::{GrowthExplanation, Metric, Report, Rule, Run, Status, Verdict};

pub(super) fn headline(told: &ChangeSummary<'_>) -> String {
    let report = told.report;
    let worst = told.worst();
    let failed = report.runs.iter().filter(|run| run.error.is_some()).count() + report.problems.len();
    // Failed runs come first: as long as a run is incomplete, the check is, whatever the other runs say.
    if failed > 0 {
        return format!(
            "❌ {failed} of {} runs could not complete",
            report.runs.len() + report.problems.len()
        );
    }
    if let Some(run) = report.runs.iter().find(|run| run.oom.is_some()) {
        let others = report.runs.iter().filter(|run| run.oom.is_some()).count() - 1;
        return format!("❌ {} runs out of memory{}", on(run), more(others));
    }
    // Sort by bytes, not by percent: a small model may grow by many percent without filling a GPU.
    let grown = told
        .changed
        .iter()
        .filter(|change| change.status() == worst && worst >= Status::Warn);
    let grown = first_max(grown, |change| {
        (
            change.is_regression(),
            change.growth_bytes(),
            change.metric == Metric::Live,
        )
    });
    let mark = match worst {
        Status::Pass => "✅",
        Status::Warn => "⚠️",
        Status::Fail | Status::Error => "❌",
    };
    if let Some(change) = grown {
        // A model with several changed values counts once among the others.
        let models = |change: &ValueChange<'_>| (change.run.package.clone(), change.run.name().to_owned());
        let first = models(change);
        let others: std::collections::BTreeSet<_> = told
            .changed
            .iter()
            .filter(|change| change.status() == worst)
            .map(models)
            .filter(|model| *model != first)
            .collect();
        return format!(
            "{mark} {}{}{}",
            sentence(change),
            cause(report, change),
            more(others.len())
        );
    }
    // Drift, leaks and other verdicts that have no row in the table.
    let mut others = report
        .verdicts
        .iter()
        .filter(|verdict| verdict.status == worst && worst >= Status::Warn);
    if let Some(verdict) = others.next() {
        let what = match (verdict.rule, worst) {
            (Rule::Leak, _) => "leaks",
            (Rule::Drift, _) => "differs from its estimate",
            (Rule::Baseline, _) => "has no valid baseline",
            (Rule::Edit, _) => "has a loosened limit",
            (_, Status::Warn) => "has a warning",
            _ => "fails its check",
        };
        let place = format!("{} {what} on {}", name(&verdict.model), gpu(&verdict.gpu));
        let cause = cause_of_verdict(report, verdict);
        return format!("{mark} {place}{cause}{}", more(others.count()));
    }
    // An improvement is the headline only if nothing is wrong.
    let improvements = told.changed.iter().filter(|change| change.is_improvement());
    if let Some(change) = first_max(improvements, |change| change.distance()) {
        return format!("✅ {}", moved(change));
    }
    // Without verdicts, the report says neither that models are within budget nor that they are not.
    let is_judged = !report.verdicts.is_empty() || worst != Status::Pass;
    let mark = if is_judged { mark } else { "ℹ️" };
    format!("{mark} {}", quiet(report, told))
}

/// Returns the headline of a report without problems and improvements.
fn quiet(report: &Report, told: &ChangeSummary<'_>) -> String {
    let runs = report.runs.len();
    let plural = if runs == 1 { "" } else { "s" };
    let judged = if report.verdicts.is_empty() {
        "not checked"
    } else {
        "within budget"
    };
    let compared = report.runs.iter().any(|run| run.baseline.is_some());
    match (runs, told.changed.is_empty()) {
        (0, _) => "No model ran".to_owned(),
        (_, false) => {
            // The table of values without a limit is folded, so the headline names such a value only if no other value
            // changed.
            let largest = first_max(told.changed.iter(), |change| {
                (change.verdict.is_some(), change.growth_bytes(), change.distance())
            });
            let largest = largest.map_or_else(String::new, |change| format!("; {}", moved(change)));
            format!("{runs} run{plural} {judged}{largest}")
        }
        _ if compared && !told.is_news() => format!("{runs} run{plural} {judged}, nothing changed"),
        _ => format!("{runs} run{plural} {judged}"),
    }
}

/// Describes a change: `resnet18: live memory grew 223 MiB (12.40 %) on L4`, or that the value is over its budget.
fn sentence(change: &ValueChange<'_>) -> String {
    // A value can be a regression and over its budget at once. The growth comes first: it is what changed.
    let over = |verdict: &&Verdict| verdict.status >= Status::Warn && verdict.limit.is_some();
    if change.is_regression() {
        let limit = change.budget.filter(over).and_then(|verdict| verdict.limit);
        let limit = limit.map_or_else(String::new, |limit| format!(", over its budget of {limit}"));
        return moved(change) + &limit;
    }
    if let (Some(verdict), Some(after)) = (change.verdict, change.after) {
        let limit = verdict
            .limit
            .map_or_else(String::new, |limit| format!(", {after} of {limit}"));
        let what = match verdict.status {
            Status::Warn => "is near its budget",
            _ => "is over budget",
        };
        let what = if verdict.limit.is_some() { what } else { "has no limit" };
        return format!(
            "{} {what}: {}{limit}, on {}",
            name(change.run.name()),
            change.figure(),
            gpu(&change.run.gpu.id)
        );
    }
    moved(change)
}

/// Names the largest cause of a change and its line: `: hidden is larger, src/model.rs:41`; empty if it is unknown.
fn cause(report: &Report, change: &ValueChange<'_>) -> String {
    let of_run = || report.growth.iter().filter(|of| of.is_of(change.run));
    let is_it = |of: &&GrowthExplanation| (of.pass, of.metric) == (change.pass, change.metric);
    let explained = of_run().find(is_it).or_else(|| of_run().next());
    largest(explained)
}

/// Names the largest cause of a run that leaks, or that another rule fails.
fn cause_of_verdict(report: &Report, verdict: &Verdict) -> String {
    let is_it = |of: &&GrowthExplanation| {
        (&of.package, &of.model, &of.gpu, of.mode) == (&verdict.package, &verdict.model, &verdict.gpu, verdict.mode)
    };
    largest(report.growth.iter().find(is_it))
}

fn largest(explained: Option<&GrowthExplanation>) -> String {
    explained
        .and_then(GrowthExplanation::largest)
        .map_or_else(String::new, |cause| {
            let place = cause.place.as_ref();
            let place = place.map_or_else(String::new, |place| {
                format!(", {}:{}{}", name(place.file.raw()), place.line, place.remark())
            });
            format!(": {}{place}", name(cause.what.raw()))
        })
}

/// Describes how a value changed, regardless of the verdicts on it.
fn moved(change: &ValueChange<'_>) -> String {
    let (model, place) = (name(change.run.name()), gpu(&change.run.gpu.id));
    let both = change
        .before
        .zip(change.after)
        .filter(|(before, after)| before != after);
    let Some((before, after)) = both else {
        return format!("{model}: check {} on {place}", change.figure());
    };
    let moved = if after > before { "grew" } else { "shrank" };
    let percent = percent(Bytes(change.distance()), before).map_or_else(String::new, |percent| format!(" ({percent})"));
    format!(
        "{model}: {} memory{} {moved} {}{percent} on {place}",
        metric_name(change.pass, change.metric),
        of_gpu(change.gpu_number),
        Bytes(change.distance())
    )
}

/// Returns the change with the largest key; of equals the first in the order of [`ChangeSummary`].
fn first_max<'a, 'b: 'a, K: Ord>(
    changes: impl DoubleEndedIterator<Item = &'a ValueChange<'b>>,
    key: impl Fn(&ValueChange<'b>) -> K,
) -> Option<&'a ValueChange<'b>> {
    // Reversed, because `max_by_key` returns the last of equals, and the first is wanted.
    changes.rev().max_by_key(|change| key(change))
}

fn on(run: &Run) -> String {
    format!("{} on {}", name(run.name()), gpu(&run.gpu.id))
}

/// Formats a GPU's id in upper case, as vendors write it: `L4`.
fn gpu(id: &str) -> String {
    name(&id.to_uppercase())
}

fn more(others: usize) -> String {
    match others {
        0 => String::new(),
        others => format!(", and {others} more"),
    }
}
