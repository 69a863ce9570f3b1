//! Budgets for the GPU memory of Burn models.

#[cfg(all(feature = "cli", unix))]
pub mod archive;
#[cfg(feature = "cli")]
pub mod budget;
pub mod bytes;
#[cfg(all(feature = "cli", unix))]
pub mod cli;
#[cfg(feature = "cli")]
pub mod driver;
#[cfg(all(feature = "cli", unix))]
pub mod explain;
#[cfg(all(feature = "cli", unix))]
pub mod fit;
#[cfg(feature = "cli")]
mod folders;
#[cfg(feature = "cli")]
pub mod github;
#[cfg(feature = "cli")]
pub mod gpu;
#[cfg(feature = "cli")]
mod names;
#[cfg(any(feature = "burn-0_21", feature = "burn-0_22"))]
pub mod probe;
pub mod protocol;
#[cfg(feature = "cli")]
pub mod recording;
#[cfg(feature = "cli")]
pub mod report;
#[cfg(all(feature = "cli", unix))]
pub mod run;
#[cfg(all(feature = "cli", unix))]
pub mod workspace;

#[cfg(feature = "burn-0_21")]
pub use probe::burn_0_21::{self, Run, Step, Steps};
#[cfg(feature = "burn-0_22")]
pub use probe::burn_0_22;
#[cfg(any(feature = "burn-0_21", feature = "burn-0_22"))]
pub use probe::{Infer, Train};
#[cfg(any(feature = "burn-0_21", feature = "burn-0_22"))]
pub use protocol::Phase;
