//! One model, one card, one set of inputs, and all cases at once.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};
use std::time::Duration;

use super::card::Hardware;
use super::follow::Place;
use super::list::Listed;
use super::passes::{CHOICES, COLD, Runner, TRACE, TRACED, WARM};
use super::process;
use super::record::Record;
use super::slots::Slots;
use super::steps::reserved_steps;
use super::{collect, measured};
use crate::bytes::Bytes;
use crate::driver::DriverLibrary;
use crate::gpu::Profile;
use crate::protocol::WhatIf;
use crate::recording::Recordings;
use crate::report::{Pass, Run, Step};

/// What is run.
#[derive(Debug, Clone)]
pub struct Case {
    /// The model.
    pub model: Listed,
    /// The name of the budget, where it is not the model's own.
    pub budget: Option<String>,
    /// Inputs that differ from what the model says.
    pub inputs: BTreeMap<String, u64>,
    /// The card.
    pub profile: Profile,
    /// How long a pass may take.
    pub timeout: Duration,
    /// Steps a pass, where they are other than those of all cases.
    pub steps: Option<u32>,
    /// In what it differs from what the model says.
    pub what_if: WhatIf,
    /// Which launches it is run in.
    pub launches: Launches,
    /// What its budget allows it to do otherwise than a model should.
    pub allowed: Allowed,
    /// How often it is run at least; more than once where it need not do the same each time.
    pub repeat: u32,
    /// Whether the card's memory has no end, to tell what is needed beyond it; of a virtual card alone.
    pub endless: bool,
}

/// What a budget allows a model to do otherwise than a model should.
#[derive(Debug, Default, Clone, Copy, PartialEq, Eq)]
pub struct Allowed {
    /// To do something else in each run.
    pub nondeterministic: bool,
    /// To do something else where it reads other values from the GPU.
    pub data_dependent: bool,
}

/// In which launches a case is run.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub enum Launches {
    /// The first one, and later ones with the choices that autotune made in it.
    #[default]
    All,
    /// The first one alone: there is no figure of later ones.
    First,
    /// Later ones alone, with the choices in this folder: there is no figure of the first one.
    Later(PathBuf),
}

impl Case {
    /// Its budget's name, or the model's.
    #[must_use]
    pub fn name(&self) -> &str {
        self.budget.as_deref().unwrap_or(&self.model.name)
    }

    /// `package/name`.
    #[must_use]
    pub fn full_name(&self) -> String {
        format!("{}/{}", self.model.built.target.package, self.name())
    }
}

/// What all cases share.
#[derive(Debug)]
pub struct Settings {
    /// The driver: the virtual one, or the one that counts and passes on.
    pub driver: DriverLibrary,
    /// What the models run on.
    pub hardware: Hardware,
    /// How often each case is run; more than once only on real hardware, where figures vary.
    pub repeat: u32,
    /// A fault that the driver is to answer in one of the passes.
    pub fault: Option<Fault>,
    /// What autotune chose on real cards.
    pub recordings: Recordings,
    /// Whether the traced pass writes a trace, which only models can that were built for it.
    pub trace: bool,
    /// Whether live is observed, in a pass of its own.
    pub observed: bool,
    /// Whether models are run once more to see that they do the same again, whatever they read from the GPU.
    pub verified: bool,
    /// Steps a pass, where a case does not say otherwise.
    pub steps: u32,
    /// Whether nobody said how many, so that models of Burn 0.22 run more until two in a row reserve nothing more.
    pub settles: bool,
    /// Processes at once.
    pub jobs: usize,
    /// The host's memory that one process may use.
    pub host_memory: Bytes,
    /// Where the processes' files go.
    pub folder: PathBuf,
    /// Anything but 0 ends what runs, and nothing more is begun.
    pub stop: Arc<AtomicUsize>,
}

/// A fault for the driver to answer, to see what becomes of it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Fault {
    /// In which pass.
    pub pass: Pass,
    /// `FUNCTION:CALL:CODE`, and `:sticky` where everything fails from then on.
    pub call: String,
}

impl Settings {
    /// Where the choices that autotune made in the cold pass of a case are, as long as the folder is.
    #[must_use]
    pub fn choices(&self, case: usize) -> PathBuf {
        repetition(&case_folder(&self.folder, case), 0).join(CHOICES)
    }
}

