//! The process of one job: its folder, its environment, its files.

use std::path::{Path, PathBuf};
use std::process::Command;

use camino::Utf8Path;

use super::child::{self, Ended, Limits};
use super::record::Record;
use crate::driver::{self, CONFIG_VARIABLE, DriverLibrary};
use crate::gpu::Profile;
use crate::protocol::{Action, Event, JOB_VARIABLE, Job, PROTOCOL};

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
}

/// The card a process sees, and the driver that shows it.
#[derive(Debug, Clone, Copy)]
pub(super) struct Card<'a> {
    pub(super) driver: &'a DriverLibrary,
    pub(super) profile: &'a Profile,
}

/// Runs one job in `folder`, which is made for it and holds all its files.
pub(super) fn run(
    executable: &Utf8Path,
    package_folder: &Utf8Path,
    folder: &Path,
    action: Action,
    card: Option<Card<'_>>,
    limits: Limits,
) -> std::io::Result<Left> {
    std::fs::create_dir_all(folder)?;
    let events = folder.join("events.jsonl");
    let record = folder.join("driver.log");
    let job_file = folder.join("job.json");
    let job = Job {
        protocol: PROTOCOL,
        version: env!("CARGO_PKG_VERSION").into(),
        events: events.clone(),
        action,
    };
    std::fs::write(&job_file, serde_json::to_vec(&job)?)?;
    let mut command = Command::new(executable);
    command
        .current_dir(package_folder)
        .env("CARGO_MANIFEST_DIR", package_folder)
        .env(JOB_VARIABLE, &job_file);
    if let Some(card) = card {
        let config = folder.join("driver.conf");
        std::fs::write(&config, configuration(card.profile, &record))?;
        command
            .env(CONFIG_VARIABLE, &config)
            // cudarc looks for the toolkit's folder, and looks no further than that it is one.
            .env("CUDA_PATH", &card.driver.folder)
            .env("LD_LIBRARY_PATH", before("LD_LIBRARY_PATH", &card.driver.folder))
            // By its bare name: the loader would split a path at its spaces.
            .env("LD_PRELOAD", before("LD_PRELOAD", Path::new(driver::LIBRARY)));
    }
    let ended = child::run(&mut command, limits)?;
    let (events, damaged) = read_events(&events)?;
    let record = std::fs::read(&record).map(|bytes| Record::parse(&String::from_utf8_lossy(&bytes)));
    Ok(Left {
        ended,
        events,
        damaged,
        record: record.unwrap_or_default(),
    })
}

fn configuration(profile: &Profile, record: &Path) -> String {
    let mut text = format!(
        "record={}\nmode=virtual\nvirtual_clock=1\ndevices=1\n",
        record.display()
    );
    for (key, value) in profile.driver_config() {
        text.push_str(&format!("{key}={value}\n"));
    }
    text
}

/// A path list of the environment with one more path in front.
fn before(variable: &str, path: &Path) -> PathBuf {
    let mut list = path.as_os_str().to_owned();
    if let Some(rest) = std::env::var_os(variable).filter(|rest| !rest.is_empty()) {
        list.push(":");
        list.push(rest);
    }
    list.into()
}

/// Reads the events. A last line that was cut short is no damage: the process died while it wrote.
fn read_events(path: &Path) -> std::io::Result<(Vec<Event>, bool)> {
    let bytes = match std::fs::read(path) {
        Ok(bytes) => bytes,
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => return Ok((Vec::new(), false)),
        Err(error) => return Err(error),
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
