//! The words that verdicts are made of.

use std::time::Duration;

use crate::report::words::{milliseconds, pass_name};
use crate::report::{Metric, Mode, Obtained, Oom, Outside, Phase, ProcessOf, Run};

const fn phase_name(phase: Phase) -> &'static str {
    match phase {
        Phase::Context => "before the model",
        Phase::Model => "making the model",
        Phase::Batch => "batch",
        Phase::Forward => "forward",
        Phase::Backward => "backward",
        Phase::Optimizer => "optimizer",
    }
}

/// Where the memory ran out: `in the warm pass of step 1, optimizer`.
pub(super) fn place(oom: &Oom) -> String {
    let step = oom.step.map(|step| format!(" of step {step}")).unwrap_or_default();
    let phase = oom
        .phase
        .map(|phase| format!(", {}", phase_name(phase)))
        .unwrap_or_default();
    format!("in the {} pass{step}{phase}", pass_name(oom.pass))
}

/// Why a run has no end, if it has none.
pub(super) fn ended_early(run: &Run) -> Option<String> {
    run.error
        .as_ref()
        .map(|error| format!("run ended early (`{}`)", error.code))
}

/// The part of an estimated process figure that nobody has measured or documented.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum AssumedOverhead {
    Context,
    Modules,
    Both,
}

impl AssumedOverhead {
    /// Nothing in a measurement.
    fn of(run: &Run) -> Option<Self> {
        let is_assumed = |overhead: &Option<Outside>| {
            let obtained = overhead.as_ref().map(|overhead| overhead.obtained);
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

/// What a person should know of a figure before it is compared, in brackets; nothing for most.
pub(super) fn qualifier(run: &Run, metric: Metric) -> String {
    if metric != Metric::Process {
        return String::new();
    }
    if let Some(assumed) = AssumedOverhead::of(run) {
        return format!(" ({} assumed)", assumed.name());
    }
    let source = run
        .measurement
        .as_ref()
        .and_then(|measurement| measurement.process.as_ref());
    source.map_or_else(String::new, |source| {
        let interval = milliseconds(Duration::from_micros(source.interval_us));
        match source.of {
            ProcessOf::Process => format!(" (polled every {interval}: a lower bound)"),
            ProcessOf::Device => format!(" (the whole device less what it held before, polled every {interval})"),
        }
    })
}

/// What makes a judgement possible that only warns: absent where the context is known. Loaded kernels are assumed on every
/// card, and take little beside it.
pub(super) fn advice(run: &Run) -> Option<String> {
    AssumedOverhead::of(run).filter(|assumed| *assumed != AssumedOverhead::Modules)?;
    let gpu = &run.gpu.id;
    Some(format!(
        "only a warning, because nobody has measured its context on `{gpu}`: measure there, or state its `context:` in gpu_profiles"
    ))
}
