//! The steps of a pass. The allocator of Burn 0.22 adapts its pages to what it has seen, so more may be reserved in a later step:
//! steps are run until two in a row reserve nothing more.

use std::sync::Arc;

use super::train::step_done;
use super::{Gpus, launches};
use crate::probe::pass;
use crate::probe::timeline::{self, Moment};
use crate::protocol::{Phase, RunJob};

/// The numbers of a pass's steps: as many as the job asks for and, where it says so, more until two in a row reserve nothing more.
pub(super) struct StepNumbers {
    next: u32,
    fewest: u32,
    most: u32,
    gpus: Arc<Gpus>,
    /// The most bytes reserved so far, after each step.
    reserved: Vec<u64>,
}

impl StepNumbers {
    pub(super) fn new(job: &RunJob, gpus: &Arc<Gpus>) -> Self {
        Self {
            next: 0,
            fewest: job.steps,
            most: job.most_steps.unwrap_or(job.steps).max(job.steps),
            gpus: gpus.clone(),
            reserved: Vec::new(),
        }
    }

    /// Whether the last two steps reserved nothing more than what was reserved before them.
    fn is_settled(&self) -> bool {
        match self.reserved.as_slice() {
            [.., before, _, last] => last <= before,
            _ => false,
        }
    }
}

impl Iterator for StepNumbers {
    type Item = u32;

    fn next(&mut self) -> Option<u32> {
        let adapts = self.most > self.fewest;
        if adapts && self.next > 0 {
            self.reserved.push(self.gpus.most_reserved());
            timeline::settled(self.is_settled());
        }
        let is_enough = self.next >= self.fewest && (!adapts || self.is_settled());
        if is_enough || self.next >= self.most {
            // The end of the last step: what it asked for is done, and the model is still there.
            self.gpus.sync();
            launches::ends_steps();
            return None;
        }
        self.next += 1;
        Some(self.next - 1)
    }
}

/// The steps of a loop written by hand; see [`Run::steps`](super::Run::steps).
pub struct Steps {
    numbers: StepNumbers,
    began: bool,
}

impl Steps {
    pub(super) const fn new(numbers: StepNumbers) -> Self {
        Self { numbers, began: false }
    }
}

impl Iterator for Steps {
    type Item = Step;

    fn next(&mut self) -> Option<Step> {
        if std::mem::replace(&mut self.began, true) {
            step_done(0);
        }
        let number = self.numbers.next()?;
        let step = Step {
            number,
            gpus: self.numbers.gpus.clone(),
        };
        step.phase(Phase::Batch);
        Some(step)
    }
}

/// One step of a loop written by hand. It begins in the phase `batch`.
pub struct Step {
    number: u32,
    gpus: Arc<Gpus>,
}

impl Step {
    /// The step's number, from 0.
    #[must_use]
    pub fn number(&self) -> u32 {
        self.number
    }

    /// What follows is this phase of the step.
    pub fn phase(&self, phase: Phase) {
        pass::mark(&self.gpus.markers, Moment::of(self.number, phase));
    }
}
