//! Methods that need a Cargo feature which is off: a call of one is a compiler error that names the feature.
//!
//! Each asks for a trait that no type implements and that nobody outside can name, so none of them can ever be called.

use super::train::WithBatch;
use crate::probe::pass::Train;

/// Implemented by nothing.
#[diagnostic::on_unimplemented(
    message = "`.train_step(…)` needs the feature `train` of cargo-vram: run `cargo add --dev cargo-vram --features train`",
    label = "the feature `train` of cargo-vram is off",
    note = "or write it into Cargo.toml, beside the feature for Burn: features = [\"burn-0_22\", \"train\"]"
)]
pub trait TrainFeature {}

impl<M, X> WithBatch<'_, Train, M, X> {
    /// Needs the feature `train`.
    #[doc(hidden)]
    pub fn train_step<O: TrainFeature>(self, optimizer: O) {
        let _ = (self, optimizer);
    }
}
