//! Makes explanations: builds models so that they trace every operation, runs them, and reads the traces.

use std::collections::BTreeMap;
use std::path::Path;

use camino::{Utf8Path, Utf8PathBuf};
use miette::Diagnostic;
use thiserror::Error;

use super::what_if::WhatIfs;
use crate::bytes::Bytes;
use crate::cli::error::{CliError, ExitCoded, Internal};
use crate::cli::exit::Exit;
use crate::cli::options::{Packages, Running};
use crate::cli::session::context::Context;
use crate::cli::session::models;
use crate::cli::session::models::Models;
use crate::cli::session::output::escape_json;
use crate::cli::session::prepared;
use crate::cli::session::prepared::Prepared;
use crate::cli::session::real_gpu::{self, Measuring, Taken};
use crate::cli::session::recordings;
use crate::cli::session::report;
use crate::cli::session::run;
use crate::cli::session::selection;
use crate::cli::session::source::Scratch;
use crate::cli::session::{cases, savings};
use crate::cli::terminal::{Progress, Silence};
use crate::cli::{source_text, timings};
use crate::explain::{self, Activations, ExplainInput, Explanation};
use crate::gpu::Profile;
use crate::growth;
use crate::recording::Recordings;
use crate::report::{ErrorCode, Report, Run, RunError};
use crate::run::{Case, Hardware, TracedCase};
use crate::untrusted::Foreign;
use crate::workspace::EXPLAIN;

/// Which models to explain, and how.
pub(in crate::cli) struct ExplainRequest<'a> {
    pub(in crate::cli) running: &'a Running,
    pub(in crate::cli) inputs: BTreeMap<String, u64>,
    pub(in crate::cli) activations: Activations,
    pub(in crate::cli) lines: bool,
    /// Whether to run the model with each change that may save memory.
    pub(in crate::cli) savings: bool,
    /// The settings that a what-if changes; at most one what-if.
    pub(in crate::cli) what_ifs: WhatIfs,
    /// The real GPU to measure on; `None` for a virtual GPU.
    pub(in crate::cli) measuring: Option<&'a Measuring>,
    /// The options for building the models.
    pub(in crate::cli) packages: &'a Packages,
}

/// An explanation, with what its renderers show besides.
pub(in crate::cli) struct Explained {
    pub(in crate::cli) explanation: Explanation,
    /// The root folder of the user's own code.
    pub(in crate::cli) root: Utf8PathBuf,
    /// The budget's limit on reserved memory, and its text in the budgets file.
    pub(in crate::cli) limit: Option<(Bytes, String)>,
    /// Whether another package has a model with this name.
    pub(in crate::cli) is_ambiguous: bool,
}

impl Explained {
    /// Returns the explanation as JSON on one line, because most of it is columns of numbers.
    pub(in crate::cli) fn json(&self) -> Result<String, CliError> {
        let text = serde_json::to_string(&self.explanation).map_err(Internal::new)?;
        Ok(escape_json(text))
    }
}

/// Why there is no explanation.
#[derive(Debug, Error, Diagnostic)]
pub(in crate::cli) enum ExplainError {
    /// The glob matches several models.
    #[error("`{0}` matches several models: {1}")]
    #[diagnostic(
        code(explain::several),
        help("name one of them; use `package/model` if two packages have a model with the same name")
    )]
    Several(String, String),
    /// The options make several what-ifs.
    #[error("only one what-if at a time can be explained, but these options make several")]
    #[diagnostic(
        code(explain::matrix),
        help("pass one value per option, or run `cargo vram estimate` to compare several what-ifs")
    )]
    Matrix,
    /// The models could not be built or listed.
    #[error("{0}")]
    #[diagnostic(code(explain::problem))]
    Problem(String, #[help] Option<String>),
    /// The run failed, so that there is no trace.
    #[error("cannot run {model}: {message}")]
    #[diagnostic(code(explain::run))]
    Run {
        model: String,
        /// The code of the error in a report.
        code: ErrorCode,
        message: String,
        #[help]
        help: Option<String>,
    },
    /// The run succeeded, but its trace cannot be read.
    #[error("cannot read the trace of {model}")]
    #[diagnostic(
        code(explain::no_trace),
        help(
            "if the models are from an archive, pack it again with `cargo vram archive --features \
             cargo-vram/explain`: models on Burn 0.21 write a trace only if they are built with this feature"
        )
    )]
    NoTrace { model: String, source: std::io::Error },
}

