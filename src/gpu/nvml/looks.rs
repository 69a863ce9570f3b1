//! What was seen of a card while a process ran.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use crate::bytes::Bytes;
use crate::report::OtherProcess;

/// One look at a card.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Look {
    /// When it began, in nanoseconds of `CLOCK_MONOTONIC`, as in the driver's record.
    pub time: u64,
    /// What the process holds; `None` where NVML does not show it: it has no context yet or no
    /// more, its memory is not accounted for, or its id is of another namespace.
    pub process: Option<Bytes>,
    /// What the card holds, by whomever: [`CardMemory::used`](super::CardMemory::used).
    pub device: Bytes,
    /// All other processes on the card. One list is shared by all looks between two changes.
    pub others: Arc<[OtherProcess]>,
}

/// All looks at a card, in order of time. Whatever came and went between two of them was missed,
/// so a peak is a lower bound. Moments are nanoseconds of `CLOCK_MONOTONIC`; both ends count.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Looks {
    /// In order of time.
    pub looks: Vec<Look>,
    /// The aimed-at time between two of them.
    pub interval: Duration,
    /// Why there are no more of them, where the card could be looked at no longer.
    pub error: Option<String>,
}

impl Looks {
    /// The looks between two moments.
    #[must_use]
    pub fn between(&self, from: u64, to: u64) -> &[Look] {
        let first = self.looks.partition_point(|look| look.time < from);
        let end = self.looks.partition_point(|look| look.time <= to);
        self.looks.get(first..end).unwrap_or_default()
    }

    /// How many there are between two moments.
    #[must_use]
    pub fn count(&self, from: u64, to: u64) -> usize {
        self.between(from, to).len()
    }

    /// The longest time within two moments in which nobody looked: from the first moment to the
    /// first look and from the last look to the second moment, too.
    #[must_use]
    pub fn longest_gap(&self, from: u64, to: u64) -> Duration {
        let mut last = from;
        let mut longest = 0;
        for time in self.between(from, to).iter().map(|look| look.time).chain([to]) {
            longest = longest.max(time.saturating_sub(last));
            last = time;
        }
        Duration::from_nanos(longest)
    }

    /// The other processes seen between two moments, each with the most that it was seen to hold.
    ///
    /// Where the process itself is never seen ([`Look::process`] is always `None`), it may be one
    /// of these, under its id in another namespace.
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
                // A process is named when it runs its program, which may be after it was first seen.
                known.name = other.name.clone().or(known.name.take());
            }
        }
        others.into_values().collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn looks(looks: &[(u64, Option<u64>, u64)]) -> Looks {
        let look = |(time, process, device): &(u64, Option<u64>, u64)| Look {
            time: *time,
            process: process.map(Bytes),
            device: Bytes(*device),
            others: Arc::from([]),
        };
        Looks {
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
        assert_eq!(gap(60, 140), 40, "nobody looked before 100");
        assert_eq!(gap(100, 200), 60, "nobody looked after 140");
        assert_eq!(gap(111, 134), 23, "nobody looked at all");
        assert_eq!(gap(140, 100), 0, "moments in the wrong order");
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
            name: name.map(str::to_owned),
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
