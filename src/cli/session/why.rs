//! Explains the growth of models that failed a check: runs each of them on both sides of the change with a trace.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Display;

use camino::Utf8Path;

use super::base::BaseRevision;
use super::context::Context;
use super::error::file_error;
use super::explanation::{ExplainRequest, Stage};
use super::git::git_or_why;
use super::models::Models;
use super::prepared::{self, Prepared};
use super::source::ModelSource;
use super::what_if::WhatIfs;
use crate::bytes::Bytes;
use crate::cli::error::{CliError, Internal};
use crate::cli::interrupt::{self, Interrupted};
use crate::cli::options::{Packages, Running};
use crate::cli::{source_text, terminal};
use crate::explain::{Activations, Explanation};

use crate::growth::{GrowthInput, SourceChanges, growth};
use crate::report::change::{Judged, figure};
use crate::report::{
    GrowthExplanation, Metric, Pass, Peaks, Report, Rule, Run, Skipped, SkippedCheck, Status, Verdict,
};
use crate::untrusted::{PlainName, clean};
use crate::workspace::EXPLAIN;

/// The largest untracked file that counts as part of a change.
const MOST_BYTES: u64 = 1 << 20;

/// Files that a program is built from or reads. A lock file or a README has numbers and names, too.
const SOURCES: [&str; 6] = ["*.rs", "*.toml", "*.yaml", "*.yml", "*.json", "*.ron"];

/// Adds to the report why each value that failed its growth, budget or leak check grew since the base.
///
/// What cannot be explained is listed among the skipped checks. It never changes the result of the check.
pub(in crate::cli) fn explain_growth(
    context: &Context<'_>,
    base: &mut BaseRevision,
    report: &mut Report,
) -> Result<(), CliError> {
    let (mut wanted, mut unexplained) = (Vec::new(), Vec::new());
    let judged = Judged::new(report);
    for run in &report.runs {
        // A pull request may accept its own growth in `budgets.lock`. Its change is what differs from the base.
        let before = base.peaks(run, report.tool.fingerprint.raw());
        match grown(run, judged.of(run), before) {
            None => {}
            // Without a baseline of the base, its explanation shows the value.
            Some(Ok(value)) if value.before.is_none() && base.rebuilt().is_none() => wanted.push((run.clone(), value)),
            Some(Ok(value)) => match value.since(value.before, base) {
                Ok(_) => wanted.push((run.clone(), value)),
                Err(why) => unexplained.push(skipped(&run.full_name(), why)),
            },
            Some(Err(why)) => unexplained.push(skipped(&run.full_name(), why)),
        }
    }
    report.skipped.extend(unexplained);
    if wanted.is_empty() {
        return Ok(());
    }
    match both_sides(context, base, &wanted) {
        Ok((explained, failed)) => {
            report.growth.extend(explained);
            report.skipped.extend(failed);
        }
        // A signal ends the command. Anything else must not hide the result of the check itself.
        Err(error) if error.downcast_ref::<Interrupted>().is_some() => return Err(error),
        Err(error) => {
            let models: BTreeSet<_> = wanted.iter().map(|(run, _)| run.full_name()).collect();
            let why = one_line(&error);
            report
                .skipped
                .extend(models.iter().map(|model| skipped(model, why.clone())));
        }
    }
    Ok(())
}

/// The value of a run that failed a check.
#[derive(Debug, Clone, Copy)]
struct GrownValue {
    pass: Pass,
    metric: Metric,
    /// The bytes at the base; `None` if only an explanation of the base can show them.
    before: Option<Bytes>,
    after: Bytes,
}

impl GrownValue {
    /// Returns the bytes at the base and here, or why there is no growth to explain.
    fn since(&self, before: Option<Bytes>, base: &BaseRevision) -> Result<(Bytes, Bytes), String> {
        let revision = base.revision();
        match before {
            None => Err(format!("{revision} has no value to compare with")),
            Some(before) if before >= self.after => {
                Err(format!("{} memory did not grow since {revision}", self.metric.name()))
            }
            Some(before) => Ok((before, self.after)),
        }
    }
}

