//! `cargo vram fit`: finds the largest input that trains on a GPU, or the GPUs that a model fits on.

mod advise;

use std::cell::Cell;
use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};

use camino::Utf8PathBuf;
use clap::Args;
use miette::Diagnostic;
use thiserror::Error;

use super::exit::{Exit, with_exit_codes};
use super::options::{ArchiveOptions, Format, InputOptions, OutputOptions, Packages, Running};
use super::terminal;
use crate::budget::{Percent, parse_percent};
use crate::bytes::Bytes;
use crate::cli::error::{CliError, ExitCoded};
use crate::cli::session::FinishedCases;
use crate::cli::session::cases;
use crate::cli::session::what_if::WhatIfs;
use crate::cli::session::{self, Context, Models};
use crate::driver::DriverLibrary;
use crate::fit::{FIT_VERSION, FitAnswer as Answer, GpuFit, Probe, Range, SearchEnd, TriedValue};
use crate::gpu::Profile;
use crate::recording::Recordings;
use crate::render;
use crate::report::{ErrorCode, Run, RunGpu};
use crate::run::{Case, CaseLaunches, Hardware, plan};
use crate::untrusted::{Foreign, PlainName, named};
use crate::workspace::WHAT_IF;

/// Find what fits: the largest batch on a GPU, or the GPUs for a batch
///
/// With --gpu, searches for the largest `batch_size` with which a model runs on that GPU, cold and warm (--vary chooses
/// another input). Without --gpu, shows for every GPU whether the model fits, and how much memory is left or missing.
///
/// All values are estimates on virtual GPUs. No GPU is needed.
#[derive(Debug, Args)]
#[command(mut_arg("model", |model| model.hide(true)))]
#[command(mut_arg("gpu", |gpu| gpu
    .help("Find what fits on this GPU, such as `l4`, or on `all`")
    .long_help("Find what fits on this GPU, such as `l4`, or on `all`\n\n`cargo vram gpus` lists the ids.")
))]
#[command(override_usage = "cargo vram fit [OPTIONS] <MODEL>")]
#[command(after_long_help = with_exit_codes("\
Examples:
  cargo vram fit resnet18 --gpu l4
      find the largest batch that trains on an L4
  cargo vram fit resnet18 --gpu l4 --warm
      the same, once the autotune choices are cached
  cargo vram fit resnet18 --gpu l4 --headroom 10%
      the same, with a tenth of the GPU left free
  cargo vram fit transformer --gpu h200 --vary seq_len
      find the largest value of another input
  cargo vram fit resnet18 --gpu l4 --vary image_size --multiple-of 32 \\
      --set batch_size=64
  cargo vram fit resnet18 --set batch_size=64
      show which GPUs are large enough, the smallest first
  cargo vram fit resnet18 --gpu t4 --set batch_size=256 --advise
      find changes that make the model fit
  cargo vram fit resnet18 --gpu all --vary batch_size
      find the largest batch on every GPU
  cargo vram fit resnet18 --gpu l4 --dtype f32,f16
      compare f32 with f16
  cargo vram fit resnet18 --gpu l4 --svg fit.svg
      also draw the peaks by batch size"))]
pub(super) struct FitCommand {
    /// The model, as its name or package/name
    #[arg(value_name = "MODEL", required_unless_present = "model", conflicts_with = "model")]
    fitted: Option<String>,
    #[command(flatten)]
    inputs: InputOptions,
    /// Vary this input [default: batch_size, if --gpu names one GPU]
    #[arg(long, value_name = "INPUT", help_heading = "Selection")]
    vary: Option<String>,
    /// Search these values, such as `1..4096`
    #[arg(
        long,
        value_name = "FROM..TO",
        value_parser = range,
        default_value = "1..1048576",
        help_heading = "Selection"
    )]
    range: (u64, u64),
    /// Search only multiples of this number, such as 32 for image sizes
    #[arg(
        long,
        value_name = "N",
        default_value_t = 1,
        value_parser = clap::value_parser!(u64).range(1..=1 << 20),
        help_heading = "Selection"
    )]
    multiple_of: u64,
    /// Try changes until the model fits, those that cost the least speed first
    ///
    /// The command tries each change alone, and then several together. With Burn 0.21, it builds the models with other
    /// features of cargo-vram, which takes 10 seconds to 2 minutes per build the first time.
    #[arg(
        long,
        conflicts_with_all = [
            "vary", "range", "multiple_of", "svg", "optimizer", "dtype", "accumulate", "infer", "checkpointing",
            "no_fusion",
        ],
        help_heading = "What-if"
    )]
    advise: bool,
    #[command(flatten)]
    what_ifs: WhatIfs,
    #[command(flatten)]
    running: Running,
    /// Leave this share of the GPU's memory free
    #[arg(long, value_name = "PERCENT", default_value = "0%", value_parser = percent, help_heading = "GPU")]
    headroom: Percent,
    /// Ignore the first launch, in which autotune tries kernels
    ///
    /// The answer is then what fits once the autotune choices are cached.
    #[arg(long, help_heading = "Run")]
    warm: bool,
    /// Draw the peaks by input, with the GPU's memory as a line, into this SVG file
    #[arg(long, value_name = "FILE", help_heading = "Output")]
    svg: Option<Utf8PathBuf>,
    #[command(flatten)]
    output: OutputOptions,
    #[command(flatten)]
    archive: ArchiveOptions,
    #[command(flatten)]
    packages: Packages,
}

