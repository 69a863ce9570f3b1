//! `cargo vram check`: compares the models with their budgets and baselines, and fails if one needs too much.

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};

use clap::Args;
use miette::Diagnostic;
use thiserror::Error;

use super::exit::{Exit, with_exit_codes};
use super::options::{ArchiveOptions, Packages, ReportOutput, Running};
use super::terminal::Progress;
use super::{terminal, timings};
use crate::baseline::BaselineFile;
use crate::budget::{self, BudgetError, Budgets, DeclaredModel};
use crate::cli::error::{CliError, ExitCoded};
use crate::cli::session::Models;
use crate::cli::session::Prepared;
use crate::cli::session::base::BaseRevision;
use crate::cli::session::cases;
use crate::cli::session::real_gpu::{self, Measuring, Taken};
use crate::cli::session::why;
use crate::cli::session::{self, Context, TableSetup};
use crate::driver::DriverLibrary;
use crate::gpu::{self, Profile};
use crate::recording::Recordings;
use crate::report::{
    BaselineFrom, ErrorCode, ExpectedVerdict, Mode, Report, Rule, Run, Skipped, SkippedCheck, Status, Verdict,
    WrittenBy,
};
use crate::run::{Case, Hardware, Listed};
use crate::untrusted::PlainName;

/// Check models against budgets.yaml
///
/// Estimates every model with the inputs of its budget, on the GPU that the budgets are for. Fails if a value exceeds
/// its limit or if the GPU has too little memory.
///
/// If this machine has a GPU, the models are also measured on it. The measurements are compared with the limits for
/// that GPU and with estimates for that GPU (`drift`).
#[derive(Debug, Args)]
#[command(after_long_help = with_exit_codes("\
Examples:
  cargo vram check                        check every model
  cargo vram check -m resnet18            check one model
  cargo vram check --gpu l4,h200          check every model on two GPUs, each
                                          with its own limits
  cargo vram check --partition hash:1/4   check a quarter of the models, in one
                                          job of a CI matrix
  cargo vram check --message-format json -o report.json
  cargo vram check --measure              fail if no GPU can be measured
  cargo vram check --base origin/main     also show what a branch changes, and
                                          which limits it edits
  cargo vram check --base origin/main --rebuild
                                          the same, without any budgets.lock
  cargo vram check --base origin/main --why
                                          also name the lines that made failed
                                          models grow
  cargo vram check --require-baseline     fail if a model has no baseline
  cargo vram check --archive-file zoo-vram.tar.zst
                                          check without Rust and without source"))]
pub(super) struct CheckCommand {
    #[command(flatten)]
    running: Running,
    /// Only estimate, even if this machine has a GPU
    #[arg(long, conflicts_with_all = ["measure", "device", "exclusive"], help_heading = "GPU")]
    estimate: bool,
    /// Measure on this machine's GPU, and fail if that is impossible
    #[arg(long, help_heading = "GPU")]
    measure: bool,
    #[command(flatten)]
    measuring: Measuring,
    /// Run models whose values may differ this often, and check the largest value
    ///
    /// These are the models whose budget says `nondeterministic: allowed`.
    #[arg(
        long,
        value_name = "N",
        default_value_t = session::REPEAT,
        value_parser = clap::value_parser!(u32).range(1..=1000),
        help_heading = "Run"
    )]
    repeat: u32,
    /// Show what changed since this git revision, such as origin/main
    ///
    /// The base is the last commit that the revision and HEAD have in common. The report also lists every limit that
    /// was edited since then.
    #[arg(long, value_name = "REV", help_heading = "Baseline")]
    base: Option<String>,
    /// Build and run the base's models, and compare with them instead of budgets.lock
    #[arg(long, requires = "base", help_heading = "Baseline")]
    rebuild: bool,
    /// Find the source lines that made failed models grow
    ///
    /// Explains each model whose growth, budget or leak check failed, here and at the base, and compares the two. If
    /// none failed, this builds nothing.
    #[arg(long, requires = "base", help_heading = "Baseline")]
    why: bool,
    /// Fail if the change loosens its own limits
    ///
    /// Such edits raise or remove a limit, enlarge a GPU profile, or accept a worse baseline. Needs --base, or an
    /// archive that was packed with --base.
    #[arg(long, help_heading = "Baseline")]
    deny_edits: bool,
    /// Treat warnings as failures
    ///
    /// Examples of warnings are a model without a budget and a GPU without limits.
    #[arg(long, help_heading = "Baseline")]
    deny_warnings: bool,
    /// Fail if a model has no baseline to compare with
    #[arg(long, help_heading = "Baseline")]
    require_baseline: bool,
    /// Fail if an estimate differs from its baseline by a single byte
    ///
    /// This makes sure that budgets.lock is never out of date.
    #[arg(long, help_heading = "Baseline")]
    exact: bool,
    /// Refuse inputs, because each budget has its own
    #[arg(long = "set", hide = true, help_heading = "Selection")]
    set: Vec<String>,
    /// Refuse to accept values (`cargo vram bless` does)
    #[arg(long, hide = true, help_heading = "Baseline")]
    bless: bool,
    #[command(flatten)]
    output: ReportOutput,
    #[command(flatten)]
    archive: ArchiveOptions,
    #[command(flatten)]
    packages: Packages,
}

