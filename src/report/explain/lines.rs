//! What each line of the user's code adds and takes away.

use std::collections::{HashMap, HashSet};

use super::SourceLine;
use super::categories::{legend, look, swatch};
use super::grid::{Cell, Column, Grid};
use super::paper::{BAD, Cut, DIM, GOOD, PLAIN, Paper, STRONG, place};
use super::tensors::{self, module, resolved};
use crate::bytes::Bytes;
use crate::explain::{Category, Explanation, Line, Source, Tensor};
use crate::report::Phase;
use crate::report::words::count;

/// Kinds of tensors that are told of a line, where not all must be.
const KINDS: usize = 8;

type Reader<'a> = Option<SourceLine<'a>>;

/// The lines that hold the most, and all lines by the function they stand in, each in order of time, with so many kinds
/// of tensors for each.
pub(super) fn lines(explanation: &Explanation, kinds: Option<usize>, read: Reader<'_>, paper: &Paper) -> String {
    let heading = paper.heading("Lines", "bytes of all tensors after each, and what came and went");
    if explanation.lines.is_empty() {
        let why = if explanation.tensors.is_empty() {
            "no line of the model's own code was seen"
        } else {
            "the model's program does not say what lines it was made of: an archive's has none; build it from its source, \
             with `debug = \"line-tables-only\"` at least in its profile"
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
        let before = seen.insert(deeds(rows), step).flatten();
        if let Some(before) = before {
            let remark = format!("{}{}as in step {before}, to the byte", place(step, phase), paper.dot());
            text.push_str(&paper.function(&paper.name(&first.source.function), &remark));
            continue;
        }
        let function = paper.name(&first.source.function);
        let file = paper.name(&first.source.file);
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
    let moved = |line: &Line| line.came.iter().chain(&line.went).copied().collect::<Vec<_>>();
    let moved: Vec<u32> = explanation.lines.iter().flat_map(moved).collect();
    let seen: HashSet<_> = resolved(explanation, &moved).map(|tensor| tensor.category).collect();
    let key = legend(
        Category::ALL.into_iter().filter(|category| seen.contains(category)),
        paper,
    );
    text + "\n" + &grid.draw(paper) + &key
}

/// The lines whose tensors take the most at the peak.
fn holding(explanation: &Explanation, read: Reader<'_>, paper: &Paper) -> String {
    let mut held: HashMap<&Source, (u64, Bytes)> = HashMap::new();
    for tensor in resolved(explanation, &explanation.peak.tensors) {
        if let Some(source) = &tensor.source {
            let (number, bytes) = held.entry(source).or_default();
            *number += 1;
            *bytes += tensor.bytes;
        }
    }
    let mut held: Vec<_> = held.into_iter().collect();
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
    paper.heading("Lines that hold the most", "at the peak of live") + &grid.draw(paper)
}

/// One line of a function, with everything that ran until the next: operations of its own, and those of the user's own functions
/// that it called.
struct FunctionLine<'a> {
    source: &'a Source,
    /// In order of time; never empty.
    ran: Vec<&'a Line>,
}

impl FunctionLine<'_> {
    fn moment(&self) -> Option<(Option<u32>, Phase)> {
        self.ran.first().map(|line| (line.step, line.phase))
    }

    /// Bytes of all tensors after it.
    fn live(&self) -> Option<Bytes> {
        self.ran.last().map(|line| line.live)
    }

    /// Less those before it.
    fn change(&self) -> i64 {
        sum(self.ran.iter().copied())
    }

    /// The tensors that came, and those that went. What both came and went within several lines was there for none after them.
    fn moved(&self) -> [Vec<u32>; 2] {
        let all = |of: fn(&Line) -> &Vec<u32>| self.ran.iter().flat_map(move |line| of(line)).copied();
        let [came, went]: [Vec<u32>; 2] = [all(|line| &line.came).collect(), all(|line| &line.went).collect()];
        if self.ran.len() == 1 {
            return [came, went];
        }
        let without = |own: &[u32], other: &[u32]| {
            let other: HashSet<_> = other.iter().collect();
            own.iter().copied().filter(|tensor| !other.contains(tensor)).collect()
        };
        [without(&came, &went), without(&went, &came)]
    }
}

