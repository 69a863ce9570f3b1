//! What would take less, as far as the timeline alone tells.

use std::collections::HashMap;

use super::memory::Memory;
use super::trace::Trace;
use super::types::{Category, Certainty, Layer, Moment, Saving, Tensor};
use crate::bytes::Bytes;
use crate::report::words::phase_name;

/// Tensors that are shown which could be dropped earlier.
const SHOWN: usize = 3;
/// Of live, in one part of this many: less is not worth a line.
const WORTH: u64 = 200;

/// Tensors that nothing uses any more while memory is at its highest, the largest layer, and what fusion reuses already.
pub(super) fn savings(
    trace: &Trace,
    memory: &Memory,
    tensors: &[Tensor],
    peak: &Moment,
    layers: &[Layer],
) -> Vec<Saving> {
    let mut savings = dropped_early(trace, memory, tensors, peak);
    savings.extend(largest_layer(tensors, peak));
    savings.extend(reused(layers));
    savings
}

fn dropped_early(trace: &Trace, memory: &Memory, tensors: &[Tensor], peak: &Moment) -> Vec<Saving> {
    let mut last_use: HashMap<u64, u64> = HashMap::new();
    for (operation, number) in trace.operations.iter().zip(1..) {
        for input in &operation.inputs {
            last_use.insert(*input, number);
        }
    }
    let Some(at_peak) = memory.samples.get(peak.sample as usize) else {
        return Vec::new();
    };
    let idle = |index: &&u32| {
        let tensor = &tensors[**index as usize];
        let is_of_the_step = matches!(
            tensor.category,
            Category::Activation | Category::ActivationGradient | Category::Input | Category::Gradient
        );
        let used = last_use.get(&tensor.id).copied().unwrap_or(0);
        is_of_the_step && tensor.shares.is_none() && used < at_peak.after && tensor.bytes.0 > peak.live.0 / WORTH
    };
    let mut found: Vec<usize> = peak.tensors.iter().filter(idle).map(|index| *index as usize).collect();
    found.sort_by_key(|index| std::cmp::Reverse(tensors[*index].bytes));
    found.truncate(SHOWN);
    found
        .into_iter()
        .map(|index| {
            let tensor = &tensors[index];
            let used = last_use.get(&tensor.id).copied().unwrap_or(0);
            let there = |sample: usize| {
                sample >= memory.tensors[index].born && tensor.died.is_none_or(|died| sample < died as usize)
            };
            // Without it from its last use on.
            let live = memory.samples.iter().enumerate().map(|(number, sample)| {
                let spared = if there(number) && sample.after >= used {
                    tensor.bytes.0
                } else {
                    0
                };
                sample.live - spared.min(sample.live)
            });
            let live = live.max().unwrap_or(0);
            let place = tensor
                .source
                .as_ref()
                .map_or_else(String::new, |source| format!(" at {}:{}", source.file, source.line));
            let last = usize::try_from(used)
                .ok()
                .and_then(|used| trace.operations.get(used.checked_sub(1)?))
                .map_or_else(
                    || "nothing uses it".to_owned(),
                    |operation| {
                        let phase = phase_name(operation.at.1);
                        format!("{} in {phase} was the last to use it", super::bare(&operation.name))
                    },
                );
            let shape: Vec<String> = tensor.shape.iter().map(ToString::to_string).collect();
            Saving {
                code: "drop-early".to_owned(),
                change: format!("drop {} [{}] sooner", tensor.operation, shape.join(", ")),
                live: Some(Bytes(live)),
                reserved: None,
                saved_live: Some(peak.live.less(Bytes(live))),
                saved_reserved: None,
                cost: "nothing".to_owned(),
                certainty: Certainty::Timeline,
                note: Some(format!("made{place}; {last}, and something holds it still at the peak")),
            }
        })
        .collect()
}

fn largest_layer(tensors: &[Tensor], peak: &Moment) -> Option<Saving> {
    let mut modules: HashMap<&str, u64> = HashMap::new();
    for tensor in peak.tensors.iter().map(|index| &tensors[*index as usize]) {
        if let Some(module) = &tensor.module {
            *modules.entry(module).or_default() += tensor.bytes.0;
        }
    }
    let (module, bytes) = modules
        .into_iter()
        .max_by_key(|(module, bytes)| (*bytes, std::cmp::Reverse(*module)))?;
    let part = u128::from(bytes) * 100 / u128::from(peak.live.0.max(1));
    Some(Saving {
        code: "largest-layer".to_owned(),
        change: format!("a smaller {module}"),
        live: None,
        reserved: None,
        saved_live: None,
        saved_reserved: None,
        cost: "another model".to_owned(),
        certainty: Certainty::Timeline,
        note: Some(format!(
            "the largest layer: {} at the peak with parameters, gradients, state and what it made, {part} % of live",
            Bytes(bytes)
        )),
    })
}

fn reused(layers: &[Layer]) -> Option<Saving> {
    let reused: Vec<&Layer> = layers
        .iter()
        .filter(|layer| layer.shares_memory && layer.feature_bytes > Bytes(0))
        .collect();
    let bytes: Bytes = reused.iter().map(|layer| layer.feature_bytes).sum();
    (!reused.is_empty()).then(|| Saving {
        code: "fusion".to_owned(),
        change: "what fusion reuses already".to_owned(),
        live: None,
        reserved: None,
        saved_live: None,
        saved_reserved: None,
        cost: "nothing".to_owned(),
        certainty: Certainty::Already,
        note: Some(format!(
            "{} of {} layers, {bytes}, have no memory of their own: written over their input, or never written",
            reused.len(),
            layers.len()
        )),
    })
}
