//! Runs the passes of one case: a first launch, later launches that replay its choices, and passes that verify these.

use std::path::Path;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering::Relaxed};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use super::assemble;
use super::case::{Case, CaseLaunches, RunProgress, Settings};
use super::child::ProcessLimits;
use super::collected::{Collected, Passes};
use super::epochs;
use super::hardware::{Hardware, MissingLibdevice, ReadSetting, RealGpu};
use super::kernels::Kernels;
use super::outcome;
use super::pass_difference::{self, PassDifference};
use super::plan::{self, Known};
use super::process::{self, Meanwhile, PassOutput};
use super::reported;
use super::retry::{self, RetryReason};
use super::slots::{JobSlot, JobSlots};
use super::steps::grows;
use crate::protocol::{Action, Inside, LEAST_STEPS_OF_SIZES, MOST_GPUS, ProbeEvent, RunJob, SizeOrder, Task};
use crate::recording::RunIdentity;
use crate::report::{Autotune, Pass, RecordingId, Tuning};
use crate::untrusted::PlainName;
use crate::workspace::KernelCompiler;

/// The minimum number of steps of a model on several GPUs.
///
/// Fusion delays the optimizer's update on a GPU from which the model reads nothing, and runs the update in the next
/// step. So the third step is the first one that has the optimizer's state from its start.
const STEPS_OVER_GPUS: u32 = 3;
/// The maximum number of steps until reserved memory stops growing.
///
/// Only Burn 0.22 needs more steps, because its allocator adapts its pages to the sizes that it has seen.
const MOST_STEPS: u32 = 20;

/// The file name of the trace in the folder of a pass.
pub(super) const TRACE: &str = "trace.jsonl";

/// The folder of the cold pass.
pub(super) const COLD: &str = "cold";
/// The folder of the warm pass.
pub(super) const WARM: &str = "warm";
/// The folder of the traced pass.
pub(super) const TRACED: &str = "traced";
/// The folder of the warm pass that reads other values than zeros from the GPU.
const OTHER: &str = "warm-other";
/// The folder of the warm pass that reads zeros again.
const AGAIN: &str = "warm-again";
/// The folder of the warm pass that reads the other values again.
const OTHER_AGAIN: &str = "warm-other-again";

/// The suffix for the folder of a pass that runs less of the model on the thread of fusion than the pass that it
/// repeats.
const OUTSIDE: &str = "outside";
/// The suffix for the folder of a pass in which Burn caches nothing for later launches.
const UNCACHED: &str = "uncached";

/// One process of a case.
#[derive(Clone, Copy)]
struct PassRun<'a> {
    pass: Pass,
    reads: ReadSetting,
    /// The name of the pass's folder.
    folder: &'a str,
    /// The folder of autotune's choices.
    autotune: &'a Path,
    /// The number of steps if Burn caches nothing for later launches in this pass, otherwise `None`.
    uncached_steps: Option<u32>,
}

impl<'a> PassRun<'a> {
    /// Creates a pass of the case in the folder with the pass's name.
    const fn new(pass: Pass, autotune: &'a Path) -> Self {
        let folder = match pass {
            Pass::Cold => COLD,
            Pass::Warm => WARM,
            Pass::Traced => TRACED,
        };
        Self {
            pass,
            reads: ReadSetting::Zeros,
            folder,
            autotune,
            uncached_steps: None,
        }
    }

    /// Creates a further warm pass, whose values verify those of the first one.
    const fn beside(reads: ReadSetting, folder: &'a str, autotune: &'a Path) -> Self {
        Self {
            reads,
            folder,
            ..Self::new(Pass::Warm, autotune)
        }
    }
}

/// The folder with the autotune choices of the cold pass, within the folder of a case.
pub(super) const CHOICES: &str = "cold-autotune";

