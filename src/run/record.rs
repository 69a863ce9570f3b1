//! The driver's record: what a run is judged by, whatever the program says of itself.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;

use crate::bytes::Bytes;
use crate::driver;
use crate::protocol::MOST_CARDS;
use crate::report::Library;

/// What the driver wrote down.
#[derive(Debug, Default, Clone, PartialEq, Eq)]
pub struct Record {
    /// What was held of each card, by its number.
    pub cards: Vec<Held>,
    /// Allocations that were refused for lack of memory.
    pub refusals: Vec<Refusal>,
    /// Functions that were called and that the virtual driver does not have.
    pub unsupported: BTreeSet<String>,
    /// Calls answered with an error, other than refusals.
    pub errors: Vec<CallError>,
    /// Values copied back from the device.
    pub reads: u64,
    /// Panics that were unwound, whoever was told of them.
    pub panics: u64,
    /// Kernels launched.
    pub launches: u64,
    /// Whether the driver was loaded at all.
    pub started: bool,
    /// Whether the process ended in a way in which the driver could say so: not by a signal, and not by `_exit`.
    pub ended: bool,
    /// From when to when the process used the driver, in nanoseconds of `CLOCK_MONOTONIC`; to the end of time where it was killed.
    pub used: (u64, u64),
    /// CUDA drivers that the process had loaded besides this one.
    pub other_drivers: BTreeSet<String>,
    /// The records of other processes that the model started and that used the driver.
    pub helpers: Vec<Record>,
    /// Whether it passed every call on to another driver.
    pub forwards: bool,
    /// The driver that calls were passed on to.
    pub libcuda: Option<Library>,
    /// The compiler that calls were passed on to.
    pub libnvrtc: Option<Library>,
    /// The id of the card whose context was made first.
    pub device: Option<String>,
    /// When its context was ready, in nanoseconds of `CLOCK_MONOTONIC`.
    pub context: Option<u64>,
    /// Modules loaded.
    pub modules: u64,
    /// How often each function was called, which the driver writes when the process ends.
    pub calls: BTreeMap<String, u64>,
    /// The most bytes held at once of all cards together, by the driver's own count, which it writes when the process ends.
    pub counted_peak: Option<Bytes>,
    /// The same, as the lines before add up to.
    pub peak_of_all: Bytes,
}

/// What was held of one card.
#[derive(Debug, Default, Clone, PartialEq, Eq)]
pub struct Held {
    /// The most bytes of device memory held at once.
    pub peak: Bytes,
    /// Bytes held at the end.
    pub end: Bytes,
    /// Each change of it, with its time in nanoseconds of `CLOCK_MONOTONIC`.
    pub changes: Vec<(u64, Bytes)>,
}

/// What there is to say of a card that nothing was held of.
static NOTHING: Held = Held {
    peak: Bytes(0),
    end: Bytes(0),
    changes: Vec::new(),
};

/// An allocation that was refused for lack of memory.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Refusal {
    /// On which card.
    pub card: u32,
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
    /// Nanoseconds of `CLOCK_MONOTONIC`.
    pub time: u64,
    /// Bytes held at that moment.
    pub reserved: Bytes,
    /// The function.
    pub function: String,
    /// The driver's error code.
    pub code: i64,
    /// A word on the reason.
    pub detail: String,
}

impl CallError {
    /// Whether the card had no room for something that the driver needs for itself. That is no allocation of the
    /// model's, which is a [`Refusal`]; nor is it the host's memory that ran out.
    #[must_use]
    pub fn is_out_of_memory(&self) -> bool {
        const OUT_OF_MEMORY: i64 = 2;
        const NEED_ROOM: [&str; 9] = [
            "cuDevicePrimaryCtxRetain",
            "cuCtxCreate",
            "cuStreamCreate",
            "cuEventCreate",
            "cuModuleLoad",
            "cuModuleGetFunction",
            "cuLibrary",
            "cuLaunchKernel",
            "cuMemcpy",
        ];
        self.code == OUT_OF_MEMORY && NEED_ROOM.iter().any(|name| self.function.starts_with(name))
    }

