//! [`Epochs`] and [`Training`]: a training of several epochs that the program runs itself, with its own data loaders.

use std::path::Path;
use std::sync::Arc;

use burn22::data::dataloader::{DataLoader, DataLoaderIterator, Progress};
use burn22::data::dataset::DatasetError;
use burn22::tensor::Device;

use super::gpus::Gpus;
use super::run::Run;
use super::train::step_done;
use super::{launches, uploads};
use crate::probe::epochs::{EpochBackend, ItemsDone, TrainingInputs, WatchedEpochs, WatchedLoader, WatchedPart};
use crate::probe::pass::Train;
use crate::probe::{events, learner_log};
use crate::protocol::{EpochPart, Inside, ProbeEvent, StreamMemory};

/// The inputs of a training of several epochs. [`Run::epochs`] makes it; [`Self::train`] or
/// [`Self::train_with_own_loaders`] runs it.
pub struct Epochs<'a> {
    run: &'a mut Run<Train>,
    epochs: usize,
    items: Option<usize>,
}

impl Run<Train> {
    /// Describes a training of several epochs that the program runs itself: Burn's `SupervisedTraining`, or a loop over
    /// Burn's data loaders. Continue with [`Epochs::items`] and [`Epochs::train`].
    ///
    /// The number of epochs is the input `epochs`: `default`, unless a budget or `--epochs 3` sets another value. With
    /// three epochs or more, `cargo vram check` can tell memory that grows from memory that settles. It needs the
    /// feature `train` of cargo-vram.
    pub fn epochs(&mut self, default: usize) -> Epochs<'_> {
        let epochs = self.pass.input("epochs", default);
        Epochs {
            run: self,
            epochs,
            items: None,
        }
    }
}

impl Epochs<'_> {
    /// Limits the items that each data loader reads per epoch: the input `items`, `default` unless a budget or
    /// `--items 64` sets another value. Without this, an epoch reads the whole dataset.
    ///
    /// A worker of Burn's data loaders loads ahead while the queue has less than 100 batches. To see the memory of
    /// batches that wait, allow more items than these batches have.
    #[must_use]
    pub fn items(mut self, default: usize) -> Self {
        self.items = Some(self.run.pass.input("items", default));
        self
    }

    /// Runs the training: `train` gets the [`Training`], and must train for [`Training::epochs`] epochs with the data
    /// loaders that [`Training::data`] returned.
    pub fn train(self, train: impl FnOnce(&Training)) {
        let (inputs, watched) = self.begin(false);
        let training = Training { inputs, watched };
        train(&training);
        training.watched.finish();
    }

    /// Runs a training that makes its own data loaders: `train` gets the [`TrainingInputs`], and must train with Burn's
    /// learner for [`TrainingInputs::epochs`] epochs, on this thread.
    ///
    /// The log of the learner tells when the parts of the epochs and the training steps begin. It tells nothing of the
    /// steps of a validation, so each validation counts as one step. The program may not install a logger of its own. To
    /// limit the items per epoch, `train` must read [`TrainingInputs::items`] itself.
    #[track_caller]
    pub fn train_with_own_loaders(self, train: impl FnOnce(&TrainingInputs<Device>)) {
        let (inputs, watched) = self.begin(true);
        // `failures` has installed the logger.
        learner_log::watch(&inputs, watched, train);
    }

    /// Begins the training. `is_logged` tells whether the probe sees its epochs only by the log of Burn's learner.
    fn begin(self, is_logged: bool) -> (TrainingInputs<Device>, Arc<WatchedEpochs>) {
        let Self { run, epochs, items } = self;
        run.pass.free_form();
        run.pass
            .refuse_ranges("the data loaders of a training of several epochs decide the size of each batch");
        if run.gpus.devices.len() > 1 {
            events::impossible("a training of several epochs runs on one GPU".to_owned());
        }
        // The loop waits for fusion's thread, so it cannot run there. The tool runs the pass again with less of the
        // model on that thread, and in the end with nothing.
        if run.pass.job.inside != Inside::Nothing {
            events::send(&ProbeEvent::Stuck);
            std::process::exit(0);
        }
        // Between two steps, nothing waits, so the uploads of batches have one order.
        uploads::accept_any_order();
        run.declared();
        let gpus = run.gpus.clone();
        let watched = WatchedEpochs::new(Box::new(gpus), run.gpus.markers.clone(), run.pass.job.lockstep);
        let inputs = TrainingInputs::begin(run.gpus.first().clone(), epochs, items, is_logged);
        (inputs, Arc::new(watched))
    }
}