/// Returns the value whose growth is to be explained, or why it cannot be; `None` if the run did not fail by its memory.
fn grown(run: &Run, verdicts: &[&Verdict], before: Option<&Peaks>) -> Option<Result<GrownValue, String>> {
    let failed = |rule: Rule| {
        let verdicts = verdicts.iter().copied();
        verdicts.filter(move |verdict| verdict.status == Status::Fail && verdict.rule == rule)
    };
    // A growth verdict compares the two sides itself. The others only say that there is too much.
    let grew = |verdict: &&Verdict| Some(verdict.actual?.less(verdict.baseline?));

    // Of several values, the one that grew most. The headline of a comment names the same one.
    let verdict = failed(Rule::Growth).rev().max_by_key(grew);
    let grew_since_base = |verdict: &&Verdict| {
        let (pass, metric) = (verdict.pass?, verdict.metric?);
        let before = figure(before?, pass, metric)?;
        Some(figure(&run.peaks, pass, metric)?.less(before))
    };
    let verdict = verdict
        .or_else(|| failed(Rule::Budget).rev().max_by_key(grew_since_base))
        .or_else(|| failed(Rule::Leak).next())?;
    if !run.gpus.is_empty() {
        return Some(Err(
            "the model runs over several GPUs, and an explanation covers one".to_owned()
        ));
    }
    let (pass, metric) = (
        verdict.pass.unwrap_or(Pass::Warm),
        verdict.metric.unwrap_or(Metric::Live),
    );
    let Some(after) = figure(&run.peaks, pass, metric) else {
        return Some(Err(format!("{} memory is unknown", metric.name())));
    };
    Some(Ok(GrownValue {
        pass,
        metric,
        before: before.and_then(|before| figure(before, pass, metric)),
        after,
    }))
}

type Wanted = (Run, GrownValue);

/// Explains the models on both sides.
fn both_sides(
    context: &Context<'_>,
    base: &mut BaseRevision,
    wanted: &[Wanted],
) -> Result<(Vec<GrowthExplanation>, Vec<Skipped>), CliError> {
    let root = context.prepared.source.root();
    let (changes, unknown) = changes(root, base.commit());
    let read = |file: &str| source_text::content(root, file);
    let packages = context.packages.with_feature(EXPLAIN);
    let here = prepared::prepare(&packages, None, context.running.budgets.as_deref())?;
    let after = side(context, here, &packages, wanted)?;
    base.check_out(context)?;
    let Some((there, packages)) = base.prepared(context, Some(EXPLAIN))? else {
        let why = format!("{} has no such workspace", base.revision());
        let skipped = wanted.iter().map(|(run, _)| skipped(&run.full_name(), why.clone()));
        return Ok((Vec::new(), skipped.collect()));
    };
    let before = side(context, there, &packages, wanted)?;
    let (mut explained, mut failed) = (Vec::new(), Vec::new());
    for (run, value) in wanted {
        let key = ExplainedCase::from_run(run);
        match (&before[&key], &after[&key]) {
            (Ok(before), Ok(after)) => {
                let explained_before = || figure(&before.run.peaks, value.pass, value.metric);
                let grown = match value.since(value.before.or_else(explained_before), base) {
                    Ok(grown) => grown,
                    Err(why) => {
                        failed.push(skipped(&run.full_name(), why));
                        continue;
                    }
                };
                let mut growth = growth(&GrowthInput {
                    run,
                    value: (value.pass, value.metric),
                    grown,
                    before,
                    after,
                    changes: &changes,
                    read: Some(&read),
                });
                growth.limits.extend(unknown.clone().map(Into::into));
                // The pages are an extra. That they cannot be written must not hide the causes.
                if let Err(error) = write_pages(context, &key, (before, after), &growth) {
                    terminal::remark(&one_line(&error));
                }
                explained.push(growth);
            }
            (Err(why), _) => failed.push(skipped(&run.full_name(), format!("at {}, {why}", base.revision()))),
            (_, Err(why)) => failed.push(skipped(&run.full_name(), why.clone())),
        }
    }
    Ok((explained, failed))
}

/// A model or budget on a GPU, which both modes share.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
struct ExplainedCase {
    package: PlainName,
    name: PlainName,
    gpu: PlainName,
}

impl ExplainedCase {
    fn from_run(run: &Run) -> Self {
        Self {
            package: run.package.clone(),
            name: run.name().to_owned(),
            gpu: run.gpu.id.clone(),
        }
    }
}

type Explanations = BTreeMap<ExplainedCase, Result<Explanation, String>>;

/// Explains the models of one side, on their virtual GPUs.
fn side(
    context: &Context<'_>,
    prepared: Prepared,
    packages: &Packages,
    wanted: &[Wanted],
) -> Result<Explanations, CliError> {
    let models: BTreeSet<String> = wanted.iter().map(|(run, _)| run.full_name()).collect();
    let running = &Running {
        model: models.into_iter().collect(),
        partition: None,
        keep: None,
        ..context.running.clone()
    };
    let asked = &ExplainRequest {
        running,
        inputs: BTreeMap::new(),
        activations: Activations::default(),
        lines: false,
        savings: false,
        what_ifs: WhatIfs::default(),
        measuring: None,
        packages,
    };
    let (mut explanations, mut known) = (Explanations::new(), Vec::new());
    // A model that failed both as an estimate and as a measurement is explained once.
    let cases: BTreeSet<_> = wanted.iter().map(|(run, _)| ExplainedCase::from_run(run)).collect();
    for case in cases {
        match context.prepared.profiles.get(&case.gpu) {
            Ok(profile) => known.push((case, profile)),
            // Other models may have run on a GPU that has a profile.
            Err(error) => {
                explanations.insert(case, Err(one_line(&error)));
            }
        }
    }
    let Some((_, first)) = known.first() else {
        return Ok(explanations);
    };
    let mut stage = Stage::on_virtual(prepared, asked, first)?;
    let models = stage.built()?;
    for (number, (case, profile)) in known.into_iter().enumerate() {
        stage.set_gpu(profile);
        let explained = explained(&stage, &models, &case, number)?;
        explanations.insert(case, explained);
    }
    Ok(explanations)
}

