//! Why `cargo vram init` writes nothing.

use camino::Utf8PathBuf;
use miette::Diagnostic;
use thiserror::Error;

use crate::cli::error::ExitCoded;
use crate::cli::exit::Exit;

#[derive(Debug, Error, Diagnostic)]
pub(super) enum InitError {
    #[error("several packages are selected: {0}")]
    #[diagnostic(code(init::several), help("select one with `-p PACKAGE`"))]
    Several(String),
    #[error("{0} already exists")]
    #[diagnostic(
        code(init::exists),
        help("nothing was written; edit the file by hand, or move it away first")
    )]
    Exists(Utf8PathBuf),
    #[error("{0} already has {1}")]
    #[diagnostic(code(init::exists), help("nothing was written; edit the file by hand"))]
    Declared(Utf8PathBuf, &'static str),
    #[error("{package} has only a binary, which a benchmark cannot link")]
    #[diagnostic(code(init::binary_only))]
    BinaryOnly {
        package: String,
        #[help]
        ways: String,
    },
    #[error("the library of {package} is a {kind}, which a benchmark cannot link")]
    #[diagnostic(
        code(init::unlinkable),
        help(
            "let Cargo also build it as a Rust library: add `\"rlib\"` to `crate-type` in [lib]; for a proc-macro, \
             move the models to a separate package"
        )
    )]
    Unlinkable { package: String, kind: String },
    #[error("cannot write {path}")]
    #[diagnostic(
        code(init::unwritable),
        help(
            "nothing was written; check whether something else has this name, and whether you may write to the folder"
        )
    )]
    Unwritable { path: Utf8PathBuf, source: std::io::Error },
    #[error("cannot read {path}")]
    #[diagnostic(code(init::unreadable))]
    Unreadable { path: Utf8PathBuf, source: std::io::Error },
    #[error("{path} is not valid TOML")]
    #[diagnostic(code(init::not_toml))]
    NotToml {
        path: Utf8PathBuf,
        source: toml_edit::TomlError,
    },
    #[error("{0} does not depend on burn")]
    #[diagnostic(
        code(init::no_burn),
        help("run `cargo add burn@0.21 --features cuda,fusion,autotune,autodiff`")
    )]
    NoBurn(String),
    #[error("{package} uses Burn {burn}, which this version of cargo-vram does not support")]
    #[diagnostic(code(init::unsupported_burn))]
    UnsupportedBurn {
        package: String,
        burn: String,
        #[help]
        supported: String,
    },
    #[error("Cargo.lock pins Burn {burn}, a pre-release, which this version of cargo-vram does not support")]
    #[diagnostic(code(init::locked_prerelease))]
    LockedPrerelease {
        burn: String,
        #[help]
        command: String,
    },
    #[error("cannot find the source of the crate cargo-vram")]
    #[diagnostic(
        code(init::no_source),
        help(
            "nothing was written; the folder that this tool was built from is gone, and the tool names no repository: \
             check out the source of cargo-vram {version} and pass its folder with --path",
            version = env!("CARGO_PKG_VERSION")
        )
    )]
    NoSource,
    #[error("Cargo cannot resolve {package} with cargo-vram; all changes were undone\n{said}")]
    #[diagnostic(code(init::unresolved))]
    Unresolved {
        package: String,
        said: String,
        #[help]
        help: String,
    },
    #[error("cargo-vram cannot be used in {package}; all changes were undone\n{said}")]
    #[diagnostic(code(init::unusable))]
    Unusable {
        package: String,
        said: String,
        #[help]
        help: Option<String>,
    },
}

impl ExitCoded for InitError {
    fn exit(&self) -> Exit {
        match self {
            Self::Unwritable { .. } => Exit::Incomplete,
            Self::Several(..)
            | Self::Exists(..)
            | Self::Declared(..)
            | Self::BinaryOnly { .. }
            | Self::Unlinkable { .. }
            | Self::Unreadable { .. }
            | Self::NotToml { .. }
            | Self::NoBurn(..)
            | Self::UnsupportedBurn { .. }
            | Self::LockedPrerelease { .. }
            | Self::NoSource
            | Self::Unresolved { .. }
            | Self::Unusable { .. } => Exit::Unusable,
        }
    }
}
