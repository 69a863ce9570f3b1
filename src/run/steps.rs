//! The steps and phases of a pass: when the device came to each, what was live, and what was reserved.

use super::process::Left;
use super::record::{Held, Record};
use crate::bytes::Bytes;
use crate::protocol::{Event, Phase};
use crate::report::{self, Pass, PhasePeaks, Step};

/// When the device came to each phase: nanoseconds of `CLOCK_MONOTONIC`.
fn began(events: &[Event], of: u32) -> Vec<(u64, Option<u32>, Phase)> {
    events
        .iter()
        .filter_map(|event| match event {
            Event::Phase {
                card,
                time,
                step,
                phase,
            } if *card == of => Some((*time, *step, *phase)),
            _ => None,
        })
        .collect()
}

/// Reserved in a phase, its most and its last. It is the driver's own account, between the moments at which this phase and
/// the next one began. A phase may begin more than once in a step; what is before all others begins with the process.
fn reserved_in(began: &[(u64, Option<u32>, Phase)], held: &Held, step: Option<u32>, phase: Phase) -> (Bytes, Bytes) {
    let starts = began
        .iter()
        .enumerate()
        .filter(|(_, (_, s, p))| (*s, *p) == (step, phase));
    let mut intervals: Vec<(u64, u64)> = starts
        .map(|(at, (from, ..))| (*from, began.get(at + 1).map_or(u64::MAX, |next| next.0)))
        .collect();
    if intervals.is_empty() {
        match began.last() {
            // The device never came to it: what there was at the end was there.
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

/// Adds a phase to its step. A process that died wrote what it had seen, and may have written it twice.
fn add(steps: &mut Vec<Step>, pass: Pass, step: Option<u32>, peaks: PhasePeaks) {
    // What comes before the first step belongs to it.
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

/// Of two cards, what the one holds that holds more, phase by phase.
pub(super) fn fullest(mut one: Vec<Step>, other: Vec<Step>) -> Vec<Step> {
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

/// What an observed pass saw of a GPU, step by step.
pub(super) fn steps(left: &Left, of: u32) -> Vec<Step> {
    let began = began(&left.events, of);
    let held = left.record.card(of);
    let mut steps: Vec<Step> = Vec::new();
    for event in &left.events {
        let Event::Seen {
            card,
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
        if *card != of {
            continue;
        }
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

/// The phases of a cold pass, in which only what is reserved is known: live is 0 throughout.
pub(super) fn reserved_steps(events: &[Event], record: &Record) -> Vec<Step> {
    let began = began(events, 0);
    let mut steps: Vec<Step> = Vec::new();
    for (_, step, phase) in &began {
        let (reserved_peak, reserved_end) = reserved_in(&began, record.card(0), *step, *phase);
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

/// Whether what is live grows from step to step, on any GPU.
pub(super) fn grows(left: &Left) -> bool {
    let cards = u32::try_from(left.record.cards.len()).unwrap_or(u32::MAX);
    (0..cards).any(|card| report::grows(&steps(left, card)))
}
