//! Leak detection: whether live memory keeps growing from step to step.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::EpochPhase;
use super::peaks::Pass;
use super::types::{Run, Step, is_default};
use super::words::counted;
use crate::bytes::Bytes;

/// The number of first steps that are not compared, because the first step makes the optimizer's state.
const SETTLED: usize = 1;
/// The number of steps that must each end higher than the step one period earlier.
const COMPARED: usize = 3;

/// The number of steps that leak detection needs.
pub const ENOUGH_STEPS: u32 = (SETTLED + 1 + COMPARED) as u32;

/// How live memory changes from step to step.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Trend {
    /// Too few steps were run for leak detection.
    Unknown {
        /// The number of steps that were run.
        steps: u32,
    },
    /// Live memory does not keep growing.
    Steady,
    /// Live memory keeps growing.
    Growing(Growing),
}

/// The time between two values that are compared.
#[derive(Debug, Default, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum GrowthInterval {
    /// A step.
    #[default]
    Step,
    /// An epoch of a training of several epochs.
    Epoch,
}

impl GrowthInterval {
    /// Returns the name in sentences.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Step => "step",
            Self::Epoch => "epoch",
        }
    }
}

/// Live memory that keeps growing from step to step, or from epoch to epoch.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Growing {
    /// What `steps` counts: steps, or epochs; absent for steps.
    #[serde(default, skip_serializing_if = "is_default")]
    pub interval: GrowthInterval,
    /// The number of the first step in `steps`; absent for epochs and for step 0.
    #[serde(default, skip_serializing_if = "is_default")]
    pub first_step: u32,
    /// The number of the GPU, from 0; absent if the model uses one GPU.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub gpu_number: Option<u32>,
    /// Live memory at the end of each step or epoch in bytes, without the allocator's padding.
    pub steps: Vec<Bytes>,
    /// The average growth per step or epoch in bytes, rounded up; at least 1.
    pub per_step: Bytes,
    /// The growth in bytes from the end of the second step or epoch to the end of the last. If a single fall would hide the
    /// growth, that fall is not subtracted.
    #[serde(default)]
    pub left: Bytes,
    /// Whether the growth can only be a leak. If false, memory may also settle late, or may be released now and then.
    #[serde(default = "sure")]
    pub is_sure: bool,
}

const fn sure() -> bool {
    true
}

impl Growing {
    /// Returns the number of the first step or epoch. Epochs are counted from 1.
    #[must_use]
    pub const fn first_number(&self) -> u32 {
        match self.interval {
            GrowthInterval::Step => self.first_step,
            GrowthInterval::Epoch => 1,
        }
    }

    /// Describes the growth: `live memory grows on average by 2.50 KiB per step (64×10 f32, src/model.rs:91), 20.0 KiB
    /// over 8 steps`.
    ///
    /// `size` formats bytes, and `what` follows the growth per step.
    pub fn summary(&self, what: &str, size: impl Fn(Bytes) -> String) -> String {
        let steps = self.steps.len();
        let over = counted(steps.saturating_sub(SETTLED + 1) as u64, self.interval.name());
        let (per_step, left) = (size(self.per_step), size(self.left));
        let each = self.interval.name();
        let mut text = format!("live memory grows on average by {per_step} per {each}{what}, {left} over {over}");
        if !self.is_sure && self.first_step == 0 {
            text += &format!(" (or it settles late: run with `--{each}s {}` to find out)", steps * 2);
        }
        text
    }
}

/// Whether live memory keeps growing over these steps.
pub(crate) fn grows(steps: &[Step]) -> bool {
    matches!(trend(steps, None), Trend::Growing(_))
}

impl Run {
    /// Checks whether live memory keeps growing after the first step. With several GPUs, growth on one of them
    /// suffices. Needs [`ENOUGH_STEPS`] steps.
    #[must_use]
    pub fn trend(&self) -> Trend {
        // Each step has another size. `OrderMemory::leak_per_round` compares steps of one size.
        if self.varying.as_ref().is_some_and(|varying| varying.steps_of.varies()) {
            return Trend::Steady;
        }
        let gpus = self.gpus.iter().map(|on| trend(&on.steps, Some(on.gpu_number)));
        // A GPU that nobody could judge must not count as steady because another GPU is.
        gpus.reduce(|one, other| match (&one, &other) {
            (Trend::Growing(_), _) | (Trend::Unknown { .. }, Trend::Steady) => one,
            _ => other,
        })
        .unwrap_or_else(
            || match self.epochs.iter().rfind(|part| part.part == EpochPhase::Training) {
                // The steps of a validation end with other memory, so only those of one training are compared.
                Some(last) => {
                    let within = last.first_step..last.first_step.saturating_add(last.steps);
                    let own = self.steps.iter().filter(|step| within.contains(&step.step));
                    trend(&own.cloned().collect::<Vec<_>>(), None)
                }
                None => trend(&self.steps, None),
            },
        )
    }
}

