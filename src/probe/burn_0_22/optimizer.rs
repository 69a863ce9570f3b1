//! What the ready-made loops take as an optimizer: Burn's optimizer configs, and optimizers themselves.

use burn22::optim::{
    AdaGradConfig, AdafactorConfig, AdamConfig, AdamWConfig, AdanConfig, LambConfig, LionConfig, ModuleOptimizer,
    MuonConfig, RmsPropConfig, SgdConfig,
};

/// A value that becomes an optimizer: an optimizer of Burn, or one of Burn's optimizer configs.
pub trait IntoOptimizer {
    /// Makes the optimizer.
    fn into_optimizer(self) -> ModuleOptimizer;
}

impl IntoOptimizer for ModuleOptimizer {
    fn into_optimizer(self) -> ModuleOptimizer {
        self
    }
}

macro_rules! config {
    ($($config:ty),+ $(,)?) => {$(
        impl IntoOptimizer for $config {
            fn into_optimizer(self) -> ModuleOptimizer {
                self.init()
            }
        }
    )+};
}

config!(
    AdaGradConfig,
    AdafactorConfig,
    AdamConfig,
    AdamWConfig,
    AdanConfig,
    LambConfig,
    LionConfig,
    MuonConfig,
    RmsPropConfig,
    SgdConfig,
);
