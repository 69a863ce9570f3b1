//! What all pictures of an explanation share: their input, the limits, and which moments are drawn if there is no room
//! for all.

use serde::Serialize;

use crate::bytes::Bytes;
use crate::explain::{Explanation, MemoryTimeline};
use crate::report::{Metric, Phase, words};
use crate::untrusted::clean;

/// A limit that a picture draws as a line.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct DrawnLimit {
    /// The label, usually the limit's place: `budgets.yaml:12`.
    pub label: String,
    /// The metric that is limited.
    pub metric: Metric,
    /// The most bytes that the limit allows.
    pub bytes: Bytes,
}

/// An explanation with its name and limits. It must have passed [`Explanation::check`].
#[derive(Debug, Clone, Copy)]
pub struct ShownExplanation<'a> {
    /// A name besides the model's name: the file, or `before` and `after`.
    pub name: Option<&'a str>,
    /// The explanation to draw.
    pub explanation: &'a Explanation,
    /// The limits of the model.
    pub limits: &'a [DrawnLimit],
}

impl<'a> ShownExplanation<'a> {
    /// Wraps an explanation, without a name and without limits.
    #[must_use]
    pub const fn new(explanation: &'a Explanation) -> Self {
        Self {
            name: None,
            explanation,
            limits: &[],
        }
    }
}

/// Selects about `most` samples to draw.
///
/// Keeps the lowest and the highest live memory of each group of neighbours, and every moment that must be exact: the
/// ends, the peaks and the borders of phases. The samples are in order and unique.
pub(super) fn thinned(explanation: &Explanation, most: usize) -> Vec<u32> {
    let timeline = &explanation.timeline;
    let count = timeline.live.len();
    // `Explanation::check` refuses more samples than that.
    let all = 0..u32::try_from(count).unwrap_or(u32::MAX);
    if count <= most {
        return all.collect();
    }
    let samples: Vec<u32> = all.collect();
    let mut kept = vec![0, samples[count - 1], explanation.peak.sample];
    let live = |sample: &&u32| timeline.live[**sample as usize];
    // Reversed, because `max_by_key` returns the last of equals, and the first is wanted.
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
    // Two samples per group. A mean would be one, but it would show a moment that never happened.
    // See docs/design/html-page.md.
    let group = count.div_ceil((most / 2).max(1));
    for group in samples.chunks(group) {
        kept.extend(group.iter().min_by_key(live));
        kept.extend(group.iter().rev().max_by_key(live));
    }
    kept.sort_unstable();
    kept.dedup();
    kept
}

/// A phase of a step: from its first sample to the first sample of the next phase.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct PhaseSpan {
    pub(super) from: usize,
    pub(super) to: usize,
    pub(super) step: Option<u32>,
    pub(super) phase: Phase,
}

/// Returns all phases, in order.
pub(super) fn spans(timeline: &MemoryTimeline) -> Vec<PhaseSpan> {
    let borders = &timeline.borders;
    let ends = borders.iter().skip(1).map(|next| next.sample as usize);
    borders
        .iter()
        .zip(ends.chain([timeline.live.len()]))
        .map(|(border, to)| PhaseSpan {
            from: border.sample as usize,
            to,
            step: border.step,
            phase: border.phase,
        })
        .collect()
}

/// Describes where and how the memory ran out. The text follows the words "out of memory".
pub(super) fn out_of_memory(explanation: &Explanation) -> Option<String> {
    // The text is not clean yet: each format cleans all of it, and cuts it to its own length.
    let oom = explanation.run.oom.as_ref()?;
    let mut text = format!("in the {} pass", words::pass_name(oom.pass));
    if let Some(step) = oom.step {
        text += &format!(", step {step}");
    }
    if let Some(phase) = oom.phase {
        text += &format!(", {}", super::palette::phase(phase).label);
    }
    text += &match (oom.requested, &oom.function) {
        (Some(requested), _) => format!(": tried to allocate {requested} ({} B)", requested.0),
        (None, Some(function)) => format!(": {function} failed"),
        (None, None) => ": an allocation failed".to_owned(),
    };
    text += &format!(" with {} free and {} reserved", oom.available, oom.reserved);
    for fact in super::refused::facts(&explanation.run, oom) {
        text += &format!("; {fact}");
    }
    if let Some(kernel) = &oom.kernel {
        text += &format!("; at kernel {}", clean(words::kernel_name(kernel.raw())));
    }
    Some(text)
}

/// Formats a step and a phase: `step 1 · forward`.
pub(super) fn place(step: Option<u32>, phase: Phase) -> String {
    let phase = super::palette::phase(phase).label;
    step.map_or_else(|| phase.to_owned(), |step| format!("step {step} · {phase}"))
}

/// Returns the peak of reserved memory over the warm pass and the timeline, so over what is checked and what is drawn.
pub(super) fn reserved(explanation: &Explanation) -> Bytes {
    // On a real GPU, the observed pass is not the warm pass, so the two can differ.
    // See docs/design/passes.md.
    let warm = explanation.run.peaks.warm.reserved;
    let drawn = explanation.timeline.reserved.iter().max().copied();
    warm.max(drawn).unwrap_or(explanation.peak.reserved)
}

/// Returns one limit that is exceeded and one that is not.
#[cfg(test)]
pub(crate) fn limits(explanation: &Explanation) -> Vec<DrawnLimit> {
    let limit = |metric, bytes| DrawnLimit {
        label: "budgets.yaml:4".to_owned(),
        metric,
        bytes: Bytes(bytes),
    };
    vec![
        limit(Metric::Live, explanation.peak.live.0 * 9 / 10),
        limit(Metric::Reserved, explanation.peak.reserved.0 * 11 / 10),
    ]
}
