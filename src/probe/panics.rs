//! Reports panics. Burn catches panics of its device threads and goes on without the tensor concerned. Here, such a
//! panic ends the pass. The exception is a panic inside an autotune candidate: autotune then does not choose that
//! candidate.

use std::backtrace::Backtrace;
use std::panic::{AssertUnwindSafe, PanicHookInfo, catch_unwind, resume_unwind, set_hook, take_hook};

use super::threads::{self, DEVICE_THREADS};
use super::{events, timeline};
use crate::protocol::ProbeEvent;

/// Modules whose functions are on the stack only while Burn times an autotune candidate or, with Burn 0.22, measures
/// the GPU's throughput.
// Only the stack tells a candidate from the model. That is why a model's binary must keep its symbols.
// See docs/design/complete-runs.md.
const TUNING: [&str; 2] = ["tune_benchmark", "cubecl_runtime::throughput"];

/// What an adapter does when a thread panics.
#[derive(Clone, Copy)]
pub(super) struct Hooks {
    /// Moves the timeline to the phase of the operations that run now.
    pub(super) advance: fn(),
    /// Waits until the timeline has every moment that the program marked. Called after a panic on a thread of the
    /// program.
    pub(super) settle: fn(),
}

/// Installs a panic hook that reports each panic and then calls the program's own hook.
pub(super) fn watch(hooks: Hooks) {
    show_raises();
    let previous = take_hook();
    set_hook(Box::new(move |panic| {
        // Report first, because the program's own hook may end the process.
        let thread = note(panic, hooks);
        previous(panic);
        // Not on Burn's threads, which would wait for themselves.
        if thread == Thread::Program {
            (hooks.settle)();
        }
        if thread != Thread::Candidate {
            // A panic of the program's own thread may unwind to the end of the process, so write everything now.
            timeline::flush();
        }
        // Otherwise Burn goes on with a tensor that was never made, and the process exits with code 0. An
        // ordinary exit, because the driver's exit handler writes the totals of its record.
        if thread == Thread::Device {
            std::process::exit(101);
        }
    }));
}

/// Unwinds three times: by `resume_unwind` in two functions, and by a panic.
///
/// The driver counts unwinds in a process, to find panics that the model's own panic hook hides. From these first three
/// unwinds it learns to distinguish `resume_unwind` from a panic. `resume_unwind` only continues an earlier panic, and
/// calls no hook.
fn show_raises() {
    // Two types make two functions. The driver takes the innermost functions that both unwinds have in common
    // as the signature of `resume_unwind`, without symbols. See docs/design/burn-0_22-failures.md.
    #[inline(never)]
    fn resume<T: Send + 'static>(payload: T) {
        let _ = catch_unwind(AssertUnwindSafe(|| resume_unwind(Box::new(payload))));
    }
    // With `panic = "abort"`, a panic unwinds nothing.
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

/// The kind of thread that panicked.
#[derive(PartialEq, Eq)]
enum Thread {
    /// A thread of the program.
    Program,
    /// A device thread of Burn: the pass ends.
    Device,
    /// A device thread of Burn, inside an autotune candidate or a measurement of the GPU's throughput: the pass goes
    /// on.
    Candidate,
}

/// Whether this thread runs work that may fail: an autotune candidate or a measurement of the GPU's throughput.
pub(super) fn is_tuning() -> bool {
    // Forced, because users mostly run without `RUST_BACKTRACE`.
    let stack = Backtrace::force_capture().to_string();
    TUNING.iter().any(|module| stack.contains(module))
}

/// Reports the panic. Returns the kind of thread that panicked.
fn note(panic: &PanicHookInfo<'_>, hooks: Hooks) -> Thread {
    let thread = std::thread::current();
    let thread = thread.name().unwrap_or("").to_owned();
    let device_thread = thread.starts_with(DEVICE_THREADS);
    // Burn tunes on its own threads, so a panic of another thread is never that of a candidate.
    let tuning = device_thread && is_tuning();
    // Before the moment is read: the operation that panicked may be the first of a new phase.
    (hooks.advance)();
    let now = timeline::now();
    let message = panic.payload_as_str().unwrap_or("a panic without a message").to_owned();
    events::send(&ProbeEvent::Panic {
        gpu: threads::gpu(),
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
