//! GPU profiles: what a card looks like to Burn, as data with its sources.
//!
//! The cards are in `profiles.toml`, embedded; a user adds others in `budgets.yaml` ([`Profiles::add_like`]).
//! A figure never travels without its [`Provenance`], so that a report can name what was assumed.

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
pub use nvml::{Card, CardMemory, Look, Looks, Nvml, NvmlError, Poller};
pub use profile::{Limits, Profile, largest_tensor};
pub use profiles::{Overrides, Profiles};
pub use sourced::{Provenance, Sourced};
pub use survey::{ContextSeen, Device, DeviceError, Survey, SurveyError, survey, survey_within};
pub use toolkit::{Toolkit, libdevice, toolkit};

use sha2::{Digest, Sha256};

/// The built-in cards, as they are shipped.
const DATA: &str = include_str!("profiles.toml");

/// A hash over the built-in data, in lower-case hexadecimal. A baseline that was made with another one is made anew.
#[must_use]
pub fn fingerprint() -> String {
    hex_digest(DATA)
}

/// SHA-256 of a text, in lower-case hexadecimal.
pub(crate) fn hex_digest(text: &str) -> String {
    Sha256::digest(text).iter().map(|byte| format!("{byte:02x}")).collect()
}
