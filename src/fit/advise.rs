//! Chooses the changes to try next, alone and together, to make a model fit. Changes that cost the least speed come
//! first.

use super::GpuFit;
use crate::bytes::Bytes;
use crate::protocol::{Float, Optimizer, WhatIf};

/// The changes, the cheapest first. Mixed precision moves half as many bytes, and half precision also loses precision
/// of the parameters. A stateless optimizer keeps less. Accumulation launches smaller kernels more often. Checkpointing
/// computes forward again.
const CHANGES: [AdvisedChange; 5] = [
    AdvisedChange::MixedPrecision,
    AdvisedChange::HalfPrecision,
    AdvisedChange::StatelessOptimizer,
    AdvisedChange::Accumulation,
    AdvisedChange::Checkpointing,
];

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum AdvisedChange {
    MixedPrecision,
    HalfPrecision,
    StatelessOptimizer,
    Accumulation,
    Checkpointing,
}

/// What is known about a model before the first attempt.
#[derive(Debug, Clone, Copy)]
pub struct Possible {
    /// Whether the model trains. Only a training has an optimizer and a backward phase.
    pub trains: bool,
    /// The batch size, if the model has one.
    pub batch_size: Option<u64>,
    /// Whether the model can run with checkpointing.
    pub checkpoints: bool,
}

/// The result of one attempt.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Attempt {
    /// The overrides of the attempt; none in the first one.
    pub what_if: WhatIf,
    /// Whether the model fits.
    pub fits: bool,
    /// The bytes that the model needs; `None` if unknown, because a single tensor is too large or the model cannot run.
    pub needed: Option<Bytes>,
    /// Whether the model cannot run at all, on any GPU.
    pub broken: bool,
}

impl Attempt {
    /// Creates an attempt from its run; `None` if there was no run.
    #[must_use]
    pub fn from_fit(gpu: &GpuFit) -> Option<Self> {
        let probe = gpu.probes.first()?;
        Some(Self {
            what_if: gpu.what_if.clone(),
            fits: probe.fits,
            needed: probe.left.and(probe.needed),
            broken: probe.error.is_some(),
        })
    }
}

/// Returns the overrides to try next; `None` if the answer is known or nothing is left to try.
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
    let changes: Vec<AdvisedChange> = CHANGES
        .into_iter()
        .filter(|change| change.is_possible(possible))
        .collect();
    // Each change alone, so that the user sees what it saves.
    for change in &changes {
        let next = tries(&[*change], possible, &of);
        if next.is_some() {
            return next;
        }
    }
    // Single changes are all tried, even after one fits. Of combinations, the first that fits is enough.
    if attempts.iter().any(|attempt| attempt.fits) {
        return None;
    }
    // A change that cannot run alone, or saves nothing, is not worth trying together with others.
    let is_of_use = |change: &AdvisedChange| {
        let alone = of(&what_if(&[*change], 2));
        alone.is_some_and(|alone| !alone.broken && is_less(alone, first))
    };
    let changes: Vec<AdvisedChange> = changes.into_iter().filter(is_of_use).collect();
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

/// Returns the attempt that fits with the fewest changes, or the cheapest of several; `None` if no attempt fits.
#[must_use]
pub fn shortest(attempts: &[Attempt]) -> Option<&Attempt> {
    let fitting = attempts.iter().filter(|attempt| attempt.fits);
    // Of equal ones, this keeps the first, and attempts begin with the cheapest.
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

/// Returns the next attempt with these changes together. The batch is split into more parts as long as that saves
/// memory.
fn tries<'a>(
    changes: &[AdvisedChange],
    possible: &Possible,
    of: &impl Fn(&WhatIf) -> Option<&'a Attempt>,
) -> Option<WhatIf> {
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

/// Whether an attempt needs less memory, or may need less.
fn is_less(attempt: &Attempt, than: &Attempt) -> bool {
    let both = attempt.needed.zip(than.needed);
    // A tensor that is too large hides the need. More parts may make it small enough, so go on.
    both.is_none_or(|(needed, than)| needed < than)
}

/// Returns the numbers of parts that the batch can be split into: 2, 4, 8, …
fn parts(changes: &[AdvisedChange], possible: &Possible) -> Vec<u32> {
    let batch = possible.batch_size.unwrap_or(0);
    let halves = (1..32).map(|times| 1_u32 << times);
    match changes.contains(&AdvisedChange::Accumulation) {
        true => halves
            // Equal parts only, so that the training stays the same. See docs/design/what-if.md.
            .take_while(|parts| batch > 0 && batch.is_multiple_of(u64::from(*parts)))
            .collect(),
        false => vec![2],
    }
}

fn what_if(changes: &[AdvisedChange], parts: u32) -> WhatIf {
    let has = |change| changes.contains(&change);
    let mixed = has(AdvisedChange::MixedPrecision).then_some(Float::MixedF16);
    let half = has(AdvisedChange::HalfPrecision).then_some(Float::F16);
    WhatIf {
        dtype: mixed.or(half),
        optimizer: has(AdvisedChange::StatelessOptimizer).then_some(Optimizer::Sgd),
        accumulate: has(AdvisedChange::Accumulation).then_some(parts),
        checkpointing: has(AdvisedChange::Checkpointing),
        ..WhatIf::default()
    }
}

impl AdvisedChange {
    fn is_possible(self, possible: &Possible) -> bool {
        match self {
            Self::HalfPrecision => true,
            Self::MixedPrecision | Self::StatelessOptimizer => possible.trains,
            Self::Accumulation => possible.trains && !parts(&[self], possible).is_empty(),
            Self::Checkpointing => possible.trains && possible.checkpoints,
        }
    }
}

/// Whether the changes set at most one element type.
fn is_one_dtype(changes: &[AdvisedChange]) -> bool {
    let dtypes = [AdvisedChange::MixedPrecision, AdvisedChange::HalfPrecision];
    !dtypes.iter().all(|dtype| changes.contains(dtype))
}

/// Returns all subsets of this size, in order.
fn subsets(of: &[AdvisedChange], size: usize) -> Vec<Vec<AdvisedChange>> {
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

    /// Makes attempts until the answer is known. Returns the attempts in order, and the answer.
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
                // The need is unknown if it is far too large.
                needed: needed.filter(|needed| *needed < 10_000).map(Bytes),
                broken: needed.is_none(),
            });
        }
        let told = attempts.iter().map(|attempt| attempt.what_if.to_string()).collect();
        (told, shortest(&attempts).map(|attempt| attempt.what_if.to_string()))
    }

    /// The total is 900: 600 are activations, divided by the parts, 200 are the optimizer's. Checkpointing halves the
    /// activations.
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

    /// Every change alone, in order.
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
        // A batch of 24 can be split into 8 parts at most.
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
        // Without changes, and with two parts, the need is unknown.
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