/// Why the command did not search.
#[derive(Debug, Error, Diagnostic)]
pub(super) enum FitError {
    /// The name matches several models.
    #[error("`{0}` matches several models: {1}")]
    #[diagnostic(
        code(fit::several),
        help("name one of them; use `package/model` if two packages have a model with the same name")
    )]
    Several(String, String),
    /// The models could not be built or listed.
    #[error("{0}")]
    #[diagnostic(code(fit::problem))]
    Problem(String, #[help] Option<String>),
    /// The model does not have this input.
    #[error("{0}")]
    #[diagnostic(code(fit::no_input))]
    NoInput(String, #[help] Option<String>),
    /// The command line both sets and varies this input.
    #[error("`{0}` is both set and varied")]
    #[diagnostic(code(fit::set_and_varied), help("remove --set, or vary another input with --vary"))]
    SetAndVaried(String),
    /// The range contains no multiple of `--multiple-of`.
    #[error("there is no value to try in {from}..{to}")]
    #[diagnostic(
        code(fit::empty_range),
        help("choose a larger --range, such as 1..4096, or a smaller --multiple-of")
    )]
    EmptyRange { from: u64, to: u64 },
}

impl ExitCoded for FitError {
    fn exit(&self) -> Exit {
        match self {
            Self::Problem(..) => Exit::Incomplete,
            Self::Several(..) | Self::NoInput(..) | Self::SetAndVaried(_) | Self::EmptyRange { .. } => Exit::Unusable,
        }
    }
}

impl FitCommand {
    pub(super) fn run(&self) -> Result<Exit, CliError> {
        let vary = self.varied()?;
        let running = self.running();
        // With Burn 0.21, other optimizers need this feature in the models. See docs/design/what-if.md.
        let packages = match self.advise {
            true => self.packages.with_feature(WHAT_IF),
            false => self.what_ifs.packages(&self.packages),
        };
        let prepared = &session::prepare(&packages, self.archive.file(), running.budgets.as_deref())?;
        let context = &Context {
            prepared,
            packages: &packages,
            running: &running,
        };
        let profiles = self.profiles(context, vary.as_deref())?;
        let folder = prepared.source.scratch(running.keep.as_deref())?;
        let models = session::models(context, folder.path())?;
        let case = self.case(context, &models, &profiles[0])?;

        let plan = Searches {
            driver: prepared.source.driver()?,
            recordings: session::recordings(&running)?,
            context,
            folder: folder.path(),
            headroom: self.headroom,
            warm: self.warm,
        };
        // The builds of what-ifs add their features to what the user selected.
        let own = &Context {
            packages: &self.packages,
            ..*context
        };
        let gpus = match self.advise {
            true => advise::advise(&case, &profiles[0], &plan, own)?,
            false => self.search(&case, &profiles, vary.as_deref(), &plan, own)?,
        };

        let mut inputs = case.plain_inputs();
        let varied = vary.as_deref().map(PlainName::escaped);
        inputs.retain(|name, _| Some(name) != varied.as_ref());
        let report = session::report(None, context, &models, Vec::new());
        let answer = Answer {
            version: FIT_VERSION,
            tool: report.tool,
            commit: report.commit,
            package: case.model.built.target.package.clone(),
            model: PlainName::escaped(case.name()),
            inputs,
            vary: varied,
            warm_only: self.warm,
            headroom: self.headroom.to_string().into(),
            advised: self.advise,
            gpus,
        };
        self.show(&answer)?;
        Ok(exit(&answer))
    }

