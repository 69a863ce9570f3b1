//! Whether an estimate agrees with what was measured.
//!
//! Live must be equal. Reserved may differ by 1 % of what was measured in the warm pass and by 5 % in the cold one; where
//! every choice of the estimate's plan was recorded on the card, warm reserved must be equal too.

use std::fmt;

use super::identity::RunIdentity;
use crate::bytes::Bytes;
use crate::report::{ErrorCode, Mode, Run};

/// How far warm reserved may be off where choices were not all recorded, in percent of what was measured.
pub const WARM_PERCENT: u64 = 1;
/// How far cold reserved may be off, in percent of what was measured.
pub const COLD_PERCENT: u64 = 5;

/// A figure that is compared.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Figure {
    /// Bytes handed out by Burn's allocator in the warm pass.
    WarmLive,
    /// Bytes held from the driver in the warm pass.
    WarmReserved,
    /// Bytes held from the driver in the cold pass.
    ColdReserved,
}

/// In what an estimate and a measurement disagree.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Disagreement {
    /// They are not a measurement and an estimate of the same model with the same inputs on the same card.
    Incomparable {
        /// What was given as the measurement.
        measured: String,
        /// What was given as the estimate.
        estimated: String,
    },
    /// One of them did not come to its end.
    Incomplete {
        /// Which.
        mode: Mode,
        /// The code of its error.
        code: ErrorCode,
    },
    /// One of them ran out of memory.
    OutOfMemory {
        /// Whether the measurement did.
        measured: bool,
        /// Whether the estimate did.
        estimated: bool,
    },
    /// A figure is not there.
    Missing {
        /// Which figure.
        figure: Figure,
        /// Where.
        mode: Mode,
    },
    /// A figure is further off than it may be.
    Off {
        /// Which figure.
        figure: Figure,
        /// What was measured.
        measured: Bytes,
        /// What was estimated.
        estimated: Bytes,
        /// How far off it may be, rounded down.
        allowed: Bytes,
    },
}

/// In what an estimate disagrees with a measurement; nothing where it agrees.
///
/// Where both run out of memory, they agree: what they held by then is no figure of the model's.
#[must_use]
pub fn compare(measured: &Run, estimated: &Run) -> Vec<Disagreement> {
    let of = |run: &Run| format!("{:?} of {} on {}", run.mode, RunIdentity::of(run), run.gpu.id);
    let comparable = (measured.mode, estimated.mode) == (Mode::Measure, Mode::Estimate)
        && RunIdentity::of(measured) == RunIdentity::of(estimated)
        && measured.gpu.id == estimated.gpu.id;
    if !comparable {
        return vec![Disagreement::Incomparable {
            measured: of(measured),
            estimated: of(estimated),
        }];
    }
    let incomplete: Vec<_> = [measured, estimated]
        .into_iter()
        .filter_map(|run| {
            let code = run.error.as_ref()?.code.clone();
            Some(Disagreement::Incomplete { mode: run.mode, code })
        })
        .collect();
    if !incomplete.is_empty() {
        return incomplete;
    }
    match (measured.oom.is_some(), estimated.oom.is_some()) {
        (true, true) => return Vec::new(),
        (false, false) => {}
        (measured, estimated) => return vec![Disagreement::OutOfMemory { measured, estimated }],
    }
    let (live, warm, cold) = (
        |run: &Run| run.peaks.warm.live,
        |run: &Run| run.peaks.warm.reserved,
        |run: &Run| run.peaks.cold.reserved,
    );
    let warm_percent = if estimated.is_tuned_here() { 0 } else { WARM_PERCENT };
    [
        figure(Figure::WarmLive, 0, live(measured), live(estimated)),
        figure(Figure::WarmReserved, warm_percent, warm(measured), warm(estimated)),
        figure(Figure::ColdReserved, COLD_PERCENT, cold(measured), cold(estimated)),
    ]
    .into_iter()
    .flatten()
    .collect()
}

fn figure(figure: Figure, percent: u64, measured: Option<Bytes>, estimated: Option<Bytes>) -> Option<Disagreement> {
    let missing = |mode| Some(Disagreement::Missing { figure, mode });
    let Some(measured) = measured else {
        return missing(Mode::Measure);
    };
    let Some(estimated) = estimated else {
        return missing(Mode::Estimate);
    };
    let allowed = u128::from(measured.0) * u128::from(percent) / 100;
    // A percentage of 64 bits fits into 64 bits.
    let allowed = Bytes(u64::try_from(allowed).unwrap_or(u64::MAX));
    (measured.0.abs_diff(estimated.0) > allowed.0).then_some(Disagreement::Off {
        figure,
        measured,
        estimated,
        allowed,
    })
}

impl fmt::Display for Figure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::WarmLive => "warm live",
            Self::WarmReserved => "warm reserved",
            Self::ColdReserved => "cold reserved",
        })
    }
}

impl fmt::Display for Disagreement {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let name = |mode: Mode| match mode {
            Mode::Measure => "measurement",
            Mode::Estimate => "estimate",
        };
        match self {
            Self::Incomparable { measured, estimated } => write!(f, "{measured} and {estimated} cannot be compared"),
            Self::Incomplete { mode, code } => write!(f, "the {} is incomplete ({code})", name(*mode)),
            Self::OutOfMemory { measured: true, .. } => {
                f.write_str("the measurement ran out of memory, the estimate did not")
            }
            Self::OutOfMemory { .. } => f.write_str("the estimate ran out of memory, the measurement did not"),
            Self::Missing { figure, mode } => write!(f, "the {} has no {figure}", name(*mode)),
            Self::Off {
                figure,
                measured,
                estimated,
                allowed,
            } => write!(
                f,
                "{figure}: measured {} B, estimated {} B, off by {} B where {} B are allowed",
                measured.0,
                estimated.0,
                measured.0.abs_diff(estimated.0),
                allowed.0
            ),
        }
    }
}
