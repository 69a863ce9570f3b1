//! Builds, lists and estimates the selected models.

use std::collections::BTreeMap;

use super::cases;
use super::what_if::WhatIfs;
use crate::cli::error::CliError;
use crate::cli::session::context::Context;
use crate::cli::session::models::Models;
use crate::cli::session::models::models;
use crate::cli::session::recordings::recordings;
use crate::cli::session::report::report;
use crate::cli::session::run::RunSetup;
use crate::cli::session::run::run_partly;
use crate::cli::timings;
use crate::report::{Problem, Report, WrittenBy};
use crate::run::Hardware;

/// The estimates of the selected models on the selected GPUs.
pub(in crate::cli) struct Estimated {
    pub(in crate::cli) models: Models,
    pub(in crate::cli) report: Report,
    /// The profiles of the selected GPUs.
    pub(in crate::cli) gpus: Vec<crate::gpu::Profile>,
    /// The signal that stopped the command before all models were estimated. The report lists these models as problems.
    pub(in crate::cli) signal: Option<usize>,
    /// The number of planned runs.
    pub(in crate::cli) count: usize,
}

/// How often `check` runs a model whose budget says `nondeterministic: allowed`.
pub(in crate::cli) const REPEAT: u32 = 3;

/// Builds, lists and estimates the models.
///
/// `as_judged` runs them as `check` does, so that the estimates can become a baseline.
pub(in crate::cli) fn estimate(
    context: &Context<'_>,
    inputs: &BTreeMap<String, u64>,
    what_ifs: &WhatIfs,
    as_judged: bool,
) -> Result<Estimated, CliError> {
    let &Context { prepared, running, .. } = context;
    // Check the GPU names before the build, so that a misspelled name fails at once.
    let declared = cases::declared_gpus(prepared, running)?.into_iter();
    let folder = prepared.source.scratch(running.keep.as_deref())?;
    let mut models = models(context, folder.path())?;
    let recordings = recordings(running)?;
    let gpus: Vec<_> = declared.map(|gpu| cases::estimated(gpu, &recordings)).collect();
    let mut cases = cases::cases_on(prepared, &models, running, inputs, gpus.iter())?;
    let differing = cases
        .iter_mut()
        // `bless` must accept the same largest value that `check` will compare.
        .filter(|case| as_judged && case.allowed.nondeterministic);
    differing.for_each(|case| case.repeat = REPEAT);
    let (otherwise, problems) = what_ifs.cases(&cases, context, folder.path())?;
    // The separate build of what-ifs reports the same problems again.
    let new = |problem: &Problem| !models.problems.contains(problem);
    let problems: Vec<_> = problems.into_iter().filter(new).collect();
    models.problems.extend(problems);
    // Each case unchanged, followed by its what-ifs.
    let cases: Vec<_> = cases
        .into_iter()
        .zip(otherwise)
        .flat_map(|(case, otherwise)| std::iter::once(case).chain(otherwise))
        .collect();
    let driver = timings::timed("building the virtual driver", || prepared.source.driver())?;
    let on = RunSetup {
        verified: as_judged,
        ..RunSetup::new(&driver, Hardware::Virtual, recordings, folder.path().join("estimate"))
    };
    let partly = run_partly(&cases, context, on);
    models.problems.extend(partly.problems());
    let (runs, signal) = (partly.ran.runs, partly.signal);
    Ok(Estimated {
        signal,
        count: cases.len(),
        report: report(Some(WrittenBy::Estimate), context, &models, runs),
        gpus,
        models,
    })
}
