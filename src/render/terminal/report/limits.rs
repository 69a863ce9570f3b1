//! The table of checked limits that the main table does not draw.

use comfy_table::Cell;

use super::cells::{limit, share, shown, tinted};
use super::state::{self, RunState, ShownReport, figure, is_drawn, on_gpu};
use super::table::{lines, new_table};
use crate::report::words::mode_name;
use crate::report::{Rule, Run, Verdict};

/// Renders one row per limit: on live memory, process memory and the cold pass.
pub(super) fn limits(report: &ShownReport<'_>) -> String {
    let rows: Vec<_> = report.runs.iter().flat_map(|run| rows(report, run)).collect();
    if rows.is_empty() {
        return String::new();
    }
    let mut table = new_table(["other limits", "", "value", "", "limit", ""], [2, 3]);
    table.add_rows(rows);
    let table: String = lines(&table).into_iter().map(|line| format!("{line}\n")).collect();
    format!("{table}\n")
}

fn rows(report: &ShownReport<'_>, run: &Run) -> Vec<Vec<Cell>> {
    // The mode only if the name alone would mean two runs.
    let mode = if report.has_both_modes {
        format!(", {}", mode_name(run.mode))
    } else {
        String::new()
    };
    let name = state::name_of(report, run) + &on_gpu(report, &run.gpu.id) + &mode;
    // A model on several GPUs has one row per GPU in another table.
    let is_meant =
        |verdict: &&Verdict| verdict.rule == Rule::Budget && !is_drawn(verdict) && verdict.gpu_number.is_none();
    let row = |verdict: &Verdict| {
        let (figure, limit) = (figure(verdict)?, limit(verdict)?);
        let state = RunState::from_verdict(verdict);
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
