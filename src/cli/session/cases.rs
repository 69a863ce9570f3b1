//! Selects the cases to run: which models, with which inputs, on which GPU.

use std::collections::BTreeMap;
use std::time::Duration;

use crate::budget::Spanned;
use crate::cli::error::CliError;
use crate::cli::options::Running;
use crate::cli::session::error::SelectionError;
use crate::cli::session::error::SeveralGpus;
use crate::cli::session::models::Models;
use crate::cli::session::prepared::Prepared;
use crate::cli::session::selection::globs;
use crate::cli::session::selection::identity;
use crate::cli::session::selection::matches;
use crate::gpu::Profile;
use crate::protocol::{SizeOrder, WhatIf};
use crate::recording::{Recording, Recordings};
use crate::run::{AllowedDifferences, Case, CaseLaunches, Listed};

/// The time limit of a pass if neither `--timeout` nor `budgets.yaml` sets one.
const TIMEOUT: Duration = Duration::from_secs(600);

/// Finds the same model in another build.
pub(in crate::cli) fn same(model: &Listed, models: &Models) -> Option<Listed> {
    let is_it = |other: &&Listed| identity(other) == identity(model);
    models.selected.iter().find(is_it).cloned()
}

/// Returns the GPU of `--gpu`, or else that of `budgets.yaml`. Several GPUs are an error.
pub(in crate::cli) fn declared_gpu<'a>(prepared: &'a Prepared, running: &Running) -> Result<&'a Profile, CliError> {
    match declared_gpus(prepared, running)?.as_slice() {
        [one] => Ok(one),
        several => Err(SeveralGpus(several.iter().map(|gpu| gpu.id.clone()).collect()).into()),
    }
}

/// Returns the GPUs of `--gpu`, in that order and each once, or else the GPU of `budgets.yaml`. No GPU is an error.
pub(in crate::cli) fn declared_gpus<'a>(
    prepared: &'a Prepared,
    running: &Running,
) -> Result<Vec<&'a Profile>, CliError> {
    let declared = prepared.budgets.as_ref().and_then(|budgets| budgets.gpu.as_ref());
    let mut asked: Vec<&str> = running.gpu.iter().map(|gpu| gpu.trim()).collect();
    if asked.is_empty() {
        asked.extend(declared.map(|gpu| gpu.value.as_str()));
    }
    let mut gpus: Vec<&Profile> = Vec::new();
    for gpu in asked {
        let gpu = prepared.profiles.get(gpu)?;
        if gpus.iter().all(|other| other.id != gpu.id) {
            gpus.push(gpu);
        }
    }
    match gpus.is_empty() {
        true => Err(SelectionError::NoGpu.into()),
        false => Ok(gpus),
    }
}

/// Lists virtual GPUs: `a virtual NVIDIA L4 (22.03 GiB) and a virtual NVIDIA H200 (139.80 GiB)`.
pub(in crate::cli) fn virtual_gpus(gpus: &[Profile]) -> String {
    let named = |gpu: &Profile| format!("a virtual {} ({})", gpu.name, gpu.total.value);
    let names: Vec<_> = gpus.iter().map(named).collect();
    match names.split_last() {
        Some((last, before)) if !before.is_empty() => format!("{} and {last}", before.join(", ")),
        _ => names.join(""),
    }
}

/// Returns the cases of the selected models on several GPUs, ordered by case and then by GPU.
pub(in crate::cli) fn cases_on<'a>(
    prepared: &Prepared,
    models: &Models,
    running: &Running,
    inputs: &BTreeMap<String, u64>,
    profiles: impl Iterator<Item = &'a Profile>,
) -> Result<Vec<Case>, CliError> {
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

/// Returns a GPU profile for estimates, with the values that the replayed recording measured.
pub(in crate::cli) fn estimated(profile: &Profile, recordings: &Recordings) -> Profile {
    // Whatever driver this machine has: otherwise, an estimate would differ from machine to machine.
    // See docs/design/autotune-plan.md.
    recorded(profile, recordings.for_estimate(&profile.id, profile.like.as_deref()))
}

/// Returns a GPU profile for measurements with this driver, with the values that a recording measured.
pub(in crate::cli) fn measured(profile: &Profile, driver: &str, recordings: &Recordings) -> Profile {
    // The first one is of the installed driver, if there is such a recording.
    recorded(profile, recordings.for_measurement(&profile.id, driver).next())
}

fn recorded(profile: &Profile, recording: Option<&Recording>) -> Profile {
    let profile = profile.clone();
    match recording.map(Recording::gpu_facts) {
        Some(facts) => profile.measured(&facts.gpu, facts.context.as_ref(), facts.modules.as_ref()),
        None => profile,
    }
}

/// Returns the cases of the selected models on a GPU.
///
/// There is one case per budget. A model without a budget gets one case with its own inputs.
pub(in crate::cli) fn cases(
    prepared: &Prepared,
    models: &Models,
    running: &Running,
    inputs: &BTreeMap<String, u64>,
    profile: &Profile,
) -> Result<Vec<Case>, CliError> {
    let globs = globs(running).map_err(SelectionError::Glob)?;
    // `--steps` overrides the steps in `budgets.yaml`.
    let steps = |written: Option<Spanned<u32>>| written.filter(|_| running.steps.is_none()).map(|steps| steps.value);
    let launches = running.plan.clone().map_or(CaseLaunches::All, CaseLaunches::Later);
    let mut cases = Vec::new();
    for model in &models.selected {
        let budgets = prepared
            .budgets
            .iter()
            .flat_map(|budgets| budgets.for_model(&model.built.target.package, &model.name));
        // One case per budget: a model may have several, with other inputs and limits.
        let before = cases.len();
        for budget in budgets {
            let package = &model.built.target.package;
            let is_meant = |name: &str| globs.is_match(name) || globs.is_match(format!("{package}/{name}"));
            // A model may have several budgets, and `-m` may name only one of them.
            let named = budget.report_name().is_some_and(is_meant);
            if !(globs.is_empty() || matches(&globs, model) || named) {
                continue;
            }
            let mut values = budget.input_values();
            // `--set` wins over the inputs of the budget.
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
                allowed: AllowedDifferences {
                    nondeterministic: budget.nondeterministic.is_some(),
                    data_dependent: budget.data_dependent.is_some(),
                },
                repeat: 1,
                sizes: SizeOrder::default(),
                endless: false,
            });
        }
        // A model without a budget is run, too: `check` warns about it.
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
                allowed: AllowedDifferences::default(),
                repeat: 1,
                sizes: SizeOrder::default(),
                endless: false,
            });
        }
    }
    Ok(cases)
}
