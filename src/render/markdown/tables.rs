//! The tables: changed values, models without a baseline and, folded, unchanged runs.

use super::escape::{code, name};
use super::page::Section;
use crate::bytes::Bytes;
use crate::report::change::{ChangeSummary, ValueChange, signed, signed_percent};
use crate::report::words::{failure, mode_name};
use crate::report::{Run, Status};

/// Makes the table of values that have a verdict.
pub(super) fn judged(told: &ChangeSummary<'_>) -> Section {
    let judged = told.changed.iter().filter(|change| change.verdict.is_some());
    let rows: Vec<_> = judged.map(row).collect();
    if rows.is_empty() {
        return Section::default();
    }
    Section {
        head: CHANGES.to_owned(),
        items: rows,
        tail: "\n".to_owned(),
        noun: "change",
        rank: 3,
    }
}

/// Makes the folded table of values that changed and have no limit.
pub(super) fn unjudged(told: &ChangeSummary<'_>) -> Section {
    let unjudged = told.changed.iter().filter(|change| change.verdict.is_none());
    let rows: Vec<_> = unjudged.map(row).collect();
    if rows.is_empty() {
        return Section::default();
    }
    let count = rows.len();
    let plural = if count == 1 { "" } else { "s" };
    Section {
        head: format!("<details><summary>{count} change{plural} without a limit</summary>\n\n{CHANGES}"),
        items: rows,
        tail: "\n</details>\n\n".to_owned(),
        noun: "change",
        rank: 8,
    }
}

const CHANGES: &str = "\
| model | GPU | mode | metric | before → after | change | limit | |
| --- | --- | --- | --- | --- | ---: | --- | --- |
";

fn row(change: &ValueChange<'_>) -> String {
    let by = match (change.before, change.after) {
        // An unchanged value has a row if it is over its budget.
        (Some(before), Some(after)) if before == after => "unchanged".to_owned(),
        (Some(before), Some(after)) => {
            let percent = signed_percent(before, after).map_or_else(String::new, |percent| format!(" ({percent})"));
            signed(before, after) + &percent
        }
        _ => "–".to_owned(),
    };
    let figures = match change.before {
        Some(before) if change.distance() > 0 => format!("{before} → {}", shown(change.after)),
        _ => shown(change.after),
    };
    format!(
        "| {} | {} | {} | {} | {figures} | {by} | {} | {} |\n",
        model(change.run),
        name(&change.run.gpu.id),
        mode_name(change.run.mode),
        change.figure(),
        limits(change),
        word(change)
    )
}

fn word(change: &ValueChange<'_>) -> String {
    let Some(verdict) = change.verdict else {
        return String::new();
    };
    match verdict.status {
        Status::Pass if change.is_improvement() => "🎉 improved".to_owned(),
        Status::Pass => "✅ ok".to_owned(),
        Status::Warn => "⚠️ warning".to_owned(),
        Status::Error => "❌ not checked".to_owned(),
        Status::Fail => {
            // `verdict` is only the worst one. A value can be over its budget and regressed at once.
            let both = [change.budget, change.growth].into_iter().flatten();
            let failed = both.filter(|verdict| verdict.status == Status::Fail);
            let mut failed: Vec<_> = failed.map(|verdict| failure(verdict.rule)).collect();
            // Neither a budget nor a growth failed, so it was another rule.
            if failed.is_empty() {
                failed.push(failure(verdict.rule));
            }
            format!("❌ {}", failed.join(", "))
        }
    }
}

/// Returns the limits of a value, one per line, each with its origin: the baseline and the allowed growth, or the
/// budget.
fn limits(change: &ValueChange<'_>) -> String {
    let growth = change.growth.and_then(|verdict| {
        let limit = verdict.limit?;
        let of = match (verdict.allowed, verdict.baseline) {
            (Some(allowed), _) => format!(": baseline + {allowed}"),
            // Reports of earlier versions have no `allowed`.
            (None, Some(baseline)) => format!(": baseline + {}", limit.saturating_sub(baseline)),
            (None, None) => String::new(),
        };
        Some(format!("{limit}{of}"))
    });
    let budget = change.budget.and_then(|verdict| verdict.limit);
    let budget = budget.map(|limit| format!("{limit}: budget"));
    let limits: Vec<_> = growth.into_iter().chain(budget).collect();
    match limits.is_empty() {
        true => "–".to_owned(),
        // A cell of a Markdown table cannot contain a line end.
        false => limits.join("<br>"),
    }
}

pub(super) fn new(told: &ChangeSummary<'_>) -> Section {
    if told.new.is_empty() {
        return Section::default();
    }
    Section {
        head: format!("**Without a baseline**\n\n{HEADER}"),
        items: told.new.iter().map(|run| figures(run)).collect(),
        tail: "\n".to_owned(),
        noun: "model",
        rank: 5,
    }
}

pub(super) fn unchanged(told: &ChangeSummary<'_>) -> Section {
    if told.unchanged.is_empty() {
        return Section::default();
    }
    let count = told.unchanged.len();
    let plural = if count == 1 { "" } else { "s" };
    // Without any baseline, nobody can say "unchanged"; without verdicts, nobody can say "within budget".
    let compared = told.report.runs.iter().any(|run| run.baseline.is_some());
    let word = if compared { "unchanged" } else { "within budget" };
    let word = if told.report.verdicts.is_empty() && !compared {
        "not checked"
    } else {
        word
    };
    Section {
        head: format!("<details><summary>{count} run{plural} {word}</summary>\n\n{HEADER}"),
        items: told.unchanged.iter().map(|run| figures(run)).collect(),
        tail: "\n</details>\n\n".to_owned(),
        noun: "run",
        rank: 8,
    }
}

const HEADER: &str = "\
| model | GPU | mode | live | reserved | process |
| --- | --- | --- | ---: | ---: | ---: |
";

fn figures(run: &Run) -> String {
    let peak = run.peaks.warm;
    format!(
        "| {} | {} | {} | {} | {} | {} |\n",
        model(run),
        name(&run.gpu.id),
        mode_name(run.mode),
        shown(peak.live),
        shown(peak.reserved),
        shown(peak.process)
    )
}

fn model(run: &Run) -> String {
    code(&run.full_name())
}

fn shown(bytes: Option<Bytes>) -> String {
    bytes.map_or_else(|| "–".to_owned(), |bytes| bytes.to_string())
}
