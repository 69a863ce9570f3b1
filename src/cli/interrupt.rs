//! Handles SIGINT, SIGTERM and SIGHUP.
//!
//! While models run, the first signal only stops them, and the command keeps the finished results. At all other times,
//! and for a second signal, the command ends at once: it ends the processes that it started, removes its temporary
//! folders, and exits with 128 plus the signal's number.

use std::sync::Arc;
use std::sync::LazyLock;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering::SeqCst};
use std::time::{Duration, Instant};

use miette::Diagnostic;
use signal_hook::consts::{SIGHUP, SIGINT, SIGTERM};
use signal_hook::iterator::Signals;
use thiserror::Error;

use crate::cli::error::ExitCoded;
use crate::cli::exit::Exit;
use crate::cli::temporary;
use crate::run::processes;

/// The error after a signal stopped the command.
#[derive(Debug, Error, Diagnostic)]
#[error("{} stopped the command{}", name(*.signal), of_models(*.finished, *.count))]
#[diagnostic(
    code(cli::interrupted),
    help("run the command again; only `estimate` and `measure` print the finished models after a signal")
)]
pub(super) struct Interrupted {
    /// The number of the signal.
    pub(super) signal: usize,
    /// The number of models that were finished.
    pub(super) finished: usize,
    /// The number of all models that the command selected.
    pub(super) count: usize,
}

impl ExitCoded for Interrupted {
    fn exit(&self) -> Exit {
        Exit::from_signal(Some(self.signal))
    }
}

fn of_models(finished: usize, count: usize) -> String {
    match count {
        0 => String::new(),
        count => format!("; {finished} of {count} models were finished"),
    }
}

/// The handled signals, with their names.
const SIGNALS: [(i32, &str); 3] = [(SIGINT, "SIGINT"), (SIGTERM, "SIGTERM"), (SIGHUP, "SIGHUP")];

/// Returns the name of a signal.
pub(super) fn name(signal: usize) -> &'static str {
    let found = SIGNALS.iter().find(|(number, _)| *number as usize == signal);
    found.map_or("a signal", |(_, name)| name)
}

/// How many [`Catching`] values exist.
static CATCHING: AtomicUsize = AtomicUsize::new(0);
/// The first signal that was caught, or 0.
static CAUGHT: LazyLock<Arc<AtomicUsize>> = LazyLock::new(Arc::default);
/// Whether a signal was received that its thread has not handled yet; `true` until the end if the signal ends the
/// program. The handler itself sets it, so a command whose child the same signal ended does not take that end for a
/// result.
static PENDING: LazyLock<Arc<AtomicBool>> = LazyLock::new(Arc::default);

/// For how long the same signal again counts as the first one. A shell that ends and `timeout` send a signal twice.
const REPEATED: Duration = Duration::from_millis(200);

/// Starts to handle signals, except for those that the program that started this one ignores, as `nohup` does.
///
/// If that fails, a signal ends the program as usual.
pub(super) fn handle_signals() {
    let ignored = ignored();
    let handled = SIGNALS.map(|(signal, _)| signal);
    let handled = handled.iter().filter(|signal| ignored >> (**signal - 1) & 1 == 0);
    let handled: Vec<_> = handled.collect();
    for signal in &handled {
        // Before `Signals`, whose thread sets it back: handlers run in the order of their registration.
        let _ = signal_hook::flag::register(**signal, Arc::clone(&PENDING));
    }
    let Ok(mut signals) = Signals::new(handled) else { return };
    let handle = move || {
        let mut first: Option<(i32, Instant)> = None;
        for signal in signals.forever() {
            let is_repeated = first.is_some_and(|(known, at)| known == signal && at.elapsed() < REPEATED);
            if !is_repeated {
                received(signal);
            }
            first.get_or_insert((signal, Instant::now()));
            PENDING.store(false, SeqCst);
        }
    };
    // A program that cannot start a thread ends soon.
    let _ = std::thread::Builder::new().name("signals".into()).spawn(handle);
}

/// Reads the set of ignored signals, one bit each.
fn ignored() -> u64 {
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    let set = status.lines().find_map(|line| line.strip_prefix("SigIgn:"));
    set.and_then(|set| u64::from_str_radix(set.trim(), 16).ok())
        .unwrap_or_default()
}

fn received(signal: i32) {
    let number = signal as usize;
    let is_first = CATCHING.load(SeqCst) > 0 && CAUGHT.compare_exchange(0, number, SeqCst, SeqCst).is_ok();
    if is_first {
        return;
    }
    let (own, folders) = (std::process::id(), temporary::all());
    let started = || {
        let models = folders.iter().flat_map(|folder| processes::of_models_in(folder));
        processes::descendants(own).into_iter().chain(models).collect()
    };
    processes::end(started, processes::GRACE);
    let began = Instant::now();
    // The command may still write into a folder, or remove it at the same time, which makes either removal fail.
    while folders.iter().any(|folder| folder.exists()) && began.elapsed() < processes::GRACE {
        for folder in &folders {
            let _ = crate::folders::remove(folder);
        }
        std::thread::sleep(Duration::from_millis(10));
    }
    std::process::exit(128 + signal);
}

/// Waits for the end of the program if a signal is ending it. What it started ends before it, so whatever fails then
/// is no result.
pub(super) fn wait_for_end() {
    while PENDING.load(SeqCst) {
        std::thread::sleep(Duration::from_millis(1));
    }
}

/// Catches the first signal while this value exists.
pub(super) struct Catching(());

impl Catching {
    pub(super) fn new() -> Self {
        CATCHING.fetch_add(1, SeqCst);
        Self(())
    }

    /// Returns an error if a signal was caught. For commands that run no models.
    ///
    /// # Errors
    ///
    /// A signal was caught.
    pub(super) fn check(&self) -> Result<(), Interrupted> {
        match CAUGHT.load(SeqCst) {
            0 => Ok(()),
            signal => Err(Interrupted {
                signal,
                finished: 0,
                count: 0,
            }),
        }
    }

    /// Returns the number of the caught signal; it is 0 until there is one.
    pub(super) fn caught(&self) -> Arc<AtomicUsize> {
        Arc::clone(&CAUGHT)
    }
}

impl Drop for Catching {
    fn drop(&mut self) {
        CATCHING.fetch_sub(1, SeqCst);
    }
}
