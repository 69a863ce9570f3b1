//! The parts of the epochs of a pass, with their live and reserved memory.

use std::collections::BTreeSet;

use super::record::{HeldMemory, Record};
use crate::bytes::Bytes;
use crate::protocol::{EpochPart, OtherThreads, Phase, ProbeEvent};
use crate::report::{EpochMemory, EpochPhase, MorePages, Step};

/// Returns the number of epochs that a pass was to train for; `None` if the tool or the probe runs its steps.
pub(super) fn wanted(events: &[ProbeEvent]) -> Option<u32> {
    events.iter().find_map(|event| match event {
        ProbeEvent::Training { epochs, .. } => Some(*epochs),
        _ => None,
    })
}

/// Whether the tool sees the epochs only by the log of Burn's learner.
pub(super) fn is_logged(events: &[ProbeEvent]) -> bool {
    let is_logged = |event: &ProbeEvent| matches!(event, ProbeEvent::Training { is_logged: true, .. });
    events.iter().any(is_logged)
}

/// Whether the step with this number is a whole validation, because the learner logs none of its steps.
pub(super) fn is_whole_validation(events: &[ProbeEvent], number: u32) -> bool {
    is_logged(events) && is_of_validation(events, number)
}

/// Whether the step with this number is of a validation.
fn is_of_validation(events: &[ProbeEvent], number: u32) -> bool {
    events.iter().any(|event| match event {
        ProbeEvent::EpochEnd {
            part: EpochPart::Validation,
            first_step,
            steps,
            ..
        } => (*first_step..first_step.saturating_add(*steps)).contains(&number),
        _ => false,
    })
}

/// Returns the number of epochs that were trained to the end of the data of all their loaders, and of all steps.
pub(super) fn finished(events: &[ProbeEvent]) -> (usize, u32) {
    let (mut epochs, mut left) = (BTreeSet::new(), BTreeSet::new());
    let mut all = 0_u32;
    for event in events {
        if let ProbeEvent::EpochEnd {
            epoch,
            part,
            steps,
            is_complete,
            ..
        } = event
        {
            all = all.saturating_add(*steps);
            if *part == EpochPart::Training && !*is_complete {
                left.insert(*epoch);
            } else if *part == EpochPart::Training && *steps > 0 {
                epochs.insert(*epoch);
            }
        }
    }
    (epochs.difference(&left).count(), all)
}

/// Returns the epoch of the first validation that stopped before its data ended, and the program's line that passed its
/// data loader.
pub(super) fn unfinished_validation(events: &[ProbeEvent]) -> Option<(u32, &str)> {
    events.iter().find_map(|event| match event {
        ProbeEvent::EpochEnd {
            epoch,
            part: EpochPart::Validation,
            is_complete: false,
            is_end_seen: true,
            loader,
            ..
        } => Some((*epoch, loader.as_str())),
        _ => None,
    })
}

/// Returns the program's line that passed a data loader over which the training never iterated.
pub(super) fn unread_loader(events: &[ProbeEvent]) -> Option<&str> {
    events.iter().find_map(|event| match event {
        ProbeEvent::UnreadLoader { loader } => Some(loader.as_str()),
        _ => None,
    })
}

/// Returns the error because of which Burn's learner stopped.
pub(super) fn learner_error(events: &[ProbeEvent]) -> Option<&str> {
    events.iter().find_map(|event| match event {
        ProbeEvent::LearnerFailed { why } => Some(why.as_str()),
        _ => None,
    })
}

/// Whether more memory is in use after an epoch than after an earlier one, in any part.
pub(super) fn grows(events: &[ProbeEvent]) -> bool {
    let ends = |wanted: EpochPart| {
        let in_use = events.iter().filter_map(move |event| match event {
            ProbeEvent::EpochEnd { part, streams, .. } if *part == wanted => {
                Some(sum(streams.iter().map(|stream| stream.in_use)))
            }
            _ => None,
        });
        in_use.collect::<Vec<_>>()
    };
    [EpochPart::Training, EpochPart::Validation].into_iter().any(|part| {
        let ends = ends(part);
        ends.windows(2).any(|pair| pair[1] > pair[0])
    })
}

