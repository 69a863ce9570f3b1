//! The types of an answer of `fit`. Their names are the format: renaming one needs a new version.

use std::collections::BTreeMap;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::TriedValue;
use crate::bytes::Bytes;
use crate::protocol::WhatIf;
use crate::report::{Assumption, Peaks, Run, RunGpu, Tool};
use crate::untrusted::{Foreign, PlainName};

/// The version of the `fit` format that this program writes.
pub const FIT_VERSION: u32 = 2;

/// Whether a model fits on GPUs, and the largest input with which it fits.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct FitAnswer {
    /// The version of this format.
    #[schemars(extend("const" = FIT_VERSION))]
    pub version: u32,
    /// The program that wrote the answer.
    pub tool: Tool,
    /// The git commit of the workspace; null if the workspace is not a git checkout.
    pub commit: Option<Foreign>,
    /// The package that declares the model.
    pub package: PlainName,
    /// The model's name, or its budget's name if that differs.
    pub model: PlainName,
    /// The input that was varied, such as `batch_size`; null if only the GPU was varied.
    pub vary: Option<PlainName>,
    /// Other inputs that differ from the model's own values.
    pub inputs: BTreeMap<PlainName, u64>,
    /// Whether only later launches count, which have the autotune choices already, and not the first launch (`--warm`).
    pub warm_only: bool,
    /// The part of each GPU that must stay free, in percent, as it was requested.
    pub headroom: Foreign,
    /// Whether changes were tried until the model fits (`--advise`). Then `gpus` has one entry per attempt, in order.
    /// Absent if false.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub advised: bool,
    /// One entry per GPU, the smallest first. With what-ifs, this list is repeated for each of them.
    pub gpus: Vec<GpuFit>,
}

/// The result for one GPU.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct GpuFit {
    /// The GPU.
    pub gpu: RunGpu,
    /// The what-if overrides of this result; absent if there are none.
    #[serde(default, skip_serializing_if = "WhatIf::is_none")]
    pub what_if: WhatIf,
    /// The bytes that a process may hold: the memory of the GPU minus the headroom.
    pub room: Bytes,
    /// The largest value of the varied input that fits; null if none fits or no input was varied.
    pub largest: Option<u64>,
    /// The smallest value above `largest` that was tried and does not fit; null if there is none.
    pub too_large: Option<u64>,
    /// Why the search ended.
    pub ended: SearchEnd,
    /// Values that fit although a smaller value does not.
    pub not_monotonic: Vec<u64>,
    /// Every value that was tried, the smallest first.
    pub probes: Vec<Probe>,
}

/// Why a search ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum SearchEnd {
    /// The largest value that fits and the smallest that does not are neighbours, or nothing was searched.
    Found,
    /// The largest value of the range fits.
    EndOfRange,
    /// The smallest value of the range does not fit.
    NothingFits,
    /// Values between the largest that fits and the smallest that does not cannot run.
    CannotBeRun,
}

/// One estimate of the search.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Probe {
    /// The value of the varied input; null if no input was varied.
    pub value: Option<u64>,
    /// Whether the model fits within the room, in the cold and the warm pass. If `warm_only` or `shares_plan` is set,
    /// only the warm pass counts, and if `first_only` is set, only the cold pass.
    pub fits: bool,
    /// The peak of process memory in bytes, cold or warm. If the GPU ran out of memory: the bytes held and requested at
    /// that moment or, if GPUs are compared, the peak of a run without a memory limit. Null if the model cannot run.
    pub needed: Option<Bytes>,
    /// The room minus `needed` in bytes, negative if memory is missing. Null if the need is unknown: Burn refuses a
    /// single tensor above a fixed part of the GPU's memory, however much is free.
    pub left: Option<i64>,
    /// The peaks of the run.
    pub peaks: Peaks,
    /// Whether `needed` is only a lower bound: the bytes held and requested when the GPU had no more.
    pub at_least: bool,
    /// Whether the GPU's own memory is too small, and not only the room that the headroom leaves.
    pub out_of_memory: bool,
    /// Why the model could not run; null if it ran.
    pub error: Option<Foreign>,
    /// Whether there was no cold pass, because the warm pass needed only the autotune choices of another value. If the
    /// value was tried as a first launch afterwards, it made the same choices.
    pub shares_plan: bool,
    /// Whether the first launch fits, and later launches were not run because the search did not need them. Absent if
    /// false.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub first_only: bool,
}

