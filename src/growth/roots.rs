//! Finds the first change behind each tensor that grew: a wider layer makes its activations, its gradients and the next
//! layer's parameters larger, too.

use std::collections::{BTreeMap, BTreeSet};

use super::pairs::TensorPairs;
use crate::explain::{Category, Explanation, SourceLocation, TensorLife};
use crate::untrusted::Foreign;

/// The first change behind the growth of tensors.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum GrowthRoot {
    /// This tensor, an index into the list with the change, is the first one of another size.
    Resized(usize),
    /// A module, by path, that only the model with the change has.
    NewModule(String),
    /// State of the optimizer that was not there before.
    NewState,
    /// New tensors that one line asked for.
    New(TensorOrigin),
    /// Tensors of one line that now exist at the peak.
    Kept(TensorOrigin),
    /// A module, by path, that only the model before the change has.
    RemovedModule(String),
    /// Tensors of one line that no longer exist, or not at the peak.
    Gone(TensorOrigin),
}

/// The kinds of roots that are shown as one cause if they have one line.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum RootKind {
    /// Tensors that are new.
    New,
    /// Tensors that exist at another moment. What one side frees earlier and the other keeps is often one tensor.
    Moment,
}

impl GrowthRoot {
    /// Returns the kind of a root that can share its cause; `None` if it has a cause of its own.
    pub(super) const fn kind(&self) -> Option<RootKind> {
        match self {
            Self::New(_) | Self::NewModule(_) => Some(RootKind::New),
            Self::Kept(_) | Self::Gone(_) => Some(RootKind::Moment),
            Self::Resized(_) | Self::NewState | Self::RemovedModule(_) => None,
        }
    }
}

/// The line and the operation that tensors come from.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct TensorOrigin {
    pub(super) source: Option<SourceLocation>,
    pub(super) operation: String,
}

impl TensorOrigin {
    fn new(tensor: &TensorLife) -> Self {
        Self {
            source: tensor.source.clone(),
            operation: tensor.operation.raw().to_owned(),
        }
    }
}

/// The bytes that a tensor, or a pair, has at the two peaks.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct HeldPair {
    /// The tensor before the change, if it exists at that peak.
    pub(super) before: Option<usize>,
    /// The tensor with the change, if it exists at that peak.
    pub(super) after: Option<usize>,
    /// The bytes at the peak with the change minus those before.
    pub(super) change: i64,
}

impl HeldPair {
    /// Returns the tensor with the change or, if only the other peak has it, the one before the change.
    pub(super) fn tensor<'a>(&self, before: &'a Explanation, after: &'a Explanation) -> &'a TensorLife {
        match (self.after, self.before) {
            (Some(index), _) => &after.tensors[index],
            // One of the two is set.
            (None, index) => &before.tensors[index.unwrap_or_default()],
        }
    }
}

/// Returns the tensors of both peaks, the pairs among them as one. Their changes add up to the difference of the bytes
/// that the two peaks hold in tensors.
pub(super) fn held(before: &Explanation, after: &Explanation, pairs: &TensorPairs) -> Vec<HeldPair> {
    let there: BTreeSet<usize> = indices(before).collect();
    let mut paired = BTreeSet::new();
    let mut held = Vec::new();
    for index in indices(after) {
        let other = pairs.before[index].filter(|other| there.contains(other));
        paired.extend(other);
        let bytes = other.map_or_else(Default::default, |other| before.tensors[other].bytes);
        held.push(HeldPair {
            before: other,
            after: Some(index),
            change: after.tensors[index].bytes.less(bytes),
        });
    }
    let gone = there.into_iter().filter(|index| !paired.contains(index));
    held.extend(gone.map(|index| HeldPair {
        before: Some(index),
        after: None,
        change: -before.tensors[index].bytes.less(Default::default()),
    }));
    held.retain(|pair| pair.change != 0);
    held
}

