//! Runs cases, and shows their progress.

use std::collections::{BTreeMap, BTreeSet};
use std::path::PathBuf;
use std::sync::atomic::Ordering::Relaxed;
use std::sync::{Mutex, PoisonError};

use crate::cli::error::CliError;
use crate::cli::interrupt::{self, Catching, Interrupted};
use crate::cli::options::DEFAULT_STEPS;
use crate::cli::session::context::Context;
use crate::cli::terminal::{self, Progress};
use crate::cli::timings;
use crate::driver::DriverLibrary;
use crate::protocol::SizeOrder;
use crate::recording::Recordings;
use crate::report::words::{pass_name, phase_name};
use crate::report::{Assumption, ErrorCode, Pass, Problem, Run};
use crate::run::{self, Case, Hardware, PassPosition, Settings};
use crate::untrusted::{PlainName, named};

/// The hardware and the settings of a set of cases.
pub(in crate::cli) struct RunSetup<'a> {
    pub(in crate::cli) driver: &'a DriverLibrary,
    pub(in crate::cli) hardware: Hardware,
    pub(in crate::cli) repeat: u32,
    /// The recordings whose autotune choices the cases replay.
    pub(in crate::cli) recordings: Recordings,
    /// Whether traced passes write traces.
    pub(in crate::cli) trace: bool,
    /// Whether models whose sizes vary run with their largest sizes only.
    pub(in crate::cli) largest_sizes: bool,
    /// Whether live memory is observed, which takes a pass of its own.
    pub(in crate::cli) observed: bool,
    /// Whether models run once more, to verify that they do the same again.
    pub(in crate::cli) verified: bool,
    /// The folder for the processes' files. No other set of cases may use it.
    pub(in crate::cli) folder: PathBuf,
    /// The text of the progress line, if it is not the usual one: `trying batch_size 64`.
    pub(in crate::cli) doing: Option<String>,
}

impl<'a> RunSetup<'a> {
    /// Creates a setup that runs each case once, observes live memory and writes no trace.
    pub(in crate::cli) fn new(
        driver: &'a DriverLibrary,
        hardware: Hardware,
        recordings: Recordings,
        folder: PathBuf,
    ) -> Self {
        Self {
            driver,
            hardware,
            repeat: 1,
            recordings,
            trace: false,
            largest_sizes: false,
            observed: true,
            verified: false,
            folder,
            doing: None,
        }
    }
}

/// The results of the cases, in the order of the cases.
#[derive(Default)]
pub(in crate::cli) struct FinishedCases {
    pub(in crate::cli) runs: Vec<Run>,
    /// For each case, the path of the autotune choices of its cold pass.
    pub(in crate::cli) choices: Vec<PathBuf>,
    /// For each case, how many autotune choices its plan lacked.
    pub(in crate::cli) unplanned: Vec<usize>,
}

/// Runs all cases.
///
/// # Errors
/// Fails if a signal stopped the command before all cases were finished.
pub(in crate::cli) fn run(cases: &[Case], context: &Context<'_>, on: RunSetup<'_>) -> Result<FinishedCases, CliError> {
    let Partly {
        ran,
        unfinished,
        signal,
    } = run_partly(cases, context, on);
    match signal {
        None => Ok(ran),
        Some(signal) => Err(Interrupted {
            signal,
            finished: cases.len() - unfinished.len(),
            count: cases.len(),
        }
        .into()),
    }
}

/// The results of the cases that were finished.
#[derive(Default)]
pub(in crate::cli) struct Partly {
    pub(in crate::cli) ran: FinishedCases,
    /// The package and the model of each case that was not finished.
    unfinished: Vec<(PlainName, String)>,
    /// The signal that stopped the command, if there was one. All cases may be finished.
    pub(in crate::cli) signal: Option<usize>,
}

