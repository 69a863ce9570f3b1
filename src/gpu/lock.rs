//! [`DeviceLock`]: one measurement per GPU at a time, across processes and users.

use std::fs::{File, OpenOptions, Permissions, TryLockError};
use std::io::{Error, ErrorKind, Result};
use std::os::unix::fs::{MetadataExt, OpenOptionsExt, PermissionsExt};
use std::path::{Path, PathBuf};

use rustix::fs::OFlags;

use super::hex_digest;

/// Everybody may read the file, which is enough to lock it. Nobody may write, because the file has no content.
const MODE: u32 = 0o444;

/// The right to measure on a GPU, until this value is dropped or the process ends.
///
/// It is a lock on a file in the folder for temporary files (`TMPDIR`): processes with another such folder do not see
/// it. The holder does not remove the file. If it did, one process could lock the old file and another process a new
/// file, and both would measure.
#[derive(Debug)]
pub struct DeviceLock {
    _file: File,
}

impl DeviceLock {
    /// Takes the lock of the GPU with this id. If another process has it, calls `waiting` once, then waits.
    ///
    /// # Errors
    /// If the file cannot be made or locked, or if the path is not a regular file.
    pub fn take(uuid: &str, waiting: impl FnOnce()) -> Result<Self> {
        Self::take_in(&crate::folders::temporary(), uuid, waiting)
    }

    /// The path of the lock file, in the folder for temporary files.
    #[must_use]
    pub fn path(uuid: &str) -> PathBuf {
        Self::path_in(&crate::folders::temporary(), uuid)
    }

    fn path_in(folder: &Path, uuid: &str) -> PathBuf {
        // A hash, because the uuid comes from outside and could have `/` or `..` in it.
        let hash = hex_digest(uuid);
        folder.join(format!("cargo-vram-{}.lock", hash.get(..32).unwrap_or(&hash)))
    }

    fn take_in(folder: &Path, uuid: &str, waiting: impl FnOnce()) -> Result<Self> {
        let path = Self::path_in(folder, uuid);
        // One measurement per GPU: two would take memory from each other. See docs/design/real-gpus.md.
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
            // A cleaner of temporary files may have removed the file. Then the next process makes a new file and locks
            // it, so a lock on the old file protects nothing.
            if is_at(&file, &path)? {
                return Ok(Self { _file: file });
            }
        }
    }
}

fn wait(file: &File) -> Result<()> {
    loop {
        // A signal ends the wait of `flock` early.
        match file.lock() {
            Err(error) if error.kind() == ErrorKind::Interrupted => {}
            answer => return answer,
        }
    }
}

/// Opens the lock file, or makes it if it does not exist.
///
/// An existing file may belong to another user. It is not opened with `O_CREAT`, because Linux refuses that in a sticky
/// folder (`fs.protected_regular`).
fn open(path: &Path) -> Result<File> {
    loop {
        // Another user could put a link or a pipe here. Do not follow the link, and do not wait for the pipe's other
        // end.
        let flags = OFlags::NOFOLLOW | OFlags::NONBLOCK;
        let opened = OpenOptions::new()
            .read(true)
            .custom_flags(flags.bits().cast_signed())
            .open(path);
        match opened {
            Ok(file) if file.metadata()?.is_file() => return Ok(file),
            Err(error) if error.kind() == ErrorKind::NotFound => match make(path) {
                // Another process made the file first: open that one.
                Err(error) if error.kind() == ErrorKind::AlreadyExists => {}
                made => return made,
            },
            Err(error) if !is_something_else(path) => return Err(error),
            _ => {
                let message = format!(
                    "`{}` is not a regular file, so it cannot be the lock file",
                    path.display()
                );
                return Err(Error::new(ErrorKind::AlreadyExists, message));
            }
        }
    }
}

fn is_something_else(path: &Path) -> bool {
    path.symlink_metadata().is_ok_and(|found| !found.is_file())
}

/// Makes the file, unless it exists. It has its mode from the first moment on, because it gets its name last.
fn make(path: &Path) -> Result<File> {
    let folder = path.parent().unwrap_or(Path::new("."));
    let file = tempfile::Builder::new().prefix(".cargo-vram-").tempfile_in(folder)?;
    // This sets the mode whatever the umask is.
    file.as_file().set_permissions(Permissions::from_mode(MODE))?;
    Ok(file.persist_noclobber(path)?)
}

