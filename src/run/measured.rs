//! Computes the values of a measurement from the memory samples of a process on a real GPU.

use std::collections::{BTreeMap, BTreeSet};

use super::hardware::Real;
use super::process::PassOutput;
use super::record::HeldMemory;
use crate::bytes::Bytes;
use crate::gpu::{MemoryLook, MemoryLooks};
use crate::protocol::{Phase, ProbeEvent};
use crate::report::{
    LoadedLibrary, Measurement, Obtained, OtherProcess, Pass, PassSeconds, Peaks, ProcessOf, ProcessOverhead,
    ProcessSource, Run, Spread, SpreadPeak, Trend, Tuning,
};

/// The memory samples of one process, and whether they are of the process or of the whole device.
pub(super) struct ProcessLooks<'a> {
    left: &'a PassOutput,
    looks: &'a MemoryLooks,
    of: ProcessOf,
    idle: Bytes,
}

impl<'a> ProcessLooks<'a> {
    /// Returns the samples of a pass, or `None` if there are none.
    pub(super) fn from_pass(left: &'a PassOutput) -> Option<Self> {
        let looks = left.looks.as_ref().filter(|looks| !looks.looks.is_empty())?;
        // Some systems show no processes to NVML. The memory of the whole device is the next best.
        let accounted = looks
            .looks
            .iter()
            .any(|look| look.process.is_some_and(|bytes| bytes > Bytes(0)));
        let of = if accounted {
            ProcessOf::Process
        } else {
            ProcessOf::Device
        };
        let idle = left.before.idle;
        Some(Self {
            left,
            looks,
            of,
            // The memory of the whole device includes what it held before. Without that value, it says nothing about
            // the process.
            idle: match of {
                ProcessOf::Process => idle.unwrap_or_default(),
                ProcessOf::Device => idle?,
            },
        })
    }

    fn values(&self) -> impl DoubleEndedIterator<Item = (&MemoryLook, Bytes)> {
        self.looks.looks.iter().filter_map(|look| {
            let bytes = match self.of {
                ProcessOf::Process => look.process?,
                ProcessOf::Device => look.device.saturating_sub(self.idle),
            };
            Some((look, bytes))
        })
    }

    /// Returns the peak of the memory that the GPU charged to the process. It is a lower bound, because samples have
    /// gaps.
    pub(super) fn peak(&self) -> Option<Bytes> {
        self.values().map(|(_, bytes)| bytes).max()
    }

    /// Returns the memory of the process between the creation of its context and of its model, without reserved memory.
    fn context(&self) -> Option<Bytes> {
        let made = self.left.record.context?;
        let model = self.left.events.iter().find_map(|event| match event {
            ProbeEvent::Phase {
                time,
                phase: Phase::Model,
                ..
            } => Some(*time),
            _ => None,
        })?;
        last_before(self.values(), made, model, self.left.record.gpu(0))
    }

    /// Returns the memory at the end that is neither context nor reserved: loaded kernels, and the driver's rounding.
    fn modules(&self, context: Bytes) -> Option<Bytes> {
        let held = &self.left.record.gpu(0).changes;
        let (last_change, now) = *held.last()?;
        // After a free, the driver may still hold the memory, because it returns memory late. So there is no value
        // then.
        if held.iter().rev().nth(1).is_some_and(|(_, before)| *before > now) {
            return None;
        }
        // The last sample may be of a process that is exiting, so use the largest sample after the last change.
        let after = self.values().filter(|(look, _)| look.time >= last_change);
        let held = self.left.record.gpu(0).at(u64::MAX);
        let bytes = after.map(|(_, bytes)| bytes).max()?;
        Some(bytes.saturating_sub(context).saturating_sub(held))
    }

    fn source(&self) -> ProcessSource {
        let first = self.left.record.context.unwrap_or(0);
        let last = self.values().map(|(look, _)| look.time).max().unwrap_or(first);
        let micros = |time: std::time::Duration| u64::try_from(time.as_micros()).unwrap_or(u64::MAX);
        ProcessSource {
            of: self.of,
            interval_us: micros(self.looks.interval),
            longest_gap_us: micros(self.looks.longest_gap(first, last)),
            looks: self.looks.count(first, last) as u64,
        }
    }
}

