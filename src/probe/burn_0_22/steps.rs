//! The steps of a pass. The allocator of Burn 0.22 adapts its pages to what it has seen, so more may be reserved in a later step:
//! steps are run until two in a row reserve nothing more.

use std::sync::Arc;

use burn22::module::Module;
use burn22::optim::GradientsParams;

use super::train::step_done;
use super::{Gpus, launches, observed};
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
            observed::look();
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

    /// Tells which model it is, so that `cargo vram explain` knows its parameters by name. Call it whenever they are new: at a step's
    /// beginning or end. Parameters that Burn has not made yet are made by that, in an explanation alone.
    pub fn model<M: Module>(&self, model: &M) {
        observed::name(model);
    }

    /// Tells which tensors are the model's gradients, for `cargo vram explain`. It changes no figure.
    pub fn gradients<M: Module>(&self, model: &M, gradients: &GradientsParams) {
        observed::name_gradients(model, gradients);
    }

    /// What follows is this phase of the step.
    pub fn phase(&self, phase: Phase) {
        pass::mark(&self.gpus.markers, Moment::of(self.number, phase));
    }
}
