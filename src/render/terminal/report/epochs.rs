//! The table of trainings of several epochs, with one row per part of an epoch.

use comfy_table::Cell;

use super::cells::shown;
use super::state::{ShownReport, on_gpu};
use super::table::{lines, new_table};
use crate::report::words::count;
use crate::report::{EpochMemory, EpochPhase, Run};

/// The most epochs and rows of a run that the table has; the JSON report has all.
const SHOWN: usize = 6;
const ROWS: usize = 30;

/// Renders one row per part of an epoch, for every model that trains for epochs.
pub(super) fn epochs(report: &ShownReport<'_>) -> String {
    let runs = report.runs.iter().filter(|run| !run.epochs.is_empty());
    runs.map(|run| table(report, run)).collect()
}

fn table(report: &ShownReport<'_>, run: &Run) -> String {
    let head = format!("{}{}", run.full_name(), on_gpu(report, &run.gpu.id));
    let mut table = new_table(
        [
            &head,
            "steps",
            "live peak",
            "tensors at end",
            "reserved peak",
            "reserved at end",
            "streams",
        ],
        [1, 2, 3, 4, 5, 6],
    );
    let last = run.epochs.iter().map(|part| part.epoch).max().unwrap_or(0);
    // The first epochs show what settles, and the last ones what still grows.
    let is_shown = |part: &EpochMemory| {
        let half = SHOWN as u32 / 2;
        part.epoch <= half || part.epoch > last.saturating_sub(half)
    };
    let shown = run.epochs.iter().enumerate().filter(|(_, part)| is_shown(part));
    // Between two parts, usually nothing happens.
    let news = shown.filter(|(at, part)| {
        let before = at.checked_sub(1).map(|before| &run.epochs[before]);
        part.part != EpochPhase::Between
            || before.is_none_or(|before| part.reserved_peak > before.reserved_end || part.live_peak > before.live_peak)
    });
    table.add_rows(news.take(ROWS).map(|(_, part)| row(part)));
    let table: String = lines(&table).into_iter().map(|line| format!("{line}\n")).collect();
    format!("\n{table}\n")
}

fn row(part: &EpochMemory) -> Vec<Cell> {
    let is_part = part.part != EpochPhase::Between;
    let of_part = |text: String| Cell::new(if is_part { text } else { String::new() });
    let new = match part.new_streams {
        0 => String::new(),
        new => format!(" ({new} new: {})", part.new_streams_reserved),
    };
    vec![
        Cell::new(format!("epoch {}, {}", part.epoch, part.part.name())),
        of_part(count(part.steps.into())),
        shown(Some(part.live_peak)),
        of_part(part.in_use_end.to_string()),
        shown(Some(part.reserved_peak)),
        shown(Some(part.reserved_end)),
        of_part(format!("{}{new}", part.streams)),
    ]
}
