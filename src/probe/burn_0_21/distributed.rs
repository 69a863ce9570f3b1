//! Distributed data parallel training: every GPU has the whole model, its own optimizer and its own batch. Each
//! gradient is reduced over all GPUs as it is made.
//!
//! This does the same, on the same threads, as Burn's strategy `DistributedDataParallel`. The given model stays where
//! it is, and each worker forks its own model from it. No value includes the memory that NCCL itself allocates.

use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender, channel};
use std::thread::ScopedJoinHandle;
use std::time::Duration;

use burn21::module::{AutodiffModule, ModuleMapper, Param};
use burn21::optim::{GradientsParams, Optimizer};
use burn21::tensor::Tensor;
use burn21::tensor::backend::AutodiffBackend;
use burn21::tensor::backend::distributed::{DistributedBackend, DistributedConfig, DistributedParamId};

use super::optimizer::IntoOptimizer;
use super::stage::OtherStream;
use super::train::{LEARNING_RATE, WithBatch, WithLoss, made, step_done, with_optimizer};
use crate::probe::events;
use crate::probe::pass::Marker;
use crate::probe::timeline::StepMoment;
use crate::protocol::Phase;

/// How often a waiting thread checks whether the worker still runs.
const INTERVAL: Duration = Duration::from_millis(50);

/// A run that trains its model on several GPUs at once, each with its own optimizer. [`WithLoss::ddp`] makes it.
pub struct Distributed<'a, B: AutodiffBackend, M, X, F> {
    of: WithLoss<'a, B, M, X, F>,
    gpus: Vec<B::Device>,
    config: DistributedConfig,
}

impl<'a, B, M, X, F> WithLoss<'a, B, M, X, F>
where
    B: AutodiffBackend + DistributedBackend,
    M: AutodiffModule<B>,
    X: Send,
    F: Fn(&M, X) -> Tensor<B, 1> + Sync,
{
    /// Trains on these GPUs at once, each with the whole model, its own optimizer and its own batch.
    /// `ExecutionStrategy::ddp(gpus, config)` of Burn's learner does the same.
    ///
    /// Take `gpus` from [`Run::gpus`](super::Run::gpus); at least two are necessary. The function given to `batch` is
    /// called for each GPU, so `batch_size` is that of one GPU. This method needs the feature `distributed` of
    /// cargo-vram. Continue with [`Distributed::train`].
    #[must_use]
    pub fn ddp(self, gpus: Vec<B::Device>, config: DistributedConfig) -> Distributed<'a, B, M, X, F> {
        Distributed { of: self, gpus, config }
    }
}

/// The next task of a worker.
enum WorkerTask<X> {
    /// Run forward and backward. The values are the step's number and its input.
    Batch(u32, X),
    /// Apply the gradients to the parameters.
    Update,
}

/// A message from a worker.
enum Said {
    /// The worker has its model. The value is the stream on which its tensors are made.
    Ready(OtherStream),
    /// The worker's gradients are reduced over all GPUs.
    Reduced,
    /// The worker completed a step. The value is the number of values that it read back.
    Done(u64),
}

