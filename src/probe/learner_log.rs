//! Watches a training whose program makes its own data loaders: Burn's learner logs when a part of an epoch and a step
//! begin. All versions of Burn share it.

use std::cell::RefCell;
use std::sync::Arc;
#[cfg(feature = "burn-0_21")]
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};

use log::{Level, LevelFilter, Metadata, Record};

use super::epochs::{LoaderFacts, PartEnd, TrainingInputs, WatchedEpochs};
use super::events;
use crate::protocol::{EpochPart, ProbeEvent};

/// The beginning of the log targets of the learner's loops in burn-train 0.21 and 0.22.
const LOOPS: &str = "burn_train::learner::supervised::strategies::";

/// The log target of the errors that stop a learner of burn-train 0.22.
const ERRORS: &str = "burn_train::learner::base";

thread_local! {
    /// The training that runs on this thread.
    static LOGGED: RefCell<Option<LoggedTraining>> = const { RefCell::new(None) };
}

/// What the learner logs.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum LearnerMoment {
    /// The training part of the epoch with this number begins.
    Training(u32),
    /// A training step begins. Its batch has been taken.
    Iteration,
    /// The validation of an epoch begins. Its steps are not logged.
    Validation,
}

impl LearnerMoment {
    fn parse(text: &str) -> Option<Self> {
        if let Some(epoch) = text.strip_prefix("Executing training step for epoch ") {
            return epoch.parse().ok().map(Self::Training);
        }
        let moments = [
            ("Iteration ", Self::Iteration),
            ("Executing validation step for epoch ", Self::Validation),
        ];
        let found = moments.into_iter().find(|(beginning, _)| text.starts_with(beginning));
        found.map(|(_, moment)| moment)
    }
}

/// A training that is seen through the learner's log.
struct LoggedTraining {
    watched: Arc<WatchedEpochs>,
    training: LoaderFacts,
    validation: LoaderFacts,
    /// The part that is running.
    running: Option<EpochPart>,
    /// The number of the last epoch that began.
    epoch: u32,
}

impl LoggedTraining {
    fn heard(&mut self, moment: LearnerMoment) {
        match moment {
            LearnerMoment::Training(epoch) => {
                // A learner validates after every training that took all batches.
                self.end(PartEnd::Early);
                if epoch <= self.epoch {
                    events::impossible(
                        "the function trains twice, and cargo-vram cannot compare the epochs of two trainings: declare \
                         a model for each"
                            .to_owned(),
                    );
                }
                self.epoch = epoch;
                self.watched.begin(EpochPart::Training, epoch);
                self.running = Some(EpochPart::Training);
            }
            LearnerMoment::Iteration => {
                self.watched.end_step();
                // The taken batch may let a worker go on.
                self.watched.wait_for_threads();
                self.watched.begin_step(EpochPart::Training);
            }
            LearnerMoment::Validation => {
                self.end(PartEnd::Complete);
                self.watched.begin(EpochPart::Validation, 1);
                self.running = Some(EpochPart::Validation);
                self.watched.begin_step(EpochPart::Validation);
            }
        }
    }

    /// Ends the running part, if any.
    fn end(&mut self, training: PartEnd) {
        match self.running.take() {
            Some(EpochPart::Training) => self.watched.end(&self.training, training),
            // The next training begins after it, or the function returns.
            Some(EpochPart::Validation) => self.watched.end(&self.validation, PartEnd::Unseen),
            None => {}
        }
    }
}

/// Runs a training that Burn's learner runs on this thread. [`heard`] must get every log entry meanwhile.
#[track_caller]
pub(super) fn watch<D: Clone>(
    inputs: &TrainingInputs<D>,
    watched: Arc<WatchedEpochs>,
    train: impl FnOnce(&TrainingInputs<D>),
) {
    if log::STATIC_MAX_LEVEL < LevelFilter::Info {
        events::impossible(
            "the feature `max_level_…` or `release_max_level_…` of `log` hides the log of Burn's learner from cargo-vram, \
             which sees the epochs by it: switch it off for this target"
                .to_owned(),
        );
    }
    log::set_max_level(LevelFilter::Info);
    let logged = LoggedTraining {
        watched,
        training: LoaderFacts::new(EpochPart::Training, false),
        // The learner itself moves the data of the validation to the inner backend.
        validation: LoaderFacts::new(EpochPart::Validation, false),
        running: None,
        epoch: 0,
    };
    LOGGED.set(Some(logged));
    train(inputs);
    if inputs.has_unread_items() {
        events::impossible(
            "the benchmark limits the items of an epoch, and nothing reads `training.items()`: pass it to the function \
             that makes the data loaders"
                .to_owned(),
        );
    }
    if let Some(mut logged) = LOGGED.take() {
        logged.end(PartEnd::Early);
    }
}

/// Makes [`heard`] get every log entry of the program.
#[cfg(feature = "burn-0_21")]
pub(super) fn install() {
    static IS_INSTALLED: AtomicBool = AtomicBool::new(false);
    if IS_INSTALLED.swap(true, Relaxed) {
        return;
    }
    // A process has one logger. Whoever installs it first has it for good. Burn's learner tries to, and goes on if that
    // fails.
    if log::set_logger(&LearnerLogger).is_err() {
        events::impossible(
            "the program installed a logger before its training, which hides the log of Burn's learner from cargo-vram"
                .to_owned(),
        );
    }
}

#[cfg(feature = "burn-0_21")]
struct LearnerLogger;

#[cfg(feature = "burn-0_21")]
impl log::Log for LearnerLogger {
    fn enabled(&self, metadata: &Metadata<'_>) -> bool {
        is_of_learner(metadata)
    }

    fn log(&self, record: &Record<'_>) {
        heard(record);
    }

    fn flush(&self) {}
}

/// Whether the entry may be one of a learner's loop, or an error that stops it.
pub(super) fn is_of_learner(metadata: &Metadata<'_>) -> bool {
    metadata.target().starts_with(LOOPS) || metadata.target() == ERRORS && metadata.level() == Level::Error
}

/// Reads an entry of the log.
pub(super) fn heard(record: &Record<'_>) {
    if !is_of_learner(record.metadata()) {
        return;
    }
    let text = record.args().to_string();
    // With loaders of the tool, too: the function may return as if it had trained.
    if let Some(why) = text.strip_prefix("Stopped by an error: ") {
        events::send(&ProbeEvent::LearnerFailed { why: why.to_owned() });
    }
    let Some(moment) = LearnerMoment::parse(&text) else {
        return;
    };
    LOGGED.with(|logged| {
        // Other threads have no training.
        if let Ok(mut logged) = logged.try_borrow_mut()
            && let Some(logged) = &mut *logged
        {
            logged.heard(moment);
        }
    });
}
