//! How a pass ended: its summary, or the error that made it incomplete.

use std::collections::BTreeSet;
use std::time::Duration;

use super::child::End;
use super::epochs;
use super::gpu_work;
use super::hardware::Hardware;
use super::process::PassOutput;
use super::record::CallError;
use crate::names::listed;
use crate::protocol::{MOST_GPUS, ProbeEvent};
use crate::report::words::pass_name;
use crate::report::{ErrorCode, Pass, RunError};

/// The number of the signal SIGKILL, which is the same on every Linux.
const SIGKILL: i32 = 9;
/// The help for a model that did not run all of its steps.
const COMPLETE: &str = "call `train`, `train_step` or `infer`, or run all of `run.steps()`, and return from the \
     model's function; a step is complete only when the loop asks for the next one (write \
     `run.steps().zip(batches)`, not `batches.zip(run.steps())`)";

/// What a complete pass reported in its `Done` event.
pub(super) struct PassSummary {
    pub(super) steps: u32,
    pub(super) own_reads: u64,
    pub(super) streams: u32,
    pub(super) missed_samples: u64,
    /// The number of refused allocations that Burn tried again; `None` if this version of Burn does not try again.
    pub(super) retried: Option<u64>,
    /// Whether two steps in a row reserved nothing more; `None` if the pass did not run steps until they do.
    pub(super) settled: Option<bool>,
}

/// Returns the summary of a complete pass, or `None` if the pass ended early.
pub(super) fn done(left: &PassOutput) -> Option<PassSummary> {
    left.events.iter().find_map(|event| match event {
        ProbeEvent::Done {
            steps,
            own_reads,
            streams,
            missed_samples,
            retried,
            settled,
        } => Some(PassSummary {
            steps: *steps,
            own_reads: *own_reads,
            streams: *streams,
            missed_samples: *missed_samples,
            retried: *retried,
            settled: *settled,
        }),
        _ => None,
    })
}

/// Returns why a pass is incomplete, except for out of memory.
///
/// Returns the first reason that applies, because an earlier reason explains the later ones.
pub(super) fn error(hardware: &Hardware, pass: Pass, left: &PassOutput) -> Option<RunError> {
    // Requests that the model does not support, then limits and useless records, and only then the model's
    // own end.
    impossible(hardware, left)
        .or_else(|| overdue(hardware, left))
        .or_else(|| damaged(left))
        .or_else(|| unsupported(hardware, left))
        .or_else(|| gone_on(left))
        .or_else(|| driver_error(hardware, pass, left))
        .or_else(|| match done(left) {
            Some(done) => unfaithful(hardware, left)
                .or_else(|| hidden_panic(left))
                .or_else(|| too_few_steps(left, &done))
                // The driver writes its count of launches when the process ends, so check the end before the launches.
                .or_else(|| ended_badly(left))
                .or_else(|| gpu_work::missing(left)),
            None => panicked(hardware, left).or_else(|| died(left)),
        })
        .map(|error| with_full_disk(error, left))
}

/// Adds to the help that the disk is full, if it is: a model can fail in any way if it cannot write.
fn with_full_disk(error: RunError, left: &PassOutput) -> RunError {
    let Some(folder) = left.full_disk.as_deref().filter(|_| !error.code.is_refusal()) else {
        return error;
    };
    let otherwise = error.help.as_ref().map_or_else(String::new, |help| {
        format!("; if this is not the cause: {}", help.raw())
    });
    let full = format!(
        "the disk of {} is full: delete files, or set TMPDIR, CARGO_TARGET_DIR or --keep to a folder with more \
         space{otherwise}",
        folder.display()
    );
    RunError {
        help: Some(full.into()),
        ..error
    }
}

/// Builds the error of a run. The result is always `Some`.
fn told(code: ErrorCode, message: String, help: &str) -> Option<RunError> {
    Some(RunError {
        code,
        message: message.into(),
        help: Some(help.into()),
    })
}

