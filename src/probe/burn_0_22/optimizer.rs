//! Anything that makes an optimizer: Burn's configs, and optimizers themselves.

use burn22::optim::{
    AdaGradConfig, AdafactorConfig, AdamConfig, AdamWConfig, AdanConfig, LambConfig, LionConfig, ModuleOptimizer,
    MuonConfig, RmsPropConfig, SgdConfig,
};

/// Something that becomes an optimizer.
pub trait IntoOptimizer {
    /// Becomes it.
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
