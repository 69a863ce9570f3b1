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
    GrowthExplanation, Metric, Mode, Pass, Peaks, Report, Rule, Run, Skipped, SkippedCheck, Status, Verdict,
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
        let failed = FailedValues::of(judged.of(run));
        if failed.is_empty() {
            continue;
        }
        let known = match (base.rebuilt(), run.mode) {
            _ if !run.gpus.is_empty() => {
                Err("the model runs over several GPUs, and an explanation covers one".to_owned())
            }
            // A `budgets.lock` may be out of date, so the two explanations show the values.
            (None, Mode::Estimate) => Ok(None),
            // Only a baseline has values of the base for a measurement.
            _ => {
                let before = base.peaks(run, report.tool.fingerprint.raw());
                failed.grown((before, &run.peaks), base.revision()).map(Some)
            }
        };
        match known {
            Ok(grown) => wanted.push(WantedGrowth {
                run: run.clone(),
                failed,
                grown,
            }),
            Err(why) => unexplained.push(skipped(&run.full_name(), why)),
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
            let models: BTreeSet<_> = wanted.iter().map(|wanted| wanted.run.full_name()).collect();
            let why = one_line(&error);
            report
                .skipped
                .extend(models.iter().map(|model| skipped(model, why.clone())));
        }
    }
    Ok(())
}

/// A run that failed a check, and the value whose growth is to be explained.
struct WantedGrowth {
    run: Run,
    failed: FailedValues,
    /// `None` if only the explanations show which value grew.
    grown: Option<GrownValue>,
}

/// The values of a run that failed a check, the most important rule first.
struct FailedValues(Vec<FailedValue>);

struct FailedValue {
    rule: Rule,
    pass: Pass,
    metric: Metric,
    /// The growth that the verdict itself states.
    growth: Option<i64>,
}

/// A value that grew, with its bytes at the base and here.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct GrownValue {
    pass: Pass,
    metric: Metric,
    before: Bytes,
    after: Bytes,
}

impl FailedValues {
    fn of(verdicts: &[&Verdict]) -> Self {
        let of_rule = |rule: Rule| {
            let failed = verdicts
                .iter()
                .filter(move |verdict| verdict.status == Status::Fail && verdict.rule == rule);
            failed.map(move |verdict| FailedValue {
                rule,
                pass: verdict.pass.unwrap_or(Pass::Warm),
                metric: verdict.metric.unwrap_or(Metric::Live),
                growth: verdict.actual.zip(verdict.baseline).map(|(now, was)| now.less(was)),
            })
        };
        Self(
            [Rule::Growth, Rule::Budget, Rule::Leak]
                .into_iter()
                .flat_map(of_rule)
                .collect(),
        )
    }

    fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Returns the value whose growth is to be explained, or why there is none. `before` is `None` if the base has no
    /// values.
    fn grown(&self, (before, after): (Option<&Peaks>, &Peaks), revision: &str) -> Result<GrownValue, String> {
        let grown = |failed: &FailedValue| {
            Some(GrownValue {
                pass: failed.pass,
                metric: failed.metric,
                before: figure(before?, failed.pass, failed.metric)?,
                after: figure(after, failed.pass, failed.metric)?,
            })
        };
        let growth = |failed: &&FailedValue| {
            let since_base = || grown(failed).map(|grown| grown.after.less(grown.before));
            // A growth verdict compares the two sides itself. The others only say that there is too much.
            match failed.rule {
                Rule::Growth => failed.growth,
                _ => since_base(),
            }
        };
        // Of several values, the one that grew most. The headline of a comment names the same one.
        let first = self.0.first().map(|failed| failed.rule);
        let same_rule = self.0.iter().filter(|failed| Some(failed.rule) == first);
        let chosen = same_rule.rev().max_by_key(growth);
        let Some(grown) = chosen.and_then(grown) else {
            return Err(format!("{revision} has no value to compare with"));
        };
        match grown.after > grown.before {
            true => Ok(grown),
            false => Err(format!("{} memory did not grow since {revision}", grown.metric.name())),
        }
    }
}

