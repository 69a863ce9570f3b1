//! Finds, builds and lists the models that a Cargo workspace declares.

mod build;
mod declared;
mod deployed;
mod locked;
mod select;

pub use build::{BuildOptions, Building, Built, build};
pub use declared::{DeclaredTarget, declared_targets};
pub use deployed::{DeployedBinary, deployed_binaries};
pub use locked::changed_dependencies;
pub use select::{Selection, Workspace};

use miette::Diagnostic;
use thiserror::Error;

/// Why a whole command cannot go on.
#[derive(Debug, Error, Diagnostic)]
pub enum WorkspaceError {
    /// `cargo metadata` failed: its own words say why.
    #[error("cargo could not read this workspace\n{0}")]
    #[diagnostic(
        code(workspace::metadata),
        help("run the command in a Cargo workspace, or name one with --manifest-path")
    )]
    Metadata(String),
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
