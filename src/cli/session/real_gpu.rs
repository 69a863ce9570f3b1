//! Finds the real GPU to measure on, proves that it computes, and locks it for this measurement.

use std::collections::BTreeMap;
use std::sync::Arc;

use clap::Args;
use miette::Diagnostic;
use thiserror::Error;

use crate::bytes::Bytes;
use crate::cli::error::{CliError, ExitCoded};
use crate::cli::exit::Exit;
use crate::cli::terminal;
use crate::driver::DriverLibrary;
use crate::gpu::{
    self, DeviceError, DeviceLock, Libraries, NO_TOOLKIT, Nvml, Profile, Profiles, SurveyError, SurveyedDevice, Toolkit,
};
use crate::recording::GpuFacts;
use crate::report::{LoadedLibrary, OtherProcess};
use crate::run::Real;

/// The options of a measurement on a real GPU.
#[derive(Debug, Clone, Args)]
pub(in crate::cli) struct Measuring {
    /// Measure on this GPU: its CUDA index, or (the start of) its UUID [default: 0]
    #[arg(long, value_name = "N|UUID", help_heading = "GPU")]
    pub(in crate::cli) device: Option<String>,
    /// Fail if other processes use the GPU
    #[arg(long, help_heading = "GPU")]
    pub(in crate::cli) exclusive: bool,
}

/// Why a real GPU cannot be used for a measurement.
#[derive(Debug, Error, Diagnostic)]
pub(in crate::cli) enum RealGpuError {
    /// The GPUs could not be queried.
    #[error(transparent)]
    #[diagnostic(transparent)]
    Survey(#[from] SurveyError),
    /// The selected GPU does not exist.
    #[error(transparent)]
    #[diagnostic(transparent)]
    Device(#[from] DeviceError),
    /// NVRTC is missing.
    #[error("cannot find NVRTC, which compiles kernels")]
    #[diagnostic(
        code(gpu::no_nvrtc_library),
        help(
            "install the CUDA toolkit's NVRTC (package cuda-nvrtc), or add the folder of libnvrtc.so to LD_LIBRARY_PATH"
        )
    )]
    NoNvrtc,
    /// CUDA headers are missing.
    #[error("cannot find the CUDA headers that Burn's kernels include: {0}")]
    #[diagnostic(
        code(gpu::no_headers),
        help("install them (package cuda-cudart-dev), and set CUDA_PATH to the folder whose `include` contains them")
    )]
    NoHeaders(String),
    /// The processes on the GPU are unknown.
    #[error("cannot check whether other processes use the GPU {0}: NVML does not list its processes")]
    #[diagnostic(
        code(gpu::unseen),
        help("omit --exclusive, or run where NVML lists processes, such as outside of a container")
    )]
    Unseen(String),
    /// Other processes use the GPU.
    #[error("other processes use the GPU {uuid}: {}", list(others))]
    #[diagnostic(
        code(gpu::in_use),
        help("end these processes, choose another GPU with --device, or omit --exclusive")
    )]
    InUse {
        /// The UUID of the GPU.
        uuid: String,
        /// The processes that use it.
        others: Vec<OtherProcess>,
    },
    /// The lock could not be taken.
    #[error("cannot lock the GPU {uuid} for this measurement")]
    #[diagnostic(
        code(gpu::lock),
        help("make the temporary folder writable: a lock file in it allows one measurement per GPU at a time")
    )]
    Lock {
        /// The UUID of the GPU.
        uuid: String,
        /// The error that the system reports.
        source: std::io::Error,
    },
    /// `--limit` exceeds the memory of the GPU.
    #[error("--limit {limit} is more than the GPU's memory of {total}")]
    #[diagnostic(
        code(gpu::limit),
        help("pass a smaller --limit: a measurement can treat a GPU as a smaller one, but not as a larger one")
    )]
    Limit {
        /// The value of `--limit`.
        limit: Bytes,
        /// The total memory of the GPU.
        total: Bytes,
    },
}

impl ExitCoded for RealGpuError {
    fn exit(&self) -> Exit {
        match self {
            Self::Limit { .. } => Exit::Unusable,
            Self::Device(error) => error.exit(),
            Self::Survey(error) => error.exit(),
            Self::NoNvrtc | Self::NoHeaders(_) | Self::Unseen(_) | Self::InUse { .. } | Self::Lock { .. } => {
                Exit::Incomplete
            }
        }
    }
}

fn list(others: &[OtherProcess]) -> String {
    others.iter().map(ToString::to_string).collect::<Vec<_>>().join(", ")
}

/// What the driver reports about the GPU, and the libraries that were loaded.
struct DriverFacts {
    device: SurveyedDevice,
    libcuda: LoadedLibrary,
    libnvrtc: Option<LoadedLibrary>,
}

/// A real GPU, locked for this measurement.
pub(in crate::cli) struct Taken {
    pub(in crate::cli) real: Real,
    /// The profile of the GPU, as its own driver reports it.
    pub(in crate::cli) profile: Profile,
    facts: DriverFacts,
    _lock: DeviceLock,
}

impl Taken {
    /// Returns the first line of the table.
    pub(in crate::cli) fn headline(&self) -> String {
        let Real { uuid, driver, .. } = &self.real;
        let limited = if self.real.limited { ", set by --limit" } else { "" };
        format!(
            "measured on {} ({}{limited}), {uuid}, driver {driver}",
            self.profile.name, self.profile.total.value
        )
    }