impl ExitCoded for ExplainError {
    fn exit(&self) -> Exit {
        match self {
            Self::Run { code, .. } => Exit::from_code(code),
            Self::Problem(..) | Self::NoTrace { .. } => Exit::Incomplete,
            Self::Several(..) | Self::Matrix => Exit::Unusable,
        }
    }
}

/// Explains the selected model. The explanation of a what-if also contains its differences from the original.
pub(in crate::cli) fn one(asked: &ExplainRequest<'_>, archive_file: Option<&Utf8Path>) -> Result<Explained, CliError> {
    let (stage, models) = set(asked, archive_file)?;
    match stage.cases(&models)?.as_slice() {
        [case] => match stage.otherwise(case)? {
            None => stage.explained(&models, case, 0, asked.savings),
            Some(otherwise) => {
                // The savings of the what-if are asked for, not those of the original.
                let origin = stage.explained(&models, case, 0, false)?;
                let mut explained = stage.explained(&models, &otherwise, 1, asked.savings)?;
                explained.explanation.changed = explain::changed(&origin.explanation, &explained.explanation);
                Ok(explained)
            }
        },
        several => {
            let names: Vec<_> = several.iter().map(Case::full_name).collect();
            Err(ExplainError::Several(asked.running.model.join(", "), names.join(", ")).into())
        }
    }
}

/// Explains every selected model, in the order of the globs of `-m`.
pub(in crate::cli) fn all(asked: &ExplainRequest<'_>) -> Result<Vec<Explained>, CliError> {
    let (stage, models) = set(asked, None)?;
    let cases = stage.cases(&models)?;
    let numbered = cases.iter().enumerate();
    numbered
        .map(|(number, case)| stage.explained(&models, case, number, asked.savings))
        .collect()
}

/// Builds the models, and finds the GPU to run them on.
fn set<'a>(asked: &'a ExplainRequest<'a>, archive_file: Option<&Utf8Path>) -> Result<(Stage<'a>, Models), CliError> {
    // With Burn 0.21, only this build has the backend that sees every operation.
    // See docs/design/explanations.md.
    let packages = &asked.packages.with_feature(EXPLAIN);
    let prepared = prepared::prepare(packages, archive_file, asked.running.budgets.as_deref())?;
    // Find the GPU before the build: without a GPU, the build would be useless.
    let gpu = on_gpu(&prepared, asked)?;
    let folder = prepared.source.scratch(asked.running.keep.as_deref())?;
    let context = Context {
        prepared: &prepared,
        packages,
        running: asked.running,
    };
    let models = models::models(&context, folder.path())?;
    if let (true, Some(problem)) = (models.selected.is_empty(), models.problems.first()) {
        let (message, help) = problem.clone().into_raw();
        return Err(ExplainError::Problem(message, help).into());
    }
    let stage = Stage {
        gpu,
        prepared,
        asked,
        folder,
    };
    Ok((stage, models))
}

/// The GPU that models run on.
struct OnGpu {
    hardware: Hardware,
    profile: Profile,
    recordings: Recordings,
    /// Keeps other measurements off a real GPU.
    _taken: Option<Taken>,
}

/// Finds the selected GPU: a virtual one, or a real one if `measuring` is set.
fn on_gpu(prepared: &Prepared, asked: &ExplainRequest<'_>) -> Result<OnGpu, CliError> {
    let running = asked.running;
    let known = recordings::recordings(running)?;
    let Some(measuring) = asked.measuring else {
        return Ok(OnGpu {
            hardware: Hardware::Virtual,
            profile: cases::estimated(cases::declared_gpu(prepared, running)?, &known),
            recordings: known,
            _taken: None,
        });
    };
    let driver = prepared.source.driver()?;
    let taken = real_gpu::take(measuring, None, &driver, &prepared.profiles)?;
    Ok(OnGpu {
        hardware: Hardware::Real(taken.real.clone()),
        profile: cases::measured(&taken.profile, &taken.real.driver, &known),
        // As in `measure`: a real GPU makes its own choices, unless the user names recordings.
        recordings: recordings::own_recordings(running)?.unwrap_or_default(),
        _taken: Some(taken),
    })
}

/// The models' source, the request, the GPU and the folder that all runs of an explanation share.
pub(in crate::cli) struct Stage<'a> {
    pub(in crate::cli) prepared: Prepared,
    pub(in crate::cli) asked: &'a ExplainRequest<'a>,
    gpu: OnGpu,
    folder: Scratch,
}

