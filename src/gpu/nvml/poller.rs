//! [`Poller`]: samples a GPU's memory while a process runs.

use std::path::PathBuf;
use std::sync::mpsc::{self, Receiver, RecvTimeoutError, Sender};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use rustix::time::{ClockId, clock_gettime};

use super::{MemoryLook, MemoryLooks, Nvml, NvmlDevice, NvmlError, ProcessMemory, named};
use crate::report::OtherProcess;

/// The shortest interval between two samples.
const SHORTEST: Duration = Duration::from_millis(1);
/// How long [`Poller::stop`] waits for the last sample.
const PATIENCE: Duration = Duration::from_secs(5);

/// A thread of this process that samples a GPU's memory while a model's process runs.
///
/// It never fails a run: an error ends the sampling and is in [`MemoryLooks::error`]. Dropping this stops the thread
/// without waiting for it.
#[derive(Debug)]
pub struct Poller {
    interval: Duration,
    /// Shared with the thread, so that the samples are there even if the thread hangs inside NVML.
    seen: Arc<Mutex<Vec<MemoryLook>>>,
    stop: Sender<()>,
    ended: Receiver<Option<String>>,
}

impl Poller {
    /// Starts to sample the memory of the GPU `uuid`, and how much of it the process `pid` holds.
    ///
    /// The thread takes the first sample after it initialized NVML. The others follow at multiples of `interval`, which
    /// is at least a millisecond. If a sample takes longer than `interval`, the missed ones are skipped;
    /// [`MemoryLook::time`] shows the real gaps.
    #[must_use]
    pub fn start(library: Option<PathBuf>, uuid: String, pid: u32, interval: Duration) -> Self {
        let interval = interval.max(SHORTEST);
        let seen = Arc::new(Mutex::new(Vec::new()));
        let (stop, stopped) = mpsc::channel();
        let (end, ended) = mpsc::channel();
        let watcher = Watcher {
            pid,
            interval,
            seen: Arc::clone(&seen),
            stopped,
        };
        // A second sender stays here, and reports a thread that cannot start.
        let thread_end = end.clone();
        let thread = std::thread::Builder::new().name("nvml".into()).spawn(move || {
            let error = watcher.watch(library, &uuid).err();
            let _ = thread_end.send(error.map(|error| error.to_string()));
        });
        if let Err(error) = thread {
            let _ = end.send(Some(format!("cannot start a thread: {error}")));
        }
        Self {
            interval,
            seen,
            stop,
            ended,
        }
    }

    /// Stops the thread and returns the samples. If the thread hangs inside NVML, gives up after 5 s and leaves it
    /// running.
    #[must_use]
    pub fn stop(self) -> MemoryLooks {
        // If an error ended the thread, nobody receives this.
        let _ = self.stop.send(());
        // If a GPU hangs, a call of NVML never returns.
        let error = match self.ended.recv_timeout(PATIENCE) {
            Ok(error) => error,
            Err(RecvTimeoutError::Timeout) => Some(format!("NVML did not answer for {} s", PATIENCE.as_secs())),
            Err(RecvTimeoutError::Disconnected) => Some("the thread that asks NVML died".to_owned()),
        };
        let mut seen = self.seen.lock().unwrap_or_else(PoisonError::into_inner);
        MemoryLooks {
            looks: std::mem::take(&mut *seen),
            interval: self.interval,
            error,
        }
    }
}

/// The state of the thread.
struct Watcher {
    pid: u32,
    interval: Duration,
    seen: Arc<Mutex<Vec<MemoryLook>>>,
    stopped: Receiver<()>,
}

impl Watcher {
    fn watch(&self, library: Option<PathBuf>, uuid: &str) -> Result<(), NvmlError> {
        let nvml = Nvml::open(library.as_deref())?;
        let gpu = nvml.device(uuid)?;
        let mut others = Others::default();
        let mut due = Instant::now();
        loop {
            let look = self.look(&gpu, &mut others)?;
            self.seen.lock().unwrap_or_else(PoisonError::into_inner).push(look);
            // From the schedule, not from now. Otherwise every late sample would delay all that follow.
            due = next(due, Instant::now(), self.interval);
            match self.stopped.recv_timeout(due.saturating_duration_since(Instant::now())) {
                Err(RecvTimeoutError::Timeout) => {}
                Ok(()) | Err(RecvTimeoutError::Disconnected) => return Ok(()),
            }
        }
    }

