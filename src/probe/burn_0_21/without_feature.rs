//! Stand-ins for methods whose Cargo feature is off. A call of one is a compiler error that names the feature.
//!
//! Each requires a trait that no type implements and that no other crate can name, so no call of it compiles.

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

/// A trait that no type implements.
#[cfg(not(feature = "train"))]
#[diagnostic::on_unimplemented(
    message = "`.train_step(…)` needs the feature `train` of cargo-vram: run `cargo add --dev cargo-vram --features train`",
    label = "the feature `train` of cargo-vram is off",
    note = "or add it in Cargo.toml, next to the feature for Burn: features = [\"burn-0_21\", \"train\"]"
)]
pub trait TrainFeature {}

/// A trait that no type implements.
#[cfg(not(feature = "train"))]
#[diagnostic::on_unimplemented(
    message = "`run.epochs(…)` needs the feature `train` of cargo-vram: run `cargo add --dev cargo-vram --features train`",
    label = "the feature `train` of cargo-vram is off",
    note = "or add it in Cargo.toml, next to the feature for Burn: features = [\"burn-0_21\", \"train\"]"
)]
pub trait EpochsFeature {}

/// A trait that no type implements.
#[cfg(not(feature = "distributed"))]
#[diagnostic::on_unimplemented(
    message = "`.ddp(…)` needs the feature `distributed` of cargo-vram: run `cargo add --dev cargo-vram --features distributed`",
    label = "the feature `distributed` of cargo-vram is off",
    note = "or add it in Cargo.toml, next to the feature for Burn: features = [\"burn-0_21\", \"distributed\"]"
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

#[cfg(not(feature = "train"))]
impl<B: AutodiffBackend> super::run::Run<B, Train> {
    /// Needs the feature `train`.
    #[doc(hidden)]
    pub fn epochs<N: EpochsFeature>(&mut self, default: N) {
        let _ = default;
    }
}

#[cfg(not(feature = "distributed"))]
impl<B: AutodiffBackend, M: AutodiffModule<B>, X, F: Fn(&M, X) -> Tensor<B, 1>> WithLoss<'_, B, M, X, F> {
    /// Needs the feature `distributed`. The compiler checks the calls after this one as if the feature were on.
    #[doc(hidden)]
    #[must_use]
    pub fn ddp<C: DistributedFeature>(self, gpus: Vec<B::Device>, config: C) -> Self {
        let _ = (gpus, config);
        self
    }
}