fn indices(explanation: &Explanation) -> impl Iterator<Item = usize> {
    let held = explanation.peak.tensors.iter().map(|index| *index as usize);
    held.filter(|index| explanation.tensors[*index].bytes.0 > 0)
}

/// Two different sizes of one dimension, or two element types.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum SizeChange {
    /// A dimension, before and with the change.
    Dimension(u64, u64),
    /// The element type, before and with the change.
    Dtype(String, String),
}

impl SizeChange {
    /// Returns the ratio in lowest terms, which products of the dimension share: 32 → 64 and 4096 → 8192.
    pub(super) fn ratio(&self) -> Option<(u64, u64)> {
        let Self::Dimension(before, after) = self else {
            return None;
        };
        let divisor = divisor(*before, *after).max(1);
        Some((before / divisor, after / divisor))
    }

    /// Returns the size of the dimension before the change.
    pub(super) const fn size(&self) -> Option<u64> {
        match self {
            Self::Dimension(before, _) => Some(*before),
            Self::Dtype(..) => None,
        }
    }

    /// Returns how far the two sizes are apart, as a fraction that is at least 1.
    fn distance(&self) -> (u64, u64) {
        match self {
            Self::Dimension(before, after) => ((*before).max(*after), (*before).min(*after).max(1)),
            // The dimensions decide if there are any.
            Self::Dtype(..) => (1, 1),
        }
    }
}

fn divisor(a: u64, b: u64) -> u64 {
    if b == 0 { a } else { divisor(b, a % b) }
}

/// Returns what differs in size between the two tensors of a pair.
pub(super) fn size_changes(before: &TensorLife, after: &TensorLife) -> Vec<SizeChange> {
    let mut changes = Vec::new();
    if before.shape.len() == after.shape.len() {
        let both = before
            .shape
            .iter()
            .zip(&after.shape)
            .filter(|(before, after)| before != after);
        changes.extend(both.map(|(before, after)| SizeChange::Dimension(*before, *after)));
    }
    let is_known = !before.dtype.is_empty() && !after.dtype.is_empty();
    if is_known && before.dtype != after.dtype {
        changes.push(SizeChange::Dtype(
            before.dtype.raw().to_owned(),
            after.dtype.raw().to_owned(),
        ));
    }
    // The rank changed, or the shape is unknown. The number of elements remains.
    if changes.is_empty() && before.logical != after.logical {
        changes.push(SizeChange::Dimension(before.logical.0, after.logical.0));
    }
    changes
}

/// The roots of all tensors of the explanation with the change.
pub(super) struct GrowthRoots<'a> {
    before: &'a Explanation,
    after: &'a Explanation,
    pairs: &'a TensorPairs,
    /// For each tensor of another size, the first tensor that shows the same change.
    resized: BTreeMap<usize, usize>,
    modules_before: BTreeSet<&'a str>,
    modules_after: BTreeSet<&'a str>,
}

impl<'a> GrowthRoots<'a> {
    pub(super) fn new(before: &'a Explanation, after: &'a Explanation, pairs: &'a TensorPairs) -> Self {
        Self {
            before,
            after,
            pairs,
            resized: resized(before, after, pairs),
            modules_before: modules(before),
            modules_after: modules(after),
        }
    }

    /// Returns the root of a pair that is held at one of the peaks.
    pub(super) fn of(&self, held: &HeldPair) -> GrowthRoot {
        let tensor = held.tensor(self.before, self.after);
        let Some(index) = held.after else {
            return match missing(tensor, &self.modules_after) {
                Some(module) => GrowthRoot::RemovedModule(module),
                None => GrowthRoot::Gone(TensorOrigin::new(tensor)),
            };
        };
        if let Some(root) = self.resized.get(&index) {
            return GrowthRoot::Resized(*root);
        }
        match self.pairs.counterpart(index) {
            Some(_) => GrowthRoot::Kept(TensorOrigin::new(tensor)),
            None => match missing(tensor, &self.modules_before) {
                Some(module) => GrowthRoot::NewModule(module),
                None if tensor.category == Category::OptimizerState => GrowthRoot::NewState,
                None => GrowthRoot::New(TensorOrigin::new(tensor)),
            },
        }
    }
}

