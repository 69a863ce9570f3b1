//! What was seen of a process on a real card, made into figures.

use std::collections::{BTreeMap, BTreeSet};

use super::card::Real;
use super::process::Left;
use crate::bytes::Bytes;
use crate::gpu::Looks;
use crate::protocol::{Event, Phase};
use crate::report::{
    Library, Measurement, Obtained, OtherProcess, Outside, Pass, Peaks, ProcessOf, ProcessSource, Run, Spread,
    SpreadPeak, Trend, Tuning,
};

/// Looks at one process, and what they are the memory of.
pub(super) struct Seen<'a> {
    left: &'a Left,
    looks: &'a Looks,
    of: ProcessOf,
    idle: Bytes,
}

impl<'a> Seen<'a> {
    /// Absent where nothing was seen.
    pub(super) fn of(left: &'a Left) -> Option<Self> {
        let looks = left.looks.as_ref().filter(|looks| !looks.looks.is_empty())?;
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
            // Without it, what the card holds says nothing of this process.
            idle: match of {
                ProcessOf::Process => idle.unwrap_or_default(),
                ProcessOf::Device => idle?,
            },
        })
    }

    fn values(&self) -> impl DoubleEndedIterator<Item = (u64, Bytes)> {
        self.looks.looks.iter().filter_map(|look| {
            let bytes = match self.of {
                ProcessOf::Process => look.process?,
                ProcessOf::Device => look.device.saturating_sub(self.idle),
            };
            Some((look.time, bytes))
        })
    }

    /// The most that was charged to the process: a lower bound, for it was looked at now and then.
    pub(super) fn peak(&self) -> Option<Bytes> {
        self.values().map(|(_, bytes)| bytes).max()
    }

    /// What the process held when its context was made and its model was not.
    fn context(&self) -> Option<Bytes> {
        let made = self.left.record.context?;
        let model = self.left.events.iter().find_map(|event| match event {
            Event::Phase {
                time,
                phase: Phase::Model,
                ..
            } => Some(*time),
            _ => None,
        })?;
        let (time, bytes) = self.values().rfind(|(time, _)| (made..model).contains(time))?;
        Some(bytes.saturating_sub(self.left.record.card(0).at(time)))
    }

    /// What is neither context nor reserved in the end: loaded kernels, and what the driver rounds up.
    fn modules(&self, context: Bytes) -> Option<Bytes> {
        let held = &self.left.record.card(0).changes;
        let (last_change, now) = *held.last()?;
        // What was freed last may still be the driver's: it gives memory back later than it was asked to.
        if held.iter().rev().nth(1).is_some_and(|(_, before)| *before > now) {
            return None;
        }
        // The last look may have been at a process on its way out.
        let after = self.values().filter(|(time, _)| *time >= last_change);
        let held = self.left.record.card(0).at(u64::MAX);
        let bytes = after.map(|(_, bytes)| bytes).max()?;
        Some(bytes.saturating_sub(context).saturating_sub(held))
    }

    fn source(&self) -> ProcessSource {
        let first = self.left.record.context.unwrap_or(0);
        let last = self.values().map(|(time, _)| time).max().unwrap_or(first);
        let micros = |time: std::time::Duration| u64::try_from(time.as_micros()).unwrap_or(u64::MAX);
        ProcessSource {
            of: self.of,
            interval_us: micros(self.looks.interval),
            longest_gap_us: micros(self.looks.longest_gap(first, last)),
            looks: self.looks.count(first, last) as u64,
        }
    }
}

/// Context and modules, as far as they could be seen.
pub(super) fn outside(real: &Real, left: Option<&Left>) -> (Option<Outside>, Option<Outside>) {
    let seen = left.and_then(Seen::of);
    let context = seen.as_ref().and_then(Seen::context);
    let modules = seen
        .as_ref()
        .zip(context)
        .and_then(|(seen, context)| seen.modules(context));
    // What the whole device holds is nobody's in particular: too little to go by for a card's own data.
    let whole = seen.as_ref().is_some_and(|seen| seen.of == ProcessOf::Device);
    let measured = |bytes: Option<Bytes>, what: &str| {
        let of = if whole {
            "of the whole device less what it held before"
        } else {
            "of the process"
        };
        bytes.map(|bytes| Outside {
            bytes,
            obtained: Obtained::Measured,
            source: format!("NVML, {of}, {what}, driver {}", real.driver),
        })
    };
    (
        measured(context, "before the model was made"),
        measured(
            modules,
            "at the end, besides context and reserved: loaded kernels, and what the driver rounds up",
        ),
    )
}

