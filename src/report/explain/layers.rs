//! The table of layers, as Keras has it, with what each takes.

use std::collections::HashMap;

use super::grid::{Cell, Column, Grid};
use super::paper::{Cut, DIM, NOTICE, PLAIN, Paper, STRONG};
use crate::bytes::Bytes;
use crate::explain::{Activations, Explanation, Layer};

/// Cells of the bar beside a layer.
const BAR: u128 = 10;

/// The layers that take the most, the largest first.
pub(super) fn largest(explanation: &Explanation, most: usize, paper: &Paper) -> String {
    if explanation.layers.is_empty() {
        return String::new();
    }
    let mut layers: Vec<_> = explanation.layers.iter().map(Row::of).collect();
    layers.sort_by_key(|layer| std::cmp::Reverse(layer.bytes()));
    let rest = layers.split_off(most.min(layers.len()));
    let mut grid = table();
    let whole = explanation.totals.total_bytes;
    for layer in &layers {
        grid.row(layer.cells(whole, paper));
    }
    if !rest.is_empty() {
        let sum = Row::sum(&rest, format!("{} more", rest.len()));
        grid.row(sum.cells(whole, paper).map(|cell| cell.styled(DIM)));
    }
    paper.heading("Largest layers", counted(explanation)) + &grid.draw(paper) + &marks(&layers, paper)
}

/// All layers, or their modules down to a depth, and what they add up to.
pub(super) fn layers(explanation: &Explanation, depth: Option<usize>, paper: &Paper) -> String {
    let heading = paper.heading("Layers", counted(explanation));
    if explanation.layers.is_empty() {
        return heading + &paper.prose(2, PLAIN, "no layer was seen") + &totals(explanation, paper);
    }
    let all: Vec<_> = explanation.layers.iter().map(Row::of).collect();
    let sum = Row::sum(&all, "total".to_owned());
    let rows = match depth {
        Some(depth) => folded(all, depth),
        None => all,
    };
    let mut grid = table();
    let whole = explanation.totals.total_bytes;
    for row in &rows {
        grid.row(row.cells(whole, paper));
    }
    let figures = &explanation.totals;
    let mut apart = |name: &str, parameters: i128, parameter_bytes: i128, feature_bytes: i128| {
        let differs = [parameters, parameter_bytes, feature_bytes];
        if differs
            .iter()
            .any(|by| name.starts_with("in") && *by > 0 || name.starts_with("counted") && *by < 0)
        {
            let shown = |by: i128, text: &dyn Fn(u64) -> String| {
                let size = u64::try_from(by.unsigned_abs()).unwrap_or(u64::MAX);
                match (name.starts_with("in"), by) {
                    (true, 1..) => text(size),
                    (false, ..0) => format!("-{}", text(size)),
                    _ => String::new(),
                }
            };
            grid.row([
                Cell::from(name).styled(DIM),
                Cell::from(""),
                Cell::from(""),
                Cell::from(shown(parameters, &|number| paper.count(number))),
                Cell::from(shown(parameter_bytes, &|bytes| paper.size(Bytes(bytes)))),
                Cell::from(shown(feature_bytes, &|bytes| paper.size(Bytes(bytes)) + " ")),
            ]);
        }
    };
    let by = |total: u64, sum: u64| i128::from(total) - i128::from(sum);
    let differences = (
        by(figures.parameters, sum.parameters),
        by(figures.parameter_bytes.0, sum.parameter_bytes.0),
        by(figures.feature_bytes.0, sum.feature_bytes.0),
    );
    apart("in none of them", differences.0, differences.1, differences.2);
    apart("counted twice", differences.0, differences.1, differences.2);
    grid.rule();
    let total = Row {
        parameters: figures.parameters,
        parameter_bytes: figures.parameter_bytes,
        feature_bytes: figures.feature_bytes,
        ..sum
    };
    grid.row(total.cells(Bytes(0), paper).map(|cell| cell.styled(STRONG)));
    heading + &grid.draw(paper) + &marks(&rows, paper) + "\n" + &totals(explanation, paper)
}

