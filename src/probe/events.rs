//! The file of events: one line each, written whole and at once, so that a process that dies loses nothing.

use std::fs::{File, OpenOptions};
use std::io::Write;
use std::path::Path;
use std::sync::OnceLock;

use crate::protocol::Event;

static EVENTS: OnceLock<File> = OnceLock::new();

/// Opens the file that [`send`] writes to, for as long as this process is there. Where a model starts its own program again,
/// what that one does is not what the model does: its events go nowhere.
pub(super) fn open(path: &Path) -> std::io::Result<()> {
    let file = OpenOptions::new().append(true).create(true).open(path)?;
    #[cfg(target_os = "linux")]
    if let Err(rustix::io::Errno::WOULDBLOCK) =
        rustix::fs::flock(&file, rustix::fs::FlockOperation::NonBlockingLockExclusive)
    {
        return Ok(());
    }
    EVENTS
        .set(file)
        .map_err(|_| std::io::Error::from(std::io::ErrorKind::AlreadyExists))
}

/// Writes one event. A failure to write is seen by the reader as a missing end.
pub(super) fn send(event: &Event) {
    let (Some(mut file), Ok(mut line)) = (EVENTS.get(), serde_json::to_vec(event)) else {
        return;
    };
    line.push(b'\n');
    let _ = file.write_all(&line);
}

/// Says that the model cannot be run as it was asked to, and ends.
pub(super) fn impossible(why: String) -> ! {
    send(&Event::Impossible { why });
    std::process::exit(0);
}
