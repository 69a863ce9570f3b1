//! Tables with exactly one line per row. If a table is too wide, names are cut first. Then columns are left out, the
//! least important first.
//!
//! Reports use comfy-table, which breaks cells into several lines and cannot leave out columns. The tables of an
//! explanation have hundreds of rows, which would be unreadable with broken cells.

use anstyle::Style as Ansi;
use unicode_width::UnicodeWidthStr;

use super::paper::{Canvas, Cut, DIM, PLAIN, fit};

/// The blanks before a row.
const INDENT: usize = 2;
/// The blanks between two columns.
const GAP: usize = 2;

/// A column of a table.
pub(super) struct Column {
    name: &'static str,
    group: &'static str,
    right: bool,
    /// Where texts are cut, and the width they keep while another column can be left out instead.
    cut: Option<(Cut, usize)>,
    /// The order in which columns are left out, the highest first; 0 is never left out.
    expendable: u8,
    gap: usize,
}

impl Column {
    /// Creates a column that is aligned to the right, for numbers.
    pub(super) const fn right(name: &'static str) -> Self {
        Self {
            right: true,
            ..Self::left(name)
        }
    }

    /// Creates a column that is aligned to the left, for words.
    pub(super) const fn left(name: &'static str) -> Self {
        Self {
            name,
            group: "",
            right: false,
            cut: None,
            expendable: 0,
            gap: GAP,
        }
    }

    /// Reduces the gap to the column before to one blank.
    pub(super) const fn close(mut self) -> Self {
        self.gap = 1;
        self
    }

    pub(super) const fn cut(mut self, cut: Cut, least: usize) -> Self {
        self.cut = Some((cut, least));
        self
    }

    pub(super) const fn expendable(mut self, order: u8) -> Self {
        self.expendable = order;
        self
    }

    /// Sets the group. Adjacent columns of a group have a common heading above their own headings.
    pub(super) const fn of(mut self, group: &'static str) -> Self {
        self.group = group;
        self
    }
}

/// The content of a column in one row.
#[derive(Clone)]
pub(super) struct Cell {
    text: String,
    style: Ansi,
}

impl Cell {
    pub(super) fn styled(mut self, style: Ansi) -> Self {
        self.style = style;
        self
    }

    /// Indents the text by this many columns.
    pub(super) fn indented(mut self, columns: usize) -> Self {
        self.text.insert_str(0, &" ".repeat(columns));
        self
    }
}

impl<T: Into<String>> From<T> for Cell {
    fn from(text: T) -> Self {
        Self {
            text: text.into(),
            style: PLAIN,
        }
    }
}

enum GridRow {
    Cells(Vec<Cell>),
    /// A horizontal line.
    Rule,
    /// A text below the previous row, across all columns.
    Remark(String, Ansi),
}

/// A table.
pub(super) struct Grid {
    columns: Vec<Column>,
    rows: Vec<GridRow>,
    indent: usize,
}

impl Grid {
    pub(super) fn new(columns: impl Into<Vec<Column>>) -> Self {
        Self {
            columns: columns.into(),
            rows: Vec::new(),
            indent: INDENT,
        }
    }

    pub(super) fn row(&mut self, cells: impl Into<Vec<Cell>>) {
        self.rows.push(GridRow::Cells(cells.into()));
    }

    pub(super) fn rule(&mut self) {
        self.rows.push(GridRow::Rule);
    }

    pub(super) fn remark(&mut self, text: String, style: Ansi) {
        self.rows.push(GridRow::Remark(text, style));
    }

    /// Renders the table. It has a line of headings if any column has a heading.
    pub(super) fn draw(&self, paper: &Canvas) -> String {
        let shown = self.fitted(paper.width);
        let mut text = String::new();
        if self.columns.iter().any(|column| !column.group.is_empty()) {
            text.push_str(&self.groups(&shown, paper));
        }
        if self.columns.iter().any(|column| !column.name.is_empty()) {
            let names: Vec<_> = self
                .columns
                .iter()
                .map(|column| Cell::from(column.name).styled(DIM))
                .collect();
            text.push_str(&self.line(&names, &shown, true, paper));
        }
        for row in &self.rows {
            match row {
                GridRow::Cells(cells) => text.push_str(&self.line(cells, &shown, false, paper)),
                GridRow::Rule => {
                    let room = paper.columns().saturating_sub(self.indent);
                    let rule = paper.glyph("─", "-").repeat(self.taken(&shown).min(room));
                    text.push_str(&" ".repeat(self.indent));
                    text.push_str(&paper.paint(DIM, &rule));
                    text.push('\n');
                }
                GridRow::Remark(remark, style) => text.push_str(&paper.prose(self.indent * 2, *style, remark)),
            }
        }
        text
    }

    /// Whether the table has room for a column.
    pub(super) fn shows(&self, column: usize, paper: &Canvas) -> bool {
        self.fitted(paper.width).iter().any(|(at, _)| *at == column)
    }

