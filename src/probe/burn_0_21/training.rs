//! [`Epochs`] and [`Training`]: a training of several epochs that the program runs itself, with its own data loaders.

use std::path::Path;
use std::sync::Arc;

use burn_backend21::{Device, DeviceId};
use burn21::data::dataloader::{DataLoader, DataLoaderIterator, Progress};
use burn21::tensor::backend::{AutodiffBackend, Backend};

use super::run::Run;
use super::train::step_done;
use super::{launches, stage};
use crate::probe::epochs::{EpochBackend, ItemsDone, TrainingInputs, WatchedEpochs, WatchedLoader, WatchedPart};
use crate::probe::pass::Train;
use crate::probe::{events, learner_log};
use crate::protocol::{EpochPart, StreamMemory};

/// The inputs of a training of several epochs. [`Run::epochs`] makes it; [`Self::train`] or
/// [`Self::train_with_own_loaders`] runs it.
pub struct Epochs<'a, B: AutodiffBackend> {
    run: &'a mut Run<B, Train>,
    epochs: usize,
    items: Option<usize>,
}

impl<B: AutodiffBackend> Run<B, Train> {
    /// Describes a training of several epochs that the program runs itself: Burn's `SupervisedTraining`, or a loop over
    /// Burn's data loaders. Continue with [`Epochs::items`] and [`Epochs::train`].
    ///
    /// The number of epochs is the input `epochs`: `default`, unless a budget or `--epochs 3` sets another value. With
    /// three epochs or more, `cargo vram check` can tell memory that grows from memory that settles. It needs the
    /// feature `train` of cargo-vram.
    pub fn epochs(&mut self, default: usize) -> Epochs<'_, B> {
        let epochs = self.pass.input("epochs", default);
        Epochs {
            run: self,
            epochs,
            items: None,
        }
    }
}

impl<B: AutodiffBackend> Epochs<'_, B> {
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
    pub fn train(self, train: impl FnOnce(&Training<B>)) {
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
    pub fn train_with_own_loaders(self, train: impl FnOnce(&TrainingInputs<B::Device>)) {
        let (inputs, watched) = self.begin(true);
        learner_log::install();
        learner_log::watch(&inputs, watched, train);
    }

    /// Begins the training. `is_logged` tells whether the probe sees its epochs only by the log of Burn's learner.
    fn begin(self, is_logged: bool) -> (TrainingInputs<B::Device>, Arc<WatchedEpochs>) {
        let Self { run, epochs, items } = self;
        run.pass.free_form();
        run.pass
            .refuse_ranges("the data loaders of a training of several epochs decide the size of each batch");
        if run.device.gpus.len() > 1 {
            events::impossible("a training of several epochs runs on one GPU".to_owned());
        }
        run.declared();
        let backend = GpuOfEpochs::<B> {
            device: run.device.device.clone(),
            gpus: run.device.gpus.iter().map(Device::to_id).collect(),
        };
        let watched = WatchedEpochs::new(Box::new(backend), run.device.markers.clone(), run.pass.job.lockstep);
        let inputs = TrainingInputs::begin(run.device.device.clone(), epochs, items, is_logged);
        (inputs, Arc::new(watched))
    }
}

/// A training of several epochs, as the program's own code sees it.
pub struct Training<B: Backend> {
    inputs: TrainingInputs<B::Device>,
    watched: Arc<WatchedEpochs>,
}

impl<B: AutodiffBackend> Training<B> {
    /// Returns the GPU to train on.
    #[must_use]
    pub fn device(&self) -> B::Device {
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
    pub fn data<O: 'static>(&self, loader: Arc<dyn DataLoader<B, O>>) -> Arc<dyn DataLoader<B, O>> {
        self.watch(loader, EpochPart::Training)
    }

    /// Returns the data loader of the validation, limited to the number of items. Each iteration over it is the
    /// validation of an epoch.
    #[track_caller]
    pub fn validation<V: Backend<Device = B::Device>, O: 'static>(
        &self,
        loader: Arc<dyn DataLoader<V, O>>,
    ) -> Arc<dyn DataLoader<V, O>> {
        self.watch(loader, EpochPart::Validation)
    }

    #[track_caller]
    fn watch<V: Backend<Device = B::Device>, O: 'static>(
        &self,
        loader: Arc<dyn DataLoader<V, O>>,
        part: EpochPart,
    ) -> Arc<dyn DataLoader<V, O>> {
        let inner = match self.inputs.items() {
            Some(items) if items < loader.num_items() => loader.slice(0, items),
            _ => loader,
        };
        Arc::new(WatchedLoader {
            inner,
            about: self.watched.add_loader(part, V::ad_enabled(&self.inputs.device())),
            watched: self.watched.clone(),
        })
    }
}

/// The GPU of a training of several epochs.
struct GpuOfEpochs<B: Backend> {
    device: B::Device,
    gpus: Vec<DeviceId>,
}

impl<B: Backend> EpochBackend for GpuOfEpochs<B> {
    fn sync(&self) {
        // An error means that a thread of the GPU has ended, which it has reported itself.
        let _ = B::sync(&self.device);
    }

    fn drain(&self) {
        stage::drain(&self.gpus);
    }

    fn step_done(&self) {
        step_done(0);
    }

    fn streams(&self) -> Vec<StreamMemory> {
        launches::streams()
    }
}

impl<B: Backend, O: 'static> DataLoader<B, O> for WatchedLoader<dyn DataLoader<B, O>> {
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

    fn to_device(&self, device: &B::Device) -> Arc<dyn DataLoader<B, O>> {
        self.like(self.inner.to_device(device))
    }

    fn slice(&self, start: usize, end: usize) -> Arc<dyn DataLoader<B, O>> {
        self.like(self.inner.slice(start, end))
    }
}

impl<O> DataLoaderIterator<O> for WatchedPart<'_, Box<dyn DataLoaderIterator<O> + '_>> {
    fn progress(&self) -> Progress {
        match self.iterator() {
            Some(inner) => inner.progress(),
            None => Progress::new(1, 1),
        }
    }
}

impl<O> Iterator for WatchedPart<'_, Box<dyn DataLoaderIterator<O> + '_>> {
    type Item = O;

    fn next(&mut self) -> Option<O> {
        self.take(Iterator::next)
    }
}
