//! What estimating and checking have in common: find, build and list the models, run them, and write the report.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::atomic::Ordering::Relaxed;
use std::sync::{Mutex, PoisonError};

use camino::{Utf8Path, Utf8PathBuf};
use miette::{Diagnostic, IntoDiagnostic};
use thiserror::Error;

use super::cases::Missing;
use super::exit::Exit;
use super::interrupt::{self, Catching, Interrupted};
use super::options::{DEFAULT_STEPS, Loudness, Packages, ReportFormat, ReportOutput, Running};
use super::source::Source;
use super::terminal::{self, Progress};
use super::timings;
use super::what_if::WhatIfs;
use super::{Stopped, cases};
use crate::budget::Budgets;
use crate::driver::{self, DriverLibrary};
use crate::gpu::{Overrides, Profiles};
use crate::recording::Recordings;
use crate::report::markdown::{self, Markdown};
use crate::report::words::{pass_name, phase_name};
use crate::report::{ErrorCode, Problem, REPORT_VERSION, Report, Run, Status, Tool, WrittenBy, github, human, junit};
use crate::run::{self, Case, Hardware, Listed, Place, Settings};

/// What is wrong with what was asked for.
#[derive(Debug, Error, Diagnostic)]
pub(super) enum Asked {
    /// No card was named.
    #[error("which card? none was named")]
    #[diagnostic(
        code(cli::no_gpu),
        help("pass --gpu l4 (`cargo vram gpus` lists the cards), or write `gpu: l4` in budgets.yaml")
    )]
    NoGpu,
    /// No model is left after selection.
    #[error("no model matches {0}")]
    #[diagnostic(code(cli::no_match))]
    NoMatch(String, #[help] String),
    /// A glob that is none.
    #[error(transparent)]
    #[diagnostic(
        code(cli::glob),
        help("a glob is a name in which * stands for anything: -m 'resnet*'")
    )]
    Glob(#[from] globset::Error),
    /// There is no file of budgets.
    #[error("{0} does not exist")]
    #[diagnostic(
        code(cli::no_budgets),
        help("`cargo vram init` writes budgets.yaml; --budgets names another file")
    )]
    NoBudgets(Utf8PathBuf),
    /// There is no file of budgets in an archive.
    #[error("{0} has no budgets")]
    #[diagnostic(
        code(cli::no_budgets),
        help("write budgets.yaml before `cargo vram archive`, or name a file here with --budgets")
    )]
    NoBudgetsInArchive(Utf8PathBuf),
    /// A file or folder cannot be used.
    #[error("cannot use {path}")]
    #[diagnostic(code(cli::file))]
    File {
        /// Which.
        path: Utf8PathBuf,
        /// Why.
        source: std::io::Error,
    },
}

/// Where models come from, with the cards and, where there are any, the budgets.
pub(super) struct Prepared {
    pub(super) source: Source,
    pub(super) profiles: Profiles,
    pub(super) budgets: Option<Budgets>,
    /// The file of budgets.
    pub(super) budgets_path: Utf8PathBuf,
    /// The file of budgets as people are shown it.
    pub(super) budgets_name: String,
}

impl Prepared {
    /// The file of the baseline, beside that of the budgets, and as people are shown it.
    pub(super) fn lock(&self) -> (Utf8PathBuf, String) {
        let shown = Utf8Path::new(&self.budgets_name).with_extension("lock");
        (self.budgets_path.with_extension("lock"), shown.into_string())
    }
}

/// Reads the workspace, or the archive where one is named, and the budgets.
pub(super) fn prepare(
    packages: &Packages,
    archive_file: Option<&Utf8Path>,
    budgets_file: Option<&Utf8Path>,
) -> Result<Prepared, Stopped> {
    let source = timings::timed("reading the workspace", || Source::open(packages, archive_file))?;
    let Written {
        profiles,
        budgets,
        path: budgets_path,
        name: budgets_name,
    } = written(&source, budgets_file)?;
    Ok(Prepared {
        source,
        profiles,
        budgets,
        budgets_path,
        budgets_name,
    })
}

