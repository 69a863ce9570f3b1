//! The passes of one case: a first launch, the later ones that replay its choices, and what is run again to be sure of them.

use std::path::Path;
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering::Relaxed};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use super::agree;
use super::card::{Card, Hardware, MissingLibdevice, Reads};
use super::case::{Case, Launches, Progress, Settings};
use super::child::Limits;
use super::collect::{self, Collected, Disagreement, Found, Passes};
use super::ending;
use super::kernels::Kernels;
use super::plan::{self, Known};
use super::process::{self, Left, Meanwhile};
use super::slots::{Slot, Slots};
use super::steps::grows;
use crate::protocol::{Action, Event, Inside, MOST_CARDS, RunJob, Task};
use crate::recording::RunIdentity;
use crate::report::{Autotune, Pass, RecordingId, Tuning};
use crate::workspace::KernelCompiler;

/// The fewest steps over several cards. Fusion holds back the optimizer's update on a card that nothing is read from, and
/// runs it in the step after: only in the third is the optimizer's state there from the beginning.
const STEPS_OVER_CARDS: u32 = 3;
/// The most steps of a model of Burn 0.22, whose allocator adapts its pages to what it has seen.
const MOST_STEPS: u32 = 20;

/// The file of a trace in a pass's own folder.
pub(super) const TRACE: &str = "trace.jsonl";

/// The folders of passes.
pub(super) const COLD: &str = "cold";
pub(super) const WARM: &str = "warm";
pub(super) const TRACED: &str = "traced";
/// The folder of a pass that reads other values from the GPU.
const OTHER: &str = "warm-other";
/// The folder of a pass that reads the same values once more.
const AGAIN: &str = "warm-again";
/// And the other ones once more.
const OTHER_AGAIN: &str = "warm-other-again";

/// The folder of a pass that does not run on the thread of fusion, behind that of the pass that did.
const OUTSIDE: &str = "outside";
/// The folder of a pass in which Burn keeps nothing for later launches, behind that of the pass that it repeats.
const UNCACHED: &str = "uncached";

/// One process of a case.
#[derive(Clone, Copy)]
struct PassRun<'a> {
    pass: Pass,
    reads: Reads,
    /// The name of its folder.
    folder: &'a str,
    /// The folder of autotune's choices.
    autotune: &'a Path,
    /// The steps of a pass in which Burn keeps nothing for later launches, where this is one.
    uncached_steps: Option<u32>,
}

impl<'a> PassRun<'a> {
    /// A pass of the case in the folder of its name.
    const fn of(pass: Pass, autotune: &'a Path) -> Self {
        let folder = match pass {
            Pass::Cold => COLD,
            Pass::Warm => WARM,
            Pass::Traced => TRACED,
        };
        Self {
            pass,
            reads: Reads::Zeros,
            folder,
            autotune,
            uncached_steps: None,
        }
    }

    /// A warm pass beside the one that is judged.
    const fn beside(reads: Reads, folder: &'a str, autotune: &'a Path) -> Self {
        Self {
            reads,
            folder,
            ..Self::of(Pass::Warm, autotune)
        }
    }
}

/// The folder of autotune's choices in a case's own.
pub(super) const CHOICES: &str = "cold-autotune";

/// The passes of one case, each of which is a process.
pub(super) struct Runner<'a> {
    case: &'a Case,
    settings: &'a Settings,
    slots: &'a Slots,
    folder: &'a Path,
    /// Whether the model is known to have a loop written by hand.
    free_form: AtomicBool,
    /// Whether the model is taken to repeat itself, so that a trace may foresee what fusion does.
    foresees: AtomicBool,
    /// Whether the model is known to upload tensors, and runs on fusion's thread for that.
    inside: AtomicBool,
    /// What of the model runs on fusion's thread to tell of lines.
    lines: Mutex<Inside>,
    /// How many cards there are.
    cards: AtomicU32,
    /// Whether the cold pass ended early, so that it made not all choices.
    undecided: AtomicBool,
    /// Is told of what happens.
    progress: &'a (dyn Fn(Progress<'_>) + Sync),
    /// Microseconds that its processes took.
    took: AtomicU64,
}

