//! Limits that were judged, and that no row of the table draws.

use comfy_table::{Cell, CellAlignment, Table, presets};

use super::cells::{limit, share, shown, tinted};
use super::state::{self, State, figure, is_drawn, on_gpu};
use super::table::lines;
use crate::report::words::mode_name;
use crate::report::{Report, Rule, Run, Verdict};

/// A row for each: live, process, the cold pass.
pub(super) fn limits(report: &Report) -> String {
    let rows: Vec<_> = report.runs.iter().flat_map(|run| rows(report, run)).collect();
    if rows.is_empty() {
        return String::new();
    }
    let mut table = Table::new();
    table.load_preset(presets::NOTHING);
    table.enforce_styling();
    table.set_header(["other limits", "", "value", "", "limit", ""]);
    for column in [2, 3] {
        if let Some(column) = table.column_mut(column) {
            column.set_cell_alignment(CellAlignment::Right);
        }
    }
    table.add_rows(rows);
    let table: String = lines(&table).into_iter().map(|line| format!("{line}\n")).collect();
    format!("{table}\n")
}

fn rows(report: &Report, run: &Run) -> Vec<Vec<Cell>> {
    let has_both = report.runs.iter().any(|other| other.mode != run.mode);
    let mode = if has_both {
        format!(", {}", mode_name(run.mode))
    } else {
        String::new()
    };
    let name = state::name_of(report, run) + &on_gpu(report, &run.gpu.id) + &mode;
    // Of several GPUs that one model is over, each has a row of its own elsewhere.
    let is_meant = |verdict: &&Verdict| verdict.rule == Rule::Budget && !is_drawn(verdict) && verdict.card.is_none();
    let row = |verdict: &Verdict| {
        let (figure, limit) = (figure(verdict)?, limit(verdict)?);
        let state = State::by(verdict);
        let used = verdict.actual.zip(verdict.limit);
        Some(vec![
            Cell::new(&name),
            Cell::new(figure),
            shown(verdict.actual),
            tinted(
                used.map(|(used, limit)| share(used, limit)).unwrap_or_default(),
                state.color(),
            ),
            Cell::new(limit),
            tinted(state.word().to_owned(), state.color()),
        ])
    };
    state::verdicts(report, run).filter(is_meant).filter_map(row).collect()
}