/// Returns the bytes of the last sample that lies between two times, without reserved memory.
///
/// A sample that ends later may already show what came later, although it began earlier.
fn last_before<'a>(
    mut samples: impl DoubleEndedIterator<Item = (&'a MemoryLook, Bytes)>,
    from: u64,
    until: u64,
    held: &HeldMemory,
) -> Option<Bytes> {
    let (look, bytes) =
        samples.rfind(|(look, _)| look.time >= from && look.end < until && held.at(look.time) == held.at(look.end))?;
    Some(bytes.saturating_sub(held.at(look.time)))
}

/// Returns the measured sizes of context and modules, as far as the samples show them.
pub(super) fn outside(real: &Real, left: Option<&PassOutput>) -> (Option<ProcessOverhead>, Option<ProcessOverhead>) {
    let seen = left.and_then(ProcessLooks::from_pass);
    let context = seen.as_ref().and_then(ProcessLooks::context);
    let modules = seen
        .as_ref()
        .zip(context)
        .and_then(|(seen, context)| seen.modules(context));
    // Samples of the whole device do not show which process holds the memory, so they are too weak for a GPU profile.
    // The source text says which kind they are.
    let whole = seen.as_ref().is_some_and(|seen| seen.of == ProcessOf::Device);
    let measured = |bytes: Option<Bytes>, what: &str| {
        let of = if whole {
            "memory of the whole device minus what it held before"
        } else {
            "memory of the process"
        };
        bytes.map(|bytes| ProcessOverhead {
            bytes,
            obtained: Obtained::Measured,
            source: format!("NVML, {of}, {what}, driver {}", real.driver).into(),
        })
    };
    (
        measured(context, "before the model was created"),
        measured(
            modules,
            "at the end, without context and reserved memory: loaded kernels and the driver's rounding",
        ),
    )
}

/// Describes how the run was measured. `passes` contains the passes that ran, the warm pass first.
pub(super) fn measurement(real: &Real, limit: Option<Bytes>, tuning: Tuning, passes: &[&PassOutput]) -> Measurement {
    let others = passes.iter().flat_map(|left| {
        // In a container, NVML may use process ids of the host. Then the model's own process looks like another
        // process, so do not use the samples.
        let accounted = ProcessLooks::from_pass(left).is_some_and(|seen| seen.of == ProcessOf::Process);
        let during = left.looks.iter().filter(move |_| accounted);
        let during = during.flat_map(|looks| looks.others(0, u64::MAX));
        left.before.others.iter().cloned().chain(during)
    });
    let library = |of: fn(&PassOutput) -> &Option<LoadedLibrary>, path: &std::path::Path| {
        passes
            .iter()
            .find_map(|left| of(left).clone())
            // A pass that died early did not report what it loaded.
            .unwrap_or_else(|| LoadedLibrary {
                path: path.display().to_string().into(),
                version: String::new().into(),
            })
    };
    Measurement {
        uuid: real.uuid.as_str().into(),
        libcuda: library(|left| &left.record.libcuda, &real.libcuda),
        libnvrtc: library(|left| &left.record.libnvrtc, &real.libnvrtc),
        cores: std::thread::available_parallelism().map_or(1, |cores| u32::try_from(cores.get()).unwrap_or(u32::MAX)),
        proof: real.proof.clone(),
        process: passes
            .iter()
            .find_map(|left| ProcessLooks::from_pass(left))
            .map(|seen| seen.source()),
        idle: passes.first().and_then(|left| left.before.idle),
        others: with_most(others),
        limit,
        tuning,
        spread: None,
    }
}

/// Returns each process once, with the largest memory that was seen, sorted by its id.
pub(super) fn with_most(others: impl IntoIterator<Item = OtherProcess>) -> Vec<OtherProcess> {
    let mut most: BTreeMap<u32, OtherProcess> = BTreeMap::new();
    for other in others {
        let bytes = other.bytes;
        let known = most.entry(other.pid).or_insert(other);
        known.bytes = known.bytes.max(bytes);
    }
    most.into_values().collect()
}