/// What a person wrote: the file of budgets, where there is one, and the cards with those that it adds.
pub(super) struct Written {
    profiles: Profiles,
    pub(super) budgets: Option<Budgets>,
    path: Utf8PathBuf,
    /// The file as people are shown it.
    pub(super) name: String,
}

/// Reads the file of budgets.
pub(super) fn written(source: &Source, budgets_file: Option<&Utf8Path>) -> Result<Written, Stopped> {
    let mut profiles = Profiles::builtin()?;
    let (path, name) = match budgets_file {
        Some(path) => {
            let name = path.strip_prefix(source.root()).unwrap_or(path);
            (path.to_owned(), name.to_string())
        }
        None => source.budgets(),
    };
    let budgets = if budgets_file.is_some() || path.exists() {
        let known: Vec<_> = profiles.ids().collect();
        Some(Budgets::load(&path, &name, &known)?)
    } else {
        None
    };
    if let Some(budgets) = &budgets {
        add_profiles(&mut profiles, budgets)?;
    }
    Ok(Written {
        profiles,
        budgets,
        path,
        name,
    })
}

fn add_profiles(profiles: &mut Profiles, budgets: &Budgets) -> Result<(), Stopped> {
    for (id, entry) in &budgets.gpu_profiles {
        let overrides = Overrides {
            total: entry.total.as_ref().map(|total| total.value),
            name: entry.name.as_ref().map(|name| name.value.clone()),
            sm_count: entry.sm_count.as_ref().map(|count| count.value),
            compute_capability: entry.compute_capability.as_ref().map(|capability| capability.value),
            shared_memory_per_block_optin: entry.shared_memory_per_block_optin.as_ref().map(|bytes| bytes.value),
            context: entry.context.as_ref().map(|bytes| bytes.value),
        };
        if let Err(error) = profiles.add_like(id, &entry.like.value, overrides) {
            let help = error.help().map(|help| help.to_string());
            Err(budgets.error_at(entry.span, "budgets::gpu-profile", error.to_string(), help))?;
        }
    }
    Ok(())
}

/// The models of the selected packages, built.
pub(super) struct Models {
    /// `package/model` of those that match `-m`, whatever the partition.
    pub(super) expected: Vec<String>,
    /// Those that match `-m` and are in the partition.
    pub(super) selected: Vec<Listed>,
    /// All that are declared.
    pub(super) declared: Vec<Listed>,
    pub(super) problems: Vec<Problem>,
}

/// Builds and lists the declared models.
pub(super) fn models(
    prepared: &Prepared,
    packages: &Packages,
    running: Option<&Running>,
    loudness: Loudness,
    folder: &Path,
) -> Result<Models, Stopped> {
    if running.is_some_and(|running| running.timings) {
        timings::want();
    }
    let (built, mut problems) = timings::timed("building the models", || prepared.source.built(packages, loudness))?;
    let (declared, unlisted) = timings::timed("listing the models", || prepared.source.list(&built, folder))?;
    problems.extend(unlisted);
    let mut selected = match running {
        Some(running) => {
            let missing = match (prepared.source.is_elsewhere(), problems.is_empty()) {
                (true, _) => Missing::Elsewhere,
                (false, true) => Missing::Refused,
                (false, false) => Missing::Hidden,
            };
            cases::select(&declared, running, prepared.budgets.as_ref(), missing)?
        }
        None => declared.clone(),
    };
    let expected = selected.iter().map(cases::identity).collect();
    if let Some(partition) = running.and_then(|running| running.partition) {
        selected.retain(|model| partition.holds(&cases::identity(model)));
    }
    Ok(Models {
        expected,
        selected,
        declared,
        problems,
    })
}