fn trend(steps: &[Step], gpu: Option<u32>) -> Trend {
    // Only the observed pass sees live memory.
    let traced = steps.iter().filter(|step| step.pass == Pass::Traced);
    let first_step = traced.clone().map(|step| step.step).next().unwrap_or_default();
    let steps: Vec<Bytes> = traced.filter_map(Step::in_use_end).collect();
    let count = u32::try_from(steps.len()).unwrap_or(u32::MAX);
    if count < ENOUGH_STEPS {
        return Trend::Unknown { steps: count };
    }
    let Some((ends, is_sure)) = growing_ends(&steps) else {
        return Trend::Steady;
    };
    let left = ends[ends.len() - 1].saturating_sub(ends[0]);
    // Rounded up: a leak of a few bytes over many steps must not show as 0 bytes.
    let per_step = Bytes(left.0.div_ceil(ends.len() as u64 - 1).max(1));
    Trend::Growing(Growing {
        interval: GrowthInterval::Step,
        first_step,
        gpu_number: gpu,
        per_step,
        left,
        is_sure,
        steps,
    })
}

/// Returns the ends without the first, if they keep growing, and whether that is sure. If a single fall would hide the
/// growth, the ends are those without that fall. Needs [`ENOUGH_STEPS`] ends.
pub(super) fn growing_ends(ends: &[Bytes]) -> Option<(Vec<Bytes>, bool)> {
    let settled = ends.get(SETTLED..)?;
    if let Some(period) = period(settled) {
        return Some((settled.to_vec(), is_repeated(settled, period)));
    }
    // A cache that is filled and emptied repeatedly falls more than once. So without one fall, only periods that fit
    // three times count.
    let without_a_fall = spliced(settled);
    let is_shown_again = period(&without_a_fall).is_some_and(|period| period <= settled.len() / 3);
    is_shown_again.then_some((without_a_fall, false))
}

/// Returns the shortest period, of at most half of the steps, for which each step ends higher than the step one period
/// earlier.
///
/// A leak in every nth step shows at period n. If one step ends lower, a leak does not show at short periods, but at
/// periods over which it adds up to more than that fall. Memory that settles in the first half of the steps is not a
/// leak: the last steps then end like the steps one period earlier.
fn period(settled: &[Bytes]) -> Option<usize> {
    // Half of all steps, the first one included. At least three pairs must remain to compare.
    let longest = ((settled.len() + SETTLED) / 2).min(settled.len().saturating_sub(COMPARED));
    // "Each step higher than the last" misses a leak in every nth step. A fitted line rises for a model that
    // settles, too.
    (1..=longest).find(|period| {
        let mut pairs = settled.iter().zip(&settled[*period..]);
        pairs.all(|(before, after)| after > before)
    })
}

/// Whether the first and the last rise are at least one period apart. After a single rise, memory may have settled.
fn is_repeated(settled: &[Bytes], period: usize) -> bool {
    let rises = |at: &usize| settled[*at] > settled[at - 1];
    let first = (1..settled.len()).find(rises);
    let last = (1..settled.len()).rev().find(rises);
    first.zip(last).is_some_and(|(first, last)| last - first >= period)
}

