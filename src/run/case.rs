//! Runs cases in parallel. A case is one model on one GPU with one set of inputs.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};
use std::time::Duration;

use super::follow::PassPosition;
use super::hardware::Hardware;
use super::list::Listed;
use super::passes::{CHOICES, COLD, Runner, TRACE, TRACED, WARM};
use super::process;
use super::record::Record;
use super::slots::JobSlots;
use super::steps::reserved_steps;
use super::{assemble, measured, varying};
use crate::bytes::Bytes;
use crate::driver::DriverLibrary;
use crate::gpu::Profile;
use crate::protocol::{SizeOrder, WhatIf};
use crate::recording::Recordings;
use crate::report::{Assumption, Pass, Run, Step};
use crate::untrusted::PlainName;

/// A model to run, with its GPU, inputs and settings.
#[derive(Debug, Clone)]
pub struct Case {
    /// The model.
    pub model: Listed,
    /// The budget's name, if it differs from the model's name.
    pub budget: Option<String>,
    /// The inputs that override the model's own values.
    pub inputs: BTreeMap<String, u64>,
    /// The profile of the GPU.
    pub profile: Profile,
    /// The time limit of one pass.
    pub timeout: Duration,
    /// The number of steps per pass, if it differs from [`Settings::steps`].
    pub steps: Option<u32>,
    /// The what-if settings of this case.
    pub what_if: WhatIf,
    /// Which launches of the program to run: the first, later ones, or both.
    pub launches: CaseLaunches,
    /// Which differences between passes the budget allows.
    pub allowed: AllowedDifferences,
    /// The minimum number of runs. It is more than 1 only if the budget allows runs to differ.
    pub repeat: u32,
    /// The order in which the steps have the sizes of the model's ranges.
    pub sizes: SizeOrder,
    /// Whether the GPU's memory is unlimited, to find out how much the model needs beyond it. Only for virtual GPUs.
    pub endless: bool,
}

/// The differences between passes that a budget allows.
#[derive(Debug, Default, Clone, Copy, PartialEq, Eq)]
pub struct AllowedDifferences {
    /// Whether the model may do different work in each run.
    pub nondeterministic: bool,
    /// Whether the model may do different work if it reads other values from the GPU.
    pub data_dependent: bool,
}

/// The launches of the program that a case runs.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub enum CaseLaunches {
    /// The first launch (cold pass), and later launches that replay its autotune choices.
    #[default]
    All,
    /// Only the first launch. The run has no warm values.
    First,
    /// Only later launches, which replay the choices in this folder. The run has no cold values.
    Later(PathBuf),
}

/// Makes the names of inputs harmless to show.
pub(super) fn plain_inputs(inputs: &BTreeMap<String, u64>) -> BTreeMap<PlainName, u64> {
    let plain = |(name, value): (&String, &u64)| (PlainName::escaped(name), *value);
    inputs.iter().map(plain).collect()
}

impl Case {
    /// Returns the inputs that do not have the model's own values.
    #[must_use]
    pub fn plain_inputs(&self) -> BTreeMap<PlainName, u64> {
        plain_inputs(&self.inputs)
    }

    /// Returns the budget's name, or the model's name if the case has no budget of another name.
    #[must_use]
    pub fn name(&self) -> &str {
        self.budget.as_deref().unwrap_or(&self.model.name)
    }

    /// Returns `package/name`.
    #[must_use]
    pub fn full_name(&self) -> String {
        format!("{}/{}", self.model.built.target.package, self.name())
    }
}