/// What is known of real cards: what was named, and where that knows nothing of a card, what comes with this program.
pub(super) fn recordings(running: &Running) -> Result<Recordings, Stopped> {
    let builtin = Recordings::builtin()?;
    Ok(match own_recordings(running)? {
        Some(own) => own.or(builtin),
        None => builtin,
    })
}

/// What was named of what is known of real cards.
pub(super) fn own_recordings(running: &Running) -> Result<Option<Recordings>, Stopped> {
    let named = running.recordings.as_deref();
    Ok(named.map(|folder| Recordings::load(folder.as_std_path())).transpose()?)
}

/// What one set of cases is run on.
pub(super) struct On<'a> {
    pub(super) driver: &'a DriverLibrary,
    pub(super) hardware: Hardware,
    pub(super) repeat: u32,
    /// What autotune chose on real cards.
    pub(super) recordings: Recordings,
    /// Whether traced passes write traces.
    pub(super) trace: bool,
    /// Whether live is observed, which takes a pass of its own.
    pub(super) observed: bool,
    /// Whether models are run once more, to see that they do the same again.
    pub(super) verified: bool,
    /// For the processes' files; of this set of cases alone.
    pub(super) folder: PathBuf,
    /// What people are told is being done, where it is something of its own: `trying batch_size 64`.
    pub(super) doing: Option<String>,
}

impl<'a> On<'a> {
    /// Once, as the models are, with all figures.
    pub(super) fn new(driver: &'a DriverLibrary, hardware: Hardware, recordings: Recordings, folder: PathBuf) -> Self {
        Self {
            driver,
            hardware,
            repeat: 1,
            recordings,
            trace: false,
            observed: true,
            verified: false,
            folder,
            doing: None,
        }
    }
}

/// What came of the cases, in their order.
pub(super) struct Ran {
    pub(super) runs: Vec<Run>,
    /// Where each left the choices of its cold pass.
    pub(super) choices: Vec<PathBuf>,
    /// How many choices each found missing in its plan.
    pub(super) unplanned: Vec<usize>,
}

