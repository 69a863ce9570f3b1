//! Whether a model did what a run of it claims: work on the GPU in each step, and each phase of a training.

use std::collections::{BTreeMap, BTreeSet};

use super::process::Left;
use crate::protocol::{Event, Phase};
use crate::report::{ErrorCode, RunError};

/// What was seen of one phase of one step, on one GPU.
#[derive(Debug, Default, Clone, Copy, PartialEq, Eq)]
pub(super) struct PhaseWork {
    pub(super) live_peak: u64,
    pub(super) live_end: u64,
    pub(super) in_use_end: u64,
    pub(super) launches: u64,
    kernels: u64,
}

impl PhaseWork {
    /// Whether as many of the same kernels were launched.
    pub(super) fn launched(&self, other: &Self) -> bool {
        (self.launches, self.kernels) == (other.launches, other.kernels)
    }
}

/// Where in a run something was seen: the step, absent before the first; the phase; and the GPU.
pub(super) type Place = (Option<u32>, Phase, u32);

/// What an observed pass saw, in order of time.
pub(super) fn seen(left: &Left) -> BTreeMap<Place, PhaseWork> {
    let mut all = BTreeMap::new();
    for event in &left.events {
        if let Event::Seen {
            card,
            step,
            phase,
            live_peak,
            live_end,
            in_use_end,
            launches,
            kernels,
        } = event
        {
            // The last one counts: a process that panics writes what it had seen until then.
            all.insert(
                (*step, *phase, *card),
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

/// Why a pass that was run to its end shows nothing of the model: it did no work on the GPU, or not that of a training.
pub(super) fn missing(left: &Left) -> Option<RunError> {
    let error = |message: String, help: &str| {
        Some(RunError {
            code: ErrorCode::NoWork,
            message,
            help: Some(help.into()),
        })
    };
    let no_bytes = left.record.cards.iter().all(|held| held.peak.0 == 0);
    if left.record.launches == 0 || no_bytes {
        let what = if no_bytes {
            "holds no memory"
        } else {
            "launches no kernel"
        };
        return error(
            format!("the model never uses the GPU: it {what} there"),
            "see whether its tensors are made on the device that it is handed (`run.device()`, or the one in `model` and `batch`)",
        );
    }
    let seen = seen(left);
    // Only passes that are observed tell more.
    if seen.is_empty() {
        return None;
    }
    let launches = |is_meant: &dyn Fn(&Place) -> bool| -> u64 {
        let meant = seen.iter().filter(|(place, _)| is_meant(place));
        meant.map(|(_, work)| work.launches).sum()
    };
    let idle = (0..left.steps).find(|number| launches(&|(step, ..)| *step == Some(*number)) == 0);
    if let Some(step) = idle {
        return error(
            format!("step {step} launches no kernel, of {} steps counted from 0", left.steps),
            "each step must do the model's whole work; where a step only leaves work to the next one, read its result (`into_data`)",
        );
    }
    let begins = |wanted: Phase| {
        let phases = left.events.iter();
        phases
            .filter(|event| matches!(event, Event::Phase { phase, .. } if *phase == wanted))
            .count()
            > 0
    };
    let is_free_form = left.events.iter().any(|event| matches!(event, Event::FreeForm));
    for phase in [Phase::Backward, Phase::Optimizer] {
        // Burn's own `TrainStep` runs forward and backward in one call, with nothing between to mark.
        let is_within_forward = phase == Phase::Backward && !is_free_form && !begins(phase);
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
                format!("the model is a training, and its loop never begins the {name} phase"),
                "mark each phase of a loop written by hand: `step.phase(Phase::Forward)` before the forward pass, \
                 `step.phase(Phase::Backward)` before `backward()`, `step.phase(Phase::Optimizer)` before the optimizer's \
                 step. Where a check of the loss keeps a phase from running: values read back from a virtual GPU are zeros. \
                 Declare a model without gradients as `Run<B, Infer>`",
            ),
            _ => error(
                format!("the model is a training, and launches no kernel in any {name} phase"),
                "see whether something keeps this phase from running, such as a check of the loss: values read back from a \
                 virtual GPU are zeros, which `is_finite` takes and `is_normal` does not",
            ),
        };
    }
    None
}

/// Why a training that was run to its end is none: most of its steps learn nothing. Where values that the model reads decide
/// that, other passes show it.
pub(super) fn rarely_learns(left: &Left) -> Option<RunError> {
    let seen = seen(left);
    if !left.trains || seen.is_empty() {
        return None;
    }
    // Where a model does not mark the backward phase, Burn's own `TrainStep` has an optimizer's in each step.
    let is_backward = |event: &Event| {
        matches!(
            event,
            Event::Phase {
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
            "the model is a training, and learns in {learned} of {} steps: the others launch no kernel in a {name} phase",
            left.steps
        ),
        help: Some("each step must do the model's whole work: see whether it runs out of batches, or stops early".into()),
    })
}
