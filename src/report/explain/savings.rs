//! What would take less, and at what cost.

use super::grid::{Cell, Column, Grid};
use super::paper::{BAD, Cut, DIM, GOOD, PLAIN, Paper, STRONG};
use crate::explain::{Explanation, Saving};
use crate::report::human::text::words;
use crate::report::savings::{OPEN, idle, is_reserved_open, known_from, shown};

/// The columns of reserved.
const RESERVED: [usize; 2] = [3, 4];

/// Each change with what is left, what is saved, and below it what it costs.
pub(super) fn savings(explanation: &Explanation, paper: &Paper) -> String {
    let peak = &explanation.peak;
    // The most that was reserved, which the changes are compared with: it may be reserved after the peak of live.
    let reserved = explanation.run.peaks.warm.reserved.unwrap_or(peak.reserved);
    let now = format!("now {} live, {} reserved", paper.size(peak.live), paper.size(reserved));
    let heading = paper.heading("What would take less", &now);
    if explanation.savings.is_empty() {
        return heading + &paper.prose(2, PLAIN, "nothing was found");
    }
    let mut grid = Grid::new([
        Column::left("change").cut(Cut::End, 32),
        Column::right("then").of("live").expendable(3),
        Column::right("saved").of("live").expendable(1),
        Column::right("then").of("reserved").expendable(4),
        Column::right("saved").of("reserved").expendable(2),
        Column::left("known from"),
    ]);
    // What has no figure is no row of a table of figures.
    let figures = |saving: &&Saving| saving.live.or(saving.reserved).is_some() || saving.saved_live.is_some();
    let (rows, sentences): (Vec<_>, Vec<_>) = shown(&explanation.savings).partition(figures);
    for saving in &rows {
        let saved = |saved: Option<i64>| match saved {
            None => Cell::from(paper.none()).styled(DIM),
            Some(saved @ 1..) => Cell::from(paper.change(saved).replacen('+', "", 1)).styled(GOOD),
            Some(0) => Cell::from(paper.change(0)).styled(DIM),
            Some(saved) => Cell::from(paper.change(saved)).styled(BAD),
        };
        grid.row([
            Cell::from(paper.name(&saving.change)).styled(STRONG),
            Cell::from(paper.known(saving.live)),
            saved(saving.saved_live),
            Cell::from(paper.known(saving.reserved)),
            saved(saving.saved_reserved),
            Cell::from(known_from(saving.certainty)).styled(DIM),
        ]);
        let below: Vec<_> = [below(saving), saving.note.as_deref().map(words)]
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
        let told = [below(saving), saving.note.as_deref().map(words)];
        let told: Vec<_> = told.into_iter().flatten().collect();
        let change = words(&saving.change);
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

/// What a change costs; nothing where it costs nothing.
fn below(saving: &Saving) -> Option<String> {
    (!saving.cost.is_empty()).then(|| format!("costs: {}", words(&saving.cost)))
}
