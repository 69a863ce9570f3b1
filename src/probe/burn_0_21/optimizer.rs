//! Anything that makes an optimizer: Burn's configs, and optimizers themselves.

use burn21::module::AutodiffModule;
use burn21::optim::adaptor::OptimizerAdaptor;
use burn21::optim::{
    AdaGrad, AdaGradConfig, Adam, AdamConfig, AdamW, AdamWConfig, Adan, AdanConfig, Muon, MuonConfig, Optimizer,
    RmsProp, RmsPropConfig, Sgd, SgdConfig,
};
use burn21::tensor::backend::AutodiffBackend;

/// Something that becomes an optimizer for modules `M`. `Marker` keeps the implementations apart.
pub trait IntoOptimizer<B: AutodiffBackend, M: AutodiffModule<B>, Marker> {
    /// The optimizer it becomes.
    type Optimizer: Optimizer<M, B>;

    /// Becomes it.
    fn into_optimizer(self) -> Self::Optimizer;
}

/// Marks an optimizer that already is one.
#[derive(Debug)]
pub enum Ready {}

impl<B: AutodiffBackend, M: AutodiffModule<B>, O: Optimizer<M, B>> IntoOptimizer<B, M, Ready> for O {
    type Optimizer = O;

    fn into_optimizer(self) -> O {
        self
    }
}

/// Marks a config.
#[derive(Debug)]
pub enum Config {}

macro_rules! config {
    ($($config:ty => $optimizer:ty),+ $(,)?) => {$(
        impl<B: AutodiffBackend, M: AutodiffModule<B>> IntoOptimizer<B, M, Config> for $config {
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
