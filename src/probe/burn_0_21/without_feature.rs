//! Methods that need a Cargo feature which is off: a call of one is a compiler error that names the feature.
//!
//! Each asks for a trait that no type implements and that nobody outside can name, so none of them can ever be called.

use burn21::module::AutodiffModule;
#[cfg(not(feature = "distributed"))]
use burn21::tensor::Tensor;
use burn21::tensor::backend::AutodiffBackend;

#[cfg(not(feature = "train"))]
use super::train::WithBatch;
#[cfg(not(feature = "distributed"))]
use super::train::WithLoss;
#[cfg(not(feature = "train"))]
use crate::probe::pass::Train;

/// Implemented by nothing.
#[cfg(not(feature = "train"))]
#[diagnostic::on_unimplemented(
    message = "`.train_step(…)` needs the feature `train` of cargo-vram: run `cargo add --dev cargo-vram --features train`",
    label = "the feature `train` of cargo-vram is off",
    note = "or write it into Cargo.toml, beside the feature for Burn: features = [\"burn-0_21\", \"train\"]"
)]
pub trait TrainFeature {}

/// Implemented by nothing.
#[cfg(not(feature = "distributed"))]
#[diagnostic::on_unimplemented(
    message = "`.ddp(…)` needs the feature `distributed` of cargo-vram: run `cargo add --dev cargo-vram --features distributed`",
    label = "the feature `distributed` of cargo-vram is off",
    note = "or write it into Cargo.toml, beside the feature for Burn: features = [\"burn-0_21\", \"distributed\"]"
)]
pub trait DistributedFeature {}

#[cfg(not(feature = "train"))]
impl<B: AutodiffBackend, M: AutodiffModule<B>, X> WithBatch<'_, B, Train, M, X> {
    /// Needs the feature `train`.
    #[doc(hidden)]
    pub fn train_step<O: TrainFeature>(self, optimizer: O) {
        let _ = (self, optimizer);
    }
}

#[cfg(not(feature = "distributed"))]
impl<B: AutodiffBackend, M: AutodiffModule<B>, X, F: Fn(&M, X) -> Tensor<B, 1>> WithLoss<'_, B, M, X, F> {
    /// Needs the feature `distributed`. What follows the call is checked as if it were on.
    #[doc(hidden)]
    #[must_use]
    pub fn ddp<C: DistributedFeature>(self, gpus: Vec<B::Device>, config: C) -> Self {
        let _ = (gpus, config);
        self
    }
}
