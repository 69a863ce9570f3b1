//! Merges the runs of a model whose inputs vary: one run per order of the sizes.

use std::collections::BTreeMap;

use super::measured;
use crate::bytes::Bytes;
use crate::protocol::{LEAST_STEPS_OF_SIZES, ProbeEvent, ROUND_STEPS, SizeOrder, SizeRange};
use crate::report::{
    Assumption, GpuShare, Measurement, OrderMemory, Pass, Peaks, Run, Settling, Step, Trend, VaryingSizes,
};
use crate::untrusted::PlainName;

/// Returns the inputs that have another size in each step, or `None` if the model has no ranges.
pub(super) fn ranges(events: &[ProbeEvent]) -> Option<&BTreeMap<String, SizeRange>> {
    events.iter().find_map(|event| match event {
        ProbeEvent::Ranges { inputs } => Some(inputs),
        _ => None,
    })
}

/// Returns the sizes of a model's ranges, with the memory of this run's order. Returns `None` if the model has no ranges.
pub(super) fn varying(
    events: &[ProbeEvent],
    order: SizeOrder,
    is_complete: bool,
    peaks: Peaks,
    steps: &[Step],
    gpus: &[GpuShare],
) -> Option<VaryingSizes> {
    let inputs = ranges(events)?
        .iter()
        .map(|(name, range)| (PlainName::escaped(name), *range));
    let observed: Vec<&Step> = steps.iter().filter(|step| step.pass == Pass::Traced).collect();
    let memory = OrderMemory {
        order,
        is_complete,
        steps: u32::try_from(observed.len()).unwrap_or(u32::MAX),
        peaks,
        last_growth: last_growth(&observed),
        // By GPU: the fullest one may hide a leak of another. A pass that ended early ends in the middle of a step.
        leak_per_round: gpus
            .iter()
            .filter(|_| is_complete)
            .find_map(|on| leak_per_round(order, &on.steps)),
    };
    Some(VaryingSizes {
        inputs: inputs.collect(),
        orders: vec![memory],
        steps_of: order,
        fragmentation: None,
    })
}

/// Returns the number of the last step in which reserved memory grew, from 1.
fn last_growth(steps: &[&Step]) -> Option<u32> {
    let reserved = |step: &&Step| step.phases.iter().map(|phase| phase.reserved_peak).max();
    let peaks: Vec<Bytes> = steps.iter().filter_map(reserved).collect();
    let highest = peaks.iter().max()?;
    let first = peaks.iter().position(|peak| peak == highest)?;
    u32::try_from(first + 1).ok()
}

/// Returns the least growth in live memory from a step to the step with the same size one round later, if all of them
/// but one grew. Returns `None` for orders that have no such steps.
fn leak_per_round(order: SizeOrder, steps: &[Step]) -> Option<Bytes> {
    // The sizes of a shuffled order are at other places in each round.
    if !matches!(order, SizeOrder::Rising | SizeOrder::Falling) {
        return None;
    }
    let observed = steps.iter().filter(|step| step.pass == Pass::Traced);
    let ends: Vec<Bytes> = observed.map(Step::in_use_end).collect::<Option<_>>()?;
    if ends.len() < LEAST_STEPS_OF_SIZES as usize {
        return None;
    }
    // Without the first step, which settles. One step may end lower: fusion can delay the work of the last.
    let rounds = ends.iter().zip(ends.iter().skip(ROUND_STEPS as usize)).skip(1);
    let (grown, others): (Vec<_>, Vec<_>) = rounds
        .map(|(before, after)| after.saturating_sub(*before))
        .partition(|growth| *growth > Bytes(0));
    grown.into_iter().min().filter(|_| others.len() <= 1)
}

/// How much a failure counts, the largest first.
fn weight(run: &Run) -> u8 {
    if run.oom.is_some() {
        3
    } else if run.error.is_some() {
        2
    } else {
        u8::from(matches!(run.trend(), Trend::Growing(_)))
    }
}

