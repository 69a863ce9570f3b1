//! Looks at a card again and again while a process runs.

use std::path::PathBuf;
use std::sync::mpsc::{self, Receiver, RecvTimeoutError, Sender};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use rustix::time::{ClockId, clock_gettime};

use super::{Card, Held, Look, Looks, Nvml, NvmlError, named};
use crate::report::OtherProcess;

/// More often than this is never aimed at.
const SHORTEST: Duration = Duration::from_millis(1);
/// How long the last look may take before nobody waits for it.
const PATIENCE: Duration = Duration::from_secs(5);

/// Looks at a card again and again while a process runs: a thread of this process.
///
/// It fails no run: what it cannot do ends it, and [`Looks::error`] says so. Dropping it stops it
/// without waiting for it.
#[derive(Debug)]
pub struct Poller {
    interval: Duration,
    /// Apart from the thread, which may hang within NVML.
    seen: Arc<Mutex<Vec<Look>>>,
    stop: Sender<()>,
    ended: Receiver<Option<String>>,
}

impl Poller {
    /// Begins to look at the card of an id, for what the process of an id holds of it.
    ///
    /// The first look comes when NVML was initialized; the others on a schedule, each at a
    /// multiple of `interval` (a millisecond at least) after it. What is missed of the schedule,
    /// because a look took longer, is not made up for: [`Look::time`] tells the real gaps.
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

    /// Stops, and tells what was seen. A thread that hangs within NVML is left alone after 5 s.
    #[must_use]
    pub fn stop(self) -> Looks {
        // Nobody is there to hear it where an error ended the thread.
        let _ = self.stop.send(());
        let error = match self.ended.recv_timeout(PATIENCE) {
            Ok(error) => error,
            Err(RecvTimeoutError::Timeout) => Some(format!("NVML did not answer for {} s", PATIENCE.as_secs())),
            Err(RecvTimeoutError::Disconnected) => Some("the thread that asks NVML died".to_owned()),
        };
        let mut seen = self.seen.lock().unwrap_or_else(PoisonError::into_inner);
        Looks {
            looks: std::mem::take(&mut *seen),
            interval: self.interval,
            error,
        }
    }
}

/// The thread's side.
struct Watcher {
    pid: u32,
    interval: Duration,
    seen: Arc<Mutex<Vec<Look>>>,
    stopped: Receiver<()>,
}

impl Watcher {
    fn watch(&self, library: Option<PathBuf>, uuid: &str) -> Result<(), NvmlError> {
        let nvml = Nvml::open(library.as_deref())?;
        let card = nvml.device(uuid)?;
        let mut others = Others::default();
        let mut due = Instant::now();
        loop {
            let look = self.look(&card, &mut others)?;
            self.seen.lock().unwrap_or_else(PoisonError::into_inner).push(look);
            due = next(due, Instant::now(), self.interval);
            match self.stopped.recv_timeout(due.saturating_duration_since(Instant::now())) {
                Err(RecvTimeoutError::Timeout) => {}
                Ok(()) | Err(RecvTimeoutError::Disconnected) => return Ok(()),
            }
        }
    }

    /// Whether a process is the one that is looked at, or one that it started: those are in its process group.
    fn is_own(&self, pid: u32) -> bool {
        let pid_of = |pid: u32| i32::try_from(pid).ok().and_then(rustix::process::Pid::from_raw);
        let group = || rustix::process::getpgid(pid_of(pid)).ok();
        pid == self.pid || (pid_of(pid).is_some() && group() == pid_of(self.pid))
    }

    fn look(&self, card: &Card<'_>, others: &mut Others) -> Result<Look, NvmlError> {
        let time = now();
        let (own, foreign): (Vec<Held>, Vec<Held>) = card
            .held()
            .unwrap_or_default()
            .into_iter()
            .partition(|held| self.is_own(held.pid));
        Ok(Look {
            time,
            process: own
                .iter()
                .filter_map(|held| held.bytes)
                .reduce(|one, other| one + other),
            device: card.memory()?.used,
            others: others.shared(foreign),
        })
    }
}

/// The other processes of the last look; names are read, and lists made, when something changed.
struct Others {
    held: Vec<Held>,
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
    fn shared(&mut self, held: Vec<Held>) -> Arc<[OtherProcess]> {
        if held != self.held {
            self.named = held.iter().copied().map(named).collect();
            self.held = held;
        }
        Arc::clone(&self.named)
    }
}

/// The first moment of the schedule that is still to come.
fn next(due: Instant, now: Instant, interval: Duration) -> Instant {
    let late = now.saturating_duration_since(due);
    let missed = u32::try_from(late.as_nanos() / interval.as_nanos()).unwrap_or(u32::MAX);
    due + interval * missed.saturating_add(1)
}

/// Nanoseconds of `CLOCK_MONOTONIC`.
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
            vec![Held {
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
