//! Why the driver cannot be had.

use std::path::PathBuf;

use miette::Diagnostic;
use thiserror::Error;

/// Why the virtual CUDA driver could not be built.
#[derive(Debug, Error, Diagnostic)]
pub enum DriverError {
    /// The compiler did not start, or did not say what it is.
    #[error("`{}` did not say its version", rustc.display())]
    #[diagnostic(
        code(driver::rustc),
        help("the virtual GPU is compiled by the project's own rustc: install it, or set RUSTC")
    )]
    Rustc {
        /// The compiler.
        rustc: PathBuf,
        /// What went wrong.
        #[source]
        source: std::io::Error,
    },
    /// The virtual driver needs the dynamic loader of glibc.
    #[error("models cannot run on `{target}`")]
    #[diagnostic(
        code(driver::unsupported_host),
        help("the virtual GPU runs on Linux with glibc, x86-64 or aarch64")
    )]
    UnsupportedHost {
        /// The target that was asked for.
        target: String,
    },
    /// The compiler refused the driver's source.
    #[error("the virtual GPU does not compile:\n{stderr}")]
    #[diagnostic(
        code(driver::compile),
        help("it needs Rust 1.92 and a C linker; for another target, set CARGO_TARGET_<TRIPLE>_LINKER")
    )]
    Compile {
        /// What the compiler said.
        stderr: String,
    },
    /// A file or folder could not be read or written.
    #[error("cannot {action} `{}`", path.display())]
    #[diagnostic(code(driver::io), help("is the target folder writable, and the disk not full?"))]
    Io {
        /// What was tried.
        action: &'static str,
        /// On what.
        path: PathBuf,
        /// What went wrong.
        #[source]
        source: std::io::Error,
    },
}