/// Returns the seconds of all runs together, and of each of their passes.
pub(super) fn total_time(runs: &[Run]) -> (f64, Vec<PassSeconds>) {
    let seconds: f64 = runs.iter().map(|run| run.seconds).sum();
    let passes = runs.iter().flat_map(|run| run.pass_seconds.clone()).collect();
    ((seconds * 1000.0).round() / 1000.0, passes)
}

/// Merges repetitions of a run into one run, with the spread of their values.
///
/// The result is the first run that failed, or else the first run.
pub(super) fn repeated(first: Run, further: Vec<Run>) -> Run {
    let mut runs = vec![first];
    runs.extend(further);
    let spread = Spread {
        repeats: u32::try_from(runs.len()).unwrap_or(u32::MAX),
        warm: spread(&runs, Pass::Warm),
        cold: spread(&runs, Pass::Cold),
    };
    let (seconds, pass_seconds) = total_time(&runs);
    // A failure must not disappear among repetitions that went well.
    let wrong = runs.iter().position(|run| run.error.is_some() || run.oom.is_some());
    let mut run = runs.swap_remove(wrong.unwrap_or(0));
    (run.seconds, run.pass_seconds) = (seconds, pass_seconds);
    if let Some(measurement) = &mut run.measurement {
        measurement.spread = Some(spread);
    }
    run
}

/// Merges repetitions of a model whose runs may differ into one run, with the range of their values.
///
/// Sorts the runs: first those that leak, then by warm live memory, the largest first. The result is the first run that
/// failed. If no run failed, it is the first run, with the largest of each value on each GPU.
pub(super) fn largest(first: Run, further: Vec<Run>) -> Run {
    let mut runs = vec![first];
    runs.extend(further);
    let largest = |of: &dyn Fn(&Run) -> Option<Peaks>| {
        runs.iter().filter_map(of).reduce(|one, other| Peaks {
            warm: one.warm.largest(other.warm),
            cold: one.cold.largest(other.cold),
        })
    };
    let peaks = largest(&|run| Some(run.peaks)).unwrap_or_default();
    let orders = runs
        .iter()
        .filter_map(|run| run.varying.as_ref())
        .flat_map(|of| &of.orders);
    // A leak in any run is a leak of the model.
    let leak_per_round = orders.filter_map(|order| order.leak_per_round).max();
    let numbers: BTreeSet<u32> = runs.iter().flat_map(|run| &run.gpus).map(|on| on.gpu_number).collect();
    let on_each: BTreeMap<u32, Peaks> = numbers
        .into_iter()
        .filter_map(|number| {
            let on = |run: &Run| run.gpus.iter().find(|on| on.gpu_number == number).map(|on| on.peaks);
            Some((number, largest(&on)?))
        })
        .collect();
    let range = Spread {
        repeats: u32::try_from(runs.len()).unwrap_or(u32::MAX),
        warm: spread(&runs, Pass::Warm),
        cold: spread(&runs, Pass::Cold),
    };
    // Steps and phases cannot be merged, so they come from one run.
    runs.sort_by_key(|run| {
        // Leaks first: the chosen run's steps and epochs are judged, and a leak in any run is a leak of the model.
        let leaks = matches!(run.trend(), Trend::Growing(_)) || !run.growing_epochs().is_empty();
        std::cmp::Reverse((leaks, run.peaks.warm.live))
    });
    let further = runs.split_off(1);
    let mut run = repeated(runs.swap_remove(0), further);
    if run.error.is_none() && run.oom.is_none() {
        run.peaks = peaks;
        for on in &mut run.gpus {
            on.peaks = on_each.get(&on.gpu_number).copied().unwrap_or(on.peaks);
        }
        if let Some(of) = &mut run.varying {
            for order in &mut of.orders {
                (order.peaks, order.leak_per_round) = (peaks, leak_per_round);
            }
        }
    }
    run.range = Some(range);
    run
}

