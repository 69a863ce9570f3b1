//! Runs the process of one job: prepares its folder, environment and files, and reads what it wrote.

use std::io::Error;
use std::ops::ControlFlow;
use std::path::{Path, PathBuf};
use std::process::Command;

use camino::Utf8Path;

use super::child::{self, ProcessLimits, ProcessOutcome};
use super::follow::{Follow, PassPosition};
use super::gpu_work;
use super::hardware::{Before, Hardware, RealGpu, Watch};
use super::record::Record;
use crate::bytes::Bytes;
use crate::folders;
use crate::gpu::MemoryLooks;
use crate::protocol::{Action, Inside, JOB_VARIABLE, Job, PROTOCOL, ProbeEvent, StreamMemory};

/// The environment variable with the stack size of threads that a Rust program starts, in bytes.
const STACK_VARIABLE: &str = "RUST_MIN_STACK";
/// The stack size for a model that runs on a thread of Burn, in bytes: 64 MiB, more than the 8 MiB of Linux's main
/// thread.
const MODEL_STACK: &str = "67108864";

/// The file name of the driver's record.
///
/// Each process appends its id to this name. The tool removes the id from the record of the model's own process.
const RECORD: &str = "driver.log";

/// The callbacks while a process runs.
#[derive(Clone, Copy)]
pub(super) struct Meanwhile<'a> {
    /// Receives each new position of the process.
    pub(super) reached: &'a dyn Fn(PassPosition),
    /// Whether the process must end now.
    pub(super) is_stopped: &'a dyn Fn() -> bool,
}

impl Meanwhile<'_> {
    /// Callbacks that do nothing.
    pub(super) const NOTHING: Self = Meanwhile {
        reached: &|_| {},
        is_stopped: &|| false,
    };
}

/// A disk with less free space than this counts as full: a file may not fit although a few blocks are left.
const FULL: Bytes = Bytes::MIB;

/// Everything that a process left behind.
#[derive(Debug)]
pub(super) struct PassOutput {
    /// How the process ended.
    pub(super) ended: ProcessOutcome,
    /// The readable events of the process.
    pub(super) events: Vec<ProbeEvent>,
    /// Whether the event file contains a line that is not an event.
    pub(super) damaged: bool,
    /// The driver's record of the process.
    pub(super) record: Record,
    /// Whether autotune chose in this pass, so that the driver may have refused candidates.
    ///
    /// This is so in a cold pass, in passes after an incomplete cold pass, and in passes whose plan lacked a choice.
    pub(super) tunes: bool,
    /// The number of steps that the pass had to run.
    pub(super) steps: u32,
    /// Whether each step must have the phases of a training step.
    pub(super) trains: bool,
    /// Whether the whole model ran on the thread of fusion because it uploads tensors.
    pub(super) is_inside: bool,
    /// Which part of the model ran on the thread of fusion to find source lines; `None` if the pass did not try that.
    pub(super) lines: Option<Inside>,
    /// What a real GPU held before the process began.
    pub(super) before: Before,
    /// The samples of the process's memory on a real GPU.
    pub(super) looks: Option<MemoryLooks>,
    /// The folder of the job, if its disk was full when the process had ended.
    pub(super) full_disk: Option<PathBuf>,
}

impl PassOutput {
    /// Replaces the in-use bytes at the end of each phase with those of another pass of the same steps.
    pub(super) fn take_ends_of(&mut self, other: &Self) {
        let ends = gpu_work::seen(other);
        let parts = |wanted: &ProbeEvent| {
            let found = other.events.iter().find_map(|event| match (event, wanted) {
                (
                    ProbeEvent::EpochEnd {
                        first_step,
                        loader,
                        streams,
                        ..
                    },
                    ProbeEvent::EpochEnd {
                        first_step: wanted_step,
                        loader: wanted_loader,
                        ..
                    },
                ) if (first_step, loader) == (wanted_step, wanted_loader) => Some(streams),
                _ => None,
            });
            found.cloned()
        };
        for event in &mut self.events {
            if let Some(others) = parts(event)
                && let ProbeEvent::EpochEnd { streams, .. } = event
            {
                for stream in &mut *streams {
                    let same = others.iter().find(|other| other.stream == stream.stream);
                    stream.in_use = same.map_or(0, |other| other.in_use);
                }
                // A thread may have another stream in the other pass. Its tensors count, too.
                let is_new = |other: &&StreamMemory| !streams.iter().any(|stream| stream.stream == other.stream);
                let new: Vec<_> = others.iter().filter(is_new).copied().collect();
                streams.extend(new.into_iter().map(|stream| StreamMemory { reserved: 0, ..stream }));
            }
            if let ProbeEvent::Seen {
                gpu,
                step,
                phase,
                in_use_end,
                ..
            } = event
                && let Some(end) = ends.get(&(*step, *phase, *gpu))
            {
                *in_use_end = end.in_use_end;
            }
        }
    }
}

