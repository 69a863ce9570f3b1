//! What became of figures since they were last accepted, where nothing is wrong with that.

use std::fmt::Write;

use super::state::{self, name_of, on_gpu};
use crate::bytes::Bytes;
use crate::report::change::{signed, signed_percent};
use crate::report::{Metric, Report, Rule, Run, Status, Verdict};

/// Runs that are told one by one.
const TOLD: usize = 5;

/// How many runs are as they were, and what moved within what is allowed. Nothing where no run has a baseline that was
/// judged.
pub(super) fn baseline(report: &Report) -> String {
    let mut unchanged = 0;
    let mut moved = Vec::new();
    let mut compared = 0;
    for run in &report.runs {
        let growth: Vec<_> = state::verdicts(report, run)
            .filter(|verdict| verdict.rule == Rule::Growth)
            .collect();
        if growth.is_empty() {
            continue;
        }
        compared += 1;
        if growth.iter().all(|verdict| verdict.baseline == verdict.actual) {
            unchanged += 1;
        }
        // What failed or warns is told with what is wrong, and so is an improvement.
        let silent = growth
            .iter()
            .filter(|verdict| verdict.status == Status::Pass && !verdict.is_improvement());
        moved.extend(silent.filter_map(|verdict| judged(report, run, verdict)));
        moved.extend(unjudged(report, run, &growth));
    }
    if compared == 0 {
        return String::new();
    }
    let mut text = match unchanged {
        all if all == compared && all == 1 => "baseline: unchanged\n".to_owned(),
        all if all == compared => format!("baseline: unchanged, all {all} runs\n"),
        some => format!("baseline: {some} of {compared} runs unchanged\n"),
    };
    for line in moved.iter().take(TOLD) {
        let _ = writeln!(text, "  {line}");
    }
    let more = moved.len().saturating_sub(TOLD);
    if more > 0 {
        let _ = writeln!(text, "  and {more} more, none of which fails");
    }
    text + "\n"
}

/// A value that moved as far as its limit of growth allows.
fn judged(report: &Report, run: &Run, verdict: &Verdict) -> Option<String> {
    let moved = change(report, run, verdict.metric?, verdict.baseline?, verdict.actual?)?;
    Some(match &verdict.allowed {
        Some(allowed) => format!("{moved}; allowed: {allowed}"),
        None => moved,
    })
}

/// What is reserved decides which GPU a model fits on. Where no limit of growth is on it, it is shown and not judged.
fn unjudged(report: &Report, run: &Run, growth: &[&Verdict]) -> Option<String> {
    const METRIC: Metric = Metric::Reserved;
    if growth.iter().any(|verdict| verdict.metric == Some(METRIC)) {
        return None;
    }
    let before = run.baseline.as_ref()?.peaks.warm.get(METRIC)?;
    let moved = change(report, run, METRIC, before, run.peaks.warm.get(METRIC)?)?;
    Some(format!("{moved}; not judged: no `growth` names {}", METRIC.name()))
}

fn change(report: &Report, run: &Run, metric: Metric, before: Bytes, after: Bytes) -> Option<String> {
    if before == after {
        return None;
    }
    let name = name_of(report, run) + &on_gpu(report, &run.gpu.id);
    let metric = metric.name();
    let percent = signed_percent(before, after).map_or_else(String::new, |percent| format!(", {percent}"));
    let by = signed(before, after);
    Some(format!("{name}: {metric} {before} → {after} ({by}{percent})"))
}
