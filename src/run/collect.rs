//! Makes one run of the report from what its passes left behind.

use std::time::Duration;

use super::card::{Hardware, MissingLibdevice};
use super::case::Case;
use super::child::End;
use super::ending::{self, done};
use super::measured::{self, Seen};
use super::oom::{oom, recovered};
use super::process::Left;
use super::record::Record;
use super::steps::{fullest, steps};
use super::work;
use crate::bytes::Bytes;
use crate::protocol::{BurnFeatures, Event, Float, Inside};
use crate::report::words::pass_name;
use crate::report::{
    Autotune, ErrorCode, Gpu, Measurement, Mode, OnCard, Oom, Parameters, Pass, Peak, Peaks, RecordingId, Run,
    RunError, Settling, Step, Tuning, grows,
};

/// What the passes of a case left behind; absent where a pass was not tried.
#[derive(Debug, Default)]
pub(super) struct Passes {
    pub(super) cold: Option<std::io::Result<Left>>,
    pub(super) warm: Option<std::io::Result<Left>>,
    pub(super) traced: Option<std::io::Result<Left>>,
    /// A second warm pass, which reads other values from the GPU.
    pub(super) other: Option<std::io::Result<Left>>,
}

/// In what a pass did something else than the one before, to be put behind "the model".
#[derive(Debug)]
pub(super) enum Disagreement {
    /// With nothing changed.
    Nondeterministic(String),
    /// With other values read from the GPU, and only then.
    DataDependent(String),
}

impl Disagreement {
    /// What it is to the run, unless the budget allows it.
    fn error(&self, case: &Case) -> Option<RunError> {
        let (code, message, help) = match self {
            Self::Nondeterministic(_) if case.allowed.nondeterministic => return None,
            Self::Nondeterministic(difference) => (
                ErrorCode::Nondeterministic,
                format!("this model is not deterministic: in two passes that are alike it {difference}"),
                "make its work the same in every run, with fixed seeds and fixed sizes; or write `nondeterministic: allowed` into its \
                 budget, and `check --repeat N` judges the largest of N runs",
            ),
            Self::DataDependent(_) if case.allowed.data_dependent => return None,
            Self::DataDependent(difference) => (
                ErrorCode::DataDependent,
                format!(
                    "the model's work depends on values that it reads from the GPU: with zeros and then with other values it {difference}"
                ),
                "an estimate cannot know these values: make the work independent of them, or write `control_flow: data-dependent` into \
                 its budget, and the larger of both passes is judged",
            ),
        };
        Some(RunError {
            code,
            message,
            help: Some(help.into()),
        })
    }
}

/// The passes, and what the plan of the later two rests on.
#[derive(Debug)]
pub(super) struct Collected {
    pub(super) passes: Passes,
    pub(super) autotune: Autotune,
    /// What the plan replays.
    pub(super) recording: Option<RecordingId>,
    /// Choices that the warm or the traced pass had to make because the plan lacked them.
    pub(super) unplanned: usize,
    /// Where the plan of a measurement is from.
    pub(super) tuning: Tuning,
    /// In what passes that should be alike differ.
    pub(super) disagreement: Option<Disagreement>,
}

impl Collected {
    pub(super) fn first_only(cold: std::io::Result<Left>) -> Self {
        Self {
            passes: Passes {
                cold: Some(cold),
                ..Passes::default()
            },
            autotune: Autotune::default(),
            recording: None,
            unplanned: 0,
            tuning: Tuning::Free,
            disagreement: None,
        }
    }
}

/// Whether a pass came to its end, with nothing wrong.
pub(super) fn is_whole(case: &Case, hardware: &Hardware, pass: Pass, left: &Left) -> bool {
    ran_out(case, hardware, pass, left).is_none() && ending::error(hardware, pass, left).is_none()
}

/// When Burn first went on without what an operation makes.
fn failed_at(left: &Left) -> Option<u64> {
    left.events.iter().find_map(|event| match event {
        Event::Failed {
            tuning: false, time, ..
        } => Some(*time),
        _ => None,
    })
}

