//! Selects models by the globs of `-m`.

use crate::budget::Budgets;
use crate::cli::options::Running;
use crate::cli::session::error::SelectionError;
use crate::names::listed;
use crate::report::{Report, Run};
use crate::run::{Case, Listed};

/// Returns the declared models that `-m` selects. `missing` says what happens if a glob matches no model.
pub(in crate::cli) fn select(
    declared: &[Listed],
    running: &Running,
    budgets: Option<&Budgets>,
    missing: Missing,
) -> Result<Vec<Listed>, SelectionError> {
    let names = |model: &Listed| -> Vec<String> {
        let own = budgets
            .into_iter()
            .flat_map(|budgets| budgets.for_model(&model.built.target.package, &model.name));
        let package = &model.built.target.package;
        own.filter_map(|budget| budget.report_name())
            .flat_map(|name| [name.to_owned(), format!("{package}/{name}")])
            .chain([model.name.to_string(), identity(model)])
            .collect()
    };
    let globs = globs(running)?;
    let is_meant = |model: &&Listed| globs.is_empty() || names(model).iter().any(|name| globs.is_match(name));
    let selected: Vec<_> = declared.iter().filter(is_meant).cloned().collect();
    // Each glob by itself: `-m resnet18 -m vg16` must not check one model and forget the misspelled one.
    if missing == Missing::Refused && !declared.is_empty() {
        let all: Vec<String> = declared.iter().flat_map(names).collect();
        each_matches(&running.model, &all, || {
            declared.iter().map(|model| name(model, declared)).collect()
        })?;
    }
    if selected.is_empty() && !declared.is_empty() && missing != Missing::Hidden {
        return Err(no_match(&running.model, declared));
    }
    Ok(selected)
}

/// The meaning of a glob that matches no model.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(in crate::cli) enum Missing {
    /// A mistake, which is an error.
    Refused,
    /// A model that another revision does not have yet. It is an error only if no glob matches.
    Elsewhere,
    /// Perhaps a model of a target that failed to build. That target fails the command anyway.
    Hidden,
}

/// Checks that each glob matches one of the names. The error lists the names of `there`.
fn each_matches(asked: &[String], names: &[String], there: impl FnOnce() -> Vec<String>) -> Result<(), SelectionError> {
    for glob in asked {
        let matcher = globset::Glob::new(glob)?.compile_matcher();
        if !names.iter().any(|name| matcher.is_match(name)) {
            return Err(none_of(std::slice::from_ref(glob), &there()));
        }
    }
    Ok(())
}

/// Removes the runs that `-m` does not select. A glob that matches no run is an error.
pub(in crate::cli) fn keep_matching(reports: &mut [Report], running: &Running) -> Result<(), SelectionError> {
    let globs = globs(running)?;
    if globs.is_empty() {
        return Ok(());
    }
    let is_meant = |run: &Run| globs.is_match(run.name()) || globs.is_match(run.full_name());
    let runs = || reports.iter().flat_map(|report| &report.runs);
    let all: Vec<String> = runs().map(Run::full_name).collect();
    let names: Vec<String> = runs().map(|run| run.name().to_string()).chain(all.clone()).collect();
    each_matches(&running.model, &names, || all)?;
    for report in reports.iter_mut() {
        report.runs.retain(is_meant);
    }
    Ok(())
}

/// Keeps only the case with exactly this name, if there is one such case.
pub(in crate::cli) fn prefer_exact(found: &mut Vec<Case>, name: &str) {
    if found.iter().filter(|case| case.name() == name).count() == 1 {
        found.retain(|case| case.name() == name);
    }
}

/// Returns the error for globs that match no model. Its help lists the declared models.
pub(in crate::cli) fn no_match(asked: &[String], declared: &[Listed]) -> SelectionError {
    let names: Vec<_> = declared.iter().map(|model| name(model, declared)).collect();
    none_of(asked, &names)
}

fn none_of(asked: &[String], names: &[String]) -> SelectionError {
    let only = match asked {
        [asked] => Some(asked.as_str()),
        _ => None,
    };
    SelectionError::NoMatch(asked.join(", "), listed(only, "the models", names))
}

pub(super) fn globs(running: &Running) -> Result<globset::GlobSet, globset::Error> {
    let mut globs = globset::GlobSetBuilder::new();
    for glob in &running.model {
        globs.add(globset::Glob::new(glob)?);
    }
    globs.build()
}

pub(super) fn matches(globs: &globset::GlobSet, model: &Listed) -> bool {
    globs.is_match(&model.name) || globs.is_match(identity(model))
}

/// Returns the name of a model as `package/model`.
pub(in crate::cli) fn identity(model: &Listed) -> String {
    format!("{}/{}", model.built.target.package, model.name)
}

/// Whether another package declares a model of the same name.
pub(in crate::cli) fn is_ambiguous(model: &Listed, declared: &[Listed]) -> bool {
    let package = &model.built.target.package;
    let mut others = declared.iter().filter(|other| other.built.target.package != *package);
    others.any(|other| other.name == model.name)
}

/// Returns the shortest unique name of a model: its own name, or `package/model` if that is ambiguous.
pub(super) fn name(model: &Listed, declared: &[Listed]) -> String {
    if is_ambiguous(model, declared) {
        identity(model)
    } else {
        model.name.to_string()
    }
}
