//! The file of events. Each event is one line and is written at once, so a process that dies loses no event.

use std::fs::{File, OpenOptions};
use std::io::Write;
use std::path::Path;
#[cfg(all(feature = "train", any(feature = "burn-0_21", feature = "burn-0_22")))]
use std::path::PathBuf;
use std::sync::OnceLock;

use crate::protocol::ProbeEvent;

static EVENTS: OnceLock<File> = OnceLock::new();
#[cfg(all(feature = "train", any(feature = "burn-0_21", feature = "burn-0_22")))]
static FOLDER: OnceLock<PathBuf> = OnceLock::new();

/// Opens the file that [`send`] writes to, and locks it until this process ends. If a model starts its own program
/// again, the new process does not get the lock. Its events are dropped, because they are not the model's.
pub(super) fn open(path: &Path) -> std::io::Result<()> {
    let file = OpenOptions::new().append(true).create(true).open(path)?;
    #[cfg(all(feature = "train", any(feature = "burn-0_21", feature = "burn-0_22")))]
    let _ = FOLDER.set(path.parent().unwrap_or(Path::new(".")).to_owned());
    #[cfg(target_os = "linux")]
    // Only this error means that another process holds the lock. A file system without locks must not lose
    // events. See docs/design/processes.md.
    if let Err(rustix::io::Errno::WOULDBLOCK) =
        rustix::fs::flock(&file, rustix::fs::FlockOperation::NonBlockingLockExclusive)
    {
        // The helper process runs on without events. A failure here would change what the model does.
        return Ok(());
    }
    EVENTS
        .set(file)
        .map_err(|_| std::io::Error::from(std::io::ErrorKind::AlreadyExists))
}

/// Returns the folder of the file of events, which the tool removes after the pass.
#[cfg(all(feature = "train", any(feature = "burn-0_21", feature = "burn-0_22")))]
pub(super) fn folder() -> Option<PathBuf> {
    FOLDER.get().cloned()
}

/// Writes one event. It ignores write errors: the reader then finds no [`ProbeEvent::Done`].
pub(super) fn send(event: &ProbeEvent) {
    let _ = try_send(event);
}

/// Writes one event.
///
/// # Errors
/// The event cannot be written, for example because the disk is full.
pub(super) fn try_send(event: &ProbeEvent) -> std::io::Result<()> {
    let Some(mut file) = EVENTS.get() else {
        return Ok(());
    };
    let mut line = serde_json::to_vec(event)?;
    line.push(b'\n');
    // One write per line: whatever kills the process, at most the last line is incomplete, and the tool
    // ignores that one. See docs/design/complete-runs.md.
    file.write_all(&line)
}

/// Reports that the model cannot run as the job asks, and ends the process.
pub(super) fn impossible(why: String) -> ! {
    send(&ProbeEvent::Impossible { why });
    // Not a panic: it would be reported, too. The tool goes by the event, whatever the exit code is.
    std::process::exit(0);
}