/// What a line did: which line, in which phase, with how many bytes after it and how many more, and how many tensors came and went.
type Deed<'a> = (&'a Source, Option<Phase>, Option<Bytes>, i64, usize, usize);

/// What the lines of a function did, to be told from what they did in another step.
fn deeds<'a>(rows: &[FunctionLine<'a>]) -> Vec<Deed<'a>> {
    let deed = |row: &FunctionLine<'a>| {
        let [came, went] = row.moved();
        let phase = row.moment().map(|(_, phase)| phase);
        (row.source, phase, row.live(), row.change(), came.len(), went.len())
    };
    rows.iter().map(deed).collect()
}

/// Lines of one function in one phase of one step, in the order in which they were first reached. A line that called another
/// function of the user's own is in both.
fn functions(lines: &[Line]) -> Vec<Vec<FunctionLine<'_>>> {
    type Key<'a> = (Option<u32>, Phase, &'a str, &'a str);
    let mut functions: Vec<Vec<FunctionLine<'_>>> = Vec::new();
    let mut places: HashMap<Key<'_>, usize> = HashMap::new();
    for line in lines {
        // The outer functions first, as they are reached. Of a function that calls itself, the outermost call has it all.
        let mut reached = HashSet::new();
        for source in line.callers.iter().rev().chain([&line.source]) {
            if !reached.insert((source.file.as_str(), source.function.as_str())) {
                continue;
            }
            let key = (line.step, line.phase, source.file.as_str(), source.function.as_str());
            let place = *places.entry(key).or_insert(functions.len());
            if place == functions.len() {
                functions.push(Vec::new());
            }
            let rows = &mut functions[place];
            match rows.last_mut() {
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

fn sum<'a>(lines: impl IntoIterator<Item = &'a Line>) -> i64 {
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

fn totals(what: &str, change: i64, live: Option<Bytes>, paper: &Paper) -> [Cell; 5] {
    [
        Cell::from(""),
        Cell::from(paper.known(live)).styled(STRONG),
        Cell::from(paper.change(change)).styled(STRONG),
        Cell::from(""),
        Cell::from(format!("this {what}")).styled(DIM),
    ]
}

fn code(source: &Source, read: Reader<'_>, paper: &Paper) -> String {
    let code = read.and_then(|read| read(&source.file, source.line));
    code.map_or_else(String::new, |code| paper.name(code.replace('\t', " ").trim()))
}

fn this(
    grid: &mut Grid,
    line: &FunctionLine<'_>,
    explanation: &Explanation,
    most: usize,
    read: Reader<'_>,
    paper: &Paper,
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
        let bytes = |(tensor, number): &(&Tensor, u64)| Bytes(tensor.bytes.0.saturating_mul(*number));
        let mut rest = Vec::new();
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
                format!("{} smaller ones", count(number)),
            );
        }
    }
}

/// Tensors that look the same, one after the other, are told once.
fn folded<'a>(tensors: impl Iterator<Item = &'a Tensor>) -> Vec<(&'a Tensor, u64)> {
    let mut folded: Vec<(&Tensor, u64)> = Vec::new();
    let look = |tensor: &'a Tensor| {
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

fn told(tensor: &Tensor, number: u64, paper: &Paper) -> String {
    let times = match number {
        1 => String::new(),
        number => format!("{} of ", count(number)),
    };
    let place = match tensor.module {
        Some(_) => format!("{} {}", module(tensor, paper), paper.name(&tensor.operation)),
        None => paper.name(&tensor.operation),
    };
    let category = match paper.width {
        Some(_) => String::new(),
        // For a program, which sees no colours and reads no legend.
        None => format!("  {}", look(tensor.category).name),
    };
    format!(
        "{times}{} {}  {place}{category}",
        paper.shape(&tensor.shape),
        paper.name(&tensor.dtype),
    )
}
