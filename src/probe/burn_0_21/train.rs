//! The ready-made loops: train with a loss, train with Burn's `TrainStep`, infer; and the free-form one.

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
use crate::probe::timeline::{self, Moment};
use crate::protocol::Phase;

/// The learning rate of the ready-made loops. No figure depends on it.
pub(super) const LEARNING_RATE: f64 = 1e-3;

/// Trains with the optimizer that was asked for, or else with the model's own.
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
                "models take another optimizer if built with the feature `what-if` of cargo-vram".to_owned(),
            );
        }
        $self.$train($own.into_optimizer());
    };
}
pub(super) use with_optimizer;

type Make<B, M> = Box<dyn FnOnce(&<B as burn21::tensor::backend::BackendTypes>::Device) -> M>;
type MakeBatch<B, X> = Box<dyn Fn(&<B as burn21::tensor::backend::BackendTypes>::Device) -> X>;

/// A run that knows how to make its model.
pub struct WithModel<'a, B: Backend, Kind, M> {
    run: &'a mut Run<B, Kind>,
    make: Make<B, M>,
}

impl<'a, B: Backend, Kind, M> WithModel<'a, B, Kind, M> {
    pub(super) fn new(run: &'a mut Run<B, Kind>, make: Make<B, M>) -> Self {
        Self { run, make }
    }

    /// How a step's inputs are made.
    pub fn batch<X>(self, batch: impl Fn(&B::Device) -> X + 'static) -> WithBatch<'a, B, Kind, M, X> {
        WithBatch {
            run: self.run,
            make: self.make,
            batch: Box::new(batch),
        }
    }
}

/// A run that knows how to make its model and its inputs.
pub struct WithBatch<'a, B: Backend, Kind, M, X> {
    pub(super) run: &'a mut Run<B, Kind>,
    pub(super) make: Make<B, M>,
    pub(super) batch: MakeBatch<B, X>,
}

impl<'a, B: AutodiffBackend, M: AutodiffModule<B>, X> WithBatch<'a, B, Train, M, X> {
    /// What is minimised.
    pub fn loss<F: Fn(&M, X) -> Tensor<B, 1>>(self, loss: F) -> WithLoss<'a, B, M, X, F> {
        WithLoss {
            given: self,
            loss,
            read_loss: true,
        }
    }

    /// Trains a model that implements Burn's own [`TrainStep`](burn21::train::TrainStep). This is the last call.
    #[cfg(feature = "train")]
    pub fn train_step<Marker>(self, optimizer: impl IntoOptimizer<B, M, Marker>)
    where
        M: burn21::train::TrainStep<Input = X>,
    {
        if self.run.pass.job.what_if.infer {
            events::impossible("`TrainStep::step` makes gradients itself".to_owned());
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
        let mut watched = Watched::Last;
        for step in 0..run.pass.job.steps {
            for part in (0..run.pass.parts()).rev() {
                run.mark(Some(step), Phase::Batch);
                let input = batch(&run.device.device);
                // `step` of the trait runs forward and backward in one call, with no place for a mark between them.
                let backward = run.marking(step, Phase::Backward);
                let (announced, announcement) = announce(model, watched, backward);
                model = announced;
                run.mark(Some(step), Phase::Forward);
                let output = model.step(input);
                if !announcement.came() {
                    watched = Watched::All;
                }
                drop(announcement);
                let Some(gradients) = summed(run, &mut sum, &model, output.grads, part) else {
                    drop(output.item);
                    continue;
                };
                run.mark(Some(step), Phase::Optimizer);
                model = model.optimize::<B, _>(&mut optimizer, LEARNING_RATE, gradients);
                #[cfg(feature = "explain")]
                modules::name(&model);
                // Burn's learner hands the item to its metrics, which read it: that waits for the step, and holds no more.
                run.sync();
                drop(output.item);
            }
            step_done(0);
        }
    }
}