    /// Whether a process is the watched one or in its process group, as the processes that it started are.
    fn is_own(&self, pid: u32) -> bool {
        // `getpgid` without a process would answer for this one, so an unusable id must not reach it.
        let pid_of = |pid: u32| i32::try_from(pid).ok().and_then(rustix::process::Pid::from_raw);
        let group = || rustix::process::getpgid(pid_of(pid)).ok();
        // A model may start helpers, whose memory counts with it. See docs/design/processes.md.
        pid == self.pid || (pid_of(pid).is_some() && group() == pid_of(self.pid))
    }

    fn look(&self, gpu: &NvmlDevice<'_>, others: &mut Others) -> Result<MemoryLook, NvmlError> {
        let time = now();
        // Without a list of processes, the memory of the whole GPU is still worth a sample.
        let (own, foreign): (Vec<ProcessMemory>, Vec<ProcessMemory>) = gpu
            .held()
            .unwrap_or_default()
            .into_iter()
            .partition(|held| self.is_own(held.pid));
        let device = gpu.memory()?.used;
        let end = now();
        Ok(MemoryLook {
            time,
            end,
            process: own
                .iter()
                .map(|held| held.bytes)
                // Not `sum`: without any value, the memory is unknown and not 0. So it is if that of one process is.
                .reduce(|one, other| Some(one? + other?))
                .flatten(),
            device,
            others: others.shared(foreign),
        })
    }
}

/// The other processes in the last sample. Names are read and a new list is made only when something changes.
struct Others {
    held: Vec<ProcessMemory>,
    named: Arc<[OtherProcess]>,
}

impl Default for Others {
    fn default() -> Self {
        Self {
            held: Vec::new(),
            named: Arc::from([]),
        }
    }
}

impl Others {
    fn shared(&mut self, held: Vec<ProcessMemory>) -> Arc<[OtherProcess]> {
        if held != self.held {
            self.named = held.iter().copied().map(named).collect();
            self.held = held;
        }
        Arc::clone(&self.named)
    }
}

/// The next time on the schedule that is after `now`.
fn next(due: Instant, now: Instant, interval: Duration) -> Instant {
    let late = now.saturating_duration_since(due);
    let missed = u32::try_from(late.as_nanos() / interval.as_nanos()).unwrap_or(u32::MAX);
    due + interval * missed.saturating_add(1)
}

/// The current time in nanoseconds of `CLOCK_MONOTONIC`.
fn now() -> u64 {
    let now = clock_gettime(ClockId::Monotonic);
    let nanoseconds = Duration::new(now.tv_sec.unsigned_abs(), u32::try_from(now.tv_nsec).unwrap_or(0)).as_nanos();
    u64::try_from(nanoseconds).unwrap_or(u64::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::bytes::Bytes;

    #[test]
    fn a_late_look_does_not_move_the_schedule() {
        let start = Instant::now();
        let after = |ms| start + Duration::from_millis(ms);
        let interval = Duration::from_millis(10);
        assert_eq!(next(start, after(3), interval), after(10));
        assert_eq!(next(after(10), after(19), interval), after(20));
        assert_eq!(next(after(20), after(55), interval), after(60), "three were missed");
        assert_eq!(next(after(20), after(30), interval), after(40));
    }

    #[test]
    fn names_are_read_again_only_when_something_changed() {
        let held = |bytes| {
            vec![ProcessMemory {
                pid: std::process::id(),
                bytes: Some(Bytes(bytes)),
            }]
        };
        let mut others = Others::default();
        let first = others.shared(held(1));
        assert!(first[0].name.is_some(), "{first:?}");
        assert!(Arc::ptr_eq(&first, &others.shared(held(1))));
        let second = others.shared(held(2));
        assert_eq!(second[0].bytes, Some(Bytes(2)));
        assert!(others.shared(Vec::new()).is_empty());
    }
}
