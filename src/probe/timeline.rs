//! The step and phase that each GPU is at, and what the pass observed there.

use std::collections::BTreeMap;
use std::sync::Mutex;

use super::{events, threads};
use crate::protocol::{Phase, ProbeEvent};

/// A moment in a pass: a step and a phase. Before the first step, `step` is `None`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct StepMoment {
    pub(super) step: Option<u32>,
    pub(super) phase: Phase,
}

impl StepMoment {
    pub(super) fn new(step: u32, phase: Phase) -> Self {
        Self {
            step: Some(step),
            phase,
        }
    }
}

/// Live memory: what the allocator has handed out.
#[derive(Debug, Default, Clone, Copy)]
pub(super) struct Live {
    /// The bytes with padding. Burn's persistent pool keeps a slice's first padding when another tensor gets the slice,
    /// so this can be wrong by up to 511 bytes per slice.
    pub(super) bytes: u64,
    /// The requested bytes, which are exact.
    pub(super) in_use: u64,
}

/// The live memory during one moment.
#[derive(Debug, Clone, Copy)]
struct LiveRange {
    peak: u64,
    end: Live,
}

/// The launches during one moment.
#[derive(Debug, Default, Clone, Copy)]
struct Launched {
    count: u64,
    /// The sum of the hashes of the kernels' names. A sum does not depend on the order in which two threads launch.
    kernels: u64,
}

/// A moment that the program marked.
#[derive(Debug, Clone, Copy)]
struct Marked {
    moment: StepMoment,
    live: Live,
}

/// What the pass has observed on one GPU.
#[derive(Clone)]
struct PhaseTimeline {
    now: StepMoment,
    seen: BTreeMap<StepMoment, LiveRange>,
    launched: BTreeMap<StepMoment, Launched>,
    /// The marked moments, in program order.
    marked: Vec<Marked>,
    kernel: Option<String>,
    /// The live bytes at the last sample.
    live: Option<u64>,
    steps_done: u32,
    own_reads: u64,
    missed_samples: u64,
    streams: u32,
}

impl PhaseTimeline {
    const NEW: Self = Self {
        now: StepMoment {
            step: None,
            phase: Phase::Context,
        },
        seen: BTreeMap::new(),
        launched: BTreeMap::new(),
        marked: Vec::new(),
        kernel: None,
        live: None,
        steps_done: 0,
        own_reads: 0,
        missed_samples: 0,
        streams: 0,
    };
}

/// One timeline per GPU.
static TIMELINES: Mutex<Vec<PhaseTimeline>> = Mutex::new(Vec::new());

fn with_all<R>(act: impl FnOnce(&mut Vec<PhaseTimeline>) -> R) -> R {
    // A panic in another thread does not make these values wrong, because each call leaves them consistent.
    act(&mut TIMELINES.lock().unwrap_or_else(std::sync::PoisonError::into_inner))
}

/// Runs `act` on the timeline of the GPU that this thread belongs to. For the program's own threads, that is the first
/// GPU.
fn with<R>(act: impl FnOnce(&mut PhaseTimeline) -> R) -> R {
    // The marks and steps of a program come from its own threads, which belong to no GPU.
    // See docs/design/several-gpus.md.
    let gpu = threads::gpu().unwrap_or(0) as usize;
    with_all(|all| {
        if all.len() <= gpu {
            all.resize(gpu + 1, PhaseTimeline::NEW);
        }
        act(&mut all[gpu])
    })
}

/// Moves the GPU to this moment, and reports it.
pub(super) fn reach(moment: StepMoment, time: u64) {
    #[cfg(feature = "trace")]
    super::trace::reached(moment);
    with(|timeline| timeline.now = moment);
    began(moment, time);
}

/// Reports a moment that the GPU passed without a launch.
pub(super) fn pass(moment: StepMoment, time: u64) {
    began(moment, time);
}

fn began(moment: StepMoment, time: u64) {
    events::send(&ProbeEvent::Phase {
        gpu: threads::gpu().unwrap_or(0),
        time,
        step: moment.step,
        phase: moment.phase,
    });
}

/// Records that the program marked this moment, and the live memory at that time. Called only if the pass observes
/// launches.
pub(super) fn marked(moment: StepMoment, live: Live) {
    with(|timeline| timeline.marked.push(Marked { moment, live }));
}

/// Returns the moment that the GPU is at.
pub(super) fn now() -> StepMoment {
    with(|timeline| timeline.now)
}

/// Returns the kernel being launched, if the pass observes launches.
pub(super) fn kernel() -> Option<String> {
    with(|timeline| timeline.kernel.clone())
}

/// Returns the live bytes at the last sample, if the pass takes samples.
pub(super) fn live() -> Option<u64> {
    with(|timeline| timeline.live)
}

/// Records which kernel is about to be launched.
pub(super) fn launching(kernel: String) {
    with(|timeline| timeline.kernel = Some(kernel));
    #[cfg(feature = "trace")]
    super::trace::launching();
}

/// Counts the launch of that kernel in the phase that the GPU is at.
pub(super) fn launched() {
    with(|timeline| {
        let name = hash(timeline.kernel.as_deref().unwrap_or_default());
        let launched = timeline.launched.entry(timeline.now).or_default();
        launched.count += 1;
        // The tool compares this between two passes, so that other kernels in the same number are noticed.
        launched.kernels = launched.kernels.wrapping_add(name);
    });
}

