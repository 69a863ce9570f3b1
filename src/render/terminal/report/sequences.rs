//! The tables of trainings of several epochs and of models whose sizes vary.

use comfy_table::Cell;

use super::state::{ShownReport, on_gpu};
use super::table::{lines, new_table};
use crate::render::sequences::{RunTable, tables};

/// Renders one table per model that has one.
pub(super) fn sequences(report: &ShownReport<'_>) -> String {
    tables(&report.runs)
        .iter()
        .map(|table| rendered(report, table))
        .collect()
}

fn rendered(report: &ShownReport<'_>, of: &RunTable<'_>) -> String {
    let about = match of.about.as_str() {
        "" => String::new(),
        about => format!(", {about}"),
    };
    let head = format!("{}{}{about}", of.run.full_name(), on_gpu(report, &of.run.gpu.id));
    let columns: Vec<&str> = [head.as_str()].into_iter().chain(of.columns.iter().copied()).collect();
    let numbers: Vec<usize> = (1..columns.len()).collect();
    let mut table = new_table(columns, numbers);
    table.add_rows(of.rows.iter().map(|row| row.iter().map(Cell::new).collect::<Vec<_>>()));
    let table: String = lines(&table).into_iter().map(|line| format!("{line}\n")).collect();
    format!("\n{table}\n")
}
