//! `--advise`: tries changes until the model fits, each by a run.

use std::path::Path;

use super::{CardFit, FitError, Search};
use crate::cli::Stopped;
use crate::cli::options::{Loudness, Packages, Running};
use crate::cli::pipeline::Prepared;
use crate::cli::what_if::WhatIfs;
use crate::fit::{Attempt, Possible, next};
use crate::gpu::Profile;
use crate::protocol::Task;
use crate::run::{Case, Listed};
use crate::workspace::WHAT_IF;

/// The model, built with checkpointing.
pub(super) fn rebuilt(
    case: &Case,
    (prepared, packages, running): &(&Prepared, &Packages, &Running),
    loudness: Loudness,
    folder: &Path,
) -> Result<Listed, Stopped> {
    let packages = packages.with_feature(WHAT_IF);
    let here = (*prepared, &packages, *running);
    let (cases, problems) = WhatIfs::checkpointing().cases(std::slice::from_ref(case), here, loudness, folder)?;
    match (cases.into_iter().flatten().next(), problems.into_iter().next()) {
        (Some(case), _) => Ok(case.model),
        (None, Some(problem)) => Err(FitError::Problem(problem.message, problem.help).into()),
        (None, None) => {
            let message = "the model is not declared when built with checkpointing".to_owned();
            Err(FitError::Problem(message, None).into())
        }
    }
}

/// Every try, in their order; the first is the model as it is.
pub(super) fn advise<'a>(
    case: &Case,
    card: &Profile,
    checkpoints: bool,
    search: impl Fn(usize, Case) -> Search<'a>,
    rebuilt: impl Fn() -> Result<Listed, Stopped>,
    loudness: Loudness,
) -> Result<Vec<CardFit>, Stopped> {
    let mut possible = Possible {
        trains: case.model.task == Task::Train,
        batch_size: None,
        checkpoints,
    };
    let mut checkpointed: Option<Listed> = None;
    let (mut attempts, mut cards) = (Vec::new(), Vec::new());
    while let Some(what_if) = next(&possible, &attempts) {
        let mut otherwise = Case {
            what_if: what_if.clone(),
            ..case.clone()
        };
        if what_if.checkpointing {
            // Built when it is first needed, which may be never.
            let model = match checkpointed.take() {
                Some(model) => model,
                None => rebuilt()?,
            };
            otherwise.model = checkpointed.insert(model).clone();
        }
        let tried = search(attempts.len(), otherwise).table(std::slice::from_ref(card), loudness)?;
        let Some((fit, run)) = tried.into_iter().next() else {
            break;
        };
        possible.batch_size = possible.batch_size.or(run.inputs.get("batch_size").copied());
        attempts.extend(Attempt::of(&fit));
        cards.push(fit);
    }
    Ok(cards)
}
