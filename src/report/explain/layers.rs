//! The table of layers, as Keras has it, with what each takes.

use std::collections::HashMap;

use super::grid::{Cell, Column, Grid};
use super::paper::{Cut, DIM, NOTICE, PLAIN, Paper, STRONG};
use super::rows::{Row, folded, with_subtotals};
use super::tensors::resolved;
use crate::bytes::Bytes;
use crate::explain::{Activations, Category, Explanation};
use crate::protocol::Task;
use crate::report::words::count;

/// Cells of the bar beside a layer.
const BAR: u128 = 10;

/// The layers that hold the most at the peak, the largest first, and all else, so that it adds up to live.
pub(super) fn largest(explanation: &Explanation, most: usize, paper: &Paper) -> String {
    let mut layers = holding(explanation);
    if layers.is_empty() {
        return String::new();
    }
    let peak = &explanation.peak;
    let in_layers: Bytes = layers.iter().map(Holding::bytes).sum();
    let rest = layers.split_off(most.min(layers.len()));
    let mut grid = Grid::new([
        Column::left("layer").cut(Cut::Middle, 16),
        Column::left("kind").cut(Cut::End, 9).expendable(2),
        Column::left("output").cut(Cut::Middle, 14).expendable(3),
        Column::right("activations"),
        Column::right("weights").expendable(1),
        Column::right("together"),
        Column::left("").expendable(4),
    ]);
    for layer in &layers {
        grid.row(layer.cells(peak.live, paper));
    }
    if !rest.is_empty() {
        let sum = Holding {
            path: format!("{} more", rest.len()),
            activations: rest.iter().map(|layer| layer.activations).sum(),
            weights: rest.iter().map(|layer| layer.weights).sum(),
            ..Holding::default()
        };
        grid.row(sum.cells(peak.live, paper).map(|cell| cell.styled(DIM)));
    }
    let elsewhere = Bytes(peak.live.0.saturating_sub(in_layers.0));
    let plain = |path: &str, bytes: Bytes| [path, "", "", "", "", &paper.size(bytes), ""].map(Cell::from);
    grid.row(plain("of no layer", elsewhere).map(|cell| cell.styled(DIM)));
    grid.rule();
    grid.row(plain("live", peak.live).map(|cell| cell.styled(STRONG)));
    let inferred = layers.iter().any(|layer| layer.inferred);
    paper.heading("Largest layers", "what each holds at the peak")
        + &grid.draw(paper)
        + &legend(inferred.then_some(INFERRED).into_iter(), paper)
}

/// A layer, or several of the same path, at the peak.
#[derive(Default)]
struct Holding {
    path: String,
    inferred: bool,
    kind: String,
    output: Option<Vec<u64>>,
    /// What it made, and the gradients of that.
    activations: Bytes,
    /// Parameters, buffers, their gradients and what the optimizer keeps for them.
    weights: Bytes,
}

impl Holding {
    fn bytes(&self) -> Bytes {
        self.activations + self.weights
    }

    fn cells(&self, whole: Bytes, paper: &Paper) -> [Cell; 7] {
        let none_or = |bytes: Bytes| match bytes {
            Bytes(0) => paper.none().to_owned(),
            bytes => paper.size(bytes),
        };
        [
            path(&self.path, self.inferred, paper),
            Cell::from(paper.name(&self.kind)).styled(DIM),
            Cell::from(shape(self.output.as_ref(), paper)),
            Cell::from(none_or(self.activations)),
            Cell::from(none_or(self.weights)),
            Cell::from(paper.size(self.bytes())),
            Cell::from(bar(self.bytes().0, whole.0, paper)).styled(super::categories::look(Category::Activation).style),
        ]
    }
}