impl<B: Backend, M: Module<B>, X> WithBatch<'_, B, Infer, M, X> {
    /// Runs the model forward, without autodiff. This is the last call.
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

/// A run that knows its model, its inputs and its loss.
pub struct WithLoss<'a, B: Backend, M, X, F> {
    pub(super) given: WithBatch<'a, B, Train, M, X>,
    pub(super) loss: F,
    pub(super) read_loss: bool,
}

impl<B: AutodiffBackend, M: AutodiffModule<B>, X, F: Fn(&M, X) -> Tensor<B, 1>> WithLoss<'_, B, M, X, F> {
    /// Whether the loss is read once a step, as training loops do to log it; they do by default.
    #[must_use]
    pub fn read_loss(self, read_loss: bool) -> Self {
        Self { read_loss, ..self }
    }

    /// Trains with an optimizer, or with one of Burn's optimizer configs. This is the last call.
    pub fn train<Marker>(self, optimizer: impl IntoOptimizer<B, M, Marker>) {
        if self.given.run.pass.job.what_if.infer {
            return self.validate();
        }
        with_optimizer!(self, train_with, self.given.run.pass.job.what_if.optimizer, optimizer);
    }

    /// The forward phase alone, as validation is: no parameter asks for a gradient.
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

/// Adds up the gradients of a batch's parts, of which so many are left; the whole, after the last one.
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

/// Makes a model that is run as it is.
pub(super) fn made<B: Backend, Kind, M: Module<B>>(run: &Run<B, Kind>, make: Make<B, M>) -> M {
    run.pass.refuse_mixed();
    made_in(run, make, None)
}

/// Makes a model whose steps work on copies in half precision, where one is named.
fn made_in<B: Backend, Kind, M: Module<B>>(run: &Run<B, Kind>, make: Make<B, M>, half: Option<FloatDType>) -> M {
    run.declared();
    let model = make(&run.device.device);
    if run.pass.job.lockstep {
        super::make_parameters(&model, &run.device.cards);
    }
    let model = match run.device.cards.len() {
        1 => model.fork(&run.device.device),
        // Its parts are where they belong.
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

/// A step was completed, with this many values read by this library.
pub(super) fn step_done(reads: u64) {
    // What the optimizer needed meanwhile is gone by now, and what it keeps is not.
    #[cfg(feature = "explain")]
    modules::look();
    timeline::step_done(reads);
}

impl<B: Backend, Kind> Run<B, Kind> {
    /// Waits until the device has done everything it was given.
    pub(super) fn sync(&self) {
        // A device that cannot be synchronised has already said why, on its own thread and in the driver's record.
        for device in &self.device.cards {
            let _ = B::sync(device);
        }
    }
}

/// The steps of a loop written by hand; see [`Run::steps`].
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

/// One step of a loop written by hand. It begins in the phase `batch`.
pub struct Step {
    number: u32,
    markers: Vec<Marker>,
}

impl Step {
    /// The step's number, from 0.
    #[must_use]
    pub fn number(&self) -> u32 {
        self.number
    }

    /// Tells which model it is, so that `cargo vram explain` knows its parameters by name. Call it whenever they are new: at
    /// a step's beginning or end. It changes no figure.
    pub fn model<B: Backend, M: Module<B>>(&self, model: &M) {
        #[cfg(feature = "explain")]
        modules::name(model);
        #[cfg(not(feature = "explain"))]
        let _ = model;
    }

    /// Tells which tensors are the model's gradients, for `cargo vram explain`. It changes no figure.
    pub fn gradients<B: AutodiffBackend, M: AutodiffModule<B>>(&self, model: &M, gradients: &GradientsParams) {
        #[cfg(feature = "explain")]
        modules::name_gradients(model, gradients);
        #[cfg(not(feature = "explain"))]
        let _ = (model, gradients);
    }

    /// What follows is this phase of the step.
    pub fn phase(&self, phase: Phase) {
        pass::mark(&self.markers, Moment::of(self.number, phase));
    }
}
