//! Savings that the timeline alone shows.

use std::collections::HashMap;

use super::memory::MemoryHistory;
use super::trace::{ReadTrace, bare};
use super::types::{Category, Certainty, Layer, PeakMoment, Saving, TensorLife};
use crate::bytes::Bytes;
use crate::report::words::phase_name;
use crate::untrusted::Foreign;

/// The number of savings that are shown for tensors that could be dropped earlier.
const SHOWN: usize = 3;
/// A saving of less than one part in this many of live memory is not worth a line.
const WORTH: u64 = 200;

/// Finds tensors that nothing uses any more at the peak, the largest layer, and memory that fusion already reuses.
pub(super) fn savings(
    trace: &ReadTrace,
    memory: &MemoryHistory,
    tensors: &[TensorLife],
    peak: &PeakMoment,
    layers: &[Layer],
) -> Vec<Saving> {
    let mut savings = dropped_early(trace, memory, tensors, peak);
    savings.extend(largest_layer(tensors, peak));
    savings.extend(reused(layers));
    savings
}

fn dropped_early(trace: &ReadTrace, memory: &MemoryHistory, tensors: &[TensorLife], peak: &PeakMoment) -> Vec<Saving> {
    let mut last_use: HashMap<u64, u64> = HashMap::new();
    for (operation, number) in trace.operations.iter().zip(1..) {
        for input in &operation.inputs {
            last_use.insert(*input, number);
        }
    }
    let Some(at_peak) = memory.samples.get(peak.sample as usize) else {
        return Vec::new();
    };
    let used = |tensor: &TensorLife| last_use.get(&tensor.id).copied().unwrap_or(0);
    let is_idle = |tensor: &TensorLife| {
        // Parameters, buffers and optimizer state must stay, even if nothing uses them at the peak.
        let is_of_the_step = matches!(
            tensor.category,
            Category::Activation | Category::ActivationGradient | Category::Input | Category::Gradient
        );
        is_of_the_step && tensor.shares.is_none() && used(tensor) < at_peak.after
    };
    // The last operation that uses a tensor, and its phase.
    let last = |tensor: &TensorLife| {
        let operation = trace
            .operations
            .get(usize::try_from(used(tensor)).ok()?.checked_sub(1)?)?;
        Some((bare(&operation.name), operation.at.1))
    };
    // Tensors that a loop leaves behind in each iteration are one thing to change.
    let mut kinds: HashMap<_, Vec<usize>> = HashMap::new();
    for index in peak.tensors.iter().map(|index| *index as usize) {
        let tensor = &tensors[index];
        if is_idle(tensor) {
            let kind = (
                &tensor.operation,
                &tensor.shape,
                &tensor.dtype,
                &tensor.source,
                last(tensor),
            );
            kinds.entry(kind).or_default().push(index);
        }
    }
    let bytes = |kind: &[usize]| kind.iter().map(|index| tensors[*index].bytes).sum::<Bytes>();
    let mut found: Vec<Vec<usize>> = kinds.into_values().collect();
    found.retain(|kind| bytes(kind).0 > peak.live.0 / WORTH);
    // The index decides between equals, because a `HashMap` has another order in each run.
    found.sort_by_key(|kind| (std::cmp::Reverse(bytes(kind)), kind.first().copied()));
    found.truncate(SHOWN);
    found
        .into_iter()
        .filter_map(|kind| {
            let tensor = &tensors[*kind.first()?];
            // Leave out each tensor from its last use on.
            let mut spared = vec![0; memory.samples.len()];
            for index in &kind {
                let (tensor, born) = (&tensors[*index], memory.tensors[*index].born);
                let used = used(tensor);
                let died = tensor.died.map_or(usize::MAX, |died| died as usize);
                for (number, sample) in memory.samples.iter().enumerate().take(died).skip(born) {
                    if sample.after >= used {
                        spared[number] += tensor.bytes.0;
                    }
                }
            }
            let samples = memory.samples.iter().zip(spared);
            // The peak may move to another sample, so dropping a tensor can save less than its size.
            let live = samples
                .map(|(sample, spared)| sample.live.saturating_sub(spared))
                .max()
                .unwrap_or(0);
            let place = tensor.source.as_ref().map_or_else(String::new, |source| {
                format!("made at {}:{}; ", source.file, source.line)
            });
            let last = last(tensor).map_or_else(
                || "never used".to_owned(),
                |(operation, phase)| format!("last used by {operation} in {}", phase_name(phase)),
            );
            let shape: Vec<String> = tensor.shape.iter().map(ToString::to_string).collect();
            let times = match kind.len() {
                1 => String::new(),
                times => format!("{times} × "),
            };
            Some(Saving {
                code: "drop-early".into(),
                change: format!("drop {times}{} [{}] earlier", tensor.operation, shape.join(", ")).into(),
                live: Some(Bytes(live)),
                // Pages decide reserved memory, and the timeline does not show them.
                reserved: None,
                saved_live: Some(peak.live.less(Bytes(live))),
                saved_reserved: None,
                cost: Foreign::default(),
                certainty: Certainty::Timeline,
                note: Some(format!("{place}{last}, but still held at the peak").into()),
            })
        })
        .collect()
}

