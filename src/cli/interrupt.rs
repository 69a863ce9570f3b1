//! Handles SIGINT and SIGTERM while models run: the running models end, and the command keeps the finished results.
//!
//! At all other times, and for a second signal, these signals have their default effect.

use std::sync::Arc;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering::SeqCst};

use miette::Diagnostic;
use signal_hook::consts::{SIGINT, SIGTERM};
use signal_hook::flag;
use thiserror::Error;

use crate::cli::error::ExitCoded;
use crate::cli::exit::Exit;

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

/// Returns the name of a signal.
pub(super) const fn name(signal: usize) -> &'static str {
    match signal == SIGTERM as usize {
        true => "SIGTERM",
        false => "SIGINT",
    }
}

struct Handlers {
    /// Whether a signal has its default effect.
    by_default: Arc<AtomicBool>,
    /// The caught signal, or 0.
    caught: Arc<AtomicUsize>,
}

static HANDLERS: OnceLock<Handlers> = OnceLock::new();

impl Handlers {
    /// Installs the handlers. If that fails, a signal ends the command as usual.
    fn new() -> Self {
        let handlers = Self {
            by_default: Arc::new(AtomicBool::new(true)),
            caught: Arc::new(AtomicUsize::new(0)),
        };
        for signal in [SIGINT, SIGTERM] {
            // Handlers run in this order: the first signal is caught, and then the last handler restores the default
            // effect for the next signal.
            let set = flag::register_conditional_default(signal, Arc::clone(&handlers.by_default))
                .and_then(|_| flag::register_usize(signal, Arc::clone(&handlers.caught), signal as usize))
                .and_then(|_| flag::register(signal, Arc::clone(&handlers.by_default)));
            debug_assert!(set.is_ok(), "{set:?}");
        }
        handlers
    }
}

/// Catches signals until this value is dropped.
pub(super) struct Catching(());

impl Catching {
    pub(super) fn new() -> Self {
        HANDLERS.get_or_init(Handlers::new).by_default.store(false, SeqCst);
        Self(())
    }

    /// Returns an error if a signal was caught. For commands that run no models.
    ///
    /// # Errors
    ///
    /// A signal was caught.
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

    /// Returns the number of the caught signal; it is 0 until there is one.
    pub(super) fn caught(&self) -> Arc<AtomicUsize> {
        Arc::clone(&HANDLERS.get_or_init(Handlers::new).caught)
    }
}

impl Drop for Catching {
    fn drop(&mut self) {
        HANDLERS.get_or_init(Handlers::new).by_default.store(true, SeqCst);
    }
}
