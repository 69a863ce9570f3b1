//! Makes explanations: builds models so that they tell of every operation, runs them, and reads what they told.

use std::collections::BTreeMap;
use std::path::Path;

use camino::{Utf8Path, Utf8PathBuf};
use miette::{Diagnostic, IntoDiagnostic};
use thiserror::Error;

use super::card::{self, Measuring, Taken};
use super::options::{Loudness, Packages, Running};
use super::pipeline::{Models, Prepared};
use super::source::Scratch;
use super::terminal::Progress;
use super::what_if::{self, WhatIfs};
use super::{Stopped, cases, pipeline, savings, texts, timings};
use crate::bytes::Bytes;
use crate::explain::{self, Activations, Explanation, Ingredients};
use crate::gpu::Profile;
use crate::recording::Recordings;
use crate::report::human::text::named;
use crate::report::{ErrorCode, Report, Run, RunError};
use crate::run::{Case, Hardware, TracedCase};
use crate::workspace::EXPLAIN;

/// What is to be explained, and how.
pub(super) struct Asked<'a> {
    pub(super) running: &'a Running,
    pub(super) inputs: BTreeMap<String, u64>,
    pub(super) activations: Activations,
    pub(super) lines: bool,
    /// What would take less, by running the model with each change.
    pub(super) savings: bool,
    /// In what the model is run otherwise than it says; at most one.
    pub(super) what_ifs: WhatIfs,
    /// On which real card, where it is to be measured.
    pub(super) measuring: Option<&'a Measuring>,
    /// How the models are built.
    pub(super) packages: &'a Packages,
}

/// An explanation, and what is shown beside it.
pub(super) struct Explained {
    pub(super) explanation: Explanation,
    /// The folder of the user's own code.
    pub(super) root: Utf8PathBuf,
    /// The budget of reserved bytes, and as its file writes it.
    pub(super) limit: Option<(Bytes, String)>,
    /// Whether another package has a model of this name.
    pub(super) is_ambiguous: bool,
}

impl Explained {
    /// The document. It is not spread over lines: most of it is columns of numbers.
    pub(super) fn json(&self) -> Result<String, Stopped> {
        let mut text = serde_json::to_string(&self.explanation).into_diagnostic()?;
        text.push('\n');
        Ok(text)
    }
}

/// Why there is no explanation.
#[derive(Debug, Error, Diagnostic)]
pub(super) enum ExplainError {
    /// More than one model is meant.
    #[error("`{0}` means several: {1}")]
    #[diagnostic(
        code(explain::several),
        help("name one of them; `package/model` tells models of one name apart")
    )]
    Several(String, String),
    /// More than one what-if is meant.
    #[error("one what-if at a time can be explained, and these are several")]
    #[diagnostic(
        code(explain::matrix),
        help("`cargo vram estimate` shows them all beside each other")
    )]
    Matrix,
    /// The models could not be built or listed.
    #[error("{0}")]
    #[diagnostic(code(explain::problem))]
    Problem(String, #[help] Option<String>),
    /// The run ended before there was a trace.
    #[error("{model} could not be run: {message}")]
    #[diagnostic(code(explain::run))]
    Run {
        model: String,
        /// What went wrong, as a report names it.
        code: ErrorCode,
        message: String,
        #[help]
        help: Option<String>,
    },
    /// There is no trace.
    #[error("{model} left no trace")]
    #[diagnostic(
        code(explain::no_trace),
        help(
            "models of Burn 0.21 tell of their operations if built with the feature `explain` of cargo-vram: an archive needs it, too (`cargo vram archive --features cargo-vram/explain`)"
        )
    )]
    NoTrace { model: String, source: std::io::Error },
}

