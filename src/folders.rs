//! Folders of our own.

use std::io::{ErrorKind, Result};
use std::path::Path;

/// Removes a folder, where there is one.
pub(crate) fn remove(folder: &Path) -> Result<()> {
    match std::fs::remove_dir_all(folder) {
        Err(error) if error.kind() != ErrorKind::NotFound => Err(error),
        _ => Ok(()),
    }
}