/// Runs one job in `folder`. Deletes the folder first if it exists; all files of the job are in it.
pub(super) fn run(
    executable: &Utf8Path,
    package_folder: &Utf8Path,
    folder: &Path,
    action: Action,
    gpu: Option<RealGpu<'_>>,
    limits: ProcessLimits,
    meanwhile: Meanwhile<'_>,
) -> std::io::Result<PassOutput> {
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
        // As `cargo bench` runs it: models open their data by paths relative to the package.
        .current_dir(package_folder)
        .env("CARGO_MANIFEST_DIR", package_folder)
        .env(JOB_VARIABLE, &job_file);
    // A thread of Rust has 2 MiB of stack, and the model was written for the main thread. A user's own value
    // wins.
    if is_inside && std::env::var_os(STACK_VARIABLE).is_none() {
        command.env(STACK_VARIABLE, MODEL_STACK);
    }
    if let Some(gpu) = gpu {
        gpu.apply(&mut command, folder, &record)?;
    }
    let mut watch = gpu.and_then(|gpu| match gpu.hardware {
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
    let ended = child::run(&mut command, folder, limits, started, || {
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
    // This fails if the model never called the driver: then there is no record.
    let _ = std::fs::rename(folder.join(format!("{RECORD}.{own}")), &record);
    let record = read_record(folder)?;
    Ok(PassOutput {
        ended,
        events,
        damaged,
        // `Runner` sets what depends on the pass and not on its process.
        tunes: false,
        steps: 0,
        trains: false,
        is_inside: false,
        lines: None,
        record: record.unwrap_or_default(),
        before,
        looks,
        full_disk: folders::free_space(folder)
            .filter(|free| Bytes(*free) < FULL)
            .map(|_| folder.to_owned()),
    })
}

/// Reads the events and the driver's record from the folder of a process.
pub(super) fn left_in(folder: &Path) -> std::io::Result<(Vec<ProbeEvent>, Record)> {
    let (events, _) = read_events(&folder.join("events.jsonl"))?;
    let missing = || std::io::Error::from(std::io::ErrorKind::NotFound);
    let record = read_record(folder)?.ok_or_else(|| naming(&folder.join(RECORD))(missing()))?;
    Ok((events, record))
}

/// Reads the driver's record of the model's own process, with the records of the processes that it started.
///
/// Returns `None` if the model's own process has no record.
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

/// Prefixes an error with the path that it is about.
pub(super) fn naming(path: &Path) -> impl FnOnce(Error) -> Error + use<> {
    let path = path.display().to_string();
    move |error| Error::new(error.kind(), format!("{path}: {error}"))
}

/// Reads the events, and whether a line is not an event.
///
/// An incomplete last line is not damage: the process died while it wrote the line.
fn read_events(path: &Path) -> std::io::Result<(Vec<ProbeEvent>, bool)> {
    let bytes = match std::fs::read(path) {
        Ok(bytes) => bytes,
        // The process died before its first event. Its exit status tells why.
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => return Ok((Vec::new(), false)),
        Err(error) => return Err(naming(path)(error)),
    };
    let mut events = Vec::new();
    let mut damaged = false;
    for line in bytes.split_inclusive(|byte| *byte == b'\n') {
        match serde_json::from_slice(line) {
            Ok(event) => events.push(event),
            // Never skip a damaged line: it may have been the one that says what failed.
            // See docs/design/complete-runs.md.
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
        let limits = ProcessLimits {
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
