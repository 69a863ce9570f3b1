//! The choice of an autotune candidate for one key.

use std::cmp::Reverse;
use std::collections::HashMap;

use super::distance::distance;
use crate::recording::{ChoiceEntry, Recording, RunIdentity, Tuned, canonical};

/// The recording for the GPU on which the plan is replayed, and the run that replays it.
#[derive(Debug, Clone, Copy)]
pub struct Known<'a> {
    /// The recording.
    pub recording: &'a Recording,
    /// The model with all its inputs. Its own recorded choices take precedence over those of other runs for the same
    /// key.
    pub run: &'a RunIdentity,
}

/// The source of a choice.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Basis {
    /// Recorded on this GPU for this key.
    Recorded,
    /// Recorded on this GPU for the nearest key.
    Nearest,
    /// Not recorded: the first usable candidate of the cold pass.
    Assumed,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Choice {
    pub(super) index: usize,
    pub(super) basis: Basis,
}

/// Chooses a candidate for a key that the cold pass tuned. [`write`](super::write) documents the order.
pub(super) fn choose(module: &str, here: &Tuned, known: Option<Known<'_>>) -> Choice {
    let text = canonical(&here.key);
    // With another checksum, the same index means another candidate.
    let entries: Vec<&ChoiceEntry> = known
        .map(|known| known.recording.of_module(module))
        .unwrap_or_default()
        .iter()
        .filter(|entry| entry.tuned.checksum == here.checksum)
        .collect();
    let votes = Votes::from_entries(&entries);
    let (mut same, others): (Vec<&ChoiceEntry>, Vec<&ChoiceEntry>) =
        entries.iter().partition(|entry| entry.text == text);
    same.sort_by_key(|entry| votes.rank(entry, known));
    // A candidate that ran on the GPU for this key need not run here: the cold pass may have skipped it.
    let not_failed_here = |entry: &&&ChoiceEntry| !here.failed(entry.tuned.fastest, entry.name());
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
    // The key's text breaks ties, so that equal distances give the same plan everywhere.
    nearest.sort_by_key(|(order, _)| *order);
    let usable = |entry: &ChoiceEntry| {
        let index = entry.tuned.fastest;
        // That a candidate ran for another key proves nothing for this one, so it must have run here.
        here.name_of(index).is_some() && !failed_on_gpu(&same, index, entry.name())
    };
    if let Some((_, entry)) = nearest.into_iter().find(|(_, entry)| usable(entry)) {
        return Choice {
            index: entry.tuned.fastest,
            basis: Basis::Nearest,
        };
    }
    let assumed = here
        .succeeded()
        .find(|(index, name)| !failed_on_gpu(&same, *index, name))
        // If every candidate failed on the GPU, keep Burn's own choice, because a plan needs one for each
        // key.
        .map_or(here.fastest, |(index, _)| index);
    Choice {
        index: assumed,
        basis: Basis::Assumed,
    }
}

/// The number of runs that made each choice, by key and choice.
struct Votes<'a>(HashMap<(&'a str, usize), usize>);

impl<'a> Votes<'a> {
    fn from_entries(entries: &[&'a ChoiceEntry]) -> Self {
        let mut votes = HashMap::new();
        for entry in entries {
            *votes.entry((entry.text.as_str(), entry.tuned.fastest)).or_default() += 1;
        }
        Self(votes)
    }

    /// Returns the sort key for several choices of one key: the run's own choice first, then the choice of most runs.
    fn rank(&self, entry: &'a ChoiceEntry, known: Option<Known<'_>>) -> (bool, Reverse<usize>, usize) {
        let another_run = known.is_none_or(|known| *known.run != entry.run);
        let index = entry.tuned.fastest;
        let votes = self.0.get(&(entry.text.as_str(), index)).copied().unwrap_or_default();
        (another_run, Reverse(votes), index)
    }
}

/// Whether a candidate failed on the GPU for this key and never ran there.
///
/// Needed because the virtual compiler accepts every kernel, so the candidate may run here.
fn failed_on_gpu(same: &[&ChoiceEntry], index: usize, name: &str) -> bool {
    same.iter().any(|entry| entry.tuned.failed(index, name))
        // If it ran for this key in another run, it may have failed only because the GPU was full.
        // See docs/design/autotune-plan.md.
        && same.iter().all(|entry| entry.tuned.name_of(index).is_none())
}

/// Returns the first entry by rank for each recorded key.
///
/// Leaves out keys that were recorded with several sets of candidates, because it is unknown which set a pass will use.
pub(super) fn all(known: Known<'_>) -> Vec<&ChoiceEntry> {
    let entries = known.recording.entries();
    entries
        .chunk_by(|one, other| (&one.module, &one.text) == (&other.module, &other.text))
        .filter_map(|same| {
            let same: Vec<&ChoiceEntry> = same.iter().collect();
            let votes = Votes::from_entries(&same);
            let first = same
                .iter()
                .copied()
                .min_by_key(|entry| votes.rank(entry, Some(known)))?;
            let one_set = same.iter().all(|entry| entry.tuned.checksum == first.tuned.checksum);
            one_set.then_some(first)
        })
        .collect()
}
