//! Operations on folders.

use std::io::{ErrorKind, Result};
use std::path::Path;

/// Removes a folder with its content, if it exists.
pub(crate) fn remove(folder: &Path) -> Result<()> {
    match std::fs::remove_dir_all(folder) {
        Err(error) if error.kind() != ErrorKind::NotFound => Err(error),
        _ => Ok(()),
    }
}