/// Whether a first pass shows that no other one is worth its time: it failed for another reason than memory.
pub(super) fn is_hopeless(case: &Case, hardware: &Hardware, left: &Left) -> bool {
    ending::error(hardware, Pass::Cold, left).is_some() && ran_out(case, hardware, Pass::Cold, left).is_none()
}

/// The out of memory of a pass. What follows on a call that failed for another reason is none: a card whose size the driver
/// did not tell, say, has no room for anything.
fn ran_out(case: &Case, hardware: &Hardware, pass: Pass, left: &Left) -> Option<Oom> {
    let oom = oom(pass, left, &case.profile).filter(|_| ending::failed_call(left).is_none());
    let is_virtual = matches!(hardware, Hardware::Virtual) && !case.endless;
    oom.or_else(|| together(pass, left, case.profile.available()).filter(|_| is_virtual))
}

/// Each process on a virtual card has it for itself: together they may hold more than there is.
fn together(pass: Pass, left: &Left, available: Bytes) -> Option<Oom> {
    let cards = u32::try_from(left.record.cards.len()).unwrap_or(u32::MAX);
    (0..cards).find_map(|card| {
        let (own, others) = (left.record.card(card).peak, left.record.peak_of_helpers(card));
        (others > Bytes(0) && own + others > available).then(|| Oom {
            pass,
            card: (cards > 1).then_some(card),
            step: None,
            phase: None,
            kernel: None,
            requested: Some(others),
            function: None,
            reserved: own,
            live: None,
            available: available.saturating_sub(own),
            tensor: None,
        })
    })
}

/// Why a pass ended itself, to be begun anew in another way.
pub(super) enum Found {
    /// The model's loop is of another kind than it was set up for.
    FreeForm,
    /// The trace would have a hole.
    Unforeseen,
    /// The model's uploads have no order, unless it runs on fusion's thread.
    Uploads,
    /// The model cannot run on fusion's thread.
    Stuck,
    /// The model is over so many cards.
    Cards(u32),
}

/// What a pass found out, for which it ended itself.
pub(super) fn found(left: &Left) -> Option<Found> {
    if left.ended.end != End::Exited(0) || done(left).is_some() {
        return None;
    }
    let cards = left.events.iter().find_map(|event| match event {
        Event::Cards { needed } => Some(Found::Cards(*needed)),
        _ => None,
    });
    if cards.is_some() {
        return cards;
    }
    if uploads(left) {
        return Some(Found::Uploads);
    }
    if left.events.iter().any(|event| matches!(event, Event::Stuck)) {
        return Some(Found::Stuck);
    }
    let is_unforeseen = left.events.iter().any(|event| matches!(event, Event::Unforeseen));
    let found = if is_unforeseen {
        Found::Unforeseen
    } else {
        Found::FreeForm
    };
    (is_unforeseen || is_free_form(left)).then_some(found)
}

fn uploads(left: &Left) -> bool {
    left.events.iter().any(|event| matches!(event, Event::Uploads))
}

fn is_free_form(left: &Left) -> bool {
    left.events.iter().any(|event| matches!(event, Event::FreeForm))
}

