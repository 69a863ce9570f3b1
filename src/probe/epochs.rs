//! What a training of several epochs does, seen through its data loaders. All versions of Burn share it; each wraps its
//! own loaders.

use std::path::{Path, PathBuf};
use std::sync::atomic::Ordering::Relaxed;
use std::sync::atomic::{AtomicBool, AtomicU32};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use super::pass::{self, Marker};
use super::timeline::StepMoment;
use super::{clock, events, idle};
use crate::protocol::{EpochPart, Phase, ProbeEvent, StreamMemory};

/// Where and for how long a training of several epochs runs.
pub struct TrainingInputs<D> {
    device: D,
    epochs: usize,
    items: Option<usize>,
    /// Whether the program asked for the items.
    has_read_items: AtomicBool,
    folder: PathBuf,
}

impl<D: Clone> TrainingInputs<D> {
    /// Makes the training's folder, and tells the tool that a training begins. `is_logged` tells whether the
    /// probe sees its epochs only by the log of Burn's learner.
    pub(super) fn begin(device: D, epochs: usize, items: Option<usize>, is_logged: bool) -> Self {
        events::send(&ProbeEvent::Training {
            epochs: u32::try_from(epochs).unwrap_or(u32::MAX),
            is_logged,
        });
        // The tool removes the folder of the pass.
        let folder = events::folder().unwrap_or_else(std::env::temp_dir).join("training");
        let _ = std::fs::create_dir_all(&folder);
        Self {
            device,
            epochs,
            items,
            has_read_items: AtomicBool::new(false),
            folder,
        }
    }

    /// Returns the GPU to train on.
    #[must_use]
    pub fn device(&self) -> D {
        self.device.clone()
    }

    /// Returns the number of epochs to train for.
    #[must_use]
    pub const fn epochs(&self) -> usize {
        self.epochs
    }

    /// Returns the number of items to read from each dataset per epoch: the input `items`, if the benchmark has it.
    #[must_use]
    pub fn items(&self) -> Option<usize> {
        self.has_read_items.store(true, Relaxed);
        self.items
    }

    /// Whether the benchmark limits the items, and the program did not ask for the limit.
    pub(super) fn has_unread_items(&self) -> bool {
        self.items.is_some() && !self.has_read_items.load(Relaxed)
    }

    /// Returns a temporary folder for checkpoints, logs and all else that the training writes.
    #[must_use]
    pub fn folder(&self) -> &Path {
        &self.folder
    }
}

/// What is known about a data loader.
#[derive(Clone)]
pub(super) struct LoaderFacts {
    part: EpochPart,
    /// The program's line that passed it to `Training::data` or `Training::validation`.
    place: Arc<str>,
    /// Whether its batches are on a backend with autodiff.
    pub(super) is_tracked: bool,
    /// How often it was iterated over. Its copies for other devices share the number.
    iterations: Arc<AtomicU32>,
}

impl LoaderFacts {
    /// Creates the facts of a loader that the caller passed.
    #[track_caller]
    pub(super) fn new(part: EpochPart, is_tracked: bool) -> Self {
        let place = std::panic::Location::caller();
        Self {
            part,
            place: format!("{}:{}", place.file(), place.line()).into(),
            is_tracked,
            iterations: Arc::default(),
        }
    }
}

/// What one version of Burn does for a training of several epochs.
pub(super) trait EpochBackend: Send + Sync {
    /// Runs the operations that the current stream still holds back, and waits for them.
    fn sync(&self);

    /// Waits until Burn's threads have done what they were asked for so far.
    fn drain(&self);

    /// Counts a completed step.
    fn step_done(&self);

    /// Returns the memory of each stream; none if the pass does not observe launches.
    fn streams(&self) -> Vec<StreamMemory>;
}

/// What the watched loaders of a training share.
pub(super) struct WatchedEpochs {
    backend: Box<dyn EpochBackend>,
    markers: Vec<Marker>,
    lockstep: bool,
    progress: Mutex<EpochProgress>,
    /// The loaders that the program passed.
    loaders: Mutex<Vec<LoaderFacts>>,
}

