//! What the ready-made loops take as an optimizer: Burn's optimizer configs, and optimizers themselves.

use burn21::module::AutodiffModule;
use burn21::optim::adaptor::OptimizerAdaptor;
use burn21::optim::{
    AdaGrad, AdaGradConfig, Adam, AdamConfig, AdamW, AdamWConfig, Adan, AdanConfig, Muon, MuonConfig, Optimizer,
    RmsProp, RmsPropConfig, Sgd, SgdConfig,
};
use burn21::tensor::backend::AutodiffBackend;

/// A value that becomes an optimizer: an optimizer of Burn, or one of Burn's optimizer configs.
///
/// The optimizer is for modules of the type `M`. The compiler infers `Marker`, which keeps the two kinds of
/// implementations apart.
pub trait IntoOptimizer<B: AutodiffBackend, M: AutodiffModule<B>, Marker> {
    /// The type of the optimizer.
    type Optimizer: Optimizer<M, B>;

    /// Makes the optimizer.
    fn into_optimizer(self) -> Self::Optimizer;
}

/// Marks values that are optimizers already.
#[doc(hidden)]
#[derive(Debug)]
pub enum Ready {}

impl<B: AutodiffBackend, M: AutodiffModule<B>, O: Optimizer<M, B>> IntoOptimizer<B, M, Ready> for O {
    type Optimizer = O;

    fn into_optimizer(self) -> O {
        self
    }
}

/// Marks Burn's optimizer configs.
#[doc(hidden)]
#[derive(Debug)]
pub enum ConfigMarker {}

macro_rules! config {
    ($($config:ty => $optimizer:ty),+ $(,)?) => {$(
        impl<B: AutodiffBackend, M: AutodiffModule<B>> IntoOptimizer<B, M, ConfigMarker> for $config {
            type Optimizer = OptimizerAdaptor<$optimizer, M, B>;

            fn into_optimizer(self) -> Self::Optimizer {
                self.init()
            }
        }
    )+};
}

config! {
    AdaGradConfig => AdaGrad,
    AdamConfig => Adam,
    AdamWConfig => AdamW,
    AdanConfig => Adan,
    MuonConfig => Muon<B::InnerBackend>,
    RmsPropConfig => RmsProp,
    SgdConfig => Sgd<B::InnerBackend>,
}
