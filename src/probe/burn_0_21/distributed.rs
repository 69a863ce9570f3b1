//! Distributed data parallel training: every card has the whole model, an optimizer and a batch of its own, and each
//! gradient is reduced over all cards as it is made.
//!
//! What is done, and on which thread, is what Burn's own strategy `DistributedDataParallel` does: the model that it was given
//! stays where it is, and each worker forks one of its own from it. Memory of NCCL's own is in no figure.

use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender, channel};
use std::thread::ScopedJoinHandle;
use std::time::Duration;

use burn21::module::{AutodiffModule, ModuleMapper, Param};
use burn21::optim::{GradientsParams, Optimizer};
use burn21::tensor::Tensor;
use burn21::tensor::backend::AutodiffBackend;
use burn21::tensor::backend::distributed::{DistributedBackend, DistributedConfig, DistributedParamId};

use super::optimizer::IntoOptimizer;
use super::stage::Elsewhere;
use super::train::{LEARNING_RATE, WithBatch, WithLoss, made, step_done, with_optimizer};
use crate::probe::events;
use crate::probe::pass::Marker;
use crate::probe::timeline::Moment;
use crate::protocol::Phase;

/// How often it is looked whether a worker is still there that is waited for.
const INTERVAL: Duration = Duration::from_millis(50);

/// A run whose model is trained on several cards at once, each with an optimizer of its own.
pub struct Distributed<'a, B: AutodiffBackend, M, X, F> {
    of: WithLoss<'a, B, M, X, F>,
    cards: Vec<B::Device>,
    config: DistributedConfig,
}

impl<'a, B, M, X, F> WithLoss<'a, B, M, X, F>
where
    B: AutodiffBackend + DistributedBackend,
    M: AutodiffModule<B>,
    X: Send,
    F: Fn(&M, X) -> Tensor<B, 1> + Sync,
{
    /// Trains on these cards at once, each with the whole model, an optimizer and a batch of its own, as
    /// `ExecutionStrategy::ddp(cards, config)` of Burn's learner does.
    #[must_use]
    pub fn ddp(self, cards: Vec<B::Device>, config: DistributedConfig) -> Distributed<'a, B, M, X, F> {
        Distributed {
            of: self,
            cards,
            config,
        }
    }
}

/// What a worker is to do next.
enum Given<X> {
    /// Forward and backward: in which step, and with which input.
    Batch(u32, X),
    /// Gradients to parameters.
    Update,
}

/// What a worker says.
enum Said {
    /// It has its model; this is where its tensors are made.
    Ready(Elsewhere),
    /// Its gradients are those of all cards.
    Reduced,
    /// It is done with a step, and read so many values.
    Done(u64),
}

struct Worker<'scope, 'a, B: AutodiffBackend, X> {
    card: &'a B::Device,
    marker: &'a Marker,
    place: Elsewhere,
    give: Sender<Given<X>>,
    said: Receiver<Said>,
    thread: ScopedJoinHandle<'scope, ()>,
}

