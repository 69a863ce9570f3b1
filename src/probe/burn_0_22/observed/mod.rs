//! What an explanation needs to know of a model, told to the trace: its operations and who asked for each, which tensors have
//! memory when, and which of them are parameters and gradients.
//!
//! The model runs on the thread of fusion's server, so that an operation is reported within the call that asked for it, and its
//! stack says who that was. Where other threads of the program's ask for operations, too, that is not possible: an explanation
//! then has no lines.

mod between;
mod looks;
mod names;
mod operations;

use std::sync::{Arc, OnceLock};

use burn_fusion22::observer::FusionObservation;

pub(super) use looks::{look, reserved};
pub(super) use names::{name, name_gradients};
pub(super) use operations::is_own;

static OBSERVED: OnceLock<FusionObservation> = OnceLock::new();

/// Tells the trace of operations from now on. Called before the GPU's first one, on the program's own thread. `is_inside`: whether
/// the model will run on the thread of fusion's server.
pub(super) fn start(is_inside: bool) {
    looks::start();
    if is_inside {
        between::start();
    }
    let _ = OBSERVED.set(FusionObservation::new(Arc::new(operations::Operations)));
}
