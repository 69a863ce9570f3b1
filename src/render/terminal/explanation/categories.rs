//! Memory by category, and how categories are drawn.

use anstyle::Style as Ansi;
use unicode_width::UnicodeWidthStr;

use super::grid::{Cell, Column, Grid};
use super::paper::{Canvas, Cut, DIM, NOTICE, PLAIN, STRONG, fit, place, shade};
use crate::bytes::Bytes;
use crate::explain::{Category, Explanation};
use crate::render::palette;
use crate::report::Pass;

/// How a category is drawn.
pub(super) struct CategoryStyle {
    pub(super) name: &'static str,
    /// The letter that is drawn if there are no colours.
    pub(super) letter: &'static str,
    pub(super) style: Ansi,
}

/// Returns how a category is drawn. Its name and colour are the same as in all pictures; only the terminal has letters.
pub(super) fn look(category: Category) -> CategoryStyle {
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
    CategoryStyle {
        name: swatch.label,
        letter,
        style: shade(swatch.terminal()),
    }
}

/// Renders a bar of the process's memory at the peak of live memory, and a table that adds up to it.
pub(super) fn categories(explanation: &Explanation, paper: &Canvas) -> String {
    let peak = &explanation.peak;
    let mut text = paper.heading("At the peak of live memory", &place(peak.step, peak.phase));
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
            // People read a short table. A program gets every row, so that it finds each by its name.
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
        // A file may contradict itself. The table says so, because its purpose is to add up.
        if sum != bytes {
            let wrong = format!("the rows above add up to {}", paper.size(sum));
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
        text.push_str(&paper.prose(4, DIM, &format!("empty: {}", empty.join(", "))));
    }
    text.push_str(&later(explanation, paper));
    text
}

/// Renders the peak of reserved memory if it is higher than reserved memory at the peak of live memory.
fn later(explanation: &Explanation, paper: &Canvas) -> String {
    // Reserved memory may peak later than live memory, and budgets
    // limit that peak. The table shows one moment.
    let most = explanation.run.peaks.warm.reserved.unwrap_or_default();
    if most <= explanation.peak.reserved {
        return String::new();
    }
    let mut warm = explanation.phases.iter().filter(|row| row.pass != Pass::Cold);
    let first = warm.find(|row| row.reserved_peak >= most);
    let place = first.map_or_else(String::new, |row| format!(", first in {}", place(row.step, row.phase)));
    paper.prose(4, DIM, &format!("reserved memory peaks at {}{place}", paper.size(most)))
}

/// Returns the character that a category is drawn with.
pub(super) fn swatch(category: Category, paper: &Canvas) -> &'static str {
    match (paper.color, paper.unicode) {
        (true, true) if matches!(category, Category::Fragmentation) => "░",
        (true, true) => "█",
        (true, false) => "#",
        // Without colours, only letters tell categories apart.
        (false, _) => look(category).letter,
    }
}

/// Renders a legend of categories on as many lines as needed.
pub(super) fn legend(categories: impl Iterator<Item = Category>, paper: &Canvas) -> String {
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

/// Renders all categories side by side over the whole width. Each cell shows the category with the most bytes in it.
fn bar(explanation: &Explanation, paper: &Canvas) -> String {
    let indent = 2;
    let room = paper.columns().saturating_sub(2 * indent).min(100) as u128;
    let whole = u128::from(explanation.peak.process.0);
    if whole == 0 || room == 0 {
        return String::new();
    }
    // The start and end of each category, multiplied by `room`. In this unit, a cell is `whole` wide, so all values are
    // integers.
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
        // Reversed, because `max_by_key` returns the last of equals, and the first is wanted.
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

/// Formats a part of a whole in percent, always with one decimal so that the values align: `5.0 %`.
pub(super) fn share(part: Bytes, whole: Bytes) -> String {
    let (part, whole) = (u128::from(part.0), u128::from(whole.0));
    if whole == 0 {
        return String::new();
    }
    match (part * 1000 + whole / 2) / whole {
        // What exists never shows as nothing.
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
