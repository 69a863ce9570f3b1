//! `--advise`: runs the model with changes until it fits.

use std::path::Path;

use super::{FitError, GpuFit, Searches};
use crate::cli::error::CliError;
use crate::cli::session::Context;
use crate::cli::session::what_if::WhatIfs;
use crate::fit::{Attempt, Possible, next};
use crate::gpu::Profile;
use crate::protocol::Task;
use crate::run::{Case, Listed};
use crate::workspace::WHAT_IF;

/// Builds the model with checkpointing.
fn rebuilt(case: &Case, context: &Context<'_>, folder: &Path) -> Result<Listed, CliError> {
    let context = Context {
        packages: &context.packages.with_feature(WHAT_IF),
        ..*context
    };
    let (cases, problems) = WhatIfs::checkpointing().cases(std::slice::from_ref(case), &context, folder)?;
    match (cases.into_iter().flatten().next(), problems.into_iter().next()) {
        (Some(case), _) => Ok(case.model),
        (None, Some(problem)) => {
            let (message, help) = problem.into_raw();
            Err(FitError::Problem(message, help).into())
        }
        (None, None) => {
            let message = "the build with checkpointing does not declare the model".to_owned();
            Err(FitError::Problem(message, None).into())
        }
    }
}

/// Runs the model unchanged, and then with changes. Returns the results in this order.
///
/// `context` has the options for the build with checkpointing.
pub(super) fn advise(
    case: &Case,
    gpu: &Profile,
    plan: &Searches<'_>,
    context: &Context<'_>,
) -> Result<Vec<GpuFit>, CliError> {
    // With Burn 0.21, checkpointing is another type, so it takes a build that an archive cannot make.
    // See docs/design/what-if.md.
    let checkpoints = context.prepared.source.checkpoints(&case.model.built.target);
    let mut possible = Possible {
        trains: case.model.task == Task::Train,
        batch_size: None,
        checkpoints,
    };
    let mut checkpointed: Option<Listed> = None;
    let (mut attempts, mut gpus) = (Vec::new(), Vec::new());
    while let Some(what_if) = next(&possible, &attempts) {
        let mut otherwise = Case {
            what_if: what_if.clone(),
            ..case.clone()
        };
        if what_if.checkpointing {
            // This build takes minutes, and may never be needed.
            let model = match checkpointed.take() {
                Some(model) => model,
                None => rebuilt(case, context, plan.folder)?,
            };
            otherwise.model = checkpointed.insert(model).clone();
        }
        let tried = plan
            .search(attempts.len(), otherwise)
            .table(std::slice::from_ref(gpu))?;
        let Some((fit, run)) = tried.into_iter().next() else {
            break;
        };
        // Only a run shows the batch size that the model itself chooses.
        possible.batch_size = possible.batch_size.or(run.inputs.get("batch_size").copied());
        attempts.extend(Attempt::from_fit(&fit));
        gpus.push(fit);
    }
    Ok(gpus)
}
