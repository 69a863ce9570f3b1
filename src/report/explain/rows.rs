//! The rows of the layer table: layers, modules in place of their layers, and modules above their layers.

use std::collections::HashMap;

use super::grid::Cell;
use super::layers::{bar, path, shape};
use super::paper::{DIM, Paper};
use crate::bytes::Bytes;
use crate::explain::{Category, Layer};
use crate::report::words::count;

/// Modules deeper than this have no lines of their own: a path can be of any length.
const DEEPEST: usize = 12;

/// A row: a layer, or several.
pub(super) struct Row {
    pub(super) path: String,
    pub(super) inferred: bool,
    pub(super) kind: String,
    pub(super) output: Option<Vec<u64>>,
    pub(super) dtype: String,
    pub(super) parameters: u64,
    pub(super) parameter_bytes: Bytes,
    pub(super) feature_bytes: Bytes,
    pub(super) shares_memory: bool,
    /// Layers in it.
    pub(super) layers: usize,
}

impl Row {
    pub(super) fn of(layer: &Layer) -> Self {
        Self {
            path: layer.path.clone(),
            inferred: layer.inferred,
            kind: layer.kind.clone(),
            output: Some(layer.output.clone()),
            dtype: layer.dtype.clone(),
            parameters: layer.parameters,
            parameter_bytes: layer.parameter_bytes,
            feature_bytes: layer.feature_bytes,
            shares_memory: layer.shares_memory,
            layers: 1,
        }
    }

    /// What several rows add up to.
    pub(super) fn sum(rows: &[&Self], path: &str) -> Self {
        Self {
            path: path.to_owned(),
            inferred: false,
            kind: String::new(),
            output: None,
            dtype: String::new(),
            parameters: rows.iter().map(|row| row.parameters).sum(),
            parameter_bytes: rows.iter().map(|row| row.parameter_bytes).sum(),
            feature_bytes: rows.iter().map(|row| row.feature_bytes).sum(),
            shares_memory: false,
            layers: rows.iter().map(|row| row.layers).sum(),
        }
    }

    /// A module of these rows. Its output is that of the last one.
    fn module(rows: &[&Self], path: &str) -> Self {
        let sum = Self::sum(rows, path);
        let last = rows.last();
        Self {
            kind: format!("{} layers", sum.layers),
            output: last.and_then(|last| last.output.clone()),
            dtype: last.map_or_else(String::new, |last| last.dtype.clone()),
            inferred: rows.iter().all(|row| row.inferred),
            ..sum
        }
    }

    const fn bytes(&self) -> u64 {
        self.parameter_bytes.0 + self.feature_bytes.0
    }

    /// Its cells, below so many modules that have rows of their own.
    pub(super) fn cells(&self, depth: usize, whole: Bytes, paper: &Paper) -> [Cell; 8] {
        let mark = if self.shares_memory { "*" } else { " " };
        [
            path(&self.path, self.inferred, paper).indented(2 * depth),
            Cell::from(paper.name(&self.kind)).styled(DIM),
            Cell::from(shape(self.output.as_ref(), paper)),
            Cell::from(paper.name(&self.dtype)).styled(DIM),
            Cell::from(match self.parameters {
                0 => paper.none().to_owned(),
                number => count(number),
            }),
            Cell::from(match self.parameter_bytes {
                Bytes(0) => paper.none().to_owned(),
                bytes => paper.size(bytes),
            }),
            Cell::from(paper.size(self.feature_bytes) + mark),
            Cell::from(bar(self.bytes(), whole.0, paper)).styled(super::categories::look(Category::Activation).style),
        ]
    }
}

/// Layers deeper than this in the same module become one row, where the first of them stood.
pub(super) fn folded(layers: Vec<Row>, depth: usize) -> Vec<Row> {
    let mut modules: Vec<Vec<Row>> = Vec::new();
    let mut places: HashMap<String, usize> = HashMap::new();
    for layer in layers {
        if layer.path.split('.').count() <= depth.max(1) {
            modules.push(vec![layer]);
            continue;
        }
        let module: Vec<_> = layer.path.split('.').take(depth.max(1)).collect();
        let module = module.join(".");
        let place = *places.entry(module).or_insert(modules.len());
        match modules.get_mut(place) {
            Some(rows) => rows.push(layer),
            None => modules.push(vec![layer]),
        }
    }
    let fold = |mut rows: Vec<Row>| {
        if rows.len() < 2 {
            return rows.pop();
        }
        let module: Vec<_> = rows[0].path.split('.').take(depth.max(1)).collect();
        Some(Row::module(&rows.iter().collect::<Vec<_>>(), &module.join(".")))
    };
    modules.into_iter().filter_map(fold).collect()
}

/// A line of the table, and how many modules with lines of their own it is in.
pub(super) enum Line<'a> {
    Layer {
        row: &'a Row,
        depth: usize,
    },
    /// What the layers of a module add up to. It stands above the first of them.
    Subtotal {
        row: Row,
        depth: usize,
    },
}

/// All rows, and above them the modules they are in: those that hold several rows, and others than the module around them.
pub(super) fn with_subtotals(rows: &[Row]) -> Vec<Line<'_>> {
    let mut inside: HashMap<&str, Vec<usize>> = HashMap::new();
    for (place, row) in rows.iter().enumerate() {
        for module in modules(&row.path) {
            inside.entry(module).or_default().push(place);
        }
    }
    let mut lines = Vec::new();
    for (place, row) in rows.iter().enumerate() {
        let mut depth = 0;
        let mut around = None;
        for module in modules(&row.path) {
            let places = &inside[module];
            if places.len() < 2 || around == Some(places) {
                continue;
            }
            if places.first() == Some(&place) {
                let inner: Vec<_> = places.iter().map(|place| &rows[*place]).collect();
                let row = Row::module(&inner, module);
                lines.push(Line::Subtotal { row, depth });
            }
            around = Some(places);
            depth += 1;
        }
        lines.push(Line::Layer { row, depth });
    }
    lines
}

/// The modules that a path is in, the outermost first: `layer1` and `layer1.0` of `layer1.0.conv1`.
fn modules(path: &str) -> impl Iterator<Item = &str> {
    path.match_indices('.').map(|(at, _)| &path[..at]).take(DEEPEST)
}