fn explained(
    stage: &Stage<'_>,
    models: &Models,
    case: &ExplainedCase,
    number: usize,
) -> Result<Result<Explanation, String>, CliError> {
    match stage.explain(models, (&case.package, &case.name), number) {
        Ok(Some(explanation)) => Ok(match &explanation.partial {
            Some(partial) => Err(partial.raw().to_owned()),
            None => Ok(explanation),
        }),
        Ok(None) => Ok(Err(match models.problems.first() {
            Some(problem) => problem.message.raw().to_owned(),
            None => "there is no such model".to_owned(),
        })),
        Err(error) if error.downcast_ref::<Interrupted>().is_some() => Err(error),
        Err(error) => Ok(Err(one_line(&error))),
    }
}

/// Writes both explanations into the target folder, and prints the command that draws them side by side.
fn write_pages(
    context: &Context<'_>,
    case: &ExplainedCase,
    (before, after): (&Explanation, &Explanation),
    growth: &GrowthExplanation,
) -> Result<(), CliError> {
    let ModelSource::Workspace(here) = &context.prepared.source else {
        return Ok(());
    };
    let folder = here.workspace().target_directory().join("vram/why");
    std::fs::create_dir_all(&folder).map_err(file_error(folder.as_std_path()))?;
    let plain = |c: char| {
        if c.is_ascii_alphanumeric() || "-_.".contains(c) {
            c
        } else {
            '-'
        }
    };
    // No name has a plus, so two cases never have the same file.
    let names = [&case.package, &case.name, &case.gpu].map(|name| name.chars().map(plain).collect::<String>());
    let name = names.join("+");
    let mut paths = Vec::new();
    // The page then names the same lines as this check, which knows the change's diff.
    let after = &Explanation {
        growth: Some(growth.clone()),
        ..after.clone()
    };
    for (side, explanation) in [("before", before), ("after", after)] {
        let path = folder.join(format!("{name}-{side}.json"));
        let json = serde_json::to_string(explanation).map_err(Internal::new)?;
        interrupt::wait_for_end();
        std::fs::write(&path, json).map_err(file_error(path.as_std_path()))?;
        let shown = path.strip_prefix(context.prepared.source.root()).unwrap_or(&path);
        paths.push(shown.to_string());
    }
    if !terminal::is_quiet() {
        terminal::remark(&format!(
            "draw both versions side by side: cargo vram report --compare {}",
            paths.join(" ")
        ));
    }
    Ok(())
}

/// Returns the lines that differ between a commit and the files of the workspace, and a note if git cannot compare them.
/// No line then counts as edited.
fn changes(root: &Utf8Path, commit: &str) -> (SourceChanges, Option<String>) {
    let diff = [
        "-c",
        "core.quotePath=false",
        "diff",
        "--unified=0",
        "--inter-hunk-context=0",
        "--no-color",
        "--no-ext-diff",
        "--no-textconv",
        "--find-renames",
        "--relative",
        "--src-prefix=a/",
        "--dst-prefix=b/",
        commit,
        "--",
    ];
    let diff = git_or_why(root, &[&diff[..], &SOURCES].concat());
    let untracked = git_or_why(root, &["ls-files", "--others", "--exclude-standard", "-z", "--", "."]);
    let untracked = untracked.unwrap_or_default();
    let new = untracked
        .split('\0')
        .filter(|file| {
            SOURCES
                .iter()
                .any(|source| file.ends_with(source.trim_start_matches('*')))
        })
        .filter_map(|file| {
            let is_small = std::fs::metadata(root.join(file)).is_ok_and(|metadata| metadata.len() <= MOST_BYTES);
            let text = is_small.then(|| source_text::content(root, file)).flatten()?;
            Some((file.to_owned(), text))
        });
    let why = diff.as_ref().err().map(|why| {
        let why = one_line(why);
        format!("no line counts as edited, because `git diff` failed: {why}")
    });
    (SourceChanges::parse(&diff.unwrap_or_default(), new.collect()), why)
}

fn skipped(model: &str, why: String) -> Skipped {
    Skipped {
        check: SkippedCheck::GrowthCauses,
        model: Some(model.into()),
        why: why.into(),
    }
}

fn one_line(error: &impl Display) -> String {
    clean(&error.to_string().split_whitespace().collect::<Vec<_>>().join(" "))
}
