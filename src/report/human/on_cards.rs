//! Models over several cards, card by card.

use comfy_table::{Cell, CellAlignment, Table, presets};

use super::cells::{bar, limited, shown, tinted};
use super::state::{self, State, on_gpu};
use super::table::lines;
use super::text::named;
use crate::protocol::MOST_CARDS;
use crate::report::{OnCard, Report, Run};

/// A row a card of every model that is over several.
pub(super) fn on_cards(report: &Report, judged: bool) -> String {
    let rows: Vec<_> = report.runs.iter().flat_map(|run| rows(report, run)).collect();
    if rows.is_empty() {
        return String::new();
    }
    let mut table = Table::new();
    table.load_preset(presets::NOTHING);
    table.enforce_styling();
    let limit = if judged { "limit" } else { "card" };
    table.set_header(["by card", "live", "reserved", "", limit, "process", "cold reserved"]);
    for column in [1, 2, 4, 5, 6] {
        if let Some(column) = table.column_mut(column) {
            column.set_cell_alignment(CellAlignment::Right);
        }
    }
    table.add_rows(rows);
    let table: String = lines(&table).into_iter().map(|line| format!("{line}\n")).collect();
    format!("\n{table}\n")
}

fn rows(report: &Report, run: &Run) -> Vec<Vec<Cell>> {
    let room = run.gpu.available_bytes;
    let row = |card: &OnCard| {
        let warm = card.peaks.warm;
        let judged = state::drawn(report, run, Some(card.card));
        let limit = judged.and_then(|verdict| verdict.limit);
        let allowed = limit.unwrap_or(room);
        let used = warm.reserved.map(|bytes| bar(bytes, allowed)).unwrap_or_default();
        vec![
            Cell::new(format!(
                "{}{} card {}",
                named(&run.full_name()),
                on_gpu(report, &run.gpu.id),
                card.card
            )),
            shown(warm.live),
            shown(warm.reserved),
            tinted(used, judged.and_then(|verdict| State::by(verdict).color())),
            limited(judged, room),
            shown(warm.process),
            shown(card.peaks.cold.reserved),
        ]
    };
    // No run is over more; a report that somebody else wrote may say so.
    run.cards.iter().take(MOST_CARDS as usize).map(row).collect()
}
