//! The memory that each line of the user's code adds and frees.

use std::collections::{HashMap, HashSet};

use super::categories::{legend, look, swatch};
use super::grid::{Cell, Column, Grid};
use super::paper::{BAD, Canvas, Cut, DIM, GOOD, PLAIN, STRONG, place};
use super::tensors::{self, module, resolved};
use super::view::SourceLine;
use crate::bytes::Bytes;
use crate::explain::{Category, Explanation, SourceLineMemory, SourceLocation, TensorLife};
use crate::report::Phase;
use crate::report::words::count;

/// The most kinds of tensors that are listed per line, if the user set no other number.
const KINDS: usize = 8;

type SourceReader<'a> = Option<SourceLine<'a>>;

/// Renders the lines that hold the most memory, then all lines by function, in order of time.
///
/// `kinds` is the most kinds of tensors per line.
pub(super) fn lines(explanation: &Explanation, kinds: Option<usize>, read: SourceReader<'_>, paper: &Canvas) -> String {
    let heading = paper.heading(
        "Lines",
        "bytes of all tensors after each line, and what it made and freed",
    );
    if explanation.lines.is_empty() {
        // Tensors but no lines: the program has no line tables. `archive` removes sections `.debug_*`.
        // See docs/design/archives.md.
        let why = if explanation.tensors.is_empty() {
            "no line of the model's own code was observed"
        } else {
            "the model's program has no line information (programs in archives never have it); build the model from \
             source, with at least `debug = \"line-tables-only\"` in its profile"
        };
        return heading + &paper.prose(2, PLAIN, why);
    }
    let kinds = kinds.unwrap_or(KINDS);
    let mut text = holding(explanation, read, paper) + &heading;
    let mut total = 0_i64;
    let mut seen: HashMap<_, Option<u32>> = HashMap::new();
    total = total.saturating_add(sum(&explanation.lines));
    for rows in &functions(&explanation.lines) {
        let Some(first) = rows.first() else { continue };
        let Some((step, phase)) = first.moment() else { continue };
        // Later steps mostly do the same to the byte. Printed in full, they would hide where a step differs.
        let before = seen.insert(deeds(rows), step).flatten();
        if let Some(before) = before {
            let remark = format!(
                "{}{}same as step {before}, to the byte",
                place(step, phase),
                paper.dot()
            );
            text.push_str(&paper.function(&paper.name(first.source.function.raw()), &remark));
            continue;
        }
        let function = paper.name(first.source.function.raw());
        let file = paper.name(first.source.file.raw());
        let moment = place(step, phase);
        let remark = format!("{file}{}{moment}", paper.dot());
        text.push_str(&paper.function(&function, &remark));
        let change = rows.iter().fold(0_i64, |sum, row| sum.saturating_add(row.change()));
        let mut grid = table();
        for row in rows {
            this(&mut grid, row, explanation, kinds, read, paper);
        }
        grid.rule();
        grid.row(totals(
            "function",
            change,
            rows.last().and_then(FunctionLine::live),
            paper,
        ));
        text.push_str(&grid.draw(paper));
    }
    let mut grid = Grid::new([Column::left(""), Column::right("")]);
    grid.row([
        Cell::from("all lines together").styled(STRONG),
        Cell::from(paper.change(total)).styled(STRONG),
    ]);
    let moved = |line: &SourceLineMemory| line.came.iter().chain(&line.went).copied().collect::<Vec<_>>();
    let moved: Vec<u32> = explanation.lines.iter().flat_map(moved).collect();
    let seen: HashSet<_> = resolved(explanation, &moved).map(|tensor| tensor.category).collect();
    let key = legend(
        Category::ALL.into_iter().filter(|category| seen.contains(category)),
        paper,
    );
    text + "\n" + &grid.draw(paper) + &key
}

