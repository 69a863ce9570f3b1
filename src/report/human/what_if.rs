//! What-ifs, each against the model as it is.

use comfy_table::{Cell, CellAlignment, Table, presets};

use super::table::lines;
use super::text::named;
use crate::bytes::Bytes;
use crate::report::change::{signed, signed_percent};
use crate::report::{Metric, Report, Run};

/// A row a what-if: by how much its figures are others.
pub(super) fn what_ifs(report: &Report) -> String {
    let mut rows = Vec::new();
    for run in &report.runs {
        let Some(origin) = report.runs.iter().find(|origin| origin.is_origin_of(run)) else {
            continue;
        };
        let whole = |run: &Run| run.error.is_none() && run.oom.is_none();
        if whole(run) && whole(origin) {
            rows.push(row(origin, run));
        }
    }
    if rows.is_empty() {
        return String::new();
    }
    let mut table = Table::new();
    table.load_preset(presets::NOTHING);
    table.enforce_styling();
    table.set_header(["against the model as it is", "live", "reserved", "cold reserved"]);
    for column in 1..4 {
        if let Some(column) = table.column_mut(column) {
            column.set_cell_alignment(CellAlignment::Right);
        }
    }
    table.add_rows(rows);
    let table: String = lines(&table).into_iter().map(|line| format!("{line}\n")).collect();
    format!("\n{table}`cargo vram explain MODEL`, with the same options, says what of it is for what.\n\n")
}

fn row(origin: &Run, run: &Run) -> Vec<Cell> {
    let name = Cell::new(named(&run.full_name()));
    if origin.peaks == run.peaks {
        return vec![
            name,
            Cell::new("no effect"),
            Cell::new("no effect"),
            Cell::new("no effect"),
        ];
    }
    let change = |of: &dyn Fn(&Run) -> Option<Bytes>| {
        let text = of(origin)
            .zip(of(run))
            .map(|(before, after)| match signed_percent(before, after) {
                Some(percent) if before != after => format!("{} ({percent})", signed(before, after)),
                _ => signed(before, after),
            });
        Cell::new(text.unwrap_or_else(|| "–".to_owned()))
    };
    vec![
        name,
        change(&|run| run.peaks.warm.get(Metric::Live)),
        change(&|run| run.peaks.warm.get(Metric::Reserved)),
        change(&|run| run.peaks.cold.get(Metric::Reserved)),
    ]
}