    fn is_of_every_gpu(&self) -> bool {
        self.running.gpu == ["all"]
    }

    /// Returns the input to vary, if any.
    fn varied(&self) -> Result<Option<String>, FitError> {
        let vary = match (&self.vary, self.running.gpu.first()) {
            (Some(input), _) => Some(input.clone()),
            (None, Some(_)) if !self.is_of_every_gpu() && !self.advise => Some("batch_size".to_owned()),
            (None, _) => None,
        };
        match vary {
            Some(input) if self.inputs.values().contains_key(&input) => Err(FitError::SetAndVaried(input)),
            vary => Ok(vary),
        }
    }

    /// Returns the options with the named model. `--gpu all` becomes an empty list of GPUs.
    fn running(&self) -> Running {
        Running {
            model: self.fitted.iter().chain(&self.running.model).cloned().collect(),
            gpu: match self.is_of_every_gpu() {
                true => Vec::new(),
                false => self.running.gpu.clone(),
            },
            ..self.running.clone()
        }
    }

    /// Returns the GPUs to try: all of them, the smallest first, or the one of `--gpu` or budgets.yaml.
    fn profiles(&self, context: &Context<'_>, vary: Option<&str>) -> Result<Vec<Profile>, CliError> {
        let &Context { prepared, running, .. } = context;
        // With neither a GPU nor an input to vary, the question is which GPUs suffice.
        let is_open = vary.is_none() && running.gpu.is_empty() && !self.advise;
        if !self.is_of_every_gpu() && !is_open {
            return Ok(vec![cases::declared_gpu(prepared, running)?.clone()]);
        }
        let mut all: Vec<_> = prepared.profiles.iter().cloned().collect();
        all.sort_by(|one, other| (one.total.value, &one.id).cmp(&(other.total.value, &other.id)));
        Ok(all)
    }

    /// Returns the case of the one model that the command line names.
    fn case(&self, context: &Context<'_>, models: &Models, gpu: &Profile) -> Result<Case, CliError> {
        if let (true, Some(problem)) = (models.selected.is_empty(), models.problems.first()) {
            let (message, help) = problem.clone().into_raw();
            return Err(FitError::Problem(message, help).into());
        }
        let &Context { prepared, running, .. } = context;
        let mut found = cases::cases(prepared, models, running, &self.inputs.values(), gpu)?;
        // A model's name selects all of its budgets. The one with exactly this name is meant.
        session::prefer_exact(&mut found, self.fitted.as_deref().unwrap_or_default());
        match found.as_slice() {
            [one] => Ok(one.clone()),
            several => {
                let names: Vec<_> = several.iter().map(Case::full_name).collect();
                Err(FitError::Several(running.model.join(", "), names.join(", ")).into())
            }
        }
    }

    /// Tries the model, or each of its what-ifs, on each GPU.
    fn search(
        &self,
        case: &Case,
        profiles: &[Profile],
        vary: Option<&str>,
        plan: &Searches<'_>,
        context: &Context<'_>,
    ) -> Result<Vec<GpuFit>, CliError> {
        let (from, to) = self.range;
        let (otherwise, problems) = self.what_ifs.cases(std::slice::from_ref(case), context, plan.folder)?;
        if let Some(problem) = problems.first() {
            let (message, help) = problem.clone().into_raw();
            return Err(FitError::Problem(message, help).into());
        }
        let mut tried: Vec<Case> = otherwise.into_iter().flatten().collect();
        if tried.is_empty() {
            tried.push(case.clone());
        }
        let mut gpus = Vec::new();
        for (number, case) in tried.into_iter().enumerate() {
            let search = plan.search(number, case);
            match vary {
                Some(input) => gpus.extend(search.searched(profiles, input, (from, to, self.multiple_of))?),
                None => gpus.extend(search.table(profiles)?.into_iter().map(|(gpu, _)| gpu)),
            }
        }
        Ok(gpus)
    }

