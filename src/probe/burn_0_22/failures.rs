//! Finds operations that failed. After a failed allocation or launch, Burn 0.22 goes on without the tensors concerned,
//! and raises the failure when one of them is read. They may never be read, so we also watch cubecl's log. It logs
//! every failure when it happens (`ServerLogger::log_failure`), and every allocation that it tries again after it freed
//! memory (`Command::reserve`).

use std::collections::BTreeMap;
use std::fmt::Display;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Mutex, PoisonError};

use log::{Level, LevelFilter, Log, Metadata, Record};

#[cfg(feature = "train")]
use crate::probe::learner_log;
use crate::probe::timeline::{self, StepMoment};
use crate::probe::{clock, events, panics, threads};
use crate::protocol::ProbeEvent;

/// The log target for failures in cubecl-runtime 0.11.
const FAILURES: &str = "cubecl_runtime::logging::server";
/// The log target for allocations that cubecl-server 0.11 tries again.
const RETRIES: &str = "cubecl_server::command::base";
/// The words of such a log entry if the GPU's memory is full. cubecl also tries again if its own bookkeeping is full;
/// the driver never sees that.
// The tool compares the number of second tries with the driver's refusals, so only those may count.
// See docs/design/burn-0_22-failures.md.
const OUT_OF_MEMORY: &str = "out of device memory";

/// The words in cubecl's log for a launch that writes a tensor it could not allocate. It does not log the allocation
/// itself.
const NEVER_ALLOCATED: &str = "Memory location was never initialized";

static RETRIED: AtomicU64 = AtomicU64::new(0);
/// For each GPU, the tensor being made that no page of Burn's allocator can hold.
static EXPECTED: Mutex<BTreeMap<Option<u32>, TooLarge>> = Mutex::new(BTreeMap::new());

/// A tensor that no page of Burn's allocator can hold.
#[derive(Clone, Copy)]
struct TooLarge {
    bytes: u64,
    /// The number of allocations that Burn had tried again when the tensor was about to be made.
    retried: u64,
}

/// Watches for failures from now on.
pub(super) fn watch() {
    // If a program compiled warnings out, it would go on after a failure and nobody would notice.
    assert!(
        log::STATIC_MAX_LEVEL >= LevelFilter::Warn,
        "the feature `max_level_…` or `release_max_level_…` of `log` hides Burn's failures from cargo-vram: switch it off for this target",
    );
    // A process has one logger. Whoever installs it first has it for good.
    if log::set_logger(&Logger).is_err() {
        events::impossible(
            "the program installed a logger before the model ran, which hides Burn's failures from cargo-vram"
                .to_owned(),
        );
    }
    log::set_max_level(LevelFilter::Warn);
}

/// Returns the number of allocations that Burn tried again. Called at the end of a pass.
pub(super) fn retried() -> u64 {
    if log::max_level() < Level::Warn {
        send(
            "the model lowered `log::set_max_level` below `Warn`, which hides Burn's failures from cargo-vram"
                .to_owned(),
            false,
        );
    }
    RETRIED.load(Ordering::Relaxed)
}

/// Reports a tensor that is larger than any that Burn allocates. The message has cubecl's own words, from which the
/// tool reads the size (`run/oom.rs`).
pub(super) fn too_large(bytes: u64) {
    send(format!("can't allocate buffer of size: {bytes}"), false);
}

/// Records which of the tensors made from now on is larger than any that Burn allocates: one with this many bytes, or
/// none.
pub(super) fn expect_too_large(bytes: Option<u64>) {
    let mut expected = EXPECTED.lock().unwrap_or_else(PoisonError::into_inner);
    let retried = RETRIED.load(Ordering::Relaxed);
    match bytes {
        Some(bytes) => expected.insert(threads::gpu(), TooLarge { bytes, retried }),
        None => expected.remove(&threads::gpu()),
    };
}

/// Returns the bytes of the too large tensor for which a launch on this thread's GPU failed. Returns `None` if the
/// driver may have refused a tensor instead.
fn expected() -> Option<u64> {
    let expected = EXPECTED.lock().unwrap_or_else(PoisonError::into_inner);
    let expected = expected.get(&threads::gpu())?;
    // A second try since then means that the driver refused something. That, and not the size, may be why the
    // launch failed.
    (expected.retried == RETRIED.load(Ordering::Relaxed)).then_some(expected.bytes)
}

/// Panics if a read or a synchronisation failed, which ends the pass.
pub(super) fn note<T, E: Display>(result: Result<T, E>) {
    if let Err(error) = result {
        panic!("{error}");
    }
}

struct Logger;

impl Log for Logger {
    fn enabled(&self, metadata: &Metadata<'_>) -> bool {
        #[cfg(feature = "train")]
        if learner_log::is_of_learner(metadata) {
            return true;
        }
        metadata.level() <= Level::Warn && [FAILURES, RETRIES].contains(&metadata.target())
    }

    fn log(&self, record: &Record<'_>) {
        if !self.enabled(record.metadata()) {
            return;
        }
        #[cfg(feature = "train")]
        learner_log::heard(record);
        let message = record.args().to_string();
        if record.target() == FAILURES {
            let is_tuning = panics::is_tuning();
            // An autotune candidate has its own tensors.
            match expected().filter(|_| !is_tuning && message.contains(NEVER_ALLOCATED)) {
                Some(bytes) => too_large(bytes),
                None => send(message, is_tuning),
            }
        } else if record.target() == RETRIES && message.contains(OUT_OF_MEMORY) {
            RETRIED.fetch_add(1, Ordering::Relaxed);
        }
    }

    fn flush(&self) {}
}

fn send(message: String, tuning: bool) {
    let StepMoment { step, phase } = timeline::now();
    events::send(&ProbeEvent::Failed {
        gpu: threads::gpu(),
        time: clock::now(),
        message: in_a_line(&message),
        step,
        phase,
        kernel: timeline::kernel(),
        live: timeline::live(),
        tuning,
    });
}

/// Joins an error and its causes, which cubecl writes on one line each. The backtrace that follows is left out.
fn in_a_line(message: &str) -> String {
    let lines = message.lines().map(str::trim);
    let causes = lines
        .take_while(|line| *line != "Backtrace:" && !line.starts_with("0: "))
        .filter(|line| !line.is_empty() && *line != "Caused by:" && !line.starts_with("No backtrace"));
    causes.collect::<Vec<_>>().join(": ")
}

#[cfg(test)]
mod tests {
    use super::in_a_line;

    #[test]
    fn an_error_is_in_a_line_with_its_causes() {
        let message =
            "An IO error happened\nCaused by:\n  out of device memory allocating 512 bytes\n   0: std::backtrace::a\n";
        let line = "An IO error happened: out of device memory allocating 512 bytes";
        assert_eq!(in_a_line(message), line);
        assert_eq!(in_a_line("no more"), "no more");
    }
}
