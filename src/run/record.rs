//! The driver's record of a process. The tool trusts it more than what the program reports.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;

use crate::bytes::Bytes;
use crate::driver;
use crate::protocol::MOST_GPUS;
use crate::report::LoadedLibrary;

/// The parsed record of one process.
#[derive(Debug, Default, Clone, PartialEq, Eq)]
pub struct Record {
    /// The reserved memory of each GPU, by the GPU's number.
    pub gpus: Vec<HeldMemory>,
    /// The allocations that were refused for lack of memory.
    pub refusals: Vec<RefusedAllocation>,
    /// The functions that the process called but that the counting driver does not support.
    pub unsupported: BTreeSet<String>,
    /// The calls that returned an error, except for refusals.
    pub errors: Vec<CallError>,
    /// The number of values copied back from the device.
    pub reads: u64,
    /// The number of panics that were unwound, including those that no panic hook saw.
    pub panics: u64,
    /// The number of kernel launches.
    pub launches: u64,
    /// Whether the process loaded the driver.
    pub started: bool,
    /// Whether the driver could write its last line, which is not possible after a signal or `_exit`.
    pub ended: bool,
    /// When the process used the driver: start and end in nanoseconds of `CLOCK_MONOTONIC`. The end is `u64::MAX` after
    /// a kill.
    pub used: (u64, u64),
    /// The paths of other CUDA drivers that the process loaded.
    pub other_drivers: BTreeSet<String>,
    /// The records of other processes that the model started and that used the driver.
    pub helpers: Vec<Record>,
    /// Whether the driver forwarded every call to a real driver.
    pub forwards: bool,
    /// The real driver to which calls were forwarded.
    pub libcuda: Option<LoadedLibrary>,
    /// The real NVRTC to which calls were forwarded.
    pub libnvrtc: Option<LoadedLibrary>,
    /// The UUID of the GPU whose context was created first.
    pub device: Option<String>,
    /// When the first context was ready, in nanoseconds of `CLOCK_MONOTONIC`.
    pub context: Option<u64>,
    /// The number of loaded modules.
    pub modules: u64,
    /// The number of calls of each function. The driver writes them when the process ends.
    pub calls: BTreeMap<String, u64>,
    /// The peak of reserved memory of all GPUs together, as the driver counted it. It writes this when the process
    /// ends.
    pub counted_peak: Option<Bytes>,
    /// The same peak, as computed from the lines of the record.
    pub peak_of_all: Bytes,
}

/// The reserved memory of one GPU.
#[derive(Debug, Default, Clone, PartialEq, Eq)]
pub struct HeldMemory {
    /// The peak in bytes.
    pub peak: Bytes,
    /// The bytes at the end.
    pub end: Bytes,
    /// The bytes after each change, with its time in nanoseconds of `CLOCK_MONOTONIC`.
    pub changes: Vec<(u64, Bytes)>,
}

/// The value for a GPU of which nothing was reserved.
static NOTHING: HeldMemory = HeldMemory {
    peak: Bytes(0),
    end: Bytes(0),
    changes: Vec::new(),
};

/// An allocation that was refused for lack of memory.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RefusedAllocation {
    /// The number of the GPU.
    pub gpu: u32,
    /// The time in nanoseconds of `CLOCK_MONOTONIC`.
    pub time: u64,
    /// Whether this was Burn's last attempt: `cuMemAlloc`, which it calls after `cuMemAllocAsync`.
    pub last_resort: bool,
    /// The requested bytes.
    pub requested: Bytes,
    /// The bytes that were reserved at that time.
    pub reserved: Bytes,
    /// The bytes that were available at that time.
    pub available: Bytes,
    /// The name of the last kernel that was launched before.
    pub kernel: Option<String>,
}

/// A driver call that returned an error.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct CallError {
    /// The time in nanoseconds of `CLOCK_MONOTONIC`.
    pub time: u64,
    /// The bytes that were reserved on the first GPU at that time.
    pub reserved: Bytes,
    /// The name of the function.
    pub function: String,
    /// The error code of the driver or of NVRTC.
    pub code: i64,
    /// A short text about the reason; may be empty.
    pub detail: String,
}

