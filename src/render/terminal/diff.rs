//! The difference between two reports as a table on a terminal.

use std::fmt::Write;

use comfy_table::{Cell, CellAlignment, Color, Table};

use crate::bytes::Bytes;
use crate::render::diff::lists::{About, CauseList, MOST, lists};
use crate::render::diff::{is_wrong, on_upgrade, rows, summary, word};
use crate::render::terminal::report::growth::growth;
use crate::render::terminal::report::problem;
use crate::render::terminal::report::table::{lines, new_table};
use crate::report::Status;
use crate::report::change::{change, metric_name, signed, signed_percent};
use crate::report::diff::{Cause, FigureDiff, ModelDiff, ReportDiff};
use crate::report::words::mode_name;
use crate::untrusted::{Foreign, named};

/// Renders a difference, with colours as escape sequences. With `quiet`, only problems and their likeliest reasons.
#[must_use]
pub fn render(diff: &ReportDiff, quiet: bool) -> String {
    let mut table = new_table(
        ["model", "GPU", "", "metric", "before", "after", "change", "", ""],
        4..8,
    );
    for model in &diff.models {
        for figure in rows(model, quiet) {
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
    if let Some(upgrade) = on_upgrade(diff) {
        let _ = writeln!(text, "{upgrade}\n");
    }
    for model in &diff.models {
        let lists = lists(model);
        match (quiet, lists.first()) {
            (_, None) => {}
            // Causes are sorted, the likeliest first. One per regression is enough for `--quiet`.
            (true, Some(first)) if is_wrong(model) => {
                if let Some(cause) = first.causes.first() {
                    let _ = writeln!(text, "{}: {}: {}", place(model), first.about.title(), in_a_line(cause));
                }
            }
            (true, Some(_)) => {}
            (false, Some(_)) => {
                let _ = writeln!(text, "{}", place(model));
                text.extend(lists.iter().map(list));
                text.push('\n');
            }
        }
    }
    if !diff.growth.is_empty() {
        text.push_str(growth(&diff.growth).trim_start_matches('\n'));
        text.push('\n');
    }
    if !quiet {
        let _ = writeln!(text, "{}", summary(diff));
    }
    text
}

/// `p/resnet18, l4, estimated`
fn place(model: &ModelDiff) -> String {
    format!(
        "{}/{}, {}, {}",
        model.package,
        model.model,
        model.gpu,
        mode_name(model.mode)
    )
}

/// Renders a list with its heading. Autotune choices have no columns, because names of kernels are too long.
fn list(list: &CauseList<'_>) -> String {
    let mut text = format!("  {}\n", list.about.title());
    let shown = &list.causes[..list.causes.len().min(MOST)];
    if list.about == About::Autotune {
        for cause in shown {
            let _ = writeln!(text, "    {}", in_a_line(cause));
        }
    } else {
        let mut table = Table::new();
        table.load_preset(comfy_table::presets::NOTHING);
        for cause in shown {
            let mut cells = vec![named(cause.name.raw()), value(cause.before.as_ref()), "→".to_owned()];
            cells.push(value(cause.after.as_ref()));
            cells.extend(cause.bytes.map(change));
            table.add_row(cells);
        }
        // The columns of values. `column_mut` returns nothing for a column that no row has.
        for at in [1, 3, 4] {
            if let Some(column) = table.column_mut(at) {
                column.set_cell_alignment(CellAlignment::Right);
            }
        }
        for line in lines(&table) {
            let _ = writeln!(text, "   {line}");
        }
    }
    if list.left_out() > 0 {
        let _ = writeln!(
            text,
            "    … and {} more (`--message-format json` lists all)",
            list.left_out()
        );
    }
    text
}

/// `batch_size 32 → 64`, `forward 2 GiB → 3 GiB (+1 GiB)`
fn in_a_line(cause: &Cause) -> String {
    let by = cause
        .bytes
        .map_or_else(String::new, |bytes| format!(" ({})", change(bytes)));
    format!(
        "{} {} → {}{by}",
        named(cause.name.raw()),
        value(cause.before.as_ref()),
        value(cause.after.as_ref())
    )
}

fn value(value: Option<&Foreign>) -> String {
    value.map_or_else(|| "none".to_owned(), |value| named(value.raw()))
}

fn row(model: &ModelDiff, figure: &FigureDiff) -> Vec<Cell> {
    let color = match figure.status {
        Some(Status::Fail | Status::Error) => Some(Color::Red),
        Some(Status::Warn) => Some(Color::Yellow),
        _ if figure.change.is_some_and(|change| change < 0) => Some(Color::Green),
        _ => None,
    };
    let change = figure.before.zip(figure.after);
    let word = named(word(model, figure).raw());
    let last = Cell::new(word);
    vec![
        Cell::new(format!("{}/{}", model.package, model.model)),
        Cell::new(&model.gpu),
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