/// Returns the error if the model does not support an input, a number of GPUs or a setting that the run asked for.
fn impossible(hardware: &Hardware, left: &PassOutput) -> Option<RunError> {
    let unknown = left.events.iter().find_map(|event| match event {
        ProbeEvent::UnknownInput { name, known } => Some((name, known)),
        _ => None,
    });
    if let Some((name, known)) = unknown {
        let known: Vec<_> = known.keys().cloned().collect();
        let help = match known.as_slice() {
            [] => "the model has no inputs: let its function ask for one, for example `let batch_size = \
                   run.batch_size(32);`, and make its batches of that size"
                .to_owned(),
            known => listed(Some(name), "the model's inputs", known),
        };
        let message = format!("the model has no input `{name}`");
        return told(ErrorCode::UnknownInput, message, &help);
    }
    left.events.iter().find_map(|event| match (event, hardware) {
        (ProbeEvent::Gpus { needed }, Hardware::Virtual) => told(
            ErrorCode::TooFewGpus,
            format!("the model asks for {needed} GPUs, but cargo-vram supports at most {MOST_GPUS}"),
            "set the model's input `gpus` to a smaller number",
        ),
        (ProbeEvent::Gpus { needed }, Hardware::Real(_)) => told(
            ErrorCode::TooFewGpus,
            format!("the model asks for {needed} GPUs, but a measurement uses only one"),
            "run `cargo vram estimate` or `cargo vram check --estimate`: an estimate has as many virtual GPUs as the \
             model asks for",
        ),
        (ProbeEvent::Impossible { why }, _) => told(
            ErrorCode::Impossible,
            why.clone(),
            "change the model or the command as the message says",
        ),
        _ => None,
    })
}

/// Returns the error if the model exceeded the time limit or the limit of host memory.
fn overdue(hardware: &Hardware, left: &PassOutput) -> Option<RunError> {
    match left.ended.end {
        // A failed call may be what the model hangs on. Then `driver_error` reports both.
        End::TimedOut { starved } if failed_call(left).is_none() => timed_out(left.ended.took, starved),
        End::HostMemory(used) => told(
            ErrorCode::HostMemory,
            format!("the model used {used} of host memory, which is over the limit"),
            match hardware {
                Hardware::Virtual => {
                    "look for data that the model creates on the host (tensors on a virtual GPU take no memory), \
                     or raise the limit with --host-memory"
                }
                Hardware::Real(_) => {
                    "look for data that the model creates on the host, or raise the limit with --host-memory"
                }
            },
        ),
        _ => None,
    }
}

/// Returns the error of a model that exceeded its time limit, and says whether other processes kept it from running.
fn timed_out(took: Duration, starved: Duration) -> Option<RunError> {
    let message = format!("the model did not finish within {} s", took.as_secs());
    // On an idle machine, a step that never ends waits for nothing, or for its own threads. They do not need
    // every core.
    match starved >= took / 2 {
        true => told(
            ErrorCode::TimedOut,
            format!(
                "{message}: its threads waited {} s in total for a CPU core",
                starved.as_secs()
            ),
            "end other work on the machine, pass a lower --jobs, or raise the limit with --timeout or `timeout` in budgets.yaml",
        ),
        false => told(
            ErrorCode::TimedOut,
            message,
            "raise the limit with --timeout or `timeout` in budgets.yaml, or look for a step that never ends",
        ),
    }
}

/// Returns the error if something other than the probe wrote into the event file.
fn damaged(left: &PassOutput) -> Option<RunError> {
    // The probe writes `Hello` first. If it is gone, something else emptied the file.
    let begun_anew = !matches!(left.events.first(), None | Some(ProbeEvent::Hello { .. }));
    if !left.damaged && !begun_anew {
        return None;
    }
    told(
        ErrorCode::EventsDamaged,
        "something other than cargo-vram wrote into the model's event file".into(),
        "check that the model writes neither to its job file (CARGO_VRAM_JOB) nor to the event file that the job file \
         names",
    )
}

/// Returns the error if the model called a CUDA function whose memory the driver cannot count.
fn unsupported(hardware: &Hardware, left: &PassOutput) -> Option<RunError> {
    let function = left.record.all().find_map(|record| record.unsupported.first())?;
    told(
        ErrorCode::UnsupportedFunction,
        match hardware {
            Hardware::Virtual => {
                format!("the model called {function}, which the virtual CUDA driver does not support")
            }
            Hardware::Real(_) => {
                format!("the counting CUDA driver refused {function}: it cannot count the memory of this function")
            }
        },
        "report to the cargo-vram project which library calls this function; the run has no values, because they \
         would be wrong",
    )
}

