//! Reads the events of a model's process while the process runs.

use std::fs::File;
use std::io::Read;
use std::path::PathBuf;

use crate::protocol::{Event, Phase};

/// How far a process is: the step, absent before the first, and the phase.
pub type Place = (Option<u32>, Phase);

/// A file of events that grows.
pub(super) struct Follow {
    path: PathBuf,
    file: Option<File>,
    /// The start of a line whose end is still to come.
    rest: Vec<u8>,
    last: Option<Place>,
}

impl Follow {
    /// The file need not exist yet.
    pub(super) const fn new(path: PathBuf) -> Self {
        Self {
            path,
            file: None,
            rest: Vec::new(),
            last: None,
        }
    }

    /// How far the process is, if it went on since the last look. What cannot be read is left to who reads the whole file.
    pub(super) fn look(&mut self) -> Option<Place> {
        if self.file.is_none() {
            self.file = File::open(&self.path).ok();
        }
        self.file.as_mut()?.read_to_end(&mut self.rest).ok()?;
        let end = self.rest.iter().rposition(|byte| *byte == b'\n')? + 1;
        let newest = self.rest[..end]
            .split(|byte| *byte == b'\n')
            .filter_map(|line| match serde_json::from_slice(line) {
                Ok(Event::Phase { step, phase, .. }) => Some((step, phase)),
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
            let event = Event::Phase {
                card: 0,
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
