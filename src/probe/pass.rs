//! [`ProbePass`]: the job of one pass of one model, and the inputs that the model has asked for. All versions of Burn
//! share it.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};

use super::events;
use super::timeline::StepMoment;
use super::varying::{self, VaryingInput};
use crate::protocol::{Float, LEAST_STEPS_OF_SIZES, ProbeEvent, RunJob, SizeRange};

/// The input that gradient accumulation divides.
const BATCH_SIZE: &str = "batch_size";
/// The input for the number of GPUs that a model uses.
const GPUS: &str = "gpus";

/// The kind of a `Run` that trains: forward, backward and optimizer. It is the default kind.
#[derive(Debug, Clone, Copy)]
pub enum Train {}

/// The kind of a `Run` that only runs the model forward, without autodiff: `Run<B, Infer>` with Burn 0.21, `Run<Infer>`
/// with Burn 0.22.
#[derive(Debug, Clone, Copy)]
pub enum Infer {}

/// A function that announces a new phase to the threads of one GPU, in the queue with their other work.
pub(super) type Marker = Arc<dyn Fn(StepMoment) + Send + Sync>;

/// Marks that what follows belongs to this step and phase, on all GPUs.
pub(super) fn mark(markers: &[Marker], moment: StepMoment) {
    if let Some(step) = moment.step {
        varying::begin(step);
    }
    markers.iter().for_each(|marker| marker(moment));
    // If Burn's own thread reports operations, it has reported all earlier operations by now.
    #[cfg(feature = "trace")]
    super::trace::marked(moment);
}

/// One pass of one model: its job, and the inputs that the model has asked for so far.
pub struct ProbePass {
    pub(super) job: RunJob,
    values: BTreeMap<String, u64>,
    ranges: BTreeMap<String, SizeRange>,
    /// Whether the model has asked for all of its inputs.
    is_declared: AtomicBool,
}

impl ProbePass {
    pub(super) const fn new(job: RunJob) -> Self {
        Self {
            job,
            values: BTreeMap::new(),
            ranges: BTreeMap::new(),
            is_declared: AtomicBool::new(false),
        }
    }

    /// Returns the input `batch_size`, divided by the number of parts that gradients are accumulated over. Ends the
    /// process if the parts would not be equal.
    pub(super) fn batch_size(&mut self, default: usize) -> usize {
        // The whole batch is recorded as the input: reports name the parts separately, as a what-if.
        let value = self.value(BATCH_SIZE, default);
        let parts = self.parts() as usize;
        if !value.is_multiple_of(parts) {
            events::impossible(format!("a batch of {value} cannot be split into {parts} equal parts"));
        }
        value / parts
    }

    /// Returns a numeric input: the job's value, or `default` if the job does not set it.
    pub(super) fn input(&mut self, name: &str, default: usize) -> usize {
        if self.ranges.contains_key(name) {
            events::impossible(format!("the model asks for the input `{name}` twice, once as a range"));
        }
        match name {
            BATCH_SIZE => self.batch_size(default),
            _ => self.value(name, default),
        }
    }

    /// Returns an input that has another size in each step. If the job sets the input, it always has that size.
    pub(super) fn range(&mut self, name: &str, sizes: impl IntoIterator<Item = usize>) -> VaryingInput {
        // Both have a meaning of their own, which a size that changes from step to step would not have.
        if [BATCH_SIZE, GPUS].contains(&name) {
            events::impossible(format!(
                "the input `{name}` cannot be a range: give the range another name"
            ));
        }
        // The tool would not know the range, and would run only the largest size.
        if self.is_declared.load(Relaxed) {
            events::impossible(format!(
                "the range `{name}` is declared after the first step: declare it before"
            ));
        }
        if self.values.contains_key(name) {
            events::impossible(format!("the model asks for the input `{name}` twice, once as a range"));
        }
        if self.job.inputs.contains_key(name) {
            return VaryingInput::fixed(name, self.value(name, 0));
        }
        let (input, range) = VaryingInput::new(name, sizes, self.job.sizes);
        self.value(name, input.largest());
        input.watch();
        self.ranges.insert(name.to_owned(), range);
        input
    }

    /// Whether an input has another size in each step.
    pub(super) fn varies(&self) -> bool {
        !self.ranges.is_empty()
    }

