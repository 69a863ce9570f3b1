//! Detects out of memory in a pass, in the four forms in which it appears.

use super::outcome::done;
use super::process::PassOutput;
use super::record::Record;
use crate::bytes::Bytes;
use crate::gpu::Profile;
use crate::protocol::{Phase, ProbeEvent};
use crate::report::{Foreign, Oom, Pass, RefusedTensor};

/// Part of autotune's message when every candidate failed.
const NO_CANDIDATE: &str = "Can't execute the autotune plan";

/// Returns the out of memory that ended a pass, or that the program did not notice.
pub(super) fn oom(pass: Pass, left: &PassOutput, profile: &Profile) -> Option<Oom> {
    let gpu = profile.available();
    // With one GPU, its number says nothing.
    let told = |on: u32| (left.record.gpus.len() > 1).then_some(on);
    // First a message with a size, because it names the moment exactly.
    // See docs/design/burn-0_22-failures.md.
    let mut refused_candidate = None;
    let panic = left.events.iter().find_map(|event| match event {
        ProbeEvent::Panic {
            tuning,
            message,
            gpu: on,
            step,
            phase,
            kernel,
            live,
            ..
        }
        | ProbeEvent::Failed {
            tuning,
            message,
            gpu: on,
            step,
            phase,
            kernel,
            live,
            ..
        } => {
            let bytes = too_big(message);
            if *tuning {
                // A failure of a candidate is not an error: autotune does not choose that candidate.
                refused_candidate = bytes.or(refused_candidate);
                return None;
            }
            // If all candidates failed, autotune's own message has no size: use the size that a candidate could not
            // get.
            let bytes = bytes.or(refused_candidate.filter(|_| message.contains(NO_CANDIDATE)))?;
            // Burn continues after a failure, so its time matters. After a panic the process ends soon.
            let time = match event {
                ProbeEvent::Failed { time, .. } => Some(*time),
                _ => None,
            };
            Some((bytes, *on, *step, *phase, kernel.clone(), *live, time))
        }
        _ => None,
    });
    if let Some((bytes, on, step, phase, kernel, live, time)) = panic {
        // Burn does not ask the driver for a tensor that is larger than any page of its allocator.
        let mut refusals = left
            .record
            .refusals
            .iter()
            .rev()
            .filter(|refusal| on.is_none_or(|on| on == refusal.gpu));
        // The size connects both. Other refusals may be of candidates, or of tries that succeeded later.
        let refusal = refusals.find(|refusal| refusal.last_resort && refusal.requested.0 == bytes);
        // A panic on a thread of the program has no GPU number, but the driver's refusal has one.
        let on = on.or(refusal.map(|refusal| refusal.gpu)).unwrap_or(0);
        // The source line is unknown here: the panic is on a thread of Burn, long after the program's call returned.
        let largest = profile.largest_tensor();
        let tensor = (refusal.is_none() && Bytes(bytes) > largest).then(|| RefusedTensor {
            largest,
            ..RefusedTensor::default()
        });
        let held = left.record.gpu(on);
        let reserved = match (refusal, time) {
            (Some(refusal), _) => refusal.reserved,
            (None, Some(time)) => held.at(time),
            (None, None) => held.end,
        };
        return Some(Oom {
            pass,
            gpu_number: told(on),
            step,
            phase: Some(phase),
            kernel: kernel
                .or_else(|| refusal.and_then(|refusal| refusal.kernel.clone()))
                .map(Foreign::from),
            requested: Some(Bytes(bytes)),
            function: None,
            reserved,
            live: live.map(Bytes),
            available: refusal.map_or(gpu.saturating_sub(reserved), |refusal| refusal.available),
            tensor,
        });
    }
    // A launch fails if its tensor got no memory. Its message has no size, so take the size from the driver's last
    // refusal.
    let failed = left.events.iter().find_map(|event| match event {
        ProbeEvent::Failed {
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
            gpu_number: told(refusal.gpu),
            step,
            phase,
            kernel: kernel.or_else(|| refusal.kernel.clone()).map(Foreign::from),
            requested: Some(refusal.requested),
            function: None,
            reserved: refusal.reserved,
            live,
            available: refusal.available,
            tensor: None,
        });
    }
    // A refusal without a panic: in a cold pass it belongs to an autotune candidate, so look only at the other passes.
    // Look at all processes of the model, because a helper process may continue without the memory.
    let refused = left.record.all().find_map(Record::last_refusal);
    if let Some(refusal) = refused.filter(|_| pass != Pass::Cold && recovered(left) == 0) {
        let (step, phase) = moment(left, Some(refusal.gpu), refusal.time);
        return Some(Oom {
            pass,
            gpu_number: told(refusal.gpu),
            step,
            phase,
            kernel: refusal.kernel.clone().map(Foreign::from),
            requested: Some(refusal.requested),
            function: None,
            reserved: refusal.reserved,
            live: None,
            available: refusal.available,
            tensor: None,
        });
    }
    // The driver needs memory for itself, too: for a kernel's code or a launch. In a complete cold pass, such a failure
    // belongs to an autotune candidate.
    let mut errors = left.record.all().flat_map(|record| &record.errors);
    let call = errors.find(|call| call.is_out_of_memory())?;
    if pass == Pass::Cold && done(left).is_some() {
        return None;
    }
    let (step, phase) = moment(left, None, call.time);
    Some(Oom {
        pass,
        gpu_number: None,
        step,
        phase,
        kernel: None,
        requested: None,
        function: Some(call.function.as_str().into()),
        reserved: call.reserved,
        live: None,
        available: gpu.saturating_sub(call.reserved),
        tensor: None,
    })
}

/// Returns the number of refused allocations if the program recovered from all of them, otherwise 0.
///
/// Burn 0.22 frees memory after a refusal and tries the allocation a second time. If the driver also refused a second
/// try, there are more refusals than second tries.
pub(super) fn recovered(left: &PassOutput) -> u64 {
    let own = left
        .record
        .refusals
        .iter()
        .filter(|refusal| refusal.last_resort)
        .count() as u64;
    let helpers = left.record.helpers.iter().any(|helper| helper.last_refusal().is_some());
    match done(left).and_then(|done| done.retried) {
        // Nobody counts second tries in a helper process, so its refusals are never known to be recovered.
        Some(retried) if own <= retried && !helpers => own,
        _ => 0,
    }
}

/// Parses the bytes that Burn's allocator could not allocate from a panic message.
///
/// Knows the `Display` and `Debug` forms of the error: `can't allocate buffer of size: 7516192768` and
/// `BufferTooBig { size: 7516192768, …`. Burn 0.22 writes `out of device memory allocating 7516192768 bytes` and
/// `OutOfMemory { size: 7516192768, …`.
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

/// Returns the step and phase that a GPU had reached at a time, or any GPU if `on` is `None`.
fn moment(left: &PassOutput, on: Option<u32>, time: u64) -> (Option<u32>, Option<Phase>) {
    let mut at = (None, Some(Phase::Context));
    for event in &left.events {
        if let ProbeEvent::Phase {
            gpu,
            time: began,
            step,
            phase,
        } = event
            && *began <= time
            && on.is_none_or(|on| on == *gpu)
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
