//! Budgets for the GPU memory of Burn models.

pub mod bytes;
#[cfg(feature = "cli")]
pub mod budget;
#[cfg(feature = "cli")]
pub mod gpu;
#[cfg(feature = "cli")]
pub mod report;
