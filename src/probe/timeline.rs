//! Which step and phase the device is at, and what was seen there.

use std::collections::BTreeMap;
use std::sync::Mutex;

use super::{events, threads};
use crate::protocol::{Event, Phase};

/// A step and a phase: where in a pass something happens. Before the first step there is no step.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Moment {
    pub(super) step: Option<u32>,
    pub(super) phase: Phase,
}

impl Moment {
    /// A phase of a step.
    pub(super) fn of(step: u32, phase: Phase) -> Self {
        Self {
            step: Some(step),
            phase,
        }
    }
}

/// What the allocator has handed out.
#[derive(Debug, Default, Clone, Copy)]
pub(super) struct Live {
    /// With padding. Burn's pool of parameters keeps a slice's first padding when another tensor gets the slice, so this is up to
    /// 511 bytes a slice off.
    pub(super) bytes: u64,
    /// What was asked for, to the byte.
    pub(super) in_use: u64,
}

/// Live bytes within a moment.
#[derive(Debug, Clone, Copy)]
struct Seen {
    peak: u64,
    end: Live,
}

/// What was launched within a moment.
#[derive(Debug, Default, Clone, Copy)]
struct Launched {
    count: u64,
    /// A sum over the kernels' names, so that the order of two threads' launches does not matter.
    kernels: u64,
}

/// A phase that the program came to.
#[derive(Debug, Clone, Copy)]
struct Marked {
    moment: Moment,
    live: Live,
}

/// What is known of one card.
#[derive(Clone)]
struct Timeline {
    now: Moment,
    seen: BTreeMap<Moment, Seen>,
    launched: BTreeMap<Moment, Launched>,
    /// In the program's order.
    marked: Vec<Marked>,
    kernel: Option<String>,
    /// Live when memory was looked at last.
    live: Option<u64>,
    steps_done: u32,
    own_reads: u64,
    missed_samples: u64,
    streams: u32,
}

