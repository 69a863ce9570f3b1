//! A difference as a table on a terminal.

use std::fmt::Write;

use comfy_table::{Cell, CellAlignment, Color, Table};

use super::{Diff, FigureDiff, ModelDiff, State, TOLD, shown, told, word};
use crate::bytes::Bytes;
use crate::report::Status;
use crate::report::change::{metric_name, signed, signed_percent};
use crate::report::human::problem;
use crate::report::human::table::lines;
use crate::report::human::text::named;
use crate::report::words::mode_name;

/// Draws a difference, with colours as escape sequences.
#[must_use]
pub fn human(diff: &Diff, quiet: bool) -> String {
    let mut table = Table::new();
    table.load_preset(comfy_table::presets::NOTHING);
    table.enforce_styling();
    table.set_header(["model", "card", "", "figure", "before", "after", "change", "", ""]);
    for at in 4..8 {
        if let Some(column) = table.column_mut(at) {
            column.set_cell_alignment(CellAlignment::Right);
        }
    }
    for model in &diff.models {
        for figure in shown(model) {
            table.add_row(row(model, figure));
        }
    }
    let mut text: String = diff
        .problems
        .iter()
        .map(|each| format!("{}\n", problem(each)))
        .collect();
    if !table.is_empty() {
        for line in lines(&table) {
            let _ = writeln!(text, "{line}");
        }
        text.push('\n');
    }
    for model in &diff.models {
        if model.state != State::Changed || model.causes.is_empty() {
            continue;
        }
        let _ = writeln!(
            text,
            "{}/{}, {}, {}:",
            named(&model.package),
            named(&model.model),
            named(&model.gpu),
            mode_name(model.mode)
        );
        for cause in model.causes.iter().take(TOLD) {
            let _ = writeln!(text, "  {}", told(cause, named));
        }
        if let Some(more) = model.causes.len().checked_sub(TOLD).filter(|more| *more > 0) {
            let _ = writeln!(text, "  … and {more} more (all of them with --message-format json)");
        }
    }
    if !quiet {
        let _ = writeln!(text, "{}", summary(diff));
    }
    text
}

fn row(model: &ModelDiff, figure: &FigureDiff) -> Vec<Cell> {
    let color = match figure.status {
        Some(Status::Fail | Status::Error) => Some(Color::Red),
        Some(Status::Warn) => Some(Color::Yellow),
        _ if figure.change.is_some_and(|change| change < 0) => Some(Color::Green),
        _ => None,
    };
    let change = figure.before.zip(figure.after);
    let word = named(word(model, figure));
    let last = Cell::new(word);
    vec![
        Cell::new(format!("{}/{}", named(&model.package), named(&model.model))),
        Cell::new(named(&model.gpu)),
        Cell::new(mode_name(model.mode)),
        Cell::new(metric_name(figure.pass, figure.metric)),
        size(figure.before),
        size(figure.after),
        Cell::new(change.map(|(before, after)| signed(before, after)).unwrap_or_default()),
        Cell::new(
            change
                .and_then(|(before, after)| signed_percent(before, after))
                .unwrap_or_default(),
        ),
        match color {
            Some(color) => last.fg(color),
            None => last,
        },
    ]
}

fn size(bytes: Option<Bytes>) -> Cell {
    Cell::new(bytes.map_or_else(|| "–".to_owned(), |bytes| bytes.to_string()))
}

pub(super) fn summary(diff: &Diff) -> String {
    let count = |state| diff.models.iter().filter(|model| model.state == state).count();
    let regressed = diff
        .models
        .iter()
        .filter(|model| model.status() == Status::Fail)
        .count();
    let mut parts = vec![format!("{} compared", count(State::Changed) + count(State::Same))];
    if !diff.problems.is_empty() {
        parts.push(format!("{} could not be run", diff.problems.len()));
    }
    for (number, what) in [
        (regressed, "regressed"),
        (count(State::Changed), "changed"),
        (count(State::New), "new"),
        (count(State::Removed), "removed"),
        (count(State::Same), "the same"),
    ] {
        if number > 0 {
            parts.push(format!("{number} {what}"));
        }
    }
    parts.join(" · ")
}
