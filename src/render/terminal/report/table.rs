//! The main table: one row per run. If there are measurements and estimates, each measurement is above its estimate,
//! with the difference below them.

use std::collections::{BTreeSet, HashMap};

use comfy_table::{Attribute, Cell, CellAlignment, Color, ContentArrangement, Table};

use super::cells::{bar, limit, limited, off, share, shown, tinted};
use super::state::{self, RunState, ShownReport};
use super::style::ReportStyle;
use crate::bytes::Bytes;
use crate::render::terminal::text::BOLD;
use crate::report::words::mode_name;
use crate::report::{Metric, Mode, Pass, Rule, Run, Status};

/// The columns that are reserved for the state of a run: the width of `out of memory`.
const STATE: usize = 13;

pub(super) fn table(report: &ShownReport<'_>, style: &ReportStyle) -> String {
    let has = |mode| report.runs.iter().any(|run| run.mode == mode);
    let with_bars = Layout {
        report,
        judged: style.judged,
        process: has(Mode::Measure),
        gpus: report.runs.iter().map(|run| &run.gpu.id).collect::<BTreeSet<_>>().len() > 1,
        bars: true,
    };
    // If the table is too wide, the bars go first, because the percentages say the same. Then the process column goes:
    // it exceeds reserved memory by nearly the same amount in all runs.
    let without = Layout {
        bars: false,
        ..with_bars
    };
    let narrow = Layout {
        process: false,
        ..without
    };
    // A measurement and its estimate belong together. So if there are both, rows are grouped, however wide
    // the terminal is. The first layout that fits is taken.
    let both = has(Mode::Measure) && has(Mode::Estimate);
    let flat = [with_bars, without].into_iter().filter(|_| !both);
    flat.filter_map(|layout| layout.flat(style.width))
        .chain(
            [with_bars, without, narrow]
                .into_iter()
                .filter_map(|layout| layout.grouped(style.width)),
        )
        .next()
        // A table that is too wide is better than a value that is broken in two.
        .unwrap_or_else(|| narrow.grouped(usize::MAX).unwrap_or_default())
}

/// Renders a line that explains the memory of a GPU, if the table shows it instead of a limit.
pub(super) fn note(report: &ShownReport<'_>) -> &'static str {
    let has_limit = |run: &Run| state::drawn(report, run, None).and_then(limit).is_some();
    let shows_gpu = |group: &Vec<&Run>| {
        group
            .iter()
            .any(|run| !has_limit(run) && !is_below_measurement(run, group))
    };
    match groups(&report.runs).iter().any(shows_gpu) {
        true => "GPU: the memory that a model can use, without the CUDA context and the kernels\n\n",
        false => "",
    }
}

/// Whether the row of a run is below the measurement of its group, which has the limit of both.
fn is_below_measurement(run: &Run, group: &[&Run]) -> bool {
    run.mode == Mode::Estimate && group.first().is_some_and(|first| first.mode == Mode::Measure)
}

#[derive(Clone, Copy)]
struct Layout<'a> {
    report: &'a ShownReport<'a>,
    judged: bool,
    /// Whether there is a column for process memory.
    process: bool,
    /// Whether there is a column for the GPU.
    gpus: bool,
    /// Whether there are bars beside the percentages.
    bars: bool,
}

