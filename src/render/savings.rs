//! Texts about savings, shared by all output formats.

use crate::explain::{Certainty, Saving};

/// The note below the savings if [`is_reserved_open`]. It follows the sign for "no value".
pub(super) const OPEN: &str = "unknown: only a run with exactly that change shows its reserved memory";

/// Returns what the values of a saving are based on.
pub(super) const fn known_from(certainty: Certainty) -> &'static str {
    match certainty {
        Certainty::Run => "a run with it",
        Certainty::Timeline => "the timeline",
        Certainty::Already => "already saved",
        Certainty::Unknown => "unknown",
    }
}

/// Returns the savings that get a row: all except changes that were tried and save nothing.
pub(super) fn shown(savings: &[Saving]) -> impl Iterator<Item = &Saving> {
    savings.iter().filter(|saving| !saving.is_idle())
}

/// Lists the changes that were tried and save nothing, in one sentence.
pub(super) fn idle(savings: &[Saving]) -> Option<String> {
    // The document has every change that was tried. A row per change without effect would hide the others.
    // See docs/design/what-if.md.
    let idle: Vec<_> = savings.iter().filter(|saving| saving.is_idle()).collect();
    let names: Vec<_> = idle.iter().map(|saving| saving.change.raw()).collect();
    match idle.len() {
        0 => None,
        1 => Some(format!("1 change would save nothing: {}", names.join(", "))),
        more => Some(format!("{more} changes would save nothing: {}", names.join(", "))),
    }
}

/// Whether a shown saving has a value for live memory, but none for reserved memory.
pub(super) fn is_reserved_open(savings: &[Saving]) -> bool {
    shown(savings).any(|saving| saving.live.is_some() && saving.reserved.is_none())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::bytes::Bytes;

    fn saving(change: &str, saved_live: Option<i64>, saved_reserved: Option<i64>) -> Saving {
        Saving {
            code: "code".into(),
            change: change.into(),
            live: saved_live.map(|_| Bytes(1)),
            reserved: saved_reserved.map(|_| Bytes(1)),
            saved_live,
            saved_reserved,
            cost: "".into(),
            certainty: Certainty::Run,
            note: None,
        }
    }

    #[test]
    fn what_saves_nothing_is_counted_and_what_takes_more_is_shown() {
        let mut savings = vec![
            saving("half", Some(7), Some(7)),
            saving("more", Some(-7), Some(-7)),
            saving("fragments", Some(0), Some(7)),
        ];
        assert_eq!((idle(&savings), shown(&savings).count()), (None, 3));
        savings.push(saving("SGD", Some(0), Some(0)));
        assert_eq!(idle(&savings).as_deref(), Some("1 change would save nothing: SGD"));
        savings.push(saving("batch", Some(0), None));
        assert_eq!(
            idle(&savings).as_deref(),
            Some("2 changes would save nothing: SGD, batch")
        );
        assert_eq!(shown(&savings).count(), 3);
        assert!(!is_reserved_open(&savings));
        savings.push(saving("drop", Some(7), None));
        assert!(is_reserved_open(&savings));
    }
}