/// Makes the run.
pub(super) fn run(case: &Case, hardware: &Hardware, collected: &Collected, took: Duration) -> Run {
    let passes = &collected.passes;
    let profile = &case.profile;
    let ran_out = |pass: Pass, left: &Left| ran_out(case, hardware, pass, left);
    let other = passes.other.as_ref().and_then(|left| left.as_ref().ok());
    // A pass that reads other values, and does not come to its end for it, shows nothing of what the model needs.
    let other = other.filter(|left| ran_out(Pass::Warm, left).is_some() || is_whole(case, hardware, Pass::Warm, left));
    let is_judged_too = (case.allowed.nondeterministic || case.allowed.data_dependent) && other.is_some();
    let all: Vec<(Pass, &std::io::Result<Left>)> = [
        (Pass::Cold, &passes.cold),
        (Pass::Warm, &passes.warm),
        (Pass::Traced, &passes.traced),
        // Where it may differ, it counts as any other pass.
        (Pass::Warm, if is_judged_too { &passes.other } else { &None }),
    ]
    .into_iter()
    .filter_map(|(pass, left)| left.as_ref().map(|left| (pass, left)))
    .collect();
    let left = |wanted: Pass| {
        all.iter()
            .find(|(pass, _)| *pass == wanted)
            .and_then(|(_, left)| left.as_ref().ok())
    };
    let (cold, warm) = (left(Pass::Cold), left(Pass::Warm));
    // The pass that observes phases.
    let observed = match hardware {
        Hardware::Virtual => Pass::Warm,
        Hardware::Real(_) => Pass::Traced,
    };
    let traced = left(observed);
    let other = other.filter(|_| is_judged_too);
    let readable: Vec<(Pass, &Left)> = all
        .iter()
        .filter_map(|(pass, left)| left.as_ref().ok().map(|left| (*pass, left)))
        .collect();
    let ends: Vec<Oom> = readable
        .iter()
        .filter_map(|(pass, left)| ran_out(*pass, left))
        .collect();
    // A cold pass is not looked at, and what is live at a moment is the same in the others.
    let oom = ends.first().cloned().map(|oom| {
        let same = |other: &&Oom| (other.step, other.phase, other.card) == (oom.step, oom.phase, oom.card);
        let live = ends.iter().filter(same).find_map(|other| other.live);
        Oom {
            live: live.filter(|live| *live <= oom.reserved),
            ..oom
        }
    });
    // What a pass held that died on its way is no peak of the model's; what it held when the card was full is told.
    let out = oom.as_ref().map(|oom| oom.pass);
    let whole = |pass: Pass| {
        left(pass).filter(|left| {
            out == Some(pass) || (ran_out(pass, left).is_none() && ending::error(hardware, pass, left).is_none())
        })
    };
    let error = all.iter().find_map(|(pass, left)| match left {
        Err(error) => Some(not_run(*pass, error)),
        // An out of memory makes a program panic: that is a finding, not an error.
        Ok(left) => {
            let by_memory = ran_out(*pass, left).is_some();
            ending::error(hardware, *pass, left).filter(|error| !(by_memory && is_by_memory(&error.code)))
        }
    });
    let error = error.or_else(|| {
        let failed = passes.other.as_ref().and_then(|left| left.as_ref().err());
        failed.map(|error| RunError {
            code: ErrorCode::NotStarted,
            message: format!("a second warm pass could not be run: {error}"),
            help: Some("see whether the target folder is writable and the disk has room".into()),
        })
    });
    // A run without memory enough is a finding of its own.
    let disagreement = collected.disagreement.as_ref().filter(|_| oom.is_none());
    let error = error.or_else(|| disagreement?.error(case));
    let error = error.or_else(|| {
        let judged = readable.iter().filter(|_| oom.is_none() && disagreement.is_none());
        judged.map(|(_, left)| left).find_map(|left| work::rarely_learns(left))
    });
    let outside = profile.total.value.saturating_sub(profile.available());
    let reserved = |left: Option<&Left>, card| {
        let left = left.filter(|left| left.record.started)?;
        // Where memory ran out and Burn went on, what it held later is that of another program.
        let failed = out.and_then(|_| failed_at(left));
        Some(match failed {
            Some(time) => left.record.card(card).between(0, time + 1).0 + left.record.peak_of_helpers(card),
            None => left.record.peak(card),
        })
    };
    let process = |left: Option<&Left>, card| match hardware {
        Hardware::Virtual => reserved(left, card).zip(left).map(|(bytes, left)| {
            let outside = outside.0.saturating_mul(left.record.processes());
            Bytes(bytes.0.saturating_add(outside))
        }),
        Hardware::Real(_) => left.and_then(Seen::of).and_then(|seen| seen.peak()),
    };
    let peak = |left: Option<&Left>, card, live: Option<Bytes>| Peak {
        live,
        reserved: reserved(left, card),
        process: process(left, card),
    };
    let count = readable.iter().map(|(_, left)| left.record.cards.len()).max();
    let cards: Vec<OnCard> = (0..u32::try_from(count.unwrap_or(1).max(1)).unwrap_or(1))
        .map(|card| {
            let mut steps = traced.map(|left| steps(left, card)).unwrap_or_default();
            let live = live(whole(observed), &steps, card);
            let mut warm = peak(whole(Pass::Warm), card, live);
            if let Some(other) = other {
                let others = self::steps(other, card);
                warm = warm.largest(peak(Some(other), card, self::live(Some(other), &others, card)));
                // A leak in one of them is one.
                if grows(&others) {
                    steps = others;
                }
            }
            OnCard {
                card,
                peaks: Peaks {
                    warm,
                    cold: peak(whole(Pass::Cold), card, None),
                },
                steps,
            }
        })
        .collect();
    let some_pass = warm.or(traced).or(cold);
    let (mode, driver, context, modules) = match hardware {
        Hardware::Virtual => (
            Mode::Estimate,
            format!("virtual {}", env!("CARGO_PKG_VERSION")),
            None,
            None,
        ),
        Hardware::Real(real) => {
            let (context, modules) = measured::outside(real, some_pass);
            (Mode::Measure, real.driver.clone(), context, modules)
        }
    };
    let measurement = match hardware {
        Hardware::Virtual => None,
        Hardware::Real(real) => {
            let limit = real.limited.then_some(profile.total.value);
            let passes: Vec<&Left> = [warm, traced, cold].into_iter().flatten().collect();
            Some(measured::measurement(real, limit, collected.tuning, &passes))
        }
    };
    let error = error.or_else(|| in_use(hardware, measurement.as_ref()?));
    let recovered = readable
        .iter()
        .filter(|_| oom.is_none())
        .map(|(_, left)| recovered(left));
    let recovered_refusals = recovered.max().unwrap_or(0);
    Run {
        model: case.model.name.clone(),
        package: case.model.built.target.package.clone(),
        budget: case.budget.clone(),
        mode,
        task: Some(case.model.task),
        burn: case.model.built.target.burn.clone(),
        features: readable.iter().find_map(|(_, left)| features(left)),
        inputs: readable
            .iter()
            .find_map(|(_, left)| inputs(left))
            .unwrap_or_else(|| case.inputs.clone()),
        what_if: case.what_if.clone(),
        label: (!case.what_if.is_none()).then(|| case.what_if.of(case.name())),
        gpu: Gpu {
            id: profile.id.clone(),
            name: profile.name.clone(),
            total_bytes: profile.total.value,
            available_bytes: profile.available(),
            driver,
            context: context.or_else(|| Some(profile.context.outside())),
            modules: modules.or_else(|| Some(profile.modules.outside())),
        },
        measurement,
        parameters: readable.iter().find_map(|(_, left)| parameters(left)),
        peaks: cards
            .iter()
            .map(|card| card.peaks)
            .reduce(Peaks::fullest)
            .unwrap_or_default(),
        baseline: None,
        steps: cards
            .iter()
            .map(|card| card.steps.clone())
            .reduce(fullest)
            .unwrap_or_default(),
        cards: if cards.len() > 1 { cards } else { Vec::new() },
        recovered_refusals,
        oom,
        autotune: collected.autotune.clone(),
        recording: collected.recording.clone(),
        streams: traced.and_then(done).map_or(0, |done| done.streams),
        settling: traced.or(warm).and_then(settling),
        device_reads: some_pass.map_or(0, device_reads),
        assumptions: assumptions(case, hardware, collected, cold, whole(Pass::Warm), whole(observed)),
        range: None,
        error,
        seconds: (took.as_secs_f64() * 1000.0).round() / 1000.0,
    }
}

