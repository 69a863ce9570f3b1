//! Checks that a model did the work that its run claims: work on the GPU in each step, and each phase of a training
//! step.

use std::collections::{BTreeMap, BTreeSet};

use super::epochs;
use super::process::PassOutput;
use crate::protocol::{Phase, ProbeEvent};
use crate::report::{ErrorCode, RunError};

/// The work of one phase of one step on one GPU.
#[derive(Debug, Default, Clone, Copy, PartialEq, Eq)]
pub(super) struct PhaseWork {
    pub(super) live_peak: u64,
    pub(super) live_end: u64,
    pub(super) in_use_end: u64,
    pub(super) launches: u64,
    kernels: u64,
}

impl PhaseWork {
    /// Whether both phases launched the same number of kernels with the same names.
    pub(super) fn launched(&self, other: &Self) -> bool {
        (self.launches, self.kernels) == (other.launches, other.kernels)
    }
}

/// A position in a run: the step (`None` before the first step), the phase and the GPU.
pub(super) type WorkPosition = (Option<u32>, Phase, u32);

/// Returns the work of an observed pass by position. The result is empty if the pass was not observed.
pub(super) fn seen(left: &PassOutput) -> BTreeMap<WorkPosition, PhaseWork> {
    let mut all = BTreeMap::new();
    for event in &left.events {
        if let ProbeEvent::Seen {
            gpu,
            step,
            phase,
            live_peak,
            live_end,
            in_use_end,
            launches,
            kernels,
        } = event
        {
            // The last event for a position counts, because a process that panics reports what it had seen until then.
            all.insert(
                (*step, *phase, *gpu),
                PhaseWork {
                    live_peak: *live_peak,
                    live_end: *live_end,
                    in_use_end: *in_use_end,
                    launches: *launches,
                    kernels: *kernels,
                },
            );
        }
    }
    all
}

/// Returns the error if a complete pass did no work on the GPU, or not the work of a training step.
pub(super) fn missing(left: &PassOutput) -> Option<RunError> {
    let error = |message: String, help: &str| {
        Some(RunError {
            code: ErrorCode::NoWork,
            message: message.into(),
            help: Some(help.into()),
        })
    };
    let no_bytes = left.record.gpus.iter().all(|held| held.peak.0 == 0);
    if left.record.launches == 0 || no_bytes {
        let what = if no_bytes {
            "holds no memory"
        } else {
            "launches no kernel"
        };
        return error(
            format!("the model never uses the GPU: it {what} there"),
            "create the model's tensors on the device that the model receives (`run.device()`, or the device of \
             `model` and `batch`)",
        );
    }
    let seen = seen(left);
    // Only observed passes report the work of each phase.
    if seen.is_empty() {
        return None;
    }
    let launches = |is_meant: &dyn Fn(&WorkPosition) -> bool| -> u64 {
        let meant = seen.iter().filter(|(place, _)| is_meant(place));
        meant.map(|(_, work)| work.launches).sum()
    };
    // A model can skip work, for example when its data ends, and still report the step.
    // See docs/design/complete-runs.md.
    let wanted_epochs = epochs::wanted(&left.events);
    let steps = match wanted_epochs {
        Some(_) => epochs::finished(&left.events).1,
        None => left.steps,
    };
    // The batch of a step of an epoch is work of the data loader.
    let is_work = |phase: Phase| wanted_epochs.is_none() || phase != Phase::Batch;
    // A validation that counts as one step may have no data.
    let may_be_idle = |number: u32| epochs::is_whole_validation(&left.events, number);
    let idle = (0..steps).find(|number| {
        launches(&|(step, phase, _)| *step == Some(*number) && is_work(*phase)) == 0 && !may_be_idle(*number)
    });
    if let Some(step) = idle {
        return error(
            format!("step {step} of {steps} launches no kernel (steps count from 0)"),
            "do the model's whole work in each step; if a step leaves its work to the next one, read the step's \
             result (`into_data`)",
        );
    }
    // The program runs the steps, so the probe does not know where their phases begin.
    if wanted_epochs.is_some() {
        return None;
    }
    let begins = |wanted: Phase| {
        let phases = left.events.iter();
        phases
            .filter(|event| matches!(event, ProbeEvent::Phase { phase, .. } if *phase == wanted))
            .count()
            > 0
    };
    let is_free_form = left.events.iter().any(|event| matches!(event, ProbeEvent::FreeForm));
    for phase in [Phase::Backward, Phase::Optimizer] {
        // Burn's own `TrainStep` runs forward and backward in one call, so the probe cannot mark the backward phase.
        let is_within_forward = phase == Phase::Backward && !is_free_form && !begins(phase);
        // One launch in any step is enough here. How many steps learn is judged later, in `rarely_learns`.
        if !left.trains || is_within_forward || launches(&|(_, at, _)| *at == phase) > 0 {
            continue;
        }
        let name = match phase {
            Phase::Backward => "backward",
            _ => "optimizer",
        };
        let marked = begins(phase);
        return match (is_free_form, marked) {
            (true, false) => error(
                format!("the model trains, but its loop never begins the {name} phase"),
                "mark each phase of a hand-written loop: `step.phase(Phase::Forward)` before the forward pass, \
                 `step.phase(Phase::Backward)` before `backward()`, `step.phase(Phase::Optimizer)` before the \
                 optimizer's step. If a check of the loss skips a phase: the values that a model reads from a \
                 virtual GPU are zeros. Declare a model without gradients as `Run<B, Infer>`",
            ),
            _ => error(
                format!("the model trains, but launches no kernel in any {name} phase"),
                "look for code that skips this phase, such as a check of the loss: the values that a model reads \
                 from a virtual GPU are zeros, which `is_finite` accepts and `is_normal` does not",
            ),
        };
    }
    None
}

/// Returns the error if a training model did not learn in most of its steps, although the pass is complete.
///
/// If values that the model reads decide that, the second warm pass shows it.
pub(super) fn rarely_learns(left: &PassOutput) -> Option<RunError> {
    let seen = seen(left);
    if !left.trains || seen.is_empty() || epochs::wanted(&left.events).is_some() {
        return None;
    }
    // A model with Burn's own `TrainStep` has no backward phase, but an optimizer phase in each step.
    let is_backward = |event: &ProbeEvent| {
        matches!(
            event,
            ProbeEvent::Phase {
                phase: Phase::Backward,
                ..
            }
        )
    };
    let (phase, name) = match left.events.iter().any(is_backward) {
        true => (Phase::Backward, "backward"),
        false => (Phase::Optimizer, "optimizer"),
    };
    let learned: BTreeSet<u32> = seen
        .iter()
        .filter(|((_, at, _), work)| *at == phase && work.launches > 0)
        .filter_map(|((step, ..), _)| *step)
        .collect();
    let learned = u32::try_from(learned.len()).unwrap_or(u32::MAX);
    (learned.saturating_mul(2) < left.steps).then(|| RunError {
        code: ErrorCode::NoWork,
        message: format!(
            "the model trains in only {learned} of {} steps: the others launch no kernel in a {name} phase",
            left.steps
        )
        .into(),
        help: Some(
            "do the model's whole work in each step: check whether it runs out of batches or stops early".into(),
        ),
    })
}
