//! What became of figures since they were last accepted, where nothing is wrong with that.

use std::fmt::Write;

use super::state::{self, name_of, on_gpu};
use crate::report::change::{signed, signed_percent};
use crate::report::{Report, Rule, Run, Status, Verdict};

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
        moved.extend(silent.filter_map(|verdict| change(report, run, verdict)));
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
        let _ = writeln!(text, "  and {more} more, all within what is allowed");
    }
    text + "\n"
}

fn change(report: &Report, run: &Run, verdict: &Verdict) -> Option<String> {
    let (before, after) = (verdict.baseline?, verdict.actual?);
    if before == after {
        return None;
    }
    let name = name_of(report, run) + &on_gpu(report, &run.gpu.id);
    let metric = verdict.metric?.name();
    let percent = signed_percent(before, after).map_or_else(String::new, |percent| format!(", {percent}"));
    let by = signed(before, after);
    Some(format!(
        "{name}: {metric} {before} → {after} ({by}{percent}), as allowed"
    ))
}
