//! The difference between a what-if and the original model.

use super::categories::look;
use super::grid::{Cell, Column, Grid};
use super::paper::{Canvas, DIM, NOTICE, PLAIN, STRONG};
use crate::bytes::Bytes;
use crate::explain::Explanation;
use crate::report::change::{signed, signed_percent};

/// Renders the differences by category, each model at its own peak of live memory. Returns nothing without a what-if.
pub(super) fn changed(explanation: &Explanation, paper: &Canvas) -> String {
    if explanation.changed.is_empty() {
        return String::new();
    }
    let what_if = explanation.run.what_if.to_string();
    let mut text = paper.heading(
        &format!("What {what_if} changes"),
        "each at its own peak of live memory",
    );
    let mut grid = Grid::new([
        Column::left(""),
        Column::right("original"),
        Column::right("what-if"),
        Column::right("change"),
    ]);
    let mut row = |name: &str, before: Bytes, after: Bytes, style| {
        let percent = signed_percent(before, after).map_or_else(String::new, |percent| format!(" ({percent})"));
        grid.row([
            Cell::from(name).styled(style),
            Cell::from(paper.size(before)).styled(style),
            Cell::from(paper.size(after)).styled(style),
            Cell::from(format!("{}{percent}", signed(before, after))).styled(style),
        ]);
    };
    let sum = |of: fn(&crate::explain::Changed) -> Bytes| -> Bytes {
        let live = explanation.changed.iter().filter(|changed| changed.category.is_live());
        live.map(of).sum()
    };
    let (before, after) = (sum(|changed| changed.before), sum(|changed| changed.after));
    if explanation
        .changed
        .iter()
        .all(|changed| changed.before == changed.after)
    {
        text.push_str(&paper.prose(2, NOTICE, "no effect: every category holds the same memory"));
        // In words, because that a what-if changes nothing is a result to notice.
        return text;
    }
    for changed in explanation.changed.iter().filter(|changed| changed.category.is_live()) {
        if (changed.before, changed.after) == (Bytes(0), Bytes(0)) {
            continue;
        }
        let style = if changed.before == changed.after { DIM } else { PLAIN };
        row(look(changed.category).name, changed.before, changed.after, style);
    }
    row("live", before, after, STRONG);
    text.push_str(&grid.draw(paper));
    text
}
