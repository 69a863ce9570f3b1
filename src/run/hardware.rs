//! The GPU a process runs on, virtual or real: the driver's configuration, the environment, and the polling of memory.

use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::Arc;
use std::time::Duration;

use super::process::naming;
use crate::bytes::Bytes;
use crate::driver::{self, CONFIG_VARIABLE, DriverLibrary, LIBDEVICE};
use crate::gpu::{MemoryLooks, Nvml, Poller, Profile};
use crate::report::{OtherProcess, Proof};

/// How often to sample the memory of a process on a real GPU.
pub const INTERVAL: Duration = Duration::from_millis(10);
/// How long a process waits between the creation of its context and of its model, for many samples of the context's
/// memory.
const SETTLE: Duration = Duration::from_millis(250);

/// The hardware that the models run on.
#[derive(Debug, Clone)]
pub enum Hardware {
    /// Virtual GPUs with the profile of each case.
    Virtual,
    /// One real GPU.
    Real(Real),
}

/// A real GPU, with the libraries to use it.
#[derive(Debug, Clone)]
pub struct Real {
    /// The GPU's UUID.
    pub uuid: String,
    /// The path of the CUDA driver library.
    pub libcuda: PathBuf,
    /// The path of NVRTC, the kernel compiler.
    pub libnvrtc: PathBuf,
    /// The toolkit's folder, with the headers for kernels in `include`.
    pub toolkit: PathBuf,
    /// The path of NVML, which reports the memory of processes. Without it, `process` is not measured.
    pub libnvml: Option<PathBuf>,
    /// NVML, initialized before a process begins, because that can take longer than the creation of a context.
    pub nvml: Option<Arc<Nvml>>,
    /// The version of the kernel driver, such as `580.82.07`.
    pub driver: String,
    /// The result of a kernel, which proves that the GPU runs kernels.
    pub proof: Proof,
    /// Whether the GPU must look no larger than the profile of each case.
    pub limited: bool,
    /// Whether other processes on the GPU are an error.
    pub exclusive: bool,
}

/// The toolkit lacks libdevice, the math functions that the kernel compiler of Burn 0.22 links.
#[derive(Debug, thiserror::Error)]
#[error("{} is missing: LLVM needs it to compile the kernels of Burn 0.22", .0.display())]
pub(super) struct MissingLibdevice(PathBuf);

impl MissingLibdevice {
    /// Returns this error if libdevice is not in the toolkit's folder.
    pub(super) fn look(toolkit: &Path) -> std::io::Result<()> {
        let path = toolkit.join(LIBDEVICE);
        if path.is_file() {
            return Ok(());
        }
        Err(std::io::Error::new(std::io::ErrorKind::NotFound, Self(path)))
    }
}

/// The GPU of one process, virtual or real.
#[derive(Debug, Clone, Copy)]
pub(super) struct RealGpu<'a> {
    pub(super) driver: &'a DriverLibrary,
    pub(super) profile: &'a Profile,
    pub(super) hardware: &'a Hardware,
    /// A fault that the driver injects, in the form of its configuration: `FUNCTION:CALL:CODE`.
    pub(super) fault: Option<&'a str>,
    /// The values that a model reads from a virtual GPU.
    pub(super) reads: ReadSetting,
    /// Whether a virtual GPU never refuses memory. It still reports the size of its profile.
    pub(super) endless: bool,
    /// The number of GPUs, if they are virtual.
    pub(super) gpus: u32,
}

/// The values that a model reads from a virtual GPU. No kernel runs there, so the real values are unknown.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum ReadSetting {
    /// Zeros.
    Zeros,
    /// Zeros, with another time of day and other keys for hash maps.
    ZerosLater,
    /// Other finite numbers, to find out whether the model's work depends on them. Time and keys differ, too.
    Other,
}

/// The memory of the GPU before a process began.
#[derive(Debug, Default)]
pub(super) struct Before {
    pub(super) idle: Option<Bytes>,
    pub(super) others: Vec<OtherProcess>,
}

/// Samples the memory of a GPU before and while a process runs on it.
pub(super) struct Watch<'a> {
    real: &'a Real,
    before: Before,
    poller: Option<Poller>,
}

