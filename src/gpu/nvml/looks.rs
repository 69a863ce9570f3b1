//! [`MemoryLooks`]: the samples of a GPU's memory while a process ran.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use crate::bytes::Bytes;
use crate::report::OtherProcess;

/// One sample of a GPU's memory.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct MemoryLook {
    /// The start of the sample, in nanoseconds of `CLOCK_MONOTONIC`, the clock of the driver's record.
    pub time: u64,
    /// The end of the sample, by the same clock. NVML read the memory at an unknown moment between the two, which can
    /// be far apart on a busy machine.
    pub end: u64,
    /// The memory that the process and its child processes hold.
    ///
    /// `None` if NVML does not show it: the process has no context yet or no longer, its memory is not accounted for,
    /// or its id is from another namespace.
    pub process: Option<Bytes>,
    /// The memory of the GPU that all processes and the driver use: [`GpuMemory::used`](super::GpuMemory::used).
    pub device: Bytes,
    /// All other processes on the GPU. Samples share one list until it changes.
    pub others: Arc<[OtherProcess]>,
}

/// All samples of a GPU's memory.
///
/// Memory that is allocated and freed between two samples is not seen, so a peak is a lower bound. Times are
/// nanoseconds of `CLOCK_MONOTONIC`. A range of time includes both ends.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct MemoryLooks {
    /// The samples, in order of time.
    pub looks: Vec<MemoryLook>,
    /// The intended time between two samples.
    pub interval: Duration,
    /// Why sampling ended early, if it did.
    pub error: Option<String>,
}

impl MemoryLooks {
    /// The samples from `from` to `to`.
    #[must_use]
    pub fn between(&self, from: u64, to: u64) -> &[MemoryLook] {
        let first = self.looks.partition_point(|look| look.time < from);
        let end = self.looks.partition_point(|look| look.time <= to);
        // If `to` is before `from`, this range is reversed, which indexing would not accept.
        self.looks.get(first..end).unwrap_or_default()
    }

    /// The number of samples from `from` to `to`.
    #[must_use]
    pub fn count(&self, from: u64, to: u64) -> usize {
        self.between(from, to).len()
    }

    /// The longest time between `from` and `to` without a sample.
    ///
    /// The time from `from` to the first sample counts, and so does the time from the last sample to `to`.
    #[must_use]
    pub fn longest_gap(&self, from: u64, to: u64) -> Duration {
        let mut last = from;
        let mut longest = 0;
        // NVML may have read the memory at the start of one sample and at the end of the next.
        let samples = self.between(from, to).iter().map(|look| (look.time, look.end));
        for (time, end) in samples.chain([(to, to)]) {
            longest = longest.max(end.saturating_sub(last));
            last = time;
        }
        Duration::from_nanos(longest)
    }

    /// The other processes in the samples from `from` to `to`, each with the largest memory that was seen.
    ///
    /// If [`MemoryLook::process`] is always `None`, one of these may be the process itself, under its id in another
    /// namespace.
    #[must_use]
    pub fn others(&self, from: u64, to: u64) -> Vec<OtherProcess> {
        let mut others: BTreeMap<u32, OtherProcess> = BTreeMap::new();
        let mut last: Option<&Arc<[OtherProcess]>> = None;
        for look in self.between(from, to) {
            if last.is_some_and(|last| Arc::ptr_eq(last, &look.others)) {
                continue;
            }
            last = Some(&look.others);
            for other in look.others.iter() {
                let known = others.entry(other.pid).or_insert_with(|| other.clone());
                known.bytes = known.bytes.max(other.bytes);
                // A process changes its name when it starts its program, which can be after the first sample: take the
                // last name.
                known.name = other.name.clone().or(known.name.take());
            }
        }
        others.into_values().collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn looks(looks: &[(u64, Option<u64>, u64)]) -> MemoryLooks {
        let look = |(time, process, device): &(u64, Option<u64>, u64)| MemoryLook {
            time: *time,
            end: *time,
            process: process.map(Bytes),
            device: Bytes(*device),
            others: Arc::from([]),
        };
        MemoryLooks {
            looks: looks.iter().map(look).collect(),
            interval: Duration::from_nanos(10),
            error: None,
        }
    }

    #[test]
    fn a_gap_reaches_from_the_first_moment_to_the_last() {
        let looks = looks(&[(100, None, 0), (110, None, 0), (135, None, 0), (140, None, 0)]);
        let gap = |from, to| looks.longest_gap(from, to).as_nanos();
        assert_eq!(gap(100, 140), 25);
        assert_eq!(gap(60, 140), 40, "there is no sample before 100");
        assert_eq!(gap(100, 200), 60, "there is no sample after 140");
        assert_eq!(gap(111, 134), 23, "there is no sample at all");
        assert_eq!(gap(140, 100), 0, "times in the wrong order");
    }

    #[test]
    fn only_looks_between_two_moments_count() {
        let looks = looks(&[(10, Some(9), 90), (20, None, 50), (30, Some(4), 40)]);
        let devices = |from, to| {
            looks
                .between(from, to)
                .iter()
                .map(|look| look.device.0)
                .collect::<Vec<_>>()
        };
        assert_eq!(devices(10, 30), [90, 50, 40], "both ends count");
        assert_eq!(devices(11, 29), [50]);
        assert_eq!(
            (looks.count(10, 30), looks.count(31, 40), looks.count(30, 10)),
            (3, 0, 0)
        );
    }

    #[test]
    fn another_process_is_named_once_with_the_most_it_held() {
        let other = |pid, name: Option<&str>, bytes: Option<u64>| OtherProcess {
            pid,
            name: name.map(Into::into),
            bytes: bytes.map(Bytes),
        };
        let mut looks = looks(&[(10, None, 1), (20, None, 2), (30, None, 2), (40, None, 3)]);
        looks.looks[0].others = Arc::from([other(7, Some("sh"), Some(5))]);
        looks.looks[1].others = Arc::from([other(7, Some("python"), Some(2)), other(8, None, None)]);
        looks.looks[2].others = Arc::clone(&looks.looks[1].others);
        looks.looks[3].others = Arc::from([other(9, None, Some(1))]);
        assert_eq!(
            looks.others(0, 30),
            [other(7, Some("python"), Some(5)), other(8, None, None)]
        );
        assert_eq!(looks.others(31, 50), [other(9, None, Some(1))]);
    }
}