/// The first tensor that shows a change in some ratio.
struct RatioRoot {
    /// The size of its dimension before the change.
    size: u64,
    /// Whether it is a parameter.
    is_parameter: bool,
    root: usize,
}

impl RatioRoot {
    /// Whether a dimension of another tensor, which has this size before the change, follows from that of the root.
    ///
    /// A parameter's size does not change the batch, which may be a divisor of it.
    fn explains(&self, size: u64) -> bool {
        size.is_multiple_of(self.size) || !self.is_parameter && self.size.is_multiple_of(size)
    }
}

/// Returns, for each tensor of another size, the first tensor that shows the same change: exactly, or in the same ratio.
fn resized(before: &Explanation, after: &Explanation, pairs: &TensorPairs) -> BTreeMap<usize, usize> {
    let mut exact: BTreeMap<SizeChange, usize> = BTreeMap::new();
    let mut ratios: BTreeMap<(u64, u64), Vec<RatioRoot>> = BTreeMap::new();
    let mut roots = BTreeMap::new();
    for (index, tensor) in after.tensors.iter().enumerate() {
        let Some(other) = pairs.counterpart(index) else {
            continue;
        };
        let is_parameter = matches!(tensor.category, Category::Parameter | Category::Buffer);
        let mut best: Option<(SizeChange, usize)> = None;
        for change in size_changes(&before.tensors[other], tensor) {
            let known = exact.get(&change).copied();
            // Not for a parameter: two layers may be made twice as wide by two edits.
            let by_ratio = || {
                let size = change.size()?;
                let mut roots = ratios.get(&change.ratio()?)?.iter();
                roots
                    .find(|known| !is_parameter && known.explains(size))
                    .map(|known| known.root)
            };
            let root = known.or_else(by_ratio).unwrap_or(index);
            exact.entry(change.clone()).or_insert(root);
            if let (Some(ratio), Some(size)) = (change.ratio(), change.size()) {
                ratios.entry(ratio).or_default().push(RatioRoot {
                    size,
                    is_parameter,
                    root,
                });
            }
            // Of several changed dimensions, the one that changed most made the tensor grow most.
            let is_more = best.as_ref().is_none_or(|(best, _)| {
                let (a, b) = (change.distance(), best.distance());
                u128::from(a.0) * u128::from(b.1) > u128::from(b.0) * u128::from(a.1)
            });
            if is_more {
                best = Some((change, root));
            }
        }
        roots.extend(best.map(|(_, root)| (index, root)));
    }
    roots
}

/// Returns the paths of the modules of an explanation, with the paths of the modules around them.
fn modules(explanation: &Explanation) -> BTreeSet<&str> {
    let layers = explanation.layers.iter().map(|layer| layer.path.raw());
    let tensors = explanation
        .tensors
        .iter()
        .filter_map(|tensor| tensor.module.as_ref().map(Foreign::raw));
    layers.chain(tensors).flat_map(around).collect()
}

/// Returns a path and the paths around it, the outermost first: `a`, `a.b`.
fn around(path: &str) -> impl Iterator<Item = &str> {
    let ends = path.match_indices('.').map(|(at, _)| at);
    ends.chain([path.len()]).map(|end| &path[..end])
}

/// Returns the outermost module of a tensor that is not among these; `None` if all of them are.
fn missing(tensor: &TensorLife, modules: &BTreeSet<&str>) -> Option<String> {
    let path = tensor.module.as_ref().map(Foreign::raw)?;
    around(path).find(|path| !modules.contains(path)).map(str::to_owned)
}
