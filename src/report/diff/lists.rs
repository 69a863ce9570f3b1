//! What else changed about a model, in lists: one for what it was run with, one for layers, and so on.

use super::{Cause, CauseKind, ModelDiff, State};

/// Entries of a list that people are shown.
pub(super) const MOST: usize = 8;

/// Causes that are shown together.
pub(super) struct List<'a> {
    pub(super) about: About,
    pub(super) causes: &'a [Cause],
}

impl List<'_> {
    /// How many entries are not shown.
    pub(super) fn left_out(&self) -> usize {
        self.causes.len().saturating_sub(MOST)
    }
}

/// What a list is about.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum About {
    Setting,
    Layer,
    Parameters,
    Category,
    Phase,
    Autotune,
}

impl About {
    const fn of(kind: CauseKind) -> Self {
        match kind {
            CauseKind::Input | CauseKind::Burn | CauseKind::Driver => Self::Setting,
            CauseKind::Layer => Self::Layer,
            CauseKind::Parameters => Self::Parameters,
            CauseKind::Category => Self::Category,
            CauseKind::Phase => Self::Phase,
            CauseKind::Autotune => Self::Autotune,
        }
    }

    /// The heading of the list on a terminal.
    pub(super) const fn title(self) -> &'static str {
        match self {
            Self::Setting => "inputs and versions",
            Self::Layer => "layers (parameters and feature map)",
            Self::Parameters => "parameters",
            Self::Category => "held at the peak, by category",
            Self::Phase => "highest live memory, by phase",
            Self::Autotune => "autotune",
        }
    }

    /// The heading of the column that names each entry.
    pub(super) const fn column(self) -> &'static str {
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

/// The lists of a model, the likeliest reason first. A model whose values are the same shows other inputs and versions alone, one that is new
/// or gone nothing.
pub(super) fn lists(model: &ModelDiff) -> Vec<List<'_>> {
    let is_shown = |about: About| match model.state {
        State::New | State::Removed => false,
        State::Same => about == About::Setting,
        State::Changed => true,
    };
    let same = |one: &Cause, other: &Cause| About::of(one.kind) == About::of(other.kind);
    let lists = model.causes.chunk_by(same).filter_map(|causes| {
        let about = About::of(causes.first()?.kind);
        is_shown(about).then_some(List { about, causes })
    });
    lists.collect()
}
