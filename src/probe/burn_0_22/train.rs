//! The ready-made loops: train with a loss, train with Burn's `TrainStep`, infer.

use burn22::module::Module;
use burn22::optim::{GradientsAccumulator, GradientsParams, ModuleOptimizer};
use burn22::tensor::{Device, FloatDType, Tensor};

use super::mixed::{self, dtype};
use super::optimizer::IntoOptimizer;
use super::run::Run;
use super::{failures, observed};
#[cfg(feature = "train")]
use crate::probe::events;
use crate::probe::pass::{Infer, Train};
use crate::probe::timeline;
use crate::protocol::{Optimizer, Phase};

/// The learning rate of the ready-made loops. No memory value depends on it.
pub(super) const LEARNING_RATE: f64 = 1e-3;

/// Returns the optimizer that the job asks for, or else the model's own.
pub(super) fn chosen(asked: Option<Optimizer>, own: impl IntoOptimizer) -> ModuleOptimizer {
    use burn22::optim::momentum::MomentumConfig;
    use burn22::optim::{AdamConfig, AdamWConfig, SgdConfig};

    match asked {
        None => own.into_optimizer(),
        Some(Optimizer::Sgd) => SgdConfig::new().init(),
        Some(Optimizer::SgdMomentum) => SgdConfig::new().with_momentum(Some(MomentumConfig::new())).init(),
        Some(Optimizer::Adam) => AdamConfig::new().init(),
        Some(Optimizer::AdamW) => AdamWConfig::new().init(),
    }
}

/// A run that has its model. [`Run::model`] makes it.
pub struct WithModel<'a, Kind, M> {
    run: &'a mut Run<Kind>,
    make: Box<dyn FnOnce(&Device) -> M>,
}

impl<'a, Kind, M> WithModel<'a, Kind, M> {
    pub(super) fn new(run: &'a mut Run<Kind>, make: Box<dyn FnOnce(&Device) -> M>) -> Self {
        Self { run, make }
    }

    /// Sets how the inputs of a step are made: `batch` gets the GPU to make them on and returns them.
    ///
    /// Each step calls it once, or once per part with `--accumulate`. Data parallel training calls it for each GPU.
    /// Continue with [`WithBatch::loss`] or `train_step` for a training, or with [`WithBatch::infer`].
    pub fn batch<X>(self, batch: impl Fn(&Device) -> X + 'static) -> WithBatch<'a, Kind, M, X> {
        WithBatch {
            run: self.run,
            make: self.make,
            batch: Box::new(batch),
        }
    }
}

/// A run that has its model and its inputs. [`WithModel::batch`] makes it.
pub struct WithBatch<'a, Kind, M, X> {
    pub(super) run: &'a mut Run<Kind>,
    pub(super) make: Box<dyn FnOnce(&Device) -> M>,
    pub(super) batch: Box<dyn Fn(&Device) -> X>,
}

impl<'a, M: Module, X: Send> WithBatch<'a, Train, M, X> {
    /// Sets the loss to minimise: `loss` gets the model and the inputs of a step, and returns a tensor of rank 1.
    ///
    /// Continue with [`WithLoss::train`], or with [`WithLoss::data_parallel`] for several GPUs.
    pub fn loss<F: Fn(&M, X) -> Tensor<1> + Send>(self, loss: F) -> WithLoss<'a, M, X, F> {
        WithLoss {
            given: self,
            loss,
            read_loss: true,
        }
    }

    /// Runs all steps of the pass with Burn's own [`TrainStep`](burn22::train::TrainStep), which the model implements.
    /// This is the last call of the chain.
    ///
    /// Each step calls `TrainStep::step` with the model and its inputs, and then the optimizer. `optimizer` is an
    /// optimizer or one of Burn's optimizer configs; `--optimizer` on the command line replaces it. This method needs
    /// the feature `train` of cargo-vram.
    #[cfg(feature = "train")]
    pub fn train_step(self, optimizer: impl IntoOptimizer)
    where
        M: burn22::train::TrainStep<Input = X>,
    {
        let Self { run, make, batch } = self;
        let what_if = &run.pass.job.what_if;
        if what_if.infer {
            events::impossible(
                "`--infer` does not work with `TrainStep`, whose `step` always computes gradients".to_owned(),
            );
        }
        let mut optimizer = chosen(what_if.optimizer, optimizer);
        let mut model = made(run, make);
        let mut sum = GradientsAccumulator::new();
        for step in run.step_numbers() {
            // Backwards, so that the number is that of the parts still to come.
            for part in (0..run.pass.parts()).rev() {
                run.mark(Some(step), Phase::Batch);
                // Outside `in_step`: a data loader has threads of its own, which would wait for fusion's
                // thread.
                let input = batch(run.gpus.first());
                model = run.gpus.in_step(|| {
                    run.mark(Some(step), Phase::Forward);
                    let output = model.step(input);
                    let Some(gradients) = summed(run, &mut sum, &model, output.grads, part) else {
                        drop(output.item);
                        return model;
                    };
                    run.mark(Some(step), Phase::Optimizer);
                    let model = model.optimize(&mut optimizer, LEARNING_RATE.into(), gradients);
                    observed::name(&model);
                    // Burn's learner gives the item to its metrics, which read it. That waits for the step and takes no
                    // more memory, as `sync` does here.
                    run.sync();
                    drop(output.item);
                    model
                });
            }
            step_done(0);
        }
    }
}

