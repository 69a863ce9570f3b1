//! Tells whether a pass ended itself because it needs another setup.

use super::child::End;
use super::outcome::done;
use super::process::PassOutput;
use super::reported::is_free_form;
use crate::protocol::ProbeEvent;

/// Why a pass ended itself, so that the tool must start it again with another setup.
pub(super) enum RetryReason {
    /// The model's loop is written by hand, and the pass was not set up for that.
    FreeForm,
    /// Fusion ran something unexpected, so the trace would have a gap.
    Unforeseen,
    /// The model uploads tensors in an order that is certain only on fusion's thread.
    Uploads,
    /// The model makes no progress on fusion's thread.
    Stuck,
    /// The model has inputs that have another size in each step, which needs more steps.
    Ranges,
    /// The model asks for this number of GPUs.
    Gpus(u32),
}

/// Returns why a pass ended itself, or `None` if it did not.
pub(super) fn found(left: &PassOutput) -> Option<RetryReason> {
    // A pass that asks for another setup exits with code 0, and without its summary.
    if left.ended.end != End::Exited(0) || done(left).is_some() {
        return None;
    }
    let gpus = left.events.iter().find_map(|event| match event {
        ProbeEvent::Gpus { needed } => Some(RetryReason::Gpus(*needed)),
        _ => None,
    });
    if gpus.is_some() {
        return gpus;
    }
    if left.events.iter().any(|event| matches!(event, ProbeEvent::MoreSteps)) {
        return Some(RetryReason::Ranges);
    }
    if uploads(left) {
        return Some(RetryReason::Uploads);
    }
    if left.events.iter().any(|event| matches!(event, ProbeEvent::Stuck)) {
        return Some(RetryReason::Stuck);
    }
    let is_unforeseen = left.events.iter().any(|event| matches!(event, ProbeEvent::Unforeseen));
    let found = if is_unforeseen {
        RetryReason::Unforeseen
    } else {
        RetryReason::FreeForm
    };
    (is_unforeseen || is_free_form(left)).then_some(found)
}

fn uploads(left: &PassOutput) -> bool {
    left.events.iter().any(|event| matches!(event, ProbeEvent::Uploads))
}
