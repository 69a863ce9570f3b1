//! The options and the model source that all steps of a command share.

use super::prepared::Prepared;
use crate::cli::options::{Packages, Running};

/// The source of the models, and the options for building and running them.
#[derive(Clone, Copy)]
pub(in crate::cli) struct Context<'a> {
    pub(in crate::cli) prepared: &'a Prepared,
    pub(in crate::cli) packages: &'a Packages,
    pub(in crate::cli) running: &'a Running,
}