/// Renders the lines whose tensors take the most memory at the peak.
fn holding(explanation: &Explanation, read: SourceReader<'_>, paper: &Canvas) -> String {
    let mut held: HashMap<&SourceLocation, (u64, Bytes)> = HashMap::new();
    for tensor in resolved(explanation, &explanation.peak.tensors) {
        if let Some(source) = &tensor.source {
            let (number, bytes) = held.entry(source).or_default();
            *number += 1;
            *bytes += tensor.bytes;
        }
    }
    let mut held: Vec<_> = held.into_iter().collect();
    // Of equal bytes, the source decides: a hash map has no order, and two runs must print the same.
    held.sort_by_key(|(source, (_, bytes))| (std::cmp::Reverse(*bytes), *source));
    let mut grid = Grid::new([
        Column::left("source").cut(Cut::Start, 18),
        Column::right("tensors").expendable(1),
        Column::right("bytes"),
        Column::left("").cut(Cut::End, 24),
    ]);
    for (source, (number, bytes)) in held.iter().take(super::TOP) {
        grid.row([
            Cell::from(tensors::source(Some(source), paper)),
            Cell::from(count(*number)),
            Cell::from(paper.size(*bytes)),
            Cell::from(code(source, read, paper)).styled(DIM),
        ]);
    }
    paper.heading("Lines that hold the most", "at the peak of live memory") + &grid.draw(paper)
}

/// One line of a function with everything that ran until the next line: its own operations, and those of the user's own
/// functions that it called.
struct FunctionLine<'a> {
    source: &'a SourceLocation,
    /// What ran, in order of time; never empty.
    ran: Vec<&'a SourceLineMemory>,
}

impl FunctionLine<'_> {
    fn moment(&self) -> Option<(Option<u32>, Phase)> {
        self.ran.first().map(|line| (line.step, line.phase))
    }

    /// Returns the bytes of all tensors after the line.
    fn live(&self) -> Option<Bytes> {
        self.ran.last().map(|line| line.live)
    }

    /// Returns how many bytes the line added.
    fn change(&self) -> i64 {
        sum(self.ran.iter().copied())
    }

    /// Returns the tensors that the line made, and those it freed. With several entries in `ran`, a tensor that it both
    /// made and freed is in neither, because it does not exist afterwards.
    fn moved(&self) -> [Vec<u32>; 2] {
        let all = |of: fn(&SourceLineMemory) -> &Vec<u32>| self.ran.iter().flat_map(move |line| of(line)).copied();
        let [came, went]: [Vec<u32>; 2] = [all(|line| &line.came).collect(), all(|line| &line.went).collect()];
        if self.ran.len() == 1 {
            return [came, went];
        }
        let without = |own: &[u32], other: &[u32]| {
            // A set: a search per tensor would take quadratic time.
            let other: HashSet<_> = other.iter().collect();
            own.iter().copied().filter(|tensor| !other.contains(tensor)).collect()
        };
        [without(&came, &went), without(&went, &came)]
    }
}

/// What a line did: the line, its phase, the bytes after it, the added bytes, and how many tensors it made and freed.
type Deed<'a> = (&'a SourceLocation, Option<Phase>, Option<Bytes>, i64, usize, usize);

/// Returns what the lines of a function did, for the comparison with what they did in another step.
fn deeds<'a>(rows: &[FunctionLine<'a>]) -> Vec<Deed<'a>> {
    let deed = |row: &FunctionLine<'a>| {
        let [came, went] = row.moved();
        let phase = row.moment().map(|(_, phase)| phase);
        (row.source, phase, row.live(), row.change(), came.len(), went.len())
    };
    rows.iter().map(deed).collect()
}

/// Groups lines by function, phase and step, in the order in which functions were first reached.
///
/// What ran in a function of the user's own is listed there, and in the calling function at the line of the call.
fn functions(lines: &[SourceLineMemory]) -> Vec<Vec<FunctionLine<'_>>> {
    type Key<'a> = (Option<u32>, Phase, &'a str, &'a str);
    let mut functions: Vec<Vec<FunctionLine<'_>>> = Vec::new();
    let mut places: HashMap<Key<'_>, usize> = HashMap::new();
    for line in lines {
        // Outer functions are reached first. If a function calls itself, its outermost call gets everything.
        let mut reached = HashSet::new();
        for source in line.callers.iter().rev().chain([&line.source]) {
            if !reached.insert((source.file.raw(), source.function.raw())) {
                continue;
            }
            let key = (line.step, line.phase, source.file.raw(), source.function.raw());
            let place = *places.entry(key).or_insert(functions.len());
            if place == functions.len() {
                functions.push(Vec::new());
            }
            let rows = &mut functions[place];
            match rows.last_mut() {
                // Only neighbours: a line that is reached again later, as in a
                // loop, has another row at its own time.
                Some(last) if last.source == source => last.ran.push(line),
                _ => rows.push(FunctionLine {
                    source,
                    ran: vec![line],
                }),
            }
        }
    }
    functions
}

