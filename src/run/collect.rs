//! Makes one run of the report from what its passes left behind.

use std::time::Duration;

use super::case::Case;
use super::child::End;
use super::code;
use super::process::Left;
use crate::bytes::Bytes;
use crate::protocol::{Event, Phase};
use crate::report::{Autotune, Gpu, Mode, Oom, Parameters, Pass, Peak, Peaks, PhasePeaks, Run, RunError, Step};

/// No run is of fewer: an optimizer's state is made in the first step, so that the second one decides.
const FEWEST_STEPS: u32 = 2;
/// The same on every Linux.
const SIGKILL: i32 = 9;
/// What to do about a model that was not run to its end.
const COMPLETE: &str =
    "a model must return from its function, and must call `train`, `train_step` or `infer`, or run all of `steps`";

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
}

impl Collected {
    pub(super) fn first_only(cold: std::io::Result<Left>) -> Self {
        Self {
            passes: Passes {
                cold: Some(cold),
                ..Passes::default()
            },
            autotune: Autotune::default(),
        }
    }
}

/// Whether a first pass shows that no other one is worth its time: it failed for another reason than memory.
pub(super) fn is_hopeless(case: &Case, left: &Left) -> bool {
    error(left).is_some() && oom(Pass::Cold, left, case.profile.available()).is_none()
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
    // What a pass held that died on its way is no peak of the model's.
    let whole = |pass: Pass| left(pass).filter(|left| ran_out(pass, left).is_some() || self::error(left).is_none());
    let readable: Vec<(Pass, &Left)> = all
        .iter()
        .filter_map(|(pass, left)| left.as_ref().ok().map(|left| (*pass, left)))
        .collect();
    let oom = readable.iter().find_map(|(pass, left)| ran_out(*pass, left));
    let error = all.iter().find_map(|(pass, left)| match left {
        Err(error) => Some(RunError {
            code: code::NOT_STARTED.into(),
            message: format!("the {} pass could not be run: {error}", name(*pass)),
            help: Some("see whether the target folder is writable and the disk has room".into()),
        }),
        // An out of memory ends a pass: that is a finding, not an error.
        Ok(left) if ran_out(*pass, left).is_some() => None,
        Ok(left) => self::error(left),
    });
    let outside = profile.total.value.saturating_sub(profile.available());
    let reserved = |left: Option<&Left>| {
        left.filter(|left| left.record.started)
            .map(|left| left.record.reserved_peak)
    };
    let peak = |left: Option<&Left>, live: Option<Bytes>| Peak {
        live,
        reserved: reserved(left),
        process: reserved(left).map(|bytes| bytes + outside),
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
        },
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
        assumptions: assumptions(case, cold, whole(Pass::Warm), whole(Pass::Traced)),
        error,
        seconds: (took.as_secs_f64() * 1000.0).round() / 1000.0,
    }
}

fn name(pass: Pass) -> &'static str {
    match pass {
        Pass::Cold => "cold",
        Pass::Warm => "warm",
        Pass::Traced => "traced",
    }
}

struct Done {
    steps: u32,
    own_reads: u64,
    streams: u32,
    missed_samples: u64,
}

