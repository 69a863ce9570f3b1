//! What would take less, and at what cost.

use super::grid::{Cell, Column, Grid};
use super::paper::{BAD, Cut, DIM, GOOD, PLAIN, Paper, STRONG};
use crate::explain::Explanation;
use crate::report::human::text::words;
use crate::report::savings::{OPEN, idle, is_reserved_open, known_from, shown};

/// The columns of reserved.
const RESERVED: [usize; 2] = [3, 4];

/// Each change with what is left, what is saved, and below it what it costs.
pub(super) fn savings(explanation: &Explanation, paper: &Paper) -> String {
    let peak = &explanation.peak;
    let now = format!(
        "now {} live, {} reserved",
        paper.size(peak.live),
        paper.size(peak.reserved)
    );
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
    for saving in shown(&explanation.savings) {
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
        let mut below = Vec::new();
        if !saving.cost.is_empty() {
            below.push(format!("costs: {}", words(&saving.cost)));
        }
        below.extend(saving.note.as_deref().map(words));
        if !below.is_empty() {
            grid.remark(below.join(paper.dot()), DIM);
        }
    }
    let mut text = heading + &grid.draw(paper);
    if is_reserved_open(&explanation.savings) && RESERVED.iter().any(|column| grid.shows(*column, paper)) {
        text.push_str(&paper.prose(2, DIM, &format!("{} {OPEN}", paper.none())));
    }
    if let Some(idle) = idle(&explanation.savings) {
        text.push_str(&paper.prose(2, DIM, &words(&idle)));
    }
    text
}
