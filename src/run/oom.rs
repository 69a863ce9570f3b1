//! Out of memory: the four ways in which it shows, and what is known of it.

use super::ending::done;
use super::process::Left;
use super::record::Record;
use crate::bytes::Bytes;
use crate::gpu::Profile;
use crate::protocol::{Event, Phase};
use crate::report::{Oom, Pass, RefusedTensor};

/// What autotune says when every candidate failed.
const NO_CANDIDATE: &str = "Can't execute the autotune plan";

/// The out of memory that ended a pass, or that the program did not notice.
pub(super) fn oom(pass: Pass, left: &Left, profile: &Profile) -> Option<Oom> {
    let card = profile.available();
    // Where there is one card, nobody asks which.
    let told = |on: u32| (left.record.cards.len() > 1).then_some(on);
    let mut refused_candidate = None;
    let panic = left.events.iter().find_map(|event| match event {
        Event::Panic {
            tuning,
            message,
            card: on,
            step,
            phase,
            kernel,
            live,
            ..
        }
        | Event::Failed {
            tuning,
            message,
            card: on,
            step,
            phase,
            kernel,
            live,
            ..
        } => {
            let bytes = too_big(message);
            if *tuning {
                // Inside an autotune candidate it is no error: the candidate is not chosen.
                refused_candidate = bytes.or(refused_candidate);
                return None;
            }
            // Unless none is left to choose.
            let bytes = bytes.or(refused_candidate.filter(|_| message.contains(NO_CANDIDATE)))?;
            // Burn goes on after a failure, and ends soon after a panic.
            let time = match event {
                Event::Failed { time, .. } => Some(*time),
                _ => None,
            };
            Some((bytes, *on, *step, *phase, kernel.clone(), *live, time))
        }
        _ => None,
    });
    if let Some((bytes, on, step, phase, kernel, live, time)) = panic {
        // A tensor larger than any page of Burn's allocator is never asked of the driver.
        let mut refusals = left
            .record
            .refusals
            .iter()
            .rev()
            .filter(|refusal| on.is_none_or(|on| on == refusal.card));
        let refusal = refusals.find(|refusal| refusal.last_resort && refusal.requested.0 == bytes);
        // A thread of the program's own tells of no card; what it could not get does.
        let on = on.or(refusal.map(|refusal| refusal.card)).unwrap_or(0);
        // Its line is unknown here: the panic is on a thread of Burn's, long after the program's call returned.
        let largest = profile.largest_tensor();
        let tensor = (refusal.is_none() && Bytes(bytes) > largest).then(|| RefusedTensor {
            largest,
            ..RefusedTensor::default()
        });
        let held = left.record.card(on);
        let reserved = match (refusal, time) {
            (Some(refusal), _) => refusal.reserved,
            (None, Some(time)) => held.at(time),
            (None, None) => held.end,
        };
        return Some(Oom {
            pass,
            card: told(on),
            step,
            phase: Some(phase),
            kernel: kernel.or_else(|| refusal.and_then(|refusal| refusal.kernel.clone())),
            requested: Some(Bytes(bytes)),
            function: None,
            reserved,
            live: live.map(Bytes),
            available: refusal.map_or(card.saturating_sub(reserved), |refusal| refusal.available),
            tensor,
        });
    }
    // A launch fails whose tensor got no memory, and says no more than that.
    let failed = left.events.iter().find_map(|event| match event {
        Event::Failed {
            tuning: false,
            step,
            phase,
            kernel,
            live,
            ..
        } => Some((*step, Some(*phase), kernel.clone(), live.map(Bytes))),
        _ => None,
    });
    if let (Some((step, phase, kernel, live)), Some(refusal)) = (failed, left.record.last_refusal()) {
        return Some(Oom {
            pass,
            card: told(refusal.card),
            step,
            phase,
            kernel: kernel.or_else(|| refusal.kernel.clone()),
            requested: Some(refusal.requested),
            function: None,
            reserved: refusal.reserved,
            live,
            available: refusal.available,
            tensor: None,
        });
    }
    // In a cold pass, a refusal that ended in no panic was one of a candidate.
    // Another process of the model may go on without what it was refused.
    let refused = left.record.all().find_map(Record::last_refusal);
    if let Some(refusal) = refused.filter(|_| pass != Pass::Cold && recovered(left) == 0) {
        let (step, phase) = moment(left, Some(refusal.card), refusal.time);
        return Some(Oom {
            pass,
            card: told(refusal.card),
            step,
            phase,
            kernel: refusal.kernel.clone(),
            requested: Some(refusal.requested),
            function: None,
            reserved: refusal.reserved,
            live: None,
            available: refusal.available,
            tensor: None,
        });
    }
    // What the driver needs for itself: a kernel's code, a launch. In a cold pass that may be a candidate's, too.
    let mut errors = left.record.all().flat_map(|record| &record.errors);
    let call = errors.find(|call| call.is_out_of_memory())?;
    if pass == Pass::Cold && done(left).is_some() {
        return None;
    }
    let (step, phase) = moment(left, None, call.time);
    Some(Oom {
        pass,
        card: None,
        step,
        phase,
        kernel: None,
        requested: None,
        function: Some(call.function.clone()),
        reserved: call.reserved,
        live: None,
        available: card.saturating_sub(call.reserved),
        tensor: None,
    })
}

