//! Runs cases in parallel.

use std::path::{Path, PathBuf};
use std::sync::atomic::Ordering::Relaxed;

use super::case::{Case, RunProgress, Settings};
use super::passes::{CHOICES, COLD, Runner, TRACE, TRACED, WARM};
use super::process;
use super::record::Record;
use super::slots::JobSlots;
use super::steps::reserved_steps;
use super::{assemble, measured, varying};
use crate::protocol::SizeOrder;
use crate::report::{Assumption, Run, Step};

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

/// The result of a case.
#[derive(Debug)]
pub struct CaseOutcome {
    /// The run for the report.
    pub run: Run,
    /// The number of autotune choices that the plan lacked, so that a later pass made them itself.
    pub unplanned: usize,
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
