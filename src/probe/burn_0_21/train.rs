//! The ready-made loops (train with a loss, train with Burn's `TrainStep`, infer), and the steps of a hand-written
//! loop.

use burn21::module::{AutodiffModule, Module};
use burn21::optim::{GradientsAccumulator, GradientsParams, Optimizer};
use burn21::tensor::backend::{AutodiffBackend, Backend};
use burn21::tensor::{FloatDType, Tensor};

#[cfg(feature = "train")]
use super::backward::{Watched, announce};
#[cfg(feature = "explain")]
use super::modules;
use super::optimizer::IntoOptimizer;
use super::run::Run;
use super::{dtype, mixed};
#[cfg(feature = "train")]
use crate::probe::events;
use crate::probe::pass::{self, Infer, Marker, Train};
use crate::probe::timeline::{self, StepMoment};
use crate::protocol::Phase;

/// The learning rate of the ready-made loops. No memory value depends on it.
pub(super) const LEARNING_RATE: f64 = 1e-3;

/// Trains with the optimizer that the job asks for, or else with the model's own.
// A macro, because each optimizer has its own type. Every one of them is another copy of the loop in every
// model, so they need the feature `what-if`. See docs/design/what-if.md.
macro_rules! with_optimizer {
    ($self:ident, $train:ident, $asked:expr, $own:ident) => {
        #[cfg(feature = "what-if")]
        if let Some(asked) = $asked {
            return match asked {
                $crate::protocol::Optimizer::Sgd => $self.$train(burn21::optim::SgdConfig::new().init()),
                $crate::protocol::Optimizer::SgdMomentum => $self.$train(
                    burn21::optim::SgdConfig::new()
                        .with_momentum(Some(burn21::optim::momentum::MomentumConfig::new()))
                        .init(),
                ),
                $crate::protocol::Optimizer::Adam => $self.$train(burn21::optim::AdamConfig::new().init()),
                $crate::protocol::Optimizer::AdamW => $self.$train(burn21::optim::AdamWConfig::new().init()),
            };
        }
        #[cfg(not(feature = "what-if"))]
        if $asked.is_some() {
            $crate::probe::events::impossible(
                "`--optimizer` works only if the models are built with the feature `what-if` of cargo-vram".to_owned(),
            );
        }
        $self.$train($own.into_optimizer());
    };
}
pub(super) use with_optimizer;

type Make<B, M> = Box<dyn FnOnce(&<B as burn21::tensor::backend::BackendTypes>::Device) -> M>;
type MakeBatch<B, X> = Box<dyn Fn(&<B as burn21::tensor::backend::BackendTypes>::Device) -> X>;

/// A run that has its model. [`Run::model`] makes it.
pub struct WithModel<'a, B: Backend, Kind, M> {
    run: &'a mut Run<B, Kind>,
    make: Make<B, M>,
}

impl<'a, B: Backend, Kind, M> WithModel<'a, B, Kind, M> {
    pub(super) fn new(run: &'a mut Run<B, Kind>, make: Make<B, M>) -> Self {
        Self { run, make }
    }

    /// Sets how the inputs of a step are made: `batch` gets the GPU to make them on and returns them.
    ///
    /// Each step calls it once, or once per part with `--accumulate`. Data parallel training calls it for each GPU.
    /// Continue with [`WithBatch::loss`] or `train_step` for a training, or with [`WithBatch::infer`].
    pub fn batch<X>(self, batch: impl Fn(&B::Device) -> X + 'static) -> WithBatch<'a, B, Kind, M, X> {
        WithBatch {
            run: self.run,
            make: self.make,
            batch: Box::new(batch),
        }
    }
}

/// A run that has its model and its inputs. [`WithModel::batch`] makes it.
pub struct WithBatch<'a, B: Backend, Kind, M, X> {
    pub(super) run: &'a mut Run<B, Kind>,
    pub(super) make: Make<B, M>,
    pub(super) batch: MakeBatch<B, X>,
}

