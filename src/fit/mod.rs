//! What fits: the largest input with which a model runs on a GPU, and by how much the model fits or does not.

mod advise;
mod search;
mod types;

pub use advise::{Attempt, Possible, next, shortest};
pub use search::{Range, TriedValue};
pub use types::{FIT_VERSION, FitAnswer, GpuFit, Probe, SearchEnd};
