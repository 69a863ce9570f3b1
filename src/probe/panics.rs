//! Panics. Burn catches those of its device threads and goes on, with a tensor that was never made; here, such a
//! pass is over, unless it happened inside an autotune candidate, which is then merely not chosen.

use std::backtrace::Backtrace;
use std::panic::{AssertUnwindSafe, PanicHookInfo, catch_unwind, resume_unwind, set_hook, take_hook};

use super::threads::{self, DEVICE_THREADS};
use super::{events, timeline};
use crate::protocol::Event;

/// Modules whose functions are on the stack while a candidate is timed or, with Burn 0.22, the GPU's throughput is measured, and at
/// no other time.
const TUNING: [&str; 2] = ["tune_benchmark", "cubecl_runtime::throughput"];

/// What an adapter does when something panics.
#[derive(Clone, Copy)]
pub(super) struct Hooks {
    /// Goes on to the phase of the operations that run now.
    pub(super) advance: fn(),
    /// Waits until every moment that the program came to is known, on the way out of a panic on its own thread.
    pub(super) settle: fn(),
}

/// Writes every panic down, before whatever the program itself does with it.
pub(super) fn watch(hooks: Hooks) {
    show_raises();
    let previous = take_hook();
    set_hook(Box::new(move |panic| {
        let thread = note(panic, hooks);
        previous(panic);
        if thread == Thread::Program {
            (hooks.settle)();
        }
        if thread != Thread::Candidate {
            // What the program's own thread unwinds to may be the end of the process.
            timeline::flush();
        }
        if thread == Thread::Device {
            std::process::exit(101);
        }
    }));
}

/// Unwinds by `resume_unwind` in one function and in another, and by a panic. The driver counts what is unwound in a process, to find
/// panics that a hook of the model's own kept from being told, and takes from the first three how it tells the one from the other:
/// what goes on with a panic is none, and asks no hook.
fn show_raises() {
    #[inline(never)]
    fn resume<T: Send + 'static>(payload: T) {
        let _ = catch_unwind(AssertUnwindSafe(|| resume_unwind(Box::new(payload))));
    }
    // A program that ends at a panic unwinds nothing.
    if cfg!(panic = "abort") {
        return;
    }
    resume(1_u8);
    resume(2_u64);
    let hook = take_hook();
    set_hook(Box::new(|_| ()));
    let _ = catch_unwind(|| panic!("shown"));
    set_hook(hook);
}

/// Where something panicked.
#[derive(PartialEq, Eq)]
enum Thread {
    /// One of the program's own.
    Program,
    /// One of Burn's: the pass is over.
    Device,
    /// One of Burn's, in an autotune candidate.
    Candidate,
}

/// Whether this thread is trying what may fail.
pub(super) fn is_tuning() -> bool {
    let stack = Backtrace::force_capture().to_string();
    TUNING.iter().any(|module| stack.contains(module))
}

/// Writes the panic down.
fn note(panic: &PanicHookInfo<'_>, hooks: Hooks) -> Thread {
    let thread = std::thread::current();
    let thread = thread.name().unwrap_or("").to_owned();
    let device_thread = thread.starts_with(DEVICE_THREADS);
    let tuning = device_thread && is_tuning();
    (hooks.advance)();
    let now = timeline::now();
    let message = panic.payload_as_str().unwrap_or("a panic without a message").to_owned();
    events::send(&Event::Panic {
        card: threads::card(),
        thread,
        message,
        location: panic.location().map(ToString::to_string).unwrap_or_default(),
        step: now.step,
        phase: now.phase,
        kernel: timeline::kernel(),
        live: timeline::live(),
        tuning,
    });
    match (device_thread, tuning) {
        (false, _) => Thread::Program,
        (true, false) => Thread::Device,
        (true, true) => Thread::Candidate,
    }
}