/// The most that was live on a card, in an observed pass. What other processes of the model had live of what they reserved
/// nobody knows: all of it counts.
fn live(left: Option<&Left>, steps: &[Step], card: u32) -> Option<Bytes> {
    let left = left?;
    let phases = steps.iter().flat_map(|step| &step.phases);
    let most = phases.map(|phase| phase.live_peak).max();
    // Of a further card nothing is seen until something is launched there.
    let most = most.or((card > 0).then_some(Bytes(0)));
    most.map(|most| most + left.record.peak_of_helpers(card))
}

/// Others were on a card that was to be used alone.
fn in_use(hardware: &Hardware, measurement: &Measurement) -> Option<RunError> {
    let alone = matches!(hardware, Hardware::Real(real) if real.exclusive);
    let other = measurement.others.first().filter(|_| alone)?;
    Some(RunError {
        code: ErrorCode::GpuInUse,
        message: format!("another process used the card: {other}"),
        help: Some("end it, choose another card with --device, or measure without --exclusive".into()),
    })
}

/// Whether an early end is what running out of memory leads to.
const fn is_by_memory(code: &ErrorCode) -> bool {
    matches!(
        code,
        ErrorCode::Panicked | ErrorCode::Exited | ErrorCode::Aborted | ErrorCode::OperationFailed
    )
}

