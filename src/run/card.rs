//! What a model's process runs on: a virtual card or a real one; its configuration, its environment, and how its
//! memory is looked at meanwhile.

use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::Arc;
use std::time::Duration;

use super::process::naming;
use crate::bytes::Bytes;
use crate::driver::{self, CONFIG_VARIABLE, DriverLibrary, LIBDEVICE};
use crate::gpu::{Looks, Nvml, Poller, Profile};
use crate::report::{OtherProcess, Proof};

/// How often a process's memory is looked at.
pub const INTERVAL: Duration = Duration::from_millis(10);
/// How long a process waits between making its context and its model: time for many looks.
const SETTLE: Duration = Duration::from_millis(250);

/// What the models run on.
#[derive(Debug, Clone)]
pub enum Hardware {
    /// A virtual card: that of each case's profile.
    Virtual,
    /// A real one.
    Real(Real),
}

/// A real card, and the way to it.
#[derive(Debug, Clone)]
pub struct Real {
    /// Its own id.
    pub uuid: String,
    /// The CUDA driver.
    pub libcuda: PathBuf,
    /// The compiler of kernels.
    pub libnvrtc: PathBuf,
    /// The folder that has the headers of kernels in `include`.
    pub toolkit: PathBuf,
    /// The library that tells what processes hold; where there is none, `process` is not measured.
    pub libnvml: Option<PathBuf>,
    /// That library, ready before a process begins: making it so can take longer than making a context.
    pub nvml: Option<Arc<Nvml>>,
    /// The version of the driver, as people know it.
    pub driver: String,
    /// What a kernel computed on it.
    pub proof: Proof,
    /// The card is to look no larger than the profile of each case says.
    pub limited: bool,
    /// Other processes on the card are an error.
    pub exclusive: bool,
}

/// A toolkit lacks the math functions that the kernel compiler of Burn 0.22 links.
#[derive(Debug, thiserror::Error)]
#[error("{} is missing, and LLVM, with which Burn 0.22 compiles kernels, needs it", .0.display())]
pub(super) struct MissingLibdevice(PathBuf);

impl MissingLibdevice {
    pub(super) fn look(toolkit: &Path) -> std::io::Result<()> {
        let path = toolkit.join(LIBDEVICE);
        if path.is_file() {
            return Ok(());
        }
        Err(std::io::Error::new(std::io::ErrorKind::NotFound, Self(path)))
    }
}

/// A card, for one process.
#[derive(Debug, Clone, Copy)]
pub(super) struct Card<'a> {
    pub(super) driver: &'a DriverLibrary,
    pub(super) profile: &'a Profile,
    pub(super) hardware: &'a Hardware,
    /// A fault that the driver is to answer, as its configuration has it.
    pub(super) fault: Option<&'a str>,
    /// What a virtual card answers where the model reads its memory.
    pub(super) reads: Reads,
    /// Whether a virtual card's memory has no end: it tells what it has, and never refuses any.
    pub(super) endless: bool,
    /// How many such cards there are, where they are virtual.
    pub(super) cards: u32,
}

/// What a virtual card answers where a model reads its memory: no kernel ran, so nobody knows what is there.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Reads {
    Zeros,
    /// Zeros, at another time of day and with other keys of hash maps.
    ZerosLater,
    /// Other finite numbers, to see whether the model's work depends on them; and all that is later, too.
    Other,
}

/// What the card held before a process began.
#[derive(Debug, Default)]
pub(super) struct Before {
    pub(super) idle: Option<Bytes>,
    pub(super) others: Vec<OtherProcess>,
}

/// Looks at a card before and while a process runs on it.
pub(super) struct Watch<'a> {
    real: &'a Real,
    before: Before,
    poller: Option<Poller>,
}

impl<'a> Watch<'a> {
    /// Looks at what the card holds now.
    pub(super) fn new(real: &'a Real) -> Self {
        let card = real.nvml.as_ref().and_then(|nvml| nvml.device(&real.uuid).ok());
        let before = Before {
            idle: card
                .as_ref()
                .and_then(|card| card.memory().ok())
                .map(|memory| memory.used),
            others: card.and_then(|card| card.processes()).unwrap_or_default(),
        };
        Self {
            real,
            before,
            poller: None,
        }
    }

