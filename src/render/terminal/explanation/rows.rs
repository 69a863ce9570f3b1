//! The rows of the layer table: layers, modules that replace their layers, and modules above their layers.

use std::collections::HashMap;

use super::grid::Cell;
use super::layers::{bar, path, shape};
use super::paper::{Canvas, DIM};
use crate::bytes::Bytes;
use crate::explain::{Category, Layer};
use crate::report::words::count;

/// The deepest modules that have their own lines. The limit exists because a path can have any length.
const DEEPEST: usize = 12;

/// A row of the table: one layer, or the sum of several.
#[derive(Clone)]
pub(super) struct LayerRow {
    pub(super) path: String,
    pub(super) inferred: bool,
    pub(super) kind: String,
    pub(super) output: Option<Vec<u64>>,
    pub(super) dtype: String,
    pub(super) parameters: u64,
    pub(super) parameter_bytes: Bytes,
    pub(super) feature_bytes: Bytes,
    pub(super) shares_memory: bool,
    /// The number of layers in the row.
    pub(super) layers: usize,
}

impl LayerRow {
    pub(super) fn from_layer(layer: &Layer) -> Self {
        Self {
            path: layer.path.raw().to_owned(),
            inferred: layer.inferred,
            kind: layer.kind.raw().to_owned(),
            output: Some(layer.output.clone()),
            dtype: layer.dtype.raw().to_owned(),
            parameters: layer.parameters,
            parameter_bytes: layer.parameter_bytes,
            feature_bytes: layer.feature_bytes,
            shares_memory: layer.shares_memory,
            layers: 1,
        }
    }

    /// Creates the sum of several rows.
    pub(super) fn from_rows(rows: &[&Self], path: &str) -> Self {
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

    /// Creates the row of a module that contains these rows. Its output is the output of the last row.
    fn from_module(rows: &[&Self], path: &str) -> Self {
        let sum = Self::from_rows(rows, path);
        let last = rows.last();
        Self {
            kind: format!("{} layers", sum.layers),
            output: last.and_then(|last| last.output.clone()),
            dtype: last.map_or_else(String::new, |last| last.dtype.clone()),
            inferred: rows.iter().all(|row| row.inferred),
            ..sum
        }
    }

    /// Returns the row with its path relative to a module.
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

    /// Returns the cells, indented by the number of modules above that have their own rows.
    pub(super) fn cells(&self, depth: usize, whole: Bytes, paper: &Canvas) -> [Cell; 8] {
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

/// Replaces layers deeper than `depth` by one row per module, at the place of the module's first layer.
pub(super) fn folded(layers: Vec<LayerRow>, depth: usize) -> Vec<LayerRow> {
    let mut modules: Vec<Vec<LayerRow>> = Vec::new();
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
    let fold = |mut rows: Vec<LayerRow>| {
        // A module with one layer is that layer: its kind and its mark stay.
        if rows.len() < 2 {
            return rows.pop();
        }
        let module: Vec<_> = rows[0].path.split('.').take(depth.max(1)).collect();
        Some(LayerRow::from_module(
            &rows.iter().collect::<Vec<_>>(),
            &module.join("."),
        ))
    };
    modules.into_iter().filter_map(fold).collect()
}

/// A line of the table.
pub(super) struct LayerLine {
    pub(super) row: LayerRow,
    /// The number of modules above that have their own lines.
    pub(super) depth: usize,
    /// Whether the line is the sum of a module. It is above the lines of the module's layers.
    pub(super) is_subtotal: bool,
}

/// Returns the lines: each row is below the modules that contain it.
///
/// A module has a line if it contains several rows and is not the only content of the module around it. Its rows are
/// moved together to the place of the first one, and their paths are relative to the module: `.conv1`.
pub(super) fn with_subtotals(rows: &[LayerRow]) -> Vec<LayerLine> {
    let mut lines = Vec::new();
    below(&rows.iter().collect::<Vec<_>>(), "", 0, (0, ""), &mut lines);
    lines
}

/// Adds the lines of the rows in a module. `names` is the number of names in the path of the module. `shown` is the
/// depth of the lines, and the path of the innermost module with a line.
fn below(rows: &[&LayerRow], module: &str, names: usize, shown: (usize, &str), lines: &mut Vec<LayerLine>) {
    let (depth, around) = shown;
    let mut parts: Vec<(&str, Vec<&LayerRow>)> = Vec::new();
    for row in rows {
        let next = row.path.match_indices('.').nth(names).filter(|_| names < DEEPEST);
        // An empty part is a row of the module itself. Such rows are never merged, so each stays a layer.
        let part = next.map_or("", |(at, _)| &row.path[..at]);
        match parts.iter_mut().find(|(known, _)| !part.is_empty() && *known == part) {
            Some((_, rows)) => rows.push(row),
            None => parts.push((part, vec![row])),
        }
    }
    for (part, inner) in parts {
        // A subtotal of one row, or of all rows around it, would repeat a line that is there already.
        let is_shown = inner.len() > 1 && (inner.len() < rows.len() || module.is_empty());
        match (part.is_empty(), is_shown) {
            (true, _) => lines.extend(inner.into_iter().map(|row| LayerLine {
                row: row.within(around),
                depth,
                is_subtotal: false,
            })),
            (false, false) => below(&inner, part, names + 1, shown, lines),
            (false, true) => {
                lines.push(LayerLine {
                    row: LayerRow::from_module(&inner, part).within(around),
                    depth,
                    is_subtotal: true,
                });
                below(&inner, part, names + 1, (depth + 1, part), lines);
            }
        }
    }
}