#[derive(Debug, Error, Diagnostic)]
enum CheckError {
    #[error("`check` does not support --set, because each budget has its own inputs")]
    #[diagnostic(
        code(cli::set),
        help("write the inputs into the budget (`inputs: {{ batch_size: 64 }}`), or run `cargo vram estimate --set`")
    )]
    Set,
    #[error("`check` does not support --bless, because it never accepts values")]
    #[diagnostic(
        code(cli::bless),
        help(
            "run `cargo vram bless` to accept the current values as the baseline, or `cargo vram bless -m MODEL` for \
             one model"
        )
    )]
    Bless,
    #[error("--deny-edits needs a base to compare the limits with")]
    #[diagnostic(
        code(cli::deny_edits),
        help("add `--base origin/main`; for an archive, pack it with `cargo vram archive --base origin/main`")
    )]
    NoBase,
}

impl ExitCoded for CheckError {
    fn exit(&self) -> Exit {
        match self {
            Self::Set | Self::Bless | Self::NoBase => Exit::Unusable,
        }
    }
}

impl CheckCommand {
    pub(super) fn run(&self) -> Result<Exit, CliError> {
        self.refuse_other_commands_options()?;
        let prepared = &session::prepare(&self.packages, self.archive.file(), self.running.budgets.as_deref())?;
        let Some(budgets) = &prepared.budgets else {
            return Err(prepared.source.no_budgets().into());
        };
        let context = &Context {
            prepared,
            packages: &self.packages,
            running: &self.running,
        };
        // Both are read before the models are built, so that the user sees mistakes in them at once.
        let lock = AcceptedValues::load(prepared)?;
        let mut base = self.base(prepared)?;
        let gpus = self.gpus(context)?;
        let folder = prepared.source.scratch(self.running.keep.as_deref())?;
        let models = session::models(context, folder.path())?;
        let scope = self.scope(prepared, &models);
        // Names are known before the models run, so a misspelled one need not cost all their passes.
        budgets.check_models(&declared(&models, &[]), scope.knows_all)?;

        let runs = gpus.run(context, &models, folder.path())?;
        let mut report = session::report(Some(WrittenBy::Check), context, &models, runs);
        report.expected_verdicts = self.expected_verdicts(context, &models, &gpus.declared)?;
        set_aside(&mut report);
        // The base's models run on the same GPUs, in the same way. So only the change itself can differ.
        if let Some(base) = base.as_mut().filter(|_| self.rebuild) {
            base.rebuild(context, &mut report, |there| {
                gpus.report(there, &folder.path().join("base"))
            })?;
        }

        self.judge(&mut report, budgets, context, &lock, base.as_ref(), scope);
        gpus.keep_own_verdicts(&mut report);
        if let Some(base) = base.as_mut().filter(|_| self.why) {
            why::explain_growth(context, base, &mut report)?;
        }
        if let Some(base) = base {
            // An edited limit is one failure, whatever the number of GPUs. It is listed under the first one.
            let first = gpus.declared.first().map(|gpu| gpu.id.as_str());
            let denies = first.filter(|_| self.deny_edits);
            let own = (budgets, prepared.budgets_name.as_str());
            base.tell(
                &mut report,
                own,
                (&lock.file, lock.name.as_str()),
                scope.is_of_all,
                denies,
            );
        }
        let headline = gpus.headline(&prepared.budgets_name);
        // Only the runs show which inputs a model has. The error points at the unknown input in budgets.yaml.
        let inputs = budgets.check_models(&declared(&models, &report.runs), scope.knows_all);
        let table = TableSetup {
            headline: &headline,
            judged: true,
            located_inputs: inputs
                .as_ref()
                .err()
                .map(|error| located_inputs(&report, budgets, error))
                .unwrap_or_default(),
        };
        session::write(&mut report, &self.output, table, &prepared.source)?;
        inputs?;
        Ok(session::exit_of_judged(&report, self.deny_warnings))
    }

