//! What-ifs, each against the model as it is.

use comfy_table::{Cell, CellAlignment, Table, presets};
use unicode_width::UnicodeWidthStr;

use super::state::on_gpu;
use super::table::lines;
use super::text::named;
use crate::bytes::Bytes;
use crate::report::change::{signed, signed_percent};
use crate::report::{Metric, Report, Run};

/// A row a what-if: by how much its figures are others. Where names and figures do not fit beside each other, a name stands
/// above its figures.
pub(super) fn what_ifs(report: &Report, width: usize) -> String {
    let mut rows = Vec::new();
    for run in &report.runs {
        let Some(origin) = report.runs.iter().find(|origin| origin.is_origin_of(run)) else {
            continue;
        };
        let whole = |run: &Run| run.error.is_none() && run.oom.is_none();
        if whole(run) && whole(origin) {
            let name = named(&run.full_name()) + &on_gpu(report, &run.gpu.id);
            rows.push((name, changes(origin, run)));
        }
    }
    if rows.is_empty() {
        return String::new();
    }
    let beside = drawn(rows.iter().map(|(name, changes)| (name.as_str(), changes)));
    let fits = beside.iter().all(|line| line.width() <= width);
    let table: String = match fits {
        true => beside.into_iter().map(|line| format!("{line}\n")).collect(),
        false => {
            let names = [None].into_iter().chain(rows.iter().map(|(name, _)| Some(name)));
            let below = drawn(rows.iter().map(|(_, changes)| ("", changes)));
            let above = |name: Option<&String>| name.map_or_else(String::new, |name| format!(" {name}\n"));
            let lines = names.zip(below);
            lines.map(|(name, line)| format!("{}{line}\n", above(name))).collect()
        }
    };
    format!("\n{table}`cargo vram explain MODEL`, with the same options, says what of it is for what.\n\n")
}

/// A line for the headings, and one for each row.
fn drawn<'a>(rows: impl Iterator<Item = (&'a str, &'a [String; 3])>) -> Vec<String> {
    let mut table = Table::new();
    table.load_preset(presets::NOTHING);
    table.enforce_styling();
    table.set_header(["against the model as it is", "live", "reserved", "cold reserved"]);
    for column in 1..4 {
        if let Some(column) = table.column_mut(column) {
            column.set_cell_alignment(CellAlignment::Right);
        }
    }
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
