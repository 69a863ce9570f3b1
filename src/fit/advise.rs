//! Which changes to try next, alone and together, to make a model fit: those first that cost the least speed.

use super::CardFit;
use crate::bytes::Bytes;
use crate::protocol::{Float, Optimizer, WhatIf};

/// A change, in the order of what it costs: half as many bytes are moved, parameters lose precision, less is kept, smaller kernels
/// are launched more often, forward is computed again.
const CHANGES: [Change; 5] = [
    Change::MixedPrecision,
    Change::HalfPrecision,
    Change::StatelessOptimizer,
    Change::Accumulation,
    Change::Checkpointing,
];

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Change {
    MixedPrecision,
    HalfPrecision,
    StatelessOptimizer,
    Accumulation,
    Checkpointing,
}

/// What is known of a model before anything is tried.
#[derive(Debug, Clone, Copy)]
pub struct Possible {
    /// Whether it trains: only that has an optimizer, and a backward phase.
    pub trains: bool,
    /// Its batch, where it has one.
    pub batch_size: Option<u64>,
    /// Whether it can run with checkpointing.
    pub checkpoints: bool,
}

/// What came of one try.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Attempt {
    /// What was otherwise; nothing in the first.
    pub what_if: WhatIf,
    /// Whether it fits.
    pub fits: bool,
    /// What it needs; absent where nobody knows, since a single tensor is too large, or it cannot be run.
    pub needed: Option<Bytes>,
    /// Whether it cannot be run at all, whatever the card.
    pub broken: bool,
}

impl Attempt {
    /// What came of a run; nothing where there was none.
    #[must_use]
    pub fn of(card: &CardFit) -> Option<Self> {
        let probe = card.probes.first()?;
        Some(Self {
            what_if: card.what_if.clone(),
            fits: probe.fits,
            needed: probe.left.and(probe.needed),
            broken: probe.error.is_some(),
        })
    }
}

/// The next to try; none where the answer is known, or nothing is left.
#[must_use]
pub fn next(possible: &Possible, attempts: &[Attempt]) -> Option<WhatIf> {
    let of = |what_if: &WhatIf| attempts.iter().find(|attempt| attempt.what_if == *what_if);
    let as_it_is = WhatIf::default();
    let Some(first) = of(&as_it_is) else {
        return Some(as_it_is);
    };
    if first.fits || first.broken {
        return None;
    }
    let changes: Vec<Change> = CHANGES
        .into_iter()
        .filter(|change| change.is_possible(possible))
        .collect();
    // Each alone, so that everybody sees what it is worth.
    for change in &changes {
        let next = tries(&[*change], possible, &of);
        if next.is_some() {
            return next;
        }
    }
    if attempts.iter().any(|attempt| attempt.fits) {
        return None;
    }
    // What cannot be run alone, or saves nothing, is of no use together with others.
    let is_of_use = |change: &Change| {
        let alone = of(&what_if(&[*change], 2));
        alone.is_some_and(|alone| !alone.broken && is_less(alone, first))
    };
    let changes: Vec<Change> = changes.into_iter().filter(is_of_use).collect();
    for size in 2..=changes.len() {
        for together in subsets(&changes, size)
            .into_iter()
            .filter(|subset| is_one_dtype(subset))
        {
            let next = tries(&together, possible, &of);
            if next.is_some() {
                return next;
            }
        }
        if attempts.iter().any(|attempt| attempt.fits) {
            return None;
        }
    }
    None
}

/// The shortest list of changes with which it fits, the cheapest of several; nothing where none does.
#[must_use]
pub fn shortest(attempts: &[Attempt]) -> Option<&Attempt> {
    let fitting = attempts.iter().filter(|attempt| attempt.fits);
    fitting.min_by_key(|attempt| changes_of(&attempt.what_if))
}

fn changes_of(what_if: &WhatIf) -> usize {
    [
        what_if.dtype.is_some(),
        what_if.optimizer.is_some(),
        what_if.accumulate.is_some(),
        what_if.checkpointing,
    ]
    .into_iter()
    .filter(|is_changed| *is_changed)
    .count()
}

