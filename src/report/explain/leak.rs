//! Live memory that grows from step to step, and what it consists of.

use std::collections::HashMap;

use super::grid::{Cell, Column, Grid};
use super::paper::{BAD, Cut, DIM, GOOD, Paper};
use super::tensors::{resolved, source};
use crate::bytes::Bytes;
use crate::explain::{Explanation, Leak, Source, Tensor};

/// Steps that are listed one by one, at the beginning and at the end.
const LISTED: usize = 4;
/// Kinds of tensors that are listed.
const KINDS: usize = 12;

/// Also that there is none.
pub(super) fn told(explanation: &Explanation, paper: &Paper) -> String {
    if explanation.leak.is_some() {
        return leak(explanation, paper);
    }
    paper.heading("Leak", "") + &paper.prose(2, GOOD, "none: live does not grow from step to step")
}

/// Nothing where there is none.
pub(super) fn leak(explanation: &Explanation, paper: &Paper) -> String {
    let Some(leak) = &explanation.leak else {
        return String::new();
    };
    let mut text = paper.heading("Leak", "live at the end of each step");
    let growth = format!("each step adds {} that is never freed", paper.size(leak.per_step));
    text.push_str(&paper.prose(2, BAD, &growth));
    text.push_str(&paper.prose(2, BAD, &sparkline(&leak.steps, paper)));
    text.push_str(&steps(leak, paper));
    text.push_str(&kinds(explanation, leak, paper));
    text
}

fn steps(leak: &Leak, paper: &Paper) -> String {
    let mut grid = Grid::new([
        Column::right("step"),
        Column::right("live at its end"),
        Column::right("change"),
    ]);
    let left_out = leak.steps.len().saturating_sub(2 * LISTED);
    let mut before: Option<Bytes> = None;
    for (at, live) in leak.steps.iter().enumerate() {
        let change = before.map_or_else(
            || paper.none().to_owned(),
            |before| {
                let by = i128::from(live.0) - i128::from(before.0);
                paper.change(i64::try_from(by).unwrap_or(i64::MAX))
            },
        );
        before = Some(*live);
        if left_out > 0 && at == LISTED {
            grid.remark(format!("{left_out} more steps"), DIM);
        }
        if left_out > 0 && (LISTED..LISTED + left_out).contains(&at) {
            continue;
        }
        grid.row([
            Cell::from(at.to_string()),
            Cell::from(paper.size(*live)),
            Cell::from(change).styled(BAD),
        ]);
    }
    grid.draw(paper)
}

/// What grows, by the operation that made it and where that was asked for.
fn kinds(explanation: &Explanation, leak: &Leak, paper: &Paper) -> String {
    type Kind<'a> = (&'a str, Option<&'a Source>);
    let mut kinds: Vec<(Kind<'_>, Vec<&Tensor>)> = Vec::new();
    let mut places: HashMap<Kind<'_>, usize> = HashMap::new();
    for tensor in resolved(explanation, &leak.tensors) {
        let kind = (tensor.operation.as_str(), tensor.source.as_ref());
        let place = *places.entry(kind).or_insert(kinds.len());
        match kinds.get_mut(place) {
            Some((_, tensors)) => tensors.push(tensor),
            None => kinds.push((kind, vec![tensor])),
        }
    }
    let bytes = |tensors: &[&Tensor]| tensors.iter().map(|tensor| tensor.bytes).sum::<Bytes>();
    kinds.sort_by_key(|(_, tensors)| std::cmp::Reverse(bytes(tensors)));
    if kinds.is_empty() {
        return String::new();
    }
    let mut text = format!("\n{}", paper.prose(2, DIM, "what stays, by operation and line"));
    let mut grid = Grid::new([
        Column::right("kept"),
        Column::right("tensors"),
        Column::left("shape").cut(Cut::Middle, 10).expendable(1),
        Column::left("operation").cut(Cut::Middle, 10),
        Column::left("source").cut(Cut::Start, 14),
    ]);
    for ((operation, place), tensors) in kinds.iter().take(KINDS) {
        let shape = tensors.first().map(|tensor| paper.shape(&tensor.shape));
        grid.row([
            Cell::from(paper.size(bytes(tensors))),
            Cell::from(paper.count(tensors.len() as u64)),
            Cell::from(shape.unwrap_or_default()),
            Cell::from(paper.name(operation)),
            Cell::from(source(*place, paper)).styled(DIM),
        ]);
    }
    let rest = kinds.get(KINDS..).unwrap_or_default();
    if !rest.is_empty() {
        let sum: Bytes = rest.iter().map(|(_, tensors)| bytes(tensors)).sum();
        grid.remark(
            format!("and {} more kinds, {} together", rest.len(), paper.size(sum)),
            DIM,
        );
    }
    text.push_str(&grid.draw(paper));
    text
}

/// Values in a line, from the least to the most.
fn sparkline(values: &[Bytes], paper: &Paper) -> String {
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
        let level = u128::from(value.0 - least.0) * 7 / span;
        usize::try_from(level).ok().and_then(|level| levels.get(level)).copied()
    };
    (0..columns).filter_map(column).collect()
}