    /// Refuses options of other commands, with advice on what to run instead.
    fn refuse_other_commands_options(&self) -> Result<(), CheckError> {
        match (self.set.is_empty(), self.bless) {
            (false, _) => Err(CheckError::Set),
            (_, true) => Err(CheckError::Bless),
            (true, false) => Ok(()),
        }
    }

    /// Returns the base of `--base`, or the one that the archive contains.
    fn base(&self, prepared: &Prepared) -> Result<Option<BaseRevision>, CliError> {
        let base = match &self.base {
            Some(revision) => Some(BaseRevision::read(revision, prepared, self.rebuild)?),
            None => BaseRevision::brought(prepared)?,
        };
        match base.is_none() && self.deny_edits {
            true => Err(CheckError::NoBase.into()),
            false => Ok(base),
        }
    }

    /// Returns the GPUs to check the models on, and locks this machine's GPU if it is measured.
    // This runs before the models are built, so that a misspelt GPU fails at once.
    fn gpus(&self, context: &Context<'_>) -> Result<CheckedGpus, CliError> {
        let prepared = context.prepared;
        // If a GPU exists but cannot be used, the check fails. A silent estimate would hide the problem.
        let asked = self.measure || self.measuring.device.is_some() || self.measuring.exclusive;
        let measures = asked || (!self.estimate && gpu::device_node().is_some());
        // Before the survey, whose program is compiled together with the driver.
        let driver = prepared.source.driver()?;
        let declared = cases::declared_gpus(prepared, &self.running)?;
        let taken = measures
            .then(|| real_gpu::take(&self.measuring, None, &driver, &prepared.profiles))
            .transpose()
            .inspect_err(|_| terminal::remark(&self.why_measured()))?;
        Ok(CheckedGpus {
            declared: declared.into_iter().cloned().collect(),
            taken,
            estimates: self.estimate,
            recordings: session::recordings(&self.running)?,
            driver,
            repeat: self.repeat,
        })
    }

    /// Returns how much of the workspace this check covers.
    fn scope(&self, prepared: &Prepared, models: &Models) -> Scope {
        // A target that could not be built or listed may declare the model of any budget.
        let knows_all = prepared.source.is_whole() && models.problems.is_empty();
        Scope {
            knows_all,
            // A check of some models says nothing about the others. A part of a matrix lists all models.
            is_of_all: knows_all && self.running.model.is_empty(),
        }
    }

