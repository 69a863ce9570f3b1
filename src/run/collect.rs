//! Makes one run of the report from what its passes left behind.

use std::time::Duration;

use super::case::Case;
use super::code;
use super::ending::{self, done};
use super::oom::oom;
use super::process::Left;
use crate::bytes::Bytes;
use crate::protocol::{Event, Phase};
use crate::report::{Autotune, Gpu, Mode, Parameters, Pass, Peak, Peaks, PhasePeaks, Run, RunError, Step};

/// What the passes of a case left behind; absent where a pass was not tried.
#[derive(Debug, Default)]
pub(super) struct Passes {
    pub(super) cold: Option<std::io::Result<Left>>,
    pub(super) warm: Option<std::io::Result<Left>>,
    pub(super) traced: Option<std::io::Result<Left>>,
}

/// The passes, and what the plan of the later two rests on.
#[derive(Debug, Default)]
pub(super) struct Collected {
    pub(super) passes: Passes,
    pub(super) autotune: Autotune,
    /// Choices that the warm or the traced pass had to make because the plan lacked them.
    pub(super) unplanned: usize,
}

impl Collected {
    pub(super) fn first_only(cold: std::io::Result<Left>) -> Self {
        Self {
            passes: Passes {
                cold: Some(cold),
                ..Passes::default()
            },
            autotune: Autotune::default(),
            unplanned: 0,
        }
    }
}

/// Whether a first pass shows that no other one is worth its time: it failed for another reason than memory.
pub(super) fn is_hopeless(case: &Case, left: &Left) -> bool {
    ending::error(left).is_some() && oom(Pass::Cold, left, case.profile.available()).is_none()
}

/// Makes the run.
pub(super) fn run(case: &Case, collected: &Collected, took: Duration) -> Run {
    let passes = &collected.passes;
    let profile = &case.profile;
    let ran_out = |pass: Pass, left: &Left| oom(pass, left, profile.available());
    let all: Vec<(Pass, &std::io::Result<Left>)> = [
        (Pass::Cold, &passes.cold),
        (Pass::Warm, &passes.warm),
        (Pass::Traced, &passes.traced),
    ]
    .into_iter()
    .filter_map(|(pass, left)| left.as_ref().map(|left| (pass, left)))
    .collect();
    let left = |wanted: Pass| {
        all.iter()
            .find(|(pass, _)| *pass == wanted)
            .and_then(|(_, left)| left.as_ref().ok())
    };
    let (cold, warm, traced) = (left(Pass::Cold), left(Pass::Warm), left(Pass::Traced));
    let readable: Vec<(Pass, &Left)> = all
        .iter()
        .filter_map(|(pass, left)| left.as_ref().ok().map(|left| (*pass, left)))
        .collect();
    let oom = readable.iter().find_map(|(pass, left)| ran_out(*pass, left));
    // What a pass held that died on its way is no peak of the model's; what it held when the card was full is told.
    let out = oom.as_ref().map(|oom| oom.pass);
    let whole = |pass: Pass| {
        left(pass).filter(|left| out == Some(pass) || (ran_out(pass, left).is_none() && ending::error(left).is_none()))
    };
    let error = all.iter().find_map(|(pass, left)| match left {
        Err(error) => Some(RunError {
            code: code::NOT_STARTED.into(),
            message: format!("the {} pass could not be run: {error}", name(*pass)),
            help: Some("see whether the target folder is writable and the disk has room".into()),
        }),
        // An out of memory makes a program panic: that is a finding, not an error.
        Ok(left) if ran_out(*pass, left).is_some() => ending::error(left).filter(|error| !is_by_memory(&error.code)),
        Ok(left) => ending::error(left).or_else(|| driver_error(*pass, left)),
    });
    let outside = profile.total.value.saturating_sub(profile.available());
    let reserved = |left: Option<&Left>| {
        left.filter(|left| left.record.started)
            .map(|left| left.record.reserved_peak)
    };
    let peak = |left: Option<&Left>, live: Option<Bytes>| Peak {
        live,
        reserved: reserved(left),
        process: reserved(left).map(|bytes| Bytes(bytes.0.saturating_add(outside.0))),
    };
    let steps = traced.map(steps).unwrap_or_default();
    let live = whole(Pass::Traced)
        .and(Some(&steps))
        .into_iter()
        .flatten()
        .flat_map(|step| &step.phases)
        .map(|phase| phase.live_peak)
        .max();
    let some_pass = warm.or(traced).or(cold);
    Run {
        model: case.model.name.clone(),
        package: case.model.built.target.package.clone(),
        budget: case.budget.clone(),
        mode: Mode::Estimate,
        task: Some(case.model.task),
        burn: case.model.built.target.burn.clone(),
        inputs: readable
            .iter()
            .find_map(|(_, left)| inputs(left))
            .unwrap_or_else(|| case.inputs.clone()),
        gpu: Gpu {
            id: profile.id.clone(),
            name: profile.name.clone(),
            total_bytes: profile.total.value,
            available_bytes: profile.available(),
            driver: format!("virtual {}", env!("CARGO_PKG_VERSION")),
            context: Some(profile.context.outside()),
            modules: Some(profile.modules.outside()),
        },
        measurement: None,
        parameters: readable.iter().find_map(|(_, left)| parameters(left)),
        peaks: Peaks {
            warm: peak(whole(Pass::Warm), live),
            cold: peak(whole(Pass::Cold), None),
        },
        steps,
        oom,
        autotune: collected.autotune,
        streams: traced.and_then(done).map_or(0, |done| done.streams),
        device_reads: some_pass.map_or(0, device_reads),
        assumptions: assumptions(case, collected.unplanned, cold, whole(Pass::Warm), whole(Pass::Traced)),
        error,
        seconds: (took.as_secs_f64() * 1000.0).round() / 1000.0,
    }
}

