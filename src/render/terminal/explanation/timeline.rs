//! The drawing of memory over time: stacked categories, phases below, and the peak. The drawing always contains the
//! peak.

use anstyle::Style as Ansi;
use unicode_width::UnicodeWidthStr;

use super::categories::{legend, look, swatch};
use super::paper::{BAD, Canvas, Cut, DIM, STRONG, fit, place};
use crate::bytes::Bytes;
use crate::explain::{Border, Category, Explanation, MemoryTimeline};
use crate::report::Phase;
use crate::report::words::phase_name;

/// The rows of the drawing.
const ROWS: usize = 12;
/// The rows from one label of the axis to the next.
const LABEL_EVERY: usize = 4;
/// The parts of a character cell that can be filled, from below.
const PARTS: usize = 8;

/// Renders the timeline with a legend, at most as wide as the terminal.
pub(super) fn timeline(explanation: &Explanation, limit: Option<&(Bytes, String)>, paper: &Canvas) -> String {
    let drawing = drawing(explanation, limit, paper);
    if explanation.timeline.live.is_empty() {
        return drawing;
    }
    drawing + &key(explanation, paper)
}

/// Renders the timeline without a legend, for output that has one already.
pub(super) fn drawing(explanation: &Explanation, limit: Option<&(Bytes, String)>, paper: &Canvas) -> String {
    let timeline = &explanation.timeline;
    let title = "Over time";
    if timeline.live.is_empty() {
        return paper.heading(title, "") + &paper.prose(2, DIM, "no launch was observed");
    }
    let most = timeline
        .live
        .iter()
        .chain(&timeline.reserved)
        .max()
        .copied()
        .unwrap_or_default();
    // A limit far above the peak is not drawn, because it would flatten everything else.
    let drawn = limit.map(|(limit, _)| *limit).filter(|limit| limit.0 / 2 <= most.0);
    let scale = Scale::new(most.max(drawn.unwrap_or_default()));
    let labels: Vec<_> = (0..=ROWS / LABEL_EVERY).map(|at| scale.label(at)).collect();
    let margin = 2 + labels.iter().map(|label| label.width()).max().unwrap_or(0) + 2;
    let room = paper.columns().saturating_sub(margin).max(1);
    let columns = columns(timeline, room);

    let mut remark = "live memory by category, unused reserved above".to_owned();
    if let Some((_, written)) = limit {
        remark.push_str(&format!(", limit {written}"));
    }
    let mut text = paper.heading(title, &remark);
    text.push_str(&peak(explanation, &columns, margin, paper));
    let chart = Chart {
        timeline,
        columns: &columns,
        top: scale.top(),
        limit: drawn,
        paper,
    };
    for row in (0..ROWS).rev() {
        let is_limit = chart.limit_row() == Some(row);
        let label = ((row + 1) % LABEL_EVERY == 0)
            .then(|| labels.get((row + 1) / LABEL_EVERY))
            .flatten();
        let tick = match label {
            Some(_) => paper.glyph("┤", "+"),
            None => paper.glyph("│", "|"),
        };
        let label = label.map_or(if is_limit { "limit" } else { "" }, String::as_str);
        let style = if is_limit { BAD } else { DIM };
        text.push_str(&paper.paint(style, &format!("{label:>width$} {tick}", width = margin - 2)));
        text.push_str(&chart.row(row));
        text.push('\n');
    }
    text.push_str(&axis(
        timeline,
        &columns,
        margin,
        labels.first().map_or("", String::as_str),
        paper,
    ));
    text
}

/// A column of the drawing: the samples in it, represented by the one with the most live memory.
#[derive(Clone, Copy)]
struct TimelineColumn {
    from: usize,
    to: usize,
    /// The sample with the most live memory.
    sample: usize,
    /// The most reserved memory of all samples in the column.
    reserved: Bytes,
}

fn columns(timeline: &MemoryTimeline, room: usize) -> Vec<TimelineColumn> {
    let samples = timeline.live.len();
    let column = |at: usize| {
        let from = at * samples / room;
        // A short run has fewer samples than columns, so a sample may fill several of them.
        let to = ((at + 1) * samples / room).max(from + 1);
        // The sample with the most live memory stands for its column, so that the peak is drawn, however
        // short it is. A mean would show a moment that never happened. See docs/design/html-page.md.
        let live = |sample: &usize| timeline.live.get(*sample).copied().unwrap_or_default();
        // Reversed, because `max_by_key` returns the last of equals, and the first is wanted.
        let sample = (from..to).rev().max_by_key(live).unwrap_or(from);
        let reserved = timeline.reserved.get(from..to.min(timeline.reserved.len()));
        let reserved = reserved
            .and_then(|reserved| reserved.iter().max())
            .copied()
            .unwrap_or_default();
        TimelineColumn {
            from,
            to,
            sample,
            reserved,
        }
    };
    (0..room).map(column).collect()
}

