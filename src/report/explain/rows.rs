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
#[derive(Clone)]
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

    /// The same with its path as it is called within a module.
    fn within(&self, module: &str) -> Self {
        let path = self.path.strip_prefix(module).unwrap_or(&self.path);
        Self {
            path: path.to_owned(),
            ..self.clone()
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

/// A line of the table.
pub(super) struct Line {
    pub(super) row: Row,
    /// In how many modules with lines of their own it is.
    pub(super) depth: usize,
    /// Whether it is what the layers of a module add up to: it stands above them.
    pub(super) is_subtotal: bool,
}

/// The rows, each below the modules that it is in. A module has a line if it holds several rows and is not all that the module around
/// it holds. Its rows stand together, where the first of them stood, and their paths begin at the module: `.conv1`.
pub(super) fn with_subtotals(rows: &[Row]) -> Vec<Line> {
    let mut lines = Vec::new();
    below(&rows.iter().collect::<Vec<_>>(), "", 0, (0, ""), &mut lines);
    lines
}

/// Adds the lines of rows that are in a module, so many names below the root. `shown`: the depth of the lines, and the path of the
/// innermost module with a line.
fn below(rows: &[&Row], module: &str, names: usize, shown: (usize, &str), lines: &mut Vec<Line>) {
    let (depth, around) = shown;
    let mut parts: Vec<(&str, Vec<&Row>)> = Vec::new();
    for row in rows {
        let next = row.path.match_indices('.').nth(names).filter(|_| names < DEEPEST);
        let part = next.map_or("", |(at, _)| &row.path[..at]);
        match parts.iter_mut().find(|(known, _)| !part.is_empty() && *known == part) {
            Some((_, rows)) => rows.push(row),
            None => parts.push((part, vec![row])),
        }
    }
    for (part, inner) in parts {
        let is_shown = inner.len() > 1 && (inner.len() < rows.len() || module.is_empty());
        match (part.is_empty(), is_shown) {
            (true, _) => lines.extend(inner.into_iter().map(|row| Line {
                row: row.within(around),
                depth,
                is_subtotal: false,
            })),
            (false, false) => below(&inner, part, names + 1, shown, lines),
            (false, true) => {
                lines.push(Line {
                    row: Row::module(&inner, part).within(around),
                    depth,
                    is_subtotal: true,
                });
                below(&inner, part, names + 1, (depth + 1, part), lines);
            }
        }
    }
}
