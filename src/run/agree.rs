//! Whether two passes of a model did the same: in every allocation, and in every launch.

use std::collections::BTreeMap;

use super::process::Left;
use super::work;
use crate::bytes::Bytes;
use crate::protocol::{Event, Phase};

/// Where two passes differ first, and in what, to be put behind "the model": `launches 12 kernels in the backward phase of
/// step 2, and then 0`.
///
/// Allocations from the driver are compared as a set: which of two threads of Burn's comes first is not always decided, even
/// where launches are waited for, and changes no sum.
pub(super) fn difference(one: &Left, other: &Left) -> Option<String> {
    if let Some(phase) = phases(one, other) {
        return Some(phase);
    }
    let cards = one.record.cards.len().max(other.record.cards.len());
    (0..u32::try_from(cards).unwrap_or(u32::MAX)).find_map(|card| allocations(one, other, card))
}

/// An allocation that one of them made of a GPU and the other did not, or a peak that is another.
fn allocations(one: &Left, other: &Left, card: u32) -> Option<String> {
    let (one_sizes, other_sizes) = (
        sizes(&one.record.card(card).changes),
        sizes(&other.record.card(card).changes),
    );
    let more = |these: &Sizes, than: &Sizes| {
        let count = |size: &i128| than.get(size).map_or(0, Vec::len);
        let found = these.iter().find(|(size, times)| times.len() > count(size));
        found.map(|(size, times)| (*size, times[times.len() - 1]))
    };
    let told = |left: &Left, (size, time): (i128, u64), when: &str| {
        let what = if size < 0 { "gives back" } else { "reserves" };
        let bytes = Bytes(u64::try_from(size.unsigned_abs()).unwrap_or(u64::MAX));
        format!("{what} {bytes}{}{when}", place(phase_at(left, card, time)))
    };
    if let Some(extra) = more(&one_sizes, &other_sizes) {
        return Some(told(one, extra, ", and then does not"));
    }
    if let Some(extra) = more(&other_sizes, &one_sizes) {
        return Some(told(other, extra, " the second time alone"));
    }
    let (peak, then) = (one.record.peak(card), other.record.peak(card));
    (peak != then).then(|| format!("reserves up to {peak}, and then {then}"))
}

/// By how much what is reserved changed, each with the times at which it did.
type Sizes = BTreeMap<i128, Vec<u64>>;

fn sizes(changes: &[(u64, Bytes)]) -> Sizes {
    let mut sizes = Sizes::new();
    let mut before = 0;
    for (time, bytes) in changes {
        let now = i128::from(bytes.0);
        sizes.entry(now - before).or_default().push(*time);
        before = now;
    }
    sizes
}

/// Whether a pass launched what another one did, in each phase up to the last step. What the last one holds back when nothing comes
/// after it, it launches later.
pub(super) fn is_same_work(one: &Left, other: &Left) -> bool {
    let (one, other) = (work::seen(one), work::seen(other));
    let last = one.keys().map(|(step, ..)| *step).max().flatten();
    one.iter().all(|(place, work)| {
        let same = other.get(place);
        same.is_some_and(|same| place.0 == last || same.launched(work))
    })
}

/// The first phase in which they launched other kernels, or held other memory.
fn phases(one: &Left, other: &Left) -> Option<String> {
    let (one, other) = (work::seen(one), work::seen(other));
    let places = one.keys().chain(other.keys());
    let differs = |place: &&work::Place| one.get(place) != other.get(place);
    let first = places.filter(differs).min()?;
    let of = |seen: &BTreeMap<_, work::PhaseWork>| seen.get(first).copied().unwrap_or_default();
    let (one, other) = (of(&one), of(&other));
    let at = place((first.0, Some(first.1)));
    Some(match () {
        () if one.launches != other.launches => {
            format!("launches {} kernels{at}, and then {}", one.launches, other.launches)
        }
        () if one.live_peak != other.live_peak => format!(
            "holds up to {}{at}, and then {}",
            Bytes(one.live_peak),
            Bytes(other.live_peak)
        ),
        () if (one.live_end, one.in_use_end) != (other.live_end, other.in_use_end) => {
            // What differs may be less than the padding around it.
            let shown = if one.live_end == other.live_end {
                (one.in_use_end, other.in_use_end)
            } else {
                (one.live_end, other.live_end)
            };
            format!(
                "holds {} at the end{}, and then {}",
                Bytes(shown.0),
                at.replacen(" in", " of", 1),
                Bytes(shown.1)
            )
        }
        () => format!("launches {} kernels{at}, and then as many others", one.launches),
    })
}

/// ` in the backward phase of step 2`
fn place((step, phase): (Option<u32>, Option<Phase>)) -> String {
    let Some(phase) = phase else { return String::new() };
    let phase = crate::report::words::phase_name(phase);
    match step {
        Some(step) => format!(" in the {phase} phase of step {step}"),
        None => format!(" in the {phase} phase, before the first step"),
    }
}

fn phase_at(left: &Left, of: u32, time: u64) -> (Option<u32>, Option<Phase>) {
    let mut at = (None, None);
    for event in &left.events {
        if let Event::Phase {
            card,
            time: began,
            step,
            phase,
        } = event
            && *card == of
            && *began <= time
        {
            at = (*step, Some(*phase));
        }
    }
    at
}
