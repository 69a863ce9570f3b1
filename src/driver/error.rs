//! [`DriverError`]: why the virtual CUDA driver could not be built.

use std::path::PathBuf;

use miette::Diagnostic;
use thiserror::Error;

/// Why the virtual CUDA driver could not be built.
#[derive(Debug, Error, Diagnostic)]
pub enum DriverError {
    /// The compiler did not start or failed.
    #[error("cannot run the compiler `{}`", rustc.display())]
    #[diagnostic(
        code(driver::rustc),
        help("install Rust, or set RUSTC to the path of rustc: the project's own rustc compiles the virtual GPU")
    )]
    Rustc {
        /// The path of the compiler.
        rustc: PathBuf,
        /// Why it did not start, or its stderr.
        #[source]
        source: std::io::Error,
    },
    /// The target is not one of those that models run on: the virtual driver needs the dynamic loader of glibc.
    #[error("models cannot run on `{target}`")]
    #[diagnostic(
        code(driver::unsupported_host),
        help("use a machine or target with Linux, glibc and x86-64 or aarch64: the virtual GPU needs them")
    )]
    UnsupportedHost {
        /// The target triple.
        target: String,
    },
    /// The compiler could not compile the driver's source.
    #[error("the virtual GPU does not compile:\n{stderr}")]
    #[diagnostic(
        code(driver::compile),
        help("install Rust 1.92 or newer and a C linker; for another target, set CARGO_TARGET_<TRIPLE>_LINKER")
    )]
    Compile {
        /// The compiler's stderr.
        stderr: String,
    },
    /// A file or folder could not be read or written.
    #[error("cannot {action} `{}`", path.display())]
    #[diagnostic(
        code(driver::io),
        help("check that the target folder is writable and that the disk is not full")
    )]
    Io {
        /// What failed, as a verb: `create`.
        action: &'static str,
        /// The file or folder.
        path: PathBuf,
        /// The error of the operating system.
        #[source]
        source: std::io::Error,
    },
}