/// Whether an early end is what running out of memory leads to.
fn is_by_memory(code: &str) -> bool {
    [code::PANICKED, code::EXITED, code::ABORTED].contains(&code)
}

/// A call that failed where the plan is replayed: nothing is tried there, so a kernel was not launched, or worse.
fn driver_error(pass: Pass, left: &Left) -> Option<RunError> {
    let failed = left.record.errors.first().filter(|_| pass != Pass::Cold)?;
    Some(RunError {
        code: code::DRIVER_ERROR.into(),
        message: format!("{} failed with error {} in the {} pass", failed.function, failed.code, name(pass)),
        help: Some("a real card would refuse it too, or the virtual one is wrong: its figures would be those of another program, so there are none".into()),
    })
}

fn name(pass: Pass) -> &'static str {
    match pass {
        Pass::Cold => "cold",
        Pass::Warm => "warm",
        Pass::Traced => "traced",
    }
}
/// Values that the model read back itself. A pass that did not end has not told how many it read for it.
fn device_reads(left: &Left) -> u64 {
    done(left).map_or(0, |done| left.record.reads.saturating_sub(done.own_reads))
}

fn inputs(left: &Left) -> Option<std::collections::BTreeMap<String, u64>> {
    left.events.iter().find_map(|event| match event {
        Event::Inputs { values } | Event::UnknownInput { known: values, .. } => Some(values.clone()),
        _ => None,
    })
}

fn parameters(left: &Left) -> Option<Parameters> {
    left.events.iter().find_map(|event| match event {
        Event::Parameters {
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
fn steps(left: &Left) -> Vec<Step> {
    let began: Vec<(u64, Option<u32>, Phase)> = left
        .events
        .iter()
        .filter_map(|event| match event {
            Event::Phase { time, step, phase } => Some((*time, *step, *phase)),
            _ => None,
        })
        .collect();
    let mut steps: Vec<Step> = Vec::new();
    for event in &left.events {
        let Event::Seen {
            step,
            phase,
            live_peak,
            live_end,
            ..
        } = event
        else {
            continue;
        };
        // Reserved is the driver's own account, between the moments at which this phase and the next one began. A
        // phase may begin more than once in a step; what is before all others begins with the process.
        let starts = began
            .iter()
            .enumerate()
            .filter(|(_, (_, s, p))| (s, p) == (step, phase));
        let mut intervals: Vec<(u64, u64)> = starts
            .map(|(at, (from, ..))| (*from, began.get(at + 1).map_or(u64::MAX, |next| next.0)))
            .collect();
        if intervals.is_empty() {
            intervals.push((0, began.first().map_or(u64::MAX, |first| first.0)));
        }
        let (mut reserved_peak, mut reserved_end) = (Bytes(0), Bytes(0));
        for (from, to) in intervals {
            let (peak, end) = left.record.held_between(from, to);
            reserved_peak = reserved_peak.max(peak);
            reserved_end = end;
        }
        let peaks = PhasePeaks {
            phase: *phase,
            live_peak: Bytes(*live_peak),
            live_end: Bytes(*live_end),
            reserved_peak,
            reserved_end,
        };
        // What comes before the first step belongs to it.
        let number = step.unwrap_or(0);
        match steps.iter_mut().find(|step| step.step == number) {
            Some(step) => match step.phases.iter_mut().find(|known| known.phase == *phase) {
                // A process that died wrote what it had seen, and may have written it twice.
                Some(known) => *known = peaks,
                None => step.phases.push(peaks),
            },
            None => steps.push(Step {
                step: number,
                pass: Pass::Traced,
                phases: vec![peaks],
            }),
        }
    }
    steps
}
/// What the figures rest on besides what was run.
fn assumptions(
    case: &Case,
    unplanned: usize,
    cold: Option<&Left>,
    warm: Option<&Left>,
    traced: Option<&Left>,
) -> Vec<String> {
    let mut list = case.profile.assumptions();
    if unplanned > 0 {
        list.push(format!(
            "the cold pass ended before all autotune choices were made: {unplanned} were made in the later passes, whose figures include that"
        ));
    }
    let free_form = traced
        .or(cold)
        .is_some_and(|left| left.events.iter().any(|event| matches!(event, Event::FreeForm)));
    if free_form {
        list.push(
            "the step is written by hand: unless it forks its model to the device, what it holds from the driver really varies from run to run".into(),
        );
    }
    if let (Some(warm), Some(traced)) = (warm, traced)
        && warm.record.reserved_peak != traced.record.reserved_peak
    {
        list.push(format!(
            "reserved differs between the passes: {} bytes warm, {} bytes traced; live is the traced pass's",
            warm.record.reserved_peak.0, traced.record.reserved_peak.0,
        ));
    }
    let reads = warm.map_or(0, device_reads);
    if reads > 0 {
        list.push(format!(
            "the model reads {reads} values back from the device, and a virtual one gives zeros: where its control flow depends on them, so do these figures"
        ));
    }
    if let Some(missed) = traced
        .and_then(done)
        .map(|done| done.missed_samples)
        .filter(|missed| *missed > 0)
    {
        list.push(format!("{missed} samples of live memory were missed"));
    }
    list
}
