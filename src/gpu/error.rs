//! [`GpuError`]: what is wrong with a GPU profile or its id.

use miette::Diagnostic;
use thiserror::Error;

use crate::bytes::Bytes;

/// What is wrong with a GPU profile or with the id of one.
#[derive(Debug, Clone, PartialEq, Eq, Error, Diagnostic)]
pub enum GpuError {
    /// No GPU profile has this id.
    #[error("there is no GPU profile `{id}`")]
    #[diagnostic(code(gpu::unknown))]
    Unknown {
        /// The unknown id.
        id: String,
        /// Suggests the nearest id, or says how to list all.
        #[help]
        help: String,
    },
    /// Another GPU profile has this id.
    #[error("a GPU profile `{id}` already exists")]
    #[diagnostic(
        code(gpu::duplicate),
        help("choose another id; write `like: {id}` to start from the values of that GPU")
    )]
    Duplicate {
        /// The id.
        id: String,
    },
    /// The id is not safe on every command line and in every file name.
    #[error("`{id}` is not a valid id of a GPU profile")]
    #[diagnostic(
        code(gpu::id),
        help("use 1 to 32 of a-z, 0-9 and `-`, with at least one letter and no `-` at either end: `lab-gpu`")
    )]
    Id {
        /// The invalid id.
        id: String,
    },
    /// The built-in data has no limits for this compute capability.
    #[error("compute capability {major}.{minor} is unknown")]
    #[diagnostic(code(gpu::compute_capability), help("use one of {known}"))]
    ComputeCapability {
        /// The major version.
        major: u32,
        /// The minor version.
        minor: u32,
        /// The known compute capabilities, separated by commas.
        known: String,
    },
    /// A value is one that no GPU can have.
    #[error("`{key}` of GPU profile `{id}` is {given}, expected {expected}")]
    #[diagnostic(code(gpu::figure))]
    Figure {
        /// The GPU's id.
        id: String,
        /// The key in `budgets.yaml`.
        key: &'static str,
        /// The given value.
        given: String,
        /// The possible values.
        expected: String,
    },
    /// The CUDA context and the loaded kernels fill the GPU's memory.
    #[error(
        "GPU profile `{id}` has no memory for a model: of {total}, the CUDA context and loaded kernels take {taken}"
    )]
    #[diagnostic(code(gpu::too_small))]
    TooSmall {
        /// The GPU's id.
        id: String,
        /// Its total memory.
        total: Bytes,
        /// The memory of the context and the loaded kernels.
        taken: Bytes,
    },
    /// The built-in data is wrong. This is a bug in this program, not a mistake of the user.
    #[error("the built-in GPU profiles are invalid: {0}")]
    #[diagnostic(code(gpu::built_in))]
    BuiltIn(String),
}