/// Runs the cases, all of them.
///
/// # Errors
/// A signal ended the command before they were done.
pub(super) fn run(cases: &[Case], running: &Running, on: On<'_>, loudness: Loudness) -> Result<Ran, Stopped> {
    let Partly {
        ran,
        unfinished,
        signal,
    } = run_partly(cases, running, on, loudness);
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

/// What came of those of the cases that were finished.
pub(super) struct Partly {
    pub(super) ran: Ran,
    /// Package and model of each of the others.
    unfinished: Vec<(String, String)>,
    /// The signal that ended the command, where one did before all cases were finished.
    pub(super) signal: Option<usize>,
}

impl Partly {
    /// What a report says of models that were not finished, so that nobody takes it for a whole one.
    pub(super) fn problems(&self) -> Vec<Problem> {
        let mut packages: BTreeMap<&str, Vec<&str>> = BTreeMap::new();
        for (package, model) in &self.unfinished {
            packages.entry(package).or_default().push(model);
        }
        let problem = |(package, models): (&str, Vec<&str>)| Problem {
            package: package.to_owned(),
            target: None,
            code: ErrorCode::Interrupted,
            message: format!(
                "{} stopped the command before it had finished {} of {package}",
                interrupt::name(self.signal.unwrap_or_default()),
                models.join(", "),
            ),
            help: Some("this report is incomplete: run the command again".to_owned()),
        };
        packages.into_iter().map(problem).collect()
    }
}

/// Runs the cases until a signal ends the command.
pub(super) fn run_partly(cases: &[Case], running: &Running, on: On<'_>, loudness: Loudness) -> Partly {
    let (jobs, doing) = match on.hardware {
        Hardware::Virtual => (running.jobs(), "estimating"),
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
        observed: on.observed,
        verified: on.verified,
        steps: running.steps.unwrap_or(DEFAULT_STEPS),
        settles: running.steps.is_none(),
        jobs,
        host_memory: running.host_memory,
        folder: on.folder,
        stop: catching.caught(),
    };
    let names = Names::new(cases, on.doing.is_some());
    // A search lists its values itself, in the end.
    let has_rows = cases.len() > 1 && on.doing.is_none() && !loudness.quiet;
    let told = on.doing.unwrap_or_else(|| match cases {
        [one] => format!("{doing} {}", names.of(one)),
        cases => format!("{doing} {} models", cases.len()),
    });
    let unit = if cases.len() == 1 { "" } else { "done" };
    let progress = Progress::bar(loudness, cases.len(), unit, &told);
    // The passes that run at the moment, and how far each is.
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
            run::Progress::Reached {
                case,
                pass,
                place,
                steps,
            } => tell(
                format!("{}, {} pass", names.of(case), pass_name(pass)),
                Some(of_place(place, steps)),
            ),
            run::Progress::Passed { case, pass, took } => {
                let pass = format!("{}, {} pass", names.of(case), pass_name(pass));
                timings::within(&pass, took);
                tell(pass, None);
            }
            run::Progress::Done { case, run } => {
                progress.step();
                if has_rows {
                    progress.row(&format!("done: {}: {}", names.of(case), row(run)));
                }
            }
        })
    });
    drop(progress);
    let signal = Some(settings.stop.load(Relaxed)).filter(|signal| *signal != 0);
    let mut partly = Partly {
        ran: Ran {
            runs: Vec::new(),
            choices: Vec::new(),
            unplanned: Vec::new(),
        },
        unfinished: Vec::new(),
        signal: None,
    };
    for (number, (case, done)) in cases.iter().zip(done).enumerate() {
        match done {
            Some(done) => {
                partly.ran.unplanned.push(done.unplanned);
                partly.ran.runs.push(done.run);
                partly.ran.choices.push(settings.choices(number));
            }
            None => {
                let package = case.model.built.target.package.clone();
                let card = match names.with_card {
                    true => format!(" on {}", case.profile.id),
                    false => String::new(),
                };
                partly.unfinished.push((package, case.what_if.of(case.name()) + &card));
            }
        }
    }
    // A signal that came too late changes nothing.
    partly.signal = signal.filter(|_| !partly.unfinished.is_empty());
    partly
}

/// What cases are called while they run, so that each has a name of its own.
struct Names {
    /// Whether they run on several cards.
    with_card: bool,
    /// Whether they differ in their inputs.
    with_inputs: bool,
}

impl Names {
    fn new(cases: &[Case], with_inputs: bool) -> Self {
        let mut cards = cases.iter().map(|case| &case.profile.id);
        let first = cards.next();
        Self {
            with_card: cards.any(|card| Some(card) != first),
            with_inputs,
        }
    }

    fn of(&self, case: &Case) -> String {
        let mut name = case.what_if.of(&case.full_name());
        if self.with_inputs {
            let inputs = case.inputs.iter().map(|(input, value)| format!(" {input}={value}"));
            name.extend(inputs);
        }
        if self.with_card {
            name += &format!(" on {}", case.profile.id);
        }
        human::text::named(&name)
    }
}

/// `step 2 of 3, forward`.
fn of_place((step, phase): Place, steps: u32) -> String {
    match step {
        // Burn 0.22 runs more of them until its allocator has settled.
        Some(step) if step >= steps => format!("step {}, {}", step + 1, phase_name(phase)),
        Some(step) => format!("step {} of {steps}, {}", step + 1, phase_name(phase)),
        None => phase_name(phase).to_owned(),
    }
}

/// What some of them do, and how many more there are.
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

