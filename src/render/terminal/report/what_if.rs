//! The table of what-ifs, each compared with the original model.

use std::collections::HashMap;

use comfy_table::Cell;
use unicode_width::UnicodeWidthStr;

use super::state::{ShownReport, budget_of, on_gpu};
use super::table::{lines, new_table};
use crate::bytes::Bytes;
use crate::report::change::{signed, signed_percent};
use crate::report::{Metric, Run};

/// The most models that are named per what-if without effect.
const NAMED: usize = 5;

/// Renders one row per what-if, with the difference from the original. If names and values do not fit on one line, the
/// name is on the line above.
pub(super) fn what_ifs(report: &ShownReport<'_>, width: usize) -> String {
    let row = |(origin, run): (&Run, &Run)| (name(report, run), changes(origin, run));
    let rows: Vec<_> = compared(report).map(row).collect();
    if rows.is_empty() {
        return String::new();
    }
    let beside = drawn(rows.iter().map(|(name, changes)| (name.as_str(), changes)));
    let fits = beside.iter().all(|line| line.width() <= width);
    let table: String = match fits {
        true => beside.into_iter().map(|line| format!("{line}\n")).collect(),
        false => {
            // The line of headings has no name above it.
            let names = [None].into_iter().chain(rows.iter().map(|(name, _)| Some(name)));
            let below = drawn(rows.iter().map(|(_, changes)| ("", changes)));
            let above = |name: Option<&String>| name.map_or_else(String::new, |name| format!(" {name}\n"));
            let lines = names.zip(below);
            lines.map(|(name, line)| format!("{}{line}\n", above(name))).collect()
        }
    };
    format!("\n{table}")
}

/// Renders the lines below the table: the what-ifs without effect, and where to look further.
pub(super) fn notes(report: &ShownReport<'_>) -> String {
    // In sentences, because that a what-if changes nothing is a result to notice.
    let mut without_effect: Vec<(String, Vec<String>)> = Vec::new();
    for (origin, run) in compared(report).filter(|(origin, run)| origin.peaks == run.peaks) {
        let (options, name) = (run.what_if.options(), name(report, origin));
        match without_effect.iter_mut().find(|(known, _)| *known == options) {
            Some((_, names)) => names.push(name),
            None => without_effect.push((options, vec![name])),
        }
    }
    let mut text = String::new();
    for (options, names) in without_effect {
        let more = match names.len().saturating_sub(NAMED) {
            0 => String::new(),
            more => format!(" and {more} more"),
        };
        let shown: Vec<_> = names.into_iter().take(NAMED).collect();
        text.push_str(&format!("`{options}` changed no value of {}{more}\n", shown.join(", ")));
    }
    if compared(report).next().is_some() {
        text.push_str("To see the changes by category, run `cargo vram explain MODEL` with the same options.\n\n");
    }
    text
}

/// Returns each complete what-if, after the complete run that it is compared with.
fn compared<'a>(report: &'a ShownReport<'_>) -> impl Iterator<Item = (&'a Run, &'a Run)> {
    let key = |run: &'a Run| (budget_of(run), &run.gpu.id, run.mode);
    let mut origins = HashMap::new();
    for run in report.runs.iter().filter(|run| run.what_if.is_none()) {
        origins.entry(key(run)).or_insert(run);
    }
    // The peaks of an incomplete run are those up to its end, so a difference would mislead.
    let is_complete = |run: &Run| run.error.is_none() && run.oom.is_none();
    let what_ifs = report.runs.iter().filter(|run| !run.what_if.is_none());
    what_ifs.filter_map(move |run| {
        let origin = *origins.get(&key(run))?;
        (is_complete(run) && is_complete(origin)).then_some((origin, run))
    })
}

fn name(report: &ShownReport<'_>, run: &Run) -> String {
    run.full_name() + &on_gpu(report, &run.gpu.id)
}

/// Returns one line for the headings, and one per row.
fn drawn<'a>(rows: impl Iterator<Item = (&'a str, &'a [String; 3])>) -> Vec<String> {
    let mut table = new_table(["difference from original", "live", "reserved", "cold reserved"], 1..4);
    for (name, changes) in rows {
        table.add_row(
            [name]
                .into_iter()
                .chain(changes.iter().map(String::as_str))
                .map(Cell::new),
        );
    }
    lines(&table)
}

fn changes(origin: &Run, run: &Run) -> [String; 3] {
    if origin.peaks == run.peaks {
        return ["no effect"; 3].map(str::to_owned);
    }
    let change = |of: &dyn Fn(&Run) -> Option<Bytes>| {
        let text = of(origin)
            .zip(of(run))
            .map(|(before, after)| match signed_percent(before, after) {
                Some(percent) if before != after => format!("{} ({percent})", signed(before, after)),
                _ => signed(before, after),
            });
        text.unwrap_or_else(|| "–".to_owned())
    };
    [
        change(&|run| run.peaks.warm.get(Metric::Live)),
        change(&|run| run.peaks.warm.get(Metric::Reserved)),
        change(&|run| run.peaks.cold.get(Metric::Reserved)),
    ]
}