    /// Returns the indices and widths of the columns to show.
    fn fitted(&self, width: Option<usize>) -> Vec<(usize, usize)> {
        let mut shown: Vec<_> = self.natural().into_iter().enumerate().collect();
        let Some(room) = width.map(|width| width.saturating_sub(self.indent)) else {
            return shown;
        };
        loop {
            let wanted = shown.clone();
            self.shrink(&mut shown, room, usize::max);
            if self.taken(&shown) <= room {
                return shown;
            }
            // Start again from the natural widths: names may use the room of the column that goes.
            shown = wanted;
            let expendable = |at: usize| self.columns.get(at).map_or(0, |column| column.expendable);
            let Some(most) = shown
                .iter()
                .map(|(at, _)| expendable(*at))
                .max()
                .filter(|most| *most > 0)
            else {
                break;
            };
            shown.retain(|(at, _)| expendable(*at) != most);
        }
        // No column can be left out any more: cut texts further, and headings last.
        self.shrink(&mut shown, room, |_, heading| heading.max(1));
        self.shrink(&mut shown, room, |_, _| 1);
        shown
    }

    /// Narrows the widest column that can be cut, until all columns fit or none can be narrowed further.
    ///
    /// `least` returns the smallest width of a column from its comfortable width and the width of its heading.
    fn shrink(&self, shown: &mut [(usize, usize)], room: usize, least: impl Fn(usize, usize) -> usize) {
        while self.taken(shown) > room {
            let widest = shown
                .iter_mut()
                .filter(|(at, width)| {
                    let column = self.columns.get(*at);
                    let cut = column.and_then(|column| Some((column.name.width(), column.cut?)));
                    cut.is_some_and(|(heading, (_, comfortable))| *width > least(comfortable, heading))
                })
                .max_by_key(|(_, width)| *width);
            let Some((_, width)) = widest else { return };
            // One column at a time, so that several wide columns end up equally wide.
            *width -= 1;
        }
    }

    fn natural(&self) -> Vec<usize> {
        // Each column must have room for the heading of its group, because it may be the only column left of the group.
        let heading = |column: &Column| column.name.width().max(column.group.width());
        let mut widths: Vec<_> = self.columns.iter().map(heading).collect();
        for row in &self.rows {
            let GridRow::Cells(cells) = row else { continue };
            for (width, cell) in widths.iter_mut().zip(cells) {
                *width = (*width).max(cell.text.width());
            }
        }
        widths
    }

    fn gap(&self, at: usize) -> usize {
        self.columns.get(at).map_or(GAP, |column| column.gap)
    }

    fn taken(&self, shown: &[(usize, usize)]) -> usize {
        let gaps: usize = shown.iter().skip(1).map(|(at, _)| self.gap(*at)).sum();
        shown.iter().map(|(_, width)| width).sum::<usize>() + gaps
    }

    fn line(&self, cells: &[Cell], shown: &[(usize, usize)], is_heading: bool, paper: &Canvas) -> String {
        let mut line = String::new();
        // Blanks are written only before a text, so that no line ends with blanks.
        let mut blanks = self.indent;
        let mut left = paper.width.unwrap_or(usize::MAX);
        for (at, (column, width)) in shown.iter().enumerate() {
            let (Some(cell), Some(column)) = (cells.get(*column), self.columns.get(*column)) else {
                continue;
            };
            if at > 0 {
                blanks += column.gap;
            }
            // A heading is always cut at its end, because its start distinguishes it from others.
            let cut = column.cut.filter(|_| !is_heading).map_or(Cut::End, |(cut, _)| cut);
            let text = fit(&cell.text, *width, cut, paper.unicode);
            let padding = width - text.width();
            if text.is_empty() {
                blanks += padding;
                continue;
            }
            if column.right {
                blanks += padding;
            }
            left = left.saturating_sub(blanks);
            let text = fit(&text, left, Cut::End, paper.unicode);
            left -= text.width();
            let words = text.trim_end();
            let after = text.width() - words.width();
            if !words.is_empty() {
                line.push_str(&" ".repeat(blanks));
                line.push_str(&paper.paint(cell.style, words));
                blanks = 0;
            }
            // Trailing blanks of the text are not written yet, so they take no room.
            left += after;
            blanks += after + if column.right { 0 } else { padding };
        }
        line.push('\n');
        line
    }

    /// Renders the line above the headings: the name of each group, centred over its columns.
    fn groups(&self, shown: &[(usize, usize)], paper: &Canvas) -> String {
        let mut line = " ".repeat(self.indent);
        let group = |at: &usize| self.columns.get(*at).map_or("", |column| column.group);
        let mut end = self.indent;
        let mut first = true;
        for columns in shown.chunk_by(|(one, _), (other, _)| group(one) == group(other)) {
            let Some((start, _)) = columns.first() else { continue };
            let begin = end + if first { 0 } else { self.gap(*start) };
            first = false;
            end = begin + self.taken(columns);
            let name = group(start);
            if name.is_empty() {
                continue;
            }
            let name = fit(name, end - begin, Cut::End, paper.unicode);
            let rule = paper.glyph("─", "-");
            let left = (end - begin - name.width()) / 2;
            let right = end - begin - name.width() - left;
            let side = |room: usize, before: bool| match room {
                0 => String::new(),
                room if before => format!("{} ", rule.repeat(room - 1)),
                room => format!(" {}", rule.repeat(room - 1)),
            };
            let blanks = begin.saturating_sub(line.width());
            line.push_str(&" ".repeat(blanks));
            line.push_str(&format!("{}{name}{}", side(left, true), side(right, false)));
        }
        let line = fit(
            line.trim_end(),
            paper.width.unwrap_or(usize::MAX),
            Cut::End,
            paper.unicode,
        );
        paper.paint(DIM, &line) + "\n"
    }
}
