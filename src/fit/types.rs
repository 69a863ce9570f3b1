//! The types of an answer. Their names are the format: renaming one is a new version.

use std::collections::BTreeMap;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::Tried;
use crate::bytes::Bytes;
use crate::protocol::WhatIf;
use crate::report::{Gpu, Peaks, Run, Tool};

/// The version of the format that this program writes.
pub const FIT_VERSION: u32 = 1;

/// Whether a model fits on cards, and the largest input with which it does.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Fit {
    /// The version of this format.
    #[schemars(extend("const" = FIT_VERSION))]
    pub version: u32,
    /// Which program made it.
    pub tool: Tool,
    /// The commit that was checked out, where the workspace is a git checkout.
    pub commit: Option<String>,
    /// The package that declares the model.
    pub package: String,
    /// The model, or its budget's name.
    pub model: String,
    /// The input that was varied: `batch_size`; absent where cards alone were.
    pub vary: Option<String>,
    /// Inputs that were not varied and differ from what the model says.
    pub inputs: BTreeMap<String, u64>,
    /// Whether only launches count for which autotune's choices are there already, and not the first one.
    pub warm_only: bool,
    /// How much of each card is to be left free, in percent, as it was asked for.
    pub headroom: String,
    /// Whether changes were tried until it fits: then each entry is one of those, in their order.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub advised: bool,
    /// One entry a card, the smallest first; once for each what-if, where it was asked for those.
    pub cards: Vec<CardFit>,
}

/// What came of one card.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct CardFit {
    /// The card.
    pub gpu: Gpu,
    /// In what the model was run otherwise than it says; absent where it was run as it is.
    #[serde(default, skip_serializing_if = "WhatIf::is_none")]
    pub what_if: WhatIf,
    /// What a process may hold of it: its memory less the headroom.
    pub room: Bytes,
    /// The largest value of the varied input that fits; absent where none does, or none was varied.
    pub largest: Option<u64>,
    /// The smallest value above it that was tried, and does not fit.
    pub too_large: Option<u64>,
    /// Why the search ended.
    pub ended: Ended,
    /// Values above one that does not fit that fit all the same.
    pub not_monotonic: Vec<u64>,
    /// Every value that was tried, the smallest first.
    pub probes: Vec<Probe>,
}

/// Why a search ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum Ended {
    /// What fits and what does not are neighbours, or nothing was searched.
    Found,
    /// The largest value of the range fits.
    EndOfRange,
    /// The smallest value of the range does not fit.
    NothingFits,
    /// Values between what fits and what does not cannot be run.
    CannotBeRun,
}

/// One estimate.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Probe {
    /// The value of the varied input.
    pub value: Option<u64>,
    /// Whether it fits, cold and warm, with the headroom.
    pub fits: bool,
    /// What a process holds at its peak, cold or warm; where the card's memory does not suffice, what it came to when it
    /// asked for more than there was or, of a table of cards, what a run without an end of memory came to. Absent where it
    /// cannot be run.
    pub needed: Option<Bytes>,
    /// The room less what is needed: negative where so much is missing. Absent where nobody knows what is needed: Burn
    /// refuses a single tensor that is more than a part of the card, whatever else there is.
    pub left: Option<i64>,
    /// Its peaks.
    pub peaks: Peaks,
    /// More than that would be needed: it is what was held and asked for when the card had no more.
    pub at_least: bool,
    /// Whether the card's own memory ended it, rather than the headroom.
    pub out_of_memory: bool,
    /// Why it could not be run at all.
    pub error: Option<String>,
    /// There was no cold pass: autotune's choices for another value were all that the warm one took. A value that was tried
    /// as a first launch afterwards made the same ones.
    pub shares_plan: bool,
}

impl Probe {
    /// Makes one of a run; of its warm pass alone, or of the cold one, too.
    #[must_use]
    pub fn of(value: Option<u64>, run: &Run, room: Bytes, warm_only: bool) -> Self {
        let Peaks { warm, cold } = run.peaks;
        let cold = cold.process.filter(|_| !warm_only);
        let held = warm.process.into_iter().chain(cold).max();
        // What was asked for when nothing was left is the least that is missing.
        let outside = run.gpu.total_bytes.0.saturating_sub(run.gpu.available_bytes.0);
        let asked = run.oom.as_ref().map(|oom| {
            let requested = oom.requested.map_or(1, |bytes| bytes.0);
            Bytes(oom.reserved.0.saturating_add(requested).saturating_add(outside))
        });
        // Burn refuses a tensor that is more than a part of the card, whatever is left: that tells nothing of what is needed.
        let is_full = |needed: &Bytes| run.oom.is_none() || *needed > run.gpu.total_bytes;
        let needed = asked.or(held).filter(|_| run.error.is_none());
        Self {
            value,
            fits: run.oom.is_none() && needed.is_some_and(|needed| needed <= room),
            needed,
            left: needed.filter(is_full).map(|needed| room.less(needed)),
            peaks: run.peaks,
            at_least: run.oom.is_some(),
            out_of_memory: run.oom.is_some() || needed.is_some_and(|needed| needed > run.gpu.total_bytes),
            error: run.error.as_ref().map(|error| error.message.clone()),
            shares_plan: false,
        }
    }

