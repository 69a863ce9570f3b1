//! The versioned report: one JSON document that every output is drawn from.

mod types;

pub use types::*;
