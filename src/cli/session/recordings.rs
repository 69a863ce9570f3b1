//! Loads recordings of real GPUs: the user's own, and those that come with this program.

use crate::cli::error::CliError;
use crate::cli::options::Running;
use crate::recording::Recordings;

/// Loads the recordings of `--recordings`, and the built-in recordings of GPUs that those do not contain.
pub(in crate::cli) fn recordings(running: &Running) -> Result<Recordings, CliError> {
    let builtin = Recordings::builtin()?;
    Ok(match own_recordings(running)? {
        Some(own) => own.or(builtin),
        None => builtin,
    })
}

/// Loads the recordings of `--recordings`; `None` if the option is not set.
pub(in crate::cli) fn own_recordings(running: &Running) -> Result<Option<Recordings>, CliError> {
    let named = running.recordings.as_deref();
    Ok(named.map(|folder| Recordings::load(folder.as_std_path())).transpose()?)
}