/// Returns the error if an operation failed and Burn continued without its result.
fn gone_on(left: &PassOutput) -> Option<RunError> {
    let message = left.events.iter().find_map(|event| match event {
        ProbeEvent::Failed {
            tuning: false, message, ..
        } => Some(message),
        _ => None,
    })?;
    // The driver's error is the cause, and `driver_error` names its function.
    if failed_call(left).is_some() {
        return None;
    }
    told(
        ErrorCode::OperationFailed,
        format!("Burn skipped an operation that failed: {message}"),
        "find out why the operation failed, for example because a tensor is larger than any page of Burn's \
         allocator; the run has no values, because Burn continued without the operation's result",
    )
}

/// Returns the message and place of the model's first panic.
///
/// Panics of autotune candidates do not count, because autotune then chooses another candidate.
fn panic(left: &PassOutput) -> Option<String> {
    left.events.iter().find_map(|event| match event {
        ProbeEvent::Panic {
            tuning: false,
            thread,
            message,
            location,
            ..
        } => Some(format!("{message} ({location}, thread {thread})")),
        _ => None,
    })
}

/// Returns the error if a driver call failed that must not fail.
fn driver_error(hardware: &Hardware, pass: Pass, left: &PassOutput) -> Option<RunError> {
    let failed = failed_call(left)?;
    let then = match (done(left), panic(left)) {
        (Some(_), _) => String::new(),
        (None, Some(panic)) => format!("; the model panicked: {panic}"),
        (None, None) if matches!(left.ended.end, End::TimedOut { .. }) => {
            format!("; then the model did not finish within {} s", left.ended.took.as_secs())
        }
        (None, None) => "; then the model ended".to_owned(),
    };
    let why = if failed.detail.is_empty() {
        String::new()
    } else {
        format!(" ({})", failed.detail)
    };
    told(
        ErrorCode::DriverError,
        format!("{failed} in the {} pass{why}{then}", pass_name(pass)),
        match hardware {
            Hardware::Virtual => {
                "correct the call if a real GPU refuses it too; otherwise report this bug of cargo-vram's virtual \
                 CUDA driver; the run has no values, because they would be wrong"
            }
            Hardware::Real(_) => {
                "run `nvidia-smi -q` and search the Linux kernel log (`dmesg`) for Xid to see what happened to the \
                 GPU; run `cargo vram doctor` to check whether it is usable"
            }
        },
    )
}

/// Returns the error if the driver's record of a complete pass does not show the model's memory.
fn unfaithful(hardware: &Hardware, left: &PassOutput) -> Option<RunError> {
    // The record decides, whatever the program reports. See docs/design/driver.md.
    let other_driver = match hardware {
        Hardware::Virtual => !left.record.started || left.record.forwards,
        Hardware::Real(_) => !left.record.forwards || left.record.libcuda.is_none(),
    };
    if other_driver {
        return told(
            ErrorCode::NoDriver,
            "the model bypassed the counting CUDA driver".into(),
            "check whether the program is linked to libcuda by path (DT_RPATH), and whether the target folder's path \
             contains `:`",
        );
    }
    if let Some(other) = other_gpu(hardware, left) {
        return told(
            ErrorCode::OtherGpu,
            format!("the model ran on another GPU ({other}), not on the selected one"),
            "check whether the program sets CUDA_VISIBLE_DEVICES or CUDA_DEVICE_ORDER itself; a model must run on \
             the first GPU that CUDA shows",
        );
    }
    if left.record.is_incomplete() {
        return told(
            ErrorCode::RecordDamaged,
            "the record of the CUDA driver is incomplete: lines are missing".into(),
            "check whether the disk of the target folder is full, and run the model again",
        );
    }
    if left.record.all().any(|record| !record.other_drivers.is_empty()) {
        return told(
            ErrorCode::NoDriver,
            format!(
                "the model also loaded a CUDA driver that does not count memory: {}",
                other_drivers(left)
            ),
            "load `libcuda.so.1` by its bare name; cargo-vram cannot count the memory that another driver allocates",
        );
    }
    None
}