    /// Whether autotune runs into this with a candidate that the card cannot run, which is then merely not chosen:
    /// a kernel that does not compile or load, asks for more than there is, or wants tensor maps of another shape.
    #[must_use]
    pub fn is_of_a_candidate(&self) -> bool {
        match self.function.as_str() {
            "nvrtcCompileProgram" => self.code == 6,
            "cuModuleLoadData" | "cuModuleLoadDataEx" => [200, 209, 218, 222].contains(&self.code),
            "cuFuncSetAttribute" => self.code == 1,
            "cuLaunchKernel" | "cuLaunchKernelEx" => [1, 701].contains(&self.code),
            "cuTensorMapEncodeTiled" | "cuTensorMapEncodeIm2col" | "cuTensorMapEncodeIm2colWide" => {
                [1, 801].contains(&self.code)
            }
            _ => false,
        }
    }
}

impl fmt::Display for CallError {
    /// `cuLaunchKernel failed with CUDA_ERROR_LAUNCH_FAILED (719)`
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { function, code, .. } = self;
        if *code == 0 {
            // The driver answered well, and ours could not follow: it freed what ours never saw.
            return write!(f, "{function} freed memory that was not counted");
        }
        match driver::error_name(*code).filter(|_| !function.starts_with("nvrtc")) {
            Some(name) => write!(f, "{function} failed with {name} ({code})"),
            None => write!(f, "{function} failed with error {code}"),
        }
    }
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
        // No machine has more: what a broken line says is no reason to make room for it.
        let card = number("device").min(u64::from(MOST_CARDS) - 1) as usize;
        match event {
            "start" => {
                self.started = true;
                self.used = (number("t"), u64::MAX);
                self.forwards = text("mode") == Some("forward");
            }
            "real" => {
                let version = number("driver_version");
                self.libcuda = Some(Library {
                    path: text("cuda").map(unescaped).unwrap_or_default(),
                    version: format!("{}.{}", version / 1000, version % 1000 / 10),
                });
            }
            "nvrtc" => {
                self.libnvrtc = Some(Library {
                    path: text("path").map(unescaped).unwrap_or_default(),
                    version: text("version").unwrap_or_default().to_owned(),
                });
            }
            "device" => {
                self.device
                    .get_or_insert_with(|| text("uuid").unwrap_or_default().to_owned());
            }
            "context" => {
                self.context.get_or_insert(number("t"));
                self.of(card);
            }
            "module" => self.modules += 1,
            "calls" => {
                self.calls
                    .extend(text("function").map(|name| (name.to_owned(), number("count"))));
            }
            "alloc" | "free" => {
                let (time, bytes) = (number("t"), Bytes(number("reserved")));
                let held = self.of(card);
                held.end = bytes;
                held.peak = held.peak.max(bytes);
                held.changes.push((time, bytes));
                self.peak_of_all = self.peak_of_all.max(self.cards.iter().map(|held| held.end).sum());
            }
            "refuse" => self.refusals.push(Refusal {
                card: u32::try_from(card).unwrap_or(0),
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
                time: number("t"),
                reserved: self.card(0).end,
                function: text("function").unwrap_or_default().to_owned(),
                code: text("code").and_then(|value| value.parse().ok()).unwrap_or(0),
                detail: text("detail").map(unescaped).unwrap_or_default(),
            }),
            "end" => {
                self.ended = true;
                self.used.1 = number("t");
            }
            "other_driver" => {
                self.other_drivers.extend(text("path").map(unescaped));
            }
            "launches" => {
                self.launches = number("count");
                self.reads = number("reads");
                self.panics = number("panics");
                self.counted_peak = Some(Bytes(number("reserved_peak")));
            }
            _ => {}
        }
    }

    /// Whether lines are missing: what they add up to is not what the driver counted.
    #[must_use]
    pub fn is_incomplete(&self) -> bool {
        self.counted_peak.is_some_and(|counted| counted != self.peak_of_all)
            || self.helpers.iter().any(Self::is_incomplete)
    }

    /// The most bytes that the model held of a card. How the peaks of processes coincide is a matter of chance: those of all that
    /// use the driver at the same time are added.
    #[must_use]
    pub fn peak(&self, card: u32) -> Bytes {
        self.card(card).peak + self.peak_of_helpers(card)
    }

    /// The part of [`Record::peak`] that other processes held.
    #[must_use]
    pub fn peak_of_helpers(&self, card: u32) -> Bytes {
        Bytes(self.most_at_once(|helper| helper.peak(card).0))
    }

    /// How many processes had a context on a card at the same time.
    #[must_use]
    pub fn processes(&self) -> u64 {
        1 + self.most_at_once(|helper| u64::from(!helper.cards.is_empty()))
    }

    /// The largest sum over other processes that used the driver at the same time: it is highest when one of them begins.
    fn most_at_once(&self, of: impl Fn(&Self) -> u64) -> u64 {
        let sum_at = |time: u64| -> u64 {
            let there = |helper: &&Self| helper.used.0 <= time && time < helper.used.1;
            self.helpers.iter().filter(there).map(&of).sum()
        };
        self.helpers
            .iter()
            .map(|helper| sum_at(helper.used.0))
            .max()
            .unwrap_or(0)
    }

    /// Every process's record, this one's first.
    pub fn all(&self) -> impl Iterator<Item = &Self> {
        std::iter::once(self).chain(&self.helpers)
    }

    fn of(&mut self, card: usize) -> &mut Held {
        if self.cards.len() <= card {
            self.cards.resize(card + 1, Held::default());
        }
        &mut self.cards[card]
    }

    /// What was held of a card.
    #[must_use]
    pub fn card(&self, card: u32) -> &Held {
        self.cards.get(card as usize).unwrap_or(&NOTHING)
    }

    /// The last allocation that nothing could serve.
    #[must_use]
    pub fn last_refusal(&self) -> Option<&Refusal> {
        self.refusals.iter().rev().find(|refusal| refusal.last_resort)
    }
}