/// The next try of these changes together: a batch is taken apart in more parts as long as that is of use.
fn tries<'a>(changes: &[Change], possible: &Possible, of: &impl Fn(&WhatIf) -> Option<&'a Attempt>) -> Option<WhatIf> {
    let mut before: Option<&Attempt> = None;
    for parts in parts(changes, possible) {
        let what_if = what_if(changes, parts);
        let Some(attempt) = of(&what_if) else {
            return Some(what_if);
        };
        let still_less = before.is_none_or(|before| is_less(attempt, before));
        if attempt.fits || attempt.broken || !still_less {
            return None;
        }
        before = Some(attempt);
    }
    None
}

/// Whether it needs less, or may.
fn is_less(attempt: &Attempt, than: &Attempt) -> bool {
    let both = attempt.needed.zip(than.needed);
    both.is_none_or(|(needed, than)| needed < than)
}

/// Into how many parts the batch may be taken apart: 2, 4, 8, …
fn parts(changes: &[Change], possible: &Possible) -> Vec<u32> {
    let batch = possible.batch_size.unwrap_or(0);
    let halves = (1..32).map(|times| 1_u32 << times);
    match changes.contains(&Change::Accumulation) {
        true => halves
            .take_while(|parts| batch > 0 && batch.is_multiple_of(u64::from(*parts)))
            .collect(),
        false => vec![2],
    }
}

fn what_if(changes: &[Change], parts: u32) -> WhatIf {
    let has = |change| changes.contains(&change);
    let mixed = has(Change::MixedPrecision).then_some(Float::MixedF16);
    let half = has(Change::HalfPrecision).then_some(Float::F16);
    WhatIf {
        dtype: mixed.or(half),
        optimizer: has(Change::StatelessOptimizer).then_some(Optimizer::Sgd),
        accumulate: has(Change::Accumulation).then_some(parts),
        checkpointing: has(Change::Checkpointing),
        ..WhatIf::default()
    }
}

impl Change {
    fn is_possible(self, possible: &Possible) -> bool {
        match self {
            Self::HalfPrecision => true,
            Self::MixedPrecision | Self::StatelessOptimizer => possible.trains,
            Self::Accumulation => possible.trains && !parts(&[self], possible).is_empty(),
            Self::Checkpointing => possible.trains && possible.checkpoints,
        }
    }
}

/// Whether these ask for no more than one element type.
fn is_one_dtype(changes: &[Change]) -> bool {
    let dtypes = [Change::MixedPrecision, Change::HalfPrecision];
    !dtypes.iter().all(|dtype| changes.contains(dtype))
}

/// All that have so many of these, in their order.
fn subsets(of: &[Change], size: usize) -> Vec<Vec<Change>> {
    if size == 0 {
        return vec![Vec::new()];
    }
    let mut all = Vec::new();
    for (at, first) in of.iter().enumerate() {
        for rest in subsets(&of[at + 1..], size - 1) {
            all.push(std::iter::once(*first).chain(rest).collect());
        }
    }
    all
}

#[cfg(test)]
mod tests {
    use super::*;

    const ALL: Possible = Possible {
        trains: true,
        batch_size: Some(24),
        checkpoints: true,
    };

    /// Tries until the answer is known: in which order, and what it is.
    fn advise(possible: &Possible, room: u64, needs: impl Fn(&WhatIf) -> Option<u64>) -> (Vec<String>, Option<String>) {
        let mut attempts: Vec<Attempt> = Vec::new();
        while let Some(what_if) = next(possible, &attempts) {
            assert!(
                attempts.iter().all(|attempt| attempt.what_if != what_if),
                "{what_if} twice"
            );
            let needed = needs(&what_if);
            attempts.push(Attempt {
                what_if,
                fits: needed.is_some_and(|needed| needed <= room),
                // Nobody tells what is far too large.
                needed: needed.filter(|needed| *needed < 10_000).map(Bytes),
                broken: needed.is_none(),
            });
        }
        let told = attempts.iter().map(|attempt| attempt.what_if.to_string()).collect();
        (told, shortest(&attempts).map(|attempt| attempt.what_if.to_string()))
    }

