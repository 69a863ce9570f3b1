//! GPU profiles, and access to real GPUs: libraries, survey, NVML, locks.
//!
//! The file `profiles.toml`, embedded in the program, describes the built-in GPUs. Users add GPUs in `budgets.yaml`
//! ([`Profiles::add_like`]). A [`Sourced`] value carries its [`Provenance`], so that a report can list the assumptions.

mod error;
mod libraries;
#[cfg(unix)]
mod lock;
mod nodes;
#[cfg(unix)]
mod nvml;
mod profile;
mod profiles;
mod sourced;
mod survey;
mod toolkit;

pub use error::GpuError;
pub use libraries::Libraries;
#[cfg(unix)]
pub use lock::DeviceLock;
pub use nodes::{DEV_VARIABLE, device_node};
#[cfg(unix)]
pub use nvml::{GpuMemory, MemoryLook, MemoryLooks, Nvml, NvmlDevice, NvmlError, Poller};
pub use profile::{GpuLimits, Profile, largest_tensor};
pub(crate) use profiles::is_id;
pub use profiles::{Overrides, Profiles};
pub use sourced::{Provenance, Sourced};
pub use survey::{ContextSeen, DeviceError, Survey, SurveyError, SurveyedDevice, survey, survey_within};
pub use toolkit::{NO_TOOLKIT, Toolkit, libdevice, toolkit};

use sha2::{Digest, Sha256};

/// The data of the built-in GPUs.
const DATA: &str = include_str!("profiles.toml");

/// A hash of the built-in data, in lower-case hexadecimal.
///
/// An estimate is not compared with a baseline that was made from other data.
#[must_use]
pub fn fingerprint() -> String {
    hex_digest(DATA)
}

/// The SHA-256 of a text, in lower-case hexadecimal.
pub(crate) fn hex_digest(text: &str) -> String {
    Sha256::digest(text).iter().map(|byte| format!("{byte:02x}")).collect()
}
