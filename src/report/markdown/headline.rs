//! The first line, understood in two seconds: how it stands, and the worst of it.

use super::escape::name;
use super::{Change, Told};
use crate::report::change::{signed, signed_percent};
use crate::report::{Metric, Report, Rule, Run, Status};

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
    // A percentage says more than bytes: the worst is what grew most of what it was.
    let grown = told
        .changed
        .iter()
        .filter(|change| change.status() == worst && worst >= Status::Warn)
        .max_by_key(|change| (is_growth(change), share(change)));
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
    let improvement = told
        .changed
        .iter()
        .filter(|change| change.is_improvement())
        .max_by_key(|change| share(change));
    if let Some(change) = improvement {
        return format!("✅ {}", sentence(change));
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
            let largest = told.changed.iter().max_by_key(|change| share(change));
            let largest = largest.map_or_else(String::new, |change| format!("; {}", moved(change)));
            format!("{runs} run{plural} {judged}{largest}")
        }
        _ if compared && !told.is_news() => format!("{runs} run{plural} {judged}, nothing changed"),
        _ => format!("{runs} run{plural} {judged}"),
    }
}

/// `resnet18 grew 12.40 % (+223 MiB live) on L4`
fn sentence(change: &Change<'_>) -> String {
    let figure = change.figure();
    let rule = change.verdict.map(|verdict| verdict.rule);
    if rule != Some(Rule::Growth)
        && let (Some(verdict), Some(after)) = (change.verdict, change.after)
    {
        let limit = verdict
            .limit
            .map_or_else(String::new, |limit| format!(", {after} of {limit}"));
        let what = match verdict.status {
            Status::Warn => "is near its budget",
            _ => "is over budget",
        };
        let what = if verdict.limit.is_some() { what } else { "has no limit" };
        return format!(
            "{} {what}: {figure}{limit}, on {}",
            name(change.run.name()),
            card(&change.run.gpu.id)
        );
    }
    moved(change)
}

/// What became of a figure, whatever is said of it.
fn moved(change: &Change<'_>) -> String {
    let figure = change.figure();
    let (Some(before), Some(after)) = (change.before, change.after) else {
        let place = card(&change.run.gpu.id);
        return format!("{} needs another look at {figure} on {place}", name(change.run.name()));
    };
    let moved = if after > before { "grew" } else { "shrank" };
    let by = signed_percent(before, after).map_or_else(String::new, |percent| {
        format!(" {}", percent.trim_start_matches(['+', '−']))
    });
    format!(
        "{} {moved}{by} ({} {figure}) on {}",
        name(change.run.name()),
        signed(before, after),
        card(&change.run.gpu.id)
    )
}

fn is_growth(change: &Change<'_>) -> (bool, bool) {
    let rule = change.verdict.map(|verdict| verdict.rule);
    (rule == Some(Rule::Growth), change.metric == Metric::Live)
}

/// How far it moved, in millionths of what it was.
fn share(change: &Change<'_>) -> u128 {
    let before = change.before.map_or(1, |before| before.0.max(1));
    u128::from(change.distance()) * 1_000_000 / u128::from(before)
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
