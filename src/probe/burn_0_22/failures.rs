//! Failures that Burn hands to whoever reads a tensor: here, the pass is over with the first of them.

use std::fmt::Display;

/// Ends the pass with a panic that says what failed. Burn 0.22 goes on after a failed launch, with tensors that were never made.
pub(super) fn note<T, E: Display>(result: Result<T, E>) {
    if let Err(error) = result {
        panic!("{error}");
    }
}
