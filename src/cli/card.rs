//! The real card that models are measured on: found, shown to be one, and taken for this measurement alone.

use std::collections::BTreeMap;
use std::sync::Arc;

use clap::Args;
use miette::Diagnostic;
use thiserror::Error;

use super::options::Loudness;
use super::{Stopped, terminal};
use crate::bytes::Bytes;
use crate::driver::DriverLibrary;
use crate::gpu::{self, Device, DeviceError, DeviceLock, Libraries, Nvml, Profile, Profiles, SurveyError, Toolkit};
use crate::recording::CardFacts;
use crate::report::{Library, OtherProcess};
use crate::run::Real;

/// Which card is measured, and how.
#[derive(Debug, Clone, Args)]
pub(super) struct Measuring {
    /// The card: its number among those that CUDA shows, or its UUID or the beginning of it; by default the first
    #[arg(long, value_name = "N|UUID", help_heading = "Measuring")]
    pub(super) device: Option<String>,
    /// Fail where other processes use the card
    #[arg(long, help_heading = "Measuring")]
    pub(super) exclusive: bool,
}

/// Why a card cannot be measured.
#[derive(Debug, Error, Diagnostic)]
pub(super) enum CardError {
    /// The card could not be looked at.
    #[error(transparent)]
    #[diagnostic(transparent)]
    Survey(#[from] SurveyError),
    /// There is no such card.
    #[error(transparent)]
    #[diagnostic(transparent)]
    Device(#[from] DeviceError),
    /// Kernels could not be compiled.
    #[error("NVRTC, which compiles kernels, is not here")]
    #[diagnostic(
        code(card::no_nvrtc),
        help(
            "install the CUDA toolkit's NVRTC (package cuda-nvrtc), or put the folder of libnvrtc.so on LD_LIBRARY_PATH"
        )
    )]
    NoNvrtc,
    /// Kernels could not be compiled.
    #[error("CUDA's headers, which Burn's kernels include, are not here: {0}")]
    #[diagnostic(
        code(card::no_headers),
        help("install them (the package cuda-cudart-dev), and set CUDA_PATH to the folder that has them in `include`")
    )]
    NoHeaders(String),
    /// Nothing tells who uses the card.
    #[error("nothing tells whether others use the card {0}: NVML does not list its processes")]
    #[diagnostic(
        code(card::unseen),
        help("measure without --exclusive, or where NVML sees processes: not in a container, say")
    )]
    Unseen(String),
    /// Others use the card.
    #[error("the card {uuid} is in use by {}", list(others))]
    #[diagnostic(
        code(card::in_use),
        help("end them, choose another card with --device, or measure without --exclusive")
    )]
    InUse {
        /// The card.
        uuid: String,
        /// By whom.
        others: Vec<OtherProcess>,
    },
    /// The lock could not be taken.
    #[error("the card {uuid} could not be locked for this measurement")]
    #[diagnostic(
        code(card::lock),
        help("one measurement a card at a time: see whether the temporary folder can be written to")
    )]
    Lock {
        /// The card.
        uuid: String,
        /// Why not.
        source: std::io::Error,
    },
    /// More than the card has.
    #[error("--limit {limit} is more than the card has, {total}")]
    #[diagnostic(
        code(card::limit),
        help("a large card can be measured as a smaller one, and not the other way round")
    )]
    Limit {
        /// What was asked for.
        limit: Bytes,
        /// What there is.
        total: Bytes,
    },
}

impl CardError {
    /// Whether the machine, and not what was asked for, is the reason.
    pub(super) fn is_by_the_machine(&self) -> bool {
        !matches!(self, Self::Limit { .. } | Self::Device(_))
    }
}

fn list(others: &[OtherProcess]) -> String {
    others.iter().map(ToString::to_string).collect::<Vec<_>>().join(", ")
}

/// What the driver says of the card, and of itself.
struct Facts {
    device: Device,
    libcuda: Library,
    libnvrtc: Option<Library>,
}

/// A real card, taken.
pub(super) struct Taken {
    pub(super) real: Real,
    /// What it looks like, by its own driver's account.
    pub(super) profile: Profile,
    facts: Facts,
    _lock: DeviceLock,
}