impl<'a> Runner<'a> {
    pub(super) fn new(
        case: &'a Case,
        settings: &'a Settings,
        slots: &'a Slots,
        folder: &'a Path,
        progress: &'a (dyn Fn(Progress<'_>) + Sync),
    ) -> Self {
        Self {
            case,
            settings,
            slots,
            folder,
            free_form: AtomicBool::new(false),
            foresees: AtomicBool::new(true),
            inside: AtomicBool::new(false),
            lines: Mutex::new(Inside::All),
            cards: AtomicU32::new(1),
            undecided: AtomicBool::new(false),
            progress,
            took: AtomicU64::new(0),
        }
    }

    /// How long its own processes took, one after the other.
    pub(super) fn took(&self) -> Duration {
        Duration::from_micros(self.took.load(Relaxed))
    }

    pub(super) fn all(&self, first: Slot<'_>) -> Collected {
        if let Launches::Later(plan) = &self.case.launches {
            drop(first);
            return self.planned(None, plan);
        }
        let choices = self.folder.join(CHOICES);
        let cold = self.pass(PassRun::of(Pass::Cold, &choices), first);
        let whole = cold.as_ref().is_ok_and(|left| ending::done(left).is_some());
        self.undecided.store(!whole, Relaxed);
        // Nothing can come of the other passes where the first one says that this is no model to run. An explanation is of
        // what was seen until it died.
        let hopeless = match &cold {
            Ok(left) => collect::is_hopeless(self.case, &self.settings.hardware, left),
            Err(_) => true,
        };
        if self.case.launches == Launches::First || (hopeless && !self.settings.trace) {
            return Collected::first_only(cold);
        }
        self.planned(Some(cold), &choices)
    }

    /// The passes that replay choices.
    fn planned(&self, cold: Option<std::io::Result<Left>>, choices: &Path) -> Collected {
        let identity = RunIdentity {
            package: self.case.model.built.target.package.clone(),
            model: self.case.model.name.clone(),
            inputs: cold
                .as_ref()
                .and_then(|left| collect::inputs(left.as_ref().ok()?))
                .unwrap_or_else(|| self.case.inputs.clone()),
        };
        let known = self.known(&identity);
        // Each pass gets a plan of its own: a key that the plan lacks is written down where it was met.
        let (warm_plan, traced_plan) = (self.folder.join("warm-autotune"), self.folder.join("traced-autotune"));
        let autotune = match plan::write(choices, &[&warm_plan, &traced_plan], known) {
            Ok(autotune) => autotune,
            Err(error) => return Collected::first_only(Err(error)),
        };
        let planned = plan::count(&warm_plan);
        let warm_run = PassRun::of(Pass::Warm, &warm_plan);
        let other_run = PassRun::beside(Reads::Other, OTHER, &traced_plan);
        let warm = || self.pass(warm_run, self.slots.take());
        let mut disagreement = None;
        // Where the plan lacked choices a pass made them itself, and so had candidates refused.
        let tuned = |left: std::io::Result<Left>, plan: &Path| {
            left.map(|left| Left {
                tunes: left.tunes || plan::count(plan) > planned,
                ..left
            })
        };
        let (warm, traced, other, autotune) = match self.settings.hardware {
            // Each virtual card is a process's own.
            Hardware::Virtual if self.settings.verified => std::thread::scope(|scope| {
                let other = scope.spawn(|| self.pass(other_run, self.slots.take()));
                let warm = warm();
                let other = other.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic));
                let (warm, other) = (tuned(warm, &warm_plan), tuned(other, &traced_plan));
                disagreement = self.disagreement(&warm, &other, choices, known);
                let other = self.without_caches(other, other_run);
                let warm = self.without_caches(warm, warm_run);
                (warm, None, Some(other), autotune)
            }),
            Hardware::Virtual => {
                let warm = self.without_caches(tuned(warm(), &warm_plan), warm_run);
                (warm, None, None, autotune)
            }
            // A real one is there once.
            Hardware::Real(_) => {
                let traced = || {
                    let observed = self.settings.observed;
                    let run = PassRun::of(Pass::Traced, &traced_plan);
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
            // What a pass chooses that reads other values is its own.
            Hardware::Virtual => vec![&warm_plan],
            Hardware::Real(_) => vec![&warm_plan, &traced_plan],
        };
        let unplanned = plans
            .into_iter()
            .map(|folder| plan::count(folder).saturating_sub(planned));
        let unplanned = unplanned.max().unwrap_or(0);
        let is_whole = !self.undecided.load(Relaxed) && cold.is_some();
        // An explanation looks at tensors, which may end what fusion would have made one operation of.
        let is_alike = matches!(self.settings.hardware, Hardware::Virtual) && !self.settings.trace;
        if unplanned > 0 && is_whole && is_alike {
            disagreement.get_or_insert_with(|| {
                let choices = if unplanned == 1 { "choice" } else { "choices" };
                Disagreement::Nondeterministic(format!(
                    "needs {unplanned} {choices} of autotune in a later pass that it did not need in the first, as where sizes differ"
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
                gpu: known.recording.gpu().to_owned(),
                driver: known.recording.driver().to_owned(),
            }),
            tuning: if known.is_some() {
                Tuning::Replayed
            } else {
                Tuning::Free
            },
        }
    }

    /// Live memory that grows from step to step is a leak, unless it is what Burn keeps for later launches: then a pass in which it
    /// keeps nothing says what the steps of this one leave.
    fn without_caches(&self, observed: std::io::Result<Left>, run: PassRun<'_>) -> std::io::Result<Left> {
        let mut observed = observed?;
        let is_whole = |left: &Left| collect::is_whole(self.case, &self.settings.hardware, run.pass, left);
        let is_suspect = self.case.model.built.target.caches_launches()
            && self.settings.observed
            && is_whole(&observed)
            && grows(&observed);
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
        // What the last step leaves is seen by the next one; a model may have data for no more steps than were asked for. Where neither
        // comes to its end or does what the first did, what grows stays a leak.
        let steps = observed.steps;
        if let Some(uncached) = uncached(steps + 1).or_else(|| uncached(steps))
            && agree::is_same_work(&observed, &uncached)
        {
            observed.take_ends_of(&uncached);
        }
        Ok(observed)
    }

    /// In what a pass differs from the one before that read zeros, and whose fault that is.
    fn disagreement(
        &self,
        warm: &std::io::Result<Left>,
        other: &std::io::Result<Left>,
        choices: &Path,
        known: Option<Known<'_>>,
    ) -> Option<Disagreement> {
        let (Ok(warm), Ok(other)) = (warm, other) else {
            return None;
        };
        let ended_well = |left: &Left| collect::is_whole(self.case, &self.settings.hardware, Pass::Warm, left);
        if !ended_well(warm) {
            return None;
        }
        let differs = |other: &Left| match ending::error(&self.settings.hardware, Pass::Warm, other) {
            Some(error) if !ended_well(other) => Some(format!("runs to its end, and then not: {}", error.message)),
            _ => agree::difference(warm, other),
        };
        let difference = differs(other)?;
        if collect::device_reads(warm) == 0 {
            return Some(Disagreement::Nondeterministic(difference));
        }
        // Of a model that does something else each time nobody can tell what it does for the values it reads. One that does so by
        // chance may do the same twice by chance: both are asked once more.
        let once_more = |reads: Reads, folder: &str| {
            let plan = self.folder.join(format!("{folder}-autotune"));
            let choices = plan::write(choices, &[&plan], known);
            choices
                .and_then(|_| self.pass(PassRun::beside(reads, folder, &plan), self.slots.take()))
                .ok()
        };
        let by_chance = once_more(Reads::ZerosLater, AGAIN)
            .and_then(|again| differs(&again))
            .or_else(|| {
                let again = once_more(Reads::Other, OTHER_AGAIN).filter(|_| ended_well(other))?;
                agree::difference(other, &again)
            });
        match by_chance {
            Some(difference) => Some(Disagreement::Nondeterministic(difference)),
            None => Some(Disagreement::DataDependent(difference)),
        }
    }

    /// What is known of the card. A real one needs no choices of other models or cards: it makes its own.
    fn known<'r>(&'r self, run: &'r RunIdentity) -> Option<Known<'r>> {
        let (recordings, profile) = (&self.settings.recordings, &self.case.profile);
        let recording = match &self.settings.hardware {
            Hardware::Virtual => recordings.for_estimate(&profile.id, profile.like.as_deref()),
            Hardware::Real(real) => recordings
                .for_measurement(&profile.id, &real.driver)
                .find(|recording| recording.holds(run)),
        };
        recording.map(|recording| Known { recording, run })
    }

    /// A pass. Where a model runs on the thread of fusion only to tell of lines, and does not come to its end there, it runs once more
    /// with less of it there: other threads of the program may have made what it uses.
    fn pass(&self, run: PassRun<'_>, slot: Slot<'_>) -> std::io::Result<Left> {
        let left = self.pass_as_told(run, slot)?;
        let panicked = left.events.iter().any(|event| matches!(event, Event::Panic { .. }));
        let is_refused = left.events.iter().any(|event| matches!(event, Event::Failed { .. }));
        if ending::done(&left).is_some() || self.inside.load(Relaxed) || !self.traces(run) || !panicked || is_refused {
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
            if ending::done(&again).is_some() {
                let (from, to) = (self.folder.join(&elsewhere), self.folder.join(run.folder));
                crate::folders::remove(&to)?;
                std::fs::rename(from, to)?;
                return Ok(again);
            }
        }
        // It ends so in its own way, too.
        *self.told() = told;
        Ok(left)
    }

    fn told(&self) -> MutexGuard<'_, Inside> {
        self.lines.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// What of the model runs on the thread of fusion to tell of lines.
    fn lines(&self) -> Inside {
        match self.case.model.built.target.tells_lines_inside() {
            true => *self.told(),
            false => Inside::Nothing,
        }
    }

    /// Has less of the model run there; whether there was anything.
    fn tell_less(&self) -> bool {
        let less = match self.lines() {
            Inside::All => Inside::Steps,
            Inside::Steps => Inside::Nothing,
            Inside::Nothing => return false,
        };
        *self.told() = less;
        true
    }

    fn pass_as_told(&self, run: PassRun<'_>, slot: Slot<'_>) -> std::io::Result<Left> {
        let mut asked = 0;
        // What this process was told, whatever another one of the same case finds out meanwhile.
        let told = || {
            (
                self.free_form.load(Relaxed),
                self.foresees.load(Relaxed),
                self.inside.load(Relaxed),
            )
        };
        let (mut is_free_form, mut foresees, mut is_inside) = told();
        let mut left = self.process(run);
        // What is found out on the way, that a loop is written by hand, say, or does not repeat itself: the pass is begun anew.
        while let Some(found) = left.as_ref().ok().and_then(collect::found) {
            let known = match found {
                Found::FreeForm => {
                    self.free_form.store(true, Relaxed);
                    is_free_form
                }
                Found::Unforeseen => {
                    self.foresees.store(false, Relaxed);
                    !foresees
                }
                Found::Uploads => {
                    self.inside.store(true, Relaxed);
                    is_inside
                }
                Found::Stuck => !self.tell_less(),
                Found::Cards(needed) => {
                    // Real cards are measured one at a time.
                    let is_possible = matches!(self.settings.hardware, Hardware::Virtual) && needed <= MOST_CARDS;
                    self.cards.store(needed, Relaxed);
                    !is_possible || std::mem::replace(&mut asked, needed) == needed
                }
            };
            if known {
                break;
            }
            (is_free_form, foresees, is_inside) = told();
            left = self.process(run);
        }
        if let Ok(left) = &mut left {
            let most = run.uncached_steps.or_else(|| self.most_steps());
            left.steps = ending::done(left)
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

    /// Steps a pass.
    fn steps(&self) -> u32 {
        let fewest = if self.cards.load(Relaxed) > 1 {
            STEPS_OVER_CARDS
        } else {
            1
        };
        self.case.steps.unwrap_or(self.settings.steps).max(fewest)
    }

    /// The most steps a pass, where more are run until two in a row reserve nothing more.
    fn most_steps(&self) -> Option<u32> {
        let settles = self.settings.settles && self.case.steps.is_none();
        settles.then(|| MOST_STEPS.max(self.steps()))
    }

    /// Whether launches are looked at. On a virtual card a pass that is looked at holds what any other one does.
    fn is_observed(&self, pass: Pass) -> bool {
        match (pass, &self.settings.hardware) {
            (Pass::Cold, _) | (Pass::Warm, Hardware::Real(_)) => false,
            (Pass::Warm, Hardware::Virtual) => self.settings.observed,
            (Pass::Traced, _) => true,
        }
    }

    /// Whether a pass tells of its operations.
    fn traces(&self, run: PassRun<'_>) -> bool {
        let is_explained = [WARM, TRACED].iter().any(|folder| {
            let rest = run.folder.strip_prefix(folder);
            rest.is_some_and(|rest| rest.is_empty() || rest.strip_prefix('-') == Some(OUTSIDE))
        });
        is_explained && self.is_observed(run.pass) && self.settings.trace
    }

    fn process(&self, run: PassRun<'_>) -> std::io::Result<Left> {
        let PassRun { pass, reads, .. } = run;
        let folder = self.folder.join(run.folder);
        let target = &self.case.model.built;
        let traces = self.traces(run);
        let inside = match (self.inside.load(Relaxed), traces) {
            (true, _) => Inside::All,
            (false, true) => self.lines(),
            (false, false) => Inside::Nothing,
        };
        let cards = self.cards.load(Relaxed);
        let fault = self.settings.fault.as_ref().filter(|fault| fault.pass == pass);
        let card = Card {
            driver: &self.settings.driver,
            profile: &self.case.profile,
            hardware: &self.settings.hardware,
            fault: fault.map(|fault| fault.call.as_str()),
            reads,
            endless: self.case.endless,
            cards,
        };
        let job = |kernels| RunJob {
            model: self.case.model.name.clone(),
            steps: run.uncached_steps.unwrap_or_else(|| self.steps()),
            most_steps: self.most_steps().filter(|_| run.uncached_steps.is_none()),
            uncached: run.uncached_steps.is_some(),
            inputs: self.case.inputs.clone(),
            autotune: run.autotune.to_owned(),
            kernels,
            traced: self.is_observed(pass),
            trace: traces.then(|| folder.join(TRACE)),
            // A traced pass is the same everywhere, so that live is. Where a card is there, the others are left alone.
            lockstep: pass == Pass::Traced || matches!(self.settings.hardware, Hardware::Virtual),
            foresees: self.foresees.load(Relaxed),
            free_form: self.free_form.load(Relaxed),
            inside,
            watched: !self.inside.load(Relaxed) && inside != Inside::Nothing,
            what_if: self.case.what_if.clone(),
            cards,
            settle_ms: u64::try_from(card.settle().as_millis()).unwrap_or(u64::MAX),
        };
        let limits = Limits {
            timeout: self.case.timeout,
            host_memory: self.settings.host_memory,
        };
        if let Hardware::Real(real) = &self.settings.hardware
            && target.kernel_compiler == KernelCompiler::Llvm
        {
            MissingLibdevice::look(&real.toolkit)?;
        }
        let is_stopped = || self.settings.stop.load(Relaxed) != 0;
        if is_stopped() {
            return Err(std::io::ErrorKind::Interrupted.into());
        }
        let reached = |place| {
            let (case, steps) = (self.case, self.steps());
            (self.progress)(Progress::Reached {
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
                Some(card),
                limits,
                meanwhile,
            )
        };
        let began = Instant::now();
        // A fault is that of a certain call, and a kernel that is found takes none of the compiler's.
        let fails = self.settings.fault.as_ref();
        let compiles_all = fails.is_some_and(|fault| fault.call.starts_with("nvrtc"));
        let left = match self.settings.hardware {
            Hardware::Virtual if !compiles_all => Kernels::of(&self.settings.driver, target, &self.case.profile)?
                .around(&folder.with_extension("kernels"), start),
            _ => start(None),
        };
        let took = began.elapsed();
        self.took
            .fetch_add(u64::try_from(took.as_micros()).unwrap_or(u64::MAX), Relaxed);
        let case = self.case;
        (self.progress)(Progress::Passed { case, pass, took });
        left
    }
}

/// Choices that a real card made itself are not assumed.
fn tuned_here(autotune: Autotune) -> Autotune {
    Autotune {
        recorded: autotune.recorded + autotune.nearest + autotune.assumed,
        nearest: 0,
        assumed: 0,
        ..autotune
    }
}