/// Why a pass could not be run at all.
fn not_run(pass: Pass, error: &std::io::Error) -> RunError {
    let lacks_libdevice = error.get_ref().is_some_and(|inner| inner.is::<MissingLibdevice>());
    let (code, help) = match lacks_libdevice {
        true => (
            ErrorCode::NoLibdevice,
            "install it (part of the CUDA toolkit: the package libnvvm or cuda-nvcc), and set CUDA_PATH to the toolkit's folder",
        ),
        false => (
            ErrorCode::NotStarted,
            "see whether the target folder is writable and the disk has room",
        ),
    };
    RunError {
        code,
        message: format!("the {} pass could not be run: {error}", pass_name(pass)),
        help: Some(help.into()),
    }
}

/// How many steps a pass ran until it reserved nothing more, where it was to find that out.
fn settling(left: &Left) -> Option<Settling> {
    let done = done(left)?;
    Some(Settling {
        steps: done.steps,
        settled: done.settled?,
    })
}

/// Values that the model read back itself. A pass that did not end has not told how many it read for it.
pub(super) fn device_reads(left: &Left) -> u64 {
    done(left).map_or(0, |done| left.record.reads.saturating_sub(done.own_reads))
}

/// The inputs that the model asked for.
pub(super) fn inputs(left: &Left) -> Option<std::collections::BTreeMap<String, u64>> {
    left.events.iter().find_map(|event| match event {
        Event::Inputs { values } | Event::UnknownInput { known: values, .. } => Some(values.clone()),
        _ => None,
    })
}

