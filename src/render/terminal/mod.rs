//! Renders reports, differences, explanations and fits for a terminal.

pub mod diff;
pub mod explanation;
pub mod fit;
pub mod report;
mod text;