impl<B, M, X, F> Distributed<'_, B, M, X, F>
where
    B: AutodiffBackend + DistributedBackend,
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

    fn train_with(self, optimizer: impl Optimizer<M, B>) {
        let WithBatch { run, make, batch } = self.of.given;
        let (loss, read_loss) = (&self.of.loss, self.of.read_loss);
        // It stays to the end, as the learner's does.
        let model = made(run, make);
        let [main, _, ..] = self.cards.as_slice() else {
            events::impossible("gradients are reduced over two cards or more".to_owned());
        };
        if run.pass.parts() > 1 {
            // Parameters tell that they are distributed in one backward phase after each update, and no more.
            events::impossible("Burn 0.21 reduces the gradients of the first part of a batch, and of no other: they cannot be added up".to_owned());
        }
        // Several cards are virtual ones, where threads take turns.
        let waiting = super::in_order(self.cards.len());
        B::start_communication_server(&self.cards, self.config);
        std::thread::scope(|scope| {
            // Workers wait for each other, and would wait for ever.
            let _end = EndsAll;
            let start = |card| {
                let marker = run.marker(card);
                let ((give, given), (say, said)) = (channel(), channel());
                let (model, optimizer) = (model.clone(), optimizer.clone());
                let thread = scope.spawn(move || {
                    let fork = || model.fork(card).map(&mut Distribute);
                    work((fork, optimizer), marker, (loss, read_loss), (given, &say));
                    // What is left of the last step.
                    let _ = B::sync(card);
                });
                let Said::Ready(place) = answer(&said, &thread) else {
                    unreachable!("a worker says that it is ready before anything else");
                };
                Worker {
                    card,
                    marker,
                    place,
                    give,
                    said,
                    thread,
                }
            };
            let workers: Vec<Worker<'_, '_, B, X>> = self.cards.iter().map(start).collect();
            for step in 0..run.pass.job.steps {
                for worker in &workers {
                    (worker.marker)(Moment::of(step, Phase::Batch));
                    let input = worker.place.run(|| batch(worker.card));
                    // A worker that is gone has said why.
                    let _ = worker.give.send(Given::Batch(step, input));
                    // The next one goes when this one waits for it.
                    answer(&waiting, &worker.thread);
                }
                for worker in &workers {
                    answer(&worker.said, &worker.thread);
                }
                // Graphs of one card are cleaned up by whoever comes by, so that here, too, one goes after the other.
                let mut reads = 0;
                for worker in &workers {
                    let _ = worker.give.send(Given::Update);
                    if let Said::Done(read) = answer(&worker.said, &worker.thread) {
                        reads += read;
                    }
                }
                step_done(reads);
            }
            // One after the other, too.
            for worker in workers {
                drop(worker.give);
                let _ = worker.thread.join();
            }
        });
        B::close_communication_server(main);
    }
}

/// Ends the process where this thread panics: the reason is told by then.
struct EndsAll;

impl Drop for EndsAll {
    fn drop(&mut self) {
        if std::thread::panicking() {
            std::process::exit(101);
        }
    }
}

/// What comes from there, as long as the worker is that it comes from. Without it the others would wait for ever.
fn answer<T>(from: &Receiver<T>, worker: &ScopedJoinHandle<'_, ()>) -> T {
    loop {
        match from.recv_timeout(INTERVAL) {
            Ok(said) => return said,
            Err(RecvTimeoutError::Timeout) if !worker.is_finished() => {}
            // It has said why.
            Err(_) => std::process::exit(101),
        }
    }
}

/// A worker's part of every step.
fn work<B: AutodiffBackend, M: AutodiffModule<B>, X>(
    (fork, mut optimizer): (impl FnOnce() -> M, impl Optimizer<M, B>),
    marker: &Marker,
    (loss, read_loss): (&impl Fn(&M, X) -> Tensor<B, 1>, bool),
    (given, say): (Receiver<Given<X>>, &Sender<Said>),
) {
    let mut model = fork();
    // Nobody listens where the run is over.
    let _ = say.send(Said::Ready(Elsewhere::here()));
    while let Ok(Given::Batch(step, input)) = given.recv() {
        marker(Moment::of(step, Phase::Forward));
        let loss = loss(&model, input);
        marker(Moment::of(step, Phase::Backward));
        let gradients = loss.backward();
        let _ = say.send(Said::Reduced);
        let Ok(Given::Update) = given.recv() else {
            return;
        };
        let gradients = GradientsParams::from_grads(gradients, &model);
        marker(Moment::of(step, Phase::Optimizer));
        model = optimizer.step(LEARNING_RATE, model, gradients);
        match read_loss {
            true => drop(loss.into_data()),
            false => drop(loss),
        }
        let _ = say.send(Said::Done(u64::from(read_loss)));
    }
}

/// Has a model's gradients be those of all cards.
struct Distribute;

impl<B: AutodiffBackend> ModuleMapper<B> for Distribute {
    fn map_float<const D: usize>(&mut self, param: Param<Tensor<B, D>>) -> Param<Tensor<B, D>> {
        let (id, tensor, mapper) = param.consume();
        let tensor = tensor.set_distributed(DistributedParamId::from(id.val()));
        Param::from_mapped_value(id, tensor, mapper)
    }
}
