//! Which of the declared models are meant, and with which inputs on which card.

use std::collections::BTreeMap;
use std::time::Duration;

use miette::{Diagnostic, IntoDiagnostic};
use thiserror::Error;

use super::Stopped;
use super::options::Running;
use super::pipeline::{Asked, Models, Prepared};
use crate::budget::{Budgets, Spanned};
use crate::gpu::Profile;
use crate::names::listed;
use crate::protocol::WhatIf;
use crate::recording::{Recording, Recordings};
use crate::report::{Report, Run};
use crate::run::{Allowed, Case, Launches, Listed};

/// How long a pass may take where nobody said.
const TIMEOUT: Duration = Duration::from_secs(600);

/// The declared models that `-m` means. Where `missing` says so, a glob may match nothing, as long as another one does.
pub(super) fn select(
    declared: &[Listed],
    running: &Running,
    budgets: Option<&Budgets>,
    missing: Missing,
) -> Result<Vec<Listed>, Asked> {
    let names = |model: &Listed| -> Vec<String> {
        let own = budgets
            .into_iter()
            .flat_map(|budgets| budgets.for_model(&model.built.target.package, &model.name));
        let package = &model.built.target.package;
        own.filter_map(|budget| budget.report_name())
            .flat_map(|name| [name.to_owned(), format!("{package}/{name}")])
            .chain([model.name.clone(), identity(model)])
            .collect()
    };
    let globs = globs(running)?;
    let is_meant = |model: &&Listed| globs.is_empty() || names(model).iter().any(|name| globs.is_match(name));
    let selected: Vec<_> = declared.iter().filter(is_meant).cloned().collect();
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

/// What a glob that matches nothing is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Missing {
    /// A mistake.
    Refused,
    /// A model that another revision does not have yet.
    Elsewhere,
    /// Perhaps a model of a target that could not be built, which fails the command anyway.
    Hidden,
}

/// Whether each glob matches one of the names; `there` are those that people are shown.
fn each_matches(asked: &[String], names: &[String], there: impl FnOnce() -> Vec<String>) -> Result<(), Asked> {
    for glob in asked {
        let matcher = globset::Glob::new(glob)?.compile_matcher();
        if !names.iter().any(|name| matcher.is_match(name)) {
            return Err(none_of(std::slice::from_ref(glob), &there()));
        }
    }
    Ok(())
}

/// Leaves only the runs that `-m` means.
pub(super) fn keep_matching(reports: &mut [Report], running: &Running) -> Result<(), Asked> {
    let globs = globs(running)?;
    if globs.is_empty() {
        return Ok(());
    }
    let is_meant = |run: &Run| globs.is_match(run.name()) || globs.is_match(run.full_name());
    let runs = || reports.iter().flat_map(|report| &report.runs);
    let all: Vec<String> = runs().map(Run::full_name).collect();
    let names: Vec<String> = runs().map(|run| run.name().to_owned()).chain(all.clone()).collect();
    each_matches(&running.model, &names, || all)?;
    for report in reports.iter_mut() {
        report.runs.retain(is_meant);
    }
    Ok(())
}

/// Where one of several that match is of exactly this name, it is meant, and no other.
pub(super) fn prefer_exact(found: &mut Vec<Case>, name: &str) {
    if found.iter().filter(|case| case.name() == name).count() == 1 {
        found.retain(|case| case.name() == name);
    }
}

/// That nothing is called so, and what there is instead.
pub(super) fn no_match(asked: &[String], declared: &[Listed]) -> Asked {
    let names: Vec<_> = declared.iter().map(|model| name(model, declared)).collect();
    none_of(asked, &names)
}

fn none_of(asked: &[String], names: &[String]) -> Asked {
    let only = match asked {
        [asked] => Some(asked.as_str()),
        _ => None,
    };
    Asked::NoMatch(asked.join(", "), listed(only, "the models", names))
}