impl CallError {
    /// Whether the GPU had no memory for something that the driver itself needs.
    ///
    /// A refused allocation of the model is a [`RefusedAllocation`] instead. Errors because of full host memory do not
    /// count.
    #[must_use]
    pub fn is_out_of_memory(&self) -> bool {
        const OUT_OF_MEMORY: i64 = 2;
        // The starts of names, because functions have variants such as `cuMemcpyHtoDAsync_v2`.
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

    /// Whether this error is normal for an autotune candidate that the GPU cannot run.
    ///
    /// Such a kernel does not compile or load, asks for too many resources, or uses tensor maps of an unsupported
    /// shape. Autotune then chooses another candidate.
    #[must_use]
    pub fn is_of_a_candidate(&self) -> bool {
        // Only these failures are normal for a candidate. Any other is an error, even if Burn goes on.
        // See docs/design/complete-runs.md.
        match self.function.as_str() {
            // NVRTC_ERROR_COMPILATION
            "nvrtcCompileProgram" => self.code == 6,
            // INVALID_IMAGE, NO_BINARY_FOR_GPU, INVALID_PTX, UNSUPPORTED_PTX_VERSION
            "cuModuleLoadData" | "cuModuleLoadDataEx" => [200, 209, 218, 222].contains(&self.code),
            "cuFuncSetAttribute" => self.code == 1,
            // INVALID_VALUE, LAUNCH_OUT_OF_RESOURCES
            "cuLaunchKernel" | "cuLaunchKernelEx" => [1, 701].contains(&self.code),
            "cuTensorMapEncodeTiled" | "cuTensorMapEncodeIm2col" | "cuTensorMapEncodeIm2colWide" => {
                // INVALID_VALUE, NOT_SUPPORTED
                [1, 801].contains(&self.code)
            }
            _ => false,
        }
    }
}

impl fmt::Display for CallError {
    /// Formats the error: `cuLaunchKernel failed with CUDA_ERROR_LAUNCH_FAILED (719)`.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { function, code, .. } = self;
        if *code == 0 {
            // The real driver succeeded, but it freed memory whose allocation the counting driver never saw.
            return write!(f, "{function} freed memory that cargo-vram did not count");
        }
        match driver::error_name(*code).filter(|_| !function.starts_with("nvrtc")) {
            Some(name) => write!(f, "{function} failed with {name} ({code})"),
            None => write!(f, "{function} failed with error {code}"),
        }
    }
}