/// What the layers hold at the peak, those with the most first.
fn holding(explanation: &Explanation) -> Vec<Holding> {
    let mut places: HashMap<&str, usize> = HashMap::new();
    let mut layers: Vec<Holding> = Vec::new();
    for tensor in resolved(explanation, &explanation.peak.tensors) {
        let Some(module) = tensor.module.as_deref() else {
            continue;
        };
        let place = *places.entry(module).or_insert_with(|| {
            let layer = explanation.layers.iter().find(|layer| layer.path == module);
            layers.push(Holding {
                path: module.to_owned(),
                inferred: layer.is_some_and(|layer| layer.inferred),
                kind: layer.map_or_else(String::new, |layer| layer.kind.clone()),
                output: layer.map(|layer| layer.output.clone()),
                ..Holding::default()
            });
            layers.len() - 1
        });
        let Some(layer) = layers.get_mut(place) else { continue };
        match tensor.category {
            Category::Parameter | Category::Buffer | Category::Gradient | Category::OptimizerState => {
                layer.weights += tensor.bytes;
            }
            _ => layer.activations += tensor.bytes,
        }
    }
    layers.sort_by_key(|layer| std::cmp::Reverse(layer.bytes()));
    layers
}

/// All layers, or their modules down to a depth, and what they add up to.
pub(super) fn layers(explanation: &Explanation, depth: Option<usize>, paper: &Paper) -> String {
    let heading = paper.heading("Layers", counted(explanation));
    if explanation.layers.is_empty() {
        return heading + &paper.prose(2, PLAIN, "no layer was seen") + &totals(explanation, paper);
    }
    let all: Vec<_> = explanation.layers.iter().map(Row::of).collect();
    let sum = Row::sum(&all.iter().collect::<Vec<_>>(), "total");
    let rows = match depth {
        Some(depth) => folded(all, depth),
        None => all,
    };
    let mut grid = table();
    let whole = explanation.totals.total_bytes;
    for line in with_subtotals(&rows) {
        match line.is_subtotal {
            true => grid.row(
                line.row
                    .cells(line.depth, Bytes(0), paper)
                    .map(|cell| cell.styled(STRONG)),
            ),
            false => grid.row(line.row.cells(line.depth, whole, paper)),
        }
    }
    let figures = &explanation.totals;
    let mut apart = |name: &str, is_missing: bool, [parameters, parameter_bytes, feature_bytes]: [i128; 3]| {
        let is_one = |by: i128| if is_missing { by > 0 } else { by < 0 };
        if [parameters, parameter_bytes, feature_bytes].into_iter().any(is_one) {
            let shown = |by: i128, text: &dyn Fn(u64) -> String| {
                let size = u64::try_from(by.unsigned_abs()).unwrap_or(u64::MAX);
                match (is_one(by), is_missing) {
                    (true, true) => text(size),
                    (true, false) => format!("-{}", text(size)),
                    (false, _) => String::new(),
                }
            };
            grid.row([
                Cell::from(name).styled(DIM),
                Cell::from(""),
                Cell::from(""),
                Cell::from(""),
                Cell::from(shown(parameters, &|number| count(number))),
                Cell::from(shown(parameter_bytes, &|bytes| paper.size(Bytes(bytes)))),
                Cell::from(shown(feature_bytes, &|bytes| paper.size(Bytes(bytes)) + " ")),
            ]);
        }
    };
    let by = |total: u64, sum: u64| i128::from(total) - i128::from(sum);
    let differences = [
        by(figures.parameters, sum.parameters),
        by(figures.parameter_bytes.0, sum.parameter_bytes.0),
        by(figures.feature_bytes.0, sum.feature_bytes.0),
    ];
    apart("in none of them", true, differences);
    apart("counted twice", false, differences);
    grid.rule();
    let total = Row {
        parameters: figures.parameters,
        parameter_bytes: figures.parameter_bytes,
        feature_bytes: figures.feature_bytes,
        ..sum
    };
    grid.row(total.cells(0, Bytes(0), paper).map(|cell| cell.styled(STRONG)));
    heading + &grid.draw(paper) + &marks(&rows, paper) + "\n" + &totals(explanation, paper)
}

fn table() -> Grid {
    Grid::new([
        Column::left("layer").cut(Cut::Middle, 16),
        Column::left("kind").cut(Cut::End, 9).expendable(2),
        Column::left("output").cut(Cut::Middle, 14),
        Column::left("type").expendable(5),
        Column::right("parameters").expendable(3),
        Column::right("in bytes").expendable(1),
        Column::right("feature map "),
        Column::left("").expendable(4),
    ])
}

