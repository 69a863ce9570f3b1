//! The driver's record: what a run is judged by, whatever the program says of itself.

use std::collections::BTreeSet;

use crate::bytes::Bytes;

/// What the driver wrote down.
#[derive(Debug, Default, Clone, PartialEq, Eq)]
pub struct Record {
    /// The most bytes of device memory held at once.
    pub reserved_peak: Bytes,
    /// Bytes held at the end.
    pub reserved: Bytes,
    /// Each change of it, with its time in nanoseconds of `CLOCK_MONOTONIC`.
    pub held: Vec<(u64, Bytes)>,
    /// Allocations that were refused for lack of memory.
    pub refusals: Vec<Refusal>,
    /// Functions that were called and that the virtual driver does not have.
    pub unsupported: BTreeSet<String>,
    /// Calls answered with an error, other than refusals.
    pub errors: Vec<CallError>,
    /// Values copied back from the device.
    pub reads: u64,
    /// Whether the driver was loaded at all.
    pub started: bool,
    /// The most bytes held at once by the driver's own count, which it writes when the process ends.
    pub counted_peak: Option<Bytes>,
}

/// An allocation that was refused for lack of memory.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Refusal {
    /// Nanoseconds of `CLOCK_MONOTONIC`.
    pub time: u64,
    /// Whether this was the last resort: `cuMemAlloc`, after `cuMemAllocAsync`.
    pub last_resort: bool,
    /// Bytes asked for.
    pub requested: Bytes,
    /// Bytes held.
    pub reserved: Bytes,
    /// Bytes that were left.
    pub available: Bytes,
    /// The last kernel launched before.
    pub kernel: Option<String>,
}

/// A call that was answered with an error.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct CallError {
    /// The function.
    pub function: String,
    /// The driver's error code.
    pub code: i64,
}

impl Record {
    /// Reads a record; a last line that was cut short is left out.
    #[must_use]
    pub fn parse(text: &str) -> Self {
        let mut record = Self::default();
        for line in text.split_inclusive('\n').filter_map(|line| line.strip_suffix('\n')) {
            record.line(line);
        }
        record
    }

    fn line(&mut self, line: &str) {
        let mut words = line.split(' ');
        let event = words.next().unwrap_or("");
        let fields: Vec<(&str, &str)> = words.filter_map(|word| word.split_once('=')).collect();
        let text = |name| fields.iter().find(|(key, _)| *key == name).map(|(_, value)| *value);
        let number = |name| text(name).and_then(|value| value.parse::<u64>().ok()).unwrap_or(0);
        match event {
            "start" => self.started = true,
            "alloc" | "free" => {
                self.reserved = Bytes(number("reserved"));
                self.reserved_peak = self.reserved_peak.max(self.reserved);
                self.held.push((number("t"), self.reserved));
            }
            "refuse" => self.refusals.push(Refusal {
                time: number("t"),
                last_resort: text("kind") == Some("sync"),
                requested: Bytes(number("bytes")),
                reserved: Bytes(number("reserved")),
                available: Bytes(number("available")),
                kernel: text("kernel").filter(|name| *name != "-").map(str::to_owned),
            }),
            "unsupported" => {
                self.unsupported.extend(text("function").map(str::to_owned));
            }
            "error" => self.errors.push(CallError {
                function: text("function").unwrap_or_default().to_owned(),
                code: text("code").and_then(|value| value.parse().ok()).unwrap_or(0),
            }),
            "launches" => {
                self.reads = number("reads");
                self.counted_peak = Some(Bytes(number("reserved_peak")));
            }
            _ => {}
        }
    }

    /// Whether lines are missing: what they add up to is not what the driver counted.
    #[must_use]
    pub fn is_incomplete(&self) -> bool {
        self.counted_peak.is_some_and(|counted| counted != self.reserved_peak)
    }

    /// The most bytes held between two moments, and the bytes held at the second.
    #[must_use]
    pub fn held_between(&self, from: u64, to: u64) -> (Bytes, Bytes) {
        let before = self.held.partition_point(|(time, _)| *time < from);
        let after = self.held.partition_point(|(time, _)| *time < to);
        let at = |count: usize| count.checked_sub(1).map_or(Bytes(0), |last| self.held[last].1);
        let within = self.held[before..after].iter().map(|(_, bytes)| *bytes);
        (within.fold(at(before), Bytes::max), at(after))
    }

    /// The last allocation that nothing could serve.
    #[must_use]
    pub fn last_refusal(&self) -> Option<&Refusal> {
        self.refusals.iter().rev().find(|refusal| refusal.last_resort)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_peak_is_the_most_held_at_once() {
        let record = Record::parse(
            "start t=1 pid=2 version=1 name=x\n\
             alloc t=2 kind=async bytes=100 ptr=0x1 reserved=100\n\
             alloc t=3 kind=sync bytes=50 ptr=0x2 reserved=150\n\
             free t=4 kind=async bytes=100 ptr=0x1 reserved=50\n\
             alloc t=5 kind=async bytes=999 ptr=0x3 reserved=10",
        );
        assert_eq!(record.reserved_peak, Bytes(150));
        assert_eq!(record.reserved, Bytes(50), "a line that was cut short does not count");
    }

    #[test]
    fn a_phase_begins_with_what_was_held_before_it() {
        let record = Record::parse(
            "alloc t=10 bytes=5 reserved=5\nalloc t=20 bytes=4 reserved=9\nfree t=25 bytes=5 reserved=4\n",
        );
        assert_eq!(record.held_between(0, 10), (Bytes(0), Bytes(0)));
        assert_eq!(record.held_between(15, 30), (Bytes(9), Bytes(4)));
        assert_eq!(record.held_between(26, 30), (Bytes(4), Bytes(4)));
    }

    #[test]
    fn one_refusal_of_two_ways_to_allocate_is_not_the_last_word() {
        let refuse = "refuse t=9 kind=async bytes=8 reserved=4 available=2 kernel=gemm\n";
        assert_eq!(Record::parse(refuse).last_refusal(), None);
        let both = format!("{refuse}{}", refuse.replace("async", "sync"));
        let last = Record::parse(&both).last_refusal().cloned().unwrap();
        assert_eq!((last.requested, last.kernel.as_deref()), (Bytes(8), Some("gemm")));
    }
}