impl Record {
    /// Parses a record. Ignores an incomplete last line.
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
        // A damaged number counts as 0. `is_incomplete` finds that out, because the driver's own sum differs
        // then.
        let number = |name| text(name).and_then(|value| value.parse::<u64>().ok()).unwrap_or(0);
        // No machine has more GPUs. A damaged line must not allocate memory for a huge number.
        let gpu = number("device").min(u64::from(MOST_GPUS) - 1) as usize;
        match event {
            "start" => {
                self.started = true;
                self.used = (number("t"), u64::MAX);
                self.forwards = text("mode") == Some("forward");
            }
            "real" => {
                let version = number("driver_version");
                self.libcuda = Some(LoadedLibrary {
                    path: text("cuda").map(unescaped).unwrap_or_default().into(),
                    // CUDA writes version 12.8 as 12080.
                    version: format!("{}.{}", version / 1000, version % 1000 / 10).into(),
                });
            }
            "nvrtc" => {
                self.libnvrtc = Some(LoadedLibrary {
                    path: text("path").map(unescaped).unwrap_or_default().into(),
                    version: text("version").unwrap_or_default().into(),
                });
            }
            "device" => {
                self.device
                    .get_or_insert_with(|| text("uuid").unwrap_or_default().to_owned());
            }
            "context" => {
                self.context.get_or_insert(number("t"));
                // A process with a context takes memory of the GPU even if it allocates nothing.
                self.of(gpu);
            }
            "module" => self.modules += 1,
            "calls" => {
                self.calls
                    .extend(text("function").map(|name| (name.to_owned(), number("count"))));
            }
            "alloc" | "free" => {
                let (time, bytes) = (number("t"), Bytes(number("reserved")));
                let held = self.of(gpu);
                held.end = bytes;
                held.peak = held.peak.max(bytes);
                held.changes.push((time, bytes));
                self.peak_of_all = self.peak_of_all.max(self.gpus.iter().map(|held| held.end).sum());
            }
            "refuse" => self.refusals.push(RefusedAllocation {
                gpu: u32::try_from(gpu).unwrap_or(0),
                time: number("t"),
                // After any failure of `cuMemAllocAsync`, Burn calls `cuMemAlloc` (`storage/gpu.rs` of
                // cubecl-cuda).
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
                reserved: self.gpu(0).end,
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

    /// Whether lines are missing, so that the peak from the lines differs from the peak that the driver counted.
    #[must_use]
    pub fn is_incomplete(&self) -> bool {
        self.counted_peak.is_some_and(|counted| counted != self.peak_of_all)
            || self.helpers.iter().any(Self::is_incomplete)
    }

    /// Returns the peak of the memory that the model reserved on a GPU, in bytes.
    ///
    /// The peaks of processes may or may not coincide. So this adds the peaks of all processes that use the driver at
    /// the same time.
    #[must_use]
    pub fn peak(&self, gpu: u32) -> Bytes {
        self.gpu(gpu).peak + self.peak_of_helpers(gpu)
    }

    /// Returns the part of [`Record::peak`] that helper processes reserved.
    #[must_use]
    pub fn peak_of_helpers(&self, gpu: u32) -> Bytes {
        // Whether their peaks coincide is a matter of chance, so a sum of what did would differ from run to
        // run.
        Bytes(self.most_at_once(|helper| helper.peak(gpu).0))
    }

    /// Returns the largest number of processes that had a context on a GPU at the same time.
    #[must_use]
    pub fn processes(&self) -> u64 {
        1 + self.most_at_once(|helper| u64::from(!helper.gpus.is_empty()))
    }

    /// Returns the largest sum over helper processes that used the driver at the same time.
    ///
    /// The sum can only grow when a process begins, so it checks only these times.
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

    /// Iterates over the records of all processes, this one first.
    pub fn all(&self) -> impl Iterator<Item = &Self> {
        std::iter::once(self).chain(&self.helpers)
    }

    fn of(&mut self, gpu: usize) -> &mut HeldMemory {
        if self.gpus.len() <= gpu {
            self.gpus.resize(gpu + 1, HeldMemory::default());
        }
        &mut self.gpus[gpu]
    }

    /// Returns the reserved memory of a GPU.
    #[must_use]
    pub fn gpu(&self, gpu: u32) -> &HeldMemory {
        self.gpus.get(gpu as usize).unwrap_or(&NOTHING)
    }

    /// Returns the last allocation that failed in Burn's last attempt, too.
    #[must_use]
    pub fn last_refusal(&self) -> Option<&RefusedAllocation> {
        self.refusals.iter().rev().find(|refusal| refusal.last_resort)
    }
}

impl HeldMemory {
    /// Returns the peak between two times (`to` excluded), and the bytes just before `to`.
    ///
    /// A time that ends before it begins is empty: the times may be from a damaged or hostile file of events.
    #[must_use]
    pub fn between(&self, from: u64, to: u64) -> (Bytes, Bytes) {
        let before = self.changes.partition_point(|(time, _)| *time < from);
        let after = self.changes.partition_point(|(time, _)| *time < to).max(before);
        let at = |count: usize| count.checked_sub(1).map_or(Bytes(0), |last| self.changes[last].1);
        let within = self.changes[before..after].iter().map(|(_, bytes)| *bytes);
        (within.fold(at(before), Bytes::max), at(after))
    }

    /// Returns how many more blocks of each size are reserved at `to` than at `from`: the allocations of each size from
    /// `from` on and before `to`, less the frees. Burn reserves memory in pages, and each pool has pages of one size.
    #[must_use]
    pub fn more_blocks(&self, from: u64, to: u64) -> BTreeMap<u64, i64> {
        let mut counts = BTreeMap::new();
        let mut before = 0_u64;
        for (time, bytes) in &self.changes {
            if (from..to).contains(time) && bytes.0 != before {
                let sign = if bytes.0 > before { 1 } else { -1 };
                *counts.entry(bytes.0.abs_diff(before)).or_insert(0) += sign;
            }
            before = bytes.0;
        }
        counts.retain(|_, count| *count != 0);
        counts
    }

    /// Returns the bytes at a time.
    #[must_use]
    pub fn at(&self, time: u64) -> Bytes {
        let before = self.changes.partition_point(|(at, _)| *at <= time);
        before.checked_sub(1).map_or(Bytes(0), |last| self.changes[last].1)
    }
}

/// Decodes the percent escapes of a text.
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
    fn blocks_are_counted_by_size_between_two_times() {
        let held = HeldMemory {
            changes: [(1, 20), (2, 30), (3, 50), (4, 30), (5, 40), (6, 35)]
                .map(|(time, bytes)| (time, Bytes(bytes)))
                .into(),
            ..HeldMemory::default()
        };
        assert_eq!(held.more_blocks(0, 4), [(10, 1), (20, 2)].into());
        assert_eq!(held.more_blocks(4, 6), [(10, 1), (20, -1)].into());
        assert_eq!(held.more_blocks(3, 5), [].into());
        assert_eq!(held.more_blocks(7, 6), [].into());
        // What was allocated at once and freed in parts still adds up.
        let all = held.more_blocks(0, u64::MAX).into_iter();
        assert_eq!(
            all.map(|(size, count)| i128::from(size) * i128::from(count))
                .sum::<i128>(),
            35
        );
    }

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
            (library.path.raw(), library.version.raw()),
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
        assert_eq!(record.gpu(0).peak, Bytes(150));
        assert_eq!(record.gpu(0).end, Bytes(50), "a line that was cut short does not count");
    }

    #[test]
    fn a_phase_begins_with_what_was_held_before_it() {
        let record = Record::parse(
            "alloc t=10 bytes=5 reserved=5\nalloc t=20 bytes=4 reserved=9\nfree t=25 bytes=5 reserved=4\n",
        );
        assert_eq!(record.gpu(0).between(0, 10), (Bytes(0), Bytes(0)));
        assert_eq!(record.gpu(0).between(15, 30), (Bytes(9), Bytes(4)));
        assert_eq!(record.gpu(0).between(26, 30), (Bytes(4), Bytes(4)));
        assert_eq!(record.gpu(0).between(30, 15), (Bytes(4), Bytes(4)));
    }

    #[test]
    fn one_refusal_of_two_ways_to_allocate_is_not_the_last_word() {
        let refuse = "refuse t=9 kind=async bytes=8 reserved=4 available=2 kernel=gemm\n";
        assert_eq!(Record::parse(refuse).last_refusal(), None);
        let both = format!("{refuse}{}", refuse.replace("async", "sync"));
        let last = Record::parse(&both).last_refusal().cloned().unwrap();
        assert_eq!((last.requested, last.kernel.as_deref()), (Bytes(8), Some("gemm")));
    }

    /// Creates a record that reserves `bytes` between two times.
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
        // One process after the other: only the larger one counts.
        assert_eq!(with(&[process(5, 10, Some(20)), process(7, 20, Some(30))]), (1007, 2));
        assert_eq!(with(&[process(5, 10, Some(21)), process(7, 20, Some(30))]), (1012, 3));
        // A process without an end was killed at an unknown time.
        assert_eq!(with(&[process(5, 10, None), process(7, 20, Some(30))]), (1012, 3));
    }
}
