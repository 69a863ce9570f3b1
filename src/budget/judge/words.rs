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

/// The part of an estimated process figure that nobody has measured or stated; nothing in a measurement.
fn assumed(run: &Run) -> Option<&'static str> {
    if run.mode == Mode::Measure {
        return None;
    }
    let is_assumed = |outside: &Option<Outside>| {
        outside
            .as_ref()
            .is_some_and(|outside| outside.obtained == Obtained::Assumed)
    };
    // A report from before these were told apart has sentences alone.
    let unknown = run.gpu.context.is_none() && run.gpu.modules.is_none();
    let in_words = || {
        run.assumptions
            .iter()
            .any(|sentence| sentence.to_lowercase().contains("context"))
    };
    match (is_assumed(&run.gpu.context), is_assumed(&run.gpu.modules)) {
        (true, true) => Some("context and modules"),
        (true, false) => Some("context"),
        (false, true) => Some("modules"),
        (false, false) => (unknown && in_words()).then_some("context"),
    }
}

/// What a person should know of a figure before it is compared, in brackets; nothing for most.
pub(super) fn qualifier(run: &Run, metric: Metric) -> String {
    if metric != Metric::Process {
        return String::new();
    }
    if let Some(assumed) = assumed(run) {
        return format!(" ({assumed} assumed)");
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
    assumed(run).filter(|assumed| assumed.starts_with("context"))?;
    let gpu = &run.gpu.id;
    Some(format!(
        "only a warning, because nobody has measured its context on `{gpu}`: measure there, or state its `context:` in gpu_profiles"
    ))
}
