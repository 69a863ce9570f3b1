//! Whether live memory keeps growing from step to step.

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
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Growing {
    /// On which of several cards.
    pub card: Option<u32>,
    /// Live bytes at the end of each step.
    pub steps: Vec<Bytes>,
    /// How much a step adds, on average; never nothing.
    pub per_step: Bytes,
}

impl Growing {
    /// What the last step ended with more than the first one that is compared, and how many steps are between the two.
    #[must_use]
    pub fn left(&self) -> (Bytes, usize) {
        left(&self.steps)
    }
}

/// What the last step ended with more than the first one that is compared, and how many steps are between the two.
#[must_use]
pub fn left(steps: &[Bytes]) -> (Bytes, usize) {
    let first = steps.get(SETTLED).copied().unwrap_or_default();
    let last = steps.last().copied().unwrap_or_default();
    (last.saturating_sub(first), steps.len().saturating_sub(SETTLED + 1))
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
        .map(|phase| phase.live_end)
        .collect();
    let told = u32::try_from(steps.len()).unwrap_or(u32::MAX);
    match grows(&steps) {
        _ if told < ENOUGH_STEPS => Trend::Unknown { steps: told },
        Some(per_step) => Trend::Growing(Growing { card, steps, per_step }),
        None => Trend::Steady,
    }
}

/// How much a step adds on average, where there is a period of at most half of the steps such that each step ends higher than
/// the one a period before.
///
/// A leak in every nth step shows at the period n. Noise of a few hundred bytes, which makes single steps of Burn's end lower,
/// hides a leak from short periods, and not from those over which it adds up to more. What only settles in the first half of
/// the steps is no leak: the last steps then end as those a period before them did.
fn grows(steps: &[Bytes]) -> Option<Bytes> {
    let settled = steps.get(SETTLED..)?;
    let longest = (steps.len() / 2).min(settled.len().saturating_sub(COMPARED));
    (1..=longest).find_map(|period| {
        let pairs = settled.iter().zip(settled.get(period..)?);
        let more: Option<Vec<u64>> = pairs
            .map(|(before, after)| after.0.checked_sub(before.0).filter(|more| *more > 0))
            .collect();
        let mut more = more?;
        // The middle one: a step that noise ends lower or higher does not count.
        more.sort_unstable();
        let period = u64::try_from(period).ok()?;
        let middle = more.get(more.len() / 2)?;
        Some(Bytes(middle.div_ceil(period)))
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::report::{OnCard, sample};

    /// What is told of a run with so much live at the end of each step.
    fn told(ends: &[u64]) -> Trend {
        sample::ending_at(sample::run("a", "l4"), ends).trend()
    }

    fn grown(ends: &[u64]) -> Option<u64> {
        match told(ends) {
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
        assert_eq!(grown(&[10, 50, 51, 53, 54]), Some(1));
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
                    let grown = grown(&leaking(steps, period, first));
                    let average = 100_u64.div_ceil(period);
                    assert!(
                        grown.is_some_and(|grown| grown.abs_diff(average) <= average.div_ceil(2)),
                        "{steps} steps, each {period}th leaks, from {first} on: {grown:?}, not {average}"
                    );
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
            assert_eq!(grown(&ends), Some(2_560), "{ends:?}");
            ends[low] = before;
        }
    }

    #[test]
    fn what_settles_in_the_first_steps_is_none() {
        for steps in [6, 10, 50] {
            for settled in 0..steps / 2 {
                let ends: Vec<u64> = (0..steps).map(|step| 1000 + step.min(settled) * 100).collect();
                assert_eq!(told(&ends), Trend::Steady, "{ends:?}");
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
            assert_eq!(told(ends), Trend::Steady, "{ends:?}");
        }
    }

    #[test]
    fn fewer_than_five_steps_tell_nothing() {
        for (ends, steps) in [(&[][..], 0), (&[10], 1), (&[10, 50, 60, 70], 4), (&[10, 50, 50, 50], 4)] {
            assert_eq!(told(ends), Trend::Unknown { steps }, "{ends:?}");
        }
    }
}