    /// Compares the runs with the budgets, with the accepted or rebuilt baseline, and with the build of the workspace's
    /// binaries. Adds the verdicts to the report.
    fn judge(
        &self,
        report: &mut Report,
        budgets: &Budgets,
        context: &Context<'_>,
        lock: &AcceptedValues,
        base: Option<&BaseRevision>,
        scope: Scope,
    ) {
        // Not the base's own `budgets.lock`: a change that accepts its growth there must pass.
        // See docs/design/base.md.
        match base.and_then(BaseRevision::rebuilt) {
            Some(base) => base.compare(report, BaselineFrom::Rebuilt),
            None => lock.file.compare(report, BaselineFrom::Lock),
        }
        let revision = base.map(BaseRevision::revision);
        let name = &context.prepared.budgets_name;
        report.verdicts = budget::judge_since(&report.runs, budgets, name, revision);
        if self.require_baseline {
            lock.require(report);
        }
        if self.exact {
            let inexact = lock.file.inexact(report, &lock.name, scope.is_of_all);
            report.verdicts.extend(inexact);
        }
        judge_builds(report, context);
        report.skipped.extend(budget::unjudged(&report.runs));
        // With --exact, these entries are failures already.
        if scope.is_of_all && !self.exact {
            lock.tell_gone(report);
        }
    }
}

/// How much of the workspace a check covers.
#[derive(Debug, Clone, Copy)]
struct Scope {
    /// Whether all declared models are known.
    knows_all: bool,
    /// Whether all declared models are known and expected: in this part, or in another one of the same check.
    is_of_all: bool,
}

/// The content of `budgets.lock`, and its name in messages.
struct AcceptedValues {
    file: BaselineFile,
    name: String,
}

impl AcceptedValues {
    fn load(prepared: &Prepared) -> Result<Self, CliError> {
        let (path, name) = prepared.lock();
        let file = BaselineFile::load(&path, &name)?.unwrap_or_default();
        Ok(Self { file, name })
    }

    /// Fails every model that has no baseline, or whose baseline lacks a value to compare with.
    fn require(&self, report: &mut Report) {
        let incomplete = report
            .verdicts
            .iter_mut()
            .filter(|verdict| verdict.rule == Rule::Baseline);
        // Otherwise these only warn.
        incomplete.for_each(|verdict| verdict.status = Status::Fail);
        let missing = self.file.missing(report, &self.name);
        report.verdicts.extend(missing);
    }

    /// Lists the entries whose models are no longer declared.
    fn tell_gone(&self, report: &mut Report) {
        let gone = self.file.gone(report).map(|key| Skipped {
            check: SkippedCheck::BaselineEntry,
            model: Some(key.full_name().into()),
            why: "the model no longer exists; run `cargo vram bless` to remove the entry".into(),
        });
        let gone: Vec<_> = gone.collect();
        report.skipped.extend(gone);
    }
}

/// Compares the Burn features of the models with those of the workspace's binaries.
fn judge_builds(report: &mut Report, context: &Context<'_>) {
    if report.runs.is_empty() {
        return;
    }
    let progress = Progress::spinner("reading how the workspace's binaries are built");
    let deployed = timings::timed("reading how the binaries are built", || {
        context.prepared.source.deployed()
    });
    drop(progress);
    match deployed {
        Ok(deployed) => {
            let verdicts = budget::judge_build(&report.runs, &deployed);
            report.verdicts.extend(verdicts);
        }
        // The models themselves ran. That Cargo cannot describe other binaries must not fail them.
        Err(error) => report.skipped.push(Skipped {
            check: SkippedCheck::BurnFeatures,
            model: None,
            why: error.to_string().replace('\n', " ").into(),
        }),
    }
}

/// Moves failed measurements of models over several GPUs to the skipped checks. Only their estimates count.
fn set_aside(report: &mut Report) {
    // `check` measures by itself if there is a GPU. A model that needs two must not fail for that.
    // See docs/design/several-gpus.md.
    let is_of_several = |run: &Run| {
        let code = run.error.as_ref().map(|error| &error.code);
        run.mode == Mode::Measure && code == Some(&ErrorCode::TooFewGpus)
    };
    let (several, runs) = std::mem::take(&mut report.runs).into_iter().partition(is_of_several);
    report.runs = runs;
    let several: Vec<Run> = several;
    report.skipped.extend(several.iter().map(|run| Skipped {
        check: SkippedCheck::Measurement,
        model: Some(run.full_name().into()),
        why: "the model runs over several GPUs, and only one real GPU can be measured at a time".into(),
    }));
}

