//! Ends a pass that hangs because its model runs on the thread of fusion: another thread of the program's that uses the GPU waits for
//! that thread, which is the model's until it ends. If the model waits for the other one, neither goes on.

use std::sync::mpsc::{RecvTimeoutError, Sender, channel};
use std::time::Duration;

use crate::probe::{events, trace};
use crate::protocol::Event;

/// How long a model may do nothing that the GPU sees. One that takes longer to read its data is run again without lines, which is all
/// that comes of it.
const PATIENCE: Duration = Duration::from_secs(20);

/// Watches until what it gives is dropped.
pub(super) fn watch() -> Sender<()> {
    let (watched, ended) = channel::<()>();
    std::thread::spawn(move || {
        let progress = || (trace::operations(), trace::launches());
        let mut last = progress();
        while ended.recv_timeout(PATIENCE) == Err(RecvTimeoutError::Timeout) {
            let now = progress();
            if now == last {
                events::send(&Event::Stuck);
                std::process::exit(0);
            }
            last = now;
        }
    });
    watched
}