/// Runs the passes of one case, each in its own process.
pub(super) struct Runner<'a> {
    case: &'a Case,
    settings: &'a Settings,
    slots: &'a JobSlots,
    folder: &'a Path,
    /// Whether the model is known to have a hand-written loop.
    free_form: AtomicBool,
    /// Whether the model is known to have inputs that have another size in each step.
    varies: AtomicBool,
    /// Whether a trace may predict what fusion runs. `false` if a prediction was wrong for this model.
    foresees: AtomicBool,
    /// Whether the model is known to upload tensors, and therefore runs on fusion's thread.
    inside: AtomicBool,
    /// Which part of the model runs on fusion's thread so that a trace has source lines.
    lines: Mutex<Inside>,
    /// The number of GPUs.
    gpus: AtomicU32,
    /// Whether the cold pass ended before autotune had made all choices.
    undecided: AtomicBool,
    /// Receives progress events.
    progress: &'a (dyn Fn(RunProgress<'_>) + Sync),
    /// How long each process took, with its pass and the name of its folder.
    times: Mutex<Vec<(Pass, String, Duration)>>,
}

impl<'a> Runner<'a> {
    pub(super) fn new(
        case: &'a Case,
        settings: &'a Settings,
        slots: &'a JobSlots,
        folder: &'a Path,
        progress: &'a (dyn Fn(RunProgress<'_>) + Sync),
    ) -> Self {
        Self {
            case,
            settings,
            slots,
            folder,
            free_form: AtomicBool::new(false),
            // Only a model with ranges is run in another order.
            varies: AtomicBool::new(case.sizes != SizeOrder::Largest),
            foresees: AtomicBool::new(true),
            inside: AtomicBool::new(false),
            lines: Mutex::new(Inside::All),
            gpus: AtomicU32::new(1),
            undecided: AtomicBool::new(false),
            progress,
            times: Mutex::default(),
        }
    }

    /// Returns how long each process took, in an order that does not depend on which process ended first.
    pub(super) fn times(&self) -> Vec<(Pass, Duration)> {
        let mut times = self.times.lock().unwrap_or_else(PoisonError::into_inner).clone();
        times.sort();
        times.into_iter().map(|(pass, _, took)| (pass, took)).collect()
    }

    /// Runs all passes of the case. The cold pass uses the slot `first`.
    pub(super) fn all(&self, first: JobSlot<'_>) -> Collected {
        if let CaseLaunches::Later(plan) = &self.case.launches {
            // Give the slot back: each pass below takes a slot of its own. With one job, it would wait
            // forever.
            drop(first);
            return self.planned(None, plan);
        }
        let choices = self.folder.join(CHOICES);
        let cold = self.pass(PassRun::new(Pass::Cold, &choices), first);
        let whole = cold.as_ref().is_ok_and(|left| outcome::done(left).is_some());
        // Later passes then tune the missing keys themselves, so the driver may refuse candidates in them,
        // too.
        self.undecided.store(!whole, Relaxed);
        // If the cold pass failed for a reason other than memory, the other passes would fail, too. An explanation
        // still runs them, because it shows what happened until the failure.
        let hopeless = match &cold {
            Ok(left) => assemble::is_hopeless(self.case, &self.settings.hardware, left),
            Err(_) => true,
        };
        if self.case.launches == CaseLaunches::First || (hopeless && !self.settings.trace) {
            return Collected::first_only(cold);
        }
        self.planned(Some(cold), &choices)
    }

    /// Runs the passes that replay choices.
    fn planned(&self, cold: Option<std::io::Result<PassOutput>>, choices: &Path) -> Collected {
        let identity = RunIdentity {
            package: self.case.model.built.target.package.clone(),
            model: self.case.model.name.clone(),
            // Recordings are found by all inputs. The case has only those that override the model's own
            // values.
            inputs: cold
                .as_ref()
                .and_then(|left| reported::inputs(left.as_ref().ok()?))
                .unwrap_or_else(|| self.case.plain_inputs()),
        };
        let known = self.known(&identity);
        // Each pass gets its own copy of the plan, because Burn adds the keys that the plan lacks to it.
        let (warm_plan, traced_plan) = (self.folder.join("warm-autotune"), self.folder.join("traced-autotune"));
        let autotune = match plan::write(choices, &[&warm_plan, &traced_plan], known) {
            Ok(autotune) => autotune,
            Err(error) => return Collected::first_only(Err(error)),
        };
        let planned = plan::count(&warm_plan);
        let warm_run = PassRun::new(Pass::Warm, &warm_plan);
        // A virtual GPU has no traced pass, so its copy of the plan is free for the second warm pass.
        let other_run = PassRun::beside(ReadSetting::Other, OTHER, &traced_plan);
        let warm = || self.pass(warm_run, self.slots.take());
        let mut disagreement = None;
        // If the plan lacked choices, the pass made them itself, so the driver may have refused candidates.
        let tuned = |left: std::io::Result<PassOutput>, plan: &Path| {
            left.map(|left| PassOutput {
                tunes: left.tunes || plan::count(plan) > planned,
                ..left
            })
        };
        let (warm, traced, other, autotune) = match self.settings.hardware {
            // Each process has its own virtual GPU, so both warm passes can run in parallel.
            Hardware::Virtual if self.settings.verified => std::thread::scope(|scope| {
                let other = scope.spawn(|| self.pass(other_run, self.slots.take()));
                let warm = warm();
                let other = other.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic));
                let (warm, other) = (tuned(warm, &warm_plan), tuned(other, &traced_plan));
                // Compare before `without_caches`, which replaces values that the comparison reads.
                disagreement = self.disagreement(&warm, &other, choices, known);
                let other = self.without_caches(other, other_run);
                let warm = self.without_caches(warm, warm_run);
                (warm, None, Some(other), autotune)
            }),
            Hardware::Virtual => {
                let warm = self.without_caches(tuned(warm(), &warm_plan), warm_run);
                (warm, None, None, autotune)
            }
            // The passes share one real GPU, so they run one after the other.
            Hardware::Real(_) => {
                let traced = || {
                    let observed = self.settings.observed;
                    let run = PassRun::new(Pass::Traced, &traced_plan);
                    observed.then(|| self.without_caches(self.pass(run, self.slots.take()), run))
                };
                let autotune = if known.is_none() {
                    tuned_here(autotune)
                } else {
                    autotune
                };
                (warm(), traced(), None, autotune)
            }
        };
        let plans = match self.settings.hardware {
            // The traced plan belongs to the pass that reads other values. Its additional choices do not count.
            Hardware::Virtual => vec![&warm_plan],
            Hardware::Real(_) => vec![&warm_plan, &traced_plan],
        };
        let unplanned = plans
            .into_iter()
            .map(|folder| plan::count(folder).saturating_sub(planned));
        let unplanned = unplanned.max().unwrap_or(0);
        let is_whole = !self.undecided.load(Relaxed) && cold.is_some();
        // A trace looks at tensors, which may split what fusion would otherwise run as one operation.
        let is_alike = matches!(self.settings.hardware, Hardware::Virtual) && !self.settings.trace;
        // A complete cold pass needed every key of the same work, so another key means other work. This finds
        // such models even without a second warm pass. See docs/design/passes.md.
        if unplanned > 0 && is_whole && is_alike {
            disagreement.get_or_insert_with(|| {
                let choices = if unplanned == 1 { "choice" } else { "choices" };
                PassDifference::Nondeterministic(format!(
                    "needs {unplanned} autotune {choices} in a later pass that it did not need in the first pass, \
                     for example because sizes differ"
                ))
            });
        }
        Collected {
            passes: Passes {
                cold,
                warm: Some(warm),
                traced,
                other,
            },
            disagreement,
            autotune,
            unplanned,
            recording: known.map(|known| RecordingId {
                gpu: PlainName::escaped(known.recording.gpu()),
                driver: known.recording.driver().into(),
            }),
            tuning: if known.is_some() {
                Tuning::Replayed
            } else {
                Tuning::Free
            },
        }
    }

    /// Finds out whether growing live memory is a leak or a cache of Burn.
    ///
    /// Burn 0.22 caches data for later launches. So if live memory grows from step to step, this runs another pass in
    /// which Burn caches nothing, and takes the in-use bytes at the end of each phase from that pass.
    fn without_caches(&self, observed: std::io::Result<PassOutput>, run: PassRun<'_>) -> std::io::Result<PassOutput> {
        let mut observed = observed?;
        let is_whole = |left: &PassOutput| assemble::is_whole(self.case, &self.settings.hardware, run.pass, left);
        // Do not free the caches in every pass: their pages go with them, so reserved memory would be
        // another. See docs/design/burn-0_22-memory.md.
        let is_suspect = self.case.model.built.target.caches_launches()
            && self.settings.observed
            && is_whole(&observed)
            && (grows(&observed) || epochs::grows(&observed.events));
        if !is_suspect {
            return Ok(observed);
        }
        let folder = format!("{}-{UNCACHED}", run.folder);
        let uncached = |steps| {
            let run = PassRun {
                folder: &folder,
                uncached_steps: Some(steps),
                ..run
            };
            self.pass(run, self.slots.take()).ok().filter(is_whole)
        };
        // One more step, because only the next step shows what the last one leaves. The model may not have data for it,
        // so try the same number of steps, too. If no pass completes with the same work, the growth counts as a leak.
        let steps = observed.steps;
        if let Some(uncached) = uncached(steps + 1).or_else(|| uncached(steps))
            && pass_difference::is_same_work(&observed, &uncached)
        {
            observed.take_ends_of(&uncached);
        }
        Ok(observed)
    }

    /// Returns the difference between a warm pass that reads zeros and one that reads other values, and its cause.
    fn disagreement(
        &self,
        warm: &std::io::Result<PassOutput>,
        other: &std::io::Result<PassOutput>,
        choices: &Path,
        known: Option<Known<'_>>,
    ) -> Option<PassDifference> {
        // `assemble` reports a pass that could not run.
        let (Ok(warm), Ok(other)) = (warm, other) else {
            return None;
        };
        let ended_well = |left: &PassOutput| assemble::is_whole(self.case, &self.settings.hardware, Pass::Warm, left);
        // The first pass then has an error of its own, and a difference would hide it.
        if !ended_well(warm) {
            return None;
        }
        let differs = |other: &PassOutput| match outcome::error(&self.settings.hardware, Pass::Warm, other) {
            Some(error) if !ended_well(other) => Some(format!(
                "finishes the first pass but not the second: {}",
                error.message.raw()
            )),
            _ => pass_difference::difference(warm, other),
        };
        let difference = differs(other)?;
        // Values that the model never reads cannot be the cause.
        if reported::device_reads(warm) == 0 {
            return Some(PassDifference::Nondeterministic(difference));
        }
        // If the work changes at random, the values that the model reads are not the cause. Repeat both passes to find
        // that out: two passes may also be equal by chance.
        let once_more = |reads: ReadSetting, folder: &str| {
            let plan = self.folder.join(format!("{folder}-autotune"));
            // Start from the cold pass again, because Burn may have added keys to the other copies of the
            // plan.
            let choices = plan::write(choices, &[&plan], known);
            choices
                .and_then(|_| self.pass(PassRun::beside(reads, folder, &plan), self.slots.take()))
                .ok()
        };
        // Another time of day again: with the same one, a seed from the clock would look like a dependence on
        // values.
        let by_chance = once_more(ReadSetting::ZerosLater, AGAIN)
            .and_then(|again| differs(&again))
            .or_else(|| {
                let again = once_more(ReadSetting::Other, OTHER_AGAIN).filter(|_| ended_well(other))?;
                pass_difference::difference(other, &again)
            });
        match by_chance {
            Some(difference) => Some(PassDifference::Nondeterministic(difference)),
            None => Some(PassDifference::DataDependent(difference)),
        }
    }

    /// Returns the recording whose choices the plan takes.
    ///
    /// For an estimate, it may be the recording of a similar GPU. For a measurement, it must be of the same type of GPU
    /// and contain this run, because a real GPU can make its own choices.
    fn known<'r>(&'r self, run: &'r RunIdentity) -> Option<Known<'r>> {
        let (recordings, profile) = (&self.settings.recordings, &self.case.profile);
        // A recording has the choices of one size, under the same inputs.
        if self.varies.load(Relaxed) && matches!(self.settings.hardware, Hardware::Real(_)) {
            return None;
        }
        let recording = match &self.settings.hardware {
            Hardware::Virtual => recordings.for_estimate(&profile.id, profile.like.as_deref()),
            Hardware::Real(real) => recordings
                .for_measurement(&profile.id, &real.driver)
                .find(|recording| recording.holds(run)),
        };
        recording.map(|recording| Known { recording, run })
    }

    /// Runs a pass.
    ///
    /// If the model runs on the thread of fusion only to get source lines and panics there, runs the pass again with
    /// less of the model on that thread. The model may use data that other threads of the program made.
    fn pass(&self, run: PassRun<'_>, slot: JobSlot<'_>) -> std::io::Result<PassOutput> {
        let left = self.pass_as_told(run, slot)?;
        let panicked = left
            .events
            .iter()
            .any(|event| matches!(event, ProbeEvent::Panic { .. }));
        // After a failed operation, Burn panics because its result is missing. Another thread would not
        // change that.
        let is_refused = left
            .events
            .iter()
            .any(|event| matches!(event, ProbeEvent::Failed { .. }));
        if outcome::done(&left).is_some() || self.inside.load(Relaxed) || !self.traces(run) || !panicked || is_refused {
            return Ok(left);
        }
        let elsewhere = format!("{}-{OUTSIDE}", run.folder);
        let other = PassRun {
            folder: &elsewhere,
            ..run
        };
        let told = self.lines();
        while self.tell_less() {
            let again = self.pass_as_told(other, self.slots.take())?;
            if outcome::done(&again).is_some() {
                // An explanation reads the trace from the pass's own folder.
                let (from, to) = (self.folder.join(&elsewhere), self.folder.join(run.folder));
                crate::folders::remove(&to)?;
                std::fs::rename(from, to)?;
                return Ok(again);
            }
        }
        // The model also fails outside the thread of fusion, so the failure is its own.
        *self.told() = told;
        Ok(left)
    }

    fn told(&self) -> MutexGuard<'_, Inside> {
        self.lines.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Returns which part of the model runs on the thread of fusion to get source lines.
    fn lines(&self) -> Inside {
        match self.case.model.built.target.tells_lines_inside() {
            true => *self.told(),
            false => Inside::Nothing,
        }
    }

    /// Reduces the part of the model that runs on the thread of fusion. Returns `false` if no part runs there.
    fn tell_less(&self) -> bool {
        let less = match self.lines() {
            Inside::All => Inside::Steps,
            Inside::Steps => Inside::Nothing,
            Inside::Nothing => return false,
        };
        *self.told() = less;
        true
    }

    fn pass_as_told(&self, run: PassRun<'_>, slot: JobSlot<'_>) -> std::io::Result<PassOutput> {
        let mut asked = 0;
        // Remember the settings of this process, because another pass of the same case may change them in the meantime.
        let told = || {
            (
                self.free_form.load(Relaxed),
                self.foresees.load(Relaxed),
                self.inside.load(Relaxed),
                self.varies.load(Relaxed),
            )
        };
        let (mut is_free_form, mut foresees, mut is_inside, mut varies) = told();
        let mut left = self.process(run);
        // If a pass ends itself because it needs another setup (for example for a hand-written loop), start it again.
        while let Some(found) = left.as_ref().ok().and_then(retry::found) {
            // `known` means that the process had this setting already, and asks for it all over again.
            // Without this check, a pass could start again forever.
            let known = match found {
                RetryReason::FreeForm => {
                    self.free_form.store(true, Relaxed);
                    is_free_form
                }
                RetryReason::Unforeseen => {
                    self.foresees.store(false, Relaxed);
                    !foresees
                }
                RetryReason::Uploads => {
                    self.inside.store(true, Relaxed);
                    is_inside
                }
                RetryReason::Ranges => {
                    // The pass may have made choices already, and the next one must be cold, too.
                    if run.pass == Pass::Cold {
                        let _ = std::fs::remove_dir_all(run.autotune);
                    }
                    self.varies.store(true, Relaxed);
                    varies
                }
                RetryReason::Stuck => !self.tell_less(),
                RetryReason::Gpus(needed) => {
                    // A measurement uses only one real GPU.
                    let is_possible = matches!(self.settings.hardware, Hardware::Virtual) && needed <= MOST_GPUS;
                    self.gpus.store(needed, Relaxed);
                    !is_possible || std::mem::replace(&mut asked, needed) == needed
                }
            };
            if known {
                break;
            }
            (is_free_form, foresees, is_inside, varies) = told();
            left = self.process(run);
        }
        if let Ok(left) = &mut left {
            // With Burn 0.22, the pass itself decides when it has settled. But a model that reports fewer
            // steps must not lower the number that `outcome` asks for.
            let most = run.uncached_steps.or_else(|| self.most_steps());
            left.steps = outcome::done(left)
                .map_or(0, |done| done.steps)
                .clamp(self.steps(), most.unwrap_or_else(|| self.steps()));
            left.is_inside = self.inside.load(Relaxed);
            let tells = self.traces(run) && self.case.model.built.target.tells_lines_inside();
            left.lines = tells.then(|| self.lines());
            left.trains = self.case.model.task == Task::Train && !self.case.what_if.infer;
            left.tunes = run.pass == Pass::Cold || self.undecided.load(Relaxed);
        }
        drop(slot);
        left
    }

    /// Returns the number of steps per pass.
    fn steps(&self) -> u32 {
        let fewest = if self.gpus.load(Relaxed) > 1 {
            STEPS_OVER_GPUS
        } else {
            1
        };
        let of_sizes = if self.varies.load(Relaxed) {
            LEAST_STEPS_OF_SIZES
        } else {
            1
        };
        self.case.steps.unwrap_or(self.settings.steps).max(fewest).max(of_sizes)
    }

    /// Returns the maximum number of steps per pass, or `None` if the user set the number of steps.
    ///
    /// Up to that maximum, a pass runs steps until two in a row reserve nothing more.
    fn most_steps(&self) -> Option<u32> {
        let settles = self.settings.settles && self.case.steps.is_none();
        let most = if self.varies.load(Relaxed) {
            2 * LEAST_STEPS_OF_SIZES
        } else {
            MOST_STEPS
        };
        settles.then(|| most.max(self.steps()))
    }

    /// Whether a pass observes launches. On a virtual GPU, an observed pass holds the same memory as any other.
    fn is_observed(&self, pass: Pass) -> bool {
        match (pass, &self.settings.hardware) {
            // A warm pass on a real GPU must run as it does without cargo-vram. See docs/design/threads.md.
            (Pass::Cold, _) | (Pass::Warm, Hardware::Real(_)) => false,
            (Pass::Warm, Hardware::Virtual) => self.settings.observed,
            (Pass::Traced, _) => true,
        }
    }

    /// Whether a pass writes a trace of its operations.
    fn traces(&self, run: PassRun<'_>) -> bool {
        // Only the pass that an explanation reads: not repeated warm passes, and not the one without caches.
        let is_explained = [WARM, TRACED].iter().any(|folder| {
            let rest = run.folder.strip_prefix(folder);
            rest.is_some_and(|rest| rest.is_empty() || rest.strip_prefix('-') == Some(OUTSIDE))
        });
        is_explained && self.is_observed(run.pass) && self.settings.trace
    }

    fn process(&self, run: PassRun<'_>) -> std::io::Result<PassOutput> {
        let PassRun { pass, reads, .. } = run;
        let folder = self.folder.join(run.folder);
        let target = &self.case.model.built;
        let traces = self.traces(run);
        let inside = match (self.inside.load(Relaxed), traces) {
            (true, _) => Inside::All,
            (false, true) => self.lines(),
            (false, false) => Inside::Nothing,
        };
        let gpus = self.gpus.load(Relaxed);
        let fault = self.settings.fault.as_ref().filter(|fault| fault.pass == pass);
        let gpu = RealGpu {
            driver: &self.settings.driver,
            profile: &self.case.profile,
            hardware: &self.settings.hardware,
            fault: fault.map(|fault| fault.call.as_str()),
            reads,
            endless: self.case.endless,
            gpus,
        };
        let job = |kernels| RunJob {
            model: self.case.model.name.to_string(),
            steps: run.uncached_steps.unwrap_or_else(|| self.steps()),
            most_steps: self.most_steps().filter(|_| run.uncached_steps.is_none()),
            uncached: run.uncached_steps.is_some(),
            inputs: self.case.inputs.clone(),
            autotune: run.autotune.to_owned(),
            kernels,
            traced: self.is_observed(pass),
            trace: traces.then(|| folder.join(TRACE)),
            // In a traced pass, Burn's threads take turns so that live memory is the same on every machine. The other
            // passes on a real GPU run as they would without cargo-vram.
            lockstep: pass == Pass::Traced || matches!(self.settings.hardware, Hardware::Virtual),
            foresees: self.foresees.load(Relaxed),
            free_form: self.free_form.load(Relaxed),
            inside,
            watched: !self.inside.load(Relaxed) && inside != Inside::Nothing,
            what_if: self.case.what_if.clone(),
            sizes: self.case.sizes,
            gpus,
            settle_ms: u64::try_from(gpu.settle().as_millis()).unwrap_or(u64::MAX),
        };
        let limits = ProcessLimits {
            timeout: self.case.timeout,
            host_memory: self.settings.host_memory,
        };
        // Check now: Burn looks for the file only when a kernel first calls a math function.
        if let Hardware::Real(real) = &self.settings.hardware
            && target.kernel_compiler == KernelCompiler::Llvm
        {
            MissingLibdevice::look(&real.toolkit)?;
        }
        let is_stopped = || self.settings.stop.load(Relaxed) != 0;
        // The stop may have come while the case waited for its slot.
        if is_stopped() {
            return Err(std::io::ErrorKind::Interrupted.into());
        }
        let reached = |place| {
            let (case, steps) = (self.case, self.steps());
            (self.progress)(RunProgress::Reached {
                case,
                pass,
                place,
                steps,
            });
        };
        let meanwhile = Meanwhile {
            reached: &reached,
            is_stopped: &is_stopped,
        };
        let start = |kernels| {
            process::run(
                &target.executable,
                &target.target.folder,
                &folder,
                Action::Run(job(kernels)),
                Some(gpu),
                limits,
                meanwhile,
            )
        };
        let began = Instant::now();
        // A fault in NVRTC is for the call with a certain number, so compile all kernels to keep the number of calls.
        let fails = self.settings.fault.as_ref();
        let compiles_all = fails.is_some_and(|fault| fault.call.starts_with("nvrtc"));
        let left = match self.settings.hardware {
            Hardware::Virtual if !compiles_all => {
                Kernels::from_program(&self.settings.driver, target, &self.case.profile)?
                    .around(&folder.with_extension("kernels"), start)
            }
            // A real GPU needs whole kernels, but the cache has only names and launch data.
            _ => start(None),
        };
        let took = began.elapsed();
        let time = (pass, run.folder.to_owned(), took);
        self.times.lock().unwrap_or_else(PoisonError::into_inner).push(time);
        let case = self.case;
        (self.progress)(RunProgress::Passed { case, pass, took });
        left
    }
}

/// Counts all choices as recorded, because the real GPU made them itself.
fn tuned_here(autotune: Autotune) -> Autotune {
    Autotune {
        recorded: autotune.recorded + autotune.nearest + autotune.assumed,
        nearest: 0,
        assumed: 0,
        ..autotune
    }
}
