//! The tables: what changed, what is new, and, folded, what did not change.

use super::escape::{code, name};
use super::page::Section;
use super::{Change, Told};
use crate::bytes::Bytes;
use crate::report::change::{signed, signed_percent};
use crate::report::words::{failure, mode_name};
use crate::report::{Run, Status};

/// What a rule says something of.
pub(super) fn judged(told: &Told<'_>) -> Section {
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

/// What moved and no rule judges, folded away.
pub(super) fn unjudged(told: &Told<'_>) -> Section {
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
| model | card | mode | metric | before → after | change | limit | |
| --- | --- | --- | --- | --- | ---: | --- | --- |
";

fn row(change: &Change<'_>) -> String {
    let by = match (change.before, change.after) {
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

fn word(change: &Change<'_>) -> String {
    let Some(verdict) = change.verdict else {
        return String::new();
    };
    match verdict.status {
        Status::Pass if change.is_improvement() => "🎉 improved".to_owned(),
        Status::Pass => "✅ ok".to_owned(),
        Status::Warn => "⚠️ warning".to_owned(),
        Status::Error => "❌ not judged".to_owned(),
        Status::Fail => {
            let both = [change.budget, change.growth].into_iter().flatten();
            let failed = both.filter(|verdict| verdict.status == Status::Fail);
            let mut failed: Vec<_> = failed.map(|verdict| failure(verdict.rule)).collect();
            if failed.is_empty() {
                failed.push(failure(verdict.rule));
            }
            format!("❌ {}", failed.join(", "))
        }
    }
}

/// Every limit of a figure, with what it is made of, a line each.
fn limits(change: &Change<'_>) -> String {
    let growth = change.growth.and_then(|verdict| {
        let limit = verdict.limit?;
        let of = match (verdict.allowed, verdict.baseline) {
            (Some(allowed), _) => format!(": baseline + {allowed}"),
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
        false => limits.join("<br>"),
    }
}

pub(super) fn new(told: &Told<'_>) -> Section {
    if told.new.is_empty() {
        return Section::default();
    }
    Section {
        head: format!("**Without a baseline to compare with**\n\n{HEADER}"),
        items: told.new.iter().map(|run| figures(run)).collect(),
        tail: "\n".to_owned(),
        noun: "model",
        rank: 5,
    }
}

pub(super) fn unchanged(told: &Told<'_>) -> Section {
    if told.unchanged.is_empty() {
        return Section::default();
    }
    let count = told.unchanged.len();
    let plural = if count == 1 { "" } else { "s" };
    let compared = told.report.runs.iter().any(|run| run.baseline.is_some());
    let word = if compared { "unchanged" } else { "within budget" };
    let word = if told.report.verdicts.is_empty() && !compared {
        "not judged"
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
| model | card | mode | live | reserved | process |
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
