//! Compares two passes of a model: every allocation and every launch must be equal.

use std::collections::BTreeMap;

use super::case::Case;
use super::process::PassOutput;
use super::{epochs, gpu_work};
use crate::bytes::Bytes;
use crate::protocol::{Phase, ProbeEvent};
use crate::report::words::counted;
use crate::report::{ErrorCode, RunError};

/// The difference between two passes, as the end of a sentence whose subject is the model.
#[derive(Debug)]
pub(super) enum PassDifference {
    /// The passes differ although their conditions are equal.
    Nondeterministic(String),
    /// The passes differ only if the model reads other values from the GPU.
    DataDependent(String),
}

impl PassDifference {
    /// Returns the error for the run, unless the budget allows the difference, or threads of the program cause it.
    pub(super) fn error(&self, case: &Case, has_threads: bool) -> Option<RunError> {
        let (code, message, help) = match self {
            Self::Nondeterministic(_) if case.allowed.nondeterministic || has_threads => return None,
            Self::Nondeterministic(difference) => (
                ErrorCode::Nondeterministic,
                format!("the model is not deterministic: repeated with equal inputs, it {difference}"),
                "use fixed seeds and fixed sizes, so that the work is the same in every run; or write \
                 `nondeterministic: allowed` into the model's budget, so that `check --repeat N` checks the largest \
                 values of N runs",
            ),
            Self::DataDependent(_) if case.allowed.data_dependent => return None,
            Self::DataDependent(difference) => (
                ErrorCode::DataDependent,
                format!(
                    "the model's work depends on values that it reads from the GPU (zeros in the first pass, other \
                     values in the second): it {difference}"
                ),
                "make the work independent of these values, because an estimate cannot know them; or write \
                 `control_flow: data-dependent` into the model's budget, so that `check` takes the larger values of \
                 both passes",
            ),
        };
        Some(RunError {
            code,
            message: message.into(),
            help: Some(help.into()),
        })
    }
}

/// Returns the first difference between two passes, or `None` if they are equal.
///
/// The text is the end of a sentence whose subject is the model: `launches 12 kernels in the backward phase of step 2 in
/// the first pass, but 0 in the second`.
///
/// Compares allocations from the driver without their order. Even if each launch is waited for, either of two threads
/// of Burn may come first, and that does not change any sum.
pub(super) fn difference(one: &PassOutput, other: &PassOutput) -> Option<String> {
    // Phases first: allocations are compared without their order, so they do not tell where a difference
    // begins. See docs/design/passes.md.
    if let Some(phase) = phases(one, other) {
        return Some(phase);
    }
    let gpus = one.record.gpus.len().max(other.record.gpus.len());
    (0..u32::try_from(gpus).unwrap_or(u32::MAX)).find_map(|gpu| allocations(one, other, gpu))
}

/// Returns an allocation on a GPU that only one of the passes made, or a difference between their peaks.
fn allocations(one: &PassOutput, other: &PassOutput, gpu: u32) -> Option<String> {
    let (one_sizes, other_sizes) = (
        sizes(&one.record.gpu(gpu).changes),
        sizes(&other.record.gpu(gpu).changes),
    );
    let more = |these: &ReservedChanges, than: &ReservedChanges| {
        let count = |size: &i128| than.get(size).map_or(0, Vec::len);
        let found = these.iter().find(|(size, times)| times.len() > count(size));
        found.map(|(size, times)| (*size, times[times.len() - 1]))
    };
    let told = |left: &PassOutput, (size, time): (i128, u64), when: &str| {
        let what = if size < 0 { "gives back" } else { "reserves" };
        let bytes = Bytes(u64::try_from(size.unsigned_abs()).unwrap_or(u64::MAX));
        format!("{what} {bytes}{}{when}", place(phase_at(left, gpu, time)))
    };
    if let Some(extra) = more(&one_sizes, &other_sizes) {
        return Some(told(one, extra, " in the first pass only"));
    }
    if let Some(extra) = more(&other_sizes, &one_sizes) {
        return Some(told(other, extra, " in the second pass only"));
    }
    // In another order, the same allocations may hold more at once.
    let (peak, then) = (one.record.peak(gpu), other.record.peak(gpu));
    (peak != then).then(|| format!("reserves up to {peak} in the first pass, but {then} in the second"))
}

