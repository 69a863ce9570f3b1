//! Reads the source of a command's models, its GPU profiles and its budgets.

use camino::{Utf8Path, Utf8PathBuf};
use miette::Diagnostic;

use crate::budget::Budgets;
use crate::cli::error::CliError;
use crate::cli::options::Packages;
use crate::cli::session::source::ModelSource;
use crate::cli::timings;
use crate::gpu::{Overrides, Profiles};

/// The source of the models, with the GPU profiles and the budgets, if there are any.
pub(in crate::cli) struct Prepared {
    pub(in crate::cli) source: ModelSource,
    pub(in crate::cli) profiles: Profiles,
    pub(in crate::cli) budgets: Option<Budgets>,
    /// The path of the budgets file.
    pub(in crate::cli) budgets_path: Utf8PathBuf,
    /// The path of the budgets file as messages show it.
    pub(in crate::cli) budgets_name: String,
}

impl Prepared {
    /// Returns the path of the baseline file, which lies beside the budgets file, and that path as messages show it.
    pub(in crate::cli) fn lock(&self) -> (Utf8PathBuf, String) {
        let shown = Utf8Path::new(&self.budgets_name).with_extension("lock");
        (self.budgets_path.with_extension("lock"), shown.into_string())
    }
}

/// Reads the workspace, or the archive if one is given, and the budgets.
pub(in crate::cli) fn prepare(
    packages: &Packages,
    archive_file: Option<&Utf8Path>,
    budgets_file: Option<&Utf8Path>,
) -> Result<Prepared, CliError> {
    let source = timings::timed("reading the workspace", || ModelSource::open(packages, archive_file))?;
    let WrittenBudgets {
        profiles,
        budgets,
        path: budgets_path,
        name: budgets_name,
    } = written(&source, budgets_file)?;
    Ok(Prepared {
        source,
        profiles,
        budgets,
        budgets_path,
        budgets_name,
    })
}

/// The budgets file, if there is one, and the GPU profiles: the built-in ones and those that the file adds.
pub(in crate::cli) struct WrittenBudgets {
    profiles: Profiles,
    pub(in crate::cli) budgets: Option<Budgets>,
    path: Utf8PathBuf,
    /// The path of the file as messages show it.
    pub(in crate::cli) name: String,
}

/// Reads the budgets file: `budgets_file`, or else that of the source if it exists.
pub(in crate::cli) fn written(
    source: &ModelSource,
    budgets_file: Option<&Utf8Path>,
) -> Result<WrittenBudgets, CliError> {
    let mut profiles = Profiles::builtin()?;
    let (path, name) = match budgets_file {
        Some(path) => {
            let name = path.strip_prefix(source.root()).unwrap_or(path);
            (path.to_owned(), name.to_string())
        }
        None => source.budgets(),
    };
    // The default file may be missing. One that the user names must exist.
    let budgets = if budgets_file.is_some() || path.exists() {
        let known: Vec<_> = profiles.ids().collect();
        Some(Budgets::load(&path, &name, &known)?)
    } else {
        None
    };
    if let Some(budgets) = &budgets {
        add_profiles(&mut profiles, budgets)?;
    }
    Ok(WrittenBudgets {
        profiles,
        budgets,
        path,
        name,
    })
}

/// Returns the built-in GPUs, and those of a budget file.
pub(super) fn profiles_with(budgets: &Budgets) -> Result<Profiles, CliError> {
    let mut profiles = Profiles::builtin()?;
    add_profiles(&mut profiles, budgets)?;
    Ok(profiles)
}

fn add_profiles(profiles: &mut Profiles, budgets: &Budgets) -> Result<(), CliError> {
    if let Some(gpu) = &budgets.gpu {
        profiles.prefer(&gpu.value);
    }
    for (id, entry) in &budgets.gpu_profiles {
        let overrides = Overrides {
            total: entry.total.as_ref().map(|total| total.value),
            name: entry.name.as_ref().map(|name| name.value.clone()),
            sm_count: entry.sm_count.as_ref().map(|count| count.value),
            compute_capability: entry.compute_capability.as_ref().map(|capability| capability.value),
            shared_memory_per_block_optin: entry.shared_memory_per_block_optin.as_ref().map(|bytes| bytes.value),
            context: entry.context.as_ref().map(|bytes| bytes.value),
        };
        if let Err(error) = profiles.add_like(id, &entry.like.value, overrides) {
            let help = error.help().map(|help| help.to_string());
            Err(budgets.error_at(entry.span, "budgets::gpu-profile", error.to_string(), help))?;
        }
    }
    Ok(())
}
