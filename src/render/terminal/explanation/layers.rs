//! The table of layers, similar to the one of Keras, with the memory of each layer.

use std::collections::HashMap;

use super::grid::{Cell, Column, Grid};
use super::paper::{Canvas, Cut, DIM, NOTICE, PLAIN, STRONG};
use super::rows::{LayerRow, folded, with_subtotals};
use super::tensors::resolved;
use crate::bytes::Bytes;
use crate::explain::{Activations, Category, Explanation};
use crate::protocol::Task;
use crate::report::words::count;
use crate::untrusted::Foreign;

/// The width of the bar beside a layer, in characters.
const BAR: u128 = 10;

/// Renders the layers that hold the most memory at the peak, the largest first. The rows add up to live memory.
pub(super) fn largest(explanation: &Explanation, most: usize, paper: &Canvas) -> String {
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
        Column::right("total"),
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
    // The rows add up to live memory only with what belongs to no layer, such as inputs and the loss.
    // See docs/design/layers.md.
    let elsewhere = Bytes(peak.live.0.saturating_sub(in_layers.0));
    let plain = |path: &str, bytes: Bytes| [path, "", "", "", "", &paper.size(bytes), ""].map(Cell::from);
    grid.row(plain("outside layers", elsewhere).map(|cell| cell.styled(DIM)));
    grid.rule();
    grid.row(plain("live", peak.live).map(|cell| cell.styled(STRONG)));
    let inferred = layers.iter().any(|layer| layer.inferred);
    paper.heading("Largest layers", "by the memory that each holds at the peak")
        + &grid.draw(paper)
        + &legend(inferred.then_some(INFERRED).into_iter(), paper)
}

/// The memory of a layer at the peak; of several layers if they have the same path.
#[derive(Default)]
struct Holding {
    path: String,
    inferred: bool,
    kind: String,
    output: Option<Vec<u64>>,
    /// All tensors of the layer except weights: its outputs, their gradients and other temporary tensors.
    activations: Bytes,
    /// Parameters, buffers, their gradients and their optimizer state.
    weights: Bytes,
}

impl Holding {
    fn bytes(&self) -> Bytes {
        self.activations + self.weights
    }

    fn cells(&self, whole: Bytes, paper: &Canvas) -> [Cell; 7] {
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

/// Returns the memory of each layer at the peak, the largest first.
fn holding(explanation: &Explanation) -> Vec<Holding> {
    // A map: a search per tensor would take quadratic time, and a test measures that.
    let mut places: HashMap<&str, usize> = HashMap::new();
    let mut layers: Vec<Holding> = Vec::new();
    for tensor in resolved(explanation, &explanation.peak.tensors) {
        let Some(module) = tensor.module.as_ref().map(Foreign::raw) else {
            continue;
        };
        let place = *places.entry(module).or_insert_with(|| {
            let layer = explanation.layers.iter().find(|layer| layer.path == module);
            layers.push(Holding {
                path: module.to_owned(),
                inferred: layer.is_some_and(|layer| layer.inferred),
                kind: layer.map_or_else(String::new, |layer| layer.kind.raw().to_owned()),
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

/// Renders all layers, or the layers and modules down to a depth, with their sums.
pub(super) fn layers(explanation: &Explanation, depth: Option<usize>, paper: &Canvas) -> String {
    let heading = paper.heading("Layers", counted(explanation));
    if explanation.layers.is_empty() {
        return heading + &paper.prose(2, PLAIN, "no layer was observed") + &totals(explanation, paper);
    }
    let all: Vec<_> = explanation.layers.iter().map(LayerRow::from_layer).collect();
    let sum = LayerRow::from_rows(&all.iter().collect::<Vec<_>>(), "total");
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
    // The total is the explanation's, not the sum of the rows. These two rows say by how much the two differ,
    // which can be in either direction, column by column.
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
    // `i128`, because neither order of two `u64` may overflow.
    let by = |total: u64, sum: u64| i128::from(total) - i128::from(sum);
    let differences = [
        by(figures.parameters, sum.parameters),
        by(figures.parameter_bytes.0, sum.parameter_bytes.0),
        by(figures.feature_bytes.0, sum.feature_bytes.0),
    ];
    apart("in no layer", true, differences);
    apart("counted twice", false, differences);
    grid.rule();
    let total = LayerRow {
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
        Activations::Fused => "activations are part of the layer before",
        Activations::InPlace => "activations count nothing, as if in place",
    }
}

pub(super) fn path(path: &str, inferred: bool, paper: &Canvas) -> Cell {
    let path = paper.name(path);
    if inferred {
        Cell::from(format!("~{path}")).styled(DIM)
    } else {
        Cell::from(path)
    }
}

pub(super) fn shape(shape: Option<&Vec<u64>>, paper: &Canvas) -> String {
    shape.map_or_else(String::new, |shape| paper.shape(shape))
}

pub(super) fn bar(part: u64, whole: u64, paper: &Canvas) -> String {
    if whole == 0 || part == 0 {
        return String::new();
    }
    // In eighths of a character, because Unicode has such blocks.
    let eighths = (u128::from(part) * BAR * 8).div_ceil(u128::from(whole)).min(BAR * 8);
    let full = usize::try_from(eighths / 8).unwrap_or(0);
    if !paper.unicode {
        // A layer that holds memory is never without a bar.
        return "#".repeat(full.max(1));
    }
    let rest = ["", "▏", "▎", "▍", "▌", "▋", "▊", "▉"];
    let rest = usize::try_from(eighths % 8).ok().and_then(|at| rest.get(at));
    format!("{}{}", "█".repeat(full), rest.unwrap_or(&""))
}

const INFERRED: &str = "~ path inferred from its neighbours";
const SHARES: &str = "* Burn allocated no memory for this output; the value follows the rule of the table";

/// Renders the meaning of the marks in the table, if there are any.
fn marks(rows: &[LayerRow], paper: &Canvas) -> String {
    let inferred = rows.iter().any(|row| row.inferred).then_some(INFERRED);
    let shares = rows.iter().any(|row| row.shares_memory).then_some(SHARES);
    legend(inferred.into_iter().chain(shares), paper)
}

fn legend<'a>(marks: impl Iterator<Item = &'a str>, paper: &Canvas) -> String {
    let marks: Vec<_> = marks.collect();
    if marks.is_empty() {
        return String::new();
    }
    paper.prose(2, DIM, &marks.join(paper.dot()))
}

/// Renders the sums of all layers.
fn totals(explanation: &Explanation, paper: &Canvas) -> String {
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
    // In inference, no parameter counts as learnable.
    if explanation.run.task != Some(Task::Infer) {
        row("  learnable", count(totals.learnable), String::new());
        row("  not learnable", count(totals.not_learnable), String::new());
    }
    row("feature maps", String::new(), paper.size(totals.feature_bytes));
    row("  inputs", String::new(), paper.size(totals.input_bytes));
    let outputs = Bytes(totals.feature_bytes.0.saturating_sub(totals.input_bytes.0));
    row("  outputs", String::new(), paper.size(outputs));
    row(
        "outputs and gradients of the same size",
        String::new(),
        paper.size(totals.forward_backward_bytes),
    );
    row(
        "parameters and feature maps",
        String::new(),
        paper.size(totals.total_bytes),
    );
    let text = grid.draw(paper);
    // A file may contradict itself. The reader learns that here instead of from an odd sum.
    let apart = totals.learnable.checked_add(totals.not_learnable) != Some(totals.parameters);
    if apart {
        return text
            + &paper.prose(
                2,
                NOTICE,
                "learnable and not learnable parameters do not add up to all parameters",
            );
    }
    text
}