    fn show(&self, answer: &Answer) -> Result<(), CliError> {
        let table = render::terminal::fit::render(answer, terminal::is_quiet());
        let text = match self.output.message_format {
            Format::Human => table.clone(),
            Format::Json => session::json(answer)?,
        };
        if self.output.output.is_some() {
            terminal::show(&table);
        }
        session::put(&text, self.output.message_format, self.output.output.as_deref())?;
        if let Some(path) = &self.svg {
            session::put(
                &render::svg::fit::render(answer),
                session::Audience::Programs,
                Some(path),
            )?;
        }
        Ok(())
    }
}

/// Returns the exit code: success if anything fits, incomplete if nothing could run, over budget otherwise.
fn exit(answer: &Answer) -> Exit {
    let fits = |gpu: &GpuFit| gpu.probes.iter().any(|probe| probe.fits);
    // If nothing ran, the search says nothing about memory, and must not look like a GPU that is too small.
    let broken = |gpu: &GpuFit| gpu.probes.iter().all(|probe| probe.error.is_some());
    if answer.gpus.iter().any(fits) {
        Exit::Success
    } else if answer.gpus.iter().all(broken) {
        Exit::Incomplete
    } else {
        Exit::OverBudget
    }
}

/// What all searches of a command share.
struct Searches<'a> {
    driver: DriverLibrary,
    recordings: Recordings,
    context: &'a Context<'a>,
    folder: &'a Path,
    headroom: Percent,
    /// Whether to ignore the first launch.
    warm: bool,
}

impl Searches<'_> {
    fn search(&self, number: usize, case: Case) -> Search<'_> {
        Search {
            plan: self,
            folder: self.folder.join(format!("fit-{number}")),
            case,
            rounds: Cell::new(0),
        }
    }
}

/// The search for one model: runs it with different values.
struct Search<'a> {
    plan: &'a Searches<'a>,
    folder: PathBuf,
    case: Case,
    /// The number of rounds so far. Each has its own folder.
    rounds: Cell<u32>,
}

