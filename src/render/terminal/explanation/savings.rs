//! Changes that save memory, and their costs.

use super::grid::{Cell, Column, Grid};
use super::paper::{BAD, Canvas, Cut, DIM, GOOD, PLAIN, STRONG};
use crate::explain::{Explanation, Saving};
use crate::render::savings::{OPEN, idle, is_reserved_open, known_from, shown};
use crate::untrusted::{Foreign, words};

/// The indices of the columns of reserved memory.
const RESERVED: [usize; 2] = [3, 4];

/// Renders each change with the memory after it and the memory it saves. The cost is below each row.
pub(super) fn savings(explanation: &Explanation, paper: &Canvas) -> String {
    let peak = &explanation.peak;
    // Changes are compared with the peak of reserved memory, which may come after the peak of live memory.
    let reserved = explanation.run.peaks.warm.reserved.unwrap_or(peak.reserved);
    let now = format!("now {} live, {} reserved", paper.size(peak.live), paper.size(reserved));
    let heading = paper.heading("Savings", &now);
    if explanation.savings.is_empty() {
        return heading + &paper.prose(2, PLAIN, "no savings found");
    }
    let mut grid = Grid::new([
        Column::left("change").cut(Cut::End, 32),
        Column::right("after").of("live").expendable(3),
        Column::right("saved").of("live").expendable(1),
        Column::right("after").of("reserved").expendable(4),
        Column::right("saved").of("reserved").expendable(2),
        Column::left("based on"),
    ]);
    // A saving without any value is written as a sentence below the table.
    let figures = |saving: &&Saving| saving.live.or(saving.reserved).is_some() || saving.saved_live.is_some();
    let (rows, sentences): (Vec<_>, Vec<_>) = shown(&explanation.savings).partition(figures);
    for saving in &rows {
        let saved = |saved: Option<i64>| match saved {
            None => Cell::from(paper.none()).styled(DIM),
            // The column says "saved", so a plus would be read as more memory.
            Some(saved @ 1..) => Cell::from(paper.change(saved).replacen('+', "", 1)).styled(GOOD),
            Some(0) => Cell::from(paper.change(0)).styled(DIM),
            Some(saved) => Cell::from(paper.change(saved)).styled(BAD),
        };
        grid.row([
            Cell::from(paper.name(saving.change.raw())).styled(STRONG),
            Cell::from(paper.known(saving.live)),
            saved(saving.saved_live),
            Cell::from(paper.known(saving.reserved)),
            saved(saving.saved_reserved),
            Cell::from(known_from(saving.certainty)).styled(DIM),
        ]);
        let below: Vec<_> = [below(saving), saving.note.as_ref().map(Foreign::raw).map(words)]
            .into_iter()
            .flatten()
            .collect();
        if !below.is_empty() {
            grid.remark(below.join(paper.dot()), DIM);
        }
    }
    let mut text = heading;
    if !rows.is_empty() {
        text.push_str(&grid.draw(paper));
    }
    for saving in sentences {
        let told = [below(saving), saving.note.as_ref().map(Foreign::raw).map(words)];
        let told: Vec<_> = told.into_iter().flatten().collect();
        let change = saving.change.on_terminal();
        text.push_str(&match told.is_empty() {
            true => paper.prose(2, PLAIN, &change),
            false => paper.prose(2, PLAIN, &format!("{change}: {}", told.join(paper.dot()))),
        });
    }
    if is_reserved_open(&explanation.savings) && RESERVED.iter().any(|column| grid.shows(*column, paper)) {
        text.push_str(&paper.prose(2, DIM, &format!("{} {OPEN}", paper.none())));
    }
    if let Some(idle) = idle(&explanation.savings) {
        text.push_str(&paper.prose(2, DIM, &words(&idle)));
    }
    text
}

/// Returns the cost of a change; nothing if it has no cost.
fn below(saving: &Saving) -> Option<String> {
    (!saving.cost.is_empty()).then(|| format!("cost: {}", saving.cost.on_terminal()))
}