impl<'a, B: AutodiffBackend, M: AutodiffModule<B>, X> WithBatch<'a, B, Train, M, X> {
    /// Sets the loss to minimise: `loss` gets the model and the inputs of a step, and returns a tensor of rank 1.
    ///
    /// Continue with [`WithLoss::train`], or with [`WithLoss::data_parallel`] for several GPUs.
    pub fn loss<F: Fn(&M, X) -> Tensor<B, 1>>(self, loss: F) -> WithLoss<'a, B, M, X, F> {
        WithLoss {
            given: self,
            loss,
            read_loss: true,
        }
    }

    /// Runs all steps of the pass with Burn's own [`TrainStep`](burn21::train::TrainStep), which the model implements.
    /// This is the last call of the chain.
    ///
    /// Each step calls `TrainStep::step` with the model and its inputs, and then the optimizer. `optimizer` is an
    /// optimizer or one of Burn's optimizer configs; `--optimizer` on the command line replaces it. This method needs
    /// the feature `train` of cargo-vram.
    #[cfg(feature = "train")]
    pub fn train_step<Marker>(self, optimizer: impl IntoOptimizer<B, M, Marker>)
    where
        M: burn21::train::TrainStep<Input = X>,
    {
        if self.run.pass.job.what_if.infer {
            events::impossible(
                "`--infer` does not work with `TrainStep`, whose `step` always computes gradients".to_owned(),
            );
        }
        with_optimizer!(self, train_step_with, self.run.pass.job.what_if.optimizer, optimizer);
    }

    #[cfg(feature = "train")]
    fn train_step_with(self, mut optimizer: impl Optimizer<M, B>)
    where
        M: burn21::train::TrainStep<Input = X>,
    {
        let Self { run, make, batch } = self;
        let mut model = made(run, make);
        let mut sum = GradientsAccumulator::new();
        // The last parameter first: that leaves the depth of all other nodes as it is.
        // See docs/design/phases.md.
        let mut watched = Watched::Last;
        for step in 0..run.pass.job.steps {
            // Backwards, so that the number is that of the parts still to come.
            for part in (0..run.pass.parts()).rev() {
                run.mark(Some(step), Phase::Batch);
                let input = batch(&run.device.device);
                // `TrainStep::step` runs forward and backward in one call, so we cannot mark the phase between them.
                let backward = run.marking(step, Phase::Backward);
                let (announced, announcement) = announce(model, watched, backward);
                model = announced;
                run.mark(Some(step), Phase::Forward);
                let output = model.step(input);
                // The loss does not depend on that parameter. This step has no backward phase, and later ones
                // have. A run may lack the phase in up to half of its steps.
                if !announcement.came() {
                    watched = Watched::All;
                }
                // Before anything else drops nodes of the graph: those must not be taken for the backward
                // phase.
                drop(announcement);
                let Some(gradients) = summed(run, &mut sum, &model, output.grads, part) else {
                    drop(output.item);
                    continue;
                };
                run.mark(Some(step), Phase::Optimizer);
                model = model.optimize::<B, _>(&mut optimizer, LEARNING_RATE, gradients);
                #[cfg(feature = "explain")]
                modules::name(&model);
                // Burn's learner gives the item to its metrics, which read it. That waits for the step and takes no
                // more memory, as `sync` does here.
                run.sync();
                drop(output.item);
            }
            step_done(0);
        }
    }
}

impl<B: Backend, M: Module<B>, X> WithBatch<'_, B, Infer, M, X> {
    /// Runs all steps of the pass, without autodiff: each makes its inputs and calls `forward` with the model and these
    /// inputs. This is the last call of the chain.
    ///
    /// The output of `forward` is dropped at the end of the step.
    pub fn infer<Y>(self, forward: impl Fn(&M, X) -> Y) {
        let Self { run, make, batch } = self;
        let model = made(run, make);
        for step in 0..run.pass.job.steps {
            run.mark(Some(step), Phase::Batch);
            let input = batch(&run.device.device);
            run.mark(Some(step), Phase::Forward);
            let output = forward(&model, input);
            run.sync();
            drop(output);
            step_done(0);
        }
    }
}