    /// Ends the process if an input has another size in each step. Every loop that does not support it calls this.
    pub(super) fn refuse_ranges(&self, why: &str) {
        if self.varies() {
            events::impossible(format!("`Run::range` does not work here: {why}"));
        }
    }

    fn value(&mut self, name: &str, default: usize) -> usize {
        let value = match self.job.inputs.get(name) {
            // Models run only on platforms with a 64-bit `usize`, so every value fits.
            Some(value) => usize::try_from(*value).unwrap_or(usize::MAX),
            None => default,
        };
        self.values.insert(name.into(), value as u64);
        value
    }

    /// Returns the input `gpus`. `there` is the number of GPUs that the process has. Reports and ends the process if
    /// the input is larger, or 0.
    pub(super) fn gpus(&mut self, default: usize, there: usize) -> usize {
        let wanted = self.value(GPUS, default);
        if wanted > there {
            // Only the running model knows how many GPUs it needs. The tool starts the pass again with that
            // many. Every process could have 16, but a program that takes each GPU that it sees would then be
            // another program.
            events::send(&ProbeEvent::Gpus {
                needed: u32::try_from(wanted).unwrap_or(u32::MAX),
            });
            std::process::exit(0);
        }
        if wanted == 0 {
            events::impossible("the input `gpus` is 0, but a model needs at least one GPU".to_owned());
        }
        wanted
    }

    /// Returns the number of parts that each batch is split into, at least 1.
    pub(super) fn parts(&self) -> u32 {
        self.job.what_if.accumulate.unwrap_or(1).max(1)
    }

    /// Returns the mixed precision that the job asks for, if any. Each step then works on a copy of the model in half
    /// precision.
    pub(super) fn mixed(&self) -> Option<Float> {
        self.job.what_if.dtype.filter(|float| float.is_mixed())
    }

    /// Ends the process if the job asks for mixed precision. Every loop that does not support it calls this.
    pub(super) fn refuse_mixed(&self) {
        if self.mixed().is_some() {
            events::impossible(
                "mixed precision works only in training with `.loss(…).train(…)`: not in inference, not with \
                 `TrainStep`, `data_parallel` or `ddp`, and not in a hand-written loop"
                    .to_owned(),
            );
        }
    }

    /// Reports that the model has a hand-written loop. Ends the process if the job does not fit such a loop.
    pub(super) fn free_form(&self) {
        events::send(&ProbeEvent::FreeForm);
        let what_if = &self.job.what_if;
        // To ignore them would report the values of another training than the one named.
        if what_if.infer || what_if.optimizer.is_some() || what_if.accumulate.is_some() {
            events::impossible(
                "`--infer`, `--optimizer` and `--accumulate` do not work with a hand-written loop, which runs its own \
                 gradients and optimizer"
                    .to_owned(),
            );
        }
        self.refuse_mixed();
        // Burn 0.21's persistent pool is on in this process, and chance decides what such a loop puts into
        // it. The tool starts the pass again without it. See docs/design/persistent-pool.md.
        if self.job.lockstep && !self.job.free_form {
            std::process::exit(0);
        }
    }

    /// Reports the inputs. Called once the model has asked for all of them. Ends the process if the job sets an input
    /// that the model does not have, or splits batches of a model without the input `batch_size`.
    pub(super) fn declared(&self) {
        // A misspelt input would otherwise be ignored, and the run would report the default's values.
        let unknown = self.job.inputs.keys().find(|name| !self.values.contains_key(*name));
        if let Some(name) = unknown {
            events::send(&ProbeEvent::UnknownInput {
                name: name.clone(),
                known: self.values.clone(),
            });
            std::process::exit(0);
        }
        if self.parts() > 1 && !self.values.contains_key(BATCH_SIZE) {
            events::impossible(
                "`--accumulate` splits the input `batch_size`, which the model does not have".to_owned(),
            );
        }
        events::send(&ProbeEvent::Inputs {
            values: self.values.clone(),
        });
        if self.is_declared.swap(true, Relaxed) || !self.varies() {
            return;
        }
        events::send(&ProbeEvent::Ranges {
            inputs: self.ranges.clone(),
        });
        // Only the model knows that it has ranges. The tool starts the pass again with as many steps as the sizes need.
        if self.job.steps < LEAST_STEPS_OF_SIZES {
            events::send(&ProbeEvent::MoreSteps);
            std::process::exit(0);
        }
    }
}