impl Partly {
    /// Returns one problem per package with unfinished models, so that nobody takes the report for a complete one.
    pub(in crate::cli) fn problems(&self) -> Vec<Problem> {
        let mut packages: BTreeMap<&PlainName, Vec<&str>> = BTreeMap::new();
        for (package, model) in &self.unfinished {
            packages.entry(package).or_default().push(model);
        }
        let problem = |(package, models): (&PlainName, Vec<&str>)| Problem {
            package: package.clone(),
            target: None,
            code: ErrorCode::Interrupted,
            message: format!(
                "{} stopped the command before it finished {} of {package}",
                interrupt::name(self.signal.unwrap_or_default()),
                models.join(", "),
            )
            .into(),
            help: Some("run the command again: this report is incomplete".into()),
        };
        packages.into_iter().map(problem).collect()
    }
}

/// Runs the cases until all are finished or a signal stops the command.
pub(in crate::cli) fn run_partly(cases: &[Case], context: &Context<'_>, on: RunSetup<'_>) -> Partly {
    // After a failed build there may be no cases. Progress of nothing would look like another failure.
    if cases.is_empty() {
        return Partly::default();
    }
    let &Context { running, .. } = context;
    let (jobs, doing) = match on.hardware {
        Hardware::Virtual => (running.jobs(), "estimating"),
        // Two processes would share the GPU's memory, and NVML is polled for one of them.
        Hardware::Real(_) => (1, "measuring"),
    };
    let catching = Catching::new();
    let settings = Settings {
        driver: on.driver.clone(),
        hardware: on.hardware,
        repeat: on.repeat,
        fault: running.fault.clone(),
        recordings: on.recordings,
        trace: on.trace,
        largest_sizes: on.largest_sizes,
        observed: on.observed,
        verified: on.verified,
        steps: running.steps.unwrap_or(DEFAULT_STEPS),
        // With `--steps`, a pass runs exactly that many. See docs/design/burn-0_22-memory.md.
        settles: running.steps.is_none(),
        jobs,
        host_memory: running.host_memory,
        folder: on.folder,
        stop: catching.caught(),
    };
    // From here on: what the terminal shows while the cases run.
    let names = CaseNames::new(cases, on.doing.is_some());
    // A search sets `doing`, and prints its own list of values at the end.
    let has_rows = cases.len() > 1 && on.doing.is_none() && !terminal::is_quiet();
    let told = on.doing.unwrap_or_else(|| match cases {
        [one] => format!("{doing} {}", names.of(one)),
        cases => format!("{doing} {} models", cases.len()),
    });
    // "0 of 1 done" says nothing for minutes. The position in the pass says more.
    let unit = if cases.len() == 1 { "" } else { "done" };
    let progress = Progress::bar(cases.len(), unit, &told);
    // The passes that are running, with the position of each.
    let places: Mutex<BTreeMap<String, String>> = Mutex::new(BTreeMap::new());
    let tell = |pass: String, place: Option<String>| {
        let mut places = places.lock().unwrap_or_else(PoisonError::into_inner);
        match place {
            Some(place) => places.insert(pass, place),
            None => places.remove(&pass),
        };
        progress.say(&of_several(&places));
    };
    let done = timings::timed(doing, || {
        run::run_all(cases, &settings, |happens| match happens {
            run::RunProgress::Reached {
                case,
                pass,
                place,
                steps,
            } => tell(names.of_pass(case, pass), Some(of_place(place, steps))),
            run::RunProgress::Passed { case, pass, took } => {
                let pass = names.of_pass(case, pass);
                timings::within(&pass, took);
                tell(pass, None);
            }
            run::RunProgress::Done { case, run } => {
                progress.step();
                if has_rows {
                    progress.row(&format!("done: {}: {}", names.of(case), row(run)));
                }
            }
        })
    });
    drop(progress);
    let signal = Some(settings.stop.load(Relaxed)).filter(|signal| *signal != 0);
    // A case without a result was not finished. It becomes a
    // problem of the report, and never just a missing row.
    let mut partly = Partly::default();
    for (number, (case, done)) in cases.iter().zip(done).enumerate() {
        match done {
            Some(done) => {
                partly.ran.unplanned.push(done.unplanned);
                partly.ran.runs.push(done.run);
                partly.ran.choices.push(settings.choices(number));
            }
            None => {
                let package = case.model.built.target.package.clone();
                let gpu = match names.with_gpu {
                    true => format!(" on {}", case.profile.id),
                    false => String::new(),
                };
                partly.unfinished.push((package, case.what_if.of(case.name()) + &gpu));
            }
        }
    }
    tell_of_processes_left(&partly.ran.runs);
    // Also after the last case was finished: the command must not go on to build for minutes.
    partly.signal = signal;
    partly
}