/// Removes the largest fall from one step to the next, so that memory released once does not hide what each step leaves
/// behind.
fn spliced(settled: &[Bytes]) -> Vec<Bytes> {
    let fall = |at: usize| settled[at - 1].saturating_sub(settled[at]);
    let largest = (1..settled.len()).max_by_key(|at| (fall(*at), std::cmp::Reverse(*at)));
    let Some(at) = largest else { return settled.to_vec() };
    let ends = settled.iter().enumerate();
    ends.map(|(step, end)| if step < at { *end } else { *end + fall(at) })
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::report::{GpuShare, sample};

    /// Returns the trend of a run with this much live memory at the end of each step.
    fn trend_of(ends: &[u64]) -> Trend {
        sample::ending_at(sample::run("a", "l4"), ends).trend()
    }

    fn grown(ends: &[u64]) -> Option<u64> {
        match trend_of(ends) {
            Trend::Growing(growing) => Some(growing.per_step.0),
            _ => None,
        }
    }

    #[test]
    fn a_leak_on_a_gpu_that_is_not_the_fullest_is_one() {
        let mut run = sample::ending_at(sample::run("a", "l4"), &[900, 900, 900, 900, 900]);
        let of = |gpu, ends: &[u64]| GpuShare {
            gpu_number: gpu,
            peaks: run.peaks,
            steps: sample::ending_at(sample::run("a", "l4"), ends).steps,
        };
        run.gpus = vec![of(0, &[900, 900, 900, 900, 900]), of(1, &[10, 50, 60, 70, 80])];
        let Trend::Growing(growing) = run.trend() else {
            panic!("{:?}", run.trend());
        };
        assert_eq!((growing.gpu_number, growing.per_step), (Some(1), Bytes(10)));
        run.gpus.truncate(1);
        assert_eq!(run.trend(), Trend::Steady);
    }

    #[test]
    fn what_grows_with_each_step_is_a_leak() {
        assert_eq!(grown(&[10, 50, 60, 70, 80]), Some(10));
        // 4 bytes in 3 steps are 2 bytes per step, because the average is rounded up.
        assert_eq!(grown(&[10, 50, 51, 53, 54]), Some(2));
    }

    /// Returns live memory at the end of each step if every `period`th step leaves 100 bytes behind, beginning with the
    /// step `first`.
    fn leaking(steps: u64, period: u64, first: u64) -> Vec<u64> {
        (0..steps)
            .map(|step| 1000 + (step + period - first) / period * 100)
            .collect()
    }

    #[test]
    fn a_leak_of_any_period_up_to_half_of_the_steps_is_found() {
        for steps in [8, 9, 10, 11, 20, 50] {
            for period in 1..=steps / 2 {
                for first in 0..period {
                    let ends = leaking(steps, period, first);
                    let Trend::Growing(growing) = trend_of(&ends) else {
                        panic!("{steps} steps, each {period}th leaks, from {first} on");
                    };
                    let left = ends[ends.len() - 1] - ends[1];
                    assert_eq!(growing.left, Bytes(left), "{ends:?}");
                    assert_eq!(growing.per_step, Bytes(left.div_ceil(steps - 2)), "{ends:?}");
                    // A leak that shows only once may be something else.
                    assert_eq!(growing.is_sure, left > 100, "{ends:?}");
                }
            }
        }
    }

    #[test]
    fn a_step_that_ends_a_little_lower_hides_no_leak() {
        let mut ends: Vec<u64> = (0..10).map(|step| 100_000 + step * 2_560).collect();
        assert_eq!(grown(&ends), Some(2_560));
        for low in 0..10 {
            let before = std::mem::replace(&mut ends[low], 100_000 + low as u64 * 2_560 - 2_560 - 368);
            let found = grown(&ends).unwrap();
            // Only the first and the last step decide the average.
            assert!(found.abs_diff(2_560) <= 2_928_u64.div_ceil(8), "{ends:?}");
            ends[low] = before;
        }
    }

    #[test]
    fn memory_that_is_let_go_once_hides_no_leak() {
        for at in 2..10 {
            let ends: Vec<u64> = (0..10)
                .map(|step| 100_000 + step * 2_560 - if step < at { 0 } else { 65_536 })
                .collect();
            let Trend::Growing(growing) = trend_of(&ends) else {
                panic!("{ends:?}");
            };
            assert_eq!(
                (growing.left.0, growing.is_sure),
                // Nobody knows how much was left by the step that released memory.
                (2_560 * 7, false),
                "{ends:?}"
            );
        }
        // The model keeps losses for some steps and then releases them.
        let ends: Vec<u64> = (0..20).map(|step| 100_000 + step % 8 * 2_560).collect();
        assert_eq!(trend_of(&ends), Trend::Steady);
    }

    #[test]
    fn what_settles_after_half_of_the_steps_may_be_a_leak() {
        for settled in 5..7 {
            let ends: Vec<u64> = (0..10).map(|step| if step < settled { 100 } else { 200 }).collect();
            let Trend::Growing(growing) = trend_of(&ends) else {
                panic!("{ends:?}");
            };
            assert!(!growing.is_sure);
            let text = growing.summary("", |bytes| bytes.to_string());
            assert_eq!(
                text,
                "live memory grows on average by 13 B per step, 100 B over 8 steps (or it settles late: run with \
                 `--steps 20` to find out)"
            );
            let longer: Vec<u64> = (0..20).map(|step| if step < settled { 100 } else { 200 }).collect();
            assert_eq!(trend_of(&longer), Trend::Steady);
        }
    }

    #[test]
    fn what_settles_in_the_first_steps_is_none() {
        for steps in [6, 10, 50] {
            for settled in 0..steps / 2 {
                let ends: Vec<u64> = (0..steps).map(|step| 1000 + step.min(settled) * 100).collect();
                assert_eq!(trend_of(&ends), Trend::Steady, "{ends:?}");
            }
        }
    }

    #[test]
    fn noise_alone_is_none() {
        for ends in [
            &[10, 50, 50, 50, 50, 50][..],
            &[10, 50, 60, 60, 70],
            &[10, 50, 60, 55, 70],
            &[900, 868, 900, 900, 868, 900, 900, 900, 868, 900],
            &[900, 910, 900, 910, 900, 910, 900, 910, 900, 910],
        ] {
            assert_eq!(trend_of(ends), Trend::Steady, "{ends:?}");
        }
    }

    #[test]
    fn fewer_than_five_steps_tell_nothing() {
        for (ends, steps) in [(&[][..], 0), (&[10], 1), (&[10, 50, 60, 70], 4), (&[10, 50, 50, 50], 4)] {
            assert_eq!(trend_of(ends), Trend::Unknown { steps }, "{ends:?}");
        }
    }
}