impl<M: Module, X> WithBatch<'_, Infer, M, X> {
    /// Runs all steps of the pass, without autodiff: each makes its inputs and calls `forward` with the model and these
    /// inputs. This is the last call of the chain.
    ///
    /// The output of `forward` is dropped at the end of the step.
    pub fn infer<Y>(self, forward: impl Fn(&M, X) -> Y) {
        let Self { run, make, batch } = self;
        let model = made(run, make);
        for step in run.step_numbers() {
            run.mark(Some(step), Phase::Batch);
            let input = batch(run.gpus.first());
            run.mark(Some(step), Phase::Forward);
            let output = forward(&model, input);
            run.sync();
            drop(output);
            step_done(0);
        }
    }
}

/// A run that has its model, its inputs and its loss. [`WithBatch::loss`] makes it.
pub struct WithLoss<'a, M, X, F> {
    pub(super) given: WithBatch<'a, Train, M, X>,
    pub(super) loss: F,
    pub(super) read_loss: bool,
}

impl<M: Module, X: Send, F: Fn(&M, X) -> Tensor<1> + Send> WithLoss<'_, M, X, F> {
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
    pub fn train(self, optimizer: impl IntoOptimizer) {
        let what_if = &self.given.run.pass.job.what_if;
        if what_if.infer {
            return self.validate();
        }
        let mut optimizer = chosen(what_if.optimizer, optimizer);
        let Self {
            given,
            mut loss,
            read_loss,
        } = self;
        let WithBatch { run, make, batch } = given;
        let run = &*run;
        // This loop hands the model to the loss, so it can hand over a copy. No other loop can, and they
        // refuse.
        let half = run.pass.mixed().map(dtype);
        let mut model = made_in(run, make, half);
        let mut sum = GradientsAccumulator::new();
        for step in run.step_numbers() {
            for part in (0..run.pass.parts()).rev() {
                run.mark(Some(step), Phase::Batch);
                let input = batch(run.gpus.first());
                // Borrow the loss mutably: it is `Send` but may not be `Sync` (for example with a `RefCell`), so a
                // shared borrow could not move to another thread.
                let (loss_of, optimizer, sum) = (&mut loss, &mut optimizer, &mut sum);
                model = run.gpus.in_step(move || {
                    run.mark(Some(step), Phase::Forward);
                    let loss = match half {
                        None => loss_of(&model, input),
                        Some(half) => loss_of(&mixed::in_half(&model, half), input),
                    };
                    run.mark(Some(step), Phase::Backward);
                    let gradients = GradientsParams::from_grads(loss.backward(), &model);
                    let mut model = model;
                    if let Some(gradients) = summed(run, sum, &model, gradients, part) {
                        run.mark(Some(step), Phase::Optimizer);
                        model = optimizer.step(LEARNING_RATE, model, gradients);
                        observed::name(&model);
                    }
                    if read_loss {
                        failures::note(loss.try_into_data());
                    }
                    model
                });
            }
            step_done(u64::from(read_loss) * u64::from(run.pass.parts()));
        }
    }

    /// Runs only the batch and forward phases, as validation does: no parameter requires a gradient.
    pub(super) fn validate(self) {
        let WithBatch { run, make, batch } = self.given;
        let model = made(run, make).no_grad();
        for step in run.step_numbers() {
            run.mark(Some(step), Phase::Batch);
            let input = batch(run.gpus.first());
            run.mark(Some(step), Phase::Forward);
            let loss = (self.loss)(&model, input);
            failures::note(loss.try_into_data());
            step_done(1);
        }
    }
}

/// Adds up the gradients of a batch's parts. `left` is the number of parts that are still to come. After the last part,
/// returns the sum.
fn summed<M: Module>(
    run: &Run<Train>,
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
    observed::name_gradients(model, &whole);
    Some(whole)
}

/// Makes a model for a loop that does not support mixed precision. Ends the process if the job asks for that.
pub(super) fn made<Kind, M: Module>(run: &Run<Kind>, make: Box<dyn FnOnce(&Device) -> M>) -> M {
    // The default is to refuse. So a loop that is added later refuses mixed precision until somebody adds it.
    // See docs/design/what-if.md.
    run.pass.refuse_mixed();
    made_in(run, make, None)
}

/// Makes a model. With `half`, its parameters are f32, and its steps work on copies in that half precision.
fn made_in<Kind, M: Module>(run: &Run<Kind>, make: Box<dyn FnOnce(&Device) -> M>, half: Option<FloatDType>) -> M {
    run.declared();
    let model = make(run.gpus.first());
    let model = match run.gpus.devices.as_slice() {
        // Fork, as Burn's learner does: it also makes the parameters that are still lazy.
        [device] => model.fork(device),
        // The parts of the model are already on their GPUs.
        _ => super::parameters::forked_in_place(model),
    };
    let model = match half {
        None => model,
        Some(_) => mixed::in_f32(model),
    };
    super::parameters::report(&model);
    observed::name(&model);
    model
}

/// Counts a completed step, and the values that this library read back in it.
pub(super) fn step_done(reads: u64) {
    // By now, the optimizer's temporary tensors are gone, and its state is still there.
    observed::look();
    timeline::step_done(reads);
}