impl Timeline {
    const NEW: Self = Self {
        now: Moment {
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

/// One a card.
static TIMELINES: Mutex<Vec<Timeline>> = Mutex::new(Vec::new());

fn with_all<R>(act: impl FnOnce(&mut Vec<Timeline>) -> R) -> R {
    // A panic elsewhere does not make these figures wrong: each call leaves them whole.
    act(&mut TIMELINES.lock().unwrap_or_else(std::sync::PoisonError::into_inner))
}

/// That of the card whose thread this is; the program's own threads are the first one's.
fn with<R>(act: impl FnOnce(&mut Timeline) -> R) -> R {
    let card = threads::card().unwrap_or(0) as usize;
    with_all(|all| {
        if all.len() <= card {
            all.resize(card + 1, Timeline::NEW);
        }
        act(&mut all[card])
    })
}

/// The device reached this moment.
pub(super) fn reach(moment: Moment, time: u64) {
    #[cfg(feature = "trace")]
    super::trace::reached(moment);
    with(|timeline| timeline.now = moment);
    began(moment, time);
}

/// The device came to this moment, and launched nothing before it came to the next.
pub(super) fn pass(moment: Moment, time: u64) {
    began(moment, time);
}

fn began(moment: Moment, time: u64) {
    events::send(&Event::Phase {
        card: threads::card().unwrap_or(0),
        time,
        step: moment.step,
        phase: moment.phase,
    });
}

/// The program came to this moment, where launches are observed, with so many bytes live.
pub(super) fn marked(moment: Moment, live: Live) {
    with(|timeline| timeline.marked.push(Marked { moment, live }));
}

/// Where the device is.
pub(super) fn now() -> Moment {
    with(|timeline| timeline.now)
}

/// The kernel being launched, where launches are observed.
pub(super) fn kernel() -> Option<String> {
    with(|timeline| timeline.kernel.clone())
}

/// Live bytes when memory was looked at last, where it is.
pub(super) fn live() -> Option<u64> {
    with(|timeline| timeline.live)
}

/// A kernel is about to be launched.
pub(super) fn launching(kernel: String) {
    with(|timeline| timeline.kernel = Some(kernel));
    #[cfg(feature = "trace")]
    super::trace::launching();
}

/// The kernel is launched now, in the phase that the device is at.
pub(super) fn launched() {
    with(|timeline| {
        let name = hash(timeline.kernel.as_deref().unwrap_or_default());
        let launched = timeline.launched.entry(timeline.now).or_default();
        launched.count += 1;
        launched.kernels = launched.kernels.wrapping_add(name);
    });
}

/// FNV-1a, which is the same in every build.
fn hash(text: &str) -> u64 {
    let mix = |hash: u64, byte: u8| (hash ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3);
    text.bytes().fold(0xcbf2_9ce4_8422_2325, mix)
}

/// Memory was looked at.
pub(super) fn sample(live: Live, streams: u32) {
    with(|timeline| {
        timeline.streams = timeline.streams.max(streams);
        timeline.live = Some(live.bytes);
        let now = timeline.now;
        let seen = timeline.seen.entry(now).or_insert(Seen {
            peak: live.bytes,
            end: live,
        });
        seen.peak = seen.peak.max(live.bytes);
        seen.end = live;
        #[cfg(feature = "trace")]
        super::trace::sample(live.bytes, timeline.kernel.as_deref());
    });
}

/// The last step ended, with so many bytes live: of what its last launch saw, the program has let go since. What grows from step
/// to step stays as launches saw it, as of all other steps.
#[cfg(feature = "burn-0_22")]
pub(super) fn ended(live: Live) {
    with(|timeline| {
        if let Some(seen) = timeline.seen.get_mut(&timeline.now) {
            seen.end.bytes = live.bytes;
        }
    });
}

/// Memory was higher for an instant, by an allocation that ended within the launch.
#[cfg(feature = "burn-0_21")]
pub(super) fn spike(live: u64) {
    with(|timeline| {
        let now = timeline.now;
        if let Some(seen) = timeline.seen.get_mut(&now) {
            seen.peak = seen.peak.max(live);
        }
        #[cfg(feature = "trace")]
        super::trace::sample(live, timeline.kernel.as_deref());
    });
}

/// Memory could not be looked at.
pub(super) fn missed() {
    with(|timeline| timeline.missed_samples += 1);
}

/// One step was completed, with this many values read by this library.
pub(super) fn step_done(reads: u64) {
    #[cfg(feature = "trace")]
    super::trace::step_done();
    with(|timeline| {
        timeline.steps_done += 1;
        timeline.own_reads += reads;
    });
}

/// Writes what was seen so far.
pub(super) fn flush() {
    #[cfg(feature = "trace")]
    super::trace::flush();
    with_all(|all| {
        for (card, timeline) in (0..).zip(all) {
            tell(card, timeline);
        }
    });
}

fn tell(card: u32, timeline: &Timeline) {
    let mut all = timeline.seen.clone();
    // In which nothing was launched, only what is live at their borders is known.
    for (at, marked) in timeline.marked.iter().enumerate() {
        let end = timeline.marked.get(at + 1).map_or(marked.live, |next| next.live);
        all.entry(marked.moment).or_insert(Seen {
            peak: marked.live.bytes.max(end.bytes),
            end,
        });
    }
    for (moment, seen) in &all {
        let launched = timeline.launched.get(moment).copied().unwrap_or_default();
        events::send(&Event::Seen {
            card,
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

/// Whether two steps in a row reserved nothing more, where steps are run until they do.
static SETTLED: Mutex<Option<bool>> = Mutex::new(None);

/// Another step was run, of those that are run until two in a row reserve nothing more.
#[cfg(feature = "burn-0_22")]
pub(super) fn settled(is_settled: bool) {
    *SETTLED.lock().unwrap_or_else(std::sync::PoisonError::into_inner) = Some(is_settled);
}

/// Writes everything, and that it is everything. `retried`: refused allocations for which Burn freed memory and tried once more.
pub(super) fn finish(retried: Option<u64>) {
    flush();
    let most = |of: fn(&Timeline) -> u32| with_all(|all| all.iter().map(of).max().unwrap_or(0));
    let sum = |of: fn(&Timeline) -> u64| with_all(|all| all.iter().map(of).sum());
    events::send(&Event::Done {
        steps: most(|timeline| timeline.steps_done),
        own_reads: sum(|timeline| timeline.own_reads),
        missed_samples: sum(|timeline| timeline.missed_samples),
        streams: most(|timeline| timeline.streams),
        retried,
        settled: *SETTLED.lock().unwrap_or_else(std::sync::PoisonError::into_inner),
    });
}
