//! What memory is held for, and its colours.

use anstyle::Style as Ansi;
use unicode_width::UnicodeWidthStr;

use super::grid::{Cell, Column, Grid};
use super::paper::{Cut, DIM, NOTICE, PLAIN, Paper, STRONG, fit, place, shade};
use crate::bytes::Bytes;
use crate::explain::{Category, Explanation};
use crate::report::Pass;
use crate::report::palette;

/// How a category is told.
pub(super) struct Look {
    pub(super) name: &'static str,
    /// Where there are no colours.
    pub(super) letter: &'static str,
    pub(super) style: Ansi,
}

/// Name and colour are those of every picture, and only the letter is the terminal's own.
pub(super) fn look(category: Category) -> Look {
    let letter = match category {
        Category::Parameter => "P",
        Category::Buffer => "B",
        Category::Gradient => "G",
        Category::OptimizerState => "O",
        Category::Activation => "A",
        Category::ActivationGradient => "D",
        Category::Input => "I",
        Category::Workspace => "W",
        Category::Alignment => "/",
        Category::Unattributed => "?",
        Category::Fragmentation => ":",
        Category::Context => "C",
        Category::Modules => "M",
    };
    let swatch = palette::category(category);
    Look {
        name: swatch.label,
        letter,
        style: shade(swatch.terminal()),
    }
}

/// A bar of the process's memory at its peak, and a table that adds up to it.
pub(super) fn categories(explanation: &Explanation, paper: &Paper) -> String {
    let peak = &explanation.peak;
    let mut text = paper.heading("At the peak of live", &place(peak.step, peak.phase));
    text.push_str(&bar(explanation, paper));
    let mut grid = Grid::new([
        Column::left(""),
        Column::left("").close(),
        Column::right(""),
        Column::right(""),
        Column::left("").expendable(1),
    ]);
    let row = |grid: &mut Grid, swatch: Cell, name: &str, bytes: Bytes, style: Ansi| {
        let share = share(bytes, peak.process);
        let style = if bytes == Bytes(0) { DIM } else { style };
        grid.row([
            swatch,
            Cell::from(name).styled(style),
            Cell::from(paper.size(bytes)).styled(style),
            Cell::from(share).styled(style),
        ]);
    };
    let mut empty = Vec::new();
    let mut shown = |grid: &mut Grid, wanted: &dyn Fn(Category) -> bool| {
        let mut sum = Bytes(0);
        for held in peak.categories.iter().filter(|held| wanted(held.category)) {
            if held.bytes == Bytes(0) && paper.is_for_people() {
                empty.push(look(held.category).name);
                continue;
            }
            let look = look(held.category);
            row(
                grid,
                Cell::from(swatch(held.category, paper)).styled(look.style),
                look.name,
                held.bytes,
                PLAIN,
            );
            sum += held.bytes;
        }
        sum
    };
    let total = |grid: &mut Grid, name: &str, bytes: Bytes, sum: Bytes| {
        row(grid, Cell::from(""), name, bytes, STRONG);
        if sum != bytes {
            let wrong = format!("what is above adds up to {}", paper.size(sum));
            grid.remark(wrong, NOTICE);
        }
    };
    let live = shown(&mut grid, &Category::is_live);
    total(&mut grid, "live", peak.live, live);
    let unused = shown(&mut grid, &|category| category == Category::Fragmentation);
    total(&mut grid, "reserved", peak.reserved, peak.live + unused);
    let outside = shown(&mut grid, &|category| {
        matches!(category, Category::Context | Category::Modules)
    });
    total(&mut grid, "process", peak.process, peak.reserved + outside);
    text.push_str(&grid.draw(paper));
    if !empty.is_empty() {
        text.push_str(&paper.prose(4, DIM, &format!("nothing for {}", empty.join(", "))));
    }
    text.push_str(&later(explanation, paper));
    text
}

