//! A leak: live memory that grows from step to step, and the tensors that cause it.

use std::collections::HashMap;

use super::grid::{Cell, Column, Grid};
use super::paper::{BAD, Canvas, Cut, DIM, GOOD, NOTICE, STRONG};
use super::tensors::{resolved, source};
use crate::bytes::Bytes;
use crate::explain::{Explanation, Leak, Leaking, MemoryHolders, TensorLife};
use crate::report::GrowthInterval;
use crate::report::words::count;

/// How many steps are listed at the beginning, and at the end.
const LISTED: usize = 4;
/// The most kinds of tensors that are listed.
const KINDS: usize = 12;

/// Renders the leak, or that there is none, or that the run had too few steps.
pub(super) fn told(explanation: &Explanation, paper: &Canvas) -> String {
    let (style, words) = match &explanation.leak {
        Leaking::Yes(_) => return leak(explanation, paper),
        // "None" and "unknown" differ: too few steps are no sign that there is no leak.
        // See docs/design/leaks.md.
        Leaking::No { interval } => {
            let each = interval.name();
            (GOOD, format!("none: live memory does not grow from {each} to {each}"))
        }
        Leaking::Unknown { interval, seen, needed } => {
            let each = interval.name();
            let few = format!("unknown: leak detection needs {needed} {each}s, but the run had {seen}");
            let more = match interval {
                GrowthInterval::Step => "--steps 10".to_owned(),
                GrowthInterval::Epoch => format!("--epochs {needed}"),
            };
            // If the run failed before its last step, more steps do not help.
            let run = &explanation.run;
            match run.error.is_none() && run.oom.is_none() {
                true => (NOTICE, format!("{few}; use {more}")),
                false => (NOTICE, few),
            }
        }
    };
    paper.heading("Leak", "") + &paper.prose(2, style, &words)
}

/// Renders the leak. Returns nothing if there is none.
pub(super) fn leak(explanation: &Explanation, paper: &Canvas) -> String {
    let Some(leak) = explanation.leak.found() else {
        return String::new();
    };
    let each = leak.growing.interval.name();
    let mut text = paper.heading("Leak", &format!("memory in use at the end of each {each}"));
    text.push_str(&paper.prose(2, BAD, &summary(explanation, leak, paper)));
    text.push_str(&paper.prose(2, BAD, &sparkline(&leak.growing.steps, paper)));
    text.push_str(&self::steps(leak, paper));
    let holders = MemoryHolders::new(&explanation.tensors);
    text.push_str(&self::kinds(&holders, &kinds_of(explanation, &holders, leak), paper));
    text.push_str(&keepers(explanation, &holders, leak, paper));
    text
}

/// Lists the lines that keep the tensors.
fn keepers(explanation: &Explanation, holders: &MemoryHolders<'_>, leak: &Leak, paper: &Canvas) -> String {
    if leak.keepers.is_empty() {
        return String::new();
    }
    let mut text = format!("\n{}", paper.prose(2, DIM, "most likely kept by"));
    let mut grid = Grid::new([
        Column::right("kept"),
        Column::right("tensors"),
        Column::left("source").cut(Cut::Start, 14),
        Column::left("line").cut(Cut::Middle, 10),
    ]);
    for keeper in leak.keepers.iter().take(KINDS) {
        let place = format!("{}:{}", paper.name(keeper.file.raw()), keeper.line);
        let tensors: Vec<_> = resolved(explanation, &keeper.tensors).collect();
        grid.row([
            Cell::from(paper.size(holders.held_by(&tensors))),
            Cell::from(count(tensors.len() as u64)),
            Cell::from(place),
            Cell::from(paper.name(keeper.text.raw())).styled(STRONG),
        ]);
    }
    text.push_str(&grid.draw(paper));
    text
}

/// Describes in one sentence how much memory each step leaves, with the largest kind of tensor.
pub(super) fn summary(explanation: &Explanation, leak: &Leak, paper: &Canvas) -> String {
    let kinds = kinds_of(explanation, &MemoryHolders::new(&explanation.tensors), leak);
    let largest = kinds.first().and_then(|kind| kind.first());
    let what = largest.map_or_else(String::new, |tensor| {
        let (shape, dtype) = (paper.shape(&tensor.shape), paper.name(tensor.dtype.raw()));
        match &tensor.source {
            Some(_) => format!(" ({shape} {dtype}, {})", source(tensor.source.as_ref(), paper)),
            None => format!(" ({shape} {dtype})"),
        }
    });
    leak.growing.summary(&what, |bytes| paper.size(bytes))
}

