//! The table: a row a run or, where there is both, a measurement above its estimate and how far that is off.

use std::collections::BTreeSet;

use comfy_table::{Attribute, Cell, CellAlignment, Color, ContentArrangement, Table};

use super::Style;
use super::cells::{bar, limited, off, share, shown, tinted};
use super::state::{self, State};
use super::text::BOLD;
use crate::bytes::Bytes;
use crate::report::words::mode_name;
use crate::report::{Metric, Mode, Pass, Report, Rule, Run, Status};

/// What is kept free for a word on how a run stands: `out of memory`.
const STATE: usize = 13;

pub(super) fn table(report: &Report, style: &Style) -> String {
    let has = |mode| report.runs.iter().any(|run| run.mode == mode);
    let with_bars = Layout {
        report,
        judged: style.judged,
        process: has(Mode::Measure),
        cards: report.runs.iter().map(|run| &run.gpu.id).collect::<BTreeSet<_>>().len() > 1,
        bars: true,
    };
    // Where it does not fit, the bars are the first to go: the percentage says the same. Then what a process holds beside
    // what is reserved, which is nearly the same for all.
    let without = Layout {
        bars: false,
        ..with_bars
    };
    let narrow = Layout {
        process: false,
        ..without
    };
    let both = has(Mode::Measure) && has(Mode::Estimate);
    let flat = [with_bars, without].into_iter().filter(|_| !both);
    flat.filter_map(|layout| layout.flat(style.width))
        .chain(
            [with_bars, without, narrow]
                .into_iter()
                .filter_map(|layout| layout.grouped(style.width)),
        )
        .next()
        .unwrap_or_else(|| narrow.grouped(usize::MAX).unwrap_or_default())
}

#[derive(Clone, Copy)]
struct Layout<'a> {
    report: &'a Report,
    judged: bool,
    /// With a column for what the process holds.
    process: bool,
    /// With a column for the card.
    cards: bool,
    /// With bars beside their percentages.
    bars: bool,
}

