//! The comparison with the baseline, as far as it has no problem.

use std::fmt::Write;

use super::state::{self, ShownReport, name_of, on_gpu};
use crate::bytes::Bytes;
use crate::report::change::{signed, signed_percent};
use crate::report::{BaselineFrom, Metric, Mode, Rule, Run, Skipped, SkippedCheck, Status, Verdict, WrittenBy};

/// The most changes that are listed.
const TOLD: usize = 5;

/// Renders how many runs are unchanged, and the changes within the allowed growth.
///
/// Returns nothing if no run has a verdict on its growth.
pub(super) fn baseline(report: &ShownReport<'_>) -> String {
    let mut unchanged = 0;
    let mut moved = Vec::new();
    let mut compared = 0;
    for run in &report.runs {
        let growth: Vec<_> = state::verdicts(report, run)
            .filter(|verdict| verdict.rule == Rule::Growth)
            .collect();
        // Nothing compared this run: it has no baseline, or no limit on growth.
        if growth.is_empty() {
            continue;
        }
        compared += 1;
        let unjudged = unjudged(report, run, &growth);
        if unjudged.is_none() && growth.iter().all(|verdict| verdict.baseline == verdict.actual) {
            unchanged += 1;
        }
        // The problems below list failures, warnings and improvements.
        let silent = growth
            .iter()
            .filter(|verdict| verdict.status == Status::Pass && !verdict.is_improvement());
        moved.extend(silent.filter_map(|verdict| judged(report, run, verdict)));
        moved.extend(unjudged);
    }
    if compared == 0 {
        return match is_new(report) {
            true => {
                "no baseline yet: to accept these values and find later growth, run `cargo vram bless`\n\n".to_owned()
            }
            false => String::new(),
        };
    }
    // Growth is judged by the accepted baseline, although the runs have the values of the base.
    let which = match report.runs.iter().any(is_from_base) {
        true => "accepted baseline",
        false => "baseline",
    };
    let mut text = match (unchanged, compared) {
        (1, 1) => format!("{which}: unchanged\n"),
        (0, 1) => format!("{which}: changed\n"),
        (all, _) if all == compared => format!("{which}: all {all} runs unchanged\n"),
        (some, _) => format!("{which}: {some} of {compared} runs unchanged\n"),
    };
    for line in moved.iter().take(TOLD) {
        let _ = writeln!(text, "  {line}");
    }
    let more = moved.len().saturating_sub(TOLD);
    if more > 0 {
        let _ = writeln!(text, "  and {more} more, none of them fails");
    }
    text + "\n"
}

/// Whether a check of estimates passed, and no run has a baseline or a reason why it was not compared with one.
fn is_new(report: &ShownReport<'_>) -> bool {
    let is_growth = |skipped: &Skipped| matches!(skipped.check, SkippedCheck::Growth | SkippedCheck::GrowthSinceBase);
    let has_budget = report.verdicts.iter().any(|verdict| verdict.rule == Rule::Budget);
    report.command == Some(WrittenBy::Check)
        && has_budget
        && report.base.is_none()
        && matches!(report.status, Status::Pass | Status::Warn)
        && report
            .runs
            .iter()
            .all(|run| run.baseline.is_none() && run.mode == Mode::Estimate)
        && !report.skipped.iter().any(is_growth)
}

/// Describes a change of a value that has a growth limit.
fn judged(report: &ShownReport<'_>, run: &Run, verdict: &Verdict) -> Option<String> {
    let moved = change(report, run, verdict.metric?, verdict.baseline?, verdict.actual?)?;
    Some(match &verdict.allowed {
        Some(allowed) => format!("{moved}; allowed: {allowed}"),
        None => moved,
    })
}

/// Whether the baseline of a run has the values of the base, which judge no growth.
fn is_from_base(run: &Run) -> bool {
    let from = run.baseline.as_ref().map(|baseline| baseline.from);
    from == Some(BaselineFrom::Base)
}

/// Describes a change of reserved memory that no growth limit judges. It is shown, because reserved memory decides
/// which GPU a model fits on.
fn unjudged(report: &ShownReport<'_>, run: &Run, growth: &[&Verdict]) -> Option<String> {
    const METRIC: Metric = Metric::Reserved;
    let is_judged = |metric: Metric| growth.iter().any(|verdict| verdict.metric == Some(metric));
    // The text about the base lists the changes since the base.
    if is_judged(METRIC) || is_from_base(run) {
        return None;
    }
    let before = run.baseline.as_ref()?.peaks.warm.get(METRIC)?;
    let moved = change(report, run, METRIC, before, run.peaks.warm.get(METRIC)?)?;
    // `growth` replaces the default, so the advice names what is judged now, too.
    let metrics = Metric::ALL
        .into_iter()
        .filter(|&metric| metric == METRIC || is_judged(metric));
    let metrics: Vec<_> = metrics.map(|metric| format!("`{}`", metric.name())).collect();
    Some(format!(
        "{moved}; not judged: to judge it, list {} under `growth` in budgets.yaml, which replaces the default",
        metrics.join(" and ")
    ))
}

fn change(report: &ShownReport<'_>, run: &Run, metric: Metric, before: Bytes, after: Bytes) -> Option<String> {
    if before == after {
        return None;
    }
    let name = name_of(report, run) + &on_gpu(report, &run.gpu.id);
    let metric = metric.name();
    let percent = signed_percent(before, after).map_or_else(String::new, |percent| format!(", {percent}"));
    let by = signed(before, after);
    Some(format!("{name}: {metric} {before} → {after} ({by}{percent})"))
}