    /// Starts to look at a process's memory.
    pub(super) fn follow(&mut self, pid: u32) {
        let Real { libnvml, uuid, .. } = self.real;
        let start = |library: &PathBuf| Poller::start(Some(library.clone()), uuid.clone(), pid, INTERVAL);
        self.poller = libnvml.as_ref().map(start);
    }

    /// What was seen.
    pub(super) fn stop(self) -> (Before, Option<Looks>) {
        (self.before, self.poller.map(Poller::stop))
    }
}

impl Card<'_> {
    /// Makes a command run on the card, with the driver's files in `folder`.
    pub(super) fn apply(&self, command: &mut Command, folder: &Path, record: &Path) -> std::io::Result<()> {
        let config = folder.join("driver.conf");
        std::fs::write(&config, self.configuration(record)).map_err(naming(&config))?;
        command.env(CONFIG_VARIABLE, &config);
        let own = &self.driver.folder;
        match self.hardware {
            Hardware::Virtual => {
                command
                    // cudarc looks for the toolkit's folder, and looks no further than that it is one.
                    .env("CUDA_PATH", own)
                    .env(
                        "LD_LIBRARY_PATH",
                        before("LD_LIBRARY_PATH", &[&self.driver.connected(), own]),
                    )
                    // By its bare name: the loader would split a path at its spaces.
                    .env("LD_PRELOAD", before("LD_PRELOAD", &[Path::new(driver::LIBRARY)]));
            }
            Hardware::Real(real) => {
                // NVRTC and the driver load libraries of their own, which lie beside them.
                let beside = [&real.libnvrtc, &real.libcuda].map(|library| library.parent().unwrap_or(own));
                let mut path = before("LD_LIBRARY_PATH", &[own]);
                for folder in beside {
                    path.push(":");
                    path.push(folder);
                }
                command
                    .env("CUDA_PATH", &real.toolkit)
                    .env("CUDA_VISIBLE_DEVICES", &real.uuid)
                    .env("LD_LIBRARY_PATH", path);
            }
        }
        Ok(())
    }

    /// How long the process waits before it makes its model.
    pub(super) fn settle(&self) -> Duration {
        match self.hardware {
            Hardware::Virtual => Duration::ZERO,
            Hardware::Real(_) => SETTLE,
        }
    }

    fn configuration(&self, record: &Path) -> String {
        let mut lines = vec![
            ("record", record.display().to_string()),
            ("record_per_process", "1".to_owned()),
        ];
        match self.hardware {
            Hardware::Virtual => {
                lines.extend([
                    ("mode", "virtual".to_owned()),
                    ("virtual_clock", "1".to_owned()),
                    ("devices", self.cards.to_string()),
                ]);
                lines.extend(self.profile.driver_config());
                if self.reads == Reads::Other {
                    lines.push(("reads", "other".to_owned()));
                }
                if self.reads != Reads::Zeros {
                    lines.push(("moment", "other".to_owned()));
                }
                if self.endless {
                    lines.push(("available", u64::MAX.to_string()));
                }
            }
            Hardware::Real(real) => {
                lines.extend([
                    ("mode", "forward".to_owned()),
                    ("libcuda", real.libcuda.display().to_string()),
                    ("libnvrtc", real.libnvrtc.display().to_string()),
                ]);
                if real.limited {
                    lines.extend([
                        ("total", self.profile.total.value.0.to_string()),
                        ("available", self.profile.available().0.to_string()),
                    ]);
                }
            }
        }
        lines.extend(self.fault.map(|fault| ("inject", fault.to_owned())));
        lines.iter().map(|(key, value)| format!("{key}={value}\n")).collect()
    }
}

/// A path list of the environment with more paths in front.
fn before(variable: &str, paths: &[&Path]) -> std::ffi::OsString {
    let rest = std::env::var_os(variable).filter(|rest| !rest.is_empty());
    let mut list = std::ffi::OsString::new();
    for path in paths.iter().map(|path| path.as_os_str()).chain(rest.as_deref()) {
        if !list.is_empty() {
            list.push(":");
        }
        list.push(path);
    }
    list
}