/// How many refusals the program got over, where it got over all of them. Burn 0.22 frees memory after the first refusal of an
/// allocation and tries once more; were that refused, too, there would be more refusals than allocations tried twice.
pub(super) fn recovered(left: &Left) -> u64 {
    let own = left
        .record
        .refusals
        .iter()
        .filter(|refusal| refusal.last_resort)
        .count() as u64;
    let helpers = left.record.helpers.iter().any(|helper| helper.last_refusal().is_some());
    match done(left).and_then(|done| done.retried) {
        Some(retried) if own <= retried && !helpers => own,
        _ => 0,
    }
}

/// The bytes that Burn's allocator could not give, as its panics say, shown or debugged:
/// `can't allocate buffer of size: 7516192768`, `BufferTooBig { size: 7516192768, …`, and with Burn 0.22
/// `out of device memory allocating 7516192768 bytes`.
fn too_big(message: &str) -> Option<u64> {
    [
        "can't allocate buffer of size: ",
        "BufferTooBig { size: ",
        "out of device memory allocating ",
        "OutOfMemory { size: ",
    ]
    .iter()
    .find_map(|words| {
        let (_, rest) = message.split_once(words)?;
        rest.split(|c: char| !c.is_ascii_digit()).next()?.parse().ok()
    })
}

/// The step and phase that a card was at; any, where nobody knows which.
fn moment(left: &Left, on: Option<u32>, time: u64) -> (Option<u32>, Option<Phase>) {
    let mut at = (None, Some(Phase::Context));
    for event in &left.events {
        if let Event::Phase {
            card,
            time: began,
            step,
            phase,
        } = event
            && *began <= time
            && on.is_none_or(|on| on == *card)
        {
            at = (*step, Some(*phase));
        }
    }
    at
}

#[cfg(test)]
mod tests {
    use super::too_big;

    #[test]
    fn the_size_of_a_refused_buffer_is_read_from_the_panic() {
        let message = "called `Result::unwrap()` on an `Err` value: BufferTooBig { size: 7516192768, backtrace: … }";
        assert_eq!(too_big(message), Some(7_516_192_768));
        let message =
            "called `Result::unwrap()` on an `Err` value: can't allocate buffer of size: 1100021760\nNo backtrace";
        assert_eq!(too_big(message), Some(1_100_021_760));
        assert_eq!(
            too_big("out of device memory allocating 1048576 bytes"),
            Some(1_048_576)
        );
        assert_eq!(too_big("index out of bounds"), None);
    }
}
