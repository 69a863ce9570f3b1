//! One model, one card, one set of inputs: its three passes, and all cases at once.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::{Condvar, Mutex, PoisonError};
use std::time::{Duration, Instant};

use super::child::Limits;
use super::collect::{Collected, Passes};
use super::list::Listed;
use super::process::{self, Card, Left};
use super::{collect, plan};
use crate::bytes::Bytes;
use crate::driver::DriverLibrary;
use crate::gpu::Profile;
use crate::protocol::{Action, RunJob};
use crate::report::{Autotune, Pass, Run};

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
}

/// What all cases share.
#[derive(Debug)]
pub struct Settings {
    /// The virtual driver.
    pub driver: DriverLibrary,
    /// Steps a pass.
    pub steps: u32,
    /// Processes at once.
    pub jobs: usize,
    /// The host's memory that one process may use.
    pub host_memory: Bytes,
    /// Where the processes' files go.
    pub folder: PathBuf,
}

/// Runs every case; `progress` is told of each that is done. The order of the runs is that of the cases.
pub fn run_all(cases: &[Case], settings: &Settings, progress: impl Fn(&Run) + Sync) -> Vec<Run> {
    let slots = Slots::new(settings.jobs.max(1));
    std::thread::scope(|scope| {
        let threads: Vec<_> = cases
            .iter()
            .enumerate()
            .map(|(number, case)| {
                let (slots, progress) = (&slots, &progress);
                scope.spawn(move || {
                    let run = run(case, settings, slots, &settings.folder.join(format!("case-{number}")));
                    progress(&run);
                    run
                })
            })
            .collect();
        threads
            .into_iter()
            .map(|thread| thread.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic)))
            .collect()
    })
}

fn run(case: &Case, settings: &Settings, slots: &Slots, folder: &Path) -> Run {
    let passes = Runner {
        case,
        settings,
        slots,
        folder,
    };
    let first = slots.take();
    let started = Instant::now();
    let collected = passes.all(first);
    collect::run(case, &collected, started.elapsed())
}

struct Runner<'a> {
    case: &'a Case,
    settings: &'a Settings,
    slots: &'a Slots,
    folder: &'a Path,
}

impl Runner<'_> {
    fn all(&self, first: Slot<'_>) -> Collected {
        let choices = self.folder.join("cold-autotune");
        let cold = self.pass(Pass::Cold, &choices, first);
        // Nothing can come of the other passes where the first one says that this is no model to run.
        let hopeless = match &cold {
            Ok(left) => collect::is_hopeless(self.case, left),
            Err(_) => true,
        };
        if hopeless {
            return Collected::first_only(cold);
        }
        // Each pass gets a plan of its own: a key that the plan lacks is written down where it was met.
        let (warm_plan, traced_plan) = (self.folder.join("warm-autotune"), self.folder.join("traced-autotune"));
        let autotune = plan::write(&choices, &warm_plan, None).and_then(|_| plan::write(&choices, &traced_plan, None));
        let autotune: Autotune = match autotune {
            Ok(autotune) => autotune,
            Err(error) => return Collected::first_only(Err(error)),
        };
        let planned = plan::count(&warm_plan);
        let (warm, traced) = std::thread::scope(|scope| {
            let warm = scope.spawn(|| self.pass(Pass::Warm, &warm_plan, self.slots.take()));
            let traced = self.pass(Pass::Traced, &traced_plan, self.slots.take());
            let warm = warm.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic));
            (warm, traced)
        });
        let unplanned = [&warm_plan, &traced_plan].map(|folder| plan::count(folder).saturating_sub(planned));
        Collected {
            passes: Passes {
                cold: Some(cold),
                warm: Some(warm),
                traced: Some(traced),
            },
            autotune,
            unplanned: unplanned.into_iter().max().unwrap_or(0),
        }
    }

    fn pass(&self, pass: Pass, autotune: &Path, slot: Slot<'_>) -> std::io::Result<Left> {
        let folder = self.folder.join(match pass {
            Pass::Cold => "cold",
            Pass::Warm => "warm",
            Pass::Traced => "traced",
        });
        let target = &self.case.model.built;
        let job = RunJob {
            model: self.case.model.name.clone(),
            steps: self.settings.steps,
            inputs: self.case.inputs.clone(),
            autotune: autotune.to_owned(),
            traced: pass == Pass::Traced,
            lockstep: true,
        };
        let card = Card {
            driver: &self.settings.driver,
            profile: &self.case.profile,
        };
        let limits = Limits {
            timeout: self.case.timeout,
            host_memory: self.settings.host_memory,
        };
        let left = process::run(
            &target.executable,
            &target.target.folder,
            &folder,
            Action::Run(job),
            Some(card),
            limits,
        );
        drop(slot);
        left
    }
}

/// How many processes may run at once.
struct Slots {
    free: Mutex<usize>,
    freed: Condvar,
}

struct Slot<'a>(&'a Slots);

impl Slots {
    fn new(count: usize) -> Self {
        Self {
            free: Mutex::new(count),
            freed: Condvar::new(),
        }
    }

    fn take(&self) -> Slot<'_> {
        let free = self.free.lock().unwrap_or_else(PoisonError::into_inner);
        let mut free = self
            .freed
            .wait_while(free, |free| *free == 0)
            .unwrap_or_else(PoisonError::into_inner);
        *free -= 1;
        Slot(self)
    }
}

impl Drop for Slot<'_> {
    fn drop(&mut self) {
        *self.0.free.lock().unwrap_or_else(PoisonError::into_inner) += 1;
        self.0.freed.notify_one();
    }
}
