//! Models over several cards, card by card.

use comfy_table::{Cell, CellAlignment, Table, presets};

use super::cells::{bar, shown};
use super::table::lines;
use super::text::named;
use crate::protocol::MOST_CARDS;
use crate::report::{OnCard, Report, Run};

/// A row a card of every model that is over several.
pub(super) fn on_cards(report: &Report) -> String {
    let rows: Vec<_> = report.runs.iter().flat_map(rows).collect();
    if rows.is_empty() {
        return String::new();
    }
    let mut table = Table::new();
    table.load_preset(presets::NOTHING);
    table.enforce_styling();
    table.set_header(["by card", "live", "reserved", "", "process", "cold reserved"]);
    for column in [1, 2, 4, 5] {
        if let Some(column) = table.column_mut(column) {
            column.set_cell_alignment(CellAlignment::Right);
        }
    }
    table.add_rows(rows);
    let table: String = lines(&table).into_iter().map(|line| format!("{line}\n")).collect();
    format!("\n{table}\n")
}

fn rows(run: &Run) -> Vec<Vec<Cell>> {
    let room = run.gpu.available_bytes;
    let row = |card: &OnCard| {
        let warm = card.peaks.warm;
        vec![
            Cell::new(format!("{} card {}", named(&run.full_name()), card.card)),
            shown(warm.live),
            shown(warm.reserved),
            Cell::new(warm.reserved.map(|bytes| bar(bytes, room)).unwrap_or_default()),
            shown(warm.process),
            shown(card.peaks.cold.reserved),
        ]
    };
    // No run is over more; a report that somebody else wrote may say so.
    run.cards.iter().take(MOST_CARDS as usize).map(row).collect()
}
