//! The versioned report: one JSON document that every output is drawn from.

pub(crate) mod change;
pub mod diff;
mod error_code;
#[cfg(unix)]
pub mod explain;
#[cfg(unix)]
pub mod fit;
pub mod github;
mod growth;
#[cfg(unix)]
pub mod html;
pub mod human;
pub mod junit;
pub mod markdown;
pub mod merge;
#[cfg(unix)]
pub(crate) mod palette;
mod partition;
#[cfg(unix)]
pub mod perfetto;
#[cfg(unix)]
mod picture;
mod read;
mod refused;
#[cfg(test)]
pub(crate) mod sample;
#[cfg(unix)]
mod savings;
#[cfg(unix)]
pub mod svg;
mod types;
pub(crate) mod upgrade;
pub(crate) mod words;

pub(crate) use change::LET_BE;
pub use error_code::{ErrorCode, UnknownCode};
pub(crate) use growth::grows;
pub use growth::{ENOUGH_STEPS, Growing, Trend};
pub use partition::Partition;
#[cfg(unix)]
pub use picture::{Limit, Shown};
pub use read::{MOST_BYTES, ReadError};
pub use types::*;