/// Where more is reserved than at live's peak.
fn later(explanation: &Explanation, paper: &Paper) -> String {
    let most = explanation.run.peaks.warm.reserved.unwrap_or_default();
    if most <= explanation.peak.reserved {
        return String::new();
    }
    let mut warm = explanation.phases.iter().filter(|row| row.pass != Pass::Cold);
    let first = warm.find(|row| row.reserved_peak >= most);
    let place = first.map_or_else(String::new, |row| format!(", first in {}", place(row.step, row.phase)));
    paper.prose(
        4,
        DIM,
        &format!("reserved comes to {} at most{place}", paper.size(most)),
    )
}

/// What a category is drawn with.
pub(super) fn swatch(category: Category, paper: &Paper) -> &'static str {
    match (paper.color, paper.unicode) {
        (true, true) if matches!(category, Category::Fragmentation) => "░",
        (true, true) => "█",
        (true, false) => "#",
        (false, _) => look(category).letter,
    }
}

/// What is drawn with what, on as many lines as it takes.
pub(super) fn legend(categories: impl Iterator<Item = Category>, paper: &Paper) -> String {
    let mut text = String::new();
    let mut used = 0;
    for category in categories {
        let (swatch, look) = (swatch(category, paper), look(category));
        let name = fit(look.name, paper.columns().saturating_sub(4), Cut::End, paper.unicode);
        let width = swatch.width() + 1 + name.width();
        if used > 0 && used + 2 + width > paper.columns() {
            text.push('\n');
            used = 0;
        }
        text.push_str(&format!("  {} {}", paper.paint(look.style, swatch), name));
        used += 2 + width;
    }
    text + "\n"
}

/// All categories side by side, over the whole width; each cell is that of which it has the most.
fn bar(explanation: &Explanation, paper: &Paper) -> String {
    let indent = 2;
    let room = paper.columns().saturating_sub(2 * indent).min(100) as u128;
    let whole = u128::from(explanation.peak.process.0);
    if whole == 0 || room == 0 {
        return String::new();
    }
    // Where each begins and ends, in parts of a byte, of which a cell has as many as there are bytes.
    let mut before = 0;
    let mut held = Vec::new();
    for of in &explanation.peak.categories {
        let end = before + u128::from(of.bytes.0) * room;
        held.push((before, end, of.category));
        before = end;
    }
    let cell = |at: u128| {
        let (from, to) = (at * whole, (at + 1) * whole);
        let within = |(begin, end, _): &&(u128, u128, Category)| end.min(&to).saturating_sub(*begin.max(&from));
        let most = held.iter().rev().max_by_key(within).filter(|held| within(held) > 0);
        most.map(|(_, _, category)| *category)
    };
    let cells: Vec<_> = (0..room).map_while(cell).collect();
    let mut text = " ".repeat(indent);
    for same in cells.chunk_by(|one, other| one == other) {
        let Some(category) = same.first() else { continue };
        let glyphs = swatch(*category, paper).repeat(same.len());
        text.push_str(&paper.paint(look(*category).style, &glyphs));
    }
    text + "\n"
}

/// A part of a whole in percent, to the tenth, so that they stand below each other: `5.0 %`.
pub(super) fn share(part: Bytes, whole: Bytes) -> String {
    let (part, whole) = (u128::from(part.0), u128::from(whole.0));
    if whole == 0 {
        return String::new();
    }
    match (part * 1000 + whole / 2) / whole {
        0 if part > 0 => "<0.1 %".to_owned(),
        tenths => format!("{}.{} %", tenths / 10, tenths % 10),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_share_has_one_decimal_and_is_never_nothing_by_rounding() {
        let shown = |part, whole| share(Bytes(part), Bytes(whole));
        assert_eq!(
            [shown(1, 20), shown(1, 3), shown(1, 1 << 40), shown(0, 5), shown(7, 7)],
            ["5.0 %", "33.3 %", "<0.1 %", "0.0 %", "100.0 %"]
        );
        assert_eq!(shown(1, 0), "");
    }
}
