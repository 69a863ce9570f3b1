//! Joins the reports of several jobs into one report, which has each expected run exactly once.

use std::collections::{BTreeMap, BTreeSet, HashMap, HashSet};

use miette::Diagnostic;
use thiserror::Error;

use super::ErrorCode;
use super::words::mode_name;
use super::{ExpectedVerdict, Mode, Partition, Problem, Report, Rule, Run, Status, Verdict, WrittenBy};
use crate::untrusted::{Foreign, PlainName, named};

/// The number of names that an error lists.
const TOLD: usize = 10;

/// Why reports cannot be merged.
#[derive(Debug, Error, Diagnostic)]
pub enum MergeError {
    /// Two reports differ in something that all must share.
    #[error("{first} and {second} differ in {what}: {one} and {other}")]
    #[diagnostic(
        code(merge::different),
        help("merge only reports of one commit, written by the same command and version of cargo-vram")
    )]
    Different {
        /// The file of the first report.
        first: String,
        /// The file of the second report.
        second: String,
        /// What differs.
        what: &'static str,
        /// The first report's value.
        one: String,
        /// The second report's value.
        other: String,
    },
    /// A report does not say which command wrote it.
    #[error("{file} does not say which command wrote it")]
    #[diagnostic(
        code(merge::unnamed),
        help("run its job again with this version of cargo-vram; an older version wrote this report")
    )]
    Unnamed {
        /// The file.
        file: String,
    },
    /// No report has a verdict that a check must have.
    #[error("no report has a verdict on {}", .budgets.join(", "))]
    #[diagnostic(
        code(merge::unjudged),
        help("run the jobs of these models again with the same budgets.yaml; a verdict on another GPU does not count")
    )]
    Unjudged {
        /// The budgets without a verdict, each with its GPU.
        budgets: Vec<String>,
    },
    /// A signal stopped the command that wrote a report.
    #[error("{file} is incomplete: a signal stopped the command that wrote it")]
    #[diagnostic(code(merge::interrupted), help("run its job again, then merge all reports"))]
    Interrupted {
        /// The file.
        file: String,
    },
    /// Two reports have the same run.
    #[error("{run} is in both {first} and {second}")]
    #[diagnostic(
        code(merge::overlap),
        help("pass each report once, and give each job its own --partition")
    )]
    Overlap {
        /// The run.
        run: String,
        /// The file of the first report.
        first: String,
        /// The file of the second report.
        second: String,
    },
    /// A run belongs to a model that is not expected.
    #[error("{file} has a run of {run}, which is not among the expected models")]
    #[diagnostic(
        code(merge::unexpected),
        help(
            "run the job of this report again, and do not edit reports by hand: `expected` lists every selected model"
        )
    )]
    Unexpected {
        /// The model of the run, as `package/model`.
        run: String,
        /// The file of the report with the run.
        file: String,
    },
    /// Expected models were not run.
    #[error("{} missing from these reports: {}", were(*.count), .places.join("; "))]
    #[diagnostic(
        code(merge::gap),
        help("run the jobs with missing or incomplete reports again, then merge all reports")
    )]
    Gap {
        /// The number of missing models.
        count: usize,
        /// The missing models, grouped by the report that should have them.
        places: Vec<String>,
    },
}

fn were(count: usize) -> String {
    match count {
        0 => "a part is".to_owned(),
        1 => "1 model is".to_owned(),
        count => format!("{count} models are"),
    }
}

