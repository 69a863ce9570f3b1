//! Waits until other threads of the program have nothing to do, so that a pass has the same order in every run.

use std::collections::BTreeMap;
use std::ffi::OsString;
use std::sync::Mutex;
use std::time::{Duration, Instant};

use super::threads::DEVICE_THREADS;

/// The longest wait for a thread. A thread that works for longer is not waited for again: it makes runs differ, but
/// does not stop them.
const LONGEST: Duration = Duration::from_secs(5);
/// The time between two looks.
const PAUSE: Duration = Duration::from_millis(1);
/// The number of looks in a row at which the threads must have done nothing.
const QUIET_LOOKS: u32 = 3;

/// The threads that were busy for [`LONGEST`].
static NEVER_IDLE: Mutex<Vec<OsString>> = Mutex::new(Vec::new());

/// Waits until no thread of the program but this one and Burn's own does anything: workers of data loaders, and the
/// threads of a learner for metrics and checkpoints. `drain` is called before each look: it must wait for the queues
/// that these threads fill.
pub(super) fn wait(drain: impl Fn()) {
    let began = Instant::now();
    let mut never_idle = NEVER_IDLE.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
    let mut before = None;
    let mut quiet = 0;
    while quiet < QUIET_LOOKS {
        drain();
        let Some(mut now) = others() else { return };
        now.retain(|thread, _| !never_idle.contains(thread));
        if now.is_empty() {
            return;
        }
        let sleeps = now.values().all(|thread| thread.is_asleep);
        quiet = if sleeps && before.as_ref() == Some(&now) {
            quiet + 1
        } else {
            0
        };
        if began.elapsed() > LONGEST {
            let last = before.unwrap_or_default();
            let works = now
                .into_iter()
                .filter(|(thread, state)| last.get(thread) != Some(state));
            never_idle.extend(works.map(|(thread, _)| thread));
            return;
        }
        before = Some(now);
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

/// Returns the program's other threads, by their number; `None` if the system does not tell.
fn others() -> Option<BTreeMap<OsString, ThreadState>> {
    let own = rustix::thread::gettid().as_raw_nonzero().get().to_string();
    let tasks = std::fs::read_dir("/proc/self/task").ok()?;
    let state = |number: OsString| {
        // The thread may end at any time.
        let status =
            std::fs::read_to_string(std::path::Path::new("/proc/self/task").join(&number).join("status")).ok()?;
        let field = |name: &str| status.lines().find_map(|line| line.strip_prefix(name)).map(str::trim);
        let is_burns = field("Name:").is_some_and(|name| name.starts_with(DEVICE_THREADS));
        let state = ThreadState {
            is_asleep: field("State:").is_some_and(|state| state.starts_with('S')),
            switches: field("voluntary_ctxt_switches:").unwrap_or_default().to_owned(),
        };
        (!is_burns && number != *own).then_some((number, state))
    };
    Some(tasks.flatten().filter_map(|task| state(task.file_name())).collect())
}