impl Search<'_> {
    /// Returns how much of the GPU's memory a process may hold: the total without the headroom.
    fn room(&self, gpu: &Profile) -> Bytes {
        let total = gpu.total.value;
        Bytes(total.0 - self.plan.headroom.of(total).0)
    }

    fn case(&self, gpu: &Profile, value: Option<(&str, u64)>) -> Case {
        let mut case = self.case.clone();
        case.profile = cases::estimated(gpu, &self.plan.recordings);
        case.inputs
            .extend(value.map(|(input, value)| (input.to_owned(), value)));
        case
    }

    fn run(&self, cases: &[Case], doing: String) -> Result<FinishedCases, CliError> {
        let round = self.rounds.replace(self.rounds.get() + 1);
        let on = session::RunSetup {
            // The search goes by reserved memory, which the driver records in any pass.
            // See docs/design/fit.md.
            observed: false,
            doing: Some(doing),
            ..session::RunSetup::new(
                &self.plan.driver,
                Hardware::Virtual,
                self.plan.recordings.clone(),
                self.folder.join(format!("round-{round}")),
            )
        };
        let ran = session::run(cases, self.plan.context, on)?;
        refused(&ran.runs)?;
        Ok(ran)
    }

    /// Runs the model on each GPU with unchanged inputs. Returns each answer with its run.
    fn table(&self, profiles: &[Profile]) -> Result<Vec<(GpuFit, Run)>, CliError> {
        let cases: Vec<_> = profiles.iter().map(|gpu| self.case(gpu, None)).collect();
        let doing = match profiles {
            [gpu] => format!("trying {} on {}", self.case.what_if.of(self.case.name()), gpu.id),
            gpus => format!("trying {} on {} GPUs", self.case.name(), gpus.len()),
        };
        let runs = self.run(&cases, doing.clone())?.runs;
        let mut gpus: Vec<_> = profiles
            .iter()
            .zip(&runs)
            .map(|(gpu, run)| {
                let room = self.room(gpu);
                GpuFit {
                    gpu: run.gpu.clone(),
                    what_if: run.what_if.clone(),
                    room,
                    largest: None,
                    too_large: None,
                    ended: SearchEnd::Found,
                    not_monotonic: Vec::new(),
                    probes: vec![Probe::from_run(None, run, room, self.plan.warm)],
                }
            })
            .collect();
        // A run that ends out of memory does not show how much it needs. A run with unlimited memory does.
        let full: Vec<_> = (0..gpus.len()).filter(|&at| gpus[at].probes[0].out_of_memory).collect();
        let endless = |&at: &usize| Case {
            endless: true,
            ..cases[at].clone()
        };
        let again: Vec<_> = full.iter().map(endless).collect();
        let doing = format!("{doing} with unlimited memory");
        let runs_again = match again.is_empty() {
            true => Vec::new(),
            false => self.run(&again, doing)?.runs,
        };
        for (at, run) in full.into_iter().zip(runs_again) {
            let room = gpus[at].room;
            gpus[at].probes[0].tell(&run, room, self.plan.warm);
        }
        Ok(gpus.into_iter().zip(runs).collect())
    }

    /// Finds the largest value that fits on each GPU.
    fn searched(
        &self,
        profiles: &[Profile],
        input: &str,
        (from, to, multiple_of): (u64, u64, u64),
    ) -> Result<Vec<GpuFit>, CliError> {
        let start = self.case.inputs.get(input).copied();
        let mut gpus = Vec::new();
        for gpu in profiles {
            let range = Range {
                values: from..=to,
                multiple_of,
                start: start.unwrap_or(32),
                room: self.room(gpu),
            };
            if range.first() > range.last() {
                return Err(FitError::EmptyRange { from, to }.into());
            }
            gpus.push(self.gpu(gpu, input, &range)?);
        }
        Ok(gpus)
    }

    /// Finds the largest value that fits on one GPU.
    fn gpu(&self, gpu: &Profile, input: &str, range: &Range) -> Result<GpuFit, CliError> {
        let mut search = Searched {
            search: self,
            profile: gpu,
            input,
            room: range.room,
            probes: BTreeMap::new(),
            tuned: BTreeMap::new(),
            replayed: BTreeMap::new(),
            own: BTreeMap::new(),
            gpu: None,
            deciding: DecidingLaunches::Later,
        };
        let jobs = self.plan.context.running.jobs();
        loop {
            // Predictions only choose the next values. The loop ends with two neighbours that were both run.
            let next = range.next(&search.tried(), jobs);
            // A job without another value to try completes the largest value that fits so far.
            let unsettled = search.unsettled().filter(|_| next.len() < jobs);
            if next.is_empty() && unsettled.is_none() {
                break;
            }
            search.probe(&next, unsettled)?;
        }
        let Searched { probes, gpu, .. } = search;
        let (largest, too_large) = boundary(&probes);
        let fits = |(value, probe): (&u64, &Probe)| (probe.fits && !probe.first_only).then_some(*value);
        // Reserved memory sometimes falls, so a value above one that fails may fit.
        let smallest_full = probes.iter().find(|(_, probe)| !probe.fits && probe.error.is_none());
        let not_monotonic =
            smallest_full.map_or_else(Vec::new, |(full, _)| probes.range(full..).filter_map(fits).collect());
        let ended = match (largest, too_large) {
            (Some(largest), None) if largest == range.last() => SearchEnd::EndOfRange,
            (Some(largest), Some(too_large)) if too_large == largest + range.multiple_of => SearchEnd::Found,
            (None, Some(too_large)) if too_large == range.first() => SearchEnd::NothingFits,
            _ => SearchEnd::CannotBeRun,
        };
        Ok(GpuFit {
            gpu: gpu.ok_or(FitError::Problem("no value was run".to_owned(), None))?,
            what_if: self.case.what_if.clone(),
            room: range.room,
            largest,
            too_large,
            ended,
            not_monotonic,
            probes: probes.into_values().collect(),
        })
    }
}

/// Returns an error if a run failed because the model does not have the input: the search cannot continue.
fn refused(runs: &[Run]) -> Result<(), CliError> {
    let mut errors = runs.iter().filter_map(|run| run.error.as_ref());
    match errors.find(|error| error.code == ErrorCode::UnknownInput) {
        Some(error) => Err(FitError::NoInput(
            error.message.raw().to_owned(),
            error.help.clone().map(Foreign::into_raw),
        )
        .into()),
        None => Ok(()),
    }
}

/// The search on one GPU.
struct Searched<'a> {
    search: &'a Search<'a>,
    profile: &'a Profile,
    input: &'a str,
    room: Bytes,
    probes: BTreeMap<u64, Probe>,
    /// The folders with the autotune choices of complete cold passes, by the end of the range that they are valid for.
    tuned: BTreeMap<u64, PathBuf>,
    /// The folders with the autotune choices that each value replayed.
    replayed: BTreeMap<u64, PathBuf>,
    /// The folders with the autotune choices of each value that ran only as a first launch.
    own: BTreeMap<u64, PathBuf>,
    gpu: Option<RunGpu>,
    deciding: DecidingLaunches,
}