/// The files of a traced case that an explanation is made of.
#[derive(Debug)]
pub struct TracedCase {
    /// The trace.
    pub trace: PathBuf,
    /// The driver's record of the traced pass.
    pub record: Record,
    /// The phases of the cold pass: reserved alone.
    pub cold: Vec<Step>,
}

impl TracedCase {
    /// Reads what a case left in the folder that all cases shared.
    ///
    /// # Errors
    ///
    /// A file cannot be read. That there is no cold pass is no error.
    pub fn read(folder: &Path, case: usize) -> std::io::Result<Self> {
        let folder = repetition(&case_folder(folder, case), 0);
        // On a virtual card the warm pass is observed.
        let [traced, warm] = [TRACED, WARM].map(|pass| folder.join(pass));
        let traced = if traced.exists() { traced } else { warm };
        let cold = process::left_in(&folder.join(COLD));
        Ok(Self {
            trace: traced.join(TRACE),
            record: process::left_in(&traced)?.1,
            cold: cold
                .map(|(events, record)| reserved_steps(&events, &record))
                .unwrap_or_default(),
        })
    }
}

fn case_folder(folder: &Path, number: usize) -> PathBuf {
    folder.join(format!("case-{number}"))
}

fn repetition(folder: &Path, number: u32) -> PathBuf {
    folder.join(number.to_string())
}

/// What came of a case.
#[derive(Debug)]
pub struct Done {
    /// What a report says of it.
    pub run: Run,
    /// Choices of autotune that the plan lacked, so that a later pass made them itself.
    pub unplanned: usize,
}

/// What happens while cases run.
#[derive(Debug)]
pub enum Progress<'a> {
    /// A pass came to another phase.
    Reached {
        /// Of this case.
        case: &'a Case,
        /// Which pass.
        pass: Pass,
        /// How far it is.
        place: Place,
        /// How many steps it has.
        steps: u32,
    },
    /// A pass ended.
    Passed {
        /// Of this case.
        case: &'a Case,
        /// Which pass.
        pass: Pass,
        /// How long its process took.
        took: Duration,
    },
    /// All passes of a case ended.
    Done {
        /// Which case.
        case: &'a Case,
        /// What came of it.
        run: &'a Run,
    },
}

/// Runs every case; `progress` is told of what happens. The order is that of the cases. There is nothing of a case that was
/// stopped before it was done.
pub fn run_all(cases: &[Case], settings: &Settings, progress: impl Fn(Progress<'_>) + Sync) -> Vec<Option<Done>> {
    let slots = Slots::new(settings.jobs.max(1));
    std::thread::scope(|scope| {
        let threads: Vec<_> = cases
            .iter()
            .enumerate()
            .map(|(number, case)| {
                let (slots, progress) = (&slots, &progress);
                scope.spawn(move || {
                    let folder = case_folder(&settings.folder, number);
                    let done = run(case, settings, slots, &folder, progress)?;
                    progress(Progress::Done { case, run: &done.run });
                    Some(done)
                })
            })
            .collect();
        threads
            .into_iter()
            .map(|thread| thread.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic)))
            .collect()
    })
}

fn run(
    case: &Case,
    settings: &Settings,
    slots: &Slots,
    folder: &Path,
    progress: &(dyn Fn(Progress<'_>) + Sync),
) -> Option<Done> {
    let one = |number| {
        let folder = repetition(folder, number);
        // Of an earlier run, where files are kept.
        let _ = std::fs::remove_dir_all(&folder);
        let passes = Runner::new(case, settings, slots, &folder, progress);
        let collected = passes.all(slots.take());
        // What was stopped says nothing of the model.
        let is_done = settings.stop.load(Relaxed) == 0;
        is_done.then(|| Done {
            run: collect::run(case, &settings.hardware, &collected, passes.took()),
            unplanned: collected.unplanned,
        })
    };
    let first = one(0)?;
    let repeat = settings.repeat.max(case.repeat);
    let further = (1..repeat).map(|number| Some(one(number)?.run));
    let further: Vec<Run> = further.collect::<Option<_>>()?;
    if further.is_empty() {
        return Some(first);
    }
    Some(Done {
        run: match case.allowed.nondeterministic {
            true => measured::largest(first.run, further),
            false => measured::repeated(first.run, further),
        },
        unplanned: first.unplanned,
    })
}