/// Explains the one model that is meant.
pub(super) fn one(
    asked: &Asked<'_>,
    archive_file: Option<&Utf8Path>,
    loudness: Loudness,
) -> Result<Explained, Stopped> {
    let (stage, models) = set(asked, archive_file, loudness)?;
    match stage.cases(&models)?.as_slice() {
        [case] => match stage.otherwise(case)? {
            None => stage.explained(&models, case, 0, asked.savings),
            Some(otherwise) => {
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

/// Explains every model that is meant, in the order in which they were asked for.
pub(super) fn all(asked: &Asked<'_>, loudness: Loudness) -> Result<Vec<Explained>, Stopped> {
    let (stage, models) = set(asked, None, loudness)?;
    let cases = stage.cases(&models)?;
    let numbered = cases.iter().enumerate();
    numbered
        .map(|(number, case)| stage.explained(&models, case, number, asked.savings))
        .collect()
}

/// Builds the models, and finds what they are run on.
fn set<'a>(
    asked: &'a Asked<'a>,
    archive_file: Option<&Utf8Path>,
    loudness: Loudness,
) -> Result<(Stage<'a>, Models), Stopped> {
    let packages = &asked.packages.with_feature(EXPLAIN);
    let prepared = pipeline::prepare(packages, archive_file, asked.running.budgets.as_deref())?;
    // Before the models are built: without a card there is nothing to build them for.
    let card = on_card(&prepared, asked, loudness)?;
    let folder = prepared.source.scratch(asked.running.keep.as_deref())?;
    what_if::announce_build(&prepared.source, &[EXPLAIN], loudness);
    let models = pipeline::models(&prepared, packages, Some(asked.running), loudness, folder.path())?;
    if let (true, Some(problem)) = (models.selected.is_empty(), models.problems.first()) {
        return Err(ExplainError::Problem(problem.message.clone(), problem.help.clone()).into());
    }
    let stage = Stage {
        card,
        prepared,
        asked,
        folder,
        loudness,
    };
    Ok((stage, models))
}

/// What models run on.
struct OnCard {
    hardware: Hardware,
    profile: Profile,
    recordings: Recordings,
    /// Nobody else measures on it meanwhile.
    _taken: Option<Taken>,
}

/// The card that was asked for: a virtual one, or one that is here.
fn on_card(prepared: &Prepared, asked: &Asked<'_>, loudness: Loudness) -> Result<OnCard, Stopped> {
    let running = asked.running;
    let known = pipeline::recordings(running)?;
    let Some(measuring) = asked.measuring else {
        return Ok(OnCard {
            hardware: Hardware::Virtual,
            profile: cases::estimated(cases::declared_card(prepared, running)?, &known),
            recordings: known,
            _taken: None,
        });
    };
    let driver = prepared.source.driver()?;
    let taken = card::take(measuring, None, &driver, &prepared.profiles, loudness)?;
    Ok(OnCard {
        hardware: Hardware::Real(taken.real.clone()),
        profile: cases::measured(&taken.profile, &taken.real.driver, &known),
        recordings: pipeline::own_recordings(running)?.unwrap_or_default(),
        _taken: Some(taken),
    })
}

/// Where models are run, again and again.
pub(super) struct Stage<'a> {
    pub(super) prepared: Prepared,
    pub(super) asked: &'a Asked<'a>,
    card: OnCard,
    folder: Scratch,
    pub(super) loudness: Loudness,
}

impl Stage<'_> {
    /// The cases that are meant: of each glob those that match, or the one of exactly this name.
    fn cases(&self, models: &Models) -> Result<Vec<Case>, Stopped> {
        let mut meant: Vec<Case> = Vec::new();
        for glob in &self.asked.running.model {
            let mut running = self.asked.running.clone();
            running.model = vec![glob.clone()];
            let mut found = cases::cases(&self.prepared, models, &running, &self.asked.inputs, &self.card.profile)?;
            if found.is_empty() {
                return Err(cases::no_match(&running.model, &models.declared).into());
            }
            cases::prefer_exact(&mut found, glob);
            found.retain(|case| meant.iter().all(|other| other.full_name() != case.full_name()));
            meant.extend(found);
        }
        Ok(meant)
    }

    /// The case as it was asked to be otherwise, where it was.
    fn otherwise(&self, case: &Case) -> Result<Option<Case>, Stopped> {
        let packages = self.asked.packages.with_feature(EXPLAIN);
        let here = (&self.prepared, &packages, self.asked.running);
        let what_ifs = &self.asked.what_ifs;
        let (otherwise, problems) =
            what_ifs.cases(std::slice::from_ref(case), here, self.loudness, self.folder.path())?;
        if let Some(problem) = problems.first() {
            return Err(ExplainError::Problem(problem.message.clone(), problem.help.clone()).into());
        }
        let mut otherwise = otherwise.into_iter().flatten();
        match (otherwise.next(), otherwise.next()) {
            (first, None) => Ok(first),
            (_, Some(_)) => Err(ExplainError::Matrix.into()),
        }
    }

    /// Runs a case, and explains it.
    fn explained(&self, models: &Models, case: &Case, number: usize, savings: bool) -> Result<Explained, Stopped> {
        let scratch = self.folder.path().join(format!("explain-{number}"));
        let run = self.run(case, Some(&scratch))?;
        let mut report = pipeline::report(None, &self.prepared, models, self.asked.running, Vec::new());
        report.runs.push(run);
        let source = &self.prepared.source;
        let dirty = report.dirty;
        let progress = Progress::spinner(self.loudness, &format!("explaining {}", named(&case.full_name())));
        let mut explanation = timings::timed("reading the trace", || {
            explained(report, &scratch, self.asked, source.root())
        })?;
        drop(progress);
        explanation.commit_date = source.commit_date();
        explanation.dirty = dirty;
        explanation.texts = texts::read(source.root(), &explanation.lines);
        if savings {
            let mut savings = savings::run(self, case, &explanation)?;
            savings.append(&mut explanation.savings);
            explanation.savings = savings;
        }
        Ok(Explained {
            limit: limit(&self.prepared, case),
            is_ambiguous: cases::is_ambiguous(&case.model, &models.declared),
            explanation,
            root: self.prepared.source.root().to_owned(),
        })
    }

    fn silent(&self) -> Loudness {
        Loudness {
            quiet: true,
            ..self.loudness
        }
    }

    /// The models, built in another way.
    pub(super) fn models(&self, packages: &Packages) -> Result<Models, Stopped> {
        let running = self.asked.running;
        let prepared = pipeline::prepare(packages, None, running.budgets.as_deref())?;
        let folder = self.folder.path().join("rebuilt");
        pipeline::models(&prepared, packages, Some(running), self.silent(), &folder)
    }

    /// Runs a case; with a folder for its trace, where there is to be one.
    pub(super) fn run(&self, case: &Case, trace: Option<&Path>) -> Result<Run, Stopped> {
        let driver = self.prepared.source.driver()?;
        let on = pipeline::On {
            trace: trace.is_some(),
            ..pipeline::On::new(
                &driver,
                self.card.hardware.clone(),
                self.card.recordings.clone(),
                trace.map_or_else(|| self.folder.path().join("what-if"), Path::to_owned),
            )
        };
        // What is run without a trace is one of several, which are told of together.
        let loudness = if trace.is_some() { self.loudness } else { self.silent() };
        let runs = pipeline::run(std::slice::from_ref(case), self.asked.running, on, loudness)?.runs;
        let run = runs.into_iter().next();
        Ok(run.ok_or_else(|| ExplainError::Problem("no model was run".to_owned(), None))?)
    }
}

fn explained(report: Report, scratch: &Path, asked: &Asked<'_>, root: &Utf8Path) -> Result<Explanation, ExplainError> {
    let Report { tool, commit, runs, .. } = report;
    let Some(run) = runs.into_iter().next() else {
        return Err(ExplainError::Problem("no model was run".to_owned(), None));
    };
    let not_run = |run: &Run, error: &RunError| ExplainError::Run {
        model: run.model.clone(),
        code: error.code.clone(),
        message: error.message.clone(),
        help: error.help.clone(),
    };
    if let Some(error) = run.error.as_ref().filter(|error| error.code.is_refusal()) {
        return Err(not_run(&run, error));
    }
    let no_trace = |run: &Run, source: std::io::Error| match &run.error {
        Some(error) => not_run(run, error),
        None => ExplainError::NoTrace {
            model: run.model.clone(),
            source,
        },
    };
    let traced = TracedCase::read(scratch, 0).map_err(|error| no_trace(&run, error))?;
    let shown = run.clone();
    explain::explain(Ingredients {
        tool,
        commit,
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

/// What the budget of this case allows to be reserved.
fn limit(prepared: &Prepared, case: &Case) -> Option<(Bytes, String)> {
    let budgets = prepared.budgets.as_ref()?;
    let own = budgets.for_model(&case.model.built.target.package, &case.model.name);
    let budget = own.into_iter().find(|budget| budget.name.value == case.name())?;
    let declared = budgets.gpu.as_ref().map(|gpu| gpu.value.as_str());
    let limits = budget.limits_on(&case.profile.id, declared)?;
    let limit = limits.warm.reserved.as_ref()?;
    let limit = limit.fail.or(limit.warn)?;
    Some((limit.value, budgets.as_written(limit)))
}