fn spread<R: std::borrow::Borrow<Run>>(runs: &[R], pass: Pass) -> SpreadPeak {
    let peaks = || {
        runs.iter().map(|run| run.borrow()).map(|run: &Run| match pass {
            Pass::Cold => run.peaks.cold,
            Pass::Warm | Pass::Traced => run.peaks.warm,
        })
    };
    // If one repetition lacks the value, there is no range, because a range must include all repetitions.
    let ends = |figures: Vec<Option<Bytes>>| {
        let all: Option<Vec<Bytes>> = figures.into_iter().collect();
        let all = all?;
        Some([*all.iter().min()?, *all.iter().max()?])
    };
    SpreadPeak {
        live: ends(peaks().map(|peak| peak.live).collect()),
        reserved: ends(peaks().map(|peak| peak.reserved).collect()),
        process: ends(peaks().map(|peak| peak.process).collect()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::report::{EpochMemory, EpochPhase, GpuShare, Peak, sample};

    fn of(live: u64, on_each: [u64; 2], ends: &[u64]) -> Run {
        let mut run = sample::ending_at(sample::run("a", "l4"), ends);
        let peaks = |live| Peaks {
            warm: Peak {
                live: Some(Bytes(live)),
                ..Peak::default()
            },
            ..Peaks::default()
        };
        run.peaks = peaks(live);
        run.gpus = [0, 1]
            .map(|gpu| GpuShare {
                gpu_number: gpu,
                peaks: peaks(on_each[gpu as usize]),
                steps: run.steps.clone(),
            })
            .to_vec();
        run
    }

    #[test]
    fn a_sample_that_ends_after_the_model_began_is_no_size_of_the_context() {
        let look = |time, end| MemoryLook {
            time,
            end,
            process: None,
            device: Bytes(0),
            others: [].into(),
        };
        let looks = [look(5, 6), look(20, 25), look(30, 45), look(50, 55)];
        let held = HeldMemory {
            changes: vec![(42, Bytes(100))],
            ..HeldMemory::default()
        };
        let context = |bytes: [u64; 4], until| {
            let samples = looks.iter().zip(bytes).map(|(look, bytes)| (look, Bytes(bytes)));
            last_before(samples.collect::<Vec<_>>().into_iter(), 10, until, &held)
        };
        // The third sample begins before the model does at 40, and reads its memory.
        assert_eq!(context([0, 200, 300, 310], 40), Some(Bytes(200)));
        // Nor does a sample count during which memory was allocated: nobody knows which part it saw.
        assert_eq!(context([0, 200, 300, 310], 50), Some(Bytes(200)));
        assert_eq!(context([0, 200, 300, 310], 60), Some(Bytes(210)));
        assert_eq!(context([0, 200, 300, 310], 25), None);
    }

    #[test]
    fn of_runs_that_differ_the_largest_is_told_on_each_gpu() {
        let run = largest(
            of(9, [9, 2], &[5; 6]),
            vec![of(7, [7, 4], &[5; 6]), of(8, [3, 8], &[5; 6])],
        );
        let live = |peaks: &Peaks| peaks.warm.live.unwrap().0;
        assert_eq!(live(&run.peaks), 9);
        assert_eq!(run.gpus.iter().map(|on| live(&on.peaks)).collect::<Vec<_>>(), [9, 8]);
        assert_eq!(run.range.unwrap().repeats, 3);
    }

    #[test]
    fn a_leak_in_any_of_them_is_one() {
        let run = largest(of(9, [9, 2], &[5; 6]), vec![of(7, [7, 4], &[5, 6, 7, 8, 9, 10])]);
        assert!(matches!(run.trend(), Trend::Growing(_)));
        assert_eq!(run.peaks.warm.live, Some(Bytes(9)));
    }

    #[test]
    fn growth_from_epoch_to_epoch_in_any_of_them_counts() {
        let flat = of(9, [9, 2], &[5; 6]);
        let mut grows = of(9, [9, 2], &[5; 6]);
        let epoch = |number: u32| EpochMemory {
            epoch: number,
            part: EpochPhase::Training,
            first_step: 0,
            steps: 4,
            is_end_seen: true,
            live_peak: Bytes(9),
            in_use_end: Bytes(u64::from(number) << 20),
            reserved_peak: Bytes(9),
            reserved_end: Bytes(9),
            pages: Vec::new(),
            streams: 1,
            new_streams: 0,
            new_streams_reserved: Bytes(0),
            loader: None,
        };
        grows.epochs = (1..=6).map(epoch).collect();
        assert!(flat.growing_epochs().is_empty() && !grows.growing_epochs().is_empty());
        let run = largest(flat.clone(), vec![flat, grows]);
        assert!(!run.growing_epochs().is_empty());
    }
}
