//! Reads budgets.yaml with source positions, checks all of it, and compares runs with its limits.
//!
//! [`Budgets::load`] parses the text into a tree whose nodes have positions, and converts the tree into [`Budgets`].
//! A single parser finds all mistakes, and a mistake in one value does not hide mistakes in others.
//! [`Budgets::check_models`] compares the budgets with the models that a workspace declares. [`judge()`] compares them
//! with runs.

mod edited;
mod fields;
mod gpu_profile;
mod judge;
mod loosened;
mod model;
mod models;
pub(crate) mod problem;
mod scalar;
mod settings;
pub(crate) mod source;
mod tree;
mod types;
mod validate;

use camino::Utf8Path;

#[cfg(unix)]
pub use judge::judge_build;
pub use judge::{judge, judge_since, unjudged};
pub use models::DeclaredModel;
#[cfg(unix)]
pub use problem::{BudgetError, BudgetProblem};
pub use scalar::Percent;
pub use settings::STEPS;
pub use source::{SourcePosition, Span, Spanned};
pub use types::{
    Budgets, Defaults, GpuLimitsEntry, GpuProfileEntry, Growth, GrowthLimit, Limit, ModelBudget, ModelLimits,
};

use problem::Problems;
use source::BudgetText;

impl Budgets {
    /// Reads and checks the budget file at `path`.
    ///
    /// Messages show `display_name` instead of `path`. `known_gpus` are the IDs of the built-in GPUs.
    ///
    /// # Errors
    /// The file cannot be read, or has mistakes. The error has every mistake that can be found without the workspace's
    /// models.
    pub fn load(path: &Utf8Path, display_name: &str, known_gpus: &[&str]) -> Result<Self, BudgetError> {
        Self::parse(&BudgetText::read(path, display_name)?, display_name, known_gpus)
    }

    /// Checks the content of a budget file. Messages call the file `display_name`.
    ///
    /// # Errors
    /// The content has mistakes, as for [`Budgets::load`].
    pub fn parse(bytes: &[u8], display_name: &str, known_gpus: &[&str]) -> Result<Self, BudgetError> {
        if bytes.len() as u64 > source::MAX_FILE {
            return Err(source::too_large(display_name));
        }
        let source = BudgetText::from_bytes(display_name, bytes)?;
        let mut problems = Problems::default();
        // Serde stops at the first mistake and loses positions, so the tree is our own. See
        // docs/design/budget-yaml.md.
        match tree::parse(&source, &mut problems) {
            Some(root) => validate::validate(&root, problems, known_gpus, &source),
            None => Err(problems.into_error(&source)),
        }
    }
}

/// Parses a size as the file writes it, with its unit: `8 GiB`. Returns `None` if the text is not a size.
#[must_use]
pub fn parse_size(text: &str) -> Option<crate::bytes::Bytes> {
    scalar::size(text).ok()
}

/// Parses a percentage as the file writes it: `5%`. Returns `None` if the text is not a percentage.
#[must_use]
pub fn parse_percent(text: &str) -> Option<Percent> {
    scalar::percent(text).ok()
}

/// Parses a duration as the file writes it, with its unit: `10 min`. Returns `None` if the text is not a duration.
#[must_use]
pub fn parse_duration(text: &str) -> Option<std::time::Duration> {
    scalar::duration(text).ok()
}
