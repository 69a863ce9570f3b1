//! Where a model's memory goes: layers, categories, phases, tensors, lines, leaks and savings, from a trace.

mod check;
#[cfg(test)]
pub(crate) mod sample;
mod types;

pub use check::{MOST_BYTES, Unsound};
pub use types::*;
