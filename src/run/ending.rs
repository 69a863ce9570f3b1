//! How a pass ended, and why, where it ended early.

use std::collections::BTreeSet;

use super::card::Hardware;
use super::child::End;
use super::process::Left;
use super::record::CallError;
use super::work;
use crate::names::listed;
use crate::protocol::{Event, MOST_CARDS};
use crate::report::words::pass_name;
use crate::report::{ErrorCode, Pass, RunError};

/// The same on every Linux.
const SIGKILL: i32 = 9;
/// What to do about a model that was not run to its end.
const COMPLETE: &str = "a model must return from its function, and must call `train`, `train_step` or `infer`, or run all of `steps`: \
     ask for the next step to complete one (`run.steps().zip(batches)`, not `batches.zip(run.steps())`)";

/// What a pass says that was run to its end.
pub(super) struct Done {
    pub(super) steps: u32,
    pub(super) own_reads: u64,
    pub(super) streams: u32,
    pub(super) missed_samples: u64,
    /// Refused allocations that Burn tried once more, where this Burn does that.
    pub(super) retried: Option<u64>,
    /// Whether more steps reserve nothing more, where that was found out.
    pub(super) settled: Option<bool>,
}

/// The end of a pass, where it came to one.
pub(super) fn done(left: &Left) -> Option<Done> {
    left.events.iter().find_map(|event| match event {
        Event::Done {
            steps,
            own_reads,
            streams,
            missed_samples,
            retried,
            settled,
        } => Some(Done {
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

/// Why a pass is incomplete, out of memory apart.
pub(super) fn error(hardware: &Hardware, pass: Pass, left: &Left) -> Option<RunError> {
    let error = |code: ErrorCode, message: String, help: &str| {
        Some(RunError {
            code,
            message,
            help: Some(help.into()),
        })
    };
    for event in &left.events {
        if let Event::UnknownInput { name, known } = event {
            return error(
                ErrorCode::UnknownInput,
                format!("the model has no input `{name}`"),
                &listed(Some(name), "its inputs", &known.keys().cloned().collect::<Vec<_>>()),
            );
        }
    }
    for event in &left.events {
        if let Event::Cards { needed } = event {
            return match hardware {
                Hardware::Virtual => error(
                    ErrorCode::TooFewGpus,
                    format!("the model is over {needed} cards, and there are {MOST_CARDS} at most"),
                    "set its input `cards` to fewer",
                ),
                Hardware::Real(_) => error(
                    ErrorCode::TooFewGpus,
                    format!("the model is over {needed} cards, and real cards are measured one at a time"),
                    "estimate it, with --estimate: virtual cards are as many as it needs",
                ),
            };
        }
        if let Event::Impossible { why } = event {
            return error(ErrorCode::Impossible, why.clone(), "leave it out for this model");
        }
    }
    let failed = failed_call(left);
    match left.ended.end {
        End::TimedOut if failed.is_none() => {
            return error(
                ErrorCode::TimedOut,
                format!("the model did not end within {} s", left.ended.took.as_secs()),
                "a step must end by itself; give it longer with `timeout` in budgets.yaml or --timeout",
            );
        }
        End::HostMemory(used) => {
            return error(
                ErrorCode::HostMemory,
                format!("the model used {used} of the host's memory"),
                match hardware {
                    Hardware::Virtual => {
                        "a virtual GPU needs no memory for its tensors: look for data made on the host; --host-memory raises the limit"
                    }
                    Hardware::Real(_) => "look for data made on the host; --host-memory raises the limit",
                },
            );
        }
        _ => {}
    }
    let begun_anew = !matches!(left.events.first(), None | Some(Event::Hello { .. }));
    if left.damaged || begun_anew {
        return error(
            ErrorCode::EventsDamaged,
            "something other than cargo-vram wrote into the file of events".into(),
            "models must not write to the file named by CARGO_VRAM_JOB or the one named in it",
        );
    }
    if let Some(function) = left.record.all().find_map(|record| record.unsupported.first()) {
        return error(
            ErrorCode::UnsupportedFunction,
            match hardware {
                Hardware::Virtual => format!("the model called {function}, which the virtual driver does not have"),
                Hardware::Real(_) => {
                    format!("the model called {function}, whose memory would not be counted: it was refused")
                }
            },
            "its figures would be wrong, so there are none; please report which library calls it",
        );
    }
    let panic = left.events.iter().find_map(|event| match event {
        Event::Panic {
            tuning: false,
            thread,
            message,
            location,
            ..
        } => Some(format!("{message} ({location}, thread {thread})")),
        _ => None,
    });
    let gone_on = left.events.iter().find_map(|event| match event {
        Event::Failed {
            tuning: false, message, ..
        } => Some(message),
        _ => None,
    });
    if let Some(message) = gone_on.filter(|_| failed.is_none()) {
        return error(
            ErrorCode::OperationFailed,
            format!("Burn skipped an operation that failed: {message}"),
            "Burn goes on without what the operation makes, so the figures are those of another program and are left out; look at the \
             operation; a tensor that no page of Burn's allocator can hold ends like this, too",
        );
    }
    if let Some(failed) = failed {
        let then = match (done(left), &panic) {
            (Some(_), _) => String::new(),
            (None, Some(panic)) => format!("; the model panicked: {panic}"),
            (None, None) if left.ended.end == End::TimedOut => {
                format!("; the model then did not end within {} s", left.ended.took.as_secs())
            }
            (None, None) => "; the model then ended".to_owned(),
        };
        let why = if failed.detail.is_empty() {
            String::new()
        } else {
            format!(" ({})", failed.detail)
        };
        return error(
            ErrorCode::DriverError,
            format!("{failed} in the {} pass{why}{then}", pass_name(pass)),
            match hardware {
                Hardware::Virtual => {
                    "a real card would refuse it too, or the virtual one is wrong: its figures would be those of another program, so there are none"
                }
                Hardware::Real(_) => {
                    "`nvidia-smi -q` and the kernel's log (`dmesg`, lines with Xid) tell what happened to the card; `cargo vram doctor` tells whether it can be used"
                }
            },
        );
    }
    let other_driver = match hardware {
        Hardware::Virtual => !left.record.started || left.record.forwards,
        Hardware::Real(_) => !left.record.forwards || left.record.libcuda.is_none(),
    };
    let other_card = other_card(hardware, left);
    match (done(left), panic) {
        (Some(_), _) if other_driver => error(
            ErrorCode::NoDriver,
            "the model used another CUDA driver than the one that counts".into(),
            "see whether it is linked to libcuda by path (DT_RPATH), or whether the target folder's path has a `:` in it",
        ),
        (Some(_), _) if other_card.is_some() => error(
            ErrorCode::OtherGpu,
            format!(
                "the model ran on another card ({}) than the one that was looked at",
                other_card.unwrap_or_default()
            ),
            "models run on the first card that CUDA shows them: see whether the program sets CUDA_VISIBLE_DEVICES or CUDA_DEVICE_ORDER itself",
        ),
        (Some(_), _) if left.record.is_incomplete() => error(
            ErrorCode::RecordDamaged,
            "lines of the driver's record are missing".into(),
            "see whether the disk of the target folder is full, and run it again",
        ),
        (Some(_), _) if left.record.all().any(|record| !record.other_drivers.is_empty()) => error(
            ErrorCode::NoDriver,
            format!(
                "the model loaded another CUDA driver besides the one that counts: {}",
                other_drivers(left)
            ),
            "load `libcuda.so.1` by its bare name: what another driver hands out is not counted",
        ),
        // One that was caught: what it kept from being done is in no figure.
        (Some(_), Some(panic)) => error(
            ErrorCode::Panicked,
            format!("the model panicked, and caught the panic: {panic}"),
            "what was not done after the panic is in no figure: look at the place it names, and let the panic end the model",
        ),
        // Candidates of autotune that panic are no fault, and each of them was told.
        (Some(_), None) if left.record.panics > told_panics(left) => error(
            ErrorCode::Panicked,
            "the model panicked, and a panic hook of its own kept that from being told".into(),
            "have the hook call the one that was there before (`std::panic::take_hook`), or leave it out: what was not done after \
             the panic is in no figure, and Burn goes on after one of its device's thread",
        ),
        (Some(done), None) if done.steps < left.steps => error(
            ErrorCode::Exited,
            format!("the model ran {} of {} steps", done.steps, left.steps),
            COMPLETE,
        ),
        // What was launched the driver writes down when the process ends.
        (Some(_), None) => ended_badly(left).or_else(|| work::missing(left)),
        (None, Some(panic)) => error(
            ErrorCode::Panicked,
            format!("the model panicked: {panic}"),
            match hardware {
                Hardware::Virtual => {
                    "look at the place it names; values read back from a virtual GPU are zeros, which the code there may not expect"
                }
                Hardware::Real(_) => "look at the place it names",
            },
        ),
        (None, None) => died(left, error),
    }
}

/// Those of all of its processes.
fn other_drivers(left: &Left) -> String {
    let paths: BTreeSet<&str> = left
        .record
        .all()
        .flat_map(|record| record.other_drivers.iter().map(String::as_str))
        .collect();
    paths.into_iter().collect::<Vec<_>>().join(", ")
}

/// How many panics the probe's hook was called for.
fn told_panics(left: &Left) -> u64 {
    let told = left.events.iter().filter(|event| matches!(event, Event::Panic { .. }));
    told.count() as u64
}

/// A process that said that it was done, and then did not end as one that is.
fn ended_badly(left: &Left) -> Option<RunError> {
    let error = |code: ErrorCode, message: String, help: &str| {
        Some(RunError {
            code,
            message,
            help: Some(help.into()),
        })
    };
    match left.ended.end {
        End::Signalled(signal) => error(
            ErrorCode::Aborted,
            format!("signal {signal} ended the model's process after its last step{}", last_words(left)),
            "something crashed while the process ended: look at what runs after `main`, such as destructors of native libraries",
        ),
        End::Exited(exit) if exit != 0 => error(
            ErrorCode::Exited,
            format!("the model's process exited with code {exit} after its last step{}", last_words(left)),
            "a model's process must exit with code 0: look at what runs after its function returns",
        ),
        End::Exited(_) if !left.record.ended => error(
            ErrorCode::Exited,
            "the model's process ended without running its exit handlers, so nobody knows whether the driver's record is complete".into(),
            "let `main` return, or use `std::process::exit`: `_exit` leaves out what runs at the end of a process",
        ),
        _ => None,
    }
}

/// The last line of standard error, to be put behind a message.
fn last_words(left: &Left) -> String {
    match left.ended.stderr.trim_end().lines().last() {
        Some(last) if !last.is_empty() => format!("; last line of stderr: {last}"),
        _ => String::new(),
    }
}

/// The first call that failed where none may, for another reason than memory. Where autotune chooses, some may:
/// candidates that the card cannot run.
pub(super) fn failed_call(left: &Left) -> Option<&CallError> {
    let candidate = |call: &CallError| left.tunes && call.is_of_a_candidate();
    // A card without stream-ordered memory: Burn asks `cuMemAlloc` next.
    let unordered = |call: &CallError| call.function == "cuMemAllocAsync" && call.code == 801;
    left.record
        .all()
        .flat_map(|record| &record.errors)
        .find(|call| !candidate(call) && !unordered(call) && !call.is_out_of_memory())
}

/// The card that a process ran on, where that was not the one it was to run on.
fn other_card<'a>(hardware: &Hardware, left: &'a Left) -> Option<&'a str> {
    let Hardware::Real(real) = hardware else { return None };
    // The driver library cannot tell a slice of a card (`MIG-…`) from a card (`GPU-…`).
    let id = |uuid: &str| uuid.split_once('-').map(|(_, id)| id.to_owned());
    left.record
        .device
        .as_deref()
        .filter(|device| id(device) != id(&real.uuid))
}

fn died(left: &Left, error: impl Fn(ErrorCode, String, &str) -> Option<RunError>) -> Option<RunError> {
    let said = last_words(left);
    match left.ended.end {
        End::Signalled(_) if left.ended.stderr.contains("has overflowed its stack") => error(
            ErrorCode::StackOverflow,
            "the model overflowed its stack".into(),
            "debug builds need more of it: look for deep recursion, or set RUST_MIN_STACK and run the model on a thread",
        ),
        End::Signalled(SIGKILL) => error(
            ErrorCode::Aborted,
            format!("the model was killed{said}"),
            "the kernel does this when the host's memory runs out: run fewer models at once with --jobs",
        ),
        End::Signalled(signal) => error(
            ErrorCode::Aborted,
            format!("the model was ended by signal {signal}{said}"),
            "`abort`, a panic while panicking (signal 6) or a fault in native code (signal 11) does this",
        ),
        End::Exited(exit) => error(
            ErrorCode::Exited,
            format!("the model's process exited with code {exit} before its steps were done{said}"),
            COMPLETE,
        ),
        // Nothing is reported of a pass that was stopped.
        End::TimedOut | End::HostMemory(_) | End::Stopped => None,
    }
}