impl Layout<'_> {
    /// One row a run; nothing where that would break figures in two.
    fn flat(&self, width: usize) -> Option<String> {
        let first: &[&str] = if self.cards {
            &["model", "inputs", "card"]
        } else {
            &["model", "inputs"]
        };
        let mut table = self.empty(first);
        for run in &self.report.runs {
            let mut cells = vec![
                Cell::new(state::name_of(self.report, run)).add_attribute(Attribute::Bold),
                Cell::new(state::inputs(run)),
            ];
            if self.cards {
                cells.push(Cell::new(&run.gpu.id));
            }
            cells.extend(self.figures(run, true, state::told(self.report, run)));
            table.add_row(cells);
        }
        let longest = |of: fn(&Run) -> String| {
            let texts: Vec<_> = self.report.runs.iter().map(of).collect();
            let words = texts.iter().flat_map(|text| text.split(' '));
            words.map(|word| word.chars().count()).max().unwrap_or(0)
        };
        // Only the inputs may take several lines, a line each, if they must; and the reason of a failure.
        let inputs = longest(state::inputs).max("inputs".len());
        let wanted = |at, natural: usize| match at {
            1 if !self.bars => natural.min(inputs),
            _ => natural,
        };
        if needed(&table, wanted) > width {
            return None;
        }
        table.set_content_arrangement(ContentArrangement::Dynamic);
        table.set_width(u16::try_from(width).unwrap_or(u16::MAX));
        Some(lines(&table).join("\n") + "\n")
    }

    /// A heading a model, card and inputs, and below it a row each for the measurement, the estimate and the
    /// difference; nothing where they are wider than that.
    fn grouped(&self, width: usize) -> Option<String> {
        let (table, _) = self.grouped_rows(usize::MAX);
        let mut columns = table.column_max_content_widths();
        columns.pop();
        // A blank on each side of the others, and one before the last.
        let others: usize = columns.iter().map(|&column| usize::from(column) + 2).sum();
        let room = width.saturating_sub(others + 1);
        let told = self.report.runs.iter().map(|run| state::told(self.report, run));
        let told: Vec<String> = told.collect();
        let width_of = |text: &str| text.chars().count();
        let words = told.iter().flat_map(|told| told.split(' ')).map(width_of);
        let words = words.max().unwrap_or(0);
        // Bars are not worth a word a line.
        let whole = told.iter().map(|told| width_of(told)).max().unwrap_or(0);
        let least = if self.bars { words.max(whole.min(STATE)) } else { words };
        if least > room {
            return None;
        }
        let (table, mut headings) = self.grouped_rows(room);
        let mut text = String::new();
        for (at, line) in lines(&table).into_iter().enumerate() {
            if let Some(heading) = at
                .checked_sub(1)
                .and_then(|at| headings.get_mut(at))
                .and_then(Option::take)
            {
                text.push_str(&heading);
            }
            text.push_str(&line);
            text.push('\n');
        }
        Some(text)
    }

    /// The rows, how a run stands in at most `room` columns; and for each line of them the heading above it.
    fn grouped_rows(&self, room: usize) -> (Table, Vec<Option<String>>) {
        let mut table = self.empty(&["model"]);
        // Lines are broken here alone, so that headings, which belong to no column, can be put between them.
        table.set_content_arrangement(ContentArrangement::Disabled);
        let mut headings = Vec::new();
        for group in groups(&self.report.runs) {
            let Some(first) = group.first() else { continue };
            let mut heading = Some(self.heading(first));
            for run in &group {
                let mode = mode_name(run.mode);
                let above = run.mode == Mode::Estimate && first.mode == Mode::Measure;
                let told = broken(&state::told(self.report, run), room);
                headings.push(heading.take());
                headings.extend(told.matches('\n').map(|_| None));
                let mut cells = vec![Cell::new(format!("  {mode}"))];
                cells.extend(self.figures(run, !above, told));
                table.add_row(cells);
            }
            if let [measured, estimated] = group.as_slice()
                && let Some(cells) = self.difference(measured, estimated)
            {
                table.add_row(cells);
                headings.push(None);
            }
        }
        (table, headings)
    }

    fn heading(&self, run: &Run) -> String {
        let name = state::name_of(self.report, run);
        let inputs = match state::inputs(run) {
            none if none.is_empty() => none,
            inputs => format!(" {inputs}"),
        };
        let card = if self.cards {
            format!(" on {}", run.gpu.id)
        } else {
            String::new()
        };
        format!(" {BOLD}{name}{BOLD:#}{inputs}{card}\n")
    }

    fn empty(&self, first: &[&str]) -> Table {
        let mut table = Table::new();
        table.load_preset(comfy_table::presets::NOTHING);
        // Where there are to be no colours, they are taken out when the text is written.
        table.enforce_styling();
        let limit = if self.judged { "limit" } else { "card" };
        let mut header = first.to_vec();
        header.extend(["live", "reserved", "", limit]);
        let mut right = vec![first.len(), first.len() + 1];
        if !self.bars {
            right.push(first.len() + 2);
        }
        if self.process {
            right.push(header.len());
            header.push("process");
        }
        right.push(header.len());
        header.extend(["cold", ""]);
        table.set_header(header);
        for at in right {
            if let Some(column) = table.column_mut(at) {
                column.set_cell_alignment(CellAlignment::Right);
            }
        }
        table
    }

    /// The cells of a run, after what it is, with how it stands; without its limit where the row above has it.
    fn figures(&self, run: &Run, with_limit: bool, told: String) -> Vec<Cell> {
        let drawn = state::drawn(self.report, run, None);
        let allowed = drawn
            .and_then(|verdict| verdict.limit)
            .unwrap_or(run.gpu.available_bytes);
        let reserved = run.peaks.warm.reserved;
        let color = State::of(self.report, run).color();
        let used = reserved.filter(|_| with_limit).map(|bytes| {
            if self.bars {
                bar(bytes, allowed)
            } else {
                share(bytes, allowed)
            }
        });
        let mut cells = vec![
            shown(run.peaks.warm.live),
            shown(reserved),
            tinted(used.unwrap_or_default(), color),
            if with_limit {
                limited(drawn, run.gpu.available_bytes)
            } else {
                Cell::new("")
            },
        ];
        if self.process {
            cells.push(shown(run.peaks.warm.process));
        }
        cells.push(shown(run.peaks.cold.reserved));
        cells.push(tinted(told, color));
        cells
    }

    /// How far an estimate is off its measurement; nothing where the figures are not those of two whole runs.
    fn difference(&self, measured: &Run, estimated: &Run) -> Option<Vec<Cell>> {
        let whole = |run: &Run| run.error.is_none() && run.oom.is_none();
        if measured.mode == estimated.mode || !whole(measured) || !whole(estimated) {
            return None;
        }
        let off = |of: &dyn Fn(&Run) -> Option<Bytes>, color| tinted(off(of(measured), of(estimated)), color);
        let warm = |metric| self.drift_color(measured, metric);
        let mut cells = vec![
            Cell::new("  off by"),
            off(&|run| run.peaks.warm.live, warm(Metric::Live)),
            off(&|run| run.peaks.warm.reserved, warm(Metric::Reserved)),
            Cell::new(""),
            Cell::new(""),
        ];
        if self.process {
            cells.push(off(&|run| run.peaks.warm.process, None));
        }
        cells.push(off(&|run| run.peaks.cold.reserved, None));
        Some(cells)
    }

    fn drift_color(&self, run: &Run, metric: Metric) -> Option<Color> {
        let verdict = state::verdicts(self.report, run).find(|verdict| {
            verdict.rule == Rule::Drift && verdict.metric == Some(metric) && verdict.pass == Some(Pass::Warm)
        })?;
        Some(match verdict.status {
            Status::Pass => Color::Green,
            Status::Warn => Color::Yellow,
            Status::Fail | Status::Error => Color::Red,
        })
    }
}

