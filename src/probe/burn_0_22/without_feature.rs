//! Stand-ins for methods whose Cargo feature is off. A call of one is a compiler error that names the feature.
//!
//! Each requires a trait that no type implements and that no other crate can name, so no call of it compiles.

use super::train::WithBatch;
use crate::probe::pass::Train;

/// A trait that no type implements.
#[diagnostic::on_unimplemented(
    message = "`.train_step(…)` needs the feature `train` of cargo-vram: run `cargo add --dev cargo-vram --features train`",
    label = "the feature `train` of cargo-vram is off",
    note = "or add it in Cargo.toml, next to the feature for Burn: features = [\"burn-0_22\", \"train\"]"
)]
pub trait TrainFeature {}

/// A trait that no type implements.
#[diagnostic::on_unimplemented(
    message = "`run.epochs(…)` needs the feature `train` of cargo-vram: run `cargo add --dev cargo-vram --features train`",
    label = "the feature `train` of cargo-vram is off",
    note = "or add it in Cargo.toml, next to the feature for Burn: features = [\"burn-0_22\", \"train\"]"
)]
pub trait EpochsFeature {}

impl super::run::Run<Train> {
    /// Needs the feature `train`.
    #[doc(hidden)]
    pub fn epochs<N: EpochsFeature>(&mut self, default: N) {
        let _ = default;
    }
}

impl<M, X> WithBatch<'_, Train, M, X> {
    /// Needs the feature `train`.
    #[doc(hidden)]
    pub fn train_step<O: TrainFeature>(self, optimizer: O) {
        let _ = (self, optimizer);
    }
}