fn globs(running: &Running) -> Result<globset::GlobSet, globset::Error> {
    let mut globs = globset::GlobSetBuilder::new();
    for glob in &running.model {
        globs.add(globset::Glob::new(glob)?);
    }
    globs.build()
}

fn matches(globs: &globset::GlobSet, model: &Listed) -> bool {
    globs.is_match(&model.name) || globs.is_match(identity(model))
}

/// A model as `package/model`.
pub(super) fn identity(model: &Listed) -> String {
    format!("{}/{}", model.built.target.package, model.name)
}

/// The same model, of those that were built in another way.
pub(super) fn same(model: &Listed, models: &Models) -> Option<Listed> {
    let is_it = |other: &&Listed| identity(other) == identity(model);
    models.selected.iter().find(is_it).cloned()
}

/// Whether another package declares a model of the same name.
pub(super) fn is_ambiguous(model: &Listed, declared: &[Listed]) -> bool {
    let package = &model.built.target.package;
    let mut others = declared.iter().filter(|other| other.built.target.package != *package);
    others.any(|other| other.name == model.name)
}

/// What tells a model from all others: its name, where that is enough.
fn name(model: &Listed, declared: &[Listed]) -> String {
    if is_ambiguous(model, declared) {
        identity(model)
    } else {
        model.name.clone()
    }
}

/// More GPUs were named than a command takes.
#[derive(Debug, Error, Diagnostic)]
#[error("--gpu names {} GPUs ({}), and this command takes one", .0.len(), .0.join(", "))]
#[diagnostic(
    code(cli::several_gpus),
    help("run the command once for each of them; `cargo vram estimate` and `cargo vram check` take several")
)]
pub(super) struct SeveralGpus(Vec<String>);

/// The one GPU that was asked for, or that budgets are written for.
pub(super) fn declared_card<'a>(prepared: &'a Prepared, running: &Running) -> Result<&'a Profile, Stopped> {
    match declared_cards(prepared, running)?.as_slice() {
        [one] => Ok(one),
        several => Err(SeveralGpus(several.iter().map(|card| card.id.clone()).collect()).into()),
    }
}

/// The GPUs that were asked for, in that order and each once, or the one that budgets are written for; at least one.
pub(super) fn declared_cards<'a>(prepared: &'a Prepared, running: &Running) -> Result<Vec<&'a Profile>, Stopped> {
    let declared = prepared.budgets.as_ref().and_then(|budgets| budgets.gpu.as_ref());
    let mut asked: Vec<&str> = running.gpu.iter().map(|gpu| gpu.trim()).collect();
    if asked.is_empty() {
        asked.extend(declared.map(|gpu| gpu.value.as_str()));
    }
    let mut cards: Vec<&Profile> = Vec::new();
    for gpu in asked {
        let card = prepared.profiles.get(gpu)?;
        if cards.iter().all(|other| other.id != card.id) {
            cards.push(card);
        }
    }
    match cards.is_empty() {
        true => Err(Asked::NoGpu.into()),
        false => Ok(cards),
    }
}

/// `a virtual NVIDIA L4 (22.03 GiB) and a virtual NVIDIA H200 (139.80 GiB)`
pub(super) fn virtual_cards(cards: &[Profile]) -> String {
    let named = |card: &Profile| format!("a virtual {} ({})", card.name, card.total.value);
    let names: Vec<_> = cards.iter().map(named).collect();
    match names.split_last() {
        Some((last, before)) if !before.is_empty() => format!("{} and {last}", before.join(", ")),
        _ => names.join(""),
    }
}

