//! The ready-made loops: train with a loss, train with Burn's `TrainStep`, infer; and the free-form one.

use burn22::module::Module;
use burn22::optim::{GradientsAccumulator, GradientsParams, ModuleOptimizer};
use burn22::tensor::{Device, FloatDType, Tensor};

use super::optimizer::IntoOptimizer;
use super::run::Run;
use super::{dtype, failures, mixed, observed};
#[cfg(feature = "train")]
use crate::probe::events;
use crate::probe::pass::{Infer, Train};
use crate::probe::timeline;
use crate::protocol::{Optimizer, Phase};

/// The learning rate of the ready-made loops. No value depends on it.
pub(super) const LEARNING_RATE: f64 = 1e-3;

/// The optimizer that was asked for, or else the model's own.
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

type Make<M> = Box<dyn FnOnce(&Device) -> M>;
type MakeBatch<X> = Box<dyn Fn(&Device) -> X>;

/// A run that knows how to make its model.
pub struct WithModel<'a, Kind, M> {
    run: &'a mut Run<Kind>,
    make: Make<M>,
}

impl<'a, Kind, M> WithModel<'a, Kind, M> {
    pub(super) fn new(run: &'a mut Run<Kind>, make: Make<M>) -> Self {
        Self { run, make }
    }

    /// How a step's inputs are made.
    pub fn batch<X>(self, batch: impl Fn(&Device) -> X + 'static) -> WithBatch<'a, Kind, M, X> {
        WithBatch {
            run: self.run,
            make: self.make,
            batch: Box::new(batch),
        }
    }
}

/// A run that knows how to make its model and its inputs.
pub struct WithBatch<'a, Kind, M, X> {
    pub(super) run: &'a mut Run<Kind>,
    pub(super) make: Make<M>,
    pub(super) batch: MakeBatch<X>,
}

impl<'a, M: Module, X: Send> WithBatch<'a, Train, M, X> {
    /// What is minimised.
    pub fn loss<F: Fn(&M, X) -> Tensor<1> + Send>(self, loss: F) -> WithLoss<'a, M, X, F> {
        WithLoss {
            given: self,
            loss,
            read_loss: true,
        }
    }

    /// Trains a model that implements Burn's own [`TrainStep`](burn22::train::TrainStep). This is the last call.
    #[cfg(feature = "train")]
    pub fn train_step(self, optimizer: impl IntoOptimizer)
    where
        M: burn22::train::TrainStep<Input = X>,
    {
        let Self { run, make, batch } = self;
        let what_if = &run.pass.job.what_if;
        if what_if.infer {
            events::impossible("`TrainStep::step` makes gradients itself".to_owned());
        }
        let mut optimizer = chosen(what_if.optimizer, optimizer);
        let mut model = made(run, make);
        let mut sum = GradientsAccumulator::new();
        for step in run.step_numbers() {
            for part in (0..run.pass.parts()).rev() {
                run.mark(Some(step), Phase::Batch);
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
                    // Burn's learner hands the item to its metrics, which read it: that waits for the step, and holds no more.
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
    /// Runs the model forward, without autodiff. This is the last call.
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

/// A run that knows its model, its inputs and its loss.
pub struct WithLoss<'a, M, X, F> {
    pub(super) given: WithBatch<'a, Train, M, X>,
    pub(super) loss: F,
    pub(super) read_loss: bool,
}

impl<M: Module, X: Send, F: Fn(&M, X) -> Tensor<1> + Send> WithLoss<'_, M, X, F> {
    /// Whether the loss is read once a step, as training loops do to log it; they do by default.
    #[must_use]
    pub fn read_loss(self, read_loss: bool) -> Self {
        Self { read_loss, ..self }
    }

    /// Trains with an optimizer, or with one of Burn's optimizer configs. This is the last call.
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
        let half = run.pass.mixed().map(dtype);
        let mut model = made_in(run, make, half);
        let mut sum = GradientsAccumulator::new();
        for step in run.step_numbers() {
            for part in (0..run.pass.parts()).rev() {
                run.mark(Some(step), Phase::Batch);
                let input = batch(run.gpus.first());
                // Lent as a whole: a loss may keep what it is called with in a `RefCell`.
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

    /// The forward phase alone, as validation is: no parameter asks for a gradient.
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

/// Adds up the gradients of a batch's parts, of which so many are left; the whole, after the last one.
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

/// Makes a model that is run as it is.
pub(super) fn made<Kind, M: Module>(run: &Run<Kind>, make: Make<M>) -> M {
    run.pass.refuse_mixed();
    made_in(run, make, None)
}

/// Makes a model whose steps work on copies in half precision, where one is named.
fn made_in<Kind, M: Module>(run: &Run<Kind>, make: Make<M>, half: Option<FloatDType>) -> M {
    run.declared();
    let model = make(run.gpus.first());
    let model = match run.gpus.devices.as_slice() {
        [device] => model.fork(device),
        // Its parts are where they belong.
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

/// A step was completed, with this many values read by this library.
pub(super) fn step_done(reads: u64) {
    // What the optimizer needed meanwhile is gone by now, and what it keeps is not.
    observed::look();
    timeline::step_done(reads);
}
