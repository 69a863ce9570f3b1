//! The process of one job: its folder, its environment, its files.

use std::io::Error;
use std::ops::ControlFlow;
use std::path::Path;
use std::process::Command;

use camino::Utf8Path;

use super::card::{Before, Card, Hardware, Watch};
use super::child::{self, Ended, Limits};
use super::follow::{Follow, Place};
use super::record::Record;
use super::work;
use crate::folders;
use crate::gpu::Looks;
use crate::protocol::{Action, Event, Inside, JOB_VARIABLE, Job, PROTOCOL};

/// The stack of threads that a Rust program starts, in bytes.
const STACK_VARIABLE: &str = "RUST_MIN_STACK";
/// That of a model that runs on Burn's thread: no less than on the main thread, where Linux gives 8 MiB.
const MODEL_STACK: &str = "67108864";

/// The file of the driver's record. Each process writes one with its id behind this name; that of the model's own process
/// loses the id.
const RECORD: &str = "driver.log";

/// What is done while a process runs.
#[derive(Clone, Copy)]
pub(super) struct Meanwhile<'a> {
    /// Is told how far the process is.
    pub(super) reached: &'a dyn Fn(Place),
    /// Whether the process is to end at once.
    pub(super) is_stopped: &'a dyn Fn() -> bool,
}

impl Meanwhile<'_> {
    /// Nothing.
    pub(super) const NOTHING: Self = Meanwhile {
        reached: &|_| {},
        is_stopped: &|| false,
    };
}

/// What a process left behind.
#[derive(Debug)]
pub(super) struct Left {
    /// How it ended.
    pub(super) ended: Ended,
    /// What it said, as far as it can be read.
    pub(super) events: Vec<Event>,
    /// Something else was written into the file of events.
    pub(super) damaged: bool,
    /// The driver's record.
    pub(super) record: Record,
    /// Whether autotune chose in it, so that candidates may have been refused: in a cold pass, and in those after one that was
    /// not completed.
    pub(super) tunes: bool,
    /// How many steps it was to run.
    pub(super) steps: u32,
    /// Whether each of its steps must go through the phases of a training.
    pub(super) trains: bool,
    /// Whether the model ran on fusion's thread.
    pub(super) is_inside: bool,
    /// What of the model ran on the thread of fusion to tell of lines, where that was tried.
    pub(super) lines: Option<Inside>,
    /// What a real card held before.
    pub(super) before: Before,
    /// What was seen of the process's memory, on a real card.
    pub(super) looks: Option<Looks>,
}

impl Left {
    /// What is live at the end of each phase is what it is in a pass of the same steps.
    pub(super) fn take_ends_of(&mut self, other: &Self) {
        let ends = work::seen(other);
        for event in &mut self.events {
            if let Event::Seen {
                card,
                step,
                phase,
                in_use_end,
                ..
            } = event
                && let Some(end) = ends.get(&(*step, *phase, *card))
            {
                *in_use_end = end.in_use_end;
            }
        }
    }
}

/// Runs one job in `folder`, which is made anew for it and holds all its files.
pub(super) fn run(
    executable: &Utf8Path,
    package_folder: &Utf8Path,
    folder: &Path,
    action: Action,
    card: Option<Card<'_>>,
    limits: Limits,
    meanwhile: Meanwhile<'_>,
) -> std::io::Result<Left> {
    folders::remove(folder).map_err(naming(folder))?;
    std::fs::create_dir_all(folder).map_err(naming(folder))?;
    let events = folder.join("events.jsonl");
    let record = folder.join(RECORD);
    let job_file = folder.join("job.json");
    let is_inside = matches!(&action, Action::Run(job) if job.inside != Inside::Nothing);
    let job = Job {
        protocol: PROTOCOL,
        version: env!("CARGO_PKG_VERSION").into(),
        events: events.clone(),
        action,
    };
    std::fs::write(&job_file, serde_json::to_vec(&job)?).map_err(naming(&job_file))?;
    let mut command = Command::new(executable);
    command
        .current_dir(package_folder)
        .env("CARGO_MANIFEST_DIR", package_folder)
        .env(JOB_VARIABLE, &job_file);
    if is_inside && std::env::var_os(STACK_VARIABLE).is_none() {
        command.env(STACK_VARIABLE, MODEL_STACK);
    }
    if let Some(card) = card {
        card.apply(&mut command, folder, &record)?;
    }
    let mut watch = card.and_then(|card| match card.hardware {
        Hardware::Virtual => None,
        Hardware::Real(real) => Some(Watch::new(real)),
    });
    let mut own = 0;
    let started = |pid| {
        own = pid;
        if let Some(watch) = &mut watch {
            watch.follow(pid);
        }
    };
    let mut follow = Follow::new(events.clone());
    let ended = child::run(&mut command, limits, started, || {
        if let Some(place) = follow.look() {
            (meanwhile.reached)(place);
        }
        match (meanwhile.is_stopped)() {
            true => ControlFlow::Break(()),
            false => ControlFlow::Continue(()),
        }
    });
    let (before, looks) = watch.map(Watch::stop).unwrap_or_default();
    let ended = ended.map_err(naming(executable.as_std_path()))?;
    let (events, damaged) = read_events(&events)?;
    // A model that never called the driver has none.
    let _ = std::fs::rename(folder.join(format!("{RECORD}.{own}")), &record);
    let record = read_record(folder)?;
    Ok(Left {
        ended,
        events,
        damaged,
        tunes: false,
        steps: 0,
        trains: false,
        is_inside: false,
        lines: None,
        record: record.unwrap_or_default(),
        before,
        looks,
    })
}