fn done(left: &Left) -> Option<Done> {
    left.events.iter().find_map(|event| match event {
        Event::Done {
            steps,
            own_reads,
            streams,
            missed_samples,
        } => Some(Done {
            steps: *steps,
            own_reads: *own_reads,
            streams: *streams,
            missed_samples: *missed_samples,
        }),
        _ => None,
    })
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

/// What autotune says when every candidate failed.
const NO_CANDIDATE: &str = "Can't execute the autotune plan";

/// The out of memory that ended a pass, or that the program did not notice.
fn oom(pass: Pass, left: &Left, card: Bytes) -> Option<Oom> {
    let mut refused_candidate = None;
    let panic = left.events.iter().find_map(|event| match event {
        Event::Panic {
            tuning,
            message,
            step,
            phase,
            kernel,
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
            Some((bytes, *step, *phase, kernel.clone()))
        }
        _ => None,
    });
    if let Some((bytes, step, phase, kernel)) = panic {
        // A tensor larger than any page of Burn's allocator is never asked of the driver.
        let mut refusals = left.record.refusals.iter().rev();
        let refusal = refusals.find(|refusal| refusal.last_resort && refusal.requested.0 == bytes);
        let reserved = refusal.map_or(left.record.reserved, |refusal| refusal.reserved);
        return Some(Oom {
            pass,
            step,
            phase: Some(phase),
            kernel: kernel.or_else(|| refusal.and_then(|refusal| refusal.kernel.clone())),
            requested: Bytes(bytes),
            reserved,
            available: refusal.map_or(card.saturating_sub(reserved), |refusal| refusal.available),
        });
    }
    // In a cold pass, a refusal that ended in no panic was one of a candidate.
    let refusal = left.record.last_refusal().filter(|_| pass != Pass::Cold)?;
    let (step, phase) = moment(left, refusal.time);
    Some(Oom {
        pass,
        step,
        phase,
        kernel: refusal.kernel.clone(),
        requested: refusal.requested,
        reserved: refusal.reserved,
        available: refusal.available,
    })
}

/// The bytes that Burn's allocator could not give, as its panics say, shown or debugged:
/// `can't allocate buffer of size: 7516192768`, `BufferTooBig { size: 7516192768, …`.
fn too_big(message: &str) -> Option<u64> {
    ["can't allocate buffer of size: ", "BufferTooBig { size: "]
        .iter()
        .find_map(|words| {
            let (_, rest) = message.split_once(words)?;
            rest.split(|c: char| !c.is_ascii_digit()).next()?.parse().ok()
        })
}

/// The step and phase that the device was at.
fn moment(left: &Left, time: u64) -> (Option<u32>, Option<Phase>) {
    let mut at = (None, Some(Phase::Context));
    for event in &left.events {
        if let Event::Phase {
            time: began,
            step,
            phase,
        } = event
            && *began <= time
        {
            at = (*step, Some(*phase));
        }
    }
    at
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
        // Reserved is the driver's own account, between the moments at which this phase and the next one began.
        let at = began.iter().rposition(|(_, s, p)| (s, p) == (step, phase));
        let from = at.map_or(0, |at| began[at].0);
        let to = at.and_then(|at| began.get(at + 1)).map_or(u64::MAX, |next| next.0);
        let (reserved_peak, reserved_end) = left.record.held_between(from, to);
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

/// Why a pass is incomplete, out of memory apart.
fn error(left: &Left) -> Option<RunError> {
    let error = |code: &str, message: String, help: &str| {
        Some(RunError {
            code: code.into(),
            message,
            help: Some(help.into()),
        })
    };
    for event in &left.events {
        if let Event::UnknownInput { name, known } = event {
            return error(
                code::UNKNOWN_INPUT,
                format!("the model has no input `{name}`"),
                &format!(
                    "its inputs are: {}",
                    known.keys().cloned().collect::<Vec<_>>().join(", ")
                ),
            );
        }
    }
    match left.ended.end {
        End::TimedOut => {
            return error(
                code::TIMED_OUT,
                format!("the model did not end within {} s", left.ended.took.as_secs()),
                "a step must end by itself; give it longer with `timeout` in budgets.yaml or --timeout",
            );
        }
        End::HostMemory(used) => {
            return error(
                code::HOST_MEMORY,
                format!("the model used {used} of the host's memory"),
                "a virtual GPU needs no memory for its tensors: look for data made on the host; --host-memory raises the limit",
            );
        }
        _ => {}
    }
    let begun_anew = !matches!(left.events.first(), None | Some(Event::Hello { .. }));
    if left.damaged || begun_anew {
        return error(
            code::EVENTS_DAMAGED,
            "something other than cargo-vram wrote into the file of events".into(),
            "models must not write to the file named by CARGO_VRAM_JOB or the one named in it",
        );
    }
    if let Some(function) = left.record.unsupported.first() {
        return error(
            code::UNSUPPORTED_FUNCTION,
            format!("the model called {function}, which the virtual driver does not have"),
            "its figures would be wrong, so there are none; please report which library calls it",
        );
    }
    let panic = left.events.iter().find_map(|event| match event {
        Event::Panic {
            tuning: false,
            thread,
            message,
            location,
            ..
        } => Some(format!("{message} ({location}, thread {thread})")),
        _ => None,
    });
    match (done(left), panic) {
        (Some(done), _) if done.steps < FEWEST_STEPS => error(
            code::EXITED,
            format!("the model returned after {} steps", done.steps),
            COMPLETE,
        ),
        (Some(_), _) => None,
        (None, Some(panic)) => error(
            code::PANICKED,
            format!("the model panicked: {panic}"),
            "look at the place it names; values read back from a virtual GPU are zeros, which the code there may not expect",
        ),
        (None, None) => died(left, error),
    }
}

fn died(left: &Left, error: impl Fn(&str, String, &str) -> Option<RunError>) -> Option<RunError> {
    let last = left.ended.stderr.trim_end().lines().last().unwrap_or_default();
    let said = if last.is_empty() {
        String::new()
    } else {
        format!("; its last words: {last}")
    };
    match left.ended.end {
        End::Signalled(_) if left.ended.stderr.contains("has overflowed its stack") => error(
            code::STACK_OVERFLOW,
            "the model overflowed its stack".into(),
            "debug builds need more of it: look for deep recursion, or set RUST_MIN_STACK and run the model on a thread",
        ),
        End::Signalled(SIGKILL) => error(
            code::ABORTED,
            format!("the model was killed{said}"),
            "the kernel does this when the host's memory runs out: run fewer models at once with --jobs",
        ),
        End::Signalled(signal) => error(
            code::ABORTED,
            format!("the model was ended by signal {signal}{said}"),
            "`abort`, a panic while panicking (signal 6) or a fault in native code (signal 11) does this",
        ),
        End::Exited(exit) => error(
            code::EXITED,
            format!("the model's process exited with code {exit} before its steps were done{said}"),
            COMPLETE,
        ),
        End::TimedOut | End::HostMemory(_) => None,
    }
}

/// What the figures rest on besides what was run.
fn assumptions(case: &Case, cold: Option<&Left>, warm: Option<&Left>, traced: Option<&Left>) -> Vec<String> {
    let mut list = case.profile.assumptions();
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
        assert_eq!(too_big("index out of bounds"), None);
    }
}
