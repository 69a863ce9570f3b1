//! What is said of savings, wherever they are shown.

use crate::explain::{Certainty, Saving};

/// What stands below where [`is_reserved_open`].
pub(super) const OPEN: &str = "how much would be reserved only a run of exactly that change tells";

/// What the figures of a saving are from.
pub(super) const fn known_from(certainty: Certainty) -> &'static str {
    match certainty {
        Certainty::Run => "a run with it",
        Certainty::Timeline => "the timeline",
        Certainty::Already => "saved already",
        Certainty::Unknown => "not known",
    }
}

/// Those that are worth a row.
pub(super) fn shown(savings: &[Saving]) -> impl Iterator<Item = &Saving> {
    savings.iter().filter(|saving| !saving.is_idle())
}

/// The others, in a sentence.
pub(super) fn idle(savings: &[Saving]) -> Option<String> {
    let idle: Vec<_> = savings.iter().filter(|saving| saving.is_idle()).collect();
    let names: Vec<_> = idle.iter().map(|saving| saving.change.as_str()).collect();
    match idle.len() {
        0 => None,
        1 => Some(format!("1 change would save nothing: {}", names.join(", "))),
        more => Some(format!("{more} changes would save nothing: {}", names.join(", "))),
    }
}

/// Whether there is one of which live is known, and reserved is not.
pub(super) fn is_reserved_open(savings: &[Saving]) -> bool {
    shown(savings).any(|saving| saving.live.is_some() && saving.reserved.is_none())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::bytes::Bytes;

    fn saving(change: &str, saved_live: Option<i64>, saved_reserved: Option<i64>) -> Saving {
        Saving {
            code: "code".to_owned(),
            change: change.to_owned(),
            live: saved_live.map(|_| Bytes(1)),
            reserved: saved_reserved.map(|_| Bytes(1)),
            saved_live,
            saved_reserved,
            cost: String::new(),
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