const fn counted(explanation: &Explanation) -> &'static str {
    match explanation.activations {
        Activations::Own => "each activation counts its own output",
        Activations::Fused => "activations count with the layer before",
        Activations::InPlace => "activations count nothing, as if in place",
    }
}

pub(super) fn path(path: &str, inferred: bool, paper: &Paper) -> Cell {
    let path = paper.name(path);
    if inferred {
        Cell::from(format!("~{path}")).styled(DIM)
    } else {
        Cell::from(path)
    }
}

pub(super) fn shape(shape: Option<&Vec<u64>>, paper: &Paper) -> String {
    shape.map_or_else(String::new, |shape| paper.shape(shape))
}

pub(super) fn bar(part: u64, whole: u64, paper: &Paper) -> String {
    if whole == 0 || part == 0 {
        return String::new();
    }
    // In eighths of a cell, where there are such.
    let eighths = (u128::from(part) * BAR * 8).div_ceil(u128::from(whole)).min(BAR * 8);
    let full = usize::try_from(eighths / 8).unwrap_or(0);
    if !paper.unicode {
        return "#".repeat(full.max(1));
    }
    let rest = ["", "▏", "▎", "▍", "▌", "▋", "▊", "▉"];
    let rest = usize::try_from(eighths % 8).ok().and_then(|at| rest.get(at));
    format!("{}{}", "█".repeat(full), rest.unwrap_or(&""))
}

const INFERRED: &str = "~ path inferred from its neighbours";
const SHARES: &str = "* counted as the table counts, though Burn gave it no memory of its own";

/// What the marks in the table mean, where there are any.
fn marks(rows: &[Row], paper: &Paper) -> String {
    let inferred = rows.iter().any(|row| row.inferred).then_some(INFERRED);
    let shares = rows.iter().any(|row| row.shares_memory).then_some(SHARES);
    legend(inferred.into_iter().chain(shares), paper)
}

fn legend<'a>(marks: impl Iterator<Item = &'a str>, paper: &Paper) -> String {
    let marks: Vec<_> = marks.collect();
    if marks.is_empty() {
        return String::new();
    }
    paper.prose(2, DIM, &marks.join(paper.dot()))
}

/// What the layers add up to, in words.
fn totals(explanation: &Explanation, paper: &Paper) -> String {
    let totals = &explanation.totals;
    let mut grid = Grid::new([Column::left("").cut(Cut::End, 20), Column::right(""), Column::right("")]);
    let mut row = |name: &str, number: String, bytes: String| {
        let style = if name.starts_with(' ') { DIM } else { PLAIN };
        let texts = [name.to_owned(), number, bytes];
        grid.row(texts.map(|text| Cell::from(text).styled(style)));
    };
    if let Some(batch) = totals.batch_size {
        row("batch size", count(batch), String::new());
    }
    row(
        "parameters",
        count(totals.parameters),
        paper.size(totals.parameter_bytes),
    );
    // Only training tells them apart.
    if explanation.run.task != Some(Task::Infer) {
        row("  learnable", count(totals.learnable), String::new());
        row("  not learnable", count(totals.not_learnable), String::new());
    }
    row("feature maps", String::new(), paper.size(totals.feature_bytes));
    row("  of these, inputs", String::new(), paper.size(totals.input_bytes));
    let outputs = Bytes(totals.feature_bytes.0.saturating_sub(totals.input_bytes.0));
    row("  of these, outputs", String::new(), paper.size(outputs));
    row(
        "outputs and as much for their gradients",
        String::new(),
        paper.size(totals.forward_backward_bytes),
    );
    row(
        "parameters and feature maps",
        String::new(),
        paper.size(totals.total_bytes),
    );
    let text = grid.draw(paper);
    let apart = totals.learnable.checked_add(totals.not_learnable) != Some(totals.parameters);
    if apart {
        return text + &paper.prose(2, NOTICE, "learnable and not learnable do not add up to all parameters");
    }
    text
}