    /// Returns what a recording stores about the GPU.
    pub(in crate::cli) fn facts(&self) -> GpuFacts {
        let DriverFacts {
            device,
            libcuda,
            libnvrtc,
        } = &self.facts;
        let reported = self.profile.driver_config().into_iter();
        let mut said: BTreeMap<String, String> = reported.map(|(key, value)| (key.to_owned(), value)).collect();
        // This program calculates `available`. The driver does not report it.
        said.remove("available");
        said.extend([("uuid".to_owned(), device.uuid.clone())]);
        GpuFacts {
            gpu: self.profile.id.clone(),
            driver: self.real.driver.clone(),
            device: said,
            libcuda: libcuda.clone(),
            libnvrtc: libnvrtc.clone().unwrap_or_else(|| libcuda.clone()),
            context: None,
            modules: None,
        }
    }
}

/// Finds the selected GPU, waits until no other measurement runs on it, and proves that it computes.
pub(in crate::cli) fn take(
    measuring: &Measuring,
    limit: Option<Bytes>,
    driver: &DriverLibrary,
    profiles: &Profiles,
) -> Result<Taken, CliError> {
    Ok(taken(measuring, limit, driver, profiles)?)
}

fn taken(
    measuring: &Measuring,
    limit: Option<Bytes>,
    driver: &DriverLibrary,
    profiles: &Profiles,
) -> Result<Taken, RealGpuError> {
    let libraries = Libraries::find();
    // CUDA shows only one MIG slice of a GPU by default. To see another one, the survey must name it.
    let slice = measuring.device.as_deref().filter(|device| device.starts_with("MIG-"));
    // Without a proof: which GPU to lock is known only now. See docs/design/real-gpus.md.
    let all = gpu::survey(&driver.survey, &libraries, None, slice)?;
    let device = all.device(measuring.device.as_deref())?.clone();
    let (Some(libcuda), Some(libnvrtc)) = (libraries.libcuda.clone(), libraries.libnvrtc.clone()) else {
        return Err(RealGpuError::NoNvrtc);
    };
    // Burn would find missing headers only in the middle of a pass.
    let toolkit = match gpu::toolkit(Some(&libnvrtc)) {
        Toolkit::Here(folder) => folder,
        Toolkit::Without(folder, header) => {
            return Err(RealGpuError::NoHeaders(format!(
                "{} has no include/{header}",
                folder.display()
            )));
        }
        Toolkit::Nowhere => return Err(RealGpuError::NoHeaders(NO_TOOLKIT.to_owned())),
    };
    let lock = DeviceLock::take(&device.uuid, || {
        if !terminal::is_quiet() {
            let lock = DeviceLock::path(&device.uuid);
            terminal::remark(&format!(
                "waiting for another measurement on {} (lock: {})",
                device.uuid,
                lock.display()
            ));
        }
    })
    .map_err(|source| RealGpuError::Lock {
        uuid: device.uuid.clone(),
        source,
    })?;
    // Behind the lock, so that this kernel does not disturb another measurement. The proof runs on the first
    // visible GPU, so only the selected one is visible.
    let proven = gpu::survey(&driver.survey, &libraries, Some(seed()), Some(&device.uuid))?;
    let proof = proven.proof.ok_or(SurveyError::NotReal {
        expected: 0,
        computed: None,
    })?;
    let mut profile = profiles.of_device(&device);
    if let Some(limit) = limit {
        if limit > profile.total.value {
            return Err(RealGpuError::Limit {
                limit,
                total: profile.total.value,
            });
        }
        profile.total.value = limit;
    }
    let facts = DriverFacts {
        device: device.clone(),
        libcuda: proven.libcuda,
        libnvrtc: proven.libnvrtc,
    };
    // Without NVML, only process memory stays unmeasured.
    let nvml = Nvml::open(libraries.libnvml.as_deref()).ok().map(Arc::new);
    let real = Real {
        driver: driver_version(nvml.as_deref(), all.driver_version),
        uuid: device.uuid,
        libcuda,
        libnvrtc,
        toolkit,
        libnvml: libraries.libnvml,
        nvml,
        proof,
        limited: limit.is_some(),
        exclusive: measuring.exclusive,
    };
    if measuring.exclusive {
        match others(&real) {
            None => return Err(RealGpuError::Unseen(real.uuid)),
            Some(others) if !others.is_empty() => {
                return Err(RealGpuError::InUse {
                    uuid: real.uuid,
                    others,
                });
            }
            Some(_) => {}
        }
    }
    Ok(Taken {
        real,
        profile,
        facts,
        _lock: lock,
    })
}

/// Returns another number each time, so that a remembered answer cannot pass for a computed one.
fn seed() -> u64 {
    let now = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH);
    now.map_or(1, |now| u64::try_from(now.as_nanos()).unwrap_or(u64::MAX))
}

/// Returns the version of the driver, such as `580.82.07`, or its CUDA version if NVML does not report it.
fn driver_version(nvml: Option<&Nvml>, cuda: (u32, u32)) -> String {
    let known = nvml.and_then(Nvml::driver_version);
    known.unwrap_or_else(|| format!("{}.{}", cuda.0, cuda.1))
}

fn others(real: &Real) -> Option<Vec<OtherProcess>> {
    let gpu = real.nvml.as_ref().and_then(|nvml| nvml.device(&real.uuid).ok());
    gpu.and_then(|gpu| gpu.processes())
}