struct RankWorker<'scope, 'a, B: AutodiffBackend, X> {
    gpu: &'a B::Device,
    marker: &'a Marker,
    place: OtherStream,
    give: Sender<WorkerTask<X>>,
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
    /// Runs all steps of the pass: batch, forward, backward and optimizer. This is the last call of the chain.
    ///
    /// `optimizer` is an optimizer or one of Burn's optimizer configs; every GPU gets a clone of it. `--optimizer` on
    /// the command line replaces it, and `--infer` runs only batch and forward, on the first GPU of the process.
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
        // This model stays alive to the end, as in Burn's learner.
        let model = made(run, make);
        let [main, _, ..] = self.gpus.as_slice() else {
            events::impossible("`ddp` needs at least two GPUs to reduce gradients over".to_owned());
        };
        run.pass
            .refuse_ranges("the workers of `ddp` are not always at the same step");
        if run.pass.parts() > 1 {
            // After each update, a parameter announces that it is distributed in the first backward phase only.
            events::impossible(
                "`--accumulate` does not work with `ddp`: Burn 0.21 reduces only the gradients of a batch's first part"
                    .to_owned(),
            );
        }
        // Several GPUs are always virtual, and there threads take turns.
        let waiting = super::in_order(self.gpus.len());
        // Burn's own server copies a gradient while activations still exist. A sum after backward would miss
        // that. See docs/design/distributed.md.
        B::start_communication_server(&self.gpus, self.config);
        std::thread::scope(|scope| {
            // Workers wait for each other. If this thread panicked, they would wait forever.
            let _end = EndsAll;
            let start = |gpu| {
                let marker = run.marker(gpu);
                let ((give, given), (say, said)) = (channel(), channel());
                // One optimizer per GPU, as in Burn's learner: each has the whole state.
                let (model, optimizer) = (model.clone(), optimizer.clone());
                let thread = scope.spawn(move || {
                    let fork = || model.fork(gpu).map(&mut Distribute);
                    work((fork, optimizer), marker, (loss, read_loss), (given, &say));
                    // Finish the work that is left of the last step.
                    let _ = B::sync(gpu);
                });
                let Said::Ready(place) = answer(&said, &thread) else {
                    unreachable!("the first message of a worker is `Ready`");
                };
                RankWorker {
                    gpu,
                    marker,
                    place,
                    give,
                    said,
                    thread,
                }
            };
            let workers: Vec<RankWorker<'_, '_, B, X>> = self.gpus.iter().map(start).collect();
            for step in 0..run.pass.job.steps {
                for worker in &workers {
                    (worker.marker)(StepMoment::new(step, Phase::Batch));
                    let input = worker.place.run(|| batch(worker.gpu));
                    // A worker that has ended has already reported why.
                    let _ = worker.give.send(WorkerTask::Batch(step, input));
                    // Start the next worker only when this one waits for it.
                    answer(&waiting, &worker.thread);
                }
                for worker in &workers {
                    answer(&worker.said, &worker.thread);
                }
                // Any thread may clean up the autodiff graphs of a GPU, so the workers update one after the other, too.
                let mut reads = 0;
                for worker in &workers {
                    let _ = worker.give.send(WorkerTask::Update);
                    if let Said::Done(read) = answer(&worker.said, &worker.thread) {
                        reads += read;
                    }
                }
                step_done(reads);
            }
            // The workers also end one after the other.
            for worker in workers {
                drop(worker.give);
                let _ = worker.thread.join();
            }
        });
        B::close_communication_server(main);
    }
}

/// Ends the process if this thread panics. By then, the panic is already reported.
struct EndsAll;

impl Drop for EndsAll {
    fn drop(&mut self) {
        if std::thread::panicking() {
            std::process::exit(101);
        }
    }
}

/// Waits for a message. Ends the process if the worker has ended, because the other workers would wait for it forever.
fn answer<T>(from: &Receiver<T>, worker: &ScopedJoinHandle<'_, ()>) -> T {
    loop {
        match from.recv_timeout(INTERVAL) {
            Ok(said) => return said,
            Err(RecvTimeoutError::Timeout) if !worker.is_finished() => {}
            // The worker has already reported why.
            Err(_) => std::process::exit(101),
        }
    }
}

/// Runs a worker's part of every step.
fn work<B: AutodiffBackend, M: AutodiffModule<B>, X>(
    (fork, mut optimizer): (impl FnOnce() -> M, impl Optimizer<M, B>),
    marker: &Marker,
    (loss, read_loss): (&impl Fn(&M, X) -> Tensor<B, 1>, bool),
    (given, say): (Receiver<WorkerTask<X>>, &Sender<Said>),
) {
    let mut model = fork();
    // If the run is over, nobody receives this.
    let _ = say.send(Said::Ready(OtherStream::here()));
    while let Ok(WorkerTask::Batch(step, input)) = given.recv() {
        marker(StepMoment::new(step, Phase::Forward));
        let loss = loss(&model, input);
        marker(StepMoment::new(step, Phase::Backward));
        let gradients = loss.backward();
        let _ = say.send(Said::Reduced);
        let Ok(WorkerTask::Update) = given.recv() else {
            return;
        };
        let gradients = GradientsParams::from_grads(gradients, &model);
        marker(StepMoment::new(step, Phase::Optimizer));
        model = optimizer.step(LEARNING_RATE, model, gradients);
        match read_loss {
            true => drop(loss.into_data()),
            false => drop(loss),
        }
        let _ = say.send(Said::Done(u64::from(read_loss)));
    }
}

/// Marks parameters as distributed, so that their gradients are reduced over all GPUs.
struct Distribute;

impl<B: AutodiffBackend> ModuleMapper<B> for Distribute {
    fn map_float<const D: usize>(&mut self, param: Param<Tensor<B, D>>) -> Param<Tensor<B, D>> {
        // Not `Param::map`: the closure would not have the id, by which the GPUs find the same gradient.
        let (id, tensor, mapper) = param.consume();
        let tensor = tensor.set_distributed(DistributedParamId::from(id.val()));
        Param::from_mapped_value(id, tensor, mapper)
    }
}