/// Explains the models on both sides.
fn both_sides(
    context: &Context<'_>,
    base: &mut BaseRevision,
    wanted: &[WantedGrowth],
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
        let skipped = wanted
            .iter()
            .map(|wanted| skipped(&wanted.run.full_name(), why.clone()));
        return Ok((Vec::new(), skipped.collect()));
    };
    let before = side(context, there, &packages, wanted)?;
    let (mut explained, mut unexplained) = (Vec::new(), Vec::new());
    for WantedGrowth { run, failed, grown } in wanted {
        let key = ExplainedCase::from_run(run);
        match (&before[&key], &after[&key]) {
            (Ok(before), Ok(after)) => {
                let peaks = (Some(&before.run.peaks), &after.run.peaks);
                let value = match grown.map_or_else(|| failed.grown(peaks, base.revision()), Ok) {
                    Ok(value) => value,
                    Err(why) => {
                        unexplained.push(skipped(&run.full_name(), why));
                        continue;
                    }
                };
                let mut growth = growth(&GrowthInput {
                    run,
                    value: (value.pass, value.metric),
                    grown: (value.before, value.after),
                    before,
                    after,
                    changes: &changes,
                    read: Some(&read),
                });
                growth.limits.extend(other_value(run, value).map(Into::into));
                growth.limits.extend(unknown.clone().map(Into::into));
                // The pages are an extra. That they cannot be written must not hide the causes.
                if let Err(error) = write_pages(context, &key, (before, after), &growth) {
                    terminal::remark(&one_line(&error));
                }
                explained.push(growth);
            }
            (Err(why), _) => unexplained.push(skipped(&run.full_name(), format!("at {}, {why}", base.revision()))),
            (_, Err(why)) => unexplained.push(skipped(&run.full_name(), why.clone())),
        }
    }
    Ok((explained, unexplained))
}

/// Returns a note if the check itself found another value than the explanation, which runs with the largest sizes only.
fn other_value(run: &Run, value: GrownValue) -> Option<String> {
    let checked = figure(&run.peaks, value.pass, value.metric)?;
    (checked != value.after).then(|| format!("both values are from explanations; the check itself found {checked}"))
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
    wanted: &[WantedGrowth],
) -> Result<Explanations, CliError> {
    let models: BTreeSet<String> = wanted.iter().map(|wanted| wanted.run.full_name()).collect();
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
    let cases: BTreeSet<_> = wanted
        .iter()
        .map(|wanted| ExplainedCase::from_run(&wanted.run))
        .collect();
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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::report::Peak;

    fn peaks(live: u64, reserved: u64) -> Peaks {
        Peaks {
            warm: Peak {
                live: Some(Bytes(live)),
                reserved: Some(Bytes(reserved)),
                ..Peak::default()
            },
            ..Peaks::default()
        }
    }

    fn failed(rule: Rule, metric: Metric, growth: Option<i64>) -> FailedValue {
        FailedValue {
            rule,
            pass: Pass::Warm,
            metric,
            growth,
        }
    }

    #[test]
    fn of_several_limits_the_value_that_grew_most_is_explained() {
        let limits = FailedValues(vec![
            failed(Rule::Budget, Metric::Live, None),
            failed(Rule::Budget, Metric::Reserved, None),
            failed(Rule::Leak, Metric::Live, None),
        ]);
        let grown = |before: Option<Peaks>, after| {
            let grown = limits.grown((before.as_ref(), &after), "main");
            grown.map(|value| (value.metric, value.before.0, value.after.0))
        };
        assert_eq!(
            grown(Some(peaks(100, 200)), peaks(100, 300)),
            Ok((Metric::Reserved, 200, 300))
        );
        assert_eq!(
            grown(Some(peaks(100, 200)), peaks(140, 230)),
            Ok((Metric::Live, 100, 140))
        );
        assert_eq!(
            grown(Some(peaks(100, 200)), peaks(90, 150)),
            Err("live memory did not grow since main".to_owned())
        );
        assert_eq!(
            grown(None, peaks(100, 300)),
            Err("main has no value to compare with".to_owned())
        );
        // A failed growth check comes first, and its own values decide.
        let rules = FailedValues(vec![
            failed(Rule::Growth, Metric::Live, Some(7)),
            failed(Rule::Growth, Metric::Reserved, Some(9)),
            failed(Rule::Budget, Metric::Live, None),
        ]);
        let before = peaks(100, 200);
        let value = rules.grown((Some(&before), &peaks(180, 209)), "main").unwrap();
        assert_eq!(value.metric, Metric::Reserved);
    }
}
