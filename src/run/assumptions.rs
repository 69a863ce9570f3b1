//! Lists the assumptions that the values of a run depend on.

use super::case::Case;
use super::collected::{Collected, Passes};
use super::epochs;
use super::hardware::Hardware;
use super::outcome::done;
use super::pass_difference::PassDifference;
use super::process::PassOutput;
use super::record::Record;
use super::reported::{device_reads, is_free_form};
use super::varying;
use crate::bytes::Bytes;
use crate::protocol::{Float, Inside, OtherThreads};
use crate::report::Assumption;

/// Returns both reserved peaks of the first GPU whose peak differs between two passes.
fn differing(one: &Record, other: &Record) -> Option<(Bytes, Bytes)> {
    let count = one.gpus.len().max(other.gpus.len());
    let peaks = (0..).take(count).map(|gpu| (one.gpu(gpu).peak, other.gpu(gpu).peak));
    peaks.into_iter().find(|(one, other)| one != other)
}

/// Lists the assumptions that the values depend on.
pub(super) fn assumptions(
    case: &Case,
    hardware: &Hardware,
    collected: &Collected,
    cold: Option<&PassOutput>,
    warm: Option<&PassOutput>,
    traced: Option<&PassOutput>,
    by_threads: Option<Assumption>,
) -> Vec<Assumption> {
    let passes: Vec<&PassOutput> = [cold, warm, traced].into_iter().flatten().collect();
    let mut list = match hardware {
        Hardware::Virtual => case.profile.assumptions(),
        Hardware::Real(_) => Vec::new(),
    };
    if case.what_if.dtype.is_some_and(Float::is_mixed) {
        list.push(Assumption::MixedPrecision);
    }
    list.extend(of_autotune(case, collected, cold));
    list.extend(of_other_values(collected));
    if let Some(count @ 1..) = passes.iter().map(|left| left.record.helpers.len()).max() {
        list.push(Assumption::HelperProcesses { count });
    }
    let Passes {
        cold: first,
        warm: second,
        traced: third,
        other,
    } = &collected.passes;
    let mut all = [first, second, third, other].into_iter().flatten().flatten();
    // Without their number, which may differ from run to run.
    if all.any(|left| left.ended.is_outlived) {
        list.push(Assumption::ProcessesLeft);
    }
    if traced.or(cold).is_some_and(is_free_form) {
        list.push(Assumption::HandWrittenStep);
    }
    let of_events = warm.or(cold).map_or(&[][..], |left| &left.events);
    let threads = epochs::threads(of_events);
    let several = varying::ranges(of_events)
        .into_iter()
        .flatten()
        .filter(|(_, range)| range.declared > 1);
    list.extend(several.map(|(input, range)| Assumption::SizesSampled {
        input: input.as_str().into(),
        tried: range.tried,
        declared: range.declared,
    }));
    // A measurement waits for no thread.
    if threads != OtherThreads::None && matches!(hardware, Hardware::Virtual) {
        list.push(Assumption::ThreadsWait);
    }
    if threads == OtherThreads::Busy {
        list.push(Assumption::ThreadsBusy);
    }
    if epochs::is_logged(of_events) {
        list.push(Assumption::ValidationUnseen);
    }
    if let Some(loader) = epochs::tracked_validation(of_events) {
        list.push(Assumption::ValidationTracked { loader: loader.into() });
    }
    list.extend(by_threads);
    if passes.iter().any(|left| left.is_inside) {
        list.push(Assumption::ProgramOrder);
    }
    match [warm, traced].into_iter().flatten().find_map(|left| left.lines) {
        None | Some(Inside::All) => {}
        Some(Inside::Steps) => list.push(Assumption::NoLines { of_batches: true }),
        Some(Inside::Nothing) => list.push(Assumption::NoLines { of_batches: false }),
    }
    if let (Some(warm), Some(traced)) = (warm, traced)
        // The warm pass on a real GPU runs freely, and the traced one takes turns.
        // See docs/design/threads.md.
        && let Some((warm, traced)) = differing(&warm.record, &traced.record)
    {
        list.push(Assumption::ReservedDiffers { warm, traced });
    }
    if let Some(error) = passes.iter().find_map(|left| left.looks.as_ref()?.error.clone()) {
        list.push(Assumption::NvmlLost { error: error.into() });
    }
    let count = warm.map_or(0, device_reads);
    // Values from a real GPU are the real ones.
    if count > 0 && matches!(hardware, Hardware::Virtual) {
        list.push(Assumption::DeviceReads { count });
    }
    if passes.iter().any(|left| left.record.gpus.len() > 1) {
        list.push(Assumption::SeveralGpus);
    }
    if let Some(count @ 1..) = traced.and_then(done).map(|done| done.missed_samples) {
        list.push(Assumption::MissedSamples { count });
    }
    list
}

/// Lists the assumptions about autotune's choices.
fn of_autotune(case: &Case, collected: &Collected, cold: Option<&PassOutput>) -> Vec<Assumption> {
    let mut list = Vec::new();
    if let Some(recording) = &collected.recording
        && recording.gpu != case.profile.id
    {
        list.push(Assumption::RecordedOnOtherGpu {
            gpu: case.profile.id.as_str().into(),
            recorded_on: recording.gpu.as_str().into(),
            driver: recording.driver.clone(),
        });
    }
    let choices = collected.unplanned as u64;
    if choices > 0 {
        list.push(match cold.is_some_and(|cold| done(cold).is_none()) {
            true => Assumption::ColdPassEnded { choices },
            false => Assumption::ChosenLater { choices },
        });
    }
    list
}

/// Lists the assumptions that follow from the comparison with the second warm pass.
fn of_other_values(collected: &Collected) -> Vec<Assumption> {
    let Some(PassDifference::Nondeterministic(difference) | PassDifference::DataDependent(difference)) =
        &collected.disagreement
    else {
        return Vec::new();
    };
    let difference = difference.to_string().into();
    let mut list = vec![Assumption::PassesDiffer { difference }];
    let other = collected.passes.other.as_ref().and_then(|left| left.as_ref().ok());
    if other.is_some_and(|left| done(left).is_none()) {
        list.push(Assumption::OtherValuesUnfinished);
    }
    list
}
