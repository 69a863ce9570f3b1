//! SIGINT and SIGTERM while models run: what runs is ended, and the command keeps what is finished.
//!
//! At all other times, and for the second signal, they do what they always do.

use std::sync::Arc;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering::SeqCst};

use miette::Diagnostic;
use signal_hook::consts::{SIGINT, SIGTERM};
use signal_hook::flag;
use thiserror::Error;

/// A signal ended the command.
#[derive(Debug, Error, Diagnostic)]
#[error("{} stopped the command{}", name(*.signal), of_models(*.finished, *.count))]
#[diagnostic(
    code(cli::interrupted),
    help("run the command again; `estimate` and `measure` print what is finished when they are stopped")
)]
pub(super) struct Interrupted {
    /// The number of the signal.
    pub(super) signal: usize,
    /// Models that were finished.
    pub(super) finished: usize,
    /// Models that were to be run.
    pub(super) count: usize,
}

fn of_models(finished: usize, count: usize) -> String {
    match count {
        0 => String::new(),
        count => format!("; {finished} of {count} models were finished"),
    }
}

/// What a signal is called.
pub(super) const fn name(signal: usize) -> &'static str {
    match signal == SIGTERM as usize {
        true => "SIGTERM",
        false => "SIGINT",
    }
}

struct Handlers {
    /// Whether a signal does what it always does.
    by_default: Arc<AtomicBool>,
    /// The signal that was caught; 0 where none was.
    caught: Arc<AtomicUsize>,
}

static HANDLERS: OnceLock<Handlers> = OnceLock::new();

impl Handlers {
    /// Where they cannot be set, a signal ends the command as it would without them.
    fn new() -> Self {
        let handlers = Self {
            by_default: Arc::new(AtomicBool::new(true)),
            caught: Arc::new(AtomicUsize::new(0)),
        };
        for signal in [SIGINT, SIGTERM] {
            // In this order: the first signal is caught, and makes the next one end the command.
            let set = flag::register_conditional_default(signal, Arc::clone(&handlers.by_default))
                .and_then(|_| flag::register_usize(signal, Arc::clone(&handlers.caught), signal as usize))
                .and_then(|_| flag::register(signal, Arc::clone(&handlers.by_default)));
            debug_assert!(set.is_ok(), "{set:?}");
        }
        handlers
    }
}

/// Catches signals until it is dropped.
pub(super) struct Catching(());

impl Catching {
    pub(super) fn new() -> Self {
        HANDLERS.get_or_init(Handlers::new).by_default.store(false, SeqCst);
        Self(())
    }

    /// Fails where a signal was caught, in a command that runs no models.
    pub(super) fn check(&self) -> Result<(), Interrupted> {
        match self.caught().load(SeqCst) {
            0 => Ok(()),
            signal => Err(Interrupted {
                signal,
                finished: 0,
                count: 0,
            }),
        }
    }

    /// The signal that was caught; 0 as long as none was.
    pub(super) fn caught(&self) -> Arc<AtomicUsize> {
        Arc::clone(&HANDLERS.get_or_init(Handlers::new).caught)
    }
}

impl Drop for Catching {
    fn drop(&mut self) {
        HANDLERS.get_or_init(Handlers::new).by_default.store(true, SeqCst);
    }
}
