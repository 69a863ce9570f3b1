//! Finds, builds and lists the models that a Cargo workspace declares.

mod build;
mod declared;
mod deployed;
mod kernels;
mod locked;
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
pub use select::{Selection, Workspace};
pub(crate) use tree::{BuiltFeatures, built_features, workspace_root};
pub use tree::{Recompiled, recompiled};

use miette::Diagnostic;
use thiserror::Error;

/// Why a whole command cannot go on.
#[derive(Debug, Error, Diagnostic)]
pub enum WorkspaceError {
    /// Cargo refused: it is quoted, and the help is for what it refused.
    #[error("Cargo could not read this workspace\n{said}")]
    #[diagnostic(code(workspace::metadata))]
    Metadata {
        /// Cargo's own words.
        said: String,
        /// What to do about it.
        #[help]
        help: String,
        /// Whether another try with the network can succeed.
        may_need_network: bool,
    },
    /// A package was named that is not in the workspace.
    #[error("no package `{0}` in this workspace")]
    #[diagnostic(code(workspace::unknown_package))]
    UnknownPackage(String, #[help] Option<String>),
    /// No package declares models.
    #[error("no model is declared in {0}")]
    #[diagnostic(
        code(workspace::no_models),
        help("`cargo vram init` writes benches/vram.rs, the Cargo.toml entries and a first budgets.yaml")
    )]
    NoModels(String),
    /// Cargo or the compiler could not be started.
    #[error("`{program}` could not be started")]
    #[diagnostic(
        code(workspace::program),
        help(
            "install Rust (rustup), put its programs on PATH, and see whether CARGO and RUSTC name programs that are there"
        )
    )]
    Program {
        /// What was to be started.
        program: String,
        /// Why it was not.
        source: std::io::Error,
    },
}