    /// Tells what it needs, of a run in which memory had no end.
    pub fn tell(&mut self, endless: &Run, room: Bytes, warm_only: bool) {
        let told = Self::of(self.value, endless, room, warm_only);
        if told.needed > self.needed {
            (self.needed, self.left, self.peaks) = (told.needed, told.left, told.peaks);
            self.at_least = false;
        }
    }

    /// With what came of its first launch, where it fitted by later ones alone.
    #[must_use]
    pub fn with_first(&self, first: &Self) -> Self {
        Self {
            value: self.value,
            fits: self.fits && first.fits,
            needed: first.needed.map(|cold| self.needed.map_or(cold, |warm| warm.max(cold))),
            left: first.left.map(|cold| self.left.map_or(cold, |warm| warm.min(cold))),
            peaks: Peaks {
                warm: self.peaks.warm,
                cold: first.peaks.cold,
            },
            at_least: first.at_least,
            out_of_memory: first.out_of_memory,
            error: first.error.clone(),
            shares_plan: false,
        }
    }

    /// What it tells a search, of warm passes where those are what decides: a cold one takes what there is, and less where
    /// there is less, which foretells nothing.
    #[must_use]
    pub fn tried(&self, room: Bytes, by_warm: bool) -> Tried {
        let Some(needed) = self.needed else {
            return Tried::Broken;
        };
        let foretells = self.peaks.warm.process.filter(|_| by_warm).unwrap_or(needed);
        match self.fits {
            true => Tried::Fits(foretells),
            // What only its first launch has no room for says nothing of where warm passes have none.
            false => Tried::Full(Some(foretells).filter(|needed| !self.at_least && *needed > room)),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::report::Peak;

    fn probe(warm: u64, cold: u64, fits: bool) -> Probe {
        let of = |process| Peak {
            process: Some(Bytes(process)),
            ..Peak::default()
        };
        Probe {
            value: Some(1),
            fits,
            needed: Some(Bytes(warm.max(cold))),
            left: None,
            peaks: Peaks {
                warm: of(warm),
                cold: of(cold),
            },
            at_least: false,
            out_of_memory: false,
            error: None,
            shares_plan: false,
        }
    }

    #[test]
    fn a_first_launch_decides_what_later_ones_left_open() {
        let room = 100;
        let warm = Probe {
            left: Some(40),
            peaks: Peaks {
                warm: probe(60, 0, true).peaks.warm,
                cold: Peak::default(),
            },
            needed: Some(Bytes(60)),
            shares_plan: true,
            ..probe(60, 0, true)
        };
        let first = |needed: Option<u64>, fits| Probe {
            needed: needed.map(Bytes),
            left: needed.map(|needed| room - i64::try_from(needed).unwrap()),
            peaks: Peaks {
                warm: Peak::default(),
                cold: probe(0, needed.unwrap_or(0), fits).peaks.cold,
            },
            ..probe(0, 0, fits)
        };
        let told = |probe: &Probe| {
            (
                probe.fits,
                probe.needed.map(|needed| needed.0),
                probe.left,
                probe.shares_plan,
            )
        };
        // It needs more, and there is as much; less; more than there is.
        assert_eq!(
            told(&warm.with_first(&first(Some(90), true))),
            (true, Some(90), Some(10), false)
        );
        assert_eq!(
            told(&warm.with_first(&first(Some(50), true))),
            (true, Some(60), Some(40), false)
        );
        let full = Probe {
            at_least: true,
            out_of_memory: true,
            ..first(Some(130), false)
        };
        let full = warm.with_first(&full);
        assert_eq!(told(&full), (false, Some(130), Some(-30), false));
        assert!(full.at_least && full.out_of_memory);
        assert_eq!(full.peaks.warm, warm.peaks.warm);
        // Nobody knows what it needs, or it cannot be run.
        let refused = Probe {
            left: None,
            ..first(Some(30), false)
        };
        assert_eq!(warm.with_first(&refused).left, None);
        let broken = Probe {
            error: Some("it panicked".to_owned()),
            ..first(None, false)
        };
        let broken = warm.with_first(&broken);
        assert_eq!(
            (told(&broken), broken.error.is_some()),
            ((false, None, None, false), true)
        );
        assert_eq!(broken.tried(Bytes(100), true), Tried::Broken);
    }

    #[test]
    fn warm_passes_foretell_where_they_decide() {
        let room = Bytes(100);
        assert_eq!(probe(60, 99, true).tried(room, true), Tried::Fits(Bytes(60)));
        assert_eq!(probe(60, 99, true).tried(room, false), Tried::Fits(Bytes(99)));
        assert_eq!(probe(120, 99, false).tried(room, true), Tried::Full(Some(Bytes(120))));
        // Too much when it is cold alone.
        assert_eq!(probe(60, 101, false).tried(room, true), Tried::Full(None));
        assert_eq!(probe(60, 101, false).tried(room, false), Tried::Full(Some(Bytes(101))));
    }
}