/// A training of several epochs, as the program's own code sees it.
pub struct Training {
    inputs: TrainingInputs<Device>,
    watched: Arc<WatchedEpochs>,
}

impl Training {
    /// Returns the GPU to train on.
    #[must_use]
    pub fn device(&self) -> Device {
        self.inputs.device()
    }

    /// Returns the number of epochs to train for.
    #[must_use]
    pub const fn epochs(&self) -> usize {
        self.inputs.epochs()
    }

    /// Returns a temporary folder for checkpoints, logs and all else that the training writes.
    #[must_use]
    pub fn folder(&self) -> &Path {
        self.inputs.folder()
    }

    /// Returns the data loader of the training, limited to the number of items. Each iteration over it is the training
    /// part of an epoch, and each batch a step.
    #[track_caller]
    pub fn data<O: 'static>(&self, loader: Arc<dyn DataLoader<O>>) -> Arc<dyn DataLoader<O>> {
        self.watch(loader, EpochPart::Training)
    }

    /// Returns the data loader of the validation, limited to the number of items. Each iteration over it is the
    /// validation of an epoch.
    #[track_caller]
    pub fn validation<O: 'static>(&self, loader: Arc<dyn DataLoader<O>>) -> Arc<dyn DataLoader<O>> {
        self.watch(loader, EpochPart::Validation)
    }

    #[track_caller]
    fn watch<O: 'static>(&self, loader: Arc<dyn DataLoader<O>>, part: EpochPart) -> Arc<dyn DataLoader<O>> {
        let inner = match self.inputs.items() {
            Some(items) if items < loader.num_items() => loader.slice(0, items),
            _ => loader,
        };
        Arc::new(WatchedLoader {
            inner,
            // A loader does not tell its device. `to_device` does.
            about: self.watched.add_loader(part, false),
            watched: self.watched.clone(),
        })
    }
}

impl EpochBackend for Arc<Gpus> {
    fn sync(&self) {
        Gpus::sync(self);
    }

    fn drain(&self) {
        for threads in self.threads.iter() {
            // Threads that have ended have nothing more to do.
            threads.wait();
        }
    }

    fn step_done(&self) {
        step_done(0);
    }

    fn streams(&self) -> Vec<StreamMemory> {
        launches::streams()
    }
}

impl<O: 'static> DataLoader<O> for WatchedLoader<dyn DataLoader<O>> {
    fn iter<'a>(&'a self) -> Box<dyn DataLoaderIterator<O> + 'a> {
        let part = WatchedPart::begin(
            &self.about,
            &self.watched,
            || self.inner.iter(),
            |iterator| {
                let progress = iterator.progress();
                ItemsDone {
                    processed: progress.items_processed,
                    total: progress.items_total,
                }
            },
        );
        Box::new(part)
    }

    fn num_items(&self) -> usize {
        self.inner.num_items()
    }

    fn to_device(&self, device: &Device) -> Arc<dyn DataLoader<O>> {
        // Only here is the device of the batches known: Burn's learner moves each loader to its device.
        let mut like = self.like(self.inner.to_device(device));
        if let Some(like) = Arc::get_mut(&mut like) {
            like.about.is_tracked = device.is_autodiff();
        }
        like
    }

    fn slice(&self, start: usize, end: usize) -> Arc<dyn DataLoader<O>> {
        self.like(self.inner.slice(start, end))
    }
}

impl<O> DataLoaderIterator<O> for WatchedPart<'_, Box<dyn DataLoaderIterator<O> + '_>> {
    fn progress(&self) -> Progress {
        match self.iterator() {
            Some(inner) => inner.progress(),
            None => Progress::new(1, 1, None),
        }
    }
}

impl<O> Iterator for WatchedPart<'_, Box<dyn DataLoaderIterator<O> + '_>> {
    // The program decides what an error of its dataset means: its step then launches nothing, or it ends.
    type Item = Result<O, DatasetError>;

    fn next(&mut self) -> Option<Self::Item> {
        self.take(Iterator::next)
    }
}
