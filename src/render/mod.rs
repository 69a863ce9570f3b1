//! Renders reports, differences and explanations.
//!
//! Each output format has its own module. These modules read only the data types, not the code that produced the data.

mod commands;
pub(crate) mod diff;
pub mod github;
pub mod html;
pub mod junit;
pub mod markdown;
pub(crate) mod palette;
pub mod perfetto;
mod picture;
mod refused;
mod savings;
mod sequences;
pub mod svg;
pub mod terminal;

pub use picture::{DrawnLimit, ShownExplanation};