/// The GPUs that models are checked on.
struct CheckedGpus {
    /// The GPUs of `--gpu`, or the one that the budgets are for.
    declared: Vec<Profile>,
    /// This machine's GPU, if it is measured.
    taken: Option<Taken>,
    /// Whether `--estimate` asked for estimates only.
    estimates: bool,
    recordings: Recordings,
    driver: DriverLibrary,
    /// How often a model runs if its values may differ from run to run.
    repeat: u32,
}

impl CheckedGpus {
    /// Returns the first line of the printed report.
    fn headline(&self, budgets: &str) -> String {
        let estimated = format!(
            "estimated on {}, checked against {budgets}",
            cases::virtual_gpus(&self.declared)
        );
        match &self.taken {
            Some(taken) => format!("{}; {estimated}", taken.headline()),
            None if self.estimates => estimated,
            // `check` measures if it can, so the report says why it did not.
            None => format!("no GPU found: {estimated}"),
        }
    }

    /// Builds the models, runs them and returns their report.
    fn report(&self, context: &Context<'_>, folder: &Path) -> Result<Report, CliError> {
        let models = session::models(context, folder)?;
        let runs = self.run(context, &models, folder)?;
        Ok(session::report(None, context, &models, runs))
    }

    /// Measures the models on this machine's GPU, and estimates them on the virtual GPUs.
    fn run(&self, context: &Context<'_>, models: &Models, folder: &Path) -> Result<Vec<Run>, CliError> {
        let declared = self.declared.iter();
        let declared: Vec<_> = declared.map(|gpu| cases::estimated(gpu, &self.recordings)).collect();
        let mut estimated = self.cases(context, models, &declared)?;
        let mut runs = Vec::new();
        if let Some(taken) = &self.taken {
            let measured = cases::measured(&taken.profile, &taken.real.driver, &self.recordings);
            let measured = self.cases(context, models, &[measured])?;
            // Drift compares each measurement with an estimate, by the profile that estimates for this GPU use
            // elsewhere.
            if self.declared.iter().all(|gpu| gpu.id != taken.profile.id) {
                let profiles = &context.prepared.profiles;
                let gpu = profiles.find(&taken.profile.id).unwrap_or(&taken.profile);
                estimated.extend(self.cases(context, models, &[cases::estimated(gpu, &self.recordings)])?);
            }
            let on = self.on(Hardware::Real(taken.real.clone()), folder.join("measure"));
            runs.extend(session::run(&measured, context, on)?.runs);
        }
        let on = self.on(Hardware::Virtual, folder.join("estimate"));
        runs.extend(session::run(&estimated, context, on)?.runs);
        Ok(runs)
    }

    /// Returns the cases on some GPUs. A model whose values may differ from run to run runs several times.
    fn cases(&self, context: &Context<'_>, models: &Models, gpus: &[Profile]) -> Result<Vec<Case>, CliError> {
        let &Context { prepared, running, .. } = context;
        let mut cases = cases::cases_on(prepared, models, running, &BTreeMap::new(), gpus.iter())?;
        // One run of such a model would pass or fail by chance. The largest of several values is judged.
        let differing = cases.iter_mut().filter(|case| case.allowed.nondeterministic);
        differing.for_each(|case| case.repeat = self.repeat);
        Ok(cases)
    }

