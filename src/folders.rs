//! Operations on folders.

use std::io::{ErrorKind, Result};
use std::path::{Path, PathBuf};

/// Returns the folder for temporary files: `TMPDIR`, or `/tmp` if that is unset or empty.
pub(crate) fn temporary() -> PathBuf {
    match std::env::temp_dir() {
        folder if folder.as_os_str().is_empty() => "/tmp".into(),
        folder => folder,
    }
}

/// Returns the free bytes of a folder's disk for this user; `None` if it is unknown.
pub(crate) fn free_space(folder: &Path) -> Option<u64> {
    let disk = rustix::fs::statvfs(folder).ok()?;
    // A file system that does not know its size says 0.
    (disk.f_blocks > 0).then(|| disk.f_bavail.saturating_mul(disk.f_frsize))
}

/// Removes a folder with its content, if it exists.
pub(crate) fn remove(folder: &Path) -> Result<()> {
    match std::fs::remove_dir_all(folder) {
        Err(error) if error.kind() != ErrorKind::NotFound => Err(error),
        _ => Ok(()),
    }
}