/// Joins reports, each given with the name of its file. Returns `None` if there are no reports.
///
/// # Errors
/// Returns an error if reports overlap, lack a model or a verdict, or differ in commit, tool, command, base or expected
/// models.
pub fn merge(reports: Vec<(String, Report)>) -> Result<Option<Report>, MergeError> {
    // The causes come first: a job that was stopped also lacks models and verdicts.
    uninterrupted(&reports)?;
    named_by_command(&reports)?;
    alike(&reports)?;
    once(&reports)?;
    known(&reports)?;
    whole(&reports)?;
    judged(&reports)?;
    // The whole is never better than what a part says of itself, even if the merged values do not show why.
    let status = reports.iter().map(|(_, report)| report.status).max();
    let mut reports = reports.into_iter().map(|(_, report)| report);
    let Some(mut merged) = reports.next() else {
        return Ok(None);
    };
    merged.partition = None;
    let shared = merged.verdicts.iter().filter(|verdict| is_shared(verdict));
    let mut shared: HashSet<_> = shared.cloned().collect();
    let mut problems: HashSet<_> = merged.problems.iter().cloned().collect();
    let mut skipped: HashSet<_> = merged.skipped.iter().cloned().collect();
    for report in reports {
        merged.runs.extend(report.runs);
        let new = |verdict: &Verdict| !is_shared(verdict) || shared.insert(verdict.clone());
        merged.verdicts.extend(report.verdicts.into_iter().filter(new));
        // `None` is less than both others, so one job with changes makes the whole dirty.
        merged.dirty = merged.dirty.max(report.dirty);
        // A problem that every job met is kept once.
        let new = |problem: &Problem| problems.insert(problem.clone());
        merged.problems.extend(report.problems.into_iter().filter(new));
        merged.growth.extend(report.growth);
        merged
            .skipped
            .extend(report.skipped.into_iter().filter(|one| skipped.insert(one.clone())));
    }
    sort(&mut merged);
    let verdicts = merged.verdicts.iter().map(|verdict| verdict.status).max();
    let failed = !merged.problems.is_empty() || merged.runs.iter().any(|run| run.error.is_some());
    let errors = failed.then_some(Status::Error);
    // Only `check` judges. In an estimate, an out of memory is a result, not a failure.
    let is_judged = merged.command == Some(WrittenBy::Check);
    let full = (is_judged && merged.runs.iter().any(|run| run.oom.is_some())).then_some(Status::Fail);
    merged.status = status.max(verdicts).max(errors).max(full).unwrap_or(Status::Pass);
    Ok(Some(merged))
}

/// Whether each part of a check may have the same verdict: about edits, and about entries of the baseline whose models no
/// longer exist.
const fn is_shared(verdict: &Verdict) -> bool {
    matches!(verdict.rule, Rule::Edit | Rule::Baseline)
}

/// Sorts runs and verdicts in the order of the expected models, whatever the order of the files.
fn sort(report: &mut Report) {
    let places: HashMap<&str, usize> = report.expected.iter().map(Foreign::raw).zip(0..).collect();
    let place = |run: &Run| places.get(identity(run).as_str()).copied().unwrap_or(usize::MAX);
    report
        .runs
        .sort_by_cached_key(|run| (place(run), run.name().to_owned(), run.gpu.id.clone(), run.mode));
    let mut order: HashMap<(PlainName, PlainName), usize> = HashMap::new();
    for (at, run) in report.runs.iter().enumerate() {
        order.entry((run.package.clone(), run.name().to_owned())).or_insert(at);
    }
    report.verdicts.sort_by_cached_key(|verdict| {
        let key = (verdict.package.clone(), verdict.model.clone());
        (
            order.get(&key).copied().unwrap_or(usize::MAX),
            verdict.gpu.clone(),
            verdict.mode,
        )
    });
}