/// The launches that decide where the search goes on.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum DecidingLaunches {
    /// Later launches, until the first launch of the answer does not fit.
    Later,
    /// First launches, until the later launches of the answer do not fit.
    First,
    /// Both.
    Both,
}

impl Searched<'_> {
    fn tried(&self) -> BTreeMap<u64, TriedValue> {
        let tried = self.probes.iter();
        tried
            .map(|(value, probe)| (*value, probe.tried(self.room, self.deciding == DecidingLaunches::Later)))
            .collect()
    }

    /// Returns the largest value that fits, with the launches that it still has to run.
    fn unsettled(&self) -> Option<(u64, CaseLaunches)> {
        let value = boundary(&self.probes).0?;
        let probe = &self.probes[&value];
        if probe.first_only {
            return Some((value, CaseLaunches::Later(self.own[&value].clone())));
        }
        // A value that replayed choices has run only warm. Its first launch tries kernels, and may need more.
        let needs_first = probe.shares_plan && !self.search.plan.warm;
        needs_first.then(|| (value, self.first_launch()))
    }

    /// Returns the launches that show whether the first launch of a value fits.
    fn first_launch(&self) -> CaseLaunches {
        let recordings = &self.search.plan.recordings;
        let gpu = self.profile;
        match recordings.for_estimate(&gpu.id, gpu.like.as_deref()) {
            // The recording may have choices for exactly this value, so its later launches are not known.
            Some(_) => CaseLaunches::All,
            None => CaseLaunches::First,
        }
    }

    /// Runs the values, and the launches that `unsettled` still needs. A value replays the autotune choices of a value
    /// in the same range if there are any.
    fn probe(&mut self, values: &[u64], unsettled: Option<(u64, CaseLaunches)>) -> Result<(), CliError> {
        let mut asked: Vec<(u64, CaseLaunches)> = Vec::new();
        for &value in values {
            let range = range_of_choices(value);
            let launches = match (self.deciding, self.tuned.get(&range)) {
                (DecidingLaunches::First, _) => self.first_launch(),
                (DecidingLaunches::Both, _) => CaseLaunches::All,
                (DecidingLaunches::Later, Some(plan)) => CaseLaunches::Later(plan.clone()),
                // One value per range makes the choices. The other values of the range wait for them.
                (DecidingLaunches::Later, None) if asked.iter().any(|(other, _)| range_of_choices(*other) == range) => {
                    continue;
                }
                (DecidingLaunches::Later, None) => CaseLaunches::All,
            };
            asked.push((value, launches));
        }
        let completed = unsettled.as_ref().map(|(value, _)| *value);
        asked.extend(unsettled);
        self.run(asked)?;
        // If these launches do not fit, those of other values may not fit either. Such values must run again.
        if completed.is_some_and(|value| !self.probes[&value].fits) {
            self.deciding = match self.deciding {
                DecidingLaunches::Later => DecidingLaunches::First,
                DecidingLaunches::First | DecidingLaunches::Both => DecidingLaunches::Both,
            };
            self.probes
                .retain(|_, probe| !(probe.fits && (probe.shares_plan || probe.first_only)));
        }
        Ok(())
    }

    fn run(&mut self, asked: Vec<(u64, CaseLaunches)>) -> Result<(), CliError> {
        // Burn 0.22 frees memory when an allocation is refused, so it needs the limit. On an L4, a batch of
        // 46,000 ran, and a search without the limit found 42,988.
        let ends = self.search.case.model.built.target.retries_allocations();
        let case = |(value, launches): &(u64, CaseLaunches)| Case {
            launches: launches.clone(),
            // A first launch adapts to the free memory, so it needs the real limit.
            endless: matches!(launches, CaseLaunches::Later(_)) && !ends,
            ..self.search.case(self.profile, Some((self.input, *value)))
        };
        let cases: Vec<Case> = asked.iter().map(case).collect();
        let ran = self.search.run(&cases, self.doing(&asked))?;
        let mut again = Vec::new();
        let came = ran.runs.iter().zip(ran.choices).zip(ran.unplanned);
        for ((value, launches), ((run, choices), unplanned)) in asked.into_iter().zip(came) {
            let probe = |warm_only| Probe::from_run(Some(value), run, self.room, warm_only);
            let probe = match (launches, self.probes.get(&value)) {
                // The replayed choices lacked some that this value needs, so it runs completely.
                (CaseLaunches::Later(_), _) if unplanned > 0 => None,
                // The choices of the value's own first launch.
                (CaseLaunches::Later(_), Some(first)) if first.first_only => Some(probe(true).with_first(first)),
                (CaseLaunches::Later(plan), _) => {
                    let probe = probe(true);
                    self.replayed.insert(value, plan);
                    Some(Probe {
                        shares_plan: true,
                        ..probe
                    })
                }
                (CaseLaunches::First, Some(later)) => {
                    let first = later.with_first(&probe(false));
                    // This launch may make other choices than the replayed ones, if its candidates had less free
                    // memory.
                    let is_known = !first.fits || self.replays(value, &choices);
                    is_known.then_some(first)
                }
                (CaseLaunches::First, None) => {
                    self.own.insert(value, choices);
                    let probe = probe(false);
                    Some(Probe {
                        first_only: probe.fits,
                        ..probe
                    })
                }
                (CaseLaunches::All, _) => {
                    let probe = probe(self.search.plan.warm);
                    // A pass that ended early did not make all of its choices.
                    if run.error.is_none() && run.oom.is_none() {
                        self.tuned.insert(range_of_choices(value), choices);
                    }
                    Some(probe)
                }
            };
            match probe {
                Some(probe) => self.add(value, run, probe),
                None => again.push((value, CaseLaunches::All)),
            }
        }
        if !again.is_empty() {
            self.run(again)?;
        }
        Ok(())
    }

    /// Returns the progress message: the values and the GPU.
    fn doing(&self, asked: &[(u64, CaseLaunches)]) -> String {
        let values: BTreeSet<u64> = asked.iter().map(|(value, _)| *value).collect();
        let values: Vec<_> = values.iter().map(u64::to_string).collect();
        format!(
            "trying {} {} on {}, {} tried before",
            named(self.input),
            values.join(" and "),
            named(&self.profile.id),
            self.probes.len(),
        )
    }

    /// Whether a value replayed the same choices that its own first launch made.
    fn replays(&self, value: u64, own: &Path) -> bool {
        let replayed = self.replayed.get(&value);
        replayed.is_some_and(|replayed| plan::agree(own, replayed).unwrap_or(false))
    }

    fn add(&mut self, value: u64, run: &Run, probe: Probe) {
        self.gpu.get_or_insert_with(|| run.gpu.clone());
        self.probes.insert(value, probe);
    }
}