/// A run that has its model, its inputs and its loss. [`WithBatch::loss`] makes it.
pub struct WithLoss<'a, B: Backend, M, X, F> {
    pub(super) given: WithBatch<'a, B, Train, M, X>,
    pub(super) loss: F,
    pub(super) read_loss: bool,
}

impl<B: AutodiffBackend, M: AutodiffModule<B>, X, F: Fn(&M, X) -> Tensor<B, 1>> WithLoss<'_, B, M, X, F> {
    /// Sets whether the loss is read back from the GPU once per step, as training loops do to log it. The default is
    /// `true`.
    #[must_use]
    pub fn read_loss(self, read_loss: bool) -> Self {
        Self { read_loss, ..self }
    }

    /// Runs all steps of the pass: batch, forward, backward and optimizer. This is the last call of the chain.
    ///
    /// `optimizer` is an optimizer or one of Burn's optimizer configs. `--optimizer` on the command line replaces it,
    /// and `--infer` runs only batch and forward.
    pub fn train<Marker>(self, optimizer: impl IntoOptimizer<B, M, Marker>) {
        if self.given.run.pass.job.what_if.infer {
            return self.validate();
        }
        with_optimizer!(self, train_with, self.given.run.pass.job.what_if.optimizer, optimizer);
    }

    /// Runs only the batch and forward phases, as validation does: no parameter requires a gradient.
    pub(super) fn validate(self) {
        let WithBatch { run, make, batch } = self.given;
        let model = made(run, make).no_grad();
        for step in 0..run.pass.job.steps {
            run.mark(Some(step), Phase::Batch);
            let input = batch(&run.device.device);
            run.mark(Some(step), Phase::Forward);
            let loss = (self.loss)(&model, input);
            let _ = loss.into_data();
            step_done(1);
        }
    }

    fn train_with(self, mut optimizer: impl Optimizer<M, B>) {
        let WithBatch { run, make, batch } = self.given;
        // This loop hands the model to the loss, so it can hand over a copy. No other loop can, and they
        // refuse.
        let half = run.pass.mixed().map(dtype);
        let mut model = made_in(run, make, half);
        let mut sum = GradientsAccumulator::new();
        for step in 0..run.pass.job.steps {
            for part in (0..run.pass.parts()).rev() {
                run.mark(Some(step), Phase::Batch);
                let input = batch(&run.device.device);
                run.mark(Some(step), Phase::Forward);
                let loss = match half {
                    None => (self.loss)(&model, input),
                    Some(half) => (self.loss)(&mixed::in_half(&model, half), input),
                };
                run.mark(Some(step), Phase::Backward);
                let gradients = GradientsParams::from_grads(loss.backward(), &model);
                if let Some(gradients) = summed(run, &mut sum, &model, gradients, part) {
                    run.mark(Some(step), Phase::Optimizer);
                    model = optimizer.step(LEARNING_RATE, model, gradients);
                    #[cfg(feature = "explain")]
                    modules::name(&model);
                }
                if self.read_loss {
                    let _ = loss.into_data();
                }
            }
            step_done(u64::from(self.read_loss) * u64::from(run.pass.parts()));
        }
    }
}

/// Adds up the gradients of a batch's parts. `left` is the number of parts that are still to come. After the last part,
/// returns the sum.
fn summed<B: AutodiffBackend, M: AutodiffModule<B>, Kind>(
    run: &Run<B, Kind>,
    sum: &mut GradientsAccumulator<M>,
    model: &M,
    gradients: GradientsParams,
    left: u32,
) -> Option<GradientsParams> {
    let whole = if run.pass.parts() == 1 {
        gradients
    } else {
        sum.accumulate(model, gradients);
        if left > 0 {
            return None;
        }
        sum.grads()
    };
    #[cfg(feature = "explain")]
    modules::name_gradients(model, &whole);
    Some(whole)
}