/// Merges the runs of all orders into one run with the largest values. `first` is the run with the largest sizes.
///
/// The result is based on the run that failed, or else the one that leaks, or else `first`.
pub(super) fn merged(first: Run, others: Vec<Run>) -> Run {
    let mut runs = vec![first];
    runs.extend(others);
    // The first of equal runs: `max_by_key` would take the last.
    let worst = (0..runs.len()).rev().max_by_key(|at| weight(&runs[*at])).unwrap_or(0);
    let mut run = runs[worst].clone();
    // An out of memory in one order must not hide an error in another.
    run.error = run.error.or_else(|| runs.iter().find_map(|run| run.error.clone()));
    if run.error.is_none() && run.oom.is_none() {
        let peaks = runs.iter().map(|run| run.peaks).reduce(Peaks::fullest);
        run.peaks = peaks.unwrap_or_default();
        let on_each = gpus(&runs);
        for on in &mut run.gpus {
            on.peaks = on_each.get(&on.gpu_number).copied().unwrap_or_default();
        }
    }
    // A run that died early does not know the ranges.
    run.varying = run.varying.or_else(|| runs.iter().find_map(|run| run.varying.clone()));
    if let Some(varying) = &mut run.varying {
        let of_orders = runs.iter().filter_map(|run| run.varying.as_ref());
        varying.orders = of_orders.flat_map(|of| &of.orders).copied().collect();
        varying.orders.sort_by_key(|memory| memory.order);
        varying.fragmentation = VaryingSizes::fragmentation_of(&varying.orders);
    }
    // They are of one order, and the values of the run are of all.
    run.range = None;
    if let Some(measurement) = &mut run.measurement {
        measurement.spread = None;
        add_measurements(measurement, &runs);
    }
    run.settling = runs
        .iter()
        .filter_map(|run| run.settling)
        .reduce(|one, other| Settling {
            steps: one.steps.max(other.steps),
            settled: one.settled && other.settled,
        });
    run.recovered_refusals = runs.iter().map(|run| run.recovered_refusals).max().unwrap_or_default();
    run.device_reads = runs.iter().map(|run| run.device_reads).max().unwrap_or_default();
    run.streams = runs.iter().map(|run| run.streams).max().unwrap_or_default();
    // The order with the most choices says best how many of them are assumed.
    let choices = |run: &&Run| run.autotune.recorded + run.autotune.nearest + run.autotune.assumed;
    if let Some(most) = runs.iter().max_by_key(choices) {
        run.autotune = most.autotune.clone();
    }
    run.assumptions = assumptions(&runs);
    (run.seconds, run.pass_seconds) = measured::total_time(&runs);
    run
}

/// Returns the highest value of each GPU; unknown if it is unknown in one of the runs.
fn gpus(runs: &[Run]) -> BTreeMap<u32, Peaks> {
    let mut all: BTreeMap<u32, Peaks> = BTreeMap::new();
    for GpuShare { gpu_number, peaks, .. } in runs.iter().flat_map(|run| &run.gpus) {
        all.entry(*gpu_number)
            .and_modify(|known| *known = known.fullest(*peaks))
            .or_insert(*peaks);
    }
    all
}

/// Adds what the measurements of all runs saw of other processes, and their longest time without a sample.
fn add_measurements(measurement: &mut Measurement, runs: &[Run]) {
    let all = || runs.iter().filter_map(|run| run.measurement.as_ref());
    measurement.others = measured::with_most(all().flat_map(|of| of.others.iter().cloned()));
    if let Some(source) = &mut measurement.process {
        let gaps = all()
            .filter_map(|of| of.process.as_ref())
            .map(|source| source.longest_gap_us);
        source.longest_gap_us = gaps.max().unwrap_or(source.longest_gap_us);
    }
}

