//! Where a model's memory goes: layers, categories, phases, tensors, lines, leaks and savings, from a trace.

mod types;

pub use types::*;
