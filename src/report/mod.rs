//! The versioned report: one JSON document from which every output is rendered.

mod assumption;
pub(crate) mod change;
pub mod diff;
mod epoch_growth;
mod epochs;
mod error_code;
mod growth;
mod leaks;
mod measurement;
pub mod merge;
mod partition;
mod peaks;
mod read;
#[cfg(test)]
pub(crate) mod sample;
mod types;
pub(crate) mod upgrade;
mod varying;
mod verdict;
pub(crate) mod words;

pub use assumption::{Assumption, GpuQuantity, ReadAssumption};
pub(crate) use change::LET_BE;
pub use epoch_growth::{ENOUGH_EPOCHS, GrowingEpochs};
pub use epochs::{EpochMemory, EpochPhase, MorePages};
pub use error_code::{ErrorCode, UnknownCode};
pub use growth::{GrowthCause, GrowthExplanation, GrowthLine, GrowthPart, GrowthPlace, GrowthRow, PartState};
pub(crate) use leaks::grows;
pub use leaks::{ENOUGH_STEPS, Growing, GrowthInterval, Trend};
pub use measurement::{
    LoadedLibrary, Measurement, OtherProcess, ProcessOf, ProcessSource, Proof, Spread, SpreadPeak, Tuning,
};
pub use partition::Partition;
pub use peaks::{Metric, Mode, Pass, Peak, Peaks};
pub use read::{MOST_BYTES, ReadError};
pub use types::*;
pub use varying::{OrderMemory, VaryingSizes};
pub use verdict::{AllowedGrowth, Rule, Skipped, SkippedCheck, Status, Verdict};