fn is_at(file: &File, path: &Path) -> Result<bool> {
    let ours = file.metadata()?;
    Ok(path
        .symlink_metadata()
        .is_ok_and(|there| (there.dev(), there.ino()) == (ours.dev(), ours.ino())))
}

#[cfg(test)]
mod tests {
    use std::sync::mpsc;
    use std::time::Duration;

    use super::*;

    const UUID: &str = "GPU-7672616d-0000-0001-0000-000000000000";

    fn folder() -> tempfile::TempDir {
        tempfile::tempdir().unwrap()
    }

    fn never() {
        panic!("nobody has the lock");
    }

    #[test]
    fn the_second_waits_until_the_first_is_done() {
        let folder = folder();
        let first = DeviceLock::take_in(folder.path(), UUID, never).unwrap();
        let (say, said) = mpsc::channel();
        std::thread::scope(|scope| {
            let second = scope.spawn(|| {
                let lock = DeviceLock::take_in(folder.path(), UUID, || say.send("waits").unwrap()).unwrap();
                say.send("has it").unwrap();
                lock
            });
            assert_eq!(said.recv(), Ok("waits"));
            assert!(
                said.recv_timeout(Duration::from_millis(200)).is_err(),
                "the first process still has the lock"
            );
            drop(first);
            assert_eq!(said.recv(), Ok("has it"));
            second.join().unwrap();
        });
        assert!(said.try_recv().is_err(), "`waiting` is called only once");
    }

    #[test]
    fn devices_do_not_wait_for_each_other() {
        let folder = folder();
        let _one = DeviceLock::take_in(folder.path(), UUID, never).unwrap();
        DeviceLock::take_in(folder.path(), "MIG-1", never).unwrap();
    }

    #[test]
    fn the_file_is_for_everybody_to_lock_and_for_nobody_to_write() {
        let folder = folder();
        drop(DeviceLock::take_in(folder.path(), "../../etc/passwd", never).unwrap());
        let files: Vec<_> = folder.path().read_dir().unwrap().map(Result::unwrap).collect();
        assert_eq!(files.len(), 1, "{files:?}");
        assert_eq!(files[0].metadata().unwrap().mode() & 0o7777, MODE);
        DeviceLock::take_in(folder.path(), "../../etc/passwd", never).unwrap();
    }

    #[test]
    fn a_link_in_its_place_is_refused() {
        let folder = folder();
        let elsewhere = folder.path().join("elsewhere");
        let lock = DeviceLock::path_in(folder.path(), UUID);
        std::os::unix::fs::symlink(&elsewhere, &lock).unwrap();
        let refused = |text: &str| {
            let error = DeviceLock::take_in(folder.path(), UUID, never).unwrap_err();
            assert!(error.to_string().contains("not a regular file"), "{text}: {error}");
        };
        refused("a link to nothing");
        assert!(!elsewhere.exists());
        std::fs::write(&elsewhere, "").unwrap();
        refused("a link to a file");
        std::fs::remove_file(&lock).unwrap();
        std::fs::create_dir(&lock).unwrap();
        refused("a folder");
    }

    #[test]
    fn a_pipe_in_its_place_is_refused_without_waiting_for_its_other_end() {
        let folder = folder();
        let lock = DeviceLock::path_in(folder.path(), UUID);
        let made = std::process::Command::new("mkfifo").arg(&lock).status().unwrap();
        assert!(made.success());
        let error = DeviceLock::take_in(folder.path(), UUID, never).unwrap_err();
        assert!(error.to_string().contains("not a regular file"), "{error}");
    }

    #[test]
    fn a_file_that_was_removed_meanwhile_is_no_lock() {
        let folder = folder();
        let first = DeviceLock::take_in(folder.path(), UUID, never).unwrap();
        let (say, said) = mpsc::channel();
        std::thread::scope(|scope| {
            let second = scope.spawn(|| DeviceLock::take_in(folder.path(), UUID, || say.send(()).unwrap()).unwrap());
            said.recv().unwrap();
            // The second thread has opened the file by now. It waits for the lock or is about to.
            std::fs::remove_file(DeviceLock::path_in(folder.path(), UUID)).unwrap();
            drop(first);
            let second = second.join().unwrap();
            assert!(is_at(&second._file, &DeviceLock::path_in(folder.path(), UUID)).unwrap());
        });
    }

    #[test]
    fn a_folder_that_cannot_be_written_is_an_error() {
        let missing = folder().path().join("missing");
        let error = DeviceLock::take_in(&missing, UUID, never).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::NotFound);
    }
}