/// An axis with round labels in one unit. Its last label is at least as high as all values, and at most half of it
/// above.
struct Scale {
    unit: Bytes,
    /// The distance between two labels, in hundredths of the unit.
    interval: u128,
}

impl Scale {
    fn new(most: Bytes) -> Self {
        // One unit for all labels, so that their numbers can be compared.
        let units = [Bytes::GIB, Bytes::MIB, Bytes::KIB];
        let unit = units.into_iter().find(|unit| most >= *unit).unwrap_or(Bytes(1));
        let labels = (ROWS / LABEL_EVERY) as u128;
        let wanted = (u128::from(most.0) * 100).div_ceil(u128::from(unit.0) * labels).max(1);
        let mut power = 1;
        let interval = loop {
            let round = [10, 12, 15, 20, 25, 30, 40, 50, 60, 80].map(|round| round * power);
            if let Some(round) = round.into_iter().find(|round| *round >= wanted) {
                break round;
            }
            power *= 10;
        };
        Self { unit, interval }
    }

    fn top(&self) -> u128 {
        (u128::from(self.unit.0) * self.interval * (ROWS / LABEL_EVERY) as u128 / 100).max(1)
    }

    fn label(&self, at: usize) -> String {
        let hundredths = self.interval * at as u128;
        let unit = match self.unit {
            Bytes::GIB => "GiB",
            Bytes::MIB => "MiB",
            Bytes::KIB => "KiB",
            _ => "B",
        };
        let (whole, part) = (hundredths / 100, hundredths % 100);
        match self.interval {
            _ if at == 0 => format!("0 {unit}"),
            interval if interval.is_multiple_of(100) => format!("{whole} {unit}"),
            interval if interval.is_multiple_of(10) => format!("{whole}.{} {unit}", part / 10),
            _ => format!("{whole}.{part:02} {unit}"),
        }
    }
}

/// The content of a part of a character cell.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Fill {
    Live(Category),
    Reserved,
    Nothing,
}

struct Chart<'a> {
    timeline: &'a MemoryTimeline,
    columns: &'a [TimelineColumn],
    top: u128,
    limit: Option<Bytes>,
    paper: &'a Canvas,
}

