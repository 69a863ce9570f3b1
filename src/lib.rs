//! Budgets for the GPU memory of [Burn](https://burn.dev) models.
//!
//! A benchmark target links this library to declare its models. The command `cargo vram` builds that target, runs the
//! models and compares their memory with the limits in `budgets.yaml`.
//!
//! `cargo vram init` writes a first benchmark target. To write one by hand:
//!
//! 1. Add this crate to `Cargo.toml`, with the feature for your version of Burn (`burn-0_21` or `burn-0_22`) and
//!    without the default feature `cli`:
//!
//!    ```toml
//!    [dev-dependencies]
//!    cargo-vram = { version = "0.1", default-features = false, features = ["burn-0_21"] }
//!
//!    [[bench]]
//!    name = "vram"
//!    harness = false
//!    ```
//!
//! 2. Write one function per model in `benches/vram.rs`. It gets a `Run`, which knows the inputs of the run, such as
//!    the batch size, and runs the steps.
//! 3. Declare the functions with `cargo_vram::models!`, which also writes the `main` of the target.
//!
//! The command finds benchmark targets with the name `vram`. For another name or another kind of target, write
//! `[package.metadata.vram] targets = ["my-bench"]`.
//!
//! # Example
//!
#![doc = include_str!("lib.md")]
//!
//! # What models use
//!
//! | item | use |
//! | --- | --- |
//! | `models!` | declares the models and writes `main` |
//! | `Run` | a run of a model: its inputs, its GPUs and its steps; with Burn 0.22, `burn_0_22::Run` |
//! | `Infer` | the kind of a `Run` without autodiff: `Run<B, Infer>`, or `Run<Infer>` with Burn 0.22 |
//! | `burn_0_21::Training` | a training of several epochs that your own code runs: `run.epochs(3).train(…)` |
//! | `burn_0_21::TrainingInputs` | the same for code that makes its own data loaders: `train_with_own_loaders` |
//! | `Phase` | a phase of a step, which a loop of your own marks with `Step::phase` |
//! | `explained!`, `probe::Observed` | let `cargo vram explain` run models with their own backend trait (Burn 0.21) |
//!
//! Models also use the types that these items return. All other public items are for the macros or for the command line
//! tool, and can change in every release.
//!
//! # Features
//!
//! | feature | use |
//! | --- | --- |
//! | `burn-0_21`, `burn-0_22` | the adapter for a version of Burn |
//! | `train` | `.train_step(...)`, for models that implement Burn's `TrainStep`, and `run.epochs(...)`, for whole trainings; Burn needs its own feature `train` |
//! | `distributed` | `.ddp(...)`, distributed data parallel training over several GPUs (Burn 0.21) |
//! | `cli` | the command line tool, without any version of Burn (default) |
//!
//! The command enables the other features itself when it needs them.
//!
//! The documentation on docs.rs is for Burn 0.21. Burn 0.22 compiles kernels with LLVM, which docs.rs does not have.

// The documentation hides the modules of the tool. Only rustdoc sees `doc(hidden)`: in rustc, it would switch the lint
// `missing_docs` off for these modules.

#[cfg(all(feature = "cli", unix))]
#[cfg_attr(doc, doc(hidden))]
pub mod archive;
#[cfg(feature = "cli")]
#[cfg_attr(doc, doc(hidden))]
pub mod baseline;
#[cfg(feature = "cli")]
#[cfg_attr(doc, doc(hidden))]
pub mod budget;
#[cfg_attr(doc, doc(hidden))]
pub mod bytes;
#[cfg(all(feature = "cli", unix))]
#[cfg_attr(doc, doc(hidden))]
pub mod cli;
#[cfg(feature = "cli")]
#[cfg_attr(doc, doc(hidden))]
pub mod driver;
#[cfg(all(feature = "cli", unix))]
#[cfg_attr(doc, doc(hidden))]
pub mod explain;
#[cfg(all(feature = "cli", unix))]
#[cfg_attr(doc, doc(hidden))]
pub mod fit;
#[cfg(feature = "cli")]
mod folders;
#[cfg(feature = "cli")]
#[cfg_attr(doc, doc(hidden))]
pub mod github;
#[cfg(feature = "cli")]
#[cfg_attr(doc, doc(hidden))]
pub mod gpu;
#[cfg(all(feature = "cli", unix))]
#[cfg_attr(doc, doc(hidden))]
pub mod growth;
#[cfg(feature = "cli")]
mod names;
#[cfg(any(feature = "burn-0_21", feature = "burn-0_22"))]
pub mod probe;
#[cfg_attr(doc, doc(hidden))]
pub mod protocol;
#[cfg(feature = "cli")]
#[cfg_attr(doc, doc(hidden))]
pub mod recording;
#[cfg(all(feature = "cli", unix))]
#[cfg_attr(doc, doc(hidden))]
pub mod render;
#[cfg(feature = "cli")]
#[cfg_attr(doc, doc(hidden))]
pub mod report;
#[cfg(all(feature = "cli", unix))]
#[cfg_attr(doc, doc(hidden))]
pub mod run;
#[cfg(feature = "cli")]
mod untrusted;
#[cfg(all(feature = "cli", unix))]
#[cfg_attr(doc, doc(hidden))]
pub mod workspace;

#[cfg(feature = "burn-0_21")]
#[doc(inline)]
pub use probe::burn_0_21::{self, Run, Step, Steps};
#[cfg(feature = "burn-0_22")]
#[doc(inline)]
pub use probe::burn_0_22;
#[cfg(any(feature = "burn-0_21", feature = "burn-0_22"))]
#[doc(inline)]
pub use probe::{Infer, Train};
#[cfg(any(feature = "burn-0_21", feature = "burn-0_22"))]
#[doc(inline)]
pub use protocol::Phase;
