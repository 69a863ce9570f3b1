//! Ends a pass that hangs because its model runs on the thread of fusion. Another thread of the program that uses the
//! GPU waits for that thread, which the model occupies until it ends. If the model waits for the other thread, both
//! hang.

use std::sync::mpsc::{RecvTimeoutError, Sender, channel};
use std::time::Duration;

use crate::probe::{events, trace};
use crate::protocol::ProbeEvent;

/// How long a model may ask for no operation and launch nothing. If it takes longer, for example to read its data, the
/// tool only runs it again with fewer source lines.
// See docs/design/burn-0_22-explanations.md.
const PATIENCE: Duration = Duration::from_secs(20);

/// Starts the watchdog, which watches until the returned value is dropped.
pub(super) fn watch() -> Sender<()> {
    let (watched, ended) = channel::<()>();
    std::thread::spawn(move || {
        let progress = || (trace::operations(), trace::launches());
        let mut last = progress();
        while ended.recv_timeout(PATIENCE) == Err(RecvTimeoutError::Timeout) {
            let now = progress();
            if now == last {
                // The hung threads cannot be freed from here. The tool runs the pass again with less of the
                // model inside.
                events::send(&ProbeEvent::Stuck);
                std::process::exit(0);
            }
            last = now;
        }
    });
    watched
}