    /// Half of 60 are activations, by parts; 20 the optimizer's; checkpointing saves 10.
    fn needs(what_if: &WhatIf) -> Option<u64> {
        let activations = 600 / u64::from(what_if.accumulate.unwrap_or(1));
        let state = if what_if.optimizer.is_some() { 0 } else { 200 };
        let kept = if what_if.checkpointing {
            activations / 2
        } else {
            activations
        };
        let all = 100 + state + kept;
        Some(match what_if.dtype {
            None => all,
            Some(mixed) if mixed.is_mixed() => 100 + state + kept / 2,
            Some(_) => all / 2,
        })
    }

    /// Every change alone, in their order.
    const ALONE: [&str; 8] = [
        "",
        "mixed-f16",
        "f16",
        "sgd",
        "accumulate 2",
        "accumulate 4",
        "accumulate 8",
        "checkpointing",
    ];

    #[test]
    fn what_fits_as_it_is_needs_no_advice() {
        assert_eq!(advise(&ALL, 900, needs), (vec![String::new()], Some(String::new())));
    }

    #[test]
    fn each_is_tried_alone_and_the_cheapest_that_suffices_is_the_answer() {
        let (tried, answer) = advise(&ALL, 600, needs);
        assert_eq!(tried, ["", "mixed-f16", "f16", "sgd", "accumulate 2", "checkpointing"]);
        assert_eq!(answer.as_deref(), Some("mixed-f16"));
        // A batch of 24 is taken apart in 8 at most.
        let (tried, answer) = advise(&ALL, 350, needs);
        assert_eq!(tried[..8], ALONE);
        assert_eq!(
            tried[8..],
            [
                "sgd, mixed-f16",
                "mixed-f16, accumulate 2",
                "mixed-f16, accumulate 4",
                "mixed-f16, accumulate 8"
            ]
        );
        assert_eq!(answer.as_deref(), Some("mixed-f16, accumulate 8"));
    }

    #[test]
    fn what_is_of_no_use_alone_is_not_tried_with_others_and_what_misses_is_known() {
        let stubborn = |what_if: &WhatIf| match what_if {
            what_if if what_if.optimizer.is_some() => Some(900),
            what_if if what_if.checkpointing => None,
            what_if => needs(what_if),
        };
        let (tried, answer) = advise(&ALL, 1, stubborn);
        assert_eq!(answer, None);
        let together: Vec<_> = tried.iter().filter(|tried| tried.contains(", ")).collect();
        assert_eq!(
            together,
            [
                "mixed-f16, accumulate 2",
                "mixed-f16, accumulate 4",
                "mixed-f16, accumulate 8",
                "f16, accumulate 2",
                "f16, accumulate 4",
                "f16, accumulate 8"
            ]
        );
    }

    #[test]
    fn a_tensor_that_is_too_large_keeps_nothing_from_being_tried() {
        // As it is, and in two parts, nobody knows what it needs.
        let huge = |what_if: &WhatIf| match what_if.accumulate {
            None | Some(2) => Some(1_000_000),
            Some(_) => needs(what_if),
        };
        let (tried, answer) = advise(&ALL, 400, huge);
        assert_eq!(answer.as_deref(), Some("accumulate 8"));
        assert_eq!(tried, ALONE);
    }

    #[test]
    fn inference_has_neither_an_optimizer_nor_a_backward_phase() {
        let infers = Possible { trains: false, ..ALL };
        assert_eq!(advise(&infers, 1, needs).0, ["", "f16"]);
        let odd = Possible {
            batch_size: Some(7),
            checkpoints: false,
            ..ALL
        };
        let tried = ["", "mixed-f16", "f16", "sgd", "sgd, mixed-f16", "sgd, f16"];
        assert_eq!(advise(&odd, 1, needs).0, tried);
    }
}
