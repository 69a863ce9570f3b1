//! Growth: finds out why a value of a model grew, from an explanation before the change, one with it, and the lines that
//! the change edits.

mod changes;
mod input;
mod keeping;
mod naming;
mod pairs;
mod parts;
mod roots;
mod syntax;
mod words;

use std::borrow::Cow;
use std::collections::BTreeMap;

pub use changes::SourceChanges;
pub use input::{GrowthInput, ReadSource};
pub use keeping::keepers;

use self::naming::{CauseEvidence, LineNaming, SourceFiles, TracedCause, frames};
use self::pairs::TensorPairs;
use self::roots::{GrowthRoot, GrowthRoots, HeldPair, RootKind};
use crate::explain::{Category, Explanation, SourceLocation};
use crate::report::{GrowthCause, GrowthExplanation, Metric, Pass};
use crate::untrusted::Foreign;

/// Explains why a value grew.
///
/// The tensors at the two peaks of live memory are paired. Each difference belongs to the first change that made it, and
/// each of these causes to one line. What is not in tensors, and what the explanations do not show, has its own parts, so
/// that all views add up to the growth.
#[must_use]
pub fn growth(of: &GrowthInput<'_>) -> GrowthExplanation {
    let GrowthInput { run, before, after, .. } = *of;
    let pairs = TensorPairs::new(before, after);
    let held = roots::held(before, after, &pairs);
    let naming = LineNaming {
        changes: of.changes,
        sources: SourceFiles::new(of.read, after),
    };
    let allocator = parts::allocator(before, after, of.value);
    let explained = after.peak.live.less(before.peak.live) + allocator.iter().map(|part| part.change).sum::<i64>();
    GrowthExplanation {
        package: run.package.clone(),
        model: run.name().to_owned(),
        gpu: run.gpu.id.clone(),
        mode: run.mode,
        pass: of.value.0,
        metric: of.value.1,
        before: of.grown.0,
        after: of.grown.1,
        causes: causes(of, &pairs, &held, &naming),
        categories: parts::categories(before, after),
        layers: parts::layers(before, after),
        lines: parts::lines(before, after, &naming),
        unexplained: of.grown.1.less(of.grown.0) - explained,
        allocator,
        notes: words::notes(before, after).into_iter().map(Into::into).collect(),
        limits: words::limits(before, after).into_iter().map(Into::into).collect(),
    }
}

/// Explains why live memory grew between two explanations; `None` if it did not grow.
///
/// Without git, a line counts as edited if the older explanation has no line with its text.
#[must_use]
pub fn growth_between(before: &Explanation, after: &Explanation) -> Option<GrowthExplanation> {
    fn texts(of: &Explanation) -> impl Iterator<Item = (&str, u32, &str)> {
        of.texts
            .iter()
            .map(|text| (text.file.raw(), text.line, text.text.raw()))
    }
    let grown = (before.peak.live, after.peak.live);
    let changes = SourceChanges::from_texts(texts(before), texts(after));
    (grown.1 > grown.0).then(|| {
        growth(&GrowthInput {
            run: &after.run,
            value: (Pass::Warm, Metric::Live),
            grown,
            before,
            after,
            changes: &changes,
            read: None,
        })
    })
}

/// The tensors with one root.
#[derive(Default)]
struct RootGroup {
    change: i64,
    /// The largest of the group's differences.
    largest: Option<HeldPair>,
}

/// Returns the causes, the largest first. They add up to the difference of live memory at the two peaks.
fn causes(of: &GrowthInput<'_>, pairs: &TensorPairs, held: &[HeldPair], naming: &LineNaming<'_>) -> Vec<GrowthCause> {
    let (before, after) = (of.before, of.after);
    let roots = GrowthRoots::new(before, after, pairs);
    let mut groups: BTreeMap<GrowthRoot, RootGroup> = BTreeMap::new();
    for pair in held {
        let group = groups.entry(roots.of(pair)).or_default();
        group.change += pair.change;
        let size = |pair: &HeldPair| pair.change.unsigned_abs();
        if group.largest.as_ref().is_none_or(|largest| size(largest) < size(pair)) {
            group.largest = Some(*pair);
        }
    }
    let in_tensors: i64 = groups.values().map(|group| group.change).sum();
    let mut causes: Vec<RootedCause> = Vec::new();
    for (root, group) in &groups {
        let Some(largest) = &group.largest else { continue };
        let cause = RootedCause {
            kind: root.kind(),
            is_parameter: largest.tensor(before, after).category == Category::Parameter,
            cause: GrowthCause {
                what: words::what(root, largest, of, pairs, group.change).into(),
                change: group.change,
                place: naming.place(&evidence(root, largest, of, pairs)),
            },
        };
        match causes.iter_mut().find(|other| other.is_same(&cause)) {
            Some(other) => other.join(cause),
            None => causes.push(cause),
        }
    }
    let rest = after.peak.live.less(before.peak.live) - in_tensors;
    let mut causes: Vec<_> = causes.into_iter().map(|rooted| rooted.cause).collect();
    causes.push(GrowthCause {
        what: words::WORKSPACE.into(),
        change: rest,
        place: None,
    });
    causes.retain(|cause| cause.change != 0);
    causes.sort_by_key(|cause| std::cmp::Reverse((cause.change, cause.place.is_some())));
    causes
}

