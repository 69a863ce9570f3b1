//! One measurement a device at a time, across processes and users.

use std::fs::{File, OpenOptions, Permissions, TryLockError};
use std::io::{Error, ErrorKind, Result};
use std::os::unix::fs::{MetadataExt, OpenOptionsExt, PermissionsExt};
use std::path::{Path, PathBuf};

use rustix::fs::OFlags;

use super::hex_digest;

/// Everybody may lock the file, which needs reading only; nobody has anything to write.
const MODE: u32 = 0o444;

/// The right to measure on a device. It ends when this is dropped, or with the process.
///
/// It is a lock on a file in the folder for temporary files, which processes must agree on
/// (`TMPDIR`). The file stays: one that is removed under a waiting process is another's lock.
#[derive(Debug)]
pub struct DeviceLock {
    _file: File,
}

impl DeviceLock {
    /// Takes the lock of a device. Calls `waiting` once where another process has it, then waits.
    ///
    /// # Errors
    /// Where the file cannot be made or locked, or something else is in its place.
    pub fn take(uuid: &str, waiting: impl FnOnce()) -> Result<Self> {
        Self::take_in(&std::env::temp_dir(), uuid, waiting)
    }

    /// The lock's file, in the folder for temporary files.
    #[must_use]
    pub fn path(uuid: &str) -> PathBuf {
        Self::path_in(&std::env::temp_dir(), uuid)
    }

    fn path_in(folder: &Path, uuid: &str) -> PathBuf {
        // A hash, because a uuid is a text from outside.
        let hash = hex_digest(uuid);
        folder.join(format!("cargo-vram-{}.lock", hash.get(..32).unwrap_or(&hash)))
    }

    fn take_in(folder: &Path, uuid: &str, waiting: impl FnOnce()) -> Result<Self> {
        let path = Self::path_in(folder, uuid);
        let mut waiting = Some(waiting);
        loop {
            let file = open(&path)?;
            match file.try_lock() {
                Ok(()) => {}
                Err(TryLockError::WouldBlock) => {
                    if let Some(waiting) = waiting.take() {
                        waiting();
                    }
                    wait(&file)?;
                }
                Err(TryLockError::Error(error)) => return Err(error),
            }
            // Whoever cleans the folder may have removed the file meanwhile: then the next one to
            // come makes another, and both would measure.
            if is_at(&file, &path)? {
                return Ok(Self { _file: file });
            }
        }
    }
}

fn wait(file: &File) -> Result<()> {
    loop {
        match file.lock() {
            Err(error) if error.kind() == ErrorKind::Interrupted => {}
            answer => return answer,
        }
    }
}

/// Opens the lock's file, whoever made it, or makes it. A file of another user is never opened
/// with `O_CREAT`, which Linux refuses in a sticky folder (`fs.protected_regular`).
fn open(path: &Path) -> Result<File> {
    loop {
        // Neither follow a link nor wait for the other end of a pipe.
        let flags = OFlags::NOFOLLOW | OFlags::NONBLOCK;
        let opened = OpenOptions::new()
            .read(true)
            .custom_flags(flags.bits().cast_signed())
            .open(path);
        match opened {
            Ok(file) if file.metadata()?.is_file() => return Ok(file),
            Err(error) if error.kind() == ErrorKind::NotFound => match make(path) {
                // Another process was faster.
                Err(error) if error.kind() == ErrorKind::AlreadyExists => {}
                made => return made,
            },
            Err(error) if !is_something_else(path) => return Err(error),
            _ => {
                let message = format!("`{}` is in the place of a lock, and no plain file", path.display());
                return Err(Error::new(ErrorKind::AlreadyExists, message));
            }
        }
    }
}

fn is_something_else(path: &Path) -> bool {
    path.symlink_metadata().is_ok_and(|found| !found.is_file())
}

/// Makes the file where there is none, with its mode from the first moment on.
fn make(path: &Path) -> Result<File> {
    let folder = path.parent().unwrap_or(Path::new("."));
    let file = tempfile::Builder::new().prefix(".cargo-vram-").tempfile_in(folder)?;
    // Whatever the umask is.
    file.as_file().set_permissions(Permissions::from_mode(MODE))?;
    Ok(file.persist_noclobber(path)?)
}

fn is_at(file: &File, path: &Path) -> Result<bool> {
    let ours = file.metadata()?;
    Ok(path
        .symlink_metadata()
        .is_ok_and(|there| (there.dev(), there.ino()) == (ours.dev(), ours.ino())))
}