/// Returns the error if the model panicked and still finished.
///
/// Such a run has no values, because they would not include the work that the model skipped after the panic.
fn hidden_panic(left: &PassOutput) -> Option<RunError> {
    if let Some(panic) = panic(left) {
        return told(
            ErrorCode::Panicked,
            format!("the model panicked and caught the panic: {panic}"),
            "correct the code at that place, or let the panic end the model; the run has no values, because the model \
             may have skipped work after the panic",
        );
    }
    // The driver counts all panics; the probe reports those that call its hook, including those of autotune candidates.
    // So a larger count means a panic that the probe did not see.
    if left.record.panics <= told_panics(left) {
        return None;
    }
    told(
        ErrorCode::Panicked,
        "the model panicked, but its own panic hook hid the panic from cargo-vram".into(),
        "call the previous hook (`std::panic::take_hook`) in the model's hook, or remove the model's hook; the run has \
         no values, because work may be missing after the panic (Burn continues after a panic on its device thread)",
    )
}

/// Returns the error if the model reported its end before its last step.
fn too_few_steps(left: &PassOutput, done: &PassSummary) -> Option<RunError> {
    if let Some(wanted) = epochs::wanted(&left.events) {
        return learner_failed(left)
            .or_else(|| too_few_epochs(left, wanted))
            .or_else(|| unfinished_validation(left));
    }
    if done.steps >= left.steps {
        return None;
    }
    told(
        ErrorCode::Exited,
        format!("the model ran {} of {} steps", done.steps, left.steps),
        COMPLETE,
    )
}

/// Returns the error if Burn's learner stopped because of an error and the program went on.
fn learner_failed(left: &PassOutput) -> Option<RunError> {
    let why = epochs::learner_error(&left.events)?;
    told(
        ErrorCode::Exited,
        format!("Burn's learner stopped because of an error: {why}"),
        "correct the error: the training ends there, and the run has no values",
    )
}

/// Returns the error if a validation did not read all of its data, so that its memory is not that of the training.
fn unfinished_validation(left: &PassOutput) -> Option<RunError> {
    if let Some((epoch, loader)) = epochs::unfinished_validation(&left.events) {
        return told(
            ErrorCode::Exited,
            format!("the validation of epoch {epoch} stopped before its data ended (the data loader of {loader})"),
            "take every batch of the data loader that `training.validation(…)` returns; to validate on fewer items, pass a \
             part of the data: `training.validation(loader.slice(0, 64))`",
        );
    }
    let loader = epochs::unread_loader(&left.events)?;
    told(
        ErrorCode::Exited,
        format!("the training never read the data loader of {loader}, so the memory of its batches is unknown"),
        "pass only data loaders that the training reads, and read the one that `training.data(…)` or \
         `training.validation(…)` returned; if the program validates only in some epochs, train for enough of them",
    )
}

/// Returns the error if the program trained for fewer epochs than it was asked for.
fn too_few_epochs(left: &PassOutput, wanted: u32) -> Option<RunError> {
    let (trained, steps) = epochs::finished(&left.events);
    if trained >= wanted.max(1) as usize {
        return None;
    }
    let message = match steps {
        0 => "the model trained on no batch".to_owned(),
        _ => format!("the model trained for {trained} of {wanted} epochs to the end of the data"),
    };
    let early = "if the training stops early by itself, ask for fewer epochs: the values that a model reads from a \
                 virtual GPU are zeros";
    let help = if epochs::is_logged(&left.events) {
        format!(
            "train for `training.epochs()` epochs with Burn's learner, on the thread that called the function; {early}"
        )
    } else {
        format!(
            "train for `training.epochs()` epochs, take every batch of the data loader that `training.data(…)` returns, \
             and limit an epoch with `items` only; {early}; if the training makes its own data loaders, run it with \
             `train_with_own_loaders`"
        )
    };
    told(ErrorCode::Exited, message, &help)
}

