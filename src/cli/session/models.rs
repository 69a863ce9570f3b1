//! Builds and lists the declared models.

use std::path::Path;

use crate::cli::error::CliError;
use crate::cli::options::Packages;
use crate::cli::session::context::Context;
use crate::cli::session::prepared::Prepared;
use crate::cli::session::selection;
use crate::cli::session::selection::Missing;
use crate::cli::timings;
use crate::report::Problem;
use crate::run::Listed;

/// The built models of the selected packages.
pub(in crate::cli) struct Models {
    /// `package/model` of each model that matches `-m`, in every partition.
    pub(in crate::cli) expected: Vec<String>,
    /// The models that match `-m` and belong to the partition.
    pub(in crate::cli) selected: Vec<Listed>,
    /// All declared models.
    pub(in crate::cli) declared: Vec<Listed>,
    pub(in crate::cli) problems: Vec<Problem>,
}

/// Builds and lists the models, and selects those of `-m` and `--partition`.
pub(in crate::cli) fn models(context: &Context<'_>, folder: &Path) -> Result<Models, CliError> {
    let running = context.running;
    if running.timings {
        timings::want();
    }
    context.prepared.source.start_driver();
    let all = all_models(context.prepared, context.packages, folder)?;
    let missing = match (context.prepared.source.is_elsewhere(), all.problems.is_empty()) {
        (true, _) => Missing::Elsewhere,
        (false, true) => Missing::Refused,
        (false, false) => Missing::Hidden,
    };
    let budgets = context.prepared.budgets.as_ref();
    let mut selected = selection::select(&all.declared, running, budgets, missing)?;
    // Before the partition: each part lists all models, so that `merge` finds a missing part.
    let expected = selected.iter().map(selection::identity).collect();
    if let Some(partition) = running.partition {
        selected.retain(|model| partition.holds(&selection::identity(model)));
    }
    Ok(Models {
        expected,
        selected,
        ..all
    })
}

/// Builds and lists every declared model.
pub(in crate::cli) fn all_models(prepared: &Prepared, packages: &Packages, folder: &Path) -> Result<Models, CliError> {
    let (built, mut problems) = timings::timed("building the models", || prepared.source.built(packages))?;
    let (declared, unlisted) = timings::timed("listing the models", || prepared.source.list(&built, folder))?;
    problems.extend(unlisted);
    Ok(Models {
        expected: declared.iter().map(selection::identity).collect(),
        selected: declared.clone(),
        declared,
        problems,
    })
}
