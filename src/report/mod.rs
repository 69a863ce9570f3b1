//! The versioned report: one JSON document that every output is drawn from.

pub mod human;
mod types;

pub use types::*;