    fn on(&self, hardware: Hardware, folder: PathBuf) -> session::RunSetup<'_> {
        session::RunSetup {
            // Only values that are judged or accepted are worth a second warm pass.
            // See docs/design/passes.md.
            verified: true,
            ..session::RunSetup::new(&self.driver, hardware, self.recordings.clone(), folder)
        }
    }

    /// Drops the verdicts on estimates that were made only for the comparison with a measurement. The limits count for
    /// the measurement. Out-of-memory and edited limits stay.
    fn keep_own_verdicts(&self, report: &mut Report) {
        // A verdict without a run is about an entry of the baseline, for any GPU, whose model no longer exists.
        let has_run = |verdict: &Verdict| {
            let is_of = |run: &Run| (&run.package, run.name()) == (&verdict.package, &verdict.model);
            report.runs.iter().any(is_of)
        };
        let is_own = |verdict: &Verdict| {
            verdict.mode == Mode::Measure
                || self.declared.iter().any(|gpu| gpu.id == verdict.gpu)
                || matches!(verdict.rule, Rule::Oom | Rule::Edit)
                || !has_run(verdict)
        };
        let verdicts = std::mem::take(&mut report.verdicts);
        report.verdicts = verdicts.into_iter().filter(is_own).collect();
    }
}

impl CheckCommand {
    /// Returns what all parts of this check together must have verdicts on, so that `merge` can find a missing one.
    fn expected_verdicts(
        &self,
        context: &Context<'_>,
        models: &Models,
        gpus: &[Profile],
    ) -> Result<Vec<ExpectedVerdict>, CliError> {
        let is_expected = |model: &&Listed| models.expected.contains(&session::identity(model));
        // The models of every part of the matrix, not only those of this one.
        let all = Models {
            expected: Vec::new(),
            selected: models.declared.iter().filter(is_expected).cloned().collect(),
            declared: Vec::new(),
            problems: Vec::new(),
        };
        let cases = cases::cases_on(context.prepared, &all, &self.running, &BTreeMap::new(), gpus.iter())?;
        let expected = cases.iter().map(|case| ExpectedVerdict {
            package: case.model.built.target.package.clone(),
            model: PlainName::escaped(case.name()),
            gpu: PlainName::escaped(&case.profile.id),
        });
        Ok(expected.collect())
    }

    /// Returns why the command looked for a GPU, and how to check without one.
    fn why_measured(&self) -> String {
        let why = match gpu::device_node() {
            Some(node) => format!("`check` measures on the GPU of this machine ({})", node.display()),
            None => "the options ask for a measurement".to_owned(),
        };
        format!("{why}; run `cargo vram check --estimate` to check estimates only\n")
    }
}

/// Returns the full names of the runs with an input in their budget that the error points at.
fn located_inputs(report: &Report, budgets: &Budgets, error: &BudgetError) -> BTreeSet<String> {
    let is_located = |run: &&Run| {
        let own = budgets.for_model(&run.package, &run.model);
        let own = own.into_iter().filter(|budget| *run.name() == budget.name.value);
        let mut inputs = own.flat_map(|budget| budget.inputs.values());
        // The error shows only its first problems. The table must show the runs of the others.
        inputs.any(|input| {
            let place = Some(budgets.position(input.span));
            error.problems().iter().any(|problem| problem.position() == place)
        })
    };
    report.runs.iter().filter(is_located).map(Run::full_name).collect()
}

/// Returns the declared models. If a run failed because of an unknown input, the model has the list of its inputs.
fn declared(models: &Models, runs: &[Run]) -> Vec<DeclaredModel> {
    let declared = |model: &Listed| {
        let is_unknown = |run: &&Run| {
            let code = run.error.as_ref().map(|error| &error.code);
            let package = &model.built.target.package;
            (&run.model, &run.package, code) == (&model.name, package, Some(&ErrorCode::UnknownInput))
        };
        DeclaredModel {
            package: model.built.target.package.to_string(),
            model: model.name.to_string(),
            // A model has no list of its inputs. Only one that refused an input names those that it knows.
            inputs: runs
                .iter()
                .find(is_unknown)
                .map(|run| run.inputs.keys().map(PlainName::to_string).collect()),
        }
    };
    models.declared.iter().map(declared).collect()
}
