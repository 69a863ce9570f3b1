//! The steps of a pass. The allocator of Burn 0.22 adapts its pages to earlier requests, so a later step may reserve
//! more memory. If the job asks for it, steps therefore run until two in a row reserve no more, or a whole round if the
//! sizes vary.

use std::sync::Arc;

use burn22::module::Module;
use burn22::optim::GradientsParams;

use super::gpus::Gpus;
use super::train::step_done;
use super::{launches, observed};
use crate::probe::pass;
use crate::probe::timeline::{self, StepMoment};
use crate::protocol::{Phase, ROUND_STEPS, RunJob};

/// The numbers of a pass's steps: as many as the job asks for. If the job has `most_steps`, more steps follow until two
/// in a row reserve no more memory, or a round if the sizes vary.
pub(super) struct StepNumbers {
    next: u32,
    fewest: u32,
    most: u32,
    /// The number of steps in a row that must reserve no more memory.
    quiet: usize,
    gpus: Arc<Gpus>,
    /// The highest reserved memory so far, in bytes, after each step.
    reserved: Vec<u64>,
}

impl StepNumbers {
    pub(super) fn new(job: &RunJob, varies: bool, gpus: &Arc<Gpus>) -> Self {
        Self {
            next: 0,
            fewest: job.steps,
            // A number from `budgets.yaml` or `--steps` is exact. Only without it does a pass look for the
            // end itself. See docs/design/burn-0_22-memory.md.
            most: job.most_steps.unwrap_or(job.steps).max(job.steps),
            quiet: if varies { ROUND_STEPS as usize } else { 2 },
            gpus: gpus.clone(),
            reserved: Vec::new(),
        }
    }

    /// Whether the last steps reserved no more memory than was reserved before them.
    fn is_settled(&self) -> bool {
        let before = self.reserved.iter().rev().nth(self.quiet);
        before.is_some_and(|before| self.reserved.last() <= Some(before))
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
            // At the end of the last step: finish its work and look, while the model still exists.
            self.gpus.sync();
            // No launch follows that would see what the last step left, and leaks are judged by the ends of
            // steps.
            launches::ends_steps();
            observed::look();
            return None;
        }
        self.next += 1;
        Some(self.next - 1)
    }
}

/// An iterator over the steps of a hand-written loop. [`Run::steps`](super::Run::steps) makes it.
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
        // The body of the loop is the user's. So a step has ended when the loop asks for the next one.
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

/// One step of a hand-written loop. It begins in the phase `batch`; mark the later phases with [`Step::phase`].
pub struct Step {
    number: u32,
    gpus: Arc<Gpus>,
}

impl Step {
    /// Returns the step's number, from 0.
    #[must_use]
    pub fn number(&self) -> u32 {
        self.number
    }

    /// Gives the model to `cargo vram explain`, so that it knows the parameters by name.
    ///
    /// Call it whenever the parameters are new: at the beginning or end of a step. In an explanation, it also makes the
    /// parameters that Burn has not made yet. Otherwise it does nothing.
    pub fn model<M: Module>(&self, model: &M) {
        observed::name(model);
    }

    /// Gives the model's gradients to `cargo vram explain`, so that it knows their tensors. This changes no memory
    /// value.
    pub fn gradients<M: Module>(&self, model: &M, gradients: &GradientsParams) {
        observed::name_gradients(model, gradients);
    }

    /// Begins a phase of the step: what follows belongs to it.
    ///
    /// In a training, call this with `Phase::Forward`, `Phase::Backward` and `Phase::Optimizer`, each before its work.
    /// A training without a backward or an optimizer phase fails.
    pub fn phase(&self, phase: Phase) {
        pass::mark(&self.gpus.markers, StepMoment::new(self.number, phase));
    }
}
