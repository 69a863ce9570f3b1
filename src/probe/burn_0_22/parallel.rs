//! Data parallel training: every GPU has the whole model and a batch of its own.
//!
//! What is done, and on which thread, is what Burn's own strategy `MultiDevice` does with `OptimMainDevice`: a worker for each
//! GPU forks the model to it in every step, goes forward and backward, and hands its gradients over; they are moved to the
//! first GPU, added up, and the optimizer goes a step there.

use std::sync::mpsc::{Receiver, Sender, channel};

use burn22::module::Module;
use burn22::optim::{GradientsAccumulator, GradientsParams};
use burn22::tensor::{Device, Tensor};

use super::failures;
use super::optimizer::IntoOptimizer;
use super::stage::Elsewhere;
use super::train::{LEARNING_RATE, WithBatch, WithLoss, chosen, made, step_done};
use crate::probe::events;
use crate::probe::pass::Marker;
use crate::probe::timeline::Moment;
use crate::protocol::Phase;

/// A run whose model is trained on several GPUs at once.
pub struct DataParallel<'a, M, X, F> {
    of: WithLoss<'a, M, X, F>,
    gpus: Vec<Device>,
}

/// What goes to a worker: the step, the model as it is, and a batch on the worker's GPU.
type Given<M, X> = (u32, M, X);
/// What comes back.
type Handed = (GradientsParams, Tensor<1>);

impl<'a, M, X, F> WithLoss<'a, M, X, F>
where
    M: Module,
    X: Send,
    F: Fn(&M, X) -> Tensor<1> + Send + Sync,
{
    /// Trains on these GPUs at once, each with the whole model and a batch of its own, as
    /// `ExecutionStrategy::MultiDevice(gpus, MultiDeviceOptim::OptimMainDevice)` of Burn's learner does.
    #[must_use]
    pub fn data_parallel(self, gpus: Vec<Device>) -> DataParallel<'a, M, X, F> {
        DataParallel { of: self, gpus }
    }
}

impl<M, X, F> DataParallel<'_, M, X, F>
where
    M: Module,
    X: Send,
    F: Fn(&M, X) -> Tensor<1> + Send + Sync,
{
    /// Trains with an optimizer, or with one of Burn's optimizer configs. This is the last call.
    pub fn train(self, optimizer: impl IntoOptimizer) {
        let what_if = &self.of.given.run.pass.job.what_if;
        if what_if.infer {
            return self.of.validate();
        }
        let mut optimizer = chosen(what_if.optimizer, optimizer);
        let WithBatch { run, make, batch } = self.of.given;
        let (loss, read_loss) = (&self.of.loss, self.of.read_loss);
        let mut model = made(run, make);
        let [main, ..] = self.gpus.as_slice() else {
            events::impossible("a model needs a card".to_owned());
        };
        if main != run.gpus.first() {
            model = model.fork(main);
        }
        // With one GPU there is nobody to keep apart from.
        let apart = self.gpus.len() > 1;
        std::thread::scope(|scope| {
            let start = |gpu| {
                let marker = run.marker(gpu);
                let work = move |given| work(gpu, marker, loss, given);
                match run.pass.job.lockstep {
                    true => Worker::Here(apart.then(Elsewhere::new), Box::new(work)),
                    false => {
                        let ((give, given), (hand, handed)) = (channel(), channel::<Handed>());
                        // Nobody waits for it any more where the run is over.
                        scope.spawn(move || given.into_iter().map(work).all(|done| hand.send(done).is_ok()));
                        Worker::Thread(give, handed)
                    }
                }
            };
            let workers: Vec<Worker<'_, M, X>> = self.gpus.iter().map(start).collect();
            for step in run.step_numbers() {
                let mut sum = GradientsAccumulator::new();
                let mut losses = Vec::new();
                for _ in 0..run.pass.parts() {
                    run.mark(Some(step), Phase::Batch);
                    let inputs: Vec<X> = self.gpus.iter().map(&batch).collect();
                    run.mark(Some(step), Phase::Forward);
                    let given = inputs.into_iter().map(|input| (step, model.clone(), input));
                    let begun: Vec<Option<Handed>> = workers.iter().zip(given).map(Worker::begin).collect();
                    // A worker that is gone has said why.
                    let handed: Vec<Handed> = workers
                        .iter()
                        .zip(begun)
                        .filter_map(|(worker, done)| done.or_else(|| worker.end()))
                        .collect();
                    for (gradients, loss) in handed {
                        sum.accumulate(&model, gradients.to_device(main, &model));
                        losses.push(loss);
                    }
                }
                run.mark(Some(step), Phase::Optimizer);
                model = optimizer.step(LEARNING_RATE, model, sum.grads());
                let mut reads = 0;
                for loss in losses.into_iter().filter(|_| read_loss) {
                    failures::note(loss.try_into_data());
                    reads += 1;
                }
                step_done(reads);
            }
        });
    }
}

/// One GPU's worker.
enum Worker<'a, M, X> {
    /// A thread of its own.
    Thread(Sender<Given<M, X>>, Receiver<Handed>),
    /// Where threads take turns, there is one: it does everybody's work, each on the stream that a thread of its own would
    /// have. Each has its own GPU, so that nothing is another there.
    Here(Option<Elsewhere>, Box<dyn Fn(Given<M, X>) -> Handed + 'a>),
}

impl<M, X> Worker<'_, M, X> {
    /// Has the worker begin; what it made, where that is there at once.
    fn begin((worker, given): (&Self, Given<M, X>)) -> Option<Handed> {
        match worker {
            Self::Thread(give, _) => {
                // A worker that is gone has said why.
                let _ = give.send(given);
                None
            }
            Self::Here(Some(elsewhere), work) => Some(elsewhere.run(|| work(given))),
            Self::Here(None, work) => Some(work(given)),
        }
    }

    /// What it made, once it is there.
    fn end(&self) -> Option<Handed> {
        match self {
            Self::Thread(_, handed) => handed.recv().ok(),
            Self::Here(..) => None,
        }
    }
}

/// A worker's part of a step.
fn work<M: Module, X>(
    gpu: &Device,
    marker: &Marker,
    loss: &impl Fn(&M, X) -> Tensor<1>,
    (step, model, input): Given<M, X>,
) -> Handed {
    let model = model.fork(gpu);
    let loss = loss(&model, input);
    marker(Moment::of(step, Phase::Backward));
    let gradients = GradientsParams::from_grads(loss.backward(), &model);
    (gradients, loss)
}