/// Returns the error if a panic ended the model.
fn panicked(hardware: &Hardware, left: &PassOutput) -> Option<RunError> {
    let panic = panic(left)?;
    told(
        ErrorCode::Panicked,
        format!("the model panicked: {panic}"),
        match hardware {
            Hardware::Virtual => {
                "look at the code at that place; the values that a model reads from a virtual GPU are zeros, which \
                 the code may not expect"
            }
            Hardware::Real(_) => "look at the code at that place",
        },
    )
}

/// Lists the CUDA drivers that the model's processes loaded besides the counting one.
fn other_drivers(left: &PassOutput) -> String {
    let paths: BTreeSet<&str> = left
        .record
        .all()
        .flat_map(|record| record.other_drivers.iter().map(String::as_str))
        .collect();
    paths.into_iter().collect::<Vec<_>>().join(", ")
}

/// Counts the panics that the probe's panic hook reported.
fn told_panics(left: &PassOutput) -> u64 {
    let told = left
        .events
        .iter()
        .filter(|event| matches!(event, ProbeEvent::Panic { .. }));
    told.count() as u64
}

/// Returns the error if the process reported its end, but then did not exit normally with code 0.
fn ended_badly(left: &PassOutput) -> Option<RunError> {
    match left.ended.end {
        End::Signalled(signal) => told(
            ErrorCode::Aborted,
            format!(
                "signal {signal} ended the model's process after its last step{}",
                end_of_stderr(&left.ended.stderr)
            ),
            "look at what runs after `main`, such as destructors of native libraries: it crashed while the process \
             ended",
        ),
        End::Exited(exit) if exit != 0 => told(
            ErrorCode::Exited,
            format!(
                "the model's process exited with code {exit} after its last step{}",
                end_of_stderr(&left.ended.stderr)
            ),
            "look at what runs after the model's function returns; the process must exit with code 0",
        ),
        // The exit handler writes the totals that the record is checked with. Without them, missing lines go
        // unnoticed.
        End::Exited(_) if !left.record.ended => told(
            ErrorCode::Exited,
            "the model's process ended without running its exit handlers, so the record of the CUDA driver may be \
             incomplete"
                .into(),
            "return from `main` or call `std::process::exit`; `_exit` skips the exit handlers",
        ),
        _ => None,
    }
}

/// Returns the last panic in a model's standard error as an appendix to a message, or the last line if that follows the
/// panic or there is none.
pub(super) fn end_of_stderr(stderr: &str) -> String {
    // A backtrace: `stack backtrace:`, `   0: name`, `             at file`, and notes.
    let is_of_backtrace =
        |line: &&str| line.starts_with([' ', '\t']) || *line == "stack backtrace:" || line.starts_with("note: ");
    let lines: Vec<&str> = stderr
        .lines()
        .filter(|line| !line.is_empty() && !is_of_backtrace(line))
        .collect();
    // Where a panic must not unwind, the standard library panics once more, and only the panic before says why.
    let is_panic = |line: &&str| {
        line.starts_with("thread '")
            && line.contains(" panicked at ")
            && !line.contains("library/core/src/panicking.rs")
    };
    let panic = lines
        .iter()
        .rposition(is_panic)
        .map(|at| lines[at..].iter().take(2).copied().collect::<Vec<_>>());
    let last = lines.last().copied().unwrap_or_default();
    match panic {
        // Rust writes the place of a panic on one line, and its message on the next.
        Some(panic) if panic.contains(&last) => format!("; stderr: {}", panic.join(" ")),
        Some(panic) => format!("; stderr: {} … {last}", panic.join(" ")),
        None if last.is_empty() => String::new(),
        None => format!("; last line of stderr: {last}"),
    }
}

/// Returns the first driver call that failed but must not fail, for a reason other than memory.
///
/// While autotune chooses, the calls of candidates that the GPU cannot run may fail.
pub(super) fn failed_call(left: &PassOutput) -> Option<&CallError> {
    let candidate = |call: &CallError| left.tunes && call.is_of_a_candidate();
    // 801 is CUDA_ERROR_NOT_SUPPORTED: the GPU has no stream-ordered memory, and Burn calls `cuMemAlloc` next.
    let unordered = |call: &CallError| call.function == "cuMemAllocAsync" && call.code == 801;
    left.record
        .all()
        .flat_map(|record| &record.errors)
        .find(|call| !candidate(call) && !unordered(call) && !call.is_out_of_memory())
}