fn table() -> Grid {
    Grid::new([
        Column::left("layer").cut(Cut::Middle, 16),
        Column::left("kind").cut(Cut::End, 9).expendable(2),
        Column::left("output").cut(Cut::Middle, 14),
        Column::right("parameters").expendable(3),
        Column::right("their bytes").expendable(1),
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

/// A row: a layer, or several.
struct Row {
    path: String,
    inferred: bool,
    kind: String,
    output: Option<Vec<u64>>,
    parameters: u64,
    parameter_bytes: Bytes,
    feature_bytes: Bytes,
    shares_memory: bool,
    /// Layers in it.
    layers: usize,
}

impl Row {
    fn of(layer: &Layer) -> Self {
        Self {
            path: layer.path.clone(),
            inferred: layer.inferred,
            kind: layer.kind.clone(),
            output: Some(layer.output.clone()),
            parameters: layer.parameters,
            parameter_bytes: layer.parameter_bytes,
            feature_bytes: layer.feature_bytes,
            shares_memory: layer.shares_memory,
            layers: 1,
        }
    }

    fn sum(rows: &[Self], path: String) -> Self {
        Self {
            path,
            inferred: false,
            kind: String::new(),
            output: None,
            parameters: rows.iter().map(|row| row.parameters).sum(),
            parameter_bytes: rows.iter().map(|row| row.parameter_bytes).sum(),
            feature_bytes: rows.iter().map(|row| row.feature_bytes).sum(),
            shares_memory: false,
            layers: rows.iter().map(|row| row.layers).sum(),
        }
    }

    const fn bytes(&self) -> u64 {
        self.parameter_bytes.0 + self.feature_bytes.0
    }

    fn cells(&self, whole: Bytes, paper: &Paper) -> [Cell; 7] {
        let path = paper.name(&self.path);
        let path = if self.inferred { format!("~{path}") } else { path };
        let style = if self.inferred { DIM } else { PLAIN };
        let parameters = |text: String| {
            if self.parameter_bytes == Bytes(0) {
                String::new()
            } else {
                text
            }
        };
        let mark = if self.shares_memory { "*" } else { " " };
        [
            Cell::from(path).styled(style),
            Cell::from(paper.name(&self.kind)).styled(DIM),
            Cell::from(
                self.output
                    .as_ref()
                    .map_or_else(String::new, |shape| paper.shape(shape)),
            ),
            Cell::from(match self.parameters {
                0 => paper.none().to_owned(),
                number => paper.count(number),
            }),
            Cell::from(match parameters(paper.size(self.parameter_bytes)) {
                none if none.is_empty() => paper.none().to_owned(),
                size => size,
            }),
            Cell::from(paper.size(self.feature_bytes) + mark),
            Cell::from(bar(self.bytes(), whole.0, paper))
                .styled(super::categories::look(crate::explain::Category::Activation).style),
        ]
    }
}

fn bar(part: u64, whole: u64, paper: &Paper) -> String {
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

/// Layers of the same module become one row, where the first of them stood.
fn folded(layers: Vec<Row>, depth: usize) -> Vec<Row> {
    let mut modules: Vec<Vec<Row>> = Vec::new();
    let mut places: HashMap<String, usize> = HashMap::new();
    for layer in layers {
        let module: Vec<_> = layer.path.split('.').take(depth.max(1)).collect();
        let module = module.join(".");
        let place = *places.entry(module).or_insert(modules.len());
        match modules.get_mut(place) {
            Some(rows) => rows.push(layer),
            None => modules.push(vec![layer]),
        }
    }
    let fold = |mut rows: Vec<Row>| match (rows.len(), rows.pop()) {
        (1, last) => last,
        (_, None) => None,
        (number, Some(last)) => {
            let module: Vec<_> = last.path.split('.').take(depth.max(1)).collect();
            let path = module.join(".");
            let output = last.output.clone();
            rows.push(last);
            Some(Row {
                kind: format!("{number} layers"),
                output,
                inferred: rows.iter().all(|row| row.inferred),
                ..Row::sum(&rows, path)
            })
        }
    };
    modules.into_iter().filter_map(fold).collect()
}

/// What the marks in the table mean, where there are any.
fn marks(rows: &[Row], paper: &Paper) -> String {
    let mut marks = Vec::new();
    if rows.iter().any(|row| row.inferred) {
        marks.push("~ path inferred from its neighbours");
    }
    if rows.iter().any(|row| row.shares_memory) {
        marks.push("* Burn gave it no memory of its own");
    }
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
        row("batch size", paper.count(batch), String::new());
    }
    row(
        "parameters",
        paper.count(totals.parameters),
        paper.size(totals.parameter_bytes),
    );
    row("  learnable", paper.count(totals.learnable), String::new());
    row("  not learnable", paper.count(totals.not_learnable), String::new());
    row("feature maps", String::new(), paper.size(totals.feature_bytes));
    row("  of these, inputs", String::new(), paper.size(totals.input_bytes));
    row(
        "forward and backward",
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
