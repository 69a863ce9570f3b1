//! What the passes of a case left, before it is assembled into a run.

use super::pass_difference::PassDifference;
use super::process::PassOutput;
use crate::report::{Autotune, RecordingId, Tuning};

/// The outputs of the passes of a case; `None` for a pass that did not run.
#[derive(Debug, Default)]
pub(super) struct Passes {
    pub(super) cold: Option<std::io::Result<PassOutput>>,
    pub(super) warm: Option<std::io::Result<PassOutput>>,
    pub(super) traced: Option<std::io::Result<PassOutput>>,
    /// A second warm pass, in which the virtual GPU returns other values than zeros.
    pub(super) other: Option<std::io::Result<PassOutput>>,
}

/// The passes of a case, and the sources of the plan that the warm and traced passes replay.
#[derive(Debug)]
pub(super) struct Collected {
    pub(super) passes: Passes,
    pub(super) autotune: Autotune,
    /// The recording that the plan replays.
    pub(super) recording: Option<RecordingId>,
    /// The number of choices that the warm or traced pass made itself because the plan lacked them.
    pub(super) unplanned: usize,
    /// Whether the plan of a measurement comes from a recording.
    pub(super) tuning: Tuning,
    /// The difference between passes that should be equal.
    pub(super) disagreement: Option<PassDifference>,
}

impl Collected {
    pub(super) fn first_only(cold: std::io::Result<PassOutput>) -> Self {
        Self {
            passes: Passes {
                cold: Some(cold),
                ..Passes::default()
            },
            autotune: Autotune::default(),
            recording: None,
            unplanned: 0,
            tuning: Tuning::Free,
            disagreement: None,
        }
    }
}
