//! The memory of the parts of an epoch, in a training of several epochs.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::bytes::Bytes;
use crate::untrusted::Foreign;

/// A part of an epoch, or the time between two parts.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum EpochPhase {
    /// The model is trained on the training data.
    Training,
    /// The model is evaluated on the validation data.
    Validation,
    /// After a part: metrics and checkpoints, until the next part begins.
    Between,
}

impl EpochPhase {
    /// Returns the name in sentences.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Training => "training",
            Self::Validation => "validation",
            Self::Between => "between",
        }
    }
}

/// How many more pages of one size are reserved than before. Each pool of Burn's allocator has pages of one size.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct MorePages {
    /// The size of a page in bytes.
    pub size: Bytes,
    /// The number of pages; negative if some were freed.
    pub count: i64,
}

/// The default for reports from before `is_end_seen`.
const fn is_seen() -> bool {
    true
}

/// The memory of a part of an epoch on the first GPU, from the observed pass.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct EpochMemory {
    /// The number of the epoch, from 1.
    pub epoch: u32,
    /// The part.
    pub part: EpochPhase,
    /// The first step of the part. Steps count on from part to part.
    pub first_step: u32,
    /// The number of steps.
    pub steps: u32,
    /// Whether cargo-vram saw when the part ended. If not, the values at the end are of a later time, and are not compared
    /// with those of other epochs.
    #[serde(default = "is_seen")]
    pub is_end_seen: bool,
    /// The highest live memory in bytes.
    pub live_peak: Bytes,
    /// The bytes of all tensors at the end, without the allocator's padding. Between two parts, this and the streams are
    /// those at the end of the part before.
    pub in_use_end: Bytes,
    /// The highest reserved memory in bytes.
    pub reserved_peak: Bytes,
    /// The reserved memory at the end in bytes.
    pub reserved_end: Bytes,
    /// The pages that were reserved in this part, less those that were freed, the largest first. They add up to the change
    /// of reserved memory since the end of the part before.
    #[serde(default)]
    pub pages: Vec<MorePages>,
    /// The number of streams that hold memory at the end. Each thread that uses the GPU has its own stream, with its
    /// own pools.
    pub streams: u32,
    /// The number of these streams that held none before this part.
    pub new_streams: u32,
    /// The bytes that those hold.
    pub new_streams_reserved: Bytes,
    /// The program's line that passed the data loader of this part to cargo-vram, or the function that makes it:
    /// `benches/vram.rs:46`; null between two parts.
    #[serde(default)]
    pub loader: Option<Foreign>,
}
