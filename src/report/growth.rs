//! Whether live memory grows from step to step.

use super::types::{Pass, Run, Step};
use crate::bytes::Bytes;

/// Steps that are let be: the first ones make the optimizer's state.
const SETTLED: usize = 1;
/// Growing this often in a row is no coincidence.
const TIMES: usize = 3;

/// Steps that it takes to tell.
pub const ENOUGH_STEPS: u32 = (SETTLED + 1 + TIMES) as u32;

/// How live memory goes from step to step.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Trend {
    /// Too few steps tell of it.
    Unknown {
        /// So many.
        steps: u32,
    },
    /// It does not grow with each of them.
    Steady,
    /// It does.
    Growing(Growing),
}

/// Live memory that grows from step to step.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Growing {
    /// On which of several cards.
    pub card: Option<u32>,
    /// Live bytes at the end of each step.
    pub steps: Vec<Bytes>,
    /// How much the last step added.
    pub per_step: Bytes,
}

impl Run {
    /// Whether live memory grew with each step since the first one, which takes [`ENOUGH_STEPS`] to tell; of several cards,
    /// on any.
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

/// How much the last step added, where each step since the first ones added something.
fn grows(steps: &[Bytes]) -> Option<Bytes> {
    let settled = steps.get(SETTLED..)?;
    let more: Option<Vec<u64>> = settled
        .windows(2)
        .map(|pair| pair[1].0.checked_sub(pair[0].0).filter(|more| *more > 0))
        .collect();
    more?.last().copied().map(Bytes)
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
        assert_eq!(grown(&[10, 50, 51, 52, 54]), Some(2));
    }

    #[test]
    fn the_first_steps_and_a_single_rise_are_none() {
        for ends in [
            &[10, 50, 50, 50, 50, 50][..],
            &[10, 50, 60, 60, 70],
            &[10, 50, 60, 55, 70],
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