impl Held {
    /// The most bytes held between two moments, and the bytes held at the second.
    #[must_use]
    pub fn between(&self, from: u64, to: u64) -> (Bytes, Bytes) {
        let before = self.changes.partition_point(|(time, _)| *time < from);
        let after = self.changes.partition_point(|(time, _)| *time < to);
        let at = |count: usize| count.checked_sub(1).map_or(Bytes(0), |last| self.changes[last].1);
        let within = self.changes[before..after].iter().map(|(_, bytes)| *bytes);
        (within.fold(at(before), Bytes::max), at(after))
    }

    /// The bytes held at a moment.
    #[must_use]
    pub fn at(&self, time: u64) -> Bytes {
        let before = self.changes.partition_point(|(at, _)| *at <= time);
        before.checked_sub(1).map_or(Bytes(0), |last| self.changes[last].1)
    }
}

/// A text with its percent escapes undone.
fn unescaped(text: &str) -> String {
    let mut bytes = Vec::new();
    let mut rest = text.as_bytes();
    while let Some((first, after)) = rest.split_first() {
        let escape = after.get(..2).filter(|_| *first == b'%');
        let byte = escape.and_then(|digits| u8::from_str_radix(std::str::from_utf8(digits).ok()?, 16).ok());
        bytes.push(byte.unwrap_or(*first));
        rest = if byte.is_some() { &after[2..] } else { after };
    }
    String::from_utf8_lossy(&bytes).into_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn texts_come_back_as_they_were() {
        assert_eq!(unescaped("/usr/lib%20x/%C3%A4"), "/usr/lib x/ä");
        assert_eq!(unescaped("100%"), "100%");
        assert_eq!(unescaped("%zz%4"), "%zz%4");
    }

    #[test]
    fn a_real_driver_tells_what_it_is() {
        let record = Record::parse(
            "start t=1 pid=2 version=1 mode=forward name=x\nreal t=2 cuda=/a%20b/libcuda.so.1 driver_version=12080\n\
             device t=3 device=0 uuid=GPU-1 name=y\ncontext t=4 device=0\nnvrtc t=5 path=/c version=12.8\n\
             calls t=6 function=cuInit count=1\n",
        );
        assert!(record.forwards);
        let library = record.libcuda.unwrap();
        assert_eq!(
            (library.path.as_str(), library.version.as_str()),
            ("/a b/libcuda.so.1", "12.8")
        );
        assert_eq!(record.device.as_deref(), Some("GPU-1"));
        assert_eq!(record.context, Some(4));
        assert_eq!(record.calls["cuInit"], 1);
    }

    #[test]
    fn the_peak_is_the_most_held_at_once() {
        let record = Record::parse(
            "start t=1 pid=2 version=1 name=x\n\
             alloc t=2 kind=async bytes=100 ptr=0x1 reserved=100\n\
             alloc t=3 kind=sync bytes=50 ptr=0x2 reserved=150\n\
             free t=4 kind=async bytes=100 ptr=0x1 reserved=50\n\
             alloc t=5 kind=async bytes=999 ptr=0x3 reserved=10",
        );
        assert_eq!(record.card(0).peak, Bytes(150));
        assert_eq!(
            record.card(0).end,
            Bytes(50),
            "a line that was cut short does not count"
        );
    }

    #[test]
    fn a_phase_begins_with_what_was_held_before_it() {
        let record = Record::parse(
            "alloc t=10 bytes=5 reserved=5\nalloc t=20 bytes=4 reserved=9\nfree t=25 bytes=5 reserved=4\n",
        );
        assert_eq!(record.card(0).between(0, 10), (Bytes(0), Bytes(0)));
        assert_eq!(record.card(0).between(15, 30), (Bytes(9), Bytes(4)));
        assert_eq!(record.card(0).between(26, 30), (Bytes(4), Bytes(4)));
    }

    #[test]
    fn one_refusal_of_two_ways_to_allocate_is_not_the_last_word() {
        let refuse = "refuse t=9 kind=async bytes=8 reserved=4 available=2 kernel=gemm\n";
        assert_eq!(Record::parse(refuse).last_refusal(), None);
        let both = format!("{refuse}{}", refuse.replace("async", "sync"));
        let last = Record::parse(&both).last_refusal().cloned().unwrap();
        assert_eq!((last.requested, last.kernel.as_deref()), (Bytes(8), Some("gemm")));
    }

    /// A record of so many bytes, held from one time to another.
    fn process(bytes: u64, from: u64, to: Option<u64>) -> Record {
        let end = to.map(|to| format!("end t={to}\n")).unwrap_or_default();
        Record::parse(&format!(
            "start t={from} pid=2 version=1 name=x\nalloc t={from} kind=sync bytes={bytes} ptr=0x1 reserved={bytes}\n{end}"
        ))
    }

    #[test]
    fn processes_that_were_there_at_the_same_time_are_added() {
        let with = |helpers: &[Record]| {
            let mut record = process(1000, 0, Some(90));
            record.helpers = helpers.to_vec();
            (record.peak(0).0, record.processes())
        };
        assert_eq!(with(&[]), (1000, 1));
        // One after the other: the larger of the two.
        assert_eq!(with(&[process(5, 10, Some(20)), process(7, 20, Some(30))]), (1007, 2));
        assert_eq!(with(&[process(5, 10, Some(21)), process(7, 20, Some(30))]), (1012, 3));
        // One without an end was killed, nobody knows when.
        assert_eq!(with(&[process(5, 10, None), process(7, 20, Some(30))]), (1012, 3));
    }
}