/// How it was measured. `passes` are those that ran, the warm one first.
pub(super) fn measurement(real: &Real, limit: Option<Bytes>, tuning: Tuning, passes: &[&Left]) -> Measurement {
    let mut others: BTreeMap<u32, OtherProcess> = BTreeMap::new();
    for left in passes {
        // Where NVML numbers processes as the machine outside a container does, the model's own is one of the others.
        let accounted = Seen::of(left).is_some_and(|seen| seen.of == ProcessOf::Process);
        let during = left.looks.iter().filter(|_| accounted);
        let during = during.flat_map(|looks| looks.others(0, u64::MAX));
        for other in left.before.others.iter().cloned().chain(during) {
            let bytes = other.bytes;
            let known = others.entry(other.pid).or_insert(other);
            known.bytes = known.bytes.max(bytes);
        }
    }
    let library = |of: fn(&Left) -> &Option<Library>, path: &std::path::Path| {
        passes
            .iter()
            .find_map(|left| of(left).clone())
            .unwrap_or_else(|| Library {
                path: path.display().to_string(),
                version: String::new(),
            })
    };
    Measurement {
        uuid: real.uuid.clone(),
        libcuda: library(|left| &left.record.libcuda, &real.libcuda),
        libnvrtc: library(|left| &left.record.libnvrtc, &real.libnvrtc),
        cores: std::thread::available_parallelism().map_or(1, |cores| u32::try_from(cores.get()).unwrap_or(u32::MAX)),
        proof: real.proof.clone(),
        process: passes.iter().find_map(|left| Seen::of(left)).map(|seen| seen.source()),
        idle: passes.first().and_then(|left| left.before.idle),
        others: others.into_values().collect(),
        limit,
        tuning,
        spread: None,
    }
}

/// One run of several of the same: the first that went wrong or else the first, with how far they lie apart.
pub(super) fn repeated(first: Run, further: Vec<Run>) -> Run {
    let mut runs = vec![first];
    runs.extend(further);
    let spread = Spread {
        repeats: u32::try_from(runs.len()).unwrap_or(u32::MAX),
        warm: spread(&runs, Pass::Warm),
        cold: spread(&runs, Pass::Cold),
    };
    let seconds: f64 = runs.iter().map(|run| run.seconds).sum();
    let wrong = runs.iter().position(|run| run.error.is_some() || run.oom.is_some());
    let mut run = runs.swap_remove(wrong.unwrap_or(0));
    run.seconds = (seconds * 1000.0).round() / 1000.0;
    if let Some(measurement) = &mut run.measurement {
        measurement.spread = Some(spread);
    }
    run
}

/// One run of several of a model that need not do the same: the first that went wrong, or else the first that leaks, or else the
/// one with the most live; with the largest of each figure, on each GPU, and with how far they lie apart.
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
    let numbers: BTreeSet<u32> = runs.iter().flat_map(|run| &run.cards).map(|on| on.card).collect();
    let on_each: BTreeMap<u32, Peaks> = numbers
        .into_iter()
        .filter_map(|number| {
            let on = |run: &Run| run.cards.iter().find(|on| on.card == number).map(|on| on.peaks);
            Some((number, largest(&on)?))
        })
        .collect();
    let range = Spread {
        repeats: u32::try_from(runs.len()).unwrap_or(u32::MAX),
        warm: spread(&runs, Pass::Warm),
        cold: spread(&runs, Pass::Cold),
    };
    // Steps and phases are one run's.
    runs.sort_by_key(|run| {
        let leaks = matches!(run.trend(), Trend::Growing(_));
        std::cmp::Reverse((leaks, run.peaks.warm.live))
    });
    let further = runs.split_off(1);
    let mut run = repeated(runs.swap_remove(0), further);
    if run.error.is_none() && run.oom.is_none() {
        run.peaks = peaks;
        for on in &mut run.cards {
            on.peaks = on_each.get(&on.card).copied().unwrap_or(on.peaks);
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
    // A repetition without the figure leaves none: least and most are those of all.
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
    use crate::report::{OnCard, Peak, sample};

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
        run.cards = [0, 1]
            .map(|card| OnCard {
                card,
                peaks: peaks(on_each[card as usize]),
                steps: run.steps.clone(),
            })
            .to_vec();
        run
    }

    #[test]
    fn of_runs_that_differ_the_largest_is_told_on_each_gpu() {
        let run = largest(
            of(9, [9, 2], &[5; 6]),
            vec![of(7, [7, 4], &[5; 6]), of(8, [3, 8], &[5; 6])],
        );
        let live = |peaks: &Peaks| peaks.warm.live.unwrap().0;
        assert_eq!(live(&run.peaks), 9);
        assert_eq!(run.cards.iter().map(|on| live(&on.peaks)).collect::<Vec<_>>(), [9, 8]);
        assert_eq!(run.range.unwrap().repeats, 3);
    }

    #[test]
    fn a_leak_in_any_of_them_is_one() {
        let run = largest(of(9, [9, 2], &[5; 6]), vec![of(7, [7, 4], &[5, 6, 7, 8, 9, 10])]);
        assert!(matches!(run.trend(), Trend::Growing(_)));
        assert_eq!(run.peaks.warm.live, Some(Bytes(9)));
    }
}
