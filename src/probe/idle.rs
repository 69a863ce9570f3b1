//! Waits until other threads of the program have nothing to do, so that a pass has the same order in every run.

use std::collections::BTreeMap;
use std::ffi::OsString;
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

use super::threads::DEVICE_THREADS;
use crate::protocol::OtherThreads;

/// The longest wait. The threads that work until then are not waited for again: they make runs differ, but do not stop
/// them.
const LONGEST: Duration = Duration::from_secs(60);
/// The time between two looks.
const PAUSE: Duration = Duration::from_millis(1);
/// The number of looks in a row at which the threads must have done nothing.
const QUIET_LOOKS: u32 = 3;

/// The threads that are not waited for, and whether there were any others.
struct KnownThreads {
    busy: Vec<OsString>,
    has_others: bool,
}

static KNOWN: Mutex<KnownThreads> = Mutex::new(KnownThreads {
    busy: Vec::new(),
    has_others: false,
});

/// Returns what the waits so far have seen.
pub(super) fn state() -> OtherThreads {
    let known = KNOWN.lock().unwrap_or_else(PoisonError::into_inner);
    match (known.busy.is_empty(), known.has_others) {
        (false, _) => OtherThreads::Busy,
        (true, true) => OtherThreads::Idle,
        (true, false) => OtherThreads::None,
    }
}

/// Waits until no thread of the program but this one and Burn's own does anything: workers of data loaders, and the
/// threads of a learner for metrics and checkpoints. `drain` is called before each look: it must wait for the queues
/// that these threads fill.
pub(super) fn wait(drain: impl Fn()) {
    let began = Instant::now();
    let mut known = KNOWN.lock().unwrap_or_else(PoisonError::into_inner);
    // When each thread was last seen to have done something.
    let mut active: BTreeMap<OsString, (ThreadState, Instant)> = BTreeMap::new();
    let mut quiet = 0;
    while quiet < QUIET_LOOKS {
        drain();
        let mut now = others();
        now.retain(|thread, _| !known.busy.contains(thread));
        known.has_others |= !now.is_empty();
        if now.is_empty() {
            return;
        }
        let looked = Instant::now();
        active.retain(|thread, _| now.contains_key(thread));
        let mut is_quiet = true;
        for (thread, state) in now {
            let is_same = active.get(&thread).is_some_and(|(before, _)| *before == state);
            is_quiet &= is_same && state.is_asleep;
            if !is_same || !state.is_asleep {
                active.insert(thread, (state, looked));
            }
        }
        quiet = if is_quiet { quiet + 1 } else { 0 };
        if began.elapsed() > LONGEST {
            let lately = |(_, at): &(ThreadState, Instant)| at.elapsed() < Duration::from_secs(1);
            let busy = active.into_iter().filter(|(_, last)| lately(last));
            known.busy.extend(busy.map(|(thread, _)| thread));
            return;
        }
        std::thread::sleep(PAUSE);
    }
}

/// What a thread has done so far.
#[derive(PartialEq, Eq)]
struct ThreadState {
    is_asleep: bool,
    /// How often it gave up its core by itself: at least once whenever it did something.
    switches: String,
}

/// Returns the program's other threads, by their number; none if this is not Linux.
fn others() -> BTreeMap<OsString, ThreadState> {
    #[cfg(target_os = "linux")]
    let own = rustix::thread::gettid().as_raw_nonzero().get().to_string();
    #[cfg(not(target_os = "linux"))]
    let own = String::new();
    let tasks = std::path::Path::new("/proc/self/task");
    let state = |number: OsString| {
        // The thread may end at any time.
        let status = std::fs::read_to_string(tasks.join(&number).join("status")).ok()?;
        let field = |name: &str| status.lines().find_map(|line| line.strip_prefix(name)).map(str::trim);
        let is_burns = field("Name:").is_some_and(|name| name.starts_with(DEVICE_THREADS));
        let state = ThreadState {
            is_asleep: field("State:").is_some_and(|state| state.starts_with('S')),
            switches: field("voluntary_ctxt_switches:").unwrap_or_default().to_owned(),
        };
        (!is_burns && number != *own).then_some((number, state))
    };
    let all = std::fs::read_dir(tasks).into_iter().flatten().flatten();
    all.filter_map(|task| state(task.file_name())).collect()
}
