//! The steps and phases of a pass: when the device reached each, with its live and reserved memory.

use super::process::PassOutput;
use super::record::{HeldMemory, Record};
use crate::bytes::Bytes;
use crate::protocol::{Phase, ProbeEvent};
use crate::report::{self, Pass, PhasePeaks, Step};

/// Lists when the GPU `of` began each phase, in nanoseconds of `CLOCK_MONOTONIC`.
fn began(events: &[ProbeEvent], of: u32) -> Vec<(u64, Option<u32>, Phase)> {
    events
        .iter()
        .filter_map(|event| match event {
            ProbeEvent::Phase { gpu, time, step, phase } if *gpu == of => Some((*time, *step, *phase)),
            _ => None,
        })
        .collect()
}

/// Returns the peak and the final value of reserved memory in a phase, from the driver's record.
///
/// A phase lasts until the next one begins. A phase may begin more than once in a step. The time before all phases
/// begins with the process.
fn reserved_in(
    began: &[(u64, Option<u32>, Phase)],
    held: &HeldMemory,
    step: Option<u32>,
    phase: Phase,
) -> (Bytes, Bytes) {
    let starts = began
        .iter()
        .enumerate()
        .filter(|(_, (_, s, p))| (*s, *p) == (step, phase));
    let mut intervals: Vec<(u64, u64)> = starts
        .map(|(at, (from, ..))| (*from, began.get(at + 1).map_or(u64::MAX, |next| next.0)))
        .collect();
    if intervals.is_empty() {
        match began.last() {
            // The device did not reach this phase: use the value at the end.
            Some((last, ..)) if phase != Phase::Context => {
                let (_, end) = held.between(*last, u64::MAX);
                return (end, end);
            }
            _ => intervals.push((0, began.first().map_or(u64::MAX, |first| first.0))),
        }
    }
    let (mut reserved_peak, mut reserved_end) = (Bytes(0), Bytes(0));
    for (from, to) in intervals {
        let (peak, end) = held.between(from, to);
        reserved_peak = reserved_peak.max(peak);
        reserved_end = end;
    }
    (reserved_peak, reserved_end)
}

/// Adds a phase to its step. Replaces a phase that is there, because a process that dies may report a phase twice.
fn add(steps: &mut Vec<Step>, pass: Pass, step: Option<u32>, peaks: PhasePeaks) {
    // Phases before the first step belong to the first step.
    let number = step.unwrap_or(0);
    match steps.iter_mut().find(|step| step.step == number) {
        Some(step) => match step.phases.iter_mut().find(|known| known.phase == peaks.phase) {
            Some(known) => *known = peaks,
            None => step.phases.push(peaks),
        },
        None => steps.push(Step {
            step: number,
            pass,
            phases: vec![peaks],
        }),
    }
}

/// Merges the steps of two GPUs: takes the larger of each value, phase by phase.
pub(super) fn fullest(mut one: Vec<Step>, other: Vec<Step>) -> Vec<Step> {
    // The run has the values of the GPU where they are highest. So budgets, baselines and diffs need not know
    // about GPUs. See docs/design/several-gpus.md.
    for step in other {
        let Some(same) = one.iter_mut().find(|known| known.step == step.step) else {
            one.push(step);
            continue;
        };
        for phase in step.phases {
            match same.phases.iter_mut().find(|known| known.phase == phase.phase) {
                Some(known) => {
                    known.live_peak = known.live_peak.max(phase.live_peak);
                    known.live_end = known.live_end.max(phase.live_end);
                    known.in_use_end = known.in_use_end.max(phase.in_use_end);
                    known.reserved_peak = known.reserved_peak.max(phase.reserved_peak);
                    known.reserved_end = known.reserved_end.max(phase.reserved_end);
                }
                None => same.phases.push(phase),
            }
        }
        same.phases.sort_by_key(|phase| phase.phase);
    }
    one.sort_by_key(|step| step.step);
    one
}

/// Returns the steps of an observed pass on one GPU.
pub(super) fn steps(left: &PassOutput, of: u32) -> Vec<Step> {
    let began = began(&left.events, of);
    let held = left.record.gpu(of);
    let mut steps: Vec<Step> = Vec::new();
    for event in &left.events {
        let ProbeEvent::Seen {
            gpu,
            step,
            phase,
            live_peak,
            live_end,
            in_use_end,
            ..
        } = event
        else {
            continue;
        };
        if *gpu != of {
            continue;
        }
        // Burn's own account is good for live memory only. Reserved memory comes from the driver.
        // See docs/design/phases.md.
        let (reserved_peak, reserved_end) = reserved_in(&began, held, *step, *phase);
        let peaks = PhasePeaks {
            phase: *phase,
            live_peak: Bytes(*live_peak),
            live_end: Bytes(*live_end),
            in_use_end: Some(Bytes(*in_use_end)),
            reserved_peak,
            reserved_end,
        };
        add(&mut steps, Pass::Traced, *step, peaks);
    }
    steps
}

/// Returns the steps of a cold pass on the first GPU. Only reserved memory is known there, so live memory is 0.
pub(super) fn reserved_steps(events: &[ProbeEvent], record: &Record) -> Vec<Step> {
    // Only explanations need these steps, and there are none of several GPUs yet.
    let began = began(events, 0);
    let mut steps: Vec<Step> = Vec::new();
    for (_, step, phase) in &began {
        let (reserved_peak, reserved_end) = reserved_in(&began, record.gpu(0), *step, *phase);
        let peaks = PhasePeaks {
            phase: *phase,
            live_peak: Bytes(0),
            live_end: Bytes(0),
            in_use_end: None,
            reserved_peak,
            reserved_end,
        };
        add(&mut steps, Pass::Cold, *step, peaks);
    }
    steps
}

/// Whether live memory grows from step to step on any GPU.
pub(super) fn grows(left: &PassOutput) -> bool {
    let gpus = u32::try_from(left.record.gpus.len()).unwrap_or(u32::MAX);
    (0..gpus).any(|gpu| report::grows(&steps(left, gpu)))
}