impl<'a> Watch<'a> {
    /// Reads the memory that the GPU holds now, before the process begins.
    pub(super) fn new(real: &'a Real) -> Self {
        // Ignore errors: without NVML, only `process` has no value, and all other values are still measured.
        let gpu = real.nvml.as_ref().and_then(|nvml| nvml.device(&real.uuid).ok());
        let before = Before {
            idle: gpu.as_ref().and_then(|gpu| gpu.memory().ok()).map(|memory| memory.used),
            others: gpu.and_then(|gpu| gpu.processes()).unwrap_or_default(),
        };
        Self {
            real,
            before,
            poller: None,
        }
    }

    /// Starts to sample the memory of a process.
    pub(super) fn follow(&mut self, pid: u32) {
        let Real { libnvml, uuid, .. } = self.real;
        let start = |library: &PathBuf| Poller::start(Some(library.clone()), uuid.clone(), pid, INTERVAL);
        self.poller = libnvml.as_ref().map(start);
    }

    /// Stops and returns the samples.
    pub(super) fn stop(self) -> (Before, Option<MemoryLooks>) {
        (self.before, self.poller.map(Poller::stop))
    }
}

impl RealGpu<'_> {
    /// Sets up a command to run on the GPU, and writes the driver's configuration into `folder`.
    pub(super) fn apply(&self, command: &mut Command, folder: &Path, record: &Path) -> std::io::Result<()> {
        let config = folder.join("driver.conf");
        std::fs::write(&config, self.configuration(record)).map_err(naming(&config))?;
        command.env(CONFIG_VARIABLE, &config);
        let own = &self.driver.folder;
        match self.hardware {
            Hardware::Virtual => {
                command
                    // cudarc needs a toolkit folder, but checks only that it is a folder.
                    .env("CUDA_PATH", own)
                    .env(
                        // The first folder has the virtual NCCL. A process on a real GPU must not find it.
                        // See docs/design/driver.md.
                        "LD_LIBRARY_PATH",
                        before("LD_LIBRARY_PATH", &[&self.driver.connected(), own]),
                    )
                    // Use the bare file name, because the loader would split a path at its spaces.
                    .env("LD_PRELOAD", before("LD_PRELOAD", &[Path::new(driver::LIBRARY)]));
            }
            Hardware::Real(real) => {
                // NVRTC and the driver load further libraries from their own folders.
                let beside = [&real.libnvrtc, &real.libcuda].map(|library| library.parent().unwrap_or(own));
                // Last in the list: these folders also have the real libcuda, which our library must hide.
                // `LD_PRELOAD` is not set, because the program's clock and random numbers must stay real.
                let mut path = before("LD_LIBRARY_PATH", &[own]);
                for folder in beside {
                    path.push(":");
                    path.push(folder);
                }
                command
                    .env("CUDA_PATH", &real.toolkit)
                    // Not by number: what a number means depends on `CUDA_DEVICE_ORDER`.
                    .env("CUDA_VISIBLE_DEVICES", &real.uuid)
                    .env("LD_LIBRARY_PATH", path);
            }
        }
        Ok(())
    }

    /// Returns how long the process waits before it creates its model.
    pub(super) fn settle(&self) -> Duration {
        match self.hardware {
            Hardware::Virtual => Duration::ZERO,
            Hardware::Real(_) => SETTLE,
        }
    }

    fn configuration(&self, record: &Path) -> String {
        let mut lines = vec![
            ("record", record.display().to_string()),
            // A helper process must not write into the record of the model: their peaks are added.
            ("record_per_process", "1".to_owned()),
        ];
        match self.hardware {
            Hardware::Virtual => {
                lines.extend([
                    ("mode", "virtual".to_owned()),
                    // Without it, autotune times kernels that never run, and its winners are noise.
                    // See docs/design/virtual-clock.md.
                    ("virtual_clock", "1".to_owned()),
                    ("devices", self.gpus.to_string()),
                ]);
                lines.extend(self.profile.driver_config());
                if self.reads == ReadSetting::Other {
                    lines.push(("reads", "other".to_owned()));
                }
                // Passes that begin together would draw the same seed from the clock or a map, and hide that
                // a model is random.
                if self.reads != ReadSetting::Zeros {
                    lines.push(("moment", "other".to_owned()));
                }
                if self.endless {
                    // Leave `total` alone: Burn sizes its pages by it, so the values would be those of
                    // another GPU.
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

/// Returns a path list from the environment, with more paths in front.
fn before(variable: &str, paths: &[&Path]) -> std::ffi::OsString {
    // The loader takes an empty entry for the current folder.
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
