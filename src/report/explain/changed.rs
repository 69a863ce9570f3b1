//! What a what-if changes, against the model as it is.

use super::categories::look;
use super::grid::{Cell, Column, Grid};
use super::paper::{DIM, NOTICE, PLAIN, Paper, STRONG};
use crate::bytes::Bytes;
use crate::explain::Explanation;
use crate::report::change::{signed, signed_percent};

/// By category, at each one's peak of live; nothing of a model that is as it is.
pub(super) fn changed(explanation: &Explanation, paper: &Paper) -> String {
    if explanation.changed.is_empty() {
        return String::new();
    }
    let what_if = explanation.run.what_if.to_string();
    let mut text = paper.heading(&format!("What {what_if} changes"), "at each one's peak of live");
    let mut grid = Grid::new([
        Column::left(""),
        Column::right("as it is"),
        Column::right("so"),
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
        text.push_str(&paper.prose(2, NOTICE, "no effect: nothing is held for anything else"));
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
