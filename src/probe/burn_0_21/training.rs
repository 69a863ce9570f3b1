//! [`Epochs`] and [`Training`]: a training of several epochs that the program runs itself, with its own data loaders.

use std::path::{Path, PathBuf};
use std::sync::atomic::AtomicU32;
use std::sync::atomic::Ordering::Relaxed;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use burn_backend21::{Device, DeviceId};
use burn21::data::dataloader::{DataLoader, DataLoaderIterator, Progress};
use burn21::tensor::backend::{AutodiffBackend, Backend};

use super::run::Run;
use super::train::step_done;
use super::{launches, stage};
use crate::probe::pass::{self, Marker, Train};
use crate::probe::timeline::StepMoment;
use crate::probe::{clock, events, idle};
use crate::protocol::{EpochPart, Phase, ProbeEvent};

/// The inputs of a training of several epochs. [`Run::epochs`] makes it; [`Self::train`] runs it.
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
        let Self { run, epochs, items } = self;
        run.pass.free_form();
        run.pass
            .refuse_ranges("the data loaders of a training of several epochs decide the size of each batch");
        if run.device.gpus.len() > 1 {
            events::impossible("a training of several epochs runs on one GPU".to_owned());
        }
        run.declared();
        events::send(&ProbeEvent::Training {
            epochs: u32::try_from(epochs).unwrap_or(u32::MAX),
        });
        // The tool removes the folder of the pass.
        let folder = events::folder().unwrap_or_else(std::env::temp_dir).join("training");
        let _ = std::fs::create_dir_all(&folder);
        let device = run.device.device.clone();
        let sync = move || {
            // An error means that a thread of the GPU has ended, which it has reported itself.
            let _ = B::sync(&device);
        };
        let training = Training {
            device: run.device.device.clone(),
            epochs,
            items,
            folder,
            watched: Arc::new(WatchedEpochs {
                sync: Box::new(sync),
                gpus: run.device.gpus.iter().map(Device::to_id).collect(),
                markers: run.device.markers.clone(),
                lockstep: run.pass.job.lockstep,
                progress: Mutex::new(EpochProgress::default()),
            }),
        };
        train(&training);
        training.watched.end_step();
    }
}

/// A training of several epochs, as the program's own code sees it.
pub struct Training<B: Backend> {
    device: B::Device,
    epochs: usize,
    items: Option<usize>,
    folder: PathBuf,
    watched: Arc<WatchedEpochs>,
}

impl<B: AutodiffBackend> Training<B> {
    /// Returns the GPU to train on.
    #[must_use]
    pub fn device(&self) -> B::Device {
        self.device.clone()
    }

    /// Returns the number of epochs to train for.
    #[must_use]
    pub const fn epochs(&self) -> usize {
        self.epochs
    }

    /// Returns a temporary folder for checkpoints, logs and all else that the training writes.
    #[must_use]
    pub fn folder(&self) -> &Path {
        &self.folder
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
        let inner = match self.items {
            Some(items) if items < loader.num_items() => loader.slice(0, items),
            _ => loader,
        };
        let place = std::panic::Location::caller();
        Arc::new(WatchedLoader {
            inner,
            about: LoaderFacts {
                part,
                place: format!("{}:{}", place.file(), place.line()).into(),
                is_tracked: V::ad_enabled(&self.device),
            },
            iterations: Arc::default(),
            watched: self.watched.clone(),
        })
    }
}

/// What is known about a data loader.
#[derive(Clone)]
struct LoaderFacts {
    part: EpochPart,
    /// The program's line that passed it to [`Training::data`] or [`Training::validation`].
    place: Arc<str>,
    /// Whether its batches are on a backend with autodiff.
    is_tracked: bool,
}

/// What the watched loaders share.
struct WatchedEpochs {
    /// Runs the operations that the current stream still holds back, and waits for them.
    sync: Box<dyn Fn() + Send + Sync>,
    gpus: Vec<DeviceId>,
    markers: Vec<Marker>,
    lockstep: bool,
    progress: Mutex<EpochProgress>,
}

/// Where the training is.
#[derive(Default)]
struct EpochProgress {
    /// The number of the epoch, from 1.
    epoch: u32,
    /// The number of the next step. Training and validation count on.
    next: u32,
    /// Whether a step has begun that has not ended.
    is_within: bool,
    /// Whether a part is running.
    is_running: bool,
    /// The first step of that part, and when the part began.
    first: u32,
    began: u64,
}

impl WatchedEpochs {
    fn progress(&self) -> MutexGuard<'_, EpochProgress> {
        self.progress.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn mark(&self, step: u32, phase: Phase) {
        pass::mark(&self.markers, StepMoment::new(step, phase));
    }

    /// Waits until the program's other threads have nothing to do. Not in a measurement, which must run as the program
    /// does.
    ///
    /// Without this, a checkpoint that another thread writes races with the next epoch, and Burn 0.21 can panic:
    /// `Should have handle for tensor` (burn#4347).
    fn wait_for_threads(&self) {
        if self.lockstep {
            idle::wait(|| stage::drain(&self.gpus));
        }
    }