impl<'a> Stage<'a> {
    /// Creates a stage for models on a virtual GPU. The packages of the request need the feature for explanations.
    pub(in crate::cli) fn on_virtual(
        prepared: Prepared,
        asked: &'a ExplainRequest<'a>,
        profile: &Profile,
    ) -> Result<Self, CliError> {
        let known = recordings::recordings(asked.running)?;
        let folder = prepared.source.scratch(None)?;
        Ok(Self {
            gpu: OnGpu {
                hardware: Hardware::Virtual,
                profile: cases::estimated(profile, &known),
                recordings: known,
                _taken: None,
            },
            prepared,
            asked,
            folder,
        })
    }

    /// Moves the stage to another virtual GPU.
    pub(in crate::cli) fn set_gpu(&mut self, profile: &Profile) {
        self.gpu.profile = cases::estimated(profile, &self.gpu.recordings);
    }

    /// Builds and lists the models.
    pub(in crate::cli) fn built(&self) -> Result<Models, CliError> {
        models::models(&self.context(), self.folder.path())
    }

    /// Explains one case by the name that reports give it; `None` if there is no such case.
    pub(in crate::cli) fn explain(
        &self,
        models: &Models,
        (package, name): (&str, &str),
        number: usize,
    ) -> Result<Option<Explanation>, CliError> {
        let cases = cases::cases(
            &self.prepared,
            models,
            self.asked.running,
            &self.asked.inputs,
            &self.gpu.profile,
        )?;
        let mut cases = cases.iter();
        let case = cases.find(|case| case.model.built.target.package == package && case.name() == name);
        let explained = case
            .map(|case| self.explained(models, case, number, false))
            .transpose()?;
        Ok(explained.map(|explained| explained.explanation))
    }

    /// Returns the selected cases: those that match each glob, or only the one with exactly that name.
    fn cases(&self, models: &Models) -> Result<Vec<Case>, CliError> {
        let mut meant: Vec<Case> = Vec::new();
        for glob in &self.asked.running.model {
            let mut running = self.asked.running.clone();
            running.model = vec![glob.clone()];
            let mut found = cases::cases(&self.prepared, models, &running, &self.asked.inputs, &self.gpu.profile)?;
            if found.is_empty() {
                return Err(selection::no_match(&running.model, &models.declared).into());
            }
            selection::prefer_exact(&mut found, glob);
            // Two globs may match one model.
            found.retain(|case| meant.iter().all(|other| other.full_name() != case.full_name()));
            meant.extend(found);
        }
        Ok(meant)
    }

    /// Returns the case with the settings of the what-if; `None` if the options change no setting.
    fn otherwise(&self, case: &Case) -> Result<Option<Case>, CliError> {
        let packages = self.asked.packages.with_feature(EXPLAIN);
        let context = Context {
            packages: &packages,
            ..self.context()
        };
        // Explanations are compared in pairs: with the original, and not with several what-ifs.
        let what_ifs = &self.asked.what_ifs;
        let (otherwise, problems) = what_ifs.cases(std::slice::from_ref(case), &context, self.folder.path())?;
        if let Some(problem) = problems.first() {
            let (message, help) = problem.clone().into_raw();
            return Err(ExplainError::Problem(message, help).into());
        }
        let mut otherwise = otherwise.into_iter().flatten();
        match (otherwise.next(), otherwise.next()) {
            (first, None) => Ok(first),
            (_, Some(_)) => Err(ExplainError::Matrix.into()),
        }
    }

    /// Runs a case and explains it. Then runs it with each change that may save memory, if `savings` is set.
    fn explained(&self, models: &Models, case: &Case, number: usize, savings: bool) -> Result<Explained, CliError> {
        let scratch = self.folder.path().join(format!("explain-{number}"));
        let run = self.run(case, Some(&scratch))?;
        let mut report = report::report(None, &self.context(), models, Vec::new());
        report.runs.push(run);
        let source = &self.prepared.source;
        let dirty = report.dirty;
        let progress = Progress::spinner(&format!("explaining {}", case.full_name()));
        let mut explanation = timings::timed("reading the trace", || {
            explained(report, &scratch, self.asked, source.root())
        })?;
        drop(progress);
        explanation.commit_date = source.commit_date().map(Into::into);
        explanation.dirty = dirty;
        explanation.texts = source_text::read(source.root(), &explanation);
        let keepers = growth::keepers(&explanation, &|file| source_text::content(source.root(), file));
        if let Some(leak) = explanation.leak.found_mut() {
            leak.keepers = keepers;
        }
        if savings {
            let mut savings = savings::run(self, case, &explanation)?;
            savings.append(&mut explanation.savings);
            explanation.savings = savings;
        }
        Ok(Explained {
            limit: limit(&self.prepared, case),
            is_ambiguous: selection::is_ambiguous(&case.model, &models.declared),
            explanation,
            root: self.prepared.source.root().to_owned(),
        })
    }

