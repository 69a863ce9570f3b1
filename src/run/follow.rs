//! Reads the events of a model's process while the process runs.

use std::fs::File;
use std::io::Read;
use std::path::PathBuf;

use crate::protocol::{Phase, ProbeEvent};

/// The position of a process: the step (`None` before the first step) and the phase.
pub type PassPosition = (Option<u32>, Phase);

/// A reader for an event file that grows.
pub(super) struct Follow {
    path: PathBuf,
    file: Option<File>,
    /// The start of a line whose end is not written yet.
    rest: Vec<u8>,
    last: Option<PassPosition>,
}

impl Follow {
    /// Creates a reader. The file need not exist yet.
    pub(super) const fn new(path: PathBuf) -> Self {
        Self {
            path,
            file: None,
            rest: Vec::new(),
            last: None,
        }
    }

    /// Returns the newest position if it changed since the last call.
    ///
    /// Ignores unreadable lines: `process::read_events` reports them later, when it reads the whole file.
    pub(super) fn look(&mut self) -> Option<PassPosition> {
        if self.file.is_none() {
            // The process creates the file, and may not have done so yet.
            self.file = File::open(&self.path).ok();
        }
        self.file.as_mut()?.read_to_end(&mut self.rest).ok()?;
        let end = self.rest.iter().rposition(|byte| *byte == b'\n')? + 1;
        let newest = self.rest[..end]
            .split(|byte| *byte == b'\n')
            .filter_map(|line| match serde_json::from_slice(line) {
                Ok(ProbeEvent::Phase { step, phase, .. }) => Some((step, phase)),
                _ => None,
            })
            .next_back();
        self.rest.drain(..end);
        let newest = newest.filter(|newest| self.last != Some(*newest))?;
        self.last = Some(newest);
        Some(newest)
    }
}

#[cfg(test)]
mod tests {
    use std::io::Write;

    use super::*;

    #[test]
    fn each_look_gives_the_newest_phase_and_waits_for_the_end_of_a_line() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("events.jsonl");
        let mut follow = Follow::new(path.clone());
        assert_eq!(follow.look(), None);
        let mut file = File::create(&path).unwrap();
        let phase = |step: Option<u32>, phase| {
            let event = ProbeEvent::Phase {
                gpu: 0,
                time: 1,
                step,
                phase,
            };
            serde_json::to_string(&event).unwrap() + "\n"
        };
        let mut write = |text: &str| file.write_all(text.as_bytes()).unwrap();
        write(&phase(None, Phase::Model));
        write(&phase(Some(0), Phase::Batch));
        let next = phase(Some(0), Phase::Forward);
        let (start, end) = next.split_at(20);
        write(start);
        assert_eq!(follow.look(), Some((Some(0), Phase::Batch)));
        assert_eq!(follow.look(), None);
        write(end);
        write("nonsense\n");
        assert_eq!(follow.look(), Some((Some(0), Phase::Forward)));
        assert_eq!(follow.look(), None);
    }
}
