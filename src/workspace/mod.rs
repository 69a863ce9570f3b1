//! Finds, builds and lists the models that a Cargo workspace declares.

mod build;
mod declared;
mod deployed;
mod kernels;
mod locked;
mod metadata;
mod refusal;
mod select;
mod tree;

pub use build::{BuildOptions, Building, Built, build};
pub(crate) use build::{CHECKPOINTING, EXPLAIN, NO_FUSION, WHAT_IF};
pub use declared::{DeclaredTarget, KernelCompiler, declared_targets};
pub(crate) use declared::{adapter_feature, supported_burn, supported_by, supports_burn};
pub use deployed::{DeployedBinary, deployed_binaries};
pub use locked::changed_dependencies;
pub(crate) use locked::update_of_prereleases;
pub use select::{Selection, Workspace, rustc};
pub(crate) use tree::{BuiltFeatures, built_features, workspace_root};
pub use tree::{Recompiled, recompiled};

use miette::Diagnostic;
use thiserror::Error;

/// A problem with the workspace that stops the whole command.
#[derive(Debug, Error, Diagnostic)]
pub enum WorkspaceError {
    /// Cargo failed. The message quotes Cargo, and the help fits Cargo's error.
    #[error("Cargo could not read this workspace\n{said}")]
    #[diagnostic(code(workspace::metadata))]
    Metadata {
        /// Cargo's error message.
        said: String,
        /// What to do about it.
        #[help]
        help: String,
        /// Whether the command may succeed with network access.
        may_need_network: bool,
    },
    /// The workspace does not contain a selected package.
    #[error("no package `{0}` in this workspace")]
    #[diagnostic(code(workspace::unknown_package))]
    UnknownPackage(String, #[help] Option<String>),
    /// No selected package declares models.
    #[error("no model is declared in {0}")]
    #[diagnostic(
        code(workspace::no_models),
        help("run `cargo vram init`: it writes benches/vram.rs, the Cargo.toml entries and a first budgets.yaml")
    )]
    NoModels(String),
    /// Cargo or the compiler could not be started.
    #[error("cannot start `{program}`")]
    #[diagnostic(
        code(workspace::program),
        help(
            "install Rust (rustup), add its programs to PATH, and check that CARGO and RUSTC name existing programs \
             if they are set"
        )
    )]
    Program {
        /// The name of the program.
        program: String,
        /// The cause.
        source: std::io::Error,
    },
}
