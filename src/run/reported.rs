//! Reads what the probe reported about the model in a pass.

use std::collections::BTreeMap;

use super::case::plain_inputs;
use super::epochs;
use super::outcome::done;
use super::process::PassOutput;
use crate::bytes::Bytes;
use crate::protocol::{BurnFeatures, OtherThreads, ProbeEvent};
use crate::report::{Parameters, Settling};
use crate::untrusted::PlainName;

/// Returns how many steps a pass ran, and whether the last two reserved nothing more.
///
/// Returns `None` if the pass ran a fixed number of steps.
pub(super) fn settling(left: &PassOutput) -> Option<Settling> {
    let done = done(left)?;
    Some(Settling {
        steps: done.steps,
        settled: done.settled?,
    })
}

/// Returns the number of values that the model itself read from the GPU.
///
/// Returns 0 for an incomplete pass, because it did not report how many values the probe read.
pub(super) fn device_reads(left: &PassOutput) -> u64 {
    done(left).map_or(0, |done| left.record.reads.saturating_sub(done.own_reads))
}

/// Returns the inputs that the model asked for, with their values.
pub(super) fn inputs(left: &PassOutput) -> Option<BTreeMap<PlainName, u64>> {
    left.events.iter().find_map(|event| match event {
        ProbeEvent::Inputs { values } | ProbeEvent::UnknownInput { known: values, .. } => Some(plain_inputs(values)),
        _ => None,
    })
}

/// Returns the features of Burn that the program was built with.
pub(super) fn features(left: &PassOutput) -> Option<BurnFeatures> {
    left.events.iter().find_map(|event| match event {
        ProbeEvent::Hello { features, .. } => *features,
        _ => None,
    })
}

pub(super) fn parameters(left: &PassOutput) -> Option<Parameters> {
    left.events.iter().find_map(|event| match event {
        ProbeEvent::Parameters {
            count,
            learnable,
            bytes,
        } => Some(Parameters {
            count: *count,
            learnable: *learnable,
            bytes: Bytes(*bytes),
        }),
        _ => None,
    })
}

/// Whether the program trains for epochs with threads of its own: workers of data loaders, and the metrics of a learner.
/// Chance decides in which order they use the GPU.
pub(super) fn has_threads(left: &PassOutput) -> bool {
    epochs::threads(&left.events) != OtherThreads::None
}

pub(super) fn is_free_form(left: &PassOutput) -> bool {
    left.events.iter().any(|event| matches!(event, ProbeEvent::FreeForm))
}
