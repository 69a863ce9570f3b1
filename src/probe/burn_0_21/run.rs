//! [`Run`]: what a declared model is handed, to say what it needs and what its step is.

use std::marker::PhantomData;

use burn21::tensor::backend::Backend;

use super::Device;
use super::train::{Steps, WithModel};
use crate::probe::events;
use crate::probe::pass::{self, Marker, Pass, Train};
use crate::probe::timeline::Moment;
use crate::protocol::Phase;

/// One pass of one model: its inputs, and then its step.
pub struct Run<B: Backend, Kind = Train> {
    pub(super) pass: Pass,
    pub(super) device: Device<B>,
    kind: PhantomData<Kind>,
}

impl<B: Backend, Kind> Run<B, Kind> {
    pub(super) const fn new(pass: Pass, device: Device<B>) -> Self {
        Self {
            pass,
            device,
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

    /// The cards that the model is over, and how many that are: the input `cards`, `default` unless a budget or
    /// `--set cards=4` says otherwise. Parts of a model are made on one of them each, and what goes from one to the next is
    /// moved with `to_device`; or each card has the whole model, see [`data_parallel`](super::WithLoss::data_parallel).
    pub fn cards(&mut self, default: usize) -> Vec<B::Device> {
        let wanted = self.pass.cards(default, self.device.cards.len());
        self.device.cards[..wanted].to_vec()
    }

    /// How the model is made. It is then forked to the device, as Burn's own learner does.
    pub fn model<M, Make>(&mut self, make: Make) -> WithModel<'_, B, Kind, M>
    where
        Make: FnOnce(&B::Device) -> M + 'static,
    {
        WithModel::new(self, Box::new(make))
    }

    /// For loops that fit none of the ready-made ones: the device to make the model on. What follows is the phase
    /// `model`.
    pub fn device(&self) -> B::Device {
        self.pass.free_form();
        self.mark(None, Phase::Model);
        self.device.device.clone()
    }

    /// For loops that fit none of the ready-made ones: the steps to run, each with its phases marked by the caller.
    ///
    /// What happens before this call is the phase `model`. A model that is not forked to its device
    /// (`model.fork(&device)`) really varies from run to run in what it holds from the driver, by up to a
    /// quarter; the report says so.
    pub fn steps(&mut self) -> Steps {
        self.pass.free_form();
        self.declared();
        Steps::new(self.pass.job.steps, self.device.markers.clone())
    }

    /// All inputs are known: what follows is the phase `model`.
    pub(super) fn declared(&self) {
        self.pass.declared();
        self.mark(None, Phase::Model);
    }

    /// What marks phases of one card, of those that [`Run::cards`] gave.
    pub(super) fn marker(&self, card: &B::Device) -> &Marker {
        let place = self.device.cards.iter().position(|known| known == card);
        match place {
            Some(place) => &self.device.markers[place],
            None => events::impossible(format!("{card:?} is none of the cards that `Run::cards` gave")),
        }
    }

    pub(super) fn mark(&self, step: Option<u32>, phase: Phase) {
        pass::mark(&self.device.markers, Moment { step, phase });
    }

    /// Marks a phase of a step when it is called.
    #[cfg(feature = "train")]
    pub(super) fn marking(&self, step: u32, phase: Phase) -> impl FnOnce() + Send + 'static {
        let markers = self.device.markers.clone();
        move || pass::mark(&markers, Moment::of(step, phase))
    }
}
