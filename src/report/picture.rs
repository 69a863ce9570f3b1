//! What all pictures of an explanation have in common: what is shown, its limits, and which moments are drawn where
//! there is no room for all.

use serde::Serialize;

use super::{Metric, Phase, words};
use crate::bytes::Bytes;
use crate::explain::{Explanation, Timeline};

/// A limit, to be drawn as a line.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Limit {
    /// What people are told of it: `budgets.yaml:12`.
    pub label: String,
    /// What it limits.
    pub metric: Metric,
    /// To how much.
    pub bytes: Bytes,
}

/// An explanation as it is shown. It must have passed [`Explanation::check`].
#[derive(Debug, Clone, Copy)]
pub struct Shown<'a> {
    /// What it is called besides its model's name: of which file, before or after.
    pub name: Option<&'a str>,
    /// What is drawn.
    pub explanation: &'a Explanation,
    /// Its limits.
    pub limits: &'a [Limit],
}

impl<'a> Shown<'a> {
    /// An explanation by itself.
    #[must_use]
    pub const fn new(explanation: &'a Explanation) -> Self {
        Self {
            name: None,
            explanation,
            limits: &[],
        }
    }
}

/// The samples to draw where there is room for about so many: of each group of neighbours the least and the most live,
/// and with them every moment that must be exact: the ends, the peaks, the borders of phases. In order, each once.
pub(super) fn thinned(explanation: &Explanation, most: usize) -> Vec<u32> {
    let timeline = &explanation.timeline;
    let count = timeline.live.len();
    let all = 0..u32::try_from(count).unwrap_or(u32::MAX);
    if count <= most {
        return all.collect();
    }
    let samples: Vec<u32> = all.collect();
    let mut kept = vec![0, samples[count - 1], explanation.peak.sample];
    let live = |sample: &&u32| timeline.live[**sample as usize];
    // The first of equals: `max_by_key` alone gives the last.
    kept.extend(
        samples
            .iter()
            .rev()
            .max_by_key(|sample| timeline.reserved[**sample as usize]),
    );
    kept.extend(
        timeline
            .borders
            .iter()
            .map(|border| border.sample)
            .filter(|sample| (*sample as usize) < count),
    );
    let group = count.div_ceil((most / 2).max(1));
    for group in samples.chunks(group) {
        kept.extend(group.iter().min_by_key(live));
        kept.extend(group.iter().rev().max_by_key(live));
    }
    kept.sort_unstable();
    kept.dedup();
    kept
}

/// A phase of a step, from its first sample to that of the next.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Span {
    pub(super) from: usize,
    pub(super) to: usize,
    pub(super) step: Option<u32>,
    pub(super) phase: Phase,
}

/// All phases, in order.
pub(super) fn spans(timeline: &Timeline) -> Vec<Span> {
    let borders = &timeline.borders;
    let ends = borders.iter().skip(1).map(|next| next.sample as usize);
    borders
        .iter()
        .zip(ends.chain([timeline.live.len()]))
        .map(|(border, to)| Span {
            from: border.sample as usize,
            to,
            step: border.step,
            phase: border.phase,
        })
        .collect()
}

/// Where and how the memory ran out, as what follows "out of memory".
pub(super) fn out_of_memory(explanation: &Explanation) -> Option<String> {
    let oom = explanation.run.oom.as_ref()?;
    let mut text = format!("in the {} pass", words::pass_name(oom.pass));
    if let Some(step) = oom.step {
        text += &format!(", step {step}");
    }
    if let Some(phase) = oom.phase {
        text += &format!(", {}", super::palette::phase(phase).label);
    }
    text += &match (oom.requested, &oom.function) {
        (Some(requested), _) => format!(": {requested} ({} B) asked for", requested.0),
        (None, Some(function)) => format!(": {function} had no room"),
        (None, None) => ": no room".to_owned(),
    };
    text += &format!(" where {} were left and {} reserved", oom.available, oom.reserved);
    for fact in super::refused::facts(&explanation.run, oom) {
        text += &format!("; {fact}");
    }
    if let Some(kernel) = &oom.kernel {
        text += &format!("; at kernel {}", words::kernel_name(kernel));
    }
    Some(text)
}

/// A phase's place: `step 1 · forward`.
pub(super) fn place(step: Option<u32>, phase: Phase) -> String {
    let phase = super::palette::phase(phase).label;
    step.map_or_else(|| phase.to_owned(), |step| format!("step {step} · {phase}"))
}

/// The most reserved in the passes that were run with the plan: what is drawn, and what is judged.
pub(super) fn reserved(explanation: &Explanation) -> Bytes {
    let warm = explanation.run.peaks.warm.reserved;
    let drawn = explanation.timeline.reserved.iter().max().copied();
    warm.max(drawn).unwrap_or(explanation.peak.reserved)
}
