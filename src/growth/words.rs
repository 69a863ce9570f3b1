//! What a cause is called, and other differences between two explanations in words.

use std::collections::BTreeSet;

use super::input::GrowthInput;
use super::pairs::TensorPairs;
use super::roots::{GrowthRoot, HeldPair, SizeChange, size_changes};
use crate::explain::{Category, Explanation, TensorLife};
use crate::report::words::phase_name;

/// The cause of memory that no tensor has.
pub(super) const WORKSPACE: &str = "memory within operations";

/// Describes a cause: `hidden is larger`.
pub(super) fn what(
    root: &GrowthRoot,
    largest: &HeldPair,
    of: &GrowthInput<'_>,
    pairs: &TensorPairs,
    change: i64,
) -> String {
    let size = if change < 0 { "smaller" } else { "larger" };
    match root {
        GrowthRoot::Resized(first) => {
            let tensor = &of.after.tensors[*first];
            match dtypes(of, pairs, *first) {
                Some((before, after)) => format!("{} is {after}, was {before}", subject(tensor)),
                None => format!("{} is {size}", subject(tensor)),
            }
        }
        GrowthRoot::NewModule(path) => format!("{path} is new"),
        GrowthRoot::RemovedModule(path) => format!("{path} was removed"),
        GrowthRoot::NewState => "the optimizer keeps more state".to_owned(),
        GrowthRoot::New(_) => format!("{} is new", subject(largest.tensor(of.before, of.after))),
        GrowthRoot::Kept(_) => format!("{} is kept longer", subject(largest.tensor(of.before, of.after))),
        GrowthRoot::Gone(_) => {
            let tensor = subject(largest.tensor(of.before, of.after));
            match moved_peak(of.before, of.after) {
                // At another moment, other tensors exist, although each may exist for as long as before.
                Some(_) => format!("{tensor} is not there at the new peak"),
                None => format!("{tensor} is freed earlier or gone"),
            }
        }
    }
}

/// Describes how the peak moved to another phase; `None` if it did not.
fn moved_peak(before: &Explanation, after: &Explanation) -> Option<String> {
    let [old, new] = [before.peak.phase, after.peak.phase].map(phase_name);
    (old != new).then(|| format!("the peak moved from {old} to {new}, so other tensors count"))
}

/// Returns the element types of a tensor before and with the change, if only they differ.
fn dtypes(of: &GrowthInput<'_>, pairs: &TensorPairs, index: usize) -> Option<(String, String)> {
    let tensor = &of.after.tensors[index];
    let changes = size_changes(&of.before.tensors[pairs.counterpart(index)?], tensor);
    match changes.as_slice() {
        [SizeChange::Dtype(before, after)] => Some((before.clone(), after.clone())),
        _ => None,
    }
}

/// Names a tensor by its module, or by what it is for.
fn subject(tensor: &TensorLife) -> String {
    let operation = || match tensor.operation.raw() {
        "" => "a tensor".to_owned(),
        operation => format!("the output of {operation}"),
    };
    match (tensor.category, &tensor.module) {
        (Category::Input, _) => "the batch".to_owned(),
        (Category::Parameter | Category::Buffer, Some(module)) => module.raw().to_owned(),
        (Category::Parameter | Category::Buffer, None) => "a parameter".to_owned(),
        (Category::OptimizerState, _) => "the optimizer's state".to_owned(),
        (Category::Gradient, Some(module)) => format!("the gradient of {module}"),
        // The path of an operation that is not a module ends with the operation.
        (_, Some(module)) if module.raw().rsplit('.').next() == Some(tensor.operation.raw()) => {
            format!("the output of {module}")
        }
        (_, Some(module)) => format!("{} in {module}", operation()),
        (_, None) => operation(),
    }
}

/// Returns what the explanations do not show, with what to do.
pub(super) fn limits(before: &Explanation, after: &Explanation) -> Vec<String> {
    let has_lines = |explanation: &Explanation| explanation.stacks.iter().any(|stack| !stack.is_empty());
    match has_lines(before) && has_lines(after) {
        true => Vec::new(),
        false => vec![
            "the models have no line numbers: set `debug = \"line-tables-only\"` for their packages in the profile"
                .to_owned(),
        ],
    }
}

/// Returns other differences that change how much memory the allocator and the kernels take.
pub(super) fn notes(before: &Explanation, after: &Explanation) -> Vec<String> {
    let mut notes: Vec<String> = moved_peak(before, after).into_iter().collect();
    if before.run.burn != after.run.burn {
        notes.push(format!("Burn {} → {}", before.run.burn, after.run.burn));
    }
    let names: BTreeSet<_> = before.run.inputs.keys().chain(after.run.inputs.keys()).collect();
    for name in names {
        let of = |explanation: &Explanation| explanation.run.inputs.get(name).copied();
        let (before, after) = (of(before), of(after));
        if before != after {
            let shown = |value: Option<u64>| value.map_or_else(|| "none".to_owned(), |value| value.to_string());
            notes.push(format!("input {name} {} → {}", shown(before), shown(after)));
        }
    }
    let (before, after) = (&before.run.autotune.chosen, &after.run.autotune.chosen);
    let operations: BTreeSet<_> = before.keys().chain(after.keys()).collect();
    let others = operations.iter().filter(|name| before.get(**name) != after.get(**name));
    let others: Vec<_> = others.map(|name| name.raw()).collect();
    if !others.is_empty() {
        notes.push(format!("autotune chose other kernels for {}", others.join(", ")));
    }
    notes
}