impl Probe {
    /// Creates a probe from a run. With `warm_only`, the cold pass does not count.
    #[must_use]
    pub fn from_run(value: Option<u64>, run: &Run, room: Bytes, warm_only: bool) -> Self {
        let Peaks { warm, cold } = run.peaks;
        let cold = cold.process.filter(|_| !warm_only);
        let held = warm.process.into_iter().chain(cold).max();
        // The model misses at least what it requested when nothing was left.
        let outside = run.gpu.total_bytes.0.saturating_sub(run.gpu.available_bytes.0);
        let asked = run.oom.as_ref().map(|oom| {
            // If the driver lacks room for its own needs, it names no size. At least one byte was missing.
            let requested = oom.requested.map_or(1, |bytes| bytes.0);
            Bytes(oom.reserved.0.saturating_add(requested).saturating_add(outside))
        });
        // Burn refuses a tensor above a fixed part of the GPU's memory, however much is free. Such a refusal does not
        // show the need.
        let is_full = |needed: &Bytes| run.oom.is_none() || *needed > run.gpu.total_bytes;
        // A run that failed has peaks, too. But they do not show what the model needs. The same holds for one of several
        // runs that differ.
        let error = run.error.as_ref().map(|error| error.message.clone());
        let error = error.or_else(|| {
            let differs = run
                .assumptions
                .iter()
                .find(|line| matches!(line, Assumption::ThreadsDiffer { .. }));
            differs.map(|line| line.to_string().into())
        });
        let needed = asked.or(held).filter(|_| error.is_none());
        Self {
            value,
            fits: run.oom.is_none() && needed.is_some_and(|needed| needed <= room),
            needed,
            left: needed.filter(is_full).map(|needed| room.less(needed)),
            peaks: run.peaks,
            at_least: run.oom.is_some(),
            out_of_memory: run.oom.is_some() || needed.is_some_and(|needed| needed > run.gpu.total_bytes),
            error,
            shares_plan: false,
            first_only: false,
        }
    }

    /// Takes the need of a run without a memory limit, if it is higher.
    pub fn tell(&mut self, endless: &Run, room: Bytes, warm_only: bool) {
        let told = Self::from_run(self.value, endless, room, warm_only);
        if told.needed > self.needed {
            (self.needed, self.left, self.peaks) = (told.needed, told.left, told.peaks);
            self.at_least = false;
        }
    }

    /// Combines a probe of warm passes with the result of the first launch. At most one of them does not fit.
    #[must_use]
    pub fn with_first(&self, first: &Self) -> Self {
        Self {
            value: self.value,
            fits: self.fits && first.fits,
            needed: first.needed.zip(self.needed).map(|(cold, warm)| warm.max(cold)),
            left: first.left.zip(self.left).map(|(cold, warm)| warm.min(cold)),
            peaks: Peaks {
                warm: self.peaks.warm,
                cold: first.peaks.cold,
            },
            at_least: self.at_least || first.at_least,
            out_of_memory: self.out_of_memory || first.out_of_memory,
            error: self.error.clone().or_else(|| first.error.clone()),
            shares_plan: false,
            first_only: false,
        }
    }

    /// Returns the result for the search. With `by_warm`, the need of the warm pass counts: a cold pass takes what is
    /// free, so its need does not predict that of other values.
    #[must_use]
    pub fn tried(&self, room: Bytes, by_warm: bool) -> TriedValue {
        let Some(needed) = self.needed else {
            return TriedValue::Broken;
        };
        let foretells = self.peaks.warm.process.filter(|_| by_warm).unwrap_or(needed);
        match self.fits {
            true => TriedValue::Fits(foretells),
            // If only the first launch does not fit, this says nothing about the values at which warm passes do not
            // fit.
            false => TriedValue::Full(Some(foretells).filter(|needed| !self.at_least && *needed > room)),
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
            first_only: false,
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
        // The first launch needs more, and there is enough; it needs less; it needs more than there is.
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
        // The first launch fits, and then later ones do not.
        let later = Probe {
            fits: false,
            needed: Some(Bytes(120)),
            left: Some(-20),
            out_of_memory: true,
            ..warm.clone()
        };
        let later = later.with_first(&first(Some(90), true));
        assert_eq!(told(&later), (false, Some(120), Some(-20), false));
        assert!(later.out_of_memory && !later.first_only);
        // The need is unknown, or the model cannot run.
        let refused = Probe {
            left: None,
            ..first(Some(30), false)
        };
        assert_eq!(warm.with_first(&refused).left, None);
        let broken = Probe {
            error: Some("it panicked".into()),
            ..first(None, false)
        };
        let broken = warm.with_first(&broken);
        assert_eq!(
            (told(&broken), broken.error.is_some()),
            ((false, None, None, false), true)
        );
        assert_eq!(broken.tried(Bytes(100), true), TriedValue::Broken);
    }

    #[test]
    fn warm_passes_foretell_where_they_decide() {
        let room = Bytes(100);
        assert_eq!(probe(60, 99, true).tried(room, true), TriedValue::Fits(Bytes(60)));
        assert_eq!(probe(60, 99, true).tried(room, false), TriedValue::Fits(Bytes(99)));
        assert_eq!(
            probe(120, 99, false).tried(room, true),
            TriedValue::Full(Some(Bytes(120)))
        );
        // Only the cold pass does not fit.
        assert_eq!(probe(60, 101, false).tried(room, true), TriedValue::Full(None));
        assert_eq!(
            probe(60, 101, false).tried(room, false),
            TriedValue::Full(Some(Bytes(101)))
        );
    }
}
