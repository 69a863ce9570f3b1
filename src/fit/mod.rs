//! Will it fit: the largest input with which a model runs on a card, and by how much it fits or does not.

mod advise;
mod search;
mod types;

pub use advise::{Attempt, Possible, next, shortest};
pub use search::{Range, Tried};
pub use types::{CardFit, Ended, FIT_VERSION, Fit, Probe};