    /// Begins a part. `iteration` is the number of times that its loader was iterated over, this one included.
    fn begin(&self, part: EpochPart, iteration: u32) {
        self.end_step();
        self.wait_for_threads();
        let next = {
            let mut progress = self.progress();
            if std::mem::replace(&mut progress.is_running, true) {
                events::impossible(
                    "the program iterates over two data loaders at once: cargo-vram cannot say which of them a step \
                     belongs to"
                        .to_owned(),
                );
            }
            // By loader, because an epoch may train on several. A validation belongs to the training before it.
            progress.epoch = match part {
                EpochPart::Training => progress.epoch.max(iteration),
                EpochPart::Validation => progress.epoch.max(1),
            };
            progress.first = progress.next;
            progress.began = clock::now();
            progress.next
        };
        // Workers begin to load before the first batch is taken.
        self.mark(next, Phase::Batch);
    }

    fn begin_step(&self, part: EpochPart) {
        let step = self.progress().next;
        let phase = match part {
            EpochPart::Training => Phase::Training,
            EpochPart::Validation => Phase::Validation,
        };
        self.mark(step, phase);
        let mut progress = self.progress();
        progress.next += 1;
        progress.is_within = true;
    }

    /// Ends the step that has begun, if any.
    fn end_step(&self) {
        if std::mem::take(&mut self.progress().is_within) {
            self.wait_for_threads();
            step_done(0);
        }
    }

    /// Ends a part. `is_complete` tells whether the loop took all batches.
    fn end(&self, about: &LoaderFacts, is_complete: bool) {
        self.end_step();
        let (epoch, first, next, began) = {
            let mut progress = self.progress();
            progress.is_running = false;
            (progress.epoch, progress.first, progress.next, progress.began)
        };
        if next > first {
            self.mark(next - 1, Phase::Between);
        }
        // Fusion frees a tensor only with the next operation of its stream. The next operation of this stream comes; one
        // of a worker that has ended does not.
        if self.lockstep {
            (self.sync)();
        }
        events::send(&ProbeEvent::EpochEnd {
            epoch,
            part: about.part,
            began,
            time: clock::now(),
            first_step: first,
            steps: next - first,
            is_complete,
            loader: about.place.to_string(),
            is_tracked: about.is_tracked,
            threads: idle::state(),
            streams: launches::streams(),
        });
    }
}

struct WatchedLoader<B: Backend, O> {
    inner: Arc<dyn DataLoader<B, O>>,
    about: LoaderFacts,
    /// How often it was iterated over. Its copies for other devices share the number.
    iterations: Arc<AtomicU32>,
    watched: Arc<WatchedEpochs>,
}

impl<B: Backend, O: 'static> WatchedLoader<B, O> {
    /// Watches another loader like this one.
    fn like(&self, inner: Arc<dyn DataLoader<B, O>>) -> Arc<dyn DataLoader<B, O>> {
        Arc::new(Self {
            inner,
            about: self.about.clone(),
            iterations: self.iterations.clone(),
            watched: self.watched.clone(),
        })
    }
}

impl<B: Backend, O: 'static> DataLoader<B, O> for WatchedLoader<B, O> {
    fn iter<'a>(&'a self) -> Box<dyn DataLoaderIterator<O> + 'a> {
        self.watched
            .begin(self.about.part, self.iterations.fetch_add(1, Relaxed) + 1);
        let inner = self.inner.iter();
        // The workers load ahead while the training takes batches. Which of both is faster decides how many batches
        // wait on the GPU, so all that may wait are loaded first: that needs most memory.
        self.watched.wait_for_threads();
        Box::new(WatchedIterator {
            inner: Some(inner),
            about: &self.about,
            watched: &self.watched,
        })
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

struct WatchedIterator<'a, O> {
    /// `None` once the part has ended.
    inner: Option<Box<dyn DataLoaderIterator<O> + 'a>>,
    about: &'a LoaderFacts,
    watched: &'a WatchedEpochs,
}

impl<O> WatchedIterator<'_, O> {
    fn end(&mut self) {
        let Some(inner) = self.inner.take() else { return };
        let progress = inner.progress();
        // Batches that still wait are freed with it.
        drop(inner);
        self.watched.wait_for_threads();
        self.watched
            .end(self.about, progress.items_processed >= progress.items_total);
    }
}

impl<O> DataLoaderIterator<O> for WatchedIterator<'_, O> {
    fn progress(&self) -> Progress {
        match &self.inner {
            Some(inner) => inner.progress(),
            None => Progress::new(1, 1),
        }
    }
}

impl<O> Iterator for WatchedIterator<'_, O> {
    type Item = O;

    fn next(&mut self) -> Option<O> {
        self.watched.end_step();
        let inner = self.inner.as_mut()?;
        let progress = inner.progress();
        if progress.items_processed < progress.items_total {
            let step = self.watched.progress().next;
            self.watched.mark(step, Phase::Batch);
        }
        let Some(batch) = inner.next() else {
            self.end();
            return None;
        };
        // The freed slot of the queue may let a worker go on.
        self.watched.wait_for_threads();
        self.watched.begin_step(self.about.part);
        Some(batch)
    }
}

impl<O> Drop for WatchedIterator<'_, O> {
    /// A loop may stop before the data ends.
    fn drop(&mut self) {
        // A panic ends the run, and the threads of the GPU may be gone.
        if !std::thread::panicking() {
            self.end();
        }
    }
}