/// Returns the end of the range of sizes that share autotune choices. Autotune's ranges end at powers of two.
const fn range_of_choices(value: u64) -> u64 {
    value.next_power_of_two()
}

/// Returns the largest value that fits, and the smallest tried value above it that does not fit.
fn boundary(probes: &BTreeMap<u64, Probe>) -> (Option<u64>, Option<u64>) {
    // From above: of two values that fit, the larger one is the answer, even if one between them fails.
    let largest = probes
        .iter()
        .rev()
        .find(|(_, probe)| probe.fits)
        .map(|(value, _)| *value);
    let too_large = probes
        .range(largest.map_or(0, |largest| largest + 1)..)
        .find(|(_, probe)| !probe.fits && probe.error.is_none());
    (largest, too_large.map(|(value, _)| *value))
}

fn range(text: &str) -> Result<(u64, u64), String> {
    let expected = || "expected the smallest and the largest value, such as 1..4096".to_owned();
    let (from, to) = text.split_once("..").ok_or_else(expected)?;
    let number = |text: &str| text.trim().parse::<u64>().map_err(|_| expected());
    match (number(from)?, number(to)?) {
        (0, _) => Err("the range must start at 1 or more".to_owned()),
        (from, to) if from > to => Err(format!("{from}..{to} is reversed: write the smallest value first")),
        range => Ok(range),
    }
}

fn percent(text: &str) -> Result<Percent, String> {
    parse_percent(text)
        .filter(|percent| *percent < Percent::from_percent(100))
        .ok_or_else(|| "expected a percentage below 100, such as 5%".to_owned())
}
