//! The first line, understood in two seconds: how it stands, and the worst of it.

use super::escape::name;
use super::{Change, Told};
use crate::bytes::Bytes;
use crate::report::change::metric_name;
use crate::report::words::{of_card, percent};
use crate::report::{Metric, Report, Rule, Run, Status, Verdict};

pub(super) fn headline(told: &Told<'_>) -> String {
    let report = told.report;
    let worst = told.worst();
    let failed = report.runs.iter().filter(|run| run.error.is_some()).count() + report.problems.len();
    if failed > 0 {
        return format!(
            "❌ {failed} of {} could not be run",
            report.runs.len() + report.problems.len()
        );
    }
    if let Some(run) = report.runs.iter().find(|run| run.oom.is_some()) {
        let others = report.runs.iter().filter(|run| run.oom.is_some()).count() - 1;
        return format!("❌ {} runs out of memory{}", on(run), more(others));
    }
    // Bytes are what a card runs out of: a small model may grow by many percent and matter to nobody.
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
        let models = |change: &Change<'_>| (change.run.package.clone(), change.run.name().to_owned());
        let first = models(change);
        let others: std::collections::BTreeSet<_> = told
            .changed
            .iter()
            .filter(|change| change.status() == worst)
            .map(models)
            .filter(|model| *model != first)
            .collect();
        return format!("{mark} {}{}", sentence(change), more(others.len()));
    }
    // Drift, leaks, and what has no figure.
    let mut others = report
        .verdicts
        .iter()
        .filter(|verdict| verdict.status == worst && worst >= Status::Warn);
    if let Some(verdict) = others.next() {
        let what = match (verdict.rule, worst) {
            (Rule::Leak, _) => "leaks",
            (Rule::Drift, _) => "is apart from its estimate",
            (Rule::Baseline, _) => "has no valid baseline",
            (Rule::Edit, _) => "has a limit that was loosened",
            (_, Status::Warn) => "has a warning",
            _ => "is not within its budget",
        };
        let place = format!("{} {what} on {}", name(&verdict.model), card(&verdict.gpu));
        return format!("{mark} {place}{}", more(others.count()));
    }
    let improvements = told.changed.iter().filter(|change| change.is_improvement());
    if let Some(change) = first_max(improvements, |change| change.distance()) {
        return format!("✅ {}", moved(change));
    }
    // Nobody said what would be right.
    let is_judged = !report.verdicts.is_empty() || worst != Status::Pass;
    let mark = if is_judged { mark } else { "ℹ️" };
    format!("{mark} {}", quiet(report, told))
}

/// Nothing to act on.
fn quiet(report: &Report, told: &Told<'_>) -> String {
    let runs = report.runs.len();
    let plural = if runs == 1 { "" } else { "s" };
    let judged = if report.verdicts.is_empty() {
        "not judged"
    } else {
        "within budget"
    };
    let compared = report.runs.iter().any(|run| run.baseline.is_some());
    match (runs, told.changed.is_empty()) {
        (0, _) => "No model was run".to_owned(),
        (_, false) => {
            // What no rule judges is folded away: it is named only where nothing else moved.
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

/// `resnet18: live memory grew 223 MiB (12.40 %) on L4`; of what is over its budget, that.
fn sentence(change: &Change<'_>) -> String {
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
            card(&change.run.gpu.id)
        );
    }
    moved(change)
}

/// What became of a figure, whatever is said of it.
fn moved(change: &Change<'_>) -> String {
    let (model, place) = (name(change.run.name()), card(&change.run.gpu.id));
    let both = change
        .before
        .zip(change.after)
        .filter(|(before, after)| before != after);
    let Some((before, after)) = both else {
        return format!("{model} needs another look at {} on {place}", change.figure());
    };
    let moved = if after > before { "grew" } else { "shrank" };
    let percent = percent(Bytes(change.distance()), before).map_or_else(String::new, |percent| format!(" ({percent})"));
    format!(
        "{model}: {} memory{} {moved} {}{percent} on {place}",
        metric_name(change.pass, change.metric),
        of_card(change.card),
        Bytes(change.distance())
    )
}

/// The largest, and of equals the first, as [`Told`] has them in order.
fn first_max<'a, 'b: 'a, K: Ord>(
    changes: impl DoubleEndedIterator<Item = &'a Change<'b>>,
    key: impl Fn(&Change<'b>) -> K,
) -> Option<&'a Change<'b>> {
    changes.rev().max_by_key(|change| key(change))
}

fn on(run: &Run) -> String {
    format!("{} on {}", name(run.name()), card(&run.gpu.id))
}

/// Short ids of cards are read as what is printed on them.
fn card(id: &str) -> String {
    name(&id.to_uppercase())
}

fn more(others: usize) -> String {
    match others {
        0 => String::new(),
        others => format!(", and {others} more"),
    }
}
