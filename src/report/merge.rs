//! Joins the reports of several jobs into one: of everything that was to be run, each thing once, or not at all.

use std::collections::{BTreeMap, BTreeSet, HashMap, HashSet};

use miette::Diagnostic;
use thiserror::Error;

use super::ErrorCode;
use super::human::text::named;
use super::words::mode_name;
use super::{ExpectedVerdict, Mode, Partition, Problem, Report, Rule, Run, Status, Verdict, WrittenBy};

/// Names that an error tells one by one.
const TOLD: usize = 10;

/// Why reports are not those of one whole.
#[derive(Debug, Error, Diagnostic)]
pub enum MergeError {
    /// They differ in something that they must have in common.
    #[error("{first} and {second} differ in {what}: {one}, and {other}")]
    #[diagnostic(
        code(merge::different),
        help("merge joins what one commit's jobs wrote, with one version of cargo-vram")
    )]
    Different {
        /// A file.
        first: String,
        /// Another.
        second: String,
        /// In what.
        what: &'static str,
        /// What the first has.
        one: String,
        /// What the second has.
        other: String,
    },
    /// One does not say what it is.
    #[error("{file} does not say which command wrote it")]
    #[diagnostic(
        code(merge::unnamed),
        help("an older version of cargo-vram wrote it: run its job again with this one")
    )]
    Unnamed {
        /// The file.
        file: String,
    },
    /// Nobody judged what a check judges.
    #[error("no report has a verdict on {}", .budgets.join(", "))]
    #[diagnostic(
        code(merge::unjudged),
        help("a verdict on another GPU is none: run the jobs of these models again, each with the same budgets.yaml")
    )]
    Unjudged {
        /// Which budgets, each with its GPU.
        budgets: Vec<String>,
    },
    /// One is of a command that was stopped.
    #[error("{file} is incomplete: a signal stopped the command that wrote it")]
    #[diagnostic(code(merge::interrupted), help("run its job again, and merge all of them"))]
    Interrupted {
        /// The file.
        file: String,
    },
    /// A run is in two of them.
    #[error("{run} is in {first} and in {second}")]
    #[diagnostic(
        code(merge::overlap),
        help("give each report once, and each job a --partition of its own")
    )]
    Overlap {
        /// Which run.
        run: String,
        /// A file that it is in.
        first: String,
        /// Another.
        second: String,
    },
    /// A run is of nothing that was to be run.
    #[error("{run} of {file} is not among the models that were to be run")]
    #[diagnostic(
        code(merge::unexpected),
        help("a report lists all that was to be run as `expected`: one that has been changed by hand is no report")
    )]
    Unexpected {
        /// Which run.
        run: String,
        /// The file that it is in.
        file: String,
    },
    /// Something was not run.
    #[error("{} not in any of these reports: {}", were(*.count), .places.join("; "))]
    #[diagnostic(
        code(merge::gap),
        help("a job that was stopped writes no whole report: run it again, and merge all of them")
    )]
    Gap {
        /// How many models.
        count: usize,
        /// Where they should have been, and which.
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

impl MergeError {
    /// Whether a job is at fault, rather than what was given.
    #[must_use]
    pub const fn is_by_a_job(&self) -> bool {
        matches!(
            self,
            Self::Gap { .. } | Self::Unjudged { .. } | Self::Interrupted { .. }
        )
    }
}

/// Joins reports, each with the name of its file.
///
/// # Errors
/// They overlap, leave something out, or are not of one commit, one tool and one list of models.
pub fn merge(reports: Vec<(String, Report)>) -> Result<Option<Report>, MergeError> {
    uninterrupted(&reports)?;
    named_by_command(&reports)?;
    alike(&reports)?;
    once(&reports)?;
    known(&reports)?;
    whole(&reports)?;
    judged(&reports)?;
    let status = reports.iter().map(|(_, report)| report.status).max();
    let mut reports = reports.into_iter().map(|(_, report)| report);
    let Some(mut merged) = reports.next() else {
        return Ok(None);
    };
    merged.partition = None;
    for report in reports {
        merged.runs.extend(report.runs);
        // Each part finds the same edits.
        let new = |verdict: &Verdict| verdict.rule != Rule::Edit || !merged.verdicts.contains(verdict);
        let verdicts: Vec<_> = report.verdicts.into_iter().filter(new).collect();
        merged.verdicts.extend(verdicts);
        merged.dirty = merged.dirty.max(report.dirty);
        // What every job met is told once.
        let new = |problem: &_| !merged.problems.contains(problem);
        let problems: Vec<_> = report.problems.into_iter().filter(new).collect();
        merged.problems.extend(problems);
        let new = |skipped: &_| !merged.skipped.contains(skipped);
        let skipped: Vec<_> = report.skipped.into_iter().filter(new).collect();
        merged.skipped.extend(skipped);
    }
    sort(&mut merged);
    let verdicts = merged.verdicts.iter().map(|verdict| verdict.status).max();
    let failed = !merged.problems.is_empty() || merged.runs.iter().any(|run| run.error.is_some());
    let errors = failed.then_some(Status::Error);
    let is_judged = merged.command == Some(WrittenBy::Check);
    let full = (is_judged && merged.runs.iter().any(|run| run.oom.is_some())).then_some(Status::Fail);
    merged.status = status.max(verdicts).max(errors).max(full).unwrap_or(Status::Pass);
    Ok(Some(merged))
}

/// In the order of the whole list, whatever order the files came in.
fn sort(report: &mut Report) {
    let places: HashMap<&str, usize> = report.expected.iter().map(String::as_str).zip(0..).collect();
    let place = |run: &Run| places.get(identity(run).as_str()).copied().unwrap_or(usize::MAX);
    report
        .runs
        .sort_by_cached_key(|run| (place(run), run.name().to_owned(), run.gpu.id.clone(), run.mode));
    let mut order: HashMap<(String, String), usize> = HashMap::new();
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

/// Whether they are of one commit, one tool, one list of models, and compared with one base.
fn alike(reports: &[(String, Report)]) -> Result<(), MergeError> {
    let Some(((first, report), others)) = reports.split_first() else {
        return Ok(());
    };
    let facts = |report: &Report| {
        let mut expected = report.expected.clone();
        expected.sort();
        let parts = report.partition.as_deref().and_then(Partition::parse);
        let none = || "none".to_owned();
        [
            ("commit", report.commit.clone().unwrap_or_else(none)),
            ("tool", format!("{} {}", report.tool.name, report.tool.version)),
            ("the estimator's fingerprint", report.tool.fingerprint.clone()),
            (
                "the command that wrote them",
                report.command.map_or_else(none, |command| command.name().to_owned()),
            ),
            ("models that were to be run", expected.join(" ")),
            ("budgets that were to be judged", budgets(&report.expected_verdicts)),
            (
                "number of parts",
                parts.map_or_else(none, |part| part.parts().to_string()),
            ),
            (
                "base",
                report.base.as_ref().map_or_else(none, |base| base.commit.clone()),
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

/// Whether each says which command wrote it.
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

/// Whether a check's parts have a verdict on every budget, if only that there is no limit. A target that could not be built
/// has none, and fails by that.
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
        // These say nothing of a budget.
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
    // Whatever was run has a verdict, too: where the list was emptied by hand, the runs are still there.
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

/// Whether no run is in two of them.
fn once(reports: &[(String, Report)]) -> Result<(), MergeError> {
    type Key<'a> = (&'a str, &'a str, &'a str, Mode, &'a str);
    let mut seen: HashMap<Key<'_>, &str> = HashMap::new();
    for (file, report) in reports {
        for run in &report.runs {
            let key = (
                run.package.as_str(),
                run.model.as_str(),
                run.name(),
                run.mode,
                run.gpu.id.as_str(),
            );
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

/// Whether every run is of something that was to be run.
fn known(reports: &[(String, Report)]) -> Result<(), MergeError> {
    for (file, report) in reports {
        let expected: HashSet<&str> = report.expected.iter().map(String::as_str).collect();
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

/// Whether everything that was to be run was.
fn whole(reports: &[(String, Report)]) -> Result<(), MergeError> {
    let run: BTreeSet<String> = reports
        .iter()
        .flat_map(|(_, report)| &report.runs)
        .map(identity)
        .collect();
    let expected: BTreeSet<&String> = reports.iter().flat_map(|(_, report)| &report.expected).collect();
    let parts: Vec<(&str, Partition)> = reports
        .iter()
        .filter_map(|(file, report)| Some((file.as_str(), Partition::parse(report.partition.as_deref()?)?)))
        .collect();
    let mut missing: BTreeMap<Option<Partition>, Vec<&str>> = BTreeMap::new();
    let mut count = 0;
    for model in expected.into_iter().filter(|model| !run.contains(*model)) {
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
                Some((file, _)) => format!("{} ({part}) is incomplete, it lacks {told}", named(file)),
                None => format!("the report of {part} is missing, with {told}"),
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
