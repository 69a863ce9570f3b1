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
    for lines in &functions(&explanation.lines) {
        let Some(first) = lines.first() else { continue };
        let before = seen.insert(deeds(lines), first.step).flatten();
        if let Some(step) = before {
            let remark = format!(
                "{}{}as in step {step}, to the byte",
                place(first.step, first.phase),
                paper.dot()
            );
            text.push_str(&paper.function(&paper.name(&first.source.function), &remark));
            total = total.saturating_add(sum(lines.iter().copied()));
            continue;
        }
        let function = paper.name(&first.source.function);
        let file = paper.name(&first.source.file);
        let moment = place(first.step, first.phase);
        let remark = format!("{file}{}{moment}", paper.dot());
        text.push_str(&paper.function(&function, &remark));
        let change = sum(lines.iter().copied());
        let mut grid = table();
        for line in lines {
            this(&mut grid, line, explanation, kinds, read, paper);
        }
        grid.rule();
        grid.row(totals("function", change, lines.last().map(|line| line.live), paper));
        text.push_str(&grid.draw(paper));
        total = total.saturating_add(change);
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

/// What the lines of a function did, to be told from what they did in another step.
fn deeds<'a>(lines: &[&'a Line]) -> Vec<(&'a Source, Phase, Bytes, i64, usize, usize)> {
    let deed = |line: &&'a Line| {
        let (came, went) = (line.came.len(), line.went.len());
        (&line.source, line.phase, line.live, line.change, came, went)
    };
    lines.iter().map(deed).collect()
}

/// Lines of one function in one phase of one step, in the order in which they were first reached.
fn functions(lines: &[Line]) -> Vec<Vec<&Line>> {
    type Key<'a> = (Option<u32>, Phase, &'a str, &'a str);
    let mut functions: Vec<Vec<&Line>> = Vec::new();
    let mut places: HashMap<Key<'_>, usize> = HashMap::new();
    for line in lines {
        let key = (
            line.step,
            line.phase,
            line.source.file.as_str(),
            line.source.function.as_str(),
        );
        let place = *places.entry(key).or_insert(functions.len());
        match functions.get_mut(place) {
            Some(lines) => lines.push(line),
            None => functions.push(vec![line]),
        }
    }
    functions
}

fn sum<'a>(lines: impl Iterator<Item = &'a Line>) -> i64 {
    lines.fold(0, |sum, line| sum.saturating_add(line.change))
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

fn this(grid: &mut Grid, line: &Line, explanation: &Explanation, most: usize, read: Reader<'_>, paper: &Paper) {
    let source = code(&line.source, read, paper);
    let style = match line.change {
        0 => DIM,
        1.. => BAD,
        _ => GOOD,
    };
    grid.row([
        Cell::from(line.source.line.to_string()).styled(DIM),
        Cell::from(paper.size(line.live)),
        Cell::from(paper.change(line.change)).styled(style),
        Cell::from(""),
        Cell::from(source),
    ]);
    for (sign, style, tensors) in [("+", BAD, &line.came), ("-", GOOD, &line.went)] {
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