impl Chart<'_> {
    /// Renders one row. Adjacent cells with the same style share one escape sequence.
    fn row(&self, row: usize) -> String {
        let mut cells: Vec<(&str, Ansi)> = self.columns.iter().map(|column| self.cell(column, row)).collect();
        if self.limit_row() == Some(row) {
            for cell in &mut cells {
                if cell.0 == " " {
                    *cell = (self.paper.glyph("╌", "-"), BAD);
                }
            }
        }
        let end = cells
            .iter()
            .rposition(|(glyph, _)| *glyph != " ")
            .map_or(0, |at| at + 1);
        let mut text = String::new();
        for run in cells
            .get(..end)
            .unwrap_or_default()
            .chunk_by(|(_, one), (_, other)| one == other)
        {
            let glyphs: String = run.iter().map(|(glyph, _)| *glyph).collect();
            let style = run.first().map_or(Ansi::new(), |(_, style)| *style);
            text.push_str(&self.paper.paint(style, &glyphs));
        }
        text
    }

    fn limit_row(&self) -> Option<usize> {
        self.limit
            .map(|limit| self.parts(limit.0.into()).saturating_sub(1) / PARTS)
    }

    fn parts(&self, bytes: u128) -> usize {
        let all = (ROWS * PARTS) as u128;
        let parts = usize::try_from((bytes * all + self.top / 2) / self.top).unwrap_or(usize::MAX);
        // Memory that exists is always visible, however little it is.
        parts.max(usize::from(bytes > 0))
    }

    fn cell(&self, column: &TimelineColumn, row: usize) -> (&'static str, Ansi) {
        let mut fills = [Fill::Nothing; PARTS];
        let begin = row * PARTS;
        let mut put = |from: usize, to: usize, fill: Fill| {
            let (from, to) = (from.max(begin) - begin, to.clamp(begin, begin + PARTS) - begin);
            if let Some(parts) = fills.get_mut(from.min(PARTS)..to) {
                parts.fill(fill);
            }
        };
        let live = self.timeline.live.get(column.sample).copied().unwrap_or_default();
        let (live_parts, reserved_parts) = (self.parts(live.0.into()), self.parts(column.reserved.0.into()));
        put(live_parts, reserved_parts.max(live_parts), Fill::Reserved);
        // Live memory that no category contains is drawn as unattributed.
        put(0, live_parts, Fill::Live(Category::Unattributed));
        let (mut sum, mut drawn) = (0_u128, 0);
        for category in Category::STACK {
            let bytes = self
                .timeline
                .of(category)
                .get(column.sample)
                .copied()
                .unwrap_or_default();
            sum += u128::from(bytes.0);
            let until = if sum == 0 { 0 } else { self.parts(sum).min(live_parts) };
            put(drawn, until.max(drawn), Fill::Live(category));
            drawn = drawn.max(until);
        }
        self.glyph(&fills)
    }

    /// Returns the character of a cell. It shows at most two fills: the lowest one, and above it the largest other one.
    fn glyph(&self, fills: &[Fill; PARTS]) -> (&'static str, Ansi) {
        let most = |fills: &[Fill]| {
            let number = |fill: &Fill| fills.iter().filter(|other| *other == fill).count();
            fills.iter().rev().copied().max_by_key(number).unwrap_or(Fill::Nothing)
        };
        if !self.paper.color || !self.paper.unicode {
            let filled: Vec<_> = fills.iter().copied().filter(|fill| *fill != Fill::Nothing).collect();
            // A letter always fills its whole cell, so a cell at the upper edge gets one if it is at least half full.
            let any = filled.len() * 2 >= PARTS || fills.first() != Some(&Fill::Nothing) && self.is_bottom(fills);
            return match most(&filled) {
                fill if any => self.letter(fill),
                _ => (" ", Ansi::new()),
            };
        }
        let lower = fills.first().copied().unwrap_or(Fill::Nothing);
        let height = fills.iter().take_while(|fill| **fill == lower).count();
        let upper = most(fills.get(height..).unwrap_or_default());
        match lower {
            Fill::Nothing => (" ", Ansi::new()),
            // `░` has no partial heights, so a cell has it if it is at least half full.
            Fill::Reserved if height * 2 < PARTS => (" ", Ansi::new()),
            Fill::Reserved => ("░", look(Category::Fragmentation).style),
            Fill::Live(category) => {
                let style = look(category).style;
                let style = match upper {
                    // A block in one colour on a background of another shows two categories in one cell.
                    Fill::Live(upper) if height < PARTS => style.bg_color(look(upper).style.get_fg_color()),
                    _ => style,
                };
                (eighths(height), style)
            }
        }
    }

    /// Whether a cell has live memory at its bottom and no reserved memory above it.
    fn is_bottom(&self, fills: &[Fill; PARTS]) -> bool {
        matches!(fills.first(), Some(Fill::Live(_))) && fills.iter().all(|fill| *fill != Fill::Reserved)
    }

    fn letter(&self, fill: Fill) -> (&'static str, Ansi) {
        match fill {
            Fill::Nothing => (" ", Ansi::new()),
            Fill::Reserved => {
                let look = look(Category::Fragmentation);
                (swatch(Category::Fragmentation, self.paper), look.style)
            }
            Fill::Live(category) => (swatch(category, self.paper), look(category).style),
        }
    }
}

const fn eighths(height: usize) -> &'static str {
    match height {
        0 => " ",
        1 => "▁",
        2 => "▂",
        3 => "▃",
        4 => "▄",
        5 => "▅",
        6 => "▆",
        7 => "▇",
        _ => "█",
    }
}

/// Renders the line above the drawing: the place and the height of the peak.
fn peak(explanation: &Explanation, columns: &[TimelineColumn], margin: usize, paper: &Canvas) -> String {
    let peak = &explanation.peak;
    let sample = usize::try_from(peak.sample).unwrap_or(usize::MAX);
    let at = columns
        .iter()
        .position(|column| (column.from..column.to).contains(&sample))
        .unwrap_or(columns.len().saturating_sub(1));
    let mark = paper.glyph("▼", "v");
    let told = format!("peak {} in {}", paper.size(peak.live), place(peak.step, peak.phase));
    let (before, after) = (at, columns.len().saturating_sub(at + 1));
    // The text stands on the side of the mark that has room for it.
    let line = if after > told.width() || after >= before {
        format!(
            "{}{mark} {}",
            " ".repeat(margin + at),
            fit(&told, after.saturating_sub(1), Cut::End, paper.unicode)
        )
    } else {
        let told = fit(&told, before.saturating_sub(1), Cut::End, paper.unicode);
        format!(
            "{}{told} {mark}",
            " ".repeat((margin + at).saturating_sub(told.width() + 1))
        )
    };
    paper.paint(STRONG, line.trim_end()) + "\n"
}

