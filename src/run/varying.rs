//! Merges the runs of a model whose inputs vary: one run per order of the sizes.

use std::collections::BTreeMap;

use super::measured::LargestPeaks;
use crate::bytes::Bytes;
use crate::protocol::{ProbeEvent, SizeOrder};
use crate::report::{OrderMemory, Pass, Peaks, Run, Step, VaryingSizes};
use crate::untrusted::PlainName;

/// Returns the sizes of a model's ranges, with the memory of this run's order. Returns `None` if the model has no ranges.
pub(super) fn varying(
    events: &[ProbeEvent],
    order: SizeOrder,
    is_complete: bool,
    peaks: Peaks,
    steps: &[Step],
) -> Option<VaryingSizes> {
    let inputs = events.iter().find_map(|event| match event {
        ProbeEvent::Ranges { inputs } => Some(inputs),
        _ => None,
    })?;
    let inputs = inputs.iter().map(|(name, range)| (PlainName::escaped(name), *range));
    let observed: Vec<&Step> = steps.iter().filter(|step| step.pass == Pass::Traced).collect();
    let memory = OrderMemory {
        order,
        is_complete,
        steps: u32::try_from(observed.len()).unwrap_or(u32::MAX),
        peaks,
        stands_after: stands_after(&observed),
    };
    Some(VaryingSizes {
        inputs: inputs.collect(),
        orders: vec![memory],
        fragmentation: None,
    })
}

/// Returns the number of steps after which reserved memory does not grow any more.
fn stands_after(steps: &[&Step]) -> Option<u32> {
    let reserved = |step: &&Step| step.phases.iter().map(|phase| phase.reserved_peak).max();
    let peaks: Vec<Bytes> = steps.iter().filter_map(reserved).collect();
    let highest = peaks.iter().max()?;
    let first = peaks.iter().position(|peak| peak == highest)?;
    u32::try_from(first + 1).ok()
}

/// Merges the runs of all orders into one run with the largest values. `first` is the run with the largest sizes.
///
/// The result is the first run that failed, or else `first`.
pub(super) fn merged(first: Run, others: Vec<Run>) -> Run {
    let mut runs = vec![first];
    runs.extend(others);
    let peaks = LargestPeaks::new(&runs);
    let mut orders: Vec<OrderMemory> = runs
        .iter()
        .filter_map(|run| run.varying.as_ref())
        .flat_map(|of| &of.orders)
        .copied()
        .collect();
    orders.sort_by_key(|memory| memory.order);
    let inputs: BTreeMap<_, _> = runs[0].varying.take().map(|of| of.inputs).unwrap_or_default();
    let seconds: f64 = runs.iter().map(|run| run.seconds).sum();
    let passes: Vec<_> = runs.iter().flat_map(|run| run.pass_seconds.clone()).collect();
    let assumptions = runs.iter().flat_map(|run| &run.assumptions);
    let assumptions = assumptions.fold(Vec::new(), |mut all, assumption| {
        if !all.contains(assumption) {
            all.push(assumption.clone());
        }
        all
    });
    let recovered = runs.iter().map(|run| run.recovered_refusals).max().unwrap_or_default();
    let reads = runs.iter().map(|run| run.device_reads).max().unwrap_or_default();
    // The order with the most choices says best how many of them are assumed.
    let autotune = runs
        .iter()
        .map(|run| run.autotune.clone())
        .max_by_key(|choices| choices.recorded + choices.nearest + choices.assumed);
    // A failure must not disappear among orders that went well.
    let failed = runs.iter().position(|run| run.error.is_some() || run.oom.is_some());
    let mut run = runs.swap_remove(failed.unwrap_or(0));
    if failed.is_none() {
        peaks.apply(&mut run);
        run.autotune = autotune.unwrap_or_default();
        run.recovered_refusals = recovered;
        run.device_reads = reads;
        run.assumptions = assumptions;
    }
    run.varying = Some(VaryingSizes {
        inputs,
        fragmentation: VaryingSizes::fragmentation_of(&orders),
        orders,
    });
    run.seconds = (seconds * 1000.0).round() / 1000.0;
    run.pass_seconds = passes;
    run
}
