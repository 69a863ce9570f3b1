//! Temporary folders. A command removes them at its end, also after an error or a signal. After SIGKILL, the next command
//! with a folder in the same place removes them.

use std::collections::BTreeSet;
use std::fs::File;
use std::io;
use std::os::unix::fs::{MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use rustix::fs::OFlags;
use tempfile::TempDir;

use crate::run::processes;

/// The beginning of the names of these folders. Every folder of this name that no process has locked is removed, so
/// nothing else may be named so.
const PREFIX: &str = "vram-temporary-";

/// How many new folders to try. Another command may remove a folder in the moment before it is locked.
const TRIES: usize = 10;

/// The folders that exist now, for [`all`].
static ALL: Mutex<BTreeSet<PathBuf>> = Mutex::new(BTreeSet::new());

/// A folder that is removed with its content when this value is dropped.
pub(in crate::cli) struct TemporaryFolder {
    path: PathBuf,
    /// `None` only while this value is dropped.
    folder: Option<TempDir>,
    /// Keeps the folder locked, which shows other commands that it is in use. `None` if the file system has no locks.
    _lock: Option<File>,
}

impl TemporaryFolder {
    /// Creates a folder in the system's folder for temporary files.
    pub(in crate::cli) fn new() -> io::Result<Self> {
        Self::new_in(&crate::folders::temporary())
    }

    /// Creates a folder in `parent`, which must exist. First removes the folders of commands that were killed, and ends
    /// the models that they left running.
    pub(in crate::cli) fn new_in(parent: &Path) -> io::Result<Self> {
        // A model has the absolute path of its folder in its environment, by which it is found.
        let parent = parent.canonicalize()?;
        remove_abandoned(&parent);
        for _ in 0..TRIES {
            let folder = tempfile::Builder::new().prefix(PREFIX).tempdir_in(&parent)?;
            let path = folder.path().to_owned();
            let lock = open(&path).filter(|file| file.lock().is_ok());
            // This fails if another command has just taken it for an abandoned one.
            if path.exists() {
                existing().insert(path.clone());
                return Ok(Self {
                    path,
                    folder: Some(folder),
                    _lock: lock,
                });
            }
        }
        Err(io::Error::other("other commands removed every new folder"))
    }

    pub(in crate::cli) fn path(&self) -> &Path {
        &self.path
    }
}

impl Drop for TemporaryFolder {
    fn drop(&mut self) {
        // First the folder: a signal in between removes what is left of it.
        drop(self.folder.take());
        existing().remove(&self.path);
    }
}

/// Locks a folder that no command uses, and ends the models that a killed command left running in it. Returns `None` if
/// another command uses the folder.
pub(in crate::cli) fn lock_unused(folder: &Path) -> Option<File> {
    // The kernel frees the lock of a process that was killed.
    let lock = open(folder).filter(|file| file.try_lock().is_ok())?;
    processes::end(|| processes::of_models_in(folder), Duration::ZERO);
    Some(lock)
}

/// Returns the folders that exist now, to be removed when a signal ends the program.
pub(in crate::cli) fn all() -> Vec<PathBuf> {
    existing().iter().cloned().collect()
}

fn existing() -> MutexGuard<'static, BTreeSet<PathBuf>> {
    ALL.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Removes the folders in `parent` that no process has locked. What cannot be removed is left to the next command.
fn remove_abandoned(parent: &Path) {
    let own = rustix::process::geteuid().as_raw();
    for entry in std::fs::read_dir(parent).into_iter().flatten().flatten() {
        let path = entry.path();
        let is_ours = entry.file_name().to_string_lossy().starts_with(PREFIX)
            && entry
                .metadata()
                .is_ok_and(|metadata| metadata.is_dir() && metadata.uid() == own);
        // This command keeps the lock until the folder is removed.
        if is_ours && let Some(_lock) = lock_unused(&path) {
            let _ = std::fs::remove_dir_all(&path);
        }
    }
}

/// Opens a folder, to lock it.
fn open(folder: &Path) -> Option<File> {
    // No links: the parent may be writable for everybody.
    let flags = OFlags::NOFOLLOW | OFlags::DIRECTORY;
    let flags = i32::try_from(flags.bits()).ok()?;
    std::fs::OpenOptions::new()
        .read(true)
        .custom_flags(flags)
        .open(folder)
        .ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_folders_that_nobody_uses_are_removed() {
        let parent = tempfile::tempdir().unwrap();
        let used = TemporaryFolder::new_in(parent.path()).unwrap();
        let [abandoned, foreign] = ["vram-temporary-1", "another"].map(|name| parent.path().join(name));
        for folder in [&abandoned, &foreign] {
            std::fs::create_dir(folder).unwrap();
            std::fs::write(folder.join("file"), "").unwrap();
        }
        let link = parent.path().join("vram-temporary-2");
        std::os::unix::fs::symlink(&foreign, &link).unwrap();
        let second = TemporaryFolder::new_in(parent.path()).unwrap();
        assert!(!abandoned.exists() && foreign.join("file").exists() && link.exists());
        assert!(used.path().exists() && second.path().exists());
        let path = used.path().to_owned();
        drop(used);
        assert!(!path.exists());
    }
}
