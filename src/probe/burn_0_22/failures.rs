//! What Burn could not do. Burn 0.22 goes on after a failed allocation or launch, with tensors that were never made, and raises
//! the failure when one of them is read. Nobody may ever read them, so what cubecl logs is watched as well: it logs every
//! failure when it happens (`ServerLogger::log_failure`), and every allocation that it tries once more after it freed memory
//! (`Command::reserve`).

use std::collections::BTreeMap;
use std::fmt::Display;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Mutex, PoisonError};

use log::{Level, LevelFilter, Log, Metadata, Record};

use crate::probe::timeline::{self, Moment};
use crate::probe::{clock, events, panics, threads};
use crate::protocol::Event;

/// Where cubecl-runtime 0.11 logs failures.
const FAILURES: &str = "cubecl_runtime::logging::server";
/// Where cubecl-server 0.11 logs allocations that it tries once more.
const RETRIES: &str = "cubecl_server::command::base";
/// What it then says of the device's memory; it also retries where its own bookkeeping is full, which the driver never saw.
const OUT_OF_MEMORY: &str = "out of device memory";

/// How cubecl logs a launch that writes what it could not allocate: of the allocation itself it says nothing.
const NEVER_ALLOCATED: &str = "Memory location was never initialized";

static RETRIED: AtomicU64 = AtomicU64::new(0);
/// What is being made on each GPU that no page of Burn's can hold.
static EXPECTED: Mutex<BTreeMap<Option<u32>, TooLarge>> = Mutex::new(BTreeMap::new());

/// A tensor that no page of Burn's can hold.
#[derive(Clone, Copy)]
struct TooLarge {
    bytes: u64,
    /// How many allocations had been tried once more when it was about to be made.
    retried: u64,
}

/// Watches for failures from now on.
pub(super) fn watch() {
    // A program that compiles warnings out would go on after a failure, and nobody would see it.
    assert!(
        log::STATIC_MAX_LEVEL >= LevelFilter::Warn,
        "the feature `max_level_…` or `release_max_level_…` of `log` hides Burn's failures from cargo-vram: switch it off for this target",
    );
    if log::set_logger(&Logger).is_err() {
        events::impossible("a logger was installed before the model ran, and hides Burn's failures".to_owned());
    }
    log::set_max_level(LevelFilter::Warn);
}

/// The allocations that were tried once more. Called at the end of a pass.
pub(super) fn retried() -> u64 {
    if log::max_level() < Level::Warn {
        send(
            "the model lowered `log::set_max_level` below `Warn`, which hides Burn's failures".to_owned(),
            false,
        );
    }
    RETRIED.load(Ordering::Relaxed)
}

/// A tensor is larger than any that Burn allocates. Told as cubecl tells it of what a launch writes.
pub(super) fn too_large(bytes: u64) {
    send(format!("can't allocate buffer of size: {bytes}"), false);
}

/// Of what is made from now on, a tensor of so many bytes is larger than any that Burn allocates, or none is.
pub(super) fn expect_too_large(bytes: Option<u64>) {
    let mut expected = EXPECTED.lock().unwrap_or_else(PoisonError::into_inner);
    let retried = RETRIED.load(Ordering::Relaxed);
    match bytes {
        Some(bytes) => expected.insert(threads::card(), TooLarge { bytes, retried }),
        None => expected.remove(&threads::card()),
    };
}

/// The bytes of the tensor for which a launch on this thread's GPU failed, unless it may as well be one that the driver refused.
fn expected() -> Option<u64> {
    let expected = EXPECTED.lock().unwrap_or_else(PoisonError::into_inner);
    let expected = expected.get(&threads::card())?;
    (expected.retried == RETRIED.load(Ordering::Relaxed)).then_some(expected.bytes)
}

/// Ends the pass with a panic where a read fails.
pub(super) fn note<T, E: Display>(result: Result<T, E>) {
    if let Err(error) = result {
        panic!("{error}");
    }
}

struct Logger;

impl Log for Logger {
    fn enabled(&self, metadata: &Metadata<'_>) -> bool {
        metadata.level() <= Level::Warn && [FAILURES, RETRIES].contains(&metadata.target())
    }

    fn log(&self, record: &Record<'_>) {
        if !self.enabled(record.metadata()) {
            return;
        }
        let message = record.args().to_string();
        if record.target() == FAILURES {
            let is_tuning = panics::is_tuning();
            // A candidate of autotune has tensors of its own.
            match expected().filter(|_| !is_tuning && message.contains(NEVER_ALLOCATED)) {
                Some(bytes) => too_large(bytes),
                None => send(message, is_tuning),
            }
        } else if message.contains(OUT_OF_MEMORY) {
            RETRIED.fetch_add(1, Ordering::Relaxed);
        }
    }

    fn flush(&self) {}
}

fn send(message: String, tuning: bool) {
    let Moment { step, phase } = timeline::now();
    events::send(&Event::Failed {
        card: threads::card(),
        time: clock::now(),
        message: in_a_line(&message),
        step,
        phase,
        kernel: timeline::kernel(),
        live: timeline::live(),
        tuning,
    });
}

/// An error and its causes, which cubecl writes in a line each, without the backtrace that follows.
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