/// The settings that all cases share.
#[derive(Debug)]
pub struct Settings {
    /// The compiled driver library. It acts as a virtual GPU, or counts calls and forwards them to the real driver.
    pub driver: DriverLibrary,
    /// The hardware that the models run on.
    pub hardware: Hardware,
    /// The number of runs per case. It is more than 1 only on real hardware, where values vary.
    pub repeat: u32,
    /// A fault that the driver injects in one of the passes.
    pub fault: Option<InjectedFault>,
    /// The recordings whose autotune choices the passes replay.
    pub recordings: Recordings,
    /// Whether the observed pass writes a trace. Only models that were built for explanations can write one.
    pub trace: bool,
    /// Whether models whose sizes vary run with their largest sizes only, not in all orders of sizes.
    pub largest_sizes: bool,
    /// Whether a pass observes live memory: the warm pass on a virtual GPU, the traced pass on a real one.
    pub observed: bool,
    /// Whether a second warm pass checks that the model does the same work with other values from the GPU.
    pub verified: bool,
    /// The number of steps per pass, unless the case sets its own.
    pub steps: u32,
    /// Whether the user set no number of steps. Then Burn 0.22 models run steps until two in a row reserve nothing
    /// more.
    pub settles: bool,
    /// The number of processes that run in parallel.
    pub jobs: usize,
    /// The host memory that one process may use.
    pub host_memory: Bytes,
    /// The folder for the files of the processes.
    pub folder: PathBuf,
    /// A value other than 0 ends the running processes and prevents new ones.
    pub stop: Arc<AtomicUsize>,
}

/// A fault that the driver injects, to test what the tool makes of it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct InjectedFault {
    /// The pass in which the driver injects the fault.
    pub pass: Pass,
    /// `FUNCTION:CALL:CODE`, with `:sticky` if every later call fails, too.
    pub call: String,
}

impl Settings {
    /// Returns the folder with the autotune choices of a case's cold pass. It exists as long as [`Self::folder`]
    /// exists.
    #[must_use]
    pub fn choices(&self, case: usize) -> PathBuf {
        repetition(&case_folder(&self.folder, case), 0).join(CHOICES)
    }
}

/// The results of a traced case that an explanation needs.
#[derive(Debug)]
pub struct TracedCase {
    /// The path of the trace.
    pub trace: PathBuf,
    /// The driver's record of the pass that wrote the trace.
    pub record: Record,
    /// The steps of the cold pass, with reserved memory only. Empty if there is no cold pass.
    pub cold: Vec<Step>,
}

impl TracedCase {
    /// Reads the files of a case from the folder that all cases share.
    ///
    /// # Errors
    /// If a file of the traced pass cannot be read. A missing cold pass is not an error.
    pub fn read(folder: &Path, case: usize) -> std::io::Result<Self> {
        let folder = repetition(&case_folder(folder, case), 0);
        // A virtual GPU has no traced pass: there, the warm pass is the observed one.
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

/// The result of a case.
#[derive(Debug)]
pub struct CaseOutcome {
    /// The run for the report.
    pub run: Run,
    /// The number of autotune choices that the plan lacked, so that a later pass made them itself.
    pub unplanned: usize,
}

/// A progress event while cases run.
#[derive(Debug)]
pub enum RunProgress<'a> {
    /// A pass reached another phase.
    Reached {
        /// The case of the pass.
        case: &'a Case,
        /// The pass.
        pass: Pass,
        /// The position of the pass.
        place: PassPosition,
        /// The number of steps in the pass.
        steps: u32,
    },
    /// A pass ended.
    Passed {
        /// The case of the pass.
        case: &'a Case,
        /// The pass.
        pass: Pass,
        /// How long the process of the pass took.
        took: Duration,
    },
    /// All passes of a case ended.
    Done {
        /// The case.
        case: &'a Case,
        /// The result of the case.
        run: &'a Run,
    },
}

/// Runs every case and returns the outcomes in the order of the cases. Reports events to `progress`.
///
/// The outcome of a case that was stopped before its end is `None`.
pub fn run_all(
    cases: &[Case],
    settings: &Settings,
    progress: impl Fn(RunProgress<'_>) + Sync,
) -> Vec<Option<CaseOutcome>> {
    // A thread per case, and no scheduler: a thread only waits until a slot is free.
    // See docs/design/processes.md.
    let slots = JobSlots::new(settings.jobs.max(1));
    std::thread::scope(|scope| {
        let threads: Vec<_> = cases
            .iter()
            .enumerate()
            .map(|(number, case)| {
                let (slots, progress) = (&slots, &progress);
                scope.spawn(move || {
                    let folder = case_folder(&settings.folder, number);
                    let done = run(case, settings, slots, &folder, progress)?;
                    progress(RunProgress::Done { case, run: &done.run });
                    Some(done)
                })
            })
            .collect();
        threads
            .into_iter()
            // A bug of this tool must not look like a case that was stopped.
            .map(|thread| thread.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic)))
            .collect()
    })
}