fn sum<'a>(lines: impl IntoIterator<Item = &'a SourceLineMemory>) -> i64 {
    lines.into_iter().fold(0, |sum, line| sum.saturating_add(line.change))
}

fn table() -> Grid {
    Grid::new([
        Column::right("line"),
        Column::right("live"),
        Column::right("change"),
        Column::left("").close(),
        Column::left("").close().cut(Cut::End, 24),
    ])
}

fn totals(what: &str, change: i64, live: Option<Bytes>, paper: &Canvas) -> [Cell; 5] {
    [
        Cell::from(""),
        Cell::from(paper.known(live)).styled(STRONG),
        Cell::from(paper.change(change)).styled(STRONG),
        Cell::from(""),
        Cell::from(format!("this {what}")).styled(DIM),
    ]
}

fn code(source: &SourceLocation, read: SourceReader<'_>, paper: &Canvas) -> String {
    let code = read.and_then(|read| read(source.file.raw(), source.line));
    code.map_or_else(String::new, |code| paper.name(code.replace('\t', " ").trim()))
}

fn this(
    grid: &mut Grid,
    line: &FunctionLine<'_>,
    explanation: &Explanation,
    most: usize,
    read: SourceReader<'_>,
    paper: &Canvas,
) {
    let source = code(line.source, read, paper);
    let change = line.change();
    let style = match change {
        0 => DIM,
        1.. => BAD,
        _ => GOOD,
    };
    grid.row([
        Cell::from(line.source.line.to_string()).styled(DIM),
        Cell::from(paper.known(line.live())),
        Cell::from(paper.change(change)).styled(style),
        Cell::from(""),
        Cell::from(source),
    ]);
    let [came, went] = line.moved();
    for (sign, style, tensors) in [("+", BAD, &came), ("-", GOOD, &went)] {
        let mut kinds = folded(resolved(explanation, tensors));
        let bytes = |(tensor, number): &(&TensorLife, u64)| Bytes(tensor.bytes.0.saturating_mul(*number));
        let mut rest = Vec::new();
        // In order of time as long as all are shown. Only what is cut is sorted by size.
        if kinds.len() > most {
            kinds.sort_by_key(|kind| std::cmp::Reverse(bytes(kind)));
            rest = kinds.split_off(most);
        }
        let mut row = |size: Bytes, category: Option<Category>, text: String| {
            let swatch = category.map_or("", |category| swatch(category, paper));
            let tint = category.map_or(PLAIN, |category| look(category).style);
            grid.row([
                Cell::from(""),
                Cell::from(""),
                Cell::from(format!("{sign} {}", paper.size(size))).styled(style),
                Cell::from(swatch).styled(tint),
                Cell::from(text).styled(DIM),
            ]);
        };
        for kind in &kinds {
            row(bytes(kind), Some(kind.0.category), told(kind.0, kind.1, paper));
        }
        if !rest.is_empty() {
            let number: u64 = rest.iter().map(|(_, number)| number).sum();
            row(
                rest.iter().map(bytes).sum(),
                None,
                format!("and {} more", count(number)),
            );
        }
    }
}

/// Groups adjacent tensors with the same bytes, shape, dtype, module and operation, and counts them.
fn folded<'a>(tensors: impl Iterator<Item = &'a TensorLife>) -> Vec<(&'a TensorLife, u64)> {
    let mut folded: Vec<(&TensorLife, u64)> = Vec::new();
    let look = |tensor: &'a TensorLife| {
        (
            tensor.bytes,
            &tensor.shape,
            &tensor.dtype,
            &tensor.module,
            &tensor.operation,
        )
    };
    for tensor in tensors {
        match folded.last_mut() {
            Some((last, number)) if look(last) == look(tensor) => *number += 1,
            _ => folded.push((tensor, 1)),
        }
    }
    folded
}

fn told(tensor: &TensorLife, number: u64, paper: &Canvas) -> String {
    let times = match number {
        1 => String::new(),
        number => format!("{} of ", count(number)),
    };
    let place = match tensor.module {
        Some(_) => format!("{} {}", module(tensor, paper), paper.name(tensor.operation.raw())),
        None => paper.name(tensor.operation.raw()),
    };
    let category = match paper.width {
        Some(_) => String::new(),
        // Without a terminal, a program reads the output: it sees no colours and reads no legend.
        None => format!("  {}", look(tensor.category).name),
    };
    format!(
        "{times}{} {}  {place}{category}",
        paper.shape(&tensor.shape),
        paper.name(tensor.dtype.raw()),
    )
}