/// Checks that all reports have the same commit, tool, command, expected models and budgets, number of parts, and base.
fn alike(reports: &[(String, Report)]) -> Result<(), MergeError> {
    let Some(((first, report), others)) = reports.split_first() else {
        return Ok(());
    };
    let facts = |report: &Report| {
        let mut expected: Vec<_> = report.expected.iter().map(Foreign::raw).collect();
        // Only the set must agree: a report is not wrong because of its order.
        expected.sort();
        let parts = report.partition.as_ref().map(Foreign::raw).and_then(Partition::parse);
        let none = || "none".to_owned();
        [
            ("the commit", report.commit.clone().map_or_else(none, Foreign::into_raw)),
            (
                "the version of cargo-vram",
                format!("{} {}", report.tool.name.raw(), report.tool.version.raw()),
            ),
            (
                "the fingerprint of the estimator",
                report.tool.fingerprint.raw().to_owned(),
            ),
            (
                "the command that wrote them",
                report.command.map_or_else(none, |command| command.name().to_owned()),
            ),
            ("the expected models", expected.join(" ")),
            ("the budgets to check", budgets(&report.expected_verdicts)),
            (
                "the number of parts",
                parts.map_or_else(none, |part| part.parts().to_string()),
            ),
            (
                "the base",
                report
                    .base
                    .as_ref()
                    .map_or_else(none, |base| base.commit.raw().to_owned()),
            ),
        ]
    };
    let wanted = facts(report);
    for (second, other) in others {
        for ((what, one), (_, other)) in wanted.iter().zip(facts(other)) {
            if *one != other {
                return Err(MergeError::Different {
                    first: named(first),
                    second: named(second),
                    what,
                    one: named(one),
                    other: named(&other),
                });
            }
        }
    }
    Ok(())
}

/// Checks that no report is from a command that a signal stopped.
fn uninterrupted(reports: &[(String, Report)]) -> Result<(), MergeError> {
    let is_interrupted = |problem: &Problem| problem.code == ErrorCode::Interrupted;
    match reports
        .iter()
        .find(|(_, report)| report.problems.iter().any(is_interrupted))
    {
        Some((file, _)) => Err(MergeError::Interrupted { file: named(file) }),
        None => Ok(()),
    }
}

/// Checks that every report names the command that wrote it.
fn named_by_command(reports: &[(String, Report)]) -> Result<(), MergeError> {
    match reports.iter().find(|(_, report)| report.command.is_none()) {
        Some((file, _)) => Err(MergeError::Unnamed { file: named(file) }),
        None => Ok(()),
    }
}

fn budgets(expected: &[ExpectedVerdict]) -> String {
    let mut all: Vec<String> = expected.iter().map(budget).collect();
    all.sort();
    all.join(" ")
}

fn budget(expected: &ExpectedVerdict) -> String {
    format!("{}/{} on {}", expected.package, expected.model, expected.gpu)
}

/// Checks that the reports of `check` together have a verdict on every expected budget. A verdict that only says
/// "no limit" counts, too.
///
/// A target that did not build has no expected verdicts. It fails by its problem.
fn judged(reports: &[(String, Report)]) -> Result<(), MergeError> {
    if reports
        .iter()
        .all(|(_, report)| report.command != Some(WrittenBy::Check))
    {
        return Ok(());
    }
    let verdicts: HashSet<(&str, &str, &str)> = reports
        .iter()
        .flat_map(|(_, report)| &report.verdicts)
        // These verdicts are not about a budget.
        .filter(|verdict| !matches!(verdict.rule, Rule::Build | Rule::Edit))
        .filter(|verdict| verdict.mode == Mode::Estimate || verdict.rule != Rule::Drift)
        .map(|verdict| (verdict.package.as_str(), verdict.model.as_str(), verdict.gpu.as_str()))
        .collect();
    let is_judged = |expected: &ExpectedVerdict| {
        verdicts.contains(&(
            expected.package.as_str(),
            expected.model.as_str(),
            expected.gpu.as_str(),
        ))
    };
    // Every run must have a verdict, too: if somebody emptied the list of expected verdicts by hand, the runs are still
    // there.
    let run = reports.iter().flat_map(|(_, report)| &report.runs);
    let judged: HashSet<(&str, &str)> = verdicts.iter().map(|(package, model, _)| (*package, *model)).collect();
    let run = run.filter(|run| !judged.contains(&(run.package.as_str(), run.name())));
    let run = run.map(|run| format!("{} on {}", run.full_name(), run.gpu.id));
    let expected: BTreeSet<&ExpectedVerdict> = reports
        .iter()
        .flat_map(|(_, report)| &report.expected_verdicts)
        .collect();
    let missing = expected.into_iter().filter(|expected| !is_judged(expected)).map(budget);
    let unjudged: BTreeSet<String> = missing.chain(run).collect();
    if unjudged.is_empty() {
        return Ok(());
    }
    let more = unjudged.len().saturating_sub(TOLD);
    let mut told: Vec<String> = unjudged.iter().take(TOLD).map(|budget| named(budget)).collect();
    if more > 0 {
        told.push(format!("and {more} more"));
    }
    Err(MergeError::Unjudged { budgets: told })
}

