//! What models link: declare models, and run one pass of one of them when told to.
//!
//! ```ignore
//! use burn::{nn::loss::CrossEntropyLossConfig, optim::AdamConfig, tensor::{Tensor, backend::AutodiffBackend}};
//! use cargo_vram::Run;
//!
//! cargo_vram::models!(resnet18);
//!
//! fn resnet18<B: AutodiffBackend>(run: &mut Run<B>) {
//!     let batch_size = run.batch_size(32);
//!     run.model(|device| ResNet::resnet18(1000, device))
//!         .batch(|device| (Tensor::zeros([batch_size, 3, 224, 224], device), Tensor::zeros([batch_size], device)))
//!         .loss(|model, (images, labels)| cross_entropy(model.forward(images), labels))
//!         .train(AdamConfig::new());
//! }
//! ```

#[cfg(feature = "burn-0_21")]
pub mod burn_0_21;
#[cfg(feature = "burn-0_22")]
pub mod burn_0_22;
mod clock;
mod entry;
mod events;
#[cfg(feature = "trace")]
mod numbers;
mod panics;
mod pass;
mod threads;
mod timeline;
#[cfg(feature = "trace")]
mod trace;

#[cfg(all(feature = "burn-0_21", feature = "explain"))]
pub use burn_0_21::{Observed, ObservedBackend};
pub use entry::{Declared, Entry, entry, main};
pub use pass::{Infer, Train};

/// Implements a backend trait of your own for [`Observed`](crate::probe::Observed), the backend that `cargo vram explain` runs
/// models on. Every other build leaves the items out.
///
/// ```
/// use burn::tensor::backend::Backend;
///
/// trait Scaled: Backend {
///     fn factor() -> f32 {
///         2.0
///     }
/// }
///
/// impl Scaled for burn::backend::Cuda {}
///
/// cargo_vram::explained! {
///     impl Scaled for cargo_vram::probe::Observed {}
/// }
/// ```
///
/// A trait with kernels of its own hands them on to `ObservedBackend` with `Observed::operation`, which also records them.
/// The trait has to be declared in the crate that implements it: a library does so with `cargo-vram` as an optional dependency.
#[cfg(feature = "explain")]
#[macro_export]
macro_rules! explained {
    ($($item:item)*) => { $($item)* };
}

/// Implements a backend trait of your own for `cargo_vram::probe::Observed`, the backend that `cargo vram explain` runs models
/// on. This build has no such backend, so it leaves the items out.
#[cfg(not(feature = "explain"))]
#[macro_export]
macro_rules! explained {
    ($($item:item)*) => {};
}

/// Declares the models of a benchmark target and its `main`.
///
/// Each is a function that takes `&mut Run<B>` for any `B: AutodiffBackend` (training) or
/// `&mut Run<B, Infer>` for any `B: Backend` (inference); its name is the model's name.
#[macro_export]
macro_rules! models {
    ($($model:path),+ $(,)?) => {
        fn main() -> ::std::process::ExitCode {
            $crate::probe::main(&[$($crate::probe::entry(::std::stringify!($model), $model)),+])
        }
    };
}