/// Names each model whose processes still ran after it: whoever starts such a model elsewhere has to end them.
fn tell_of_processes_left(runs: &[Run]) {
    let left = |run: &&Run| {
        run.assumptions
            .iter()
            .any(|assumption| matches!(assumption, Assumption::ProcessesLeft))
    };
    let models: BTreeSet<String> = runs.iter().filter(left).map(Run::full_name).collect();
    if !terminal::is_quiet() {
        for model in models {
            terminal::remark(&format!("{}: {}", named(&model), Assumption::ProcessesLeft));
        }
    }
}

/// Names cases in the progress output, so that each name is unique.
struct CaseNames {
    /// Whether the cases run on several GPUs.
    with_gpu: bool,
    /// Whether the cases differ in their inputs.
    with_inputs: bool,
}

impl CaseNames {
    fn new(cases: &[Case], with_inputs: bool) -> Self {
        let mut gpus = cases.iter().map(|case| &case.profile.id);
        let first = gpus.next();
        Self {
            with_gpu: gpus.any(|gpu| Some(gpu) != first),
            with_inputs,
        }
    }

    fn of(&self, case: &Case) -> String {
        let mut name = case.what_if.of(&case.full_name());
        if self.with_inputs {
            let inputs = case.inputs.iter().map(|(input, value)| format!(" {input}={value}"));
            name.extend(inputs);
        }
        if self.with_gpu {
            name += &format!(" on {}", case.profile.id);
        }
        named(&name)
    }

    /// Names a pass of a case, with the order of its sizes if that is not the usual one.
    fn of_pass(&self, case: &Case, pass: Pass) -> String {
        let sizes = match case.sizes {
            SizeOrder::Largest => String::new(),
            order => format!("{} sizes, ", order.name()),
        };
        format!("{}, {sizes}{} pass", self.of(case), pass_name(pass))
    }
}

/// Describes the position in a pass: `step 2 of 3, forward`.
fn of_place((step, phase): PassPosition, steps: u32) -> String {
    match step {
        // On Burn 0.22, a pass may run more steps than planned, until the allocator reserves no more memory.
        Some(step) if step >= steps => format!("step {}, {}", step + 1, phase_name(phase)),
        Some(step) => format!("step {} of {steps}, {}", step + 1, phase_name(phase)),
        None => phase_name(phase).to_owned(),
    }
}

/// Describes the positions of up to three passes, and counts the others.
fn of_several(places: &BTreeMap<String, String>) -> String {
    const TOLD: usize = 3;
    let told: Vec<_> = places
        .iter()
        .take(TOLD)
        .map(|(pass, place)| format!("{pass}: {place}"))
        .collect();
    let more = match places.len().saturating_sub(TOLD) {
        0 => String::new(),
        more => format!("; and {more} more"),
    };
    told.join("; ") + &more
}

/// Summarizes a run in one line. The table shows the details.
fn row(run: &Run) -> String {
    let seconds = format!("{:.1} s", run.seconds);
    if let Some(error) = &run.error {
        let message = named(error.message.raw().lines().next().unwrap_or_default());
        return format!("{message}, {seconds}");
    }
    if run.oom.is_some() {
        return format!("out of memory, {seconds}");
    }
    let peak = run.peaks.warm;
    let bytes = |name: &str, bytes: Option<crate::bytes::Bytes>| bytes.map(|bytes| format!("{name} {bytes}, "));
    let shown = bytes("live", peak.live).unwrap_or_default() + &bytes("reserved", peak.reserved).unwrap_or_default();
    shown + &seconds
}
