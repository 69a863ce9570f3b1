//! Data parallel training: every card has the whole model and a batch of its own.
//!
//! What is done, and on which thread, is what Burn's own strategy `MultiDevice` does with `OptimMainDevice`: a worker a card
//! forks the model to its card in every step, goes forward and backward, and hands its gradients over; they are moved to the
//! first card, added up, and the optimizer goes a step there.

use std::sync::mpsc::{Receiver, Sender, channel};

use burn21::module::AutodiffModule;
use burn21::optim::{GradientsAccumulator, GradientsParams, Optimizer};
use burn21::tensor::Tensor;
use burn21::tensor::backend::AutodiffBackend;

use super::optimizer::IntoOptimizer;
use super::stage::Elsewhere;
use super::train::{LEARNING_RATE, WithBatch, WithLoss, made, step_done, with_optimizer};
use crate::probe::events;
use crate::probe::pass::Marker;
use crate::probe::timeline::Moment;
use crate::protocol::Phase;

/// A run whose model is trained on several cards at once.
pub struct DataParallel<'a, B: AutodiffBackend, M, X, F> {
    of: WithLoss<'a, B, M, X, F>,
    cards: Vec<B::Device>,
}

/// What goes to a worker: the step, the model as it is, and a batch on the worker's card.
type Given<M, X> = (u32, M, X);
/// What comes back.
type Handed<B> = (GradientsParams, Tensor<B, 1>);

impl<'a, B, M, X, F> WithLoss<'a, B, M, X, F>
where
    B: AutodiffBackend,
    M: AutodiffModule<B>,
    X: Send,
    F: Fn(&M, X) -> Tensor<B, 1> + Sync,
{
    /// Trains on these cards at once, each with the whole model and a batch of its own, as
    /// `ExecutionStrategy::MultiDevice(cards, MultiDeviceOptim::OptimMainDevice)` of Burn's learner does.
    #[must_use]
    pub fn data_parallel(self, cards: Vec<B::Device>) -> DataParallel<'a, B, M, X, F> {
        DataParallel { of: self, cards }
    }
}

impl<B, M, X, F> DataParallel<'_, B, M, X, F>
where
    B: AutodiffBackend,
    M: AutodiffModule<B>,
    X: Send,
    F: Fn(&M, X) -> Tensor<B, 1> + Sync,
{
    /// Trains with an optimizer, or with one of Burn's optimizer configs. This is the last call.
    pub fn train<Marker>(self, optimizer: impl IntoOptimizer<B, M, Marker>) {
        if self.of.given.run.pass.job.what_if.infer {
            return self.of.validate();
        }
        with_optimizer!(
            self,
            train_with,
            self.of.given.run.pass.job.what_if.optimizer,
            optimizer
        );
    }

    fn train_with(self, mut optimizer: impl Optimizer<M, B>) {
        let WithBatch { run, make, batch } = self.of.given;
        let (loss, read_loss) = (&self.of.loss, self.of.read_loss);
        let mut model = made(run, make);
        let [main, ..] = self.cards.as_slice() else {
            events::impossible("a model needs a card".to_owned());
        };
        if *main != run.device.device {
            model = model.fork(main);
        }
        // With one card there is nobody to keep apart from.
        let apart = self.cards.len() > 1;
        std::thread::scope(|scope| {
            let start = |card| {
                let marker = run.marker(card);
                let work = move |given| work(card, marker, loss, given);
                match run.pass.job.lockstep {
                    true => Worker::Here(apart.then(Elsewhere::new), Box::new(work)),
                    false => {
                        let ((give, given), (hand, handed)) = (channel(), channel::<Handed<B>>());
                        // Nobody waits for it any more where the run is over.
                        scope.spawn(move || given.into_iter().map(work).try_for_each(|done| hand.send(done)));
                        Worker::Thread(give, handed)
                    }
                }
            };
            let workers: Vec<Worker<'_, B, M, X>> = self.cards.iter().map(start).collect();
            for step in 0..run.pass.job.steps {
                let mut sum = GradientsAccumulator::new();
                let mut losses = Vec::new();
                for _ in 0..run.pass.parts() {
                    run.mark(Some(step), Phase::Batch);
                    let inputs: Vec<X> = self.cards.iter().map(&batch).collect();
                    run.mark(Some(step), Phase::Forward);
                    let given = inputs.into_iter().map(|input| (step, model.clone(), input));
                    let begun: Vec<Option<Handed<B>>> = workers.iter().zip(given).map(Worker::begin).collect();
                    // A worker that is gone has said why.
                    let handed: Vec<Handed<B>> = workers
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
                    let _ = loss.into_data();
                    reads += 1;
                }
                step_done(reads);
            }
        });
    }
}

/// One card's worker.
enum Worker<'a, B: AutodiffBackend, M, X> {
    /// A thread of its own.
    Thread(Sender<Given<M, X>>, Receiver<Handed<B>>),
    /// Where threads take turns, there is one: it does everybody's work, each on the stream that a thread of its own would
    /// have. Each has its own card, so that nothing is another there.
    Here(Option<Elsewhere>, Box<dyn Fn(Given<M, X>) -> Handed<B> + 'a>),
}

impl<B: AutodiffBackend, M, X> Worker<'_, B, M, X> {
    /// Has the worker begin; what it made, where that is there at once.
    fn begin((worker, given): (&Self, Given<M, X>)) -> Option<Handed<B>> {
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
    fn end(&self) -> Option<Handed<B>> {
        match self {
            Self::Thread(_, handed) => handed.recv().ok(),
            Self::Here(..) => None,
        }
    }
}

/// A worker's part of a step.
fn work<B: AutodiffBackend, M: AutodiffModule<B>, X>(
    card: &B::Device,
    marker: &Marker,
    loss: &impl Fn(&M, X) -> Tensor<B, 1>,
    (step, model, input): Given<M, X>,
) -> Handed<B> {
    let model = model.fork(card);
    let loss = loss(&model, input);
    marker(Moment::of(step, Phase::Backward));
    let gradients = GradientsParams::from_grads(loss.backward(), &model);
    (gradients, loss)
}
