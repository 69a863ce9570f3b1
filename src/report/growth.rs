//! Whether live memory keeps growing from step to step.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::types::{Pass, Run, Step};
use crate::bytes::Bytes;

/// Steps at the beginning that are not compared: the first one makes the optimizer's state.
const SETTLED: usize = 1;
/// So many steps must each end higher than the one a period before.
const COMPARED: usize = 3;

/// Steps that it takes to judge a leak.
pub const ENOUGH_STEPS: u32 = (SETTLED + 1 + COMPARED) as u32;

/// How live memory goes from step to step.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Trend {
    /// Too few steps were run to tell.
    Unknown {
        /// So many.
        steps: u32,
    },
    /// It does not keep growing.
    Steady,
    /// It keeps growing.
    Growing(Growing),
}

/// Live memory that keeps growing from step to step.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Growing {
    /// On which of several cards.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub card: Option<u32>,
    /// Bytes in use at the end of each step, without the allocator's padding.
    pub steps: Vec<Bytes>,
    /// How much a step adds, on average; never nothing.
    pub per_step: Bytes,
    /// How much was added from the end of the second step to that of the last.
    #[serde(default)]
    pub left: Bytes,
    /// Whether these steps could show nothing but a leak. Else memory may also have settled late, or be let go now and then.
    #[serde(default = "sure")]
    pub is_sure: bool,
}

const fn sure() -> bool {
    true
}

impl Growing {
    /// `each step leaves 2.50 KiB on average (64×10 f32, src/model.rs:91), 20.0 KiB after 8 steps`, with `size` to write bytes,
    /// and `what` behind the first of them.
    pub fn summary(&self, what: &str, size: impl Fn(Bytes) -> String) -> String {
        let steps = self.steps.len();
        let over = steps.saturating_sub(SETTLED + 1);
        let (per_step, left) = (size(self.per_step), size(self.left));
        let mut text = format!("each step leaves {per_step} on average{what}, {left} after {over} steps");
        if !self.is_sure {
            text += &format!(", or memory settles late: `--steps {}` shows which", steps * 2);
        }
        text
    }
}

/// Whether live memory keeps growing over these steps.
pub(crate) fn grows(steps: &[Step]) -> bool {
    matches!(trend(steps, None), Trend::Growing(_))
}

impl Run {
    /// Whether live memory keeps growing after the first step, which takes [`ENOUGH_STEPS`] to tell; of several cards, on any.
    #[must_use]
    pub fn trend(&self) -> Trend {
        let cards = self.cards.iter().map(|on| trend(&on.steps, Some(on.card)));
        cards
            .reduce(|one, other| match (&one, &other) {
                (Trend::Growing(_), _) | (Trend::Unknown { .. }, Trend::Steady) => one,
                _ => other,
            })
            .unwrap_or_else(|| trend(&self.steps, None))
    }
}

fn trend(steps: &[Step], card: Option<u32>) -> Trend {
    let traced = steps.iter().filter(|step| step.pass == Pass::Traced);
    let steps: Vec<Bytes> = traced
        .filter_map(|step| step.phases.last())
        .map(|phase| phase.in_use_end.unwrap_or(phase.live_end))
        .collect();
    let count = u32::try_from(steps.len()).unwrap_or(u32::MAX);
    if count < ENOUGH_STEPS {
        return Trend::Unknown { steps: count };
    }
    let settled = &steps[SETTLED..];
    let without_a_fall = spliced(settled);
    let found = period(settled).map(|period| (settled, is_repeated(settled, period)));
    // What is filled and emptied again and again falls more often than once.
    let shown_again = |period: &usize| *period <= settled.len() / 3;
    let found = found.or_else(|| {
        let is_found = period(&without_a_fall).filter(shown_again);
        is_found.map(|_| (&without_a_fall[..], false))
    });
    let Some((ends, is_sure)) = found else {
        return Trend::Steady;
    };
    let left = ends[ends.len() - 1].saturating_sub(ends[0]);
    let per_step = Bytes(left.0.div_ceil(ends.len() as u64 - 1).max(1));
    Trend::Growing(Growing {
        card,
        per_step,
        left,
        is_sure,
        steps,
    })
}

/// The shortest period, of at most half of the steps, such that each step ends higher than the one a period before.
///
/// A leak in every nth step shows at the period n. A step that ends lower for once hides a leak from short periods, and not
/// from those over which it adds up to more. What settles in the first half of the steps is no leak: the last steps then end as
/// those a period before them did.
fn period(settled: &[Bytes]) -> Option<usize> {
    let longest = ((settled.len() + SETTLED) / 2).min(settled.len().saturating_sub(COMPARED));
    (1..=longest).find(|period| {
        let mut pairs = settled.iter().zip(&settled[*period..]);
        pairs.all(|(before, after)| after > before)
    })
}

/// Whether memory rose, and rose again a period later or more: what rises once may have settled then.
fn is_repeated(settled: &[Bytes], period: usize) -> bool {
    let rises = |at: &usize| settled[*at] > settled[at - 1];
    let first = (1..settled.len()).find(rises);
    let last = (1..settled.len()).rev().find(rises);
    first.zip(last).is_some_and(|(first, last)| last - first >= period)
}

/// The same without its largest fall from one step to the next: memory that is let go once does not hide what is left by each
/// step.
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
    use crate::report::{OnCard, sample};

    /// Of a run with so much live at the end of each step.
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
    fn a_leak_on_a_card_that_is_not_the_fullest_is_one() {
        let mut run = sample::ending_at(sample::run("a", "l4"), &[900, 900, 900, 900, 900]);
        let of = |card, ends: &[u64]| OnCard {
            card,
            peaks: run.peaks,
            steps: sample::ending_at(sample::run("a", "l4"), ends).steps,
        };
        run.cards = vec![of(0, &[900, 900, 900, 900, 900]), of(1, &[10, 50, 60, 70, 80])];
        let Trend::Growing(growing) = run.trend() else {
            panic!("{:?}", run.trend());
        };
        assert_eq!((growing.card, growing.per_step), (Some(1), Bytes(10)));
        run.cards.truncate(1);
        assert_eq!(run.trend(), Trend::Steady);
    }

    #[test]
    fn what_grows_with_each_step_is_a_leak() {
        assert_eq!(grown(&[10, 50, 60, 70, 80]), Some(10));
        // A third more than one, and not less than it is.
        assert_eq!(grown(&[10, 50, 51, 53, 54]), Some(2));
    }

    /// What is live at the end of each step where every `period`th one leaves 100 bytes behind, the first of them `first`.
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
                    // One that shows once alone may be something else.
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
            // The first and the last one decide the average.
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
                // What the step that let go left is not known.
                (2_560 * 7, false),
                "{ends:?}"
            );
        }
        // Losses that are kept for some steps, and let go then.
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
                "each step leaves 13 B on average, 100 B after 8 steps, or memory settles late: `--steps 20` shows which"
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
