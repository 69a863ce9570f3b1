//! Writes to the trace what an explanation needs: the model's operations and what asked for each, which tensors have
//! memory when, and which tensors are parameters and gradients.
//!
//! The model runs on the thread of fusion's server. An operation is then reported within the call that asked for it, so
//! the call stack shows the line. If other threads of the program ask for operations too, that is not possible, and the
//! explanation has no lines.

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

/// Writes operations to the trace from now on. Called on the program's own thread, before the GPU's first operation.
/// `is_inside`: whether the model will run on the thread of fusion's server.
pub(super) fn start(is_inside: bool) {
    looks::start();
    if is_inside {
        between::start();
    }
    let _ = OBSERVED.set(FusionObservation::new(Arc::new(operations::Operations)));
}
