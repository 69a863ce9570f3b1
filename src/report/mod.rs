//! The versioned report: one JSON document that every output is drawn from.

#[cfg(unix)]
pub mod explain;
mod growth;
pub mod human;
#[cfg(test)]
pub(crate) mod sample;
mod types;
pub(crate) mod words;

pub use growth::Growing;
pub use types::*;
