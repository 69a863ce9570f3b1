//! `cargo vram schema`: the report's format.

use clap::Args;

use super::exit::Exit;
use super::{Stopped, pipeline, terminal};
use crate::report::Report;

/// Print the JSON schema of the report
#[derive(Debug, Args)]
#[command(after_help = "\
Example:
  cargo vram schema > report.schema.json")]
pub(super) struct Schema {}

impl Schema {
    pub(super) fn run(&self) -> Result<Exit, Stopped> {
        terminal::show(&pipeline::json(&schemars::schema_for!(Report))?);
        Ok(Exit::Success)
    }
}