/// What a process left in its folder: what it said, and the driver's record.
pub(super) fn left_in(folder: &Path) -> std::io::Result<(Vec<Event>, Record)> {
    let (events, _) = read_events(&folder.join("events.jsonl"))?;
    let missing = || std::io::Error::from(std::io::ErrorKind::NotFound);
    let record = read_record(folder)?.ok_or_else(|| naming(&folder.join(RECORD))(missing()))?;
    Ok((events, record))
}

/// The driver's record of the model's own process, with those of the processes that it started; nothing where the model's
/// process has none.
fn read_record(folder: &Path) -> std::io::Result<Option<Record>> {
    let read = |path: &Path| {
        let bytes = std::fs::read(path).map_err(naming(path))?;
        Ok::<_, Error>(Record::parse(&String::from_utf8_lossy(&bytes)))
    };
    let own = folder.join(RECORD);
    if !own.exists() {
        return Ok(None);
    }
    let mut record = read(&own)?;
    for entry in std::fs::read_dir(folder).map_err(naming(folder))? {
        let path = entry.map_err(naming(folder))?.path();
        let name = path.file_name().unwrap_or_default().to_string_lossy().into_owned();
        if name.strip_prefix(RECORD).is_some_and(|rest| rest.starts_with('.')) {
            record.helpers.push(read(&path)?);
        }
    }
    Ok(Some(record))
}

/// The same error, which says what it is about.
pub(super) fn naming(path: &Path) -> impl FnOnce(Error) -> Error + use<> {
    let path = path.display().to_string();
    move |error| Error::new(error.kind(), format!("{path}: {error}"))
}

/// Reads the events. A last line that was cut short is no damage: the process died while it wrote.
fn read_events(path: &Path) -> std::io::Result<(Vec<Event>, bool)> {
    let bytes = match std::fs::read(path) {
        Ok(bytes) => bytes,
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => return Ok((Vec::new(), false)),
        Err(error) => return Err(naming(path)(error)),
    };
    let mut events = Vec::new();
    let mut damaged = false;
    for line in bytes.split_inclusive(|byte| *byte == b'\n') {
        match serde_json::from_slice(line) {
            Ok(event) => events.push(event),
            Err(_) => damaged |= line.ends_with(b"\n"),
        }
    }
    Ok((events, damaged))
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;
    use crate::bytes::Bytes;

    #[test]
    fn a_program_that_does_not_start_is_named() {
        let folder = tempfile::tempdir().unwrap();
        let limits = Limits {
            timeout: Duration::from_secs(1),
            host_memory: Bytes::GIB,
        };
        let program = Utf8Path::new("/nonexistent/vram");
        let (folder, nothing) = (folder.path(), Meanwhile::NOTHING);
        let ran = run(program, Utf8Path::new("/"), folder, Action::List, None, limits, nothing);
        let error = ran.unwrap_err();
        assert_eq!(error.kind(), std::io::ErrorKind::NotFound);
        assert!(error.to_string().starts_with("/nonexistent/vram: "), "{error}");
    }
}