    const fn context(&self) -> Context<'_> {
        Context {
            prepared: &self.prepared,
            packages: self.asked.packages,
            running: self.asked.running,
        }
    }

    /// Builds the models with other package options, without output on the terminal.
    pub(in crate::cli) fn models(&self, packages: &Packages) -> Result<Models, CliError> {
        let running = self.asked.running;
        let prepared = prepared::prepare(packages, None, running.budgets.as_deref())?;
        let folder = self.folder.path().join("rebuilt");
        let _silence = Silence::new();
        let context = Context {
            prepared: &prepared,
            packages,
            ..self.context()
        };
        models::models(&context, &folder)
    }

    /// Runs a case. If `trace` is a folder, the case writes its trace there.
    pub(in crate::cli) fn run(&self, case: &Case, trace: Option<&Path>) -> Result<Run, CliError> {
        let driver = self.prepared.source.driver()?;
        let on = run::RunSetup {
            trace: trace.is_some(),
            // Savings are differences to the explained run, which has a trace of one order of sizes.
            largest_sizes: true,
            ..run::RunSetup::new(
                &driver,
                self.gpu.hardware.clone(),
                self.gpu.recordings.clone(),
                trace.map_or_else(|| self.folder.path().join("what-if"), Path::to_owned),
            )
        };
        // Runs without a trace belong to `savings`, which shows their common progress.
        let _silence = trace.is_none().then(Silence::new);
        let runs = run::run(std::slice::from_ref(case), &self.context(), on)?.runs;
        let run = runs.into_iter().next();
        Ok(run.ok_or_else(|| ExplainError::Problem("no model ran".to_owned(), None))?)
    }
}

fn explained(
    report: Report,
    scratch: &Path,
    asked: &ExplainRequest<'_>,
    root: &Utf8Path,
) -> Result<Explanation, ExplainError> {
    let Report { tool, commit, runs, .. } = report;
    let Some(run) = runs.into_iter().next() else {
        return Err(ExplainError::Problem("no model ran".to_owned(), None));
    };
    let not_run = |run: &Run, error: &RunError| ExplainError::Run {
        model: run.model.to_string(),
        code: error.code.clone(),
        message: error.message.raw().to_owned(),
        help: error.help.clone().map(Foreign::into_raw),
    };
    // The model was not even started. After any other error, there may be a trace up to that moment.
    if let Some(error) = run.error.as_ref().filter(|error| error.code.is_refusal()) {
        return Err(not_run(&run, error));
    }
    let no_trace = |run: &Run, source: std::io::Error| match &run.error {
        Some(error) => not_run(run, error),
        None => ExplainError::NoTrace {
            model: run.model.to_string(),
            source,
        },
    };
    let traced = TracedCase::read(scratch, 0).map_err(|error| no_trace(&run, error))?;
    let shown = run.clone();
    explain::explain(ExplainInput {
        tool,
        commit: commit.map(Foreign::into_raw),
        run,
        trace: &traced.trace,
        record: &traced.record,
        cold: &traced.cold,
        root: root.as_std_path(),
        activations: asked.activations,
        lines: asked.lines,
        savings: asked.savings,
    })
    .map_err(|error| no_trace(&shown, error))
}

/// Returns the limit on warm reserved memory in the budget of this case, and its text in the budgets file.
fn limit(prepared: &Prepared, case: &Case) -> Option<(Bytes, String)> {
    let budgets = prepared.budgets.as_ref()?;
    let own = budgets.for_model(&case.model.built.target.package, &case.model.name);
    let budget = own.into_iter().find(|budget| budget.name.value == case.name())?;
    let declared = budgets.gpu.as_ref().map(|gpu| gpu.value.as_str());
    let limits = budget.limits_on(&case.profile.id, declared)?;
    // An explanation shows a warm pass, so only the warm limit can be a line in it.
    let limit = limits.warm.reserved.as_ref()?;
    let limit = limit.fail.or(limit.warn)?;
    Some((limit.value, budgets.as_written(limit)))
}