/// Runs of one model with one set of inputs on one card, the measurement first; one model's cards side by side.
fn groups(runs: &[Run]) -> Vec<Vec<&Run>> {
    let model =
        |run: &Run, other: &Run| run.package == other.package && run.model == other.model && run.budget == other.budget;
    let same = |run: &Run, other: &Run| model(run, other) && run.gpu.id == other.gpu.id && run.inputs == other.inputs;
    let mut groups: Vec<Vec<&Run>> = Vec::new();
    for run in runs {
        match groups
            .iter_mut()
            .find(|group| group.iter().any(|other| same(run, other)))
        {
            Some(group) => group.push(run),
            None => groups.push(vec![run]),
        }
    }
    groups.sort_by_cached_key(|group| {
        let of_model = |run: &Run| group.first().is_some_and(|first| model(first, run));
        runs.iter().position(of_model)
    });
    for group in &mut groups {
        group.sort_by_key(|run| run.mode == Mode::Estimate);
    }
    groups
}

/// The lines, without the blanks that fill the last column.
pub(in crate::report) fn lines(table: &Table) -> Vec<String> {
    let trimmed = |line: String| {
        let line = line.trim_end();
        // A colour ends after those blanks.
        match line.rfind('\u{1b}').map(|at| line.split_at(at)) {
            Some((text, end)) if end.ends_with('m') => format!("{}{end}", text.trim_end()),
            _ => line.to_owned(),
        }
    };
    table.lines().map(trimmed).collect()
}

/// A text on lines of at most so many columns, broken between words.
fn broken(text: &str, room: usize) -> String {
    let mut lines: Vec<String> = Vec::new();
    for word in text.split(' ') {
        match lines.last_mut() {
            Some(line) if line.chars().count() + 1 + word.chars().count() <= room => {
                line.push(' ');
                line.push_str(word);
            }
            _ => lines.push(word.to_owned()),
        }
    }
    lines.join("\n")
}

/// How wide a table must be, of the width that is wanted for each column; the last may go on below itself.
fn needed(table: &Table, wanted: impl Fn(usize, usize) -> usize) -> usize {
    let columns = table.column_max_content_widths();
    let last = columns.len().saturating_sub(1);
    let columns = columns.iter().map(|&width| usize::from(width)).enumerate();
    columns
        .map(|(at, natural)| match at {
            _ if at == last => natural.min(STATE) + 1,
            // A blank on each side.
            _ => wanted(at, natural) + 2,
        })
        .sum()
}