fn largest_layer(tensors: &[TensorLife], peak: &PeakMoment) -> Option<Saving> {
    let mut modules: HashMap<&str, u64> = HashMap::new();
    for tensor in peak.tensors.iter().map(|index| &tensors[*index as usize]) {
        if let Some(module) = &tensor.module {
            *modules.entry(module.raw()).or_default() += tensor.bytes.0;
        }
    }
    let (module, bytes) = modules
        .into_iter()
        // The name decides between equals, so that each run names the same layer.
        .max_by_key(|(module, bytes)| (*bytes, std::cmp::Reverse(*module)))?;
    let part = u128::from(bytes) * 100 / u128::from(peak.live.0.max(1));
    Some(Saving {
        code: "largest-layer".into(),
        change: format!("make {module} smaller").into(),
        // How much smaller is up to the user.
        live: None,
        reserved: None,
        saved_live: None,
        saved_reserved: None,
        cost: "a different model".into(),
        certainty: Certainty::Timeline,
        note: Some(
            format!(
                "the largest layer: {} at the peak, {part} % of live memory (parameters, gradients, optimizer state and \
                 the tensors it made)",
                Bytes(bytes)
            )
            .into(),
        ),
    })
}

fn reused(layers: &[Layer]) -> Option<Saving> {
    let reused: Vec<&Layer> = layers
        .iter()
        .filter(|layer| layer.shares_memory && layer.feature_bytes > Bytes(0))
        .collect();
    let bytes: Bytes = reused.iter().map(|layer| layer.feature_bytes).sum();
    (!reused.is_empty()).then(|| Saving {
        code: "fusion".into(),
        change: "memory that fusion already reuses".into(),
        live: None,
        reserved: None,
        saved_live: None,
        saved_reserved: None,
        cost: Foreign::default(),
        certainty: Certainty::Already,
        note: Some(
            format!(
                "{} of {} layers ({bytes}) have no memory of their own: Burn writes them over their input, or never writes \
                 them",
                reused.len(),
                layers.len()
            )
            .into(),
        ),
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::explain::memory::{Life, Sample};
    use crate::explain::sample;
    use crate::explain::trace::Operation;
    use crate::protocol::Phase;

    /// Returns two activations of 256 MiB and one of 64 MiB, with their trace, history and peak. Nothing uses them
    /// after the first operation. The peak is two samples later.
    fn left_behind() -> (ReadTrace, MemoryHistory, Vec<TensorLife>, PeakMoment) {
        let shown = sample::resnet(1, 0);
        let operation = |inputs: &[u64]| Operation {
            name: "float_linear".to_owned(),
            inputs: inputs.to_vec(),
            outputs: Vec::new(),
            stack: 0,
            forward: None,
            at: (Some(0), Phase::Forward),
        };
        let trace = ReadTrace {
            operations: vec![operation(&[0, 1, 2]), operation(&[])],
            ..ReadTrace::default()
        };
        let tensors: Vec<TensorLife> = [256_u64, 256, 64]
            .into_iter()
            .zip(0..)
            .map(|(mib, id)| TensorLife {
                id,
                shape: vec![mib, 1024, 256],
                bytes: Bytes(mib << 20),
                category: Category::Activation,
                operation: "linear".into(),
                source: None,
                died: None,
                shares: None,
                ..shown.tensors[0].clone()
            })
            .collect();
        let memory = MemoryHistory {
            samples: [(1, 400), (2, 600), (2, 800)]
                .map(|(after, mib)| Sample {
                    time: 0,
                    live: mib << 20,
                    kernel: None,
                    at: (Some(0), Phase::Forward),
                    after,
                })
                .into(),
            tensors: (0..3)
                .map(|id| Life {
                    id,
                    piece: 0,
                    born: 0,
                    died: None,
                    gone_after: None,
                    gone_steps: None,
                    shares: None,
                    takes_over: false,
                })
                .collect(),
            ..MemoryHistory::default()
        };
        let peak = PeakMoment {
            sample: 2,
            live: Bytes(800 << 20),
            tensors: vec![0, 1, 2],
            ..shown.peak
        };
        (trace, memory, tensors, peak)
    }

    #[test]
    fn tensors_that_are_alike_are_dropped_together() {
        let (trace, memory, tensors, peak) = left_behind();
        let savings = dropped_early(&trace, &memory, &tensors, &peak);
        let told: Vec<_> = savings
            .iter()
            .map(|saving| (saving.change.raw(), saving.live.unwrap().0 >> 20))
            .collect();
        assert_eq!(
            told,
            [
                ("drop 2 × linear [256, 1024, 256] earlier", 288),
                ("drop linear [64, 1024, 256] earlier", 736),
            ]
        );
    }
}