impl Taken {
    /// The first line of what people are shown.
    pub(super) fn headline(&self) -> String {
        let Real { uuid, driver, .. } = &self.real;
        let limited = if self.real.limited { ", made smaller" } else { "" };
        format!(
            "measured on {} ({}{limited}), {uuid}, driver {driver}",
            self.profile.name, self.profile.total.value
        )
    }

    /// What a recording says of the card.
    pub(super) fn facts(&self) -> CardFacts {
        let Facts {
            device,
            libcuda,
            libnvrtc,
        } = &self.facts;
        let reported = self.profile.driver_config().into_iter();
        let mut said: BTreeMap<String, String> = reported.map(|(key, value)| (key.to_owned(), value)).collect();
        // What this program made of it is not what the driver said.
        said.remove("available");
        said.extend([("uuid".to_owned(), device.uuid.clone())]);
        CardFacts {
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

/// Finds the card that was asked for, sees that it computes, and waits until nobody else measures on it.
pub(super) fn take(
    measuring: &Measuring,
    limit: Option<Bytes>,
    driver: &DriverLibrary,
    profiles: &Profiles,
    loudness: Loudness,
) -> Result<Taken, Stopped> {
    Ok(taken(measuring, limit, driver, profiles, loudness)?)
}

fn taken(
    measuring: &Measuring,
    limit: Option<Bytes>,
    driver: &DriverLibrary,
    profiles: &Profiles,
    loudness: Loudness,
) -> Result<Taken, CardError> {
    let libraries = Libraries::find();
    // CUDA shows one slice of a card, unless another is named.
    let slice = measuring.device.as_deref().filter(|device| device.starts_with("MIG-"));
    let all = gpu::survey(&driver.survey, &libraries, None, slice)?;
    let device = all.device(measuring.device.as_deref())?.clone();
    let (Some(libcuda), Some(libnvrtc)) = (libraries.libcuda.clone(), libraries.libnvrtc.clone()) else {
        return Err(CardError::NoNvrtc);
    };
    let toolkit = match gpu::toolkit(Some(&libnvrtc)) {
        Toolkit::Here(folder) => folder,
        Toolkit::Without(folder, header) => {
            return Err(CardError::NoHeaders(format!(
                "{} has no include/{header}",
                folder.display()
            )));
        }
        Toolkit::Nowhere => return Err(CardError::NoHeaders("CUDA_PATH is not set".to_owned())),
    };
    let lock = DeviceLock::take(&device.uuid, || {
        if !loudness.quiet {
            let lock = DeviceLock::path(&device.uuid);
            terminal::remark(&format!(
                "waiting for another measurement on {} (lock: {})",
                device.uuid,
                lock.display()
            ));
        }
    })
    .map_err(|source| CardError::Lock {
        uuid: device.uuid.clone(),
        source,
    })?;
    let proven = gpu::survey(&driver.survey, &libraries, Some(seed()), Some(&device.uuid))?;
    let proof = proven.proof.ok_or(SurveyError::NotReal {
        expected: 0,
        computed: None,
    })?;
    let mut profile = profiles.of_device(&device);
    if let Some(limit) = limit {
        if limit > profile.total.value {
            return Err(CardError::Limit {
                limit,
                total: profile.total.value,
            });
        }
        profile.total.value = limit;
    }
    let facts = Facts {
        device: device.clone(),
        libcuda: proven.libcuda,
        libnvrtc: proven.libnvrtc,
    };
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
            None => return Err(CardError::Unseen(real.uuid)),
            Some(others) if !others.is_empty() => {
                return Err(CardError::InUse {
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

/// Another one each time, so that no answer can be a remembered one.
fn seed() -> u64 {
    let now = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH);
    now.map_or(1, |now| u64::try_from(now.as_nanos()).unwrap_or(u64::MAX))
}

/// As people know it, `580.82.07`; where nothing tells, the version of CUDA that it is for.
fn driver_version(nvml: Option<&Nvml>, cuda: (u32, u32)) -> String {
    let known = nvml.and_then(Nvml::driver_version);
    known.unwrap_or_else(|| format!("{}.{}", cuda.0, cuda.1))
}

fn others(real: &Real) -> Option<Vec<OtherProcess>> {
    let card = real.nvml.as_ref().and_then(|nvml| nvml.device(&real.uuid).ok());
    card.and_then(|card| card.processes())
}