/// What came of a model, in a line: the table has the rest.
fn row(run: &Run) -> String {
    let seconds = format!("{:.1} s", run.seconds);
    if let Some(error) = &run.error {
        let message = human::text::named(error.message.lines().next().unwrap_or_default());
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

/// The selected models, estimated on the GPUs that were asked for.
pub(super) struct Estimated {
    pub(super) models: Models,
    pub(super) report: Report,
    /// The GPUs.
    pub(super) cards: Vec<crate::gpu::Profile>,
    /// The signal that ended the command before all models were estimated. The report says so, too.
    pub(super) signal: Option<usize>,
    /// How many runs there were to be.
    pub(super) count: usize,
}

/// How often `check` runs a model whose budget says that it differs from run to run.
pub(super) const REPEAT: u32 = 3;

/// Builds, lists and estimates the models; where the result is to be a baseline, as `check` does.
pub(super) fn estimate(
    prepared: &Prepared,
    packages: &Packages,
    running: &Running,
    inputs: &BTreeMap<String, u64>,
    what_ifs: &WhatIfs,
    as_judged: bool,
    loudness: Loudness,
) -> Result<Estimated, Stopped> {
    // Before the models are built: a GPU that is misspelt need not wait for that.
    let declared = cases::declared_cards(prepared, running)?.into_iter();
    let folder = prepared.source.scratch(running.keep.as_deref())?;
    let mut models = self::models(prepared, packages, Some(running), loudness, folder.path())?;
    let recordings = self::recordings(running)?;
    let cards: Vec<_> = declared.map(|card| cases::estimated(card, &recordings)).collect();
    let mut cases = cases::cases_on(prepared, &models, running, inputs, cards.iter())?;
    let differing = cases
        .iter_mut()
        .filter(|case| as_judged && case.allowed.nondeterministic);
    differing.for_each(|case| case.repeat = REPEAT);
    let here = (prepared, packages, running);
    let (otherwise, problems) = what_ifs.cases(&cases, here, loudness, folder.path())?;
    let new = |problem: &Problem| !models.problems.contains(problem);
    let problems: Vec<_> = problems.into_iter().filter(new).collect();
    models.problems.extend(problems);
    // Each as it is, and then otherwise.
    let cases: Vec<_> = cases
        .into_iter()
        .zip(otherwise)
        .flat_map(|(case, otherwise)| std::iter::once(case).chain(otherwise))
        .collect();
    let driver = timings::timed("building the virtual driver", || prepared.source.driver())?;
    let on = On {
        verified: as_judged,
        ..On::new(&driver, Hardware::Virtual, recordings, folder.path().join("estimate"))
    };
    let partly = run_partly(&cases, running, on, loudness);
    models.problems.extend(partly.problems());
    let (runs, signal) = (partly.ran.runs, partly.signal);
    Ok(Estimated {
        signal,
        count: cases.len(),
        report: report(Some(WrittenBy::Estimate), prepared, &models, running, runs),
        cards,
        models,
    })
}

/// Puts the report of a command together; it is judged afterwards.
pub(super) fn report(
    command: Option<WrittenBy>,
    prepared: &Prepared,
    models: &Models,
    running: &Running,
    runs: Vec<Run>,
) -> Report {
    let (commit, dirty) = prepared.source.commit();
    Report {
        version: REPORT_VERSION,
        command,
        tool: Tool {
            name: env!("CARGO_PKG_NAME").into(),
            version: env!("CARGO_PKG_VERSION").into(),
            fingerprint: fingerprint(prepared, running),
        },
        commit,
        dirty,
        partition: running.partition.map(|partition| partition.to_string()),
        expected: models.expected.clone(),
        expected_verdicts: Vec::new(),
        status: Status::Pass,
        runs,
        verdicts: Vec::new(),
        skipped: Vec::new(),
        base: None,
        problems: models.problems.clone(),
    }
}

/// A hash over everything that an estimate depends on besides the model: the user's own cards and recordings, too.
fn fingerprint(prepared: &Prepared, running: &Running) -> String {
    use sha2::{Digest, Sha256};
    let mut all = vec![
        env!("CARGO_PKG_VERSION").to_owned(),
        driver::fingerprint(),
        crate::gpu::fingerprint(),
        crate::recording::fingerprint(),
    ];
    let cards = prepared.budgets.iter().flat_map(|budgets| budgets.gpu_profiles.keys());
    let cards = cards.filter_map(|id| prepared.profiles.find(id));
    all.extend(cards.map(|card| format!("{} {}", card.id, card.fingerprint())));
    // What cannot be read ended the command before.
    let recordings = own_recordings(running).ok().flatten();
    all.extend(recordings.map(|own| own.fingerprint()));
    let all = all.join(" ");
    Sha256::digest(all)
        .iter()
        .take(8)
        .map(|byte| format!("{byte:02x}"))
        .collect()
}

/// Settles the report's status and writes it as it was asked for.
pub(super) fn write(
    report: &mut Report,
    output: &ReportOutput,
    loudness: Loudness,
    headline: &str,
    judged: bool,
    source: &Source,
) -> Result<(), Stopped> {
    let errors = report.problems.len() + report.runs.iter().filter(|run| run.error.is_some()).count();
    let worst = report
        .verdicts
        .iter()
        .map(|verdict| verdict.status)
        .max()
        .unwrap_or(Status::Pass);
    report.status = if errors > 0 { Status::Error } else { worst };
    timings::timed("writing the output", || {
        show(report, output, loudness, headline, judged, source.root())
    })
}

/// Writes a report as it was asked for; files that it names are relative to `root`.
pub(super) fn show(
    report: &Report,
    output: &ReportOutput,
    loudness: Loudness,
    headline: &str,
    judged: bool,
    root: &Utf8Path,
) -> Result<(), Stopped> {
    let table = human::render(
        report,
        &human::Style {
            headline: headline.to_owned(),
            width: terminal::width(),
            wraps: terminal::wraps(),
            quiet: loudness.quiet,
            verbose: loudness.verbose,
            judged,
        },
    );
    let rendered = match output.message_format {
        ReportFormat::Human => table.clone(),
        ReportFormat::Json => json(report)?,
        ReportFormat::Markdown => markdown::render(report, &Markdown::default()),
        ReportFormat::Github => {
            // GitHub looks for files from the repository's top.
            let prefix = super::source::git(root, &["rev-parse", "--show-prefix"]);
            github::render(report, prefix.unwrap_or_default().trim())
        }
        ReportFormat::Junit => junit::render(report).into_diagnostic()?,
    };
    if output.output.is_some() {
        terminal::show(&table);
    }
    put(&rendered, output.output.as_deref())?;
    Ok(())
}

/// Writes a result to the file that was named, or to standard output.
pub(super) fn put(text: &str, file: Option<&Utf8Path>) -> Result<(), Asked> {
    let Some(path) = file else {
        terminal::show(text);
        return Ok(());
    };
    match std::fs::write(path, strip(text)) {
        // Of a pipe, as with standard output: whoever reads it has seen enough.
        Err(source) if source.kind() != std::io::ErrorKind::BrokenPipe => Err(Asked::File {
            path: path.to_owned(),
            source,
        }),
        _ => Ok(()),
    }
}

/// A document as JSON, for people and programs.
pub(super) fn json(document: &impl serde::Serialize) -> Result<String, Stopped> {
    let mut text = serde_json::to_string_pretty(document).into_diagnostic()?;
    text.push('\n');
    Ok(text)
}

/// A file has no colours.
fn strip(text: &str) -> String {
    anstream::adapter::strip_str(text).to_string()
}

/// What a judged report calls for. Says so where only `--deny-warnings` makes a failure of it: the report itself shows warnings.
pub(super) fn exit_of_judged(report: &Report, deny_warnings: bool) -> Exit {
    let exit = Exit::of_judged(report, deny_warnings);
    if exit != Exit::of_judged(report, false) {
        terminal::remark("failed: --deny-warnings makes each warning a failure");
    }
    exit
}