fn run(
    case: &Case,
    settings: &Settings,
    slots: &JobSlots,
    folder: &Path,
    progress: &(dyn Fn(RunProgress<'_>) + Sync),
) -> Option<CaseOutcome> {
    let in_order = |sizes| {
        let case = &Case { sizes, ..case.clone() };
        let folder = match sizes {
            // An explanation reads its files from the folder of the case.
            SizeOrder::Largest => folder.to_owned(),
            _ => folder.join(sizes.name()),
        };
        let mut done = run_in_order(case, settings, slots, &folder, progress)?;
        if let (Some(error), true) = (&mut done.run.error, sizes != SizeOrder::Largest) {
            error.message = format!("with {} sizes: {}", sizes.name(), error.message.raw()).into();
        }
        Some(done)
    };
    let mut first = in_order(SizeOrder::Largest)?;
    // Without sizes that vary, every order is the same. If the largest sizes fail, the other orders would, too, or would
    // hide it.
    let is_whole = first.run.error.is_none() && first.run.oom.is_none();
    if first.run.varying.is_none() || !is_whole {
        return Some(first);
    }
    if settings.largest_sizes {
        first.run.assumptions.push(Assumption::LargestSizes);
        return Some(first);
    }
    let others = SizeOrder::ALL.into_iter().filter(|order| *order != SizeOrder::Largest);
    let others: Vec<Option<CaseOutcome>> = std::thread::scope(|scope| {
        let threads: Vec<_> = others.map(|order| scope.spawn(move || in_order(order))).collect();
        let ended = threads.into_iter();
        ended
            .map(|thread| thread.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic)))
            .collect()
    });
    let others: Vec<CaseOutcome> = others.into_iter().collect::<Option<_>>()?;
    Some(CaseOutcome {
        unplanned: others
            .iter()
            .map(|other| other.unplanned)
            .fold(first.unplanned, usize::max),
        run: varying::merged(first.run, others.into_iter().map(|other| other.run).collect()),
    })
}

/// Runs a case with the sizes of its ranges in one order.
fn run_in_order(
    case: &Case,
    settings: &Settings,
    slots: &JobSlots,
    folder: &Path,
    progress: &(dyn Fn(RunProgress<'_>) + Sync),
) -> Option<CaseOutcome> {
    let one = |number| {
        let folder = repetition(folder, number);
        // Delete the files of an earlier run: `--keep` may have kept them.
        let _ = std::fs::remove_dir_all(&folder);
        let passes = Runner::new(case, settings, slots, &folder, progress);
        let collected = passes.all(slots.take());
        // The results of a stopped case say nothing about the model.
        let is_done = settings.stop.load(Relaxed) == 0;
        is_done.then(|| CaseOutcome {
            run: assemble::run(case, &settings.hardware, &collected, &passes.times()),
            unplanned: collected.unplanned,
        })
    };
    let first = one(0)?;
    let repeat = settings.repeat.max(case.repeat);
    // A range must include every repetition, so a stopped one discards the case.
    let further = (1..repeat).map(|number| Some(one(number)?.run));
    let further: Vec<Run> = further.collect::<Option<_>>()?;
    if further.is_empty() {
        return Some(first);
    }
    Some(CaseOutcome {
        // If runs may differ, limits apply to the largest values. Otherwise this is a measurement, whose
        // range is only shown.
        run: match case.allowed.nondeterministic {
            true => measured::largest(first.run, further),
            false => measured::repeated(first.run, further),
        },
        unplanned: first.unplanned,
    })
}
