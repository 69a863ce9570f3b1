//! The steps that commands share: select, build and run models, and compare them with a base revision.

pub(super) mod base;
pub(super) mod cases;
mod context;
mod driver_build;
mod error;
mod estimate;
pub(super) mod explanation;
mod git;
mod models;
mod output;
mod prepared;
pub(super) mod real_gpu;
mod recordings;
mod report;
mod run;
mod savings;
mod selection;
pub(super) mod source;
pub(super) mod survey;
pub(super) mod what_if;
pub(super) mod why;

pub(super) use context::Context;
pub(super) use error::{SelectionError, file_error};
pub(super) use estimate::{REPEAT, estimate};
pub(super) use models::{Models, all_models, models};
pub(super) use output::{Audience, TableSetup, exit_of_judged, json, put, show, write};
pub(super) use prepared::{Prepared, prepare, written};
pub(super) use recordings::{own_recordings, recordings};
pub(super) use report::report;
pub(super) use run::{FinishedCases, RunSetup, run, run_partly};
pub(super) use selection::{identity, keep_matching, prefer_exact};
