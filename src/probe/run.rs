//! [`Run`]: what a declared model is handed, to say what it needs and what its step is.

use std::collections::BTreeMap;
use std::marker::PhantomData;
use std::sync::Arc;

use burn::tensor::backend::Backend;

use super::burn_0_21::Device;
use super::events;
use super::timeline::Moment;
use super::train::{Steps, WithModel};
use crate::protocol::{Event, Phase, RunJob};

/// The input that is taken apart where gradients are added up.
const BATCH_SIZE: &str = "batch_size";
/// The input that says how many cards a model is over.
const CARDS: &str = "cards";

/// Marks a [`Run`] that trains.
#[derive(Debug, Clone, Copy)]
pub enum Train {}

/// Marks a [`Run`] that only runs the model forward, without autodiff.
#[derive(Debug, Clone, Copy)]
pub enum Infer {}

/// Tells the device's threads of a new phase, in the order of the work they are given.
pub(super) type Marker = Arc<dyn Fn(Moment) + Send + Sync>;

/// What one pass of one model needs to know, before its backend is chosen.
pub struct Context {
    pub(super) job: RunJob,
}

impl Context {
    pub(super) fn new(job: RunJob) -> Self {
        Self { job }
    }

    pub(super) fn into_run<B: Backend, Kind>(self, device: Device<B>) -> Run<B, Kind> {
        Run {
            job: self.job,
            values: BTreeMap::new(),
            device,
            kind: PhantomData,
        }
    }
}

/// One pass of one model: its inputs, and then its step.
pub struct Run<B: Backend, Kind = Train> {
    pub(super) job: RunJob,
    values: BTreeMap<String, u64>,
    pub(super) device: Device<B>,
    kind: PhantomData<Kind>,
}

impl<B: Backend, Kind> Run<B, Kind> {
    /// The input `batch_size`: `default`, unless a budget or `--set batch_size=64` says otherwise.
    pub fn batch_size(&mut self, default: usize) -> usize {
        self.input(BATCH_SIZE, default)
    }

    /// A numeric input of the model: `default`, unless a budget or `--set name=value` says otherwise.
    pub fn input(&mut self, name: &str, default: usize) -> usize {
        let value = match self.job.inputs.get(name) {
            // No platform that models run on has a usize below 64 bits.
            Some(value) => usize::try_from(*value).unwrap_or(usize::MAX),
            None => default,
        };
        self.values.insert(name.into(), value as u64);
        if name != BATCH_SIZE {
            return value;
        }
        let parts = self.parts() as usize;
        if !value.is_multiple_of(parts) {
            events::impossible(format!(
                "a batch of {value} cannot be taken apart in {parts} of one size"
            ));
        }
        value / parts
    }

    /// The cards that the model is over, and how many that are: the input `cards`, `default` unless a budget or
    /// `--set cards=4` says otherwise. Parts of a model are made on one of them each, and what goes from one to the next is
    /// moved with `to_device`; or each card has the whole model, see [`data_parallel`](super::WithLoss::data_parallel).
    pub fn cards(&mut self, default: usize) -> Vec<B::Device> {
        let wanted = self.input(CARDS, default);
        if wanted > self.device.cards.len() {
            events::send(&Event::Cards {
                needed: u32::try_from(wanted).unwrap_or(u32::MAX),
            });
            std::process::exit(0);
        }
        if wanted == 0 {
            events::impossible("a model needs a card".to_owned());
        }
        self.device.cards[..wanted].to_vec()
    }

    /// In how many parts a batch goes forward and backward.
    pub(super) fn parts(&self) -> u32 {
        self.job.what_if.accumulate.unwrap_or(1).max(1)
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
        self.free_form();
        self.mark(None, Phase::Model);
        self.device.device.clone()
    }

    /// For loops that fit none of the ready-made ones: the steps to run, each with its phases marked by the caller.
    ///
    /// What happens before this call is the phase `model`. A model that is not forked to its device
    /// (`model.fork(&device)`) really varies from run to run in what it holds from the driver, by up to a
    /// quarter; the report says so.
    pub fn steps(&mut self) -> Steps {
        self.free_form();
        self.declared();
        Steps::new(self.job.steps, self.device.markers.clone())
    }

    /// The loop is written by hand: tell it, and stop where this pass was set up for another kind.
    fn free_form(&self) {
        events::send(&Event::FreeForm);
        let what_if = &self.job.what_if;
        if what_if.infer || what_if.optimizer.is_some() || what_if.accumulate.is_some() {
            events::impossible("the loop is written by hand, optimizer and gradients included".to_owned());
        }
        if self.job.lockstep && !self.job.free_form {
            std::process::exit(0);
        }
    }

    /// All inputs are known: tell them, and stop where one was set that the model does not have.
    pub(super) fn declared(&self) {
        let unknown = self.job.inputs.keys().find(|name| !self.values.contains_key(*name));
        if let Some(name) = unknown {
            events::send(&Event::UnknownInput {
                name: name.clone(),
                known: self.values.clone(),
            });
            std::process::exit(0);
        }
        if self.parts() > 1 && !self.values.contains_key(BATCH_SIZE) {
            events::impossible("the model has no input `batch_size` that could be taken apart".to_owned());
        }
        events::send(&Event::Inputs {
            values: self.values.clone(),
        });
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
        mark(&self.device.markers, Moment { step, phase });
    }

    /// Marks a phase of a step when it is called.
    #[cfg(feature = "train")]
    pub(super) fn marking(&self, step: u32, phase: Phase) -> impl FnOnce() + Send + 'static {
        let markers = self.device.markers.clone();
        move || mark(&markers, Moment::of(step, phase))
    }
}

/// What follows happens at this moment, on all cards.
pub(super) fn mark(markers: &[Marker], moment: Moment) {
    #[cfg(feature = "explain")]
    super::trace::marked(moment);
    markers.iter().for_each(|marker| marker(moment));
}
