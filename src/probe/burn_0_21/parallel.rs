//! Data parallel training: every GPU has the whole model and its own batch.
//!
//! This does the same, on the same threads unless they take turns, as Burn's strategy `MultiDevice` with
//! `OptimMainDevice`. In every step, one worker per GPU forks the model to its GPU, goes forward and backward, and
//! hands over its gradients. The gradients are moved to the first GPU and added up, and the optimizer makes its step
//! there.

use std::sync::mpsc::{Receiver, Sender, channel};

use burn21::module::AutodiffModule;
use burn21::optim::{GradientsAccumulator, GradientsParams, Optimizer};
use burn21::tensor::Tensor;
use burn21::tensor::backend::AutodiffBackend;

use super::optimizer::IntoOptimizer;
use super::stage::OtherStream;
use super::train::{LEARNING_RATE, WithBatch, WithLoss, made, step_done, with_optimizer};
use crate::probe::events;
use crate::probe::pass::Marker;
use crate::probe::timeline::StepMoment;
use crate::protocol::Phase;

/// A run that trains its model on several GPUs at once, with one optimizer. [`WithLoss::data_parallel`] makes it.
pub struct DataParallel<'a, B: AutodiffBackend, M, X, F> {
    of: WithLoss<'a, B, M, X, F>,
    gpus: Vec<B::Device>,
}

/// A worker's input: the step's number, the current model, and a batch on the worker's GPU.
type WorkerInput<M, X> = (u32, M, X);
/// A worker's output: the gradients and the loss.
type WorkerOutput<B> = (GradientsParams, Tensor<B, 1>);

impl<'a, B, M, X, F> WithLoss<'a, B, M, X, F>
where
    B: AutodiffBackend,
    M: AutodiffModule<B>,
    X: Send,
    F: Fn(&M, X) -> Tensor<B, 1> + Sync,
{
    /// Trains on these GPUs at once, each with the whole model and its own batch.
    /// `ExecutionStrategy::MultiDevice(gpus, MultiDeviceOptim::OptimMainDevice)` of Burn's learner does the same.
    ///
    /// Take `gpus` from [`Run::gpus`](super::Run::gpus). The optimizer runs on the first of them. The function given to
    /// `batch` is called for each GPU, so `batch_size` is that of one GPU. Continue with [`DataParallel::train`].
    #[must_use]
    pub fn data_parallel(self, gpus: Vec<B::Device>) -> DataParallel<'a, B, M, X, F> {
        DataParallel { of: self, gpus }
    }
}

impl<B, M, X, F> DataParallel<'_, B, M, X, F>
where
    B: AutodiffBackend,
    M: AutodiffModule<B>,
    X: Send,
    F: Fn(&M, X) -> Tensor<B, 1> + Sync,
{
    /// Runs all steps of the pass: batch, forward, backward and optimizer. This is the last call of the chain.
    ///
    /// `optimizer` is an optimizer or one of Burn's optimizer configs. `--optimizer` on the command line replaces it,
    /// and `--infer` runs only batch and forward, on the first GPU of the process.
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
        let [main, ..] = self.gpus.as_slice() else {
            events::impossible("`data_parallel` needs at least one GPU".to_owned());
        };
        if *main != run.device.device {
            model = model.fork(main);
        }
        // With one GPU, there is only one worker, so it needs no stream of its own.
        let apart = self.gpus.len() > 1;
        std::thread::scope(|scope| {
            let start = |gpu| {
                let marker = run.marker(gpu);
                let work = move |given| work(gpu, marker, loss, given);
                match run.pass.job.lockstep {
                    // The work of two threads would reach a GPU in an order that chance decides.
                    // See docs/design/several-gpus.md.
                    true => Worker::Here(apart.then(OtherStream::new), Box::new(work)),
                    false => {
                        let ((give, given), (hand, handed)) = (channel(), channel::<WorkerOutput<B>>());
                        // If the run is over, nobody receives the output, and the worker ends.
                        scope.spawn(move || given.into_iter().map(work).try_for_each(|done| hand.send(done)));
                        Worker::Thread(give, handed)
                    }
                }
            };
            let workers: Vec<Worker<'_, B, M, X>> = self.gpus.iter().map(start).collect();
            for step in 0..run.pass.job.steps {
                let mut sum = GradientsAccumulator::new();
                let mut losses = Vec::new();
                for _ in 0..run.pass.parts() {
                    run.mark(Some(step), Phase::Batch);
                    let inputs: Vec<X> = self.gpus.iter().map(&batch).collect();
                    run.mark(Some(step), Phase::Forward);
                    let given = inputs.into_iter().map(|input| (step, model.clone(), input));
                    let begun: Vec<Option<WorkerOutput<B>>> = workers.iter().zip(given).map(Worker::begin).collect();
                    // A worker that has ended has already reported why.
                    let handed: Vec<WorkerOutput<B>> = workers
                        .iter()
                        .zip(begun)
                        .filter_map(|(worker, done)| done.or_else(|| worker.end()))
                        .collect();
                    // In the order of the GPUs, not of completion, so that the sum is made in one order.
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

/// The worker of one GPU.
enum Worker<'a, B: AutodiffBackend, M, X> {
    /// A worker with its own thread.
    Thread(Sender<WorkerInput<M, X>>, Receiver<WorkerOutput<B>>),
    /// A worker without a thread, for runs in which threads take turns. One thread does the work of all workers, each
    /// on the stream that its own thread would have. Each worker has its own GPU, so the result on each GPU is the
    /// same.
    Here(
        Option<OtherStream>,
        Box<dyn Fn(WorkerInput<M, X>) -> WorkerOutput<B> + 'a>,
    ),
}

impl<B: AutodiffBackend, M, X> Worker<'_, B, M, X> {
    /// Gives the worker its input. Returns the output if it is ready at once.
    fn begin((worker, given): (&Self, WorkerInput<M, X>)) -> Option<WorkerOutput<B>> {
        match worker {
            Self::Thread(give, _) => {
                // A worker that has ended has already reported why.
                let _ = give.send(given);
                None
            }
            Self::Here(Some(elsewhere), work) => Some(elsewhere.run(|| work(given))),
            Self::Here(None, work) => Some(work(given)),
        }
    }

    /// Waits for the worker's output. Returns `None` if [`Self::begin`] returned it already, or if the worker has
    /// ended.
    fn end(&self) -> Option<WorkerOutput<B>> {
        match self {
            Self::Thread(_, handed) => handed.recv().ok(),
            Self::Here(..) => None,
        }
    }
}

/// Runs a worker's part of a step.
fn work<B: AutodiffBackend, M: AutodiffModule<B>, X>(
    gpu: &B::Device,
    marker: &Marker,
    loss: &impl Fn(&M, X) -> Tensor<B, 1>,
    (step, model, input): WorkerInput<M, X>,
) -> WorkerOutput<B> {
    let model = model.fork(gpu);
    let loss = loss(&model, input);
    marker(StepMoment::new(step, Phase::Backward));
    let gradients = GradientsParams::from_grads(loss.backward(), &model);
    (gradients, loss)
}
