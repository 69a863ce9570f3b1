//! What can be wrong with a GPU profile.

use miette::Diagnostic;
use thiserror::Error;

use crate::bytes::Bytes;

/// What can be wrong with a GPU profile or with the name of one.
#[derive(Debug, Clone, PartialEq, Eq, Error, Diagnostic)]
pub enum GpuError {
    /// No card has this id.
    #[error("there is no GPU profile `{id}`")]
    #[diagnostic(code(gpu::unknown))]
    Unknown {
        /// The id that was asked for.
        id: String,
        /// The nearest id, or where the list is.
        #[help]
        help: String,
    },
    /// A card of that id exists.
    #[error("a GPU profile `{id}` exists already")]
    #[diagnostic(
        code(gpu::duplicate),
        help("choose another name, and say `like: {id}` to start from that card")
    )]
    Duplicate {
        /// The id that was to be added.
        id: String,
    },
    /// An id that cannot stand on a command line and in a file name everywhere.
    #[error("`{id}` cannot name a GPU profile")]
    #[diagnostic(
        code(gpu::id),
        help("use 1 to 32 of a-z, 0-9 and `-`, with no `-` at either end: `lab-card`")
    )]
    Id {
        /// The id that was to be added.
        id: String,
    },
    /// A compute capability whose limits are not in the data.
    #[error("compute capability {major}.{minor} is not known")]
    #[diagnostic(code(gpu::compute_capability), help("known are {known}"))]
    ComputeCapability {
        /// The number before the point.
        major: u32,
        /// The number after the point.
        minor: u32,
        /// The known ones, in words.
        known: String,
    },
    /// A figure that no card can have.
    #[error("`{key}` of GPU profile `{id}` is {given}, expected {expected}")]
    #[diagnostic(code(gpu::figure))]
    Figure {
        /// The card.
        id: String,
        /// The key, as in `budgets.yaml`.
        key: &'static str,
        /// What was given.
        given: String,
        /// What is possible.
        expected: String,
    },
    /// Context and modules alone fill the card.
    #[error("GPU profile `{id}` has {total}, of which context and modules take {taken}: nothing is left")]
    #[diagnostic(code(gpu::too_small))]
    TooSmall {
        /// The card.
        id: String,
        /// Its total memory.
        total: Bytes,
        /// What context and modules take.
        taken: Bytes,
    },
    /// The built-in data is wrong: a mistake of this program, not of its user.
    #[error("the built-in GPU profiles are unusable: {0}")]
    #[diagnostic(code(gpu::built_in))]
    BuiltIn(String),
}
