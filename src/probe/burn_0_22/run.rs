//! [`Run`]: what a declared model is handed, to say what it needs and what its step is.

use std::marker::PhantomData;
use std::sync::Arc;

use burn22::tensor::Device;

use super::Gpus;
use super::steps::{StepNumbers, Steps};
use super::train::WithModel;
use crate::probe::events;
use crate::probe::pass::{self, Marker, Pass, Train};
use crate::probe::timeline::Moment;
use crate::protocol::Phase;

/// One pass of one model: its inputs, and then its step. `Kind` is [`Train`], or [`Infer`](crate::Infer) without autodiff.
pub struct Run<Kind = Train> {
    pub(super) pass: Pass,
    pub(super) gpus: Arc<Gpus>,
    kind: PhantomData<Kind>,
}

impl<Kind> Run<Kind> {
    pub(super) const fn new(pass: Pass, gpus: Arc<Gpus>) -> Self {
        Self {
            pass,
            gpus,
            kind: PhantomData,
        }
    }

    /// The input `batch_size`: `default`, unless a budget or `--set batch_size=64` says otherwise.
    pub fn batch_size(&mut self, default: usize) -> usize {
        self.pass.batch_size(default)
    }

    /// A numeric input of the model: `default`, unless a budget or `--set name=value` says otherwise.
    pub fn input(&mut self, name: &str, default: usize) -> usize {
        self.pass.input(name, default)
    }

    /// The GPUs that the model is over, and how many that are: the input `cards`, `default` unless a budget or
    /// `--set cards=4` says otherwise. Parts of a model are made on one of them each, and what goes from one to the next is
    /// moved with `to_device`; or each GPU has the whole model, see [`data_parallel`](super::WithLoss::data_parallel).
    pub fn cards(&mut self, default: usize) -> Vec<Device> {
        let wanted = self.pass.cards(default, self.gpus.devices.len());
        self.gpus.devices[..wanted].to_vec()
    }

    /// How the model is made. It is then forked to the device, as Burn's own learner does.
    pub fn model<M, Make>(&mut self, make: Make) -> WithModel<'_, Kind, M>
    where
        Make: FnOnce(&Device) -> M + 'static,
    {
        WithModel::new(self, Box::new(make))
    }

    /// For loops that fit none of the ready-made ones: the device to make the model on. What follows is the phase
    /// `model`.
    pub fn device(&self) -> Device {
        self.pass.free_form();
        self.mark(None, Phase::Model);
        self.gpus.first().clone()
    }

    /// For loops that fit none of the ready-made ones: the steps to run, each with its phases marked by the caller.
    ///
    /// What happens before this call is the phase `model`.
    pub fn steps(&mut self) -> Steps {
        self.pass.free_form();
        self.declared();
        Steps::new(self.step_numbers())
    }

    /// The numbers of the steps to run.
    pub(super) fn step_numbers(&self) -> StepNumbers {
        StepNumbers::new(&self.pass.job, &self.gpus)
    }

    /// All inputs are known: what follows is the phase `model`.
    pub(super) fn declared(&self) {
        self.pass.declared();
        self.mark(None, Phase::Model);
    }

    /// What marks phases of one GPU, of those that [`Run::cards`] gave.
    pub(super) fn marker(&self, gpu: &Device) -> &Marker {
        let place = self.gpus.devices.iter().position(|known| known == gpu);
        match place {
            Some(place) => &self.gpus.markers[place],
            None => events::impossible(format!("{gpu:?} is none of the cards that `Run::cards` gave")),
        }
    }

    pub(super) fn mark(&self, step: Option<u32>, phase: Phase) {
        pass::mark(&self.gpus.markers, Moment { step, phase });
    }

    /// Waits until the GPUs have done everything they were given.
    pub(super) fn sync(&self) {
        self.gpus.sync();
    }
}