/// Makes a model for a loop that does not support mixed precision. Ends the process if the job asks for that.
pub(super) fn made<B: Backend, Kind, M: Module<B>>(run: &Run<B, Kind>, make: Make<B, M>) -> M {
    // The default is to refuse. So a loop that is added later refuses mixed precision until somebody adds it.
    run.pass.refuse_mixed();
    made_in(run, make, None)
}

/// Makes a model. With `half`, its parameters are f32, and its steps work on copies in that half precision.
fn made_in<B: Backend, Kind, M: Module<B>>(run: &Run<B, Kind>, make: Make<B, M>, half: Option<FloatDType>) -> M {
    run.declared();
    let model = make(&run.device.device);
    // Not in a measurement, whose values must be those of the program without cargo-vram.
    if run.pass.job.lockstep {
        super::make_parameters(&model, &run.device.gpus);
    }
    let model = match run.device.gpus.len() {
        // Fork, as Burn's learner does: it also makes the parameters that are still lazy.
        1 => model.fork(&run.device.device),
        // The parts of the model are already on their GPUs.
        _ => super::forked_in_place(model),
    };
    let model = match half {
        None => model,
        Some(_) => mixed::in_f32(model),
    };
    super::report_parameters(&model);
    #[cfg(feature = "explain")]
    modules::name(&model);
    model
}

/// Counts a completed step, and the values that this library read back in it.
pub(super) fn step_done(reads: u64) {
    // By now, the optimizer's temporary tensors are gone, and its state is still there.
    #[cfg(feature = "explain")]
    modules::look();
    timeline::step_done(reads);
}

impl<B: Backend, Kind> Run<B, Kind> {
    /// Waits until the GPUs have finished all their work.
    pub(super) fn sync(&self) {
        // If a GPU cannot be synchronised, its own thread and the driver's record have already reported why.
        for device in &self.device.gpus {
            let _ = B::sync(device);
        }
    }
}

/// An iterator over the steps of a hand-written loop. [`Run::steps`] makes it.
pub struct Steps {
    left: std::ops::Range<u32>,
    markers: Vec<Marker>,
}

impl Steps {
    pub(super) fn new(steps: u32, markers: Vec<Marker>) -> Self {
        Self {
            left: 0..steps,
            markers,
        }
    }
}

impl Iterator for Steps {
    type Item = Step;

    fn next(&mut self) -> Option<Step> {
        // The body of the loop is the user's. So a step has ended when the loop asks for the next one.
        if self.left.start > 0 {
            step_done(0);
        }
        let number = self.left.next()?;
        let step = Step {
            number,
            markers: self.markers.clone(),
        };
        step.phase(Phase::Batch);
        Some(step)
    }
}

/// One step of a hand-written loop. It begins in the phase `batch`; mark the later phases with [`Step::phase`].
pub struct Step {
    number: u32,
    markers: Vec<Marker>,
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
    pub fn model<B: Backend, M: Module<B>>(&self, model: &M) {
        #[cfg(feature = "explain")]
        modules::name(model);
        #[cfg(not(feature = "explain"))]
        let _ = model;
    }

    /// Gives the model's gradients to `cargo vram explain`, so that it knows their tensors. This changes no memory
    /// value.
    pub fn gradients<B: AutodiffBackend, M: AutodiffModule<B>>(&self, model: &M, gradients: &GradientsParams) {
        #[cfg(feature = "explain")]
        modules::name_gradients(model, gradients);
        #[cfg(not(feature = "explain"))]
        let _ = (model, gradients);
    }

    /// Begins a phase of the step: what follows belongs to it.
    ///
    /// In a training, call this with `Phase::Forward`, `Phase::Backward` and `Phase::Optimizer`, each before its work.
    /// A training without a backward or an optimizer phase fails.
    pub fn phase(&self, phase: Phase) {
        pass::mark(&self.markers, StepMoment::new(self.number, phase));
    }
}
