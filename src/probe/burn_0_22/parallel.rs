//! Data parallel training: every GPU has the whole model and its own batch.
//!
//! This does the same, on the same threads unless they take turns, as Burn's strategy `MultiDevice` with
//! `OptimMainDevice`. In every step, one worker per GPU forks the model to its GPU, goes forward and backward, and
//! hands over its gradients. The gradients are moved to the first GPU and added up, and the optimizer makes its step
//! there.

use std::sync::mpsc::{Receiver, Sender, channel};

use burn22::module::Module;
use burn22::optim::{GradientsAccumulator, GradientsParams};
use burn22::tensor::{Device, Tensor};

use super::failures;
use super::optimizer::IntoOptimizer;
use super::stage::OtherStream;
use super::train::{LEARNING_RATE, WithBatch, WithLoss, chosen, made, step_done};
use crate::probe::events;
use crate::probe::pass::Marker;
use crate::probe::timeline::StepMoment;
use crate::protocol::Phase;

/// A run that trains its model on several GPUs at once, with one optimizer. [`WithLoss::data_parallel`] makes it.
pub struct DataParallel<'a, M, X, F> {
    of: WithLoss<'a, M, X, F>,
    gpus: Vec<Device>,
}

/// A worker's input: the step's number, the current model, and a batch on the worker's GPU.
type WorkerInput<M, X> = (u32, M, X);
/// A worker's output: the gradients and the loss.
type WorkerOutput = (GradientsParams, Tensor<1>);

impl<'a, M, X, F> WithLoss<'a, M, X, F>
where
    M: Module,
    X: Send,
    F: Fn(&M, X) -> Tensor<1> + Send + Sync,
{
    /// Trains on these GPUs at once, each with the whole model and its own batch.
    /// `ExecutionStrategy::MultiDevice(gpus, MultiDeviceOptim::OptimMainDevice)` of Burn's learner does the same.
    ///
    /// Take `gpus` from [`Run::gpus`](super::Run::gpus). The optimizer runs on the first of them. The function given to
    /// `batch` is called for each GPU, so `batch_size` is that of one GPU. Continue with [`DataParallel::train`].
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
    /// Runs all steps of the pass: batch, forward, backward and optimizer. This is the last call of the chain.
    ///
    /// `optimizer` is an optimizer or one of Burn's optimizer configs. `--optimizer` on the command line replaces it,
    /// and `--infer` runs only batch and forward, on the first GPU of the process.
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
            events::impossible("`data_parallel` needs at least one GPU".to_owned());
        };
        if main != run.gpus.first() {
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
                        let ((give, given), (hand, handed)) = (channel(), channel::<WorkerOutput>());
                        // If the run is over, nobody receives the output, and the worker ends.
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
                    let begun: Vec<Option<WorkerOutput>> = workers.iter().zip(given).map(Worker::begin).collect();
                    // A worker that has ended has already reported why.
                    let handed: Vec<WorkerOutput> = workers
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

/// The worker of one GPU.
enum Worker<'a, M, X> {
    /// A worker with its own thread.
    Thread(Sender<WorkerInput<M, X>>, Receiver<WorkerOutput>),
    /// A worker without a thread, for runs in which threads take turns. One thread does the work of all workers, each
    /// on the stream that its own thread would have. Each worker has its own GPU, so the result on each GPU is the
    /// same.
    Here(Option<OtherStream>, Box<dyn Fn(WorkerInput<M, X>) -> WorkerOutput + 'a>),
}

impl<M, X> Worker<'_, M, X> {
    /// Gives the worker its input. Returns the output if it is ready at once.
    fn begin((worker, given): (&Self, WorkerInput<M, X>)) -> Option<WorkerOutput> {
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
    fn end(&self) -> Option<WorkerOutput> {
        match self {
            Self::Thread(_, handed) => handed.recv().ok(),
            Self::Here(..) => None,
        }
    }
}

/// Runs a worker's part of a step.
fn work<M: Module, X>(
    gpu: &Device,
    marker: &Marker,
    loss: &impl Fn(&M, X) -> Tensor<1>,
    (step, model, input): WorkerInput<M, X>,
) -> WorkerOutput {
    let model = model.fork(gpu);
    let loss = loss(&model, input);
    marker(StepMoment::new(step, Phase::Backward));
    let gradients = GradientsParams::from_grads(loss.backward(), &model);
    (gradients, loss)
}