/// The cases of the selected models on several GPUs: those of one model beside each other.
pub(super) fn cases_on<'a>(
    prepared: &Prepared,
    models: &Models,
    running: &Running,
    inputs: &BTreeMap<String, u64>,
    profiles: impl Iterator<Item = &'a Profile>,
) -> Result<Vec<Case>, Stopped> {
    let all = profiles.map(|profile| cases(prepared, models, running, inputs, profile));
    let mut all: Vec<_> = all.map(|cases| cases.map(Vec::into_iter)).collect::<Result<_, _>>()?;
    let mut beside = Vec::new();
    // Each GPU has the same cases in the same order.
    loop {
        let row: Vec<Case> = all.iter_mut().filter_map(Iterator::next).collect();
        if row.is_empty() {
            return Ok(beside);
        }
        beside.extend(row);
    }
}

/// A card as it is estimated: what was measured on such a card goes before what is known of it otherwise.
pub(super) fn estimated(profile: &Profile, recordings: &Recordings) -> Profile {
    recorded(profile, recordings.for_estimate(&profile.id, profile.like.as_deref()))
}

/// A card as it is measured, with this driver.
pub(super) fn measured(profile: &Profile, driver: &str, recordings: &Recordings) -> Profile {
    recorded(profile, recordings.for_measurement(&profile.id, driver).next())
}

fn recorded(profile: &Profile, recording: Option<&Recording>) -> Profile {
    let profile = profile.clone();
    match recording.map(Recording::card) {
        Some(card) => profile.measured(&card.gpu, card.context.as_ref(), card.modules.as_ref()),
        None => profile,
    }
}

/// The cases of the selected models on a card: one a budget, or one with the model's own inputs where there is no budget.
pub(super) fn cases(
    prepared: &Prepared,
    models: &Models,
    running: &Running,
    inputs: &BTreeMap<String, u64>,
    profile: &Profile,
) -> Result<Vec<Case>, Stopped> {
    let globs = globs(running).into_diagnostic()?;
    // The command line goes before the file.
    let steps = |written: Option<Spanned<u32>>| written.filter(|_| running.steps.is_none()).map(|steps| steps.value);
    let launches = running.plan.clone().map_or(Launches::All, Launches::Later);
    let mut cases = Vec::new();
    for model in &models.selected {
        let budgets = prepared
            .budgets
            .iter()
            .flat_map(|budgets| budgets.for_model(&model.built.target.package, &model.name));
        let before = cases.len();
        for budget in budgets {
            let package = &model.built.target.package;
            let is_meant = |name: &str| globs.is_match(name) || globs.is_match(format!("{package}/{name}"));
            let named = budget.report_name().is_some_and(is_meant);
            if !(globs.is_empty() || matches(&globs, model) || named) {
                continue;
            }
            let mut values = budget.input_values();
            values.extend(inputs.clone());
            cases.push(Case {
                model: model.clone(),
                budget: budget.report_name().map(str::to_owned),
                inputs: values,
                profile: profile.clone(),
                timeout: running
                    .timeout
                    .or(budget.settings.timeout.as_ref().map(|timeout| timeout.value))
                    .unwrap_or(TIMEOUT),
                steps: steps(budget.settings.steps),
                what_if: WhatIf::default(),
                launches: launches.clone(),
                allowed: Allowed {
                    nondeterministic: budget.nondeterministic.is_some(),
                    data_dependent: budget.data_dependent.is_some(),
                },
                repeat: 1,
                endless: false,
            });
        }
        if cases.len() == before && (globs.is_empty() || matches(&globs, model)) {
            let default = prepared
                .budgets
                .as_ref()
                .and_then(|budgets| budgets.defaults.timeout.as_ref().map(|timeout| timeout.value));
            cases.push(Case {
                model: model.clone(),
                budget: None,
                inputs: inputs.clone(),
                profile: profile.clone(),
                timeout: running.timeout.or(default).unwrap_or(TIMEOUT),
                steps: steps(prepared.budgets.as_ref().and_then(|budgets| budgets.defaults.steps)),
                what_if: WhatIf::default(),
                launches: launches.clone(),
                allowed: Allowed::default(),
                repeat: 1,
                endless: false,
            });
        }
    }
    Ok(cases)
}
