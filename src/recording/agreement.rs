//! Compares an estimate with a measurement.
//!
//! Live memory must be equal. Reserved memory may differ by 1 % of the measured value in the warm pass, and by 5 % in
//! the cold pass. If every choice of the estimate's plan was recorded on this GPU, warm reserved memory must be equal,
//! too.

use std::fmt;

use super::identity::RunIdentity;
use crate::bytes::Bytes;
use crate::report::words::mode_name;
use crate::report::{ErrorCode, Mode, Run};

/// The allowed difference of warm reserved memory if not all choices were recorded, in percent of the measured value.
pub const WARM_PERCENT: u64 = 1;
/// The allowed difference of cold reserved memory, in percent of the measured value.
pub const COLD_PERCENT: u64 = 5;

/// A value to compare.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum ComparedValue {
    /// Peak of live memory in the warm pass, in bytes.
    WarmLive,
    /// Peak of reserved memory in the warm pass, in bytes.
    WarmReserved,
    /// Peak of reserved memory in the cold pass, in bytes.
    ColdReserved,
}

/// A disagreement between an estimate and a measurement.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum AgreementError {
    /// The runs are not a measurement and an estimate of the same model with the same inputs on the same GPU.
    Incomparable {
        /// The run given as the measurement.
        measured: String,
        /// The run given as the estimate.
        estimated: String,
    },
    /// One of the runs is incomplete.
    Incomplete {
        /// Which run: the estimate or the measurement.
        mode: Mode,
        /// The code of the run's error.
        code: ErrorCode,
    },
    /// Only one of the runs ran out of memory.
    OutOfMemory {
        /// Whether the measurement ran out of memory.
        measured: bool,
        /// Whether the estimate ran out of memory.
        estimated: bool,
    },
    /// A run lacks a value.
    Missing {
        /// The missing value.
        figure: ComparedValue,
        /// Which run: the estimate or the measurement.
        mode: Mode,
    },
    /// The difference of a value is more than allowed.
    Off {
        /// The value.
        figure: ComparedValue,
        /// The measured bytes.
        measured: Bytes,
        /// The estimated bytes.
        estimated: Bytes,
        /// The allowed difference, rounded down.
        allowed: Bytes,
    },
}

/// Returns the disagreements between an estimate and a measurement. The list is empty if they agree.
///
/// If both runs ran out of memory, they agree: their values until then are not values of the model.
#[must_use]
pub fn compare(measured: &Run, estimated: &Run) -> Vec<AgreementError> {
    let of = |run: &Run| {
        let identity = RunIdentity::from_run(run);
        format!("the {} run of {identity} on {}", mode_name(run.mode), run.gpu.id)
    };
    let comparable = (measured.mode, estimated.mode) == (Mode::Measure, Mode::Estimate)
        && RunIdentity::from_run(measured) == RunIdentity::from_run(estimated)
        && measured.gpu.id == estimated.gpu.id;
    if !comparable {
        return vec![AgreementError::Incomparable {
            measured: of(measured),
            estimated: of(estimated),
        }];
    }
    let incomplete: Vec<_> = [measured, estimated]
        .into_iter()
        .filter_map(|run| {
            let code = run.error.as_ref()?.code.clone();
            Some(AgreementError::Incomplete { mode: run.mode, code })
        })
        .collect();
    if !incomplete.is_empty() {
        return incomplete;
    }
    match (measured.oom.is_some(), estimated.oom.is_some()) {
        (true, true) => return Vec::new(),
        (false, false) => {}
        (measured, estimated) => return vec![AgreementError::OutOfMemory { measured, estimated }],
    }
    let (live, warm, cold) = (
        |run: &Run| run.peaks.warm.live,
        |run: &Run| run.peaks.warm.reserved,
        |run: &Run| run.peaks.cold.reserved,
    );
    let warm_percent = if estimated.is_tuned_here() { 0 } else { WARM_PERCENT };
    [
        // Equal to the byte: both values are from passes whose threads take turns.
        // See docs/design/threads.md.
        figure(ComparedValue::WarmLive, 0, live(measured), live(estimated)),
        figure(
            ComparedValue::WarmReserved,
            warm_percent,
            warm(measured),
            warm(estimated),
        ),
        figure(
            ComparedValue::ColdReserved,
            COLD_PERCENT,
            cold(measured),
            cold(estimated),
        ),
    ]
    .into_iter()
    .flatten()
    .collect()
}

fn figure(
    figure: ComparedValue,
    percent: u64,
    measured: Option<Bytes>,
    estimated: Option<Bytes>,
) -> Option<AgreementError> {
    let missing = |mode| Some(AgreementError::Missing { figure, mode });
    let Some(measured) = measured else {
        return missing(Mode::Measure);
    };
    let Some(estimated) = estimated else {
        return missing(Mode::Estimate);
    };
    // The product may not fit into 64 bits.
    let allowed = u128::from(measured.0) * u128::from(percent) / 100;
    // The percentage is at most 100, so the result fits into 64 bits.
    let allowed = Bytes(u64::try_from(allowed).unwrap_or(u64::MAX));
    (measured.0.abs_diff(estimated.0) > allowed.0).then_some(AgreementError::Off {
        figure,
        measured,
        estimated,
        allowed,
    })
}

impl fmt::Display for ComparedValue {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::WarmLive => "warm live memory",
            Self::WarmReserved => "warm reserved memory",
            Self::ColdReserved => "cold reserved memory",
        })
    }
}

impl fmt::Display for AgreementError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let name = |mode: Mode| match mode {
            Mode::Measure => "measurement",
            Mode::Estimate => "estimate",
        };
        match self {
            Self::Incomparable { measured, estimated } => write!(f, "cannot compare {measured} with {estimated}"),
            Self::Incomplete { mode, code } => write!(f, "the {} is incomplete ({code})", name(*mode)),
            Self::OutOfMemory { measured: true, .. } => {
                f.write_str("the measurement ran out of memory, but the estimate did not")
            }
            Self::OutOfMemory { .. } => f.write_str("the estimate ran out of memory, but the measurement did not"),
            Self::Missing { figure, mode } => write!(f, "the {} has no value for {figure}", name(*mode)),
            Self::Off {
                figure,
                measured,
                estimated,
                allowed,
            } => write!(
                f,
                "{figure}: measured {} B, estimated {} B, difference {} B, allowed {} B",
                measured.0,
                estimated.0,
                measured.0.abs_diff(estimated.0),
                allowed.0
            ),
        }
    }
}