impl Layout<'_> {
    /// Renders one row per run. Returns nothing if a value would have to be broken over two lines.
    fn flat(&self, width: usize) -> Option<String> {
        let first: &[&str] = if self.gpus {
            &["model", "inputs", "GPU"]
        } else {
            &["model", "inputs"]
        };
        let mut table = self.empty(first);
        for run in &self.report.runs {
            let mut cells = vec![
                Cell::new(state::name_of(self.report, run)).add_attribute(Attribute::Bold),
                Cell::new(state::inputs(run)),
            ];
            if self.gpus {
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
        // Only the inputs, one per line, and the reason of a failure may take several lines.
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

    /// Renders one heading per model, GPU and inputs. Below it are the rows of the measurement, the estimate and the
    /// difference. Returns nothing if the rows are wider than `width`.
    fn grouped(&self, width: usize) -> Option<String> {
        let (table, _) = self.grouped_rows(usize::MAX);
        let mut columns = table.column_max_content_widths();
        // The last column is the state, which takes what the others leave.
        columns.pop();
        // The other columns have a blank on each side, the last column only one before it.
        let others: usize = columns.iter().map(|&column| usize::from(column) + 2).sum();
        let room = width.saturating_sub(others + 1);
        let told = self.report.runs.iter().map(|run| state::told(self.report, run));
        let told: Vec<String> = told.collect();
        let width_of = |text: &str| text.chars().count();
        let words = told.iter().flat_map(|told| told.split(' ')).map(width_of);
        let words = words.max().unwrap_or(0);
        // Rather drop the bars than break the state into one word per line.
        let whole = told.iter().map(|told| width_of(told)).max().unwrap_or(0);
        let least = if self.bars { words.max(whole.min(STATE)) } else { words };
        if least > room {
            return None;
        }
        let (table, mut headings) = self.grouped_rows(room);
        let mut text = String::new();
        for (at, line) in lines(&table).into_iter().enumerate() {
            if let Some(heading) = at
                // The first line has the names of the columns.
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

    /// Returns the rows, with the state of a run in at most `room` columns, and the heading above each line.
    fn grouped_rows(&self, room: usize) -> (Table, Vec<Option<String>>) {
        let mut table = self.empty(&["model"]);
        // comfy-table must not break lines: the headings, which belong to no column, are inserted between known lines.
        table.set_content_arrangement(ContentArrangement::Disabled);
        let mut headings = Vec::new();
        for group in groups(&self.report.runs) {
            let Some(first) = group.first() else { continue };
            let mut heading = Some(self.heading(first));
            for run in &group {
                let mode = mode_name(run.mode);
                let told = broken(&state::told(self.report, run), room);
                headings.push(heading.take());
                // One entry per printed line: a state of several lines has several.
                headings.extend(told.matches('\n').map(|_| None));
                let mut cells = vec![Cell::new(format!("  {mode}"))];
                cells.extend(self.figures(run, !is_below_measurement(run, &group), told));
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
        let gpu = if self.gpus {
            format!(" on {}", run.gpu.id)
        } else {
            String::new()
        };
        format!(" {BOLD}{name}{BOLD:#}{inputs}{gpu}\n")
    }

    fn empty(&self, first: &[&str]) -> Table {
        let mut table = Table::new();
        table.load_preset(comfy_table::presets::NOTHING);
        // Always add colours: they are stripped when the text is written to an output without colours.
        table.enforce_styling();
        let limit = if self.judged { "reserved limit" } else { "GPU" };
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
        header.extend(["cold reserved", ""]);
        table.set_header(header.into_iter().collect::<Vec<_>>());
        for at in right {
            if let Some(column) = table.column_mut(at) {
                column.set_cell_alignment(CellAlignment::Right);
            }
        }
        table
    }

    /// Returns the cells of a run after its name: the values and the state. The limit is left out if the row above
    /// shows it.
    fn figures(&self, run: &Run, with_limit: bool, told: String) -> Vec<Cell> {
        let drawn = state::drawn(self.report, run, None);
        let allowed = drawn
            .and_then(|verdict| verdict.limit)
            .unwrap_or(run.gpu.available_bytes);
        let reserved = run.peaks.warm.reserved;
        let color = RunState::from_run(self.report, run).color();
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

    /// Returns the cells of the difference between a measurement and its estimate; nothing if one of them is
    /// incomplete.
    fn difference(&self, measured: &Run, estimated: &Run) -> Option<Vec<Cell>> {
        let whole = |run: &Run| run.error.is_none() && run.oom.is_none();
        // The peaks of an incomplete run are those up to its end, so a difference would mislead.
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
            // No colour: `drift` in `budgets.yaml` does not judge process memory or the cold pass.
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

/// Groups the runs of one model with the same inputs on the same GPU, the measurement first. Groups of one model are
/// adjacent.
fn groups(runs: &[Run]) -> Vec<Vec<&Run>> {
    // Not `chunk_by`: the runs of a group need not be neighbours.
    let (mut groups, mut known): (Vec<Vec<&Run>>, _) = (Vec::new(), HashMap::new());
    let mut first = HashMap::new();
    for (at, run) in runs.iter().enumerate() {
        first.entry(state::budget_of(run)).or_insert(at);
        let group = *known
            .entry((state::budget_of(run), &run.gpu.id, &run.inputs))
            .or_insert(groups.len());
        match groups.get_mut(group) {
            Some(group) => group.push(run),
            None => groups.push(vec![run]),
        }
    }
    groups.sort_by_key(|group| group.first().and_then(|run| first.get(&state::budget_of(run))));
    for group in &mut groups {
        group.sort_by_key(|run| run.mode == Mode::Estimate);
    }
    groups
}

/// Makes a table without borders, with the columns `right` aligned to the right. It always has colours: they are
/// stripped when the text is written to an output without colours.
pub(in crate::render) fn new_table<'a>(
    header: impl IntoIterator<Item = &'a str>,
    right: impl IntoIterator<Item = usize>,
) -> Table {
    let mut table = Table::new();
    table.load_preset(comfy_table::presets::NOTHING);
    table.enforce_styling();
    table.set_header(header);
    for column in right {
        if let Some(column) = table.column_mut(column) {
            column.set_cell_alignment(CellAlignment::Right);
        }
    }
    table
}

/// Returns the lines of a table, without the blanks that fill the last column.
pub(in crate::render) fn lines(table: &Table) -> Vec<String> {
    let trimmed = |line: String| {
        let line = line.trim_end();
        // The escape sequence that ends a colour comes after these blanks.
        match line.rfind('\u{1b}').map(|at| line.split_at(at)) {
            Some((text, end)) if end.ends_with('m') => format!("{}{end}", text.trim_end()),
            _ => line.to_owned(),
        }
    };
    table.lines().map(trimmed).collect()
}

/// Breaks a text between words into lines of at most `room` columns.
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

/// Returns the width that a table needs. `wanted` returns the width of a column from its index and its natural width;
/// the last column may be broken over several lines.
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