/// Returns what the training has seen of the program's other threads.
pub(super) fn threads(events: &[ProbeEvent]) -> OtherThreads {
    let seen = events.iter().filter_map(|event| match event {
        ProbeEvent::EpochEnd { threads, .. } => Some(*threads),
        _ => None,
    });
    seen.max().unwrap_or(OtherThreads::None)
}

/// Returns the program's line that passed the loader of a validation whose batches are on a backend with autodiff.
pub(super) fn tracked_validation(events: &[ProbeEvent]) -> Option<&str> {
    events.iter().find_map(|event| match event {
        ProbeEvent::EpochEnd {
            part: EpochPart::Validation,
            is_tracked: true,
            loader,
            ..
        } => Some(loader.as_str()),
        _ => None,
    })
}

/// Returns a sum that stays at the largest number instead of overflowing.
fn sum(numbers: impl Iterator<Item = u64>) -> Bytes {
    Bytes(numbers.fold(0, u64::saturating_add))
}

/// Returns the pages that a GPU has more at `to` than at `from`, the largest first.
fn more_pages(held: &HeldMemory, from: u64, to: u64) -> Vec<MorePages> {
    let blocks = held.more_blocks(from, to).into_iter().rev();
    let pages = blocks.map(|(size, count)| MorePages {
        size: Bytes(size),
        count,
    });
    pages.collect()
}

/// Returns the parts of all epochs on the first GPU. `steps` are the steps of the same pass.
pub(super) fn epochs(events: &[ProbeEvent], record: &Record, steps: &[Step]) -> Vec<EpochMemory> {
    let held = record.gpu(0);
    let ends: Vec<&ProbeEvent> = events
        .iter()
        .filter(|event| matches!(event, ProbeEvent::EpochEnd { .. }))
        .collect();
    let mut all = Vec::new();
    let mut known = BTreeSet::new();
    for (at, event) in ends.iter().enumerate() {
        let ProbeEvent::EpochEnd {
            epoch,
            part,
            began,
            time,
            first_step,
            steps: count,
            streams,
            loader,
            is_end_seen,
            ..
        } = *event
        else {
            continue;
        };
        let within = *first_step..first_step.saturating_add(*count);
        let live = |is_meant: &dyn Fn(Phase) -> bool| {
            let own = steps.iter().filter(|step| within.contains(&step.step));
            let phases = own.flat_map(|step| &step.phases);
            let meant = phases.filter(|phase| is_meant(phase.phase));
            meant.map(|phase| phase.live_peak).max().unwrap_or_default()
        };
        let holds = streams.iter().filter(|stream| stream.reserved > 0);
        let new: Vec<_> = holds.clone().filter(|stream| known.insert(stream.stream)).collect();
        let new_streams_reserved = sum(new.iter().map(|stream| stream.reserved));
        let (reserved_peak, reserved_end) = held.between(*began, *time);
        // The first part has what the program reserved before it.
        let since = if at == 0 { 0 } else { *began };
        let own = EpochMemory {
            epoch: *epoch,
            part: match part {
                EpochPart::Training => EpochPhase::Training,
                EpochPart::Validation => EpochPhase::Validation,
            },
            first_step: *first_step,
            steps: *count,
            is_end_seen: *is_end_seen,
            live_peak: live(&|phase| phase != Phase::Between),
            in_use_end: sum(streams.iter().map(|stream| stream.in_use)),
            reserved_peak,
            reserved_end,
            pages: more_pages(held, since, *time),
            streams: u32::try_from(holds.count()).unwrap_or(u32::MAX),
            new_streams: u32::try_from(new.len()).unwrap_or(u32::MAX),
            new_streams_reserved,
            loader: Some(loader.as_str().into()),
        };
        // The time between lasts until the next part begins.
        let until = match ends.get(at + 1) {
            Some(ProbeEvent::EpochEnd { began, .. }) => *began,
            _ => u64::MAX,
        };
        let (reserved_peak, reserved_end) = held.between(*time, until);
        let between = EpochMemory {
            part: EpochPhase::Between,
            steps: 0,
            live_peak: live(&|phase| phase == Phase::Between),
            reserved_peak,
            reserved_end,
            pages: more_pages(held, *time, until),
            new_streams: 0,
            new_streams_reserved: Bytes(0),
            loader: None,
            ..own.clone()
        };
        all.extend([own, between]);
    }
    all
}