/// With which features of Burn the program was built.
fn features(left: &Left) -> Option<BurnFeatures> {
    left.events.iter().find_map(|event| match event {
        Event::Hello { features, .. } => *features,
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

/// The peaks of the first card that held another at its most in two passes.
fn differing(one: &Record, other: &Record) -> Option<(Bytes, Bytes)> {
    let count = one.cards.len().max(other.cards.len());
    let peaks = (0..)
        .take(count)
        .map(|card| (one.card(card).peak, other.card(card).peak));
    peaks.into_iter().find(|(one, other)| one != other)
}

/// What the figures rest on besides what was run.
fn assumptions(
    case: &Case,
    hardware: &Hardware,
    collected: &Collected,
    cold: Option<&Left>,
    warm: Option<&Left>,
    traced: Option<&Left>,
) -> Vec<String> {
    let mut list = match hardware {
        Hardware::Virtual => case.profile.assumptions(),
        Hardware::Real(_) => Vec::new(),
    };
    if case.what_if.dtype.is_some_and(Float::is_mixed) {
        list.push(
            "mixed precision as cargo-vram does it: Burn makes the parameters in half precision, they are cast to f32 once, and to half precision in each step"
                .to_owned(),
        );
    }
    if let Some(recording) = collected
        .recording
        .as_ref()
        .filter(|recording| recording.gpu != case.profile.id)
    {
        list.push(format!(
            "nothing was recorded on `{}`: autotune's choices are those recorded on `{}`, which it is said to be like, with driver {}",
            case.profile.id, recording.gpu, recording.driver,
        ));
    }
    let made_later = collected.unplanned > 0;
    if made_later && cold.is_some_and(|cold| done(cold).is_none()) {
        list.push(format!(
            "the cold pass ended before all autotune choices were made: {} were made in the later passes, whose figures include that",
            collected.unplanned
        ));
    } else if made_later {
        list.push(format!(
            "the later passes made {} of autotune's choices themselves, and their figures include that",
            collected.unplanned
        ));
    }
    if let Some(Disagreement::Nondeterministic(difference) | Disagreement::DataDependent(difference)) =
        &collected.disagreement
    {
        list.push(format!("two passes of the model differ: it {difference}"));
        let other = collected.passes.other.as_ref().and_then(|left| left.as_ref().ok());
        if other.is_some_and(|left| done(left).is_none()) {
            list.push("the pass that reads other values did not come to its end, and is in no figure".to_owned());
        }
    }
    let helpers = [cold, warm, traced]
        .into_iter()
        .flatten()
        .map(|left| left.record.helpers.len())
        .max();
    if let Some(count @ 1..) = helpers {
        list.push(format!(
            "the model started other processes that used the driver ({count}): their peaks are added to its own, as if all were there at once, and what they reserved counts as live"
        ));
    }
    if traced.or(cold).is_some_and(is_free_form) {
        list.push(
            "the step is written by hand: unless it forks its model to the device, what it holds from the driver really varies from run to run".into(),
        );
    }
    if [cold, warm, traced].into_iter().flatten().any(|left| left.is_inside) {
        list.push(
            "tensors made from the program's own data are allocated in the program's order: on a GPU they may come earlier, beside operations that wait"
                .into(),
        );
    }
    let lines = [warm, traced].into_iter().flatten().find_map(|left| left.lines);
    let without = match lines {
        None | Some(Inside::All) => None,
        Some(Inside::Steps) => Some("what makes the batches has no lines"),
        Some(Inside::Nothing) => Some("the explanation has no lines"),
    };
    list.extend(without.map(|without| {
        format!(
            "{without}: the model does not come to its end on the thread that tells of lines, as where threads of its own use the GPU, too"
        )
    }));
    if let (Some(warm), Some(traced)) = (warm, traced)
        && let Some((warm, traced)) = differing(&warm.record, &traced.record)
    {
        list.push(format!(
            "reserved differs between the passes: {} bytes warm, {} bytes traced; live is the traced pass's",
            warm.0, traced.0,
        ));
    }
    let blind = [cold, warm, traced]
        .into_iter()
        .flatten()
        .find_map(|left| left.looks.as_ref()?.error.clone());
    if let Some(error) = blind {
        list.push(format!(
            "NVML could not be asked any more, so that process is what was seen until then: {error}"
        ));
    }
    let reads = warm.map_or(0, device_reads);
    if reads > 0 && matches!(hardware, Hardware::Virtual) {
        list.push(format!(
            "the model reads {reads} values back from the device, and a virtual one gives zeros: where its control flow depends on them, so do these figures"
        ));
    }
    let several = [cold, warm, traced]
        .into_iter()
        .flatten()
        .any(|left| left.record.cards.len() > 1);
    if several {
        list.push(
            "the model is over several cards: its figures are those of the card that holds the most; what NCCL holds on each for itself is not known and is not in them"
                .into(),
        );
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