/// The changes of reserved memory in bytes, each with the times at which it happened.
type ReservedChanges = BTreeMap<i128, Vec<u64>>;

fn sizes(changes: &[(u64, Bytes)]) -> ReservedChanges {
    let mut sizes = ReservedChanges::new();
    let mut before = 0;
    for (time, bytes) in changes {
        // A change may be negative, and as large as a `u64`.
        let now = i128::from(bytes.0);
        sizes.entry(now - before).or_default().push(*time);
        before = now;
    }
    sizes
}

/// Whether two passes launched the same kernels in each phase of `one` before its last step.
///
/// The last step may differ: if no step follows, fusion launches some kernels later. So may a validation whose steps the
/// learner does not log: chance decides which of its operations fusion joins, and its end is not judged.
pub(super) fn is_same_work(one: &PassOutput, other: &PassOutput) -> bool {
    let events = &one.events;
    let (one, other) = (gpu_work::seen(one), gpu_work::seen(other));
    let last = one.keys().map(|(step, ..)| *step).max().flatten();
    let may_differ =
        |step: Option<u32>| step == last || step.is_some_and(|step| epochs::is_whole_validation(events, step));
    one.iter().all(|(place, work)| {
        let same = other.get(place);
        same.is_some_and(|same| may_differ(place.0) || same.launched(work))
    })
}

/// Returns the difference in the first phase in which the passes launched different kernels or held different memory.
fn phases(one: &PassOutput, other: &PassOutput) -> Option<String> {
    let (one, other) = (gpu_work::seen(one), gpu_work::seen(other));
    let places = one.keys().chain(other.keys());
    let differs = |place: &&gpu_work::WorkPosition| one.get(place) != other.get(place);
    let first = places.filter(differs).min()?;
    let of = |seen: &BTreeMap<_, gpu_work::PhaseWork>| seen.get(first).copied().unwrap_or_default();
    let (one, other) = (of(&one), of(&other));
    let at = place((first.0, Some(first.1)));
    Some(match () {
        // Launches first: other work explains other memory, but not the reverse.
        () if one.launches != other.launches => {
            format!(
                "launches {}{at} in the first pass, but {} in the second",
                counted(one.launches, "kernel"),
                other.launches
            )
        }
        () if one.live_peak != other.live_peak => format!(
            "holds up to {}{at} in the first pass, but {} in the second",
            Bytes(one.live_peak),
            Bytes(other.live_peak)
        ),
        () if (one.live_end, one.in_use_end) != (other.live_end, other.in_use_end) => {
            // The sizes may differ by less than their padding, so that live memory is equal but the requested bytes are
            // not.
            let shown = if one.live_end == other.live_end {
                (one.in_use_end, other.in_use_end)
            } else {
                (one.live_end, other.live_end)
            };
            format!(
                "holds {} at the end{} in the first pass, but {} in the second",
                Bytes(shown.0),
                at.replacen(" in", " of", 1),
                Bytes(shown.1)
            )
        }
        () => format!(
            "launches {}{at} in both passes, but not the same ones",
            counted(one.launches, "kernel")
        ),
    })
}

/// Formats a position: ` in the backward phase of step 2`.
fn place((step, phase): (Option<u32>, Option<Phase>)) -> String {
    let Some(phase) = phase else { return String::new() };
    let phase = crate::report::words::phase_name(phase);
    match step {
        Some(step) => format!(" in the {phase} phase of step {step}"),
        None => format!(" in the {phase} phase, before the first step"),
    }
}

fn phase_at(left: &PassOutput, of: u32, time: u64) -> (Option<u32>, Option<Phase>) {
    let mut at = (None, None);
    for event in &left.events {
        if let ProbeEvent::Phase {
            gpu,
            time: began,
            step,
            phase,
        } = event
            && *gpu == of
            && *began <= time
        {
            at = (*step, Some(*phase));
        }
    }
    at
}
