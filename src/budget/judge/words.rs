//! The phrases that verdicts share.

use std::time::Duration;

use crate::report::words::{milliseconds, pass_name};
use crate::report::{Metric, Mode, Obtained, Oom, Phase, ProcessOf, ProcessOverhead, Run};

const fn phase_name(phase: Phase) -> &'static str {
    match phase {
        Phase::Context => "before the model was created",
        Phase::Model => "while creating the model",
        Phase::Batch => "batch",
        Phase::Forward => "forward",
        Phase::Backward => "backward",
        Phase::Optimizer => "optimizer",
        Phase::Training => "training",
        Phase::Validation => "validation",
        Phase::Between => "between two parts of an epoch",
    }
}

/// Returns where the memory ran out: `in the warm pass, step 1, optimizer`.
pub(super) fn place(oom: &Oom) -> String {
    let step = oom.step.map(|step| format!(", step {step}")).unwrap_or_default();
    let phase = oom
        .phase
        .map(|phase| format!(", {}", phase_name(phase)))
        .unwrap_or_default();
    format!("in the {} pass{step}{phase}", pass_name(oom.pass))
}

/// Returns why a run ended early; `None` if it finished.
pub(super) fn ended_early(run: &Run) -> Option<String> {
    run.error
        .as_ref()
        .map(|error| format!("run ended early (`{}`)", error.code))
}

/// The part of an estimated process value that is an assumption: neither measured nor documented.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum AssumedOverhead {
    Context,
    Modules,
    Both,
}

impl AssumedOverhead {
    /// Returns the assumed part; `None` for a measurement.
    fn from_run(run: &Run) -> Option<Self> {
        let is_assumed = |overhead: &Option<ProcessOverhead>| {
            let obtained = overhead.as_ref().map(|overhead| overhead.obtained);
            // A measured process value has the real context and the real kernels in it.
            run.mode == Mode::Estimate && obtained == Some(Obtained::Assumed)
        };
        match (is_assumed(&run.gpu.context), is_assumed(&run.gpu.modules)) {
            (true, true) => Some(Self::Both),
            (true, false) => Some(Self::Context),
            (false, true) => Some(Self::Modules),
            (false, false) => None,
        }
    }

    const fn name(self) -> &'static str {
        match self {
            Self::Context => "context",
            Self::Modules => "modules",
            Self::Both => "context and modules",
        }
    }
}

/// Returns how a process value was obtained, in parentheses. Returns an empty text for other metrics.
pub(super) fn qualifier(run: &Run, metric: Metric) -> String {
    if metric != Metric::Process {
        return String::new();
    }
    if let Some(assumed) = AssumedOverhead::from_run(run) {
        return format!(" ({} assumed)", assumed.name());
    }
    let source = run
        .measurement
        .as_ref()
        .and_then(|measurement| measurement.process.as_ref());
    source.map_or_else(String::new, |source| {
        let interval = milliseconds(Duration::from_micros(source.interval_us));
        match source.of {
            ProcessOf::Process => format!(" (polled every {interval}, a lower bound)"),
            ProcessOf::Device => format!(" (whole GPU minus memory used before, polled every {interval})"),
        }
    })
}

/// Returns why an exceeded limit of process memory only warns, and what to do. Returns `None` if the context size is
/// known.
///
/// An assumed size of the loaded kernels alone is not a reason: it is assumed on every GPU, and small beside the
/// context.
pub(super) fn advice(run: &Run) -> Option<String> {
    AssumedOverhead::from_run(run).filter(|assumed| *assumed != AssumedOverhead::Modules)?;
    let gpu = &run.gpu.id;
    Some(format!(
        "this is only a warning because nobody measured the CUDA context on `{gpu}`: run `cargo vram check` on that \
         GPU, or set `context` in `gpu_profiles`"
    ))
}