/// Returns the assumptions of all runs. Those that differ only in a number are listed once.
fn assumptions(runs: &[Run]) -> Vec<Assumption> {
    let is_same = |one: &Assumption, other: &Assumption| match one {
        Assumption::DeviceReads { .. }
        | Assumption::ReservedDiffers { .. }
        | Assumption::ChosenLater { .. }
        | Assumption::MissedSamples { .. } => one.code() == other.code(),
        _ => one == other,
    };
    let mut all: Vec<Assumption> = Vec::new();
    for assumption in runs.iter().flat_map(|run| &run.assumptions) {
        if !all.iter().any(|known| is_same(known, assumption)) {
            all.push(assumption.clone());
        }
    }
    let inputs = runs.iter().filter_map(|run| run.varying.as_ref());
    let grows = inputs.flat_map(|of| &of.orders).any(OrderMemory::still_grows);
    all.extend(grows.then_some(Assumption::SizesStillGrow));
    all
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::report::{ErrorCode, RunError, sample};

    /// Returns the run of an order whose steps end with this live memory.
    fn of(order: SizeOrder, reserved: u64, ends: &[u64]) -> Run {
        let mut run = sample::ending_at(sample::run("a", "l4"), ends);
        run.peaks.warm.reserved = Some(Bytes(reserved));
        let events = [ProbeEvent::Ranges {
            inputs: BTreeMap::default(),
        }];
        let gpus = [GpuShare {
            gpu_number: 0,
            peaks: run.peaks,
            steps: run.steps.clone(),
        }];
        run.varying = varying(&events, order, true, run.peaks, &run.steps, &gpus);
        run
    }

    fn flat(order: SizeOrder, reserved: u64) -> Run {
        of(order, reserved, &[50; 16])
    }

    #[test]
    fn each_value_is_the_highest_of_all_orders_and_unknown_if_one_is() {
        let mut others = vec![flat(SizeOrder::Rising, 90), flat(SizeOrder::Smallest, 20)];
        let run = merged(flat(SizeOrder::Largest, 60), others.clone());
        assert_eq!(run.peaks.warm.reserved, Some(Bytes(90)));
        let varying = run.varying.unwrap();
        assert_eq!(varying.fragmentation, Some(Bytes(30)));
        assert_eq!(varying.highest().unwrap().order, SizeOrder::Rising);
        let orders: Vec<_> = varying.orders.iter().map(|memory| memory.order).collect();
        assert_eq!(orders, [SizeOrder::Smallest, SizeOrder::Largest, SizeOrder::Rising]);
        others[1].peaks.warm.process = None;
        assert_eq!(merged(flat(SizeOrder::Largest, 60), others).peaks.warm.process, None);
    }

    #[test]
    fn a_failure_in_any_order_is_one() {
        let mut failed = flat(SizeOrder::Falling, 10);
        failed.error = Some(RunError {
            code: ErrorCode::Panicked,
            message: "it panicked".into(),
            help: None,
        });
        let run = merged(
            flat(SizeOrder::Largest, 60),
            vec![flat(SizeOrder::Rising, 90), failed.clone()],
        );
        assert_eq!(run.error, failed.error);
        assert_eq!(run.varying.unwrap().steps_of, SizeOrder::Falling);
    }

    #[test]
    fn a_leak_is_found_with_one_size_and_with_sizes_that_vary() {
        let leaks: Vec<u64> = (0..16).map(|step| 100 + step * 10).collect();
        let run = merged(
            flat(SizeOrder::Largest, 60),
            vec![of(SizeOrder::Smallest, 20, &leaks), flat(SizeOrder::Rising, 90)],
        );
        assert!(matches!(run.trend(), Trend::Growing(_)));
        assert_eq!(run.varying.unwrap().steps_of, SizeOrder::Smallest);

        // Each step ends with another size. That is no growth, unless the next round ends higher.
        let sizes = |more: u64| -> Vec<u64> { (0..16).map(|step| 100 + step % 8 * 10 + step / 8 * more).collect() };
        let rising = |more| of(SizeOrder::Rising, 90, &sizes(more)).varying.unwrap().orders[0].leak_per_round;
        assert_eq!((rising(0), rising(3)), (None, Some(Bytes(3))));
        // A first step that settles, or a last one whose work fusion delays, hides no leak.
        for odd in [0, 8, 15] {
            let mut ends = sizes(3);
            ends[odd] = 500 * u64::from(odd == 0);
            let found = of(SizeOrder::Rising, 90, &ends).varying.unwrap().orders[0].leak_per_round;
            assert_eq!(found, Some(Bytes(3)), "{ends:?}");
        }
        let steady = merged(flat(SizeOrder::Largest, 60), vec![of(SizeOrder::Rising, 90, &sizes(0))]);
        assert_eq!(steady.trend(), Trend::Steady);
        assert_eq!(
            of(SizeOrder::Shuffled, 9, &leaks).varying.unwrap().orders[0].leak_per_round,
            None
        );
    }

    #[test]
    fn memory_that_grows_in_the_last_round_is_an_assumption() {
        let mut run = flat(SizeOrder::Rising, 90);
        let of = run.varying.as_mut().unwrap();
        of.orders[0].last_growth = Some(9);
        let still_grows = |run: Run| {
            let all = merged(flat(SizeOrder::Largest, 60), vec![run]).assumptions;
            all.iter().any(|assumption| assumption.code() == "sizes-still-grow")
        };
        assert!(still_grows(run));
        assert!(!still_grows(flat(SizeOrder::Rising, 90)));
    }
}