/// Renders the axis at the bottom, with the phases and the steps below it.
fn axis(timeline: &MemoryTimeline, columns: &[TimelineColumn], margin: usize, zero: &str, paper: &Canvas) -> String {
    let column = |border: &Border| {
        let sample = usize::try_from(border.sample).unwrap_or(usize::MAX);
        columns
            .iter()
            .position(|column| (column.from..column.to).contains(&sample))
    };
    let borders: Vec<(usize, &Border)> = timeline
        .borders
        .iter()
        .filter_map(|border| column(border).map(|at| (at, border)))
        .collect();
    let mut ground: Vec<&str> = vec![paper.glyph("─", "-"); columns.len()];
    for (at, _) in &borders {
        if let Some(cell) = ground.get_mut(*at) {
            *cell = paper.glyph("┬", "+");
        }
    }
    let corner = paper.glyph("└", "+");
    let mut text = paper.paint(
        DIM,
        &format!("{zero:>width$} {corner}{}", ground.concat(), width = margin - 2),
    );
    text.push('\n');
    let phases: Vec<_> = borders.iter().map(|(at, border)| (*at, short(border.phase))).collect();
    text.push_str(&labels(&phases, columns.len(), margin, paper));
    let mut steps: Vec<(usize, Vec<String>)> = Vec::new();
    let mut before = None;
    for (at, border) in &borders {
        // A step begins at its first phase; its other phases need no number.
        if before != Some(border.step) {
            let names = border.step.map_or_else(
                || vec!["before".to_owned()],
                |step| vec![format!("step {step}"), step.to_string()],
            );
            steps.push((*at, names));
        }
        before = Some(border.step);
    }
    text.push_str(&labels(&steps, columns.len(), margin, paper));
    text
}

/// Returns the names of a phase, the longest first.
fn short(phase: Phase) -> Vec<String> {
    let shorter: &[&str] = match phase {
        Phase::Context => &["ctx"],
        Phase::Model => &["mod"],
        Phase::Batch => &["bat"],
        Phase::Forward => &["forw", "fwd", "fw"],
        Phase::Backward => &["backw", "bwd", "bw"],
        Phase::Optimizer => &["optim", "opt", "op"],
        Phase::Training => &["train", "tr"],
        Phase::Validation => &["valid", "val"],
        Phase::Between => &["betw"],
    };
    let names = std::iter::once(phase_name(phase)).chain(shorter.iter().copied());
    names.map(str::to_owned).collect()
}

/// Renders a line of names, each at the start of its part. Names without room are left out.
fn labels(parts: &[(usize, Vec<String>)], columns: usize, margin: usize, paper: &Canvas) -> String {
    let mut line = " ".repeat(margin);
    let mut used = 0;
    for (index, (at, names)) in parts.iter().enumerate() {
        let end = parts.get(index + 1).map_or(columns, |(next, _)| *next);
        // If two parts begin in the same column, only the later name is shown.
        if *at < used || end <= *at {
            continue;
        }
        // A blank separates a name from the next one. The last name has no next one.
        let last = end == columns;
        let room = end - at;
        line.push_str(&" ".repeat(at - used));
        used = *at;
        let name = names.iter().find(|name| name.width() + usize::from(!last) <= room);
        if let Some(name) = name {
            line.push_str(name);
            used += name.width();
        }
    }
    let line = line.trim_end();
    if line.is_empty() {
        String::new()
    } else {
        paper.paint(DIM, line) + "\n"
    }
}

/// Renders the legend of all categories that the timeline contains.
fn key(explanation: &Explanation, paper: &Canvas) -> String {
    let seen = |category: &Category| explanation.timeline.holds(*category);
    let categories = Category::STACK
        .into_iter()
        .filter(seen)
        .chain([Category::Fragmentation]);
    legend(categories, paper)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn labels_are_round_and_the_highest_is_within() {
        let shown = |bytes: u64| {
            let scale = Scale::new(Bytes(bytes));
            assert!(scale.top() >= u128::from(bytes));
            (scale.label(1), scale.label(3))
        };
        let gib = 1 << 30;
        let is = |one: &str, three: &str| (one.to_owned(), three.to_owned());
        assert_eq!(shown(6 * gib), is("2 GiB", "6 GiB"));
        assert_eq!(shown(7 * gib), is("2.5 GiB", "7.5 GiB"));
        assert_eq!(shown(gib), is("0.4 GiB", "1.2 GiB"));
        assert_eq!(shown(gib - 1), is("400 MiB", "1200 MiB"));
        assert_eq!(shown(143_156 << 20), is("50 GiB", "150 GiB"));
        assert_eq!(shown(0), is("0.1 B", "0.3 B"));
    }
}
