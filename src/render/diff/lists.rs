//! The lists of what else changed about a model: inputs and versions, layers, and so on.

use crate::report::diff::{Cause, CauseKind, ModelDiff, ModelState};

/// The most entries that are shown of a list.
pub(in crate::render) const MOST: usize = 8;

/// Causes of the same kind, which are shown in one list.
pub(in crate::render) struct CauseList<'a> {
    pub(in crate::render) about: About,
    pub(in crate::render) causes: &'a [Cause],
}

impl CauseList<'_> {
    /// Returns how many entries are not shown.
    pub(in crate::render) fn left_out(&self) -> usize {
        self.causes.len().saturating_sub(MOST)
    }
}

/// What a list is about.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(in crate::render) enum About {
    Setting,
    Layer,
    Parameters,
    Category,
    Phase,
    Autotune,
}

impl About {
    const fn from_kind(kind: CauseKind) -> Self {
        match kind {
            CauseKind::Input | CauseKind::Burn | CauseKind::Driver => Self::Setting,
            CauseKind::Layer => Self::Layer,
            CauseKind::Parameters => Self::Parameters,
            CauseKind::Category => Self::Category,
            CauseKind::Phase => Self::Phase,
            CauseKind::Autotune => Self::Autotune,
        }
    }

    /// Returns the heading of the list on a terminal.
    pub(in crate::render) const fn title(self) -> &'static str {
        match self {
            Self::Setting => "inputs and versions",
            Self::Layer => "layers (parameters and feature map)",
            Self::Parameters => "parameters",
            Self::Category => "memory at the peak, by category",
            Self::Phase => "highest live memory, by phase",
            Self::Autotune => "autotune",
        }
    }

    /// Returns the heading of the column that names the entries.
    pub(in crate::render) const fn column(self) -> &'static str {
        match self {
            Self::Setting => "input or version",
            Self::Layer => "layer",
            Self::Parameters => "parameters",
            Self::Category => "category at the peak",
            Self::Phase => "phase",
            Self::Autotune => "autotune",
        }
    }
}

/// Returns the lists of a model, the likeliest reason first.
///
/// An unchanged model has at most the list of inputs and versions. A model that is new or removed has no lists.
pub(in crate::render) fn lists(model: &ModelDiff) -> Vec<CauseList<'_>> {
    let is_shown = |about: About| match model.state {
        ModelState::New | ModelState::Removed => false,
        // With the same values, another kernel or layer explains nothing.
        ModelState::Same => about == About::Setting,
        ModelState::Changed => true,
    };
    let same = |one: &Cause, other: &Cause| About::from_kind(one.kind) == About::from_kind(other.kind);
    // The causes are sorted by kind, so those of one list are neighbours.
    let lists = model.causes.chunk_by(same).filter_map(|causes| {
        let about = About::from_kind(causes.first()?.kind);
        is_shown(about).then_some(CauseList { about, causes })
    });
    lists.collect()
}