/// Checks that no run is in two reports.
fn once(reports: &[(String, Report)]) -> Result<(), MergeError> {
    type Key<'a> = (&'a PlainName, &'a PlainName, &'a PlainName, Mode, &'a PlainName);
    let mut seen: HashMap<Key<'_>, &str> = HashMap::new();
    for (file, report) in reports {
        for run in &report.runs {
            let key = (&run.package, &run.model, run.name(), run.mode, &run.gpu.id);
            if let Some(first) = seen.insert(key, file) {
                return Err(MergeError::Overlap {
                    run: named(&format!(
                        "{}/{} ({}, {})",
                        run.package,
                        run.name(),
                        run.gpu.id,
                        mode_name(run.mode)
                    )),
                    first: named(first),
                    second: named(file),
                });
            }
        }
    }
    Ok(())
}

/// Checks that every run belongs to an expected model.
fn known(reports: &[(String, Report)]) -> Result<(), MergeError> {
    for (file, report) in reports {
        let expected: HashSet<&str> = report.expected.iter().map(Foreign::raw).collect();
        if let Some(run) = report
            .runs
            .iter()
            .find(|run| !expected.contains(identity(run).as_str()))
        {
            return Err(MergeError::Unexpected {
                run: named(&identity(run)),
                file: named(file),
            });
        }
    }
    Ok(())
}

/// Checks that every expected model was run.
fn whole(reports: &[(String, Report)]) -> Result<(), MergeError> {
    let run: BTreeSet<String> = reports
        .iter()
        .flat_map(|(_, report)| &report.runs)
        .map(identity)
        .collect();
    let expected: BTreeSet<&str> = reports
        .iter()
        .flat_map(|(_, report)| report.expected.iter().map(Foreign::raw))
        .collect();
    let parts: Vec<(&str, Partition)> = reports
        .iter()
        .filter_map(|(file, report)| Some((file.as_str(), Partition::parse(report.partition.as_ref()?.raw())?)))
        .collect();
    let mut missing: BTreeMap<Option<Partition>, Vec<&str>> = BTreeMap::new();
    let mut count = 0;
    for model in expected.into_iter().filter(|model| !run.contains(*model)) {
        // All parts have the same number of parts (`alike`), so any of them can say where a model belongs.
        let part = parts.first().map(|(_, any)| any.holding(model));
        missing.entry(part).or_default().push(model);
        count += 1;
    }
    if count == 0 {
        return Ok(());
    }
    let places = missing.into_iter().map(|(part, models)| {
        let mut told: Vec<_> = models.iter().take(TOLD).map(|model| named(model)).collect();
        if models.len() > TOLD {
            told.push(format!("and {} more", models.len() - TOLD));
        }
        let told = told.join(", ");
        match part {
            None => told,
            Some(part) => match parts.iter().find(|(_, other)| *other == part) {
                Some((file, _)) => format!("{} ({part}) is incomplete and lacks {told}", named(file)),
                None => format!("the report of {part} is missing (models: {told})"),
            },
        }
    });
    Err(MergeError::Gap {
        count,
        places: places.collect(),
    })
}

fn identity(run: &Run) -> String {
    format!("{}/{}", run.package, run.model)
}

#[cfg(test)]
mod tests;
