//! budgets.yaml: read with positions, checked as a whole, and held against runs.
//!
//! [`Budgets::load`] turns text into a tree in which everything knows where it stands, and the tree into what is meant.
//! One parse is the authority: no mistake is found by another reader, and none hides the others.
//! [`Budgets::check_models`] compares the budgets with the models that a workspace declares, and [`judge()`] with runs.

mod denied;
mod edited;
mod fields;
mod gpu_profile;
mod judge;
mod lock;
mod loosened;
mod model;
mod models;
mod problem;
mod scalar;
mod settings;
mod source;
mod tree;
mod types;
mod validate;

use camino::Utf8Path;

pub use denied::{denied, worse};
#[cfg(unix)]
pub use judge::judge_build;
pub use judge::{judge, judge_since, unjudged};
pub use lock::{Accepted, Entry, Key, LOCK_VERSION, Lock, edits};
pub use models::DeclaredModel;
#[cfg(unix)]
pub use problem::{BudgetError, Problem};
pub use scalar::Percent;
pub use settings::STEPS;
pub use source::{Position, Span, Spanned};
pub use types::{Budgets, CardLimits, Defaults, GpuProfileEntry, Growth, GrowthLimit, Limit, Limits, ModelBudget};

use problem::Problems;
use source::Source;

impl Budgets {
    /// Reads a budget file. `display_name` is what people are shown of `path`; `known_gpus` are the built-in cards.
    ///
    /// # Errors
    /// Everything that is wrong with the file and can be told without the workspace's models.
    pub fn load(path: &Utf8Path, display_name: &str, known_gpus: &[&str]) -> Result<Self, BudgetError> {
        Self::parse(&Source::read(path, display_name)?, display_name, known_gpus)
    }

    /// The same for a file that has been read.
    ///
    /// # Errors
    /// As for [`Budgets::load`].
    pub fn parse(bytes: &[u8], display_name: &str, known_gpus: &[&str]) -> Result<Self, BudgetError> {
        if bytes.len() as u64 > source::MAX_FILE {
            return Err(source::too_large(display_name));
        }
        let source = Source::from_bytes(display_name, bytes)?;
        let mut problems = Problems::default();
        match tree::parse(&source, &mut problems) {
            Some(root) => validate::validate(&root, problems, known_gpus, &source),
            None => Err(problems.into_error(&source)),
        }
    }
}

/// A size with its unit, as in the file: `8 GiB`.
#[must_use]
pub fn parse_size(text: &str) -> Option<crate::bytes::Bytes> {
    scalar::size(text).ok()
}

/// A percentage, as in the file: `5%`.
#[must_use]
pub fn parse_percent(text: &str) -> Option<Percent> {
    scalar::percent(text).ok()
}

/// A time with its unit, as in the file: `10 min`.
#[must_use]
pub fn parse_duration(text: &str) -> Option<std::time::Duration> {
    scalar::duration(text).ok()
}