/// A cause, and what is known of its root.
struct RootedCause {
    kind: Option<RootKind>,
    /// Whether its largest tensor is a parameter.
    is_parameter: bool,
    cause: GrowthCause,
}

impl RootedCause {
    /// Whether both are shown as one cause.
    fn is_same(&self, other: &Self) -> bool {
        // Each step of the optimizer replaces the parameters. If the peak is on the other side of such a step, all of
        // them seem to be kept on one side, and gone on the other.
        let is_replaced = |one: &Self| one.kind == Some(RootKind::Moment) && one.is_parameter;
        // Several operations may have one cause: everything that a loss keeps is kept by the same line.
        let has_place = self.cause.place == other.cause.place
            && (self.cause.what == other.cause.what || self.kind.is_some() && self.kind == other.kind);
        has_place || is_replaced(self) && is_replaced(other)
    }

    fn join(&mut self, other: Self) {
        let change = self.cause.change + other.cause.change;
        if other.cause.change.unsigned_abs() > self.cause.change.unsigned_abs() {
            self.cause = other.cause;
        }
        self.cause.change = change;
    }
}

/// Returns what is known about a root, to choose its line.
fn evidence<'a>(
    root: &'a GrowthRoot,
    largest: &HeldPair,
    of: &GrowthInput<'a>,
    pairs: &TensorPairs,
) -> CauseEvidence<'a> {
    let (before, after) = (of.before, of.after);
    let tensor = match root {
        GrowthRoot::Resized(first) => &after.tensors[*first],
        _ => largest.tensor(before, after),
    };
    let sizes = match root {
        GrowthRoot::Resized(first) => pairs.counterpart(*first).map_or_else(Vec::new, |other| {
            roots::size_changes(&before.tensors[other], &after.tensors[*first])
        }),
        _ => Vec::new(),
    };
    let module = match root {
        GrowthRoot::NewModule(path) | GrowthRoot::RemovedModule(path) => Some(path.as_str()),
        _ => tensor.module.as_ref().map(Foreign::raw),
    };
    let is_parameter = matches!(tensor.category, Category::Parameter | Category::Buffer);
    let kind = match root {
        GrowthRoot::NewModule(_) | GrowthRoot::RemovedModule(_) => TracedCause::Module,
        GrowthRoot::NewState => TracedCause::OptimizerState,
        GrowthRoot::Kept(_) | GrowthRoot::Gone(_) => TracedCause::Kept,
        GrowthRoot::Resized(_) | GrowthRoot::New(_) if is_parameter => TracedCause::Parameter,
        GrowthRoot::Resized(_) | GrowthRoot::New(_) => TracedCause::Tensor,
    };
    let computing = module
        .filter(|_| is_parameter)
        .and_then(|module| computing(after, module));
    let frames = match (largest.after.is_some(), computing) {
        (true, Some(computing)) => [frames(after, tensor), computing].concat().into(),
        (true, None) => Cow::Borrowed(frames(after, tensor)),
        // Lines before the change are looked up at their place with the change.
        (false, _) => frames(before, tensor)
            .iter()
            .filter_map(|frame| moved(of.changes, frame))
            .collect(),
    };
    CauseEvidence {
        frames,
        sizes,
        module,
        kind,
    }
}

/// Returns the lines that led to the first tensor that a module computes; `None` if none is known.
///
/// They say where the module is. Burn makes a parameter when it is first used, so its own lines are those of the training.
fn computing<'a>(of: &'a Explanation, module: &str) -> Option<&'a [SourceLocation]> {
    let computed = of.tensors.iter().filter(|tensor| {
        tensor.module.as_ref().map(Foreign::raw) == Some(module)
            && !matches!(tensor.category, Category::Parameter | Category::Buffer)
    });
    computed
        .map(|tensor| frames(of, tensor))
        .find(|frames| !frames.is_empty())
}

/// Returns the place with the change of a line before it; `None` if the line was removed.
fn moved(changes: &SourceChanges, frame: &SourceLocation) -> Option<SourceLocation> {
    let (file, line) = changes.moved(frame.file.raw(), frame.line)?;
    Some(SourceLocation {
        file: file.into(),
        line,
        ..frame.clone()
    })
}

#[cfg(test)]
mod tests;
