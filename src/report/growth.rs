//! Whether live memory grows from step to step.

use super::types::{Pass, Run};
use crate::bytes::Bytes;

/// Steps that are let be: the first ones make the optimizer's state.
const SETTLED: usize = 1;
/// Growing this often in a row is no coincidence.
const TIMES: usize = 3;

/// Live memory that grows from step to step.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Growing {
    /// Live bytes at the end of each step.
    pub steps: Vec<Bytes>,
    /// How much the last step added.
    pub per_step: Bytes,
}

impl Run {
    /// Whether live memory grew with each step since the first one, for which it takes at least five of them.
    #[must_use]
    pub fn growing(&self) -> Option<Growing> {
        let steps = self.live_ends();
        let per_step = grows(&steps)?;
        Some(Growing { steps, per_step })
    }

    /// Whether there were steps enough to tell.
    #[must_use]
    pub fn tells_growth(&self) -> bool {
        self.traced_steps() > SETTLED + TIMES
    }

    /// Steps of which it is known what they left.
    #[must_use]
    pub fn traced_steps(&self) -> usize {
        self.live_ends().len()
    }

    /// Live bytes at the end of each step of the traced pass.
    fn live_ends(&self) -> Vec<Bytes> {
        let traced = self.steps.iter().filter(|step| step.pass == Pass::Traced);
        traced
            .filter_map(|step| step.phases.last())
            .map(|phase| phase.live_end)
            .collect()
    }
}

/// How much the last step added, where each step since the first ones added something.
fn grows(steps: &[Bytes]) -> Option<Bytes> {
    let settled = steps.get(SETTLED..)?;
    let more: Option<Vec<u64>> = settled
        .windows(2)
        .map(|pair| pair[1].0.checked_sub(pair[0].0).filter(|more| *more > 0))
        .collect();
    more.filter(|more| more.len() >= TIMES)
        .and_then(|more| more.last().copied())
        .map(Bytes)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn told(steps: &[u64]) -> Option<u64> {
        grows(&steps.iter().copied().map(Bytes).collect::<Vec<_>>()).map(|bytes| bytes.0)
    }

    #[test]
    fn what_grows_with_each_step_is_a_leak() {
        assert_eq!(told(&[10, 50, 60, 70, 80]), Some(10));
        assert_eq!(told(&[10, 50, 51, 52, 54]), Some(2));
    }

    #[test]
    fn the_first_steps_and_a_single_rise_are_none() {
        assert_eq!(told(&[]), None);
        assert_eq!(told(&[10]), None);
        assert_eq!(told(&[10, 50, 50, 50, 50, 50]), None);
        assert_eq!(told(&[10, 50, 60, 60, 70]), None);
        assert_eq!(told(&[10, 50, 60, 70]), None, "too few steps to tell");
        assert_eq!(told(&[10, 50, 60, 55, 70]), None);
    }
}