/// Returns the FNV-1a hash of a text, which is the same in every build.
fn hash(text: &str) -> u64 {
    // Not std's hasher, whose result may differ between Rust releases.
    let mix = |hash: u64, byte: u8| (hash ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3);
    text.bytes().fold(0xcbf2_9ce4_8422_2325, mix)
}

/// Records a sample: the live memory, and the number of streams that hold memory.
pub(super) fn sample(live: Live, streams: u32) {
    with(|timeline| {
        timeline.streams = timeline.streams.max(streams);
        timeline.live = Some(live.bytes);
        let now = timeline.now;
        let seen = timeline.seen.entry(now).or_insert(LiveRange {
            peak: live.bytes,
            end: live,
        });
        seen.peak = seen.peak.max(live.bytes);
        seen.end = live;
        #[cfg(feature = "trace")]
        super::trace::sample(live.bytes, timeline.kernel.as_deref());
    });
}

/// Records the live memory at the end of the last step, because the program has freed memory since that step's last
/// launch. The requested bytes (`in_use`), by which leaks are found, stay as the launches saw them, as in all other
/// steps.
#[cfg(feature = "burn-0_22")]
pub(super) fn ended(live: Live) {
    with(|timeline| {
        if let Some(seen) = timeline.seen.get_mut(&timeline.now) {
            // Not `in_use`: leaks compare the ends of steps, and all of them must be taken at the same point.
            seen.end.bytes = live.bytes;
        }
    });
}

/// Records that live memory was higher for a moment, because of an allocation that was freed within the launch.
#[cfg(feature = "burn-0_21")]
pub(super) fn spike(live: u64) {
    with(|timeline| {
        let now = timeline.now;
        // Only the peak: by the end of the launch, this memory is free again.
        if let Some(seen) = timeline.seen.get_mut(&now) {
            seen.peak = seen.peak.max(live);
        }
        #[cfg(feature = "trace")]
        super::trace::sample(live, timeline.kernel.as_deref());
    });
}

/// Counts a sample that could not be taken.
pub(super) fn missed() {
    with(|timeline| timeline.missed_samples += 1);
}

/// Counts a completed step, and the values that this library read back in it.
pub(super) fn step_done(reads: u64) {
    #[cfg(feature = "trace")]
    super::trace::step_done();
    with(|timeline| {
        timeline.steps_done += 1;
        timeline.own_reads += reads;
    });
}

/// Reports what the pass has observed so far.
pub(super) fn flush() {
    #[cfg(feature = "trace")]
    super::trace::flush();
    with_all(|all| {
        for (gpu, timeline) in (0..).zip(all) {
            tell(gpu, timeline);
        }
    });
}

fn tell(gpu: u32, timeline: &PhaseTimeline) {
    // A flush may come before the end (after a panic). So take nothing out: the later report replaces this
    // one.
    let mut all = timeline.seen.clone();
    // For moments without a launch, only the live memory at their start and end is known.
    for (at, marked) in timeline.marked.iter().enumerate() {
        let end = timeline.marked.get(at + 1).map_or(marked.live, |next| next.live);
        all.entry(marked.moment).or_insert(LiveRange {
            peak: marked.live.bytes.max(end.bytes),
            end,
        });
    }
    for (moment, seen) in &all {
        let launched = timeline.launched.get(moment).copied().unwrap_or_default();
        events::send(&ProbeEvent::Seen {
            gpu,
            step: moment.step,
            phase: moment.phase,
            live_peak: seen.peak,
            live_end: seen.end.bytes,
            in_use_end: seen.end.in_use,
            launches: launched.count,
            kernels: launched.kernels,
        });
    }
}

/// Whether the last two steps reserved no more memory; `None` if the number of steps is fixed.
static SETTLED: Mutex<Option<bool>> = Mutex::new(None);

/// Records after a step whether the last two steps reserved no more memory.
#[cfg(feature = "burn-0_22")]
pub(super) fn settled(is_settled: bool) {
    *SETTLED.lock().unwrap_or_else(std::sync::PoisonError::into_inner) = Some(is_settled);
}

/// Reports everything that the pass observed, and then its end. `retried` is the number of refused allocations for
/// which Burn freed memory and tried again.
pub(super) fn finish(retried: Option<u64>) {
    flush();
    super::varying::finish(with_all(|all| {
        all.iter().map(|timeline| timeline.steps_done).max().unwrap_or(0)
    }));
    // Steps are counted on one GPU's timeline only: that of the thread that runs the loop.
    let most = |of: fn(&PhaseTimeline) -> u32| with_all(|all| all.iter().map(of).max().unwrap_or(0));
    let sum = |of: fn(&PhaseTimeline) -> u64| with_all(|all| all.iter().map(of).sum());
    events::send(&ProbeEvent::Done {
        steps: most(|timeline| timeline.steps_done),
        own_reads: sum(|timeline| timeline.own_reads),
        missed_samples: sum(|timeline| timeline.missed_samples),
        streams: most(|timeline| timeline.streams),
        retried,
        settled: *SETTLED.lock().unwrap_or_else(std::sync::PoisonError::into_inner),
    });
}
