//! [`Pass`]: what one pass of one model is asked for, and the inputs that the model named. The same for every version of Burn.

use std::collections::BTreeMap;
use std::sync::Arc;

use super::events;
use super::timeline::Moment;
use crate::protocol::{Event, Float, RunJob};

/// The input that is divided where gradients are accumulated.
const BATCH_SIZE: &str = "batch_size";
/// The input that says how many cards a model is over.
const CARDS: &str = "cards";

/// Marks a run that trains.
#[derive(Debug, Clone, Copy)]
pub enum Train {}

/// Marks a run that only runs the model forward, without autodiff.
#[derive(Debug, Clone, Copy)]
pub enum Infer {}

/// Tells the device's threads of a new phase, in the order of the work they are given.
pub(super) type Marker = Arc<dyn Fn(Moment) + Send + Sync>;

/// What follows happens at this moment, on all cards.
pub(super) fn mark(markers: &[Marker], moment: Moment) {
    markers.iter().for_each(|marker| marker(moment));
    // Where operations are told of on Burn's own thread, all that were asked for before have been told of by now.
    #[cfg(feature = "trace")]
    super::trace::marked(moment);
}

/// One pass of one model: what was asked for, and the inputs that the model has named so far.
pub struct Pass {
    pub(super) job: RunJob,
    values: BTreeMap<String, u64>,
}

impl Pass {
    pub(super) const fn new(job: RunJob) -> Self {
        Self {
            job,
            values: BTreeMap::new(),
        }
    }

    /// The input `batch_size`, in one of as many parts as gradients are accumulated from.
    pub(super) fn batch_size(&mut self, default: usize) -> usize {
        let value = self.value(BATCH_SIZE, default);
        let parts = self.parts() as usize;
        if !value.is_multiple_of(parts) {
            events::impossible(format!(
                "a batch of {value} cannot be taken apart in {parts} of one size"
            ));
        }
        value / parts
    }

    /// A numeric input: `default`, unless the job sets it.
    pub(super) fn input(&mut self, name: &str, default: usize) -> usize {
        match name {
            BATCH_SIZE => self.batch_size(default),
            _ => self.value(name, default),
        }
    }

    fn value(&mut self, name: &str, default: usize) -> usize {
        let value = match self.job.inputs.get(name) {
            // No platform that models run on has a usize below 64 bits.
            Some(value) => usize::try_from(*value).unwrap_or(usize::MAX),
            None => default,
        };
        self.values.insert(name.into(), value as u64);
        value
    }

    /// The input `cards`, of which so many are there. Says so and ends the process where these are too few.
    pub(super) fn cards(&mut self, default: usize, there: usize) -> usize {
        let wanted = self.value(CARDS, default);
        if wanted > there {
            events::send(&Event::Cards {
                needed: u32::try_from(wanted).unwrap_or(u32::MAX),
            });
            std::process::exit(0);
        }
        if wanted == 0 {
            events::impossible("a model needs a card".to_owned());
        }
        wanted
    }

    /// In how many parts a batch goes forward and backward.
    pub(super) fn parts(&self) -> u32 {
        self.job.what_if.accumulate.unwrap_or(1).max(1)
    }

    /// The mixed precision that is asked for: each step works on a copy of the model in half precision.
    pub(super) fn mixed(&self) -> Option<Float> {
        self.job.what_if.dtype.filter(|float| float.is_mixed())
    }

    /// Ends the process where mixed precision is asked of what cannot have it.
    pub(super) fn refuse_mixed(&self) {
        if self.mixed().is_some() {
            events::impossible(
                "mixed precision works only in training with `.loss(…).train(…)`: not without gradients, not with `TrainStep`, \
                 `data_parallel` or `ddp`, and not in a loop of your own"
                    .to_owned(),
            );
        }
    }

    /// The loop is written by hand: reports it, and ends the process where this pass was set up for another kind.
    pub(super) fn free_form(&self) {
        events::send(&Event::FreeForm);
        let what_if = &self.job.what_if;
        if what_if.infer || what_if.optimizer.is_some() || what_if.accumulate.is_some() {
            events::impossible("the loop is written by hand, optimizer and gradients included".to_owned());
        }
        self.refuse_mixed();
        if self.job.lockstep && !self.job.free_form {
            std::process::exit(0);
        }
    }

    /// All inputs are known: reports them, and ends the process where one was set that the model does not have.
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
    }
}
