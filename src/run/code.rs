//! The names of what can go wrong with a model, and whether it is the configuration's fault.

/// It cannot be run as it was asked to.
pub const IMPOSSIBLE: &str = "impossible";
/// The target does not compile.
pub const BUILD_FAILED: &str = "build-failed";
/// The target lacks `harness = false`.
pub const HARNESS: &str = "harness";
/// `[package.metadata.vram]` cannot be used.
pub const MANIFEST: &str = "manifest";
/// Burn's version has no adapter.
pub const UNSUPPORTED_BURN: &str = "unsupported-burn";
/// Two versions of Burn in one program.
pub const TWO_BURNS: &str = "two-burns";
/// cargo-vram is there for another Burn than the models'.
pub const OTHER_ADAPTER: &str = "other-adapter";
/// Two models of one name in a package.
pub const DUPLICATE_MODEL: &str = "duplicate-model";
/// The tool and the crate that the models link do not understand each other.
pub const PROBE_VERSION: &str = "probe-version";
/// The binary did not answer at all.
pub const NO_ANSWER: &str = "no-answer";
/// Models cannot run on this kind of machine.
pub const UNSUPPORTED_HOST: &str = "unsupported-host";
/// An input was set that the model does not have.
pub const UNKNOWN_INPUT: &str = "unknown-input";
/// The model panicked.
pub const PANICKED: &str = "model-panicked";
/// The model was ended by a signal.
pub const ABORTED: &str = "model-aborted";
/// The model's stack was too small.
pub const STACK_OVERFLOW: &str = "stack-overflow";
/// The model's steps did nothing on the GPU, or left out a phase of a training.
pub const NO_WORK: &str = "no-gpu-work";
/// The model did something else in another pass, with nothing changed.
pub const NONDETERMINISTIC: &str = "nondeterministic";
/// What the model does depends on values that it reads from the GPU.
pub const DATA_DEPENDENT: &str = "data-dependent";
/// The model exited before it was done.
pub const EXITED: &str = "model-exited";
/// The model took too long.
pub const TIMED_OUT: &str = "timed-out";
/// The model used too much of the host's memory.
pub const HOST_MEMORY: &str = "host-memory";
/// Somebody else wrote into the file of events.
pub const EVENTS_DAMAGED: &str = "events-damaged";
/// The model called a function of the CUDA driver that the virtual one does not have.
pub const UNSUPPORTED_FUNCTION: &str = "unsupported-function";
/// The model ran without the driver that counts.
pub const NO_DRIVER: &str = "no-driver";
/// The model ran on another card.
pub const OTHER_CARD: &str = "other-card";
/// Other processes are on a card that was to be used alone.
pub const CARD_IN_USE: &str = "card-in-use";
/// Lines of the driver's record are missing.
pub const RECORD_DAMAGED: &str = "record-damaged";
/// Burn could not do an operation, and went on without it.
pub const OPERATION_FAILED: &str = "operation-failed";
/// A call of the CUDA driver failed where none may.
pub const DRIVER_ERROR: &str = "driver-error";
/// The model is over more cards than there are.
pub const TOO_FEW_CARDS: &str = "too-few-cards";
/// A signal ended the command before every model was run: the report is incomplete.
pub const INTERRUPTED: &str = "interrupted";
/// CUDA's math functions, which Burn 0.22 compiles kernels with, are not in the toolkit.
pub const NO_LIBDEVICE: &str = "no-libdevice";
/// The model's process could not be started.
pub const NOT_STARTED: &str = "not-started";

/// Whether the model did not even begin, for it cannot be run as it was asked to.
#[must_use]
pub fn is_refusal(code: &str) -> bool {
    code == IMPOSSIBLE || is_configuration(code)
}

/// Whether this is a matter of versions or configuration (exit code 2) and not of the run (101).
#[must_use]
pub fn is_configuration(code: &str) -> bool {
    [
        HARNESS,
        MANIFEST,
        UNSUPPORTED_BURN,
        TWO_BURNS,
        OTHER_ADAPTER,
        DUPLICATE_MODEL,
        PROBE_VERSION,
        UNSUPPORTED_HOST,
        UNKNOWN_INPUT,
    ]
    .contains(&code)
}