/// Returns the UUID of the GPU that the process ran on, if that is not the selected GPU.
fn other_gpu<'a>(hardware: &Hardware, left: &'a PassOutput) -> Option<&'a str> {
    let Hardware::Real(real) = hardware else { return None };
    // The driver library does not distinguish a slice of a GPU (`MIG-…`) from a whole GPU (`GPU-…`): compare only ids.
    let id = |uuid: &str| uuid.split_once('-').map(|(_, id)| id.to_owned());
    left.record
        .device
        .as_deref()
        .filter(|device| id(device) != id(&real.uuid))
}

/// Returns the error of a process that ended early without reporting a reason.
fn died(left: &PassOutput) -> Option<RunError> {
    let said = end_of_stderr(&left.ended.stderr);
    match left.ended.end {
        // Rust then aborts with SIGABRT. Only its text distinguishes that from another abort.
        End::Signalled(_) if left.ended.stderr.contains("has overflowed its stack") => told(
            ErrorCode::StackOverflow,
            "the model overflowed its stack".into(),
            "look for deep recursion, or set RUST_MIN_STACK and run the model on a thread of its own; debug builds \
             need more stack",
        ),
        // This tool's own kills are other variants of `End`, so somebody else sent the signal.
        End::Signalled(SIGKILL) => told(
            ErrorCode::Aborted,
            format!("signal 9 (SIGKILL) ended the model's process{said}"),
            "run fewer models in parallel with --jobs: Linux kills processes if the host runs out of memory",
        ),
        End::Signalled(signal) => told(
            ErrorCode::Aborted,
            format!("signal {signal} ended the model's process{said}"),
            "look for `abort` or a panic while panicking (signal 6), or for a fault in native code (signal 11)",
        ),
        End::Exited(exit) => told(
            ErrorCode::Exited,
            format!("the model's process exited with code {exit} before it finished its steps{said}"),
            COMPLETE,
        ),
        // Earlier checks report the first two. A pass that the user stopped is not reported.
        End::TimedOut { .. } | End::HostMemory(_) | End::Stopped => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_last_panic_is_quoted() {
        assert_eq!(end_of_stderr(""), "");
        assert_eq!(end_of_stderr("a\nb\n"), "; last line of stderr: b");
        let first = "thread 'main' (7) panicked at src/a.rs:1:2:\nfirst\n";
        let last =
            "thread 'DSD-0-0' (8) panicked at src/b.rs:3:4:\nno space\nstack backtrace:\n   0: a\nnote: Some details\n";
        assert_eq!(
            end_of_stderr(&[first, last].concat()),
            "; stderr: thread 'DSD-0-0' (8) panicked at src/b.rs:3:4: no space"
        );
        assert_eq!(
            end_of_stderr("thread 'a' panicked at b:"),
            "; stderr: thread 'a' panicked at b:"
        );
        let aborted = "thread 'a' panicked at b:\nwhy\nthread 'a' panicked at library/core/src/panicking.rs:1:2:\npanic in a \
                       function that cannot unwind\nthread caused non-unwinding panic. aborting.\n";
        assert_eq!(
            end_of_stderr(aborted),
            "; stderr: thread 'a' panicked at b: why … thread caused non-unwinding panic. aborting."
        );
    }

    #[test]
    fn a_timeout_while_waiting_for_cores_does_not_blame_the_model() {
        let help = |starved| {
            let error = timed_out(Duration::from_secs(3), Duration::from_millis(starved)).unwrap();
            (error.message, error.help.unwrap())
        };
        let (message, advice) = help(1_499);
        assert_eq!(message, "the model did not finish within 3 s");
        assert!(advice.raw().contains("a step that never ends"), "{advice}");
        let (message, advice) = help(1_500);
        assert!(
            message
                .raw()
                .ends_with("its threads waited 1 s in total for a CPU core"),
            "{message}"
        );
        assert!(
            advice.raw().contains("--jobs") && !advice.raw().contains("never ends"),
            "{advice}"
        );
    }
}
