//! The part of this library that models use: it declares models, and runs one pass of a model when `cargo vram` asks
//! for it.

#[cfg(feature = "burn-0_21")]
pub mod burn_0_21;
#[cfg(feature = "burn-0_22")]
pub mod burn_0_22;
mod clock;
mod entry;
#[cfg(all(feature = "train", any(feature = "burn-0_21", feature = "burn-0_22")))]
mod epochs;
mod events;
#[cfg(all(feature = "train", any(feature = "burn-0_21", feature = "burn-0_22")))]
mod idle;
#[cfg(all(feature = "train", any(feature = "burn-0_21", feature = "burn-0_22")))]
mod learner_log;
#[cfg(feature = "trace")]
mod numbers;
mod panics;
mod pass;
mod threads;
mod timeline;
#[cfg(feature = "trace")]
mod trace;
mod varying;

#[cfg(all(feature = "burn-0_21", feature = "explain"))]
pub use burn_0_21::{Observed, ObservedBackend};
#[doc(hidden)]
pub use entry::{Declared, ModelEntry, entry, main};
pub use pass::{Infer, Train};
pub use varying::VaryingInput;

/// Implements a backend trait of your own for [`Observed`](crate::probe::Observed), the backend on which
/// `cargo vram explain` runs models with Burn 0.21. All other builds leave the items out.
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
/// If the trait has kernels of its own, call `Observed::operation` for each: it runs the kernel on `ObservedBackend`
/// and records it. Use this macro in the crate that declares the trait. If that crate is a library, make `cargo-vram`
/// an optional dependency.
#[cfg(feature = "explain")]
#[macro_export]
macro_rules! explained {
    ($($item:item)*) => { $($item)* };
}

/// Implements a backend trait of your own for `cargo_vram::probe::Observed`, the backend on which `cargo vram explain`
/// runs models with Burn 0.21. This build does not have that backend, so it leaves the items out.
///
/// Write `cargo_vram::explained! { impl YourTrait for cargo_vram::probe::Observed {} }` in the crate that declares the
/// trait. If the trait has kernels of its own, call `Observed::operation` for each.
#[cfg(not(feature = "explain"))]
#[macro_export]
macro_rules! explained {
    ($($item:item)*) => {};
}

/// Declares the models of a benchmark target and writes its `main`.
///
/// Each argument is the path of a function. The function's name is the model's name: `models!(resnet18, nets::vgg16)`
/// declares `resnet18` and `vgg16`. The functions take:
///
/// | Burn | training | inference |
/// | --- | --- | --- |
/// | 0.21 | `&mut Run<B>` for any `B: AutodiffBackend` | `&mut Run<B, Infer>` for any `B: Backend` |
/// | 0.22 | `&mut burn_0_22::Run` | `&mut burn_0_22::Run<Infer>` |
///
/// The target needs `harness = false` in `Cargo.toml`, and all its models must use the same version of Burn. Unless
/// `cargo vram` starts it, `main` does nothing and succeeds. So `cargo test` and `cargo bench` see an empty test
/// binary.
#[macro_export]
macro_rules! models {
    ($($model:path),+ $(,)?) => {
        fn main() -> ::std::process::ExitCode {
            $crate::probe::main(::std::env!("CARGO_MANIFEST_DIR"), &[$($crate::probe::entry(::std::stringify!($model), $model)),+])
        }
    };
}
