//! The choice for one key.

use std::cmp::Reverse;
use std::collections::HashMap;

use super::distance::distance;
use crate::recording::{Entry, Recording, RunIdentity, Tuned, canonical};

/// What is known of the card on which the plan is replayed, and for which run.
#[derive(Debug, Clone, Copy)]
pub struct Known<'a> {
    /// The card's recording.
    pub recording: &'a Recording,
    /// The model with all its inputs: what it chose itself goes before what others chose for the same key.
    pub run: &'a RunIdentity,
}

/// What a choice rests on.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Basis {
    /// Recorded on this card.
    Recorded,
    /// Taken from the nearest key recorded on this card.
    Nearest,
    /// Taken from the documented order.
    Assumed,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Choice {
    pub(super) index: usize,
    pub(super) basis: Basis,
}

/// Makes the choice for a key that was tuned here.
pub(super) fn choose(module: &str, here: &Tuned, known: Option<Known<'_>>) -> Choice {
    let text = canonical(&here.key);
    // With another checksum, an index is another candidate.
    let entries: Vec<&Entry> = known
        .map(|known| known.recording.of_module(module))
        .unwrap_or_default()
        .iter()
        .filter(|entry| entry.tuned.checksum == here.checksum)
        .collect();
    let votes = Votes::of(&entries);
    let (mut same, others): (Vec<&Entry>, Vec<&Entry>) = entries.iter().partition(|entry| entry.text == text);
    same.sort_by_key(|entry| votes.rank(entry, known));
    // What ran on the card for this very key needs no proof here, where Burn may not have come as far as to try it.
    let not_failed_here = |entry: &&&Entry| !here.failed(entry.tuned.fastest, entry.name());
    if let Some(entry) = same.iter().find(not_failed_here) {
        return Choice {
            index: entry.tuned.fastest,
            basis: Basis::Recorded,
        };
    }
    let mut nearest: Vec<_> = others
        .into_iter()
        .filter_map(|entry| {
            let far = distance(&entry.tuned.key, &here.key)?;
            Some(((far, entry.text.as_str(), votes.rank(entry, known)), entry))
        })
        .collect();
    nearest.sort_by_key(|(order, _)| *order);
    let usable = |entry: &Entry| {
        let index = entry.tuned.fastest;
        here.name_of(index).is_some() && !failed_on_card(&same, index, entry.name())
    };
    if let Some((_, entry)) = nearest.into_iter().find(|(_, entry)| usable(entry)) {
        return Choice {
            index: entry.tuned.fastest,
            basis: Basis::Nearest,
        };
    }
    let assumed = here
        .succeeded()
        .find(|(index, name)| !failed_on_card(&same, *index, name))
        .map_or(here.fastest, |(index, _)| index);
    Choice {
        index: assumed,
        basis: Basis::Assumed,
    }
}

/// How many runs made each choice for each key.
struct Votes<'a>(HashMap<(&'a str, usize), usize>);

impl<'a> Votes<'a> {
    fn of(entries: &[&'a Entry]) -> Self {
        let mut votes = HashMap::new();
        for entry in entries {
            *votes.entry((entry.text.as_str(), entry.tuned.fastest)).or_default() += 1;
        }
        Self(votes)
    }

    /// Which of several choices for one key goes first: that of the run itself, then what most runs chose.
    fn rank(&self, entry: &'a Entry, known: Option<Known<'_>>) -> (bool, Reverse<usize>, usize) {
        let another_run = known.is_none_or(|known| *known.run != entry.run);
        let index = entry.tuned.fastest;
        let votes = self.0.get(&(entry.text.as_str(), index)).copied().unwrap_or_default();
        (another_run, Reverse(votes), index)
    }
}

/// Whether a candidate failed on the card for this key and never ran there: the virtual compiler takes everything.
fn failed_on_card(same: &[&Entry], index: usize, name: &str) -> bool {
    same.iter().any(|entry| entry.tuned.failed(index, name))
        && same.iter().all(|entry| entry.tuned.name_of(index).is_none())
}

/// For each recorded key the entry that goes first. Keys that were recorded with several sets of candidates are left out,
/// since which set is met is not known.
pub(super) fn all(known: Known<'_>) -> Vec<&Entry> {
    let entries = known.recording.entries();
    entries
        .chunk_by(|one, other| (&one.module, &one.text) == (&other.module, &other.text))
        .filter_map(|same| {
            let same: Vec<&Entry> = same.iter().collect();
            let votes = Votes::of(&same);
            let first = same
                .iter()
                .copied()
                .min_by_key(|entry| votes.rank(entry, Some(known)))?;
            let one_set = same.iter().all(|entry| entry.tuned.checksum == first.tuned.checksum);
            one_set.then_some(first)
        })
        .collect()
}
