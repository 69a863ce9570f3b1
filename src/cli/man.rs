//! `cargo vram man`: writes the manual pages, for those who pack a release.

use camino::Utf8PathBuf;
use clap::Args;

use super::exit::Exit;
use super::program;
use crate::cli::error::CliError;
use crate::cli::session;

/// Write the manual pages into a folder
#[derive(Debug, Args)]
#[command(hide = true)]
pub(super) struct Man {
    /// Write the pages into this folder, which must exist
    #[arg(value_name = "FOLDER")]
    folder: Utf8PathBuf,
}

impl Man {
    pub(super) fn run(&self) -> Result<Exit, CliError> {
        clap_mangen::generate_to(program(), &self.folder).map_err(session::file_error(self.folder.as_std_path()))?;
        Ok(Exit::Success)
    }
}
