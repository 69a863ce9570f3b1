//! [`Run`]: the argument of a declared model's function. Through it, the model asks for inputs and describes its step.

use std::marker::PhantomData;
use std::sync::Arc;

use burn22::tensor::Device;

use super::gpus::Gpus;
use super::steps::{StepNumbers, Steps};
use super::train::WithModel;
use crate::probe::events;
use crate::probe::pass::{self, Marker, ProbePass, Train};
use crate::probe::timeline::StepMoment;
use crate::probe::varying::VaryingInput;
use crate::protocol::Phase;

/// One pass of one model. The function of a model takes it, asks for its inputs and then describes its step.
///
/// The inputs are [`batch_size`](Self::batch_size), [`gpus`](Self::gpus) and any [`input`](Self::input). The step is a
/// chain of calls that begins with [`model`](Self::model), or a hand-written loop over [`steps`](Self::steps). The
/// module [`probe`](crate::probe) has an example.
///
/// `Kind` is [`Train`], or [`Infer`](crate::Infer) without autodiff.
pub struct Run<Kind = Train> {
    pub(super) pass: ProbePass,
    pub(super) gpus: Arc<Gpus>,
    kind: PhantomData<Kind>,
}

impl<Kind> Run<Kind> {
    pub(super) const fn new(pass: ProbePass, gpus: Arc<Gpus>) -> Self {
        Self {
            pass,
            gpus,
            kind: PhantomData,
        }
    }

    /// Returns the input `batch_size`: `default`, unless a budget or `--set batch_size=64` sets another value.
    ///
    /// With `--accumulate N`, this is the size of one of the N parts that the batch is split into. The run fails if the
    /// parts would not be equal.
    pub fn batch_size(&mut self, default: usize) -> usize {
        self.pass.batch_size(default)
    }

    /// Returns a numeric input of the model: `default`, unless a budget or `--set name=value` sets another value.
    ///
    /// The name is free, for example `image_size` or `seq_len`. For `batch_size`, this is the same as
    /// [`Self::batch_size`]. In a hand-written loop, ask for all inputs before [`Self::steps`].
    pub fn input(&mut self, name: &str, default: usize) -> usize {
        self.pass.input(name, default)
    }

    /// Declares an input that has another size in each step, such as a sequence length:
    /// `run.range("seq_len", 16..=512)`.
    ///
    /// Call [`VaryingInput::size`] in every step, where it makes its inputs. The model is run in five orders: with the
    /// smallest size, with the largest, with rising, falling and shuffled sizes. The report has the highest values of
    /// all orders. At most 8 sizes are run: the smallest, the largest, and others at equal distances.
    ///
    /// Declare ranges before the first step. The run fails if there are no sizes, or more than 65,536.
    ///
    /// For sizes at other distances, pass any iterator: `(224..=512).step_by(32)`. If a budget or `--set seq_len=128`
    /// sets the input, each step has that size. This does not work with `ddp` or in a training of several epochs.
    pub fn range(&mut self, name: &str, sizes: impl IntoIterator<Item = usize>) -> VaryingInput {
        self.pass.range(name, sizes)
    }

    /// Returns the GPUs that the model uses. Their number is the input `gpus`: `default`, unless a budget or
    /// `--set gpus=4` sets another value.
    ///
    /// To split a model, make each part on one of these GPUs, and move tensors from one to the next with `to_device`.
    /// To have the whole model on each GPU, pass them to [`data_parallel`](super::WithLoss::data_parallel).
    ///
    /// An estimate has up to 16 virtual GPUs, and a measurement has one GPU. The run fails if the number is larger, or
    /// 0.
    pub fn gpus(&mut self, default: usize) -> Vec<Device> {
        let wanted = self.pass.gpus(default, self.gpus.devices.len());
        self.gpus.devices[..wanted].to_vec()
    }

    /// Sets how the model is made: `make` gets the first GPU and returns the model. Continue with [`WithModel::batch`].
    ///
    /// The model is then forked to that GPU, as Burn's own learner does. With several GPUs, each parameter is forked on
    /// the GPU that it is on.
    pub fn model<M, Make>(&mut self, make: Make) -> WithModel<'_, Kind, M>
    where
        Make: FnOnce(&Device) -> M + 'static,
    {
        WithModel::new(self, Box::new(make))
    }

    /// Returns the GPU to make the model on, for a hand-written loop: one that fits none of the ready-made loops. The
    /// phase `model` begins here. See [`Self::steps`].
    pub fn device(&self) -> Device {
        self.pass.free_form();
        self.mark(None, Phase::Model);
        self.gpus.first().clone()
    }

    /// Returns the steps to run, for a hand-written loop: one that fits none of the ready-made loops.
    ///
    /// Mark the phases of each step: `for step in run.steps() { step.phase(Phase::Forward); … }`. What happens before
    /// the first step is the phase `model`.
    pub fn steps(&mut self) -> Steps {
        self.pass.free_form();
        self.declared();
        Steps::new(self.step_numbers())
    }

    /// Returns the numbers of the steps to run.
    pub(super) fn step_numbers(&self) -> StepNumbers {
        StepNumbers::new(&self.pass.job, self.pass.varies(), &self.gpus)
    }

    /// Reports the inputs, and begins the phase `model`. Called once the model has asked for all inputs.
    pub(super) fn declared(&self) {
        self.pass.declared();
        self.mark(None, Phase::Model);
    }

    /// Returns the marker of one of the GPUs that [`Run::gpus`] returned.
    pub(super) fn marker(&self, gpu: &Device) -> &Marker {
        let place = self.gpus.devices.iter().position(|known| known == gpu);
        match place {
            Some(place) => &self.gpus.markers[place],
            None => events::impossible(format!("{gpu:?} is not one of the GPUs that `Run::gpus` returned")),
        }
    }

    pub(super) fn mark(&self, step: Option<u32>, phase: Phase) {
        pass::mark(&self.gpus.markers, StepMoment { step, phase });
    }

    /// Waits until the GPUs have finished all their work.
    pub(super) fn sync(&self) {
        self.gpus.sync();
    }
}