fn steps(leak: &Leak, paper: &Canvas) -> String {
    let each = leak.growing.interval.name();
    let first = leak.growing.first_number() as usize;
    let mut grid = Grid::new([
        Column::right(each),
        Column::right("in use at end"),
        Column::right("change"),
    ]);
    // The first steps show how it begins, and the last ones that it goes on.
    let left_out = leak.growing.steps.len().saturating_sub(2 * LISTED);
    let mut before: Option<Bytes> = None;
    for (at, live) in leak.growing.steps.iter().enumerate() {
        let change = before.map_or_else(
            || paper.none().to_owned(),
            |before| {
                let by = i128::from(live.0) - i128::from(before.0);
                paper.change(i64::try_from(by).unwrap_or(i64::MAX))
            },
        );
        before = Some(*live);
        if left_out > 0 && at == LISTED {
            grid.remark(format!("{left_out} more {each}s"), DIM);
        }
        if left_out > 0 && (LISTED..LISTED + left_out).contains(&at) {
            continue;
        }
        grid.row([
            Cell::from((at + first).to_string()),
            Cell::from(paper.size(*live)),
            Cell::from(change).styled(BAD),
        ]);
    }
    grid.draw(paper)
}

/// Groups the tensors of a leak by kind, the largest kind first. Tensors of a kind have the same bytes, shape, dtype,
/// operation and source line.
fn kinds_of<'a>(explanation: &'a Explanation, holders: &MemoryHolders<'_>, leak: &'a Leak) -> Vec<Vec<&'a TensorLife>> {
    let mut kinds: Vec<Vec<&TensorLife>> = Vec::new();
    let mut places = HashMap::new();
    for tensor in resolved(explanation, &leak.tensors) {
        // A leak keeps equal tensors of many steps. Only together do
        // they show how much one line of the code leaves.
        let look = (tensor.bytes, &tensor.shape, &tensor.dtype);
        let kind = (look, &tensor.operation, &tensor.source);
        let place = *places.entry(kind).or_insert(kinds.len());
        match kinds.get_mut(place) {
            Some(tensors) => tensors.push(tensor),
            None => kinds.push(vec![tensor]),
        }
    }
    kinds.sort_by_cached_key(|tensors| std::cmp::Reverse(holders.held_by(tensors)));
    kinds
}

fn kinds(holders: &MemoryHolders<'_>, kinds: &[Vec<&TensorLife>], paper: &Canvas) -> String {
    if kinds.is_empty() {
        return String::new();
    }
    let mut text = format!(
        "\n{}",
        paper.prose(2, DIM, "tensors that remain, by shape, operation and line")
    );
    let mut grid = Grid::new([
        Column::right("kept"),
        Column::right("tensors"),
        Column::left("shape").cut(Cut::Middle, 10).expendable(1),
        Column::left("type").expendable(2),
        Column::left("operation").cut(Cut::Middle, 10),
        Column::left("source").cut(Cut::Start, 14),
    ]);
    for tensors in kinds.iter().take(KINDS) {
        let Some(one) = tensors.first() else { continue };
        grid.row([
            Cell::from(paper.size(holders.held_by(tensors))),
            Cell::from(count(tensors.len() as u64)),
            Cell::from(paper.shape(&one.shape)),
            Cell::from(paper.name(one.dtype.raw())).styled(DIM),
            Cell::from(paper.name(one.operation.raw())),
            Cell::from(source(one.source.as_ref(), paper)).styled(DIM),
        ]);
    }
    let rest = kinds.get(KINDS..).unwrap_or_default();
    if !rest.is_empty() {
        let sum = holders.held_by(&rest.concat());
        grid.remark(
            format!("and {} more kinds, {} in total", rest.len(), paper.size(sum)),
            DIM,
        );
    }
    text.push_str(&grid.draw(paper));
    text
}

/// Draws values as a line of bars, scaled from the smallest to the largest value.
fn sparkline(values: &[Bytes], paper: &Canvas) -> String {
    let levels: &[char] = if paper.unicode {
        &['▁', '▂', '▃', '▄', '▅', '▆', '▇', '█']
    } else {
        &['_', '.', '-', '=', '+', '*', '%', '#']
    };
    let (Some(least), Some(most)) = (values.iter().min(), values.iter().max()) else {
        return String::new();
    };
    let room = paper.columns().saturating_sub(4).max(1);
    let columns = values.len().min(room);
    let span = u128::from(most.0 - least.0).max(1);
    let column = |at: usize| {
        let (from, to) = (at * values.len() / columns, (at + 1) * values.len() / columns);
        let value = values.get(from..to.max(from + 1))?.iter().max()?;
        // From the smallest value: a leak is small beside all memory, so from 0 all bars would be equal.
        let level = u128::from(value.0 - least.0) * 7 / span;
        usize::try_from(level).ok().and_then(|level| levels.get(level)).copied()
    };
    (0..columns).filter_map(column).collect()
}