/// How a part of an epoch ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum PartEnd {
    /// The loop took all batches.
    Complete,
    /// The loop stopped before the data ended.
    Early,
    /// It ended some time before now.
    Unseen,
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
    pub(super) fn new(backend: Box<dyn EpochBackend>, markers: Vec<Marker>, lockstep: bool) -> Self {
        Self {
            backend,
            markers,
            lockstep,
            progress: Mutex::default(),
            loaders: Mutex::default(),
        }
    }

    /// Returns the facts of a loader that the caller passed.
    #[track_caller]
    pub(super) fn add_loader(&self, part: EpochPart, is_tracked: bool) -> LoaderFacts {
        let about = LoaderFacts::new(part, is_tracked);
        let mut loaders = self.loaders.lock().unwrap_or_else(PoisonError::into_inner);
        loaders.push(about.clone());
        about
    }

    /// Ends a training that has returned.
    pub(super) fn finish(&self) {
        self.end_step();
        let loaders = self.loaders.lock().unwrap_or_else(PoisonError::into_inner);
        for about in loaders.iter().filter(|about| about.iterations.load(Relaxed) == 0) {
            events::send(&ProbeEvent::UnreadLoader {
                loader: about.place.to_string(),
            });
        }
    }

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
    pub(super) fn wait_for_threads(&self) {
        if self.lockstep {
            idle::wait(|| self.backend.drain());
        }
    }

    /// Begins a part. `iteration` is the number of times that its loader was iterated over, this one included.
    pub(super) fn begin(&self, part: EpochPart, iteration: u32) {
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

    pub(super) fn begin_step(&self, part: EpochPart) {
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
    pub(super) fn end_step(&self) {
        if std::mem::take(&mut self.progress().is_within) {
            self.wait_for_threads();
            self.backend.step_done();
        }
    }

    /// Ends a part.
    pub(super) fn end(&self, about: &LoaderFacts, end: PartEnd) {
        self.end_step();
        let (epoch, first, next, began) = {
            let mut progress = self.progress();
            progress.is_running = false;
            (progress.epoch, progress.first, progress.next, progress.began)
        };
        if next > first {
            self.mark(next - 1, Phase::Between);
        }
        // Fusion frees a tensor only with the next operation of its stream. The next operation of this stream comes;
        // one of a worker that has ended does not.
        if self.lockstep {
            self.backend.sync();
        }
        events::send(&ProbeEvent::EpochEnd {
            epoch,
            part: about.part,
            began,
            time: clock::now(),
            first_step: first,
            steps: next - first,
            is_complete: end == PartEnd::Complete,
            is_end_seen: end != PartEnd::Unseen,
            loader: about.place.to_string(),
            is_tracked: about.is_tracked,
            threads: idle::state(),
            streams: self.backend.streams(),
        });
    }
}

/// A data loader `L` that is watched.
pub(super) struct WatchedLoader<L: ?Sized> {
    pub(super) inner: Arc<L>,
    pub(super) about: LoaderFacts,
    pub(super) watched: Arc<WatchedEpochs>,
}

impl<L: ?Sized> WatchedLoader<L> {
    /// Watches another loader like this one.
    pub(super) fn like(&self, inner: Arc<L>) -> Arc<Self> {
        Arc::new(Self {
            inner,
            about: self.about.clone(),
            watched: self.watched.clone(),
        })
    }
}

/// The number of items that an iterator has processed.
#[derive(Clone, Copy)]
pub(super) struct ItemsDone {
    pub(super) processed: usize,
    pub(super) total: usize,
}

impl ItemsDone {
    const fn is_all(self) -> bool {
        self.processed >= self.total
    }
}

/// A part of an epoch: one iteration over a data loader with the iterator `I`.
pub(super) struct WatchedPart<'a, I> {
    /// `None` once the part has ended.
    inner: Option<I>,
    items: fn(&I) -> ItemsDone,
    about: &'a LoaderFacts,
    watched: &'a WatchedEpochs,
}

impl<'a, I> WatchedPart<'a, I> {
    /// Begins the part, and makes the iterator. `items` says how many items the iterator has processed.
    pub(super) fn begin(
        about: &'a LoaderFacts,
        watched: &'a WatchedEpochs,
        iterator: impl FnOnce() -> I,
        items: fn(&I) -> ItemsDone,
    ) -> Self {
        watched.begin(about.part, about.iterations.fetch_add(1, Relaxed) + 1);
        let inner = iterator();
        // The workers load ahead while the training takes batches. Which of both is faster decides how many batches
        // wait on the GPU, so all that may wait are loaded first: that needs most memory.
        watched.wait_for_threads();
        Self {
            inner: Some(inner),
            items,
            about,
            watched,
        }
    }

    /// Returns the iterator, unless the part has ended.
    pub(super) const fn iterator(&self) -> Option<&I> {
        self.inner.as_ref()
    }

    /// Ends the step, takes the next batch with `next`, and begins the next step if there is a batch.
    pub(super) fn take<O>(&mut self, next: impl FnOnce(&mut I) -> Option<O>) -> Option<O> {
        self.watched.end_step();
        let inner = self.inner.as_mut()?;
        if !(self.items)(inner).is_all() {
            let step = self.watched.progress().next;
            self.watched.mark(step, Phase::Batch);
        }
        let Some(batch) = next(inner) else {
            self.end();
            return None;
        };
        // The freed slot of the queue may let a worker go on.
        self.watched.wait_for_threads();
        self.watched.begin_step(self.about.part);
        Some(batch)
    }

    fn end(&mut self) {
        let Some(inner) = self.inner.take() else { return };
        let end = if (self.items)(&inner).is_all() {
            PartEnd::Complete
        } else {
            PartEnd::Early
        };
        // Batches that still wait are freed with it.
        drop(inner);
        self.watched.wait_for_threads();
        self.watched.end(self.about, end);
    }
}

impl<I> Drop for WatchedPart<'_, I> {
    /// A loop may stop before the data ends.
    fn drop(&mut self) {
        // A panic ends the run, and the threads of the GPU may be gone.
        if !std::thread::panicking() {
            self.end();
        }
    }
}
