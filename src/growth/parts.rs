//! The growth by category, by layer, by source line, and outside of tensors.

use std::collections::BTreeMap;

use super::naming::{LineNaming, frames};
use crate::bytes::Bytes;
use crate::explain::{Category, Explanation, TensorLife};
use crate::report::{GrowthLine, GrowthPart, Metric, Pass};
use crate::untrusted::Foreign;

/// The name of the part for memory of no layer.
const NO_LAYER: &str = "no layer";

/// Returns the growth of each category of live memory. They add up to the growth of live memory at the peak.
pub(super) fn categories(before: &Explanation, after: &Explanation) -> Vec<GrowthPart> {
    let live = Category::ALL.into_iter().filter(|category| category.is_live());
    let parts =
        live.map(|category| GrowthPart::new(category.label().into(), held(before, category), held(after, category)));
    parts.filter(|part| part.change != 0).collect()
}

fn held(explanation: &Explanation, category: Category) -> Bytes {
    let held = explanation
        .peak
        .categories
        .iter()
        .find(|held| held.category == category);
    held.map_or_else(Bytes::default, |held| held.bytes)
}

/// Returns the growth of each layer at the peak: of its parameters, gradients, optimizer state and outputs.
pub(super) fn layers(before: &Explanation, after: &Explanation) -> Vec<GrowthPart> {
    let by_layer = |explanation: &Explanation| {
        sums(explanation, |tensor| {
            tensor.module.clone().unwrap_or_else(|| NO_LAYER.into())
        })
    };
    let rest = |explanation: &Explanation| (Foreign::from(NO_LAYER), in_no_tensor(explanation));
    let parts = both(with(by_layer(before), rest(before)), with(by_layer(after), rest(after)));
    let parts = parts
        .into_iter()
        .map(|(name, (before, after))| GrowthPart::new(name, before, after));
    let mut parts: Vec<_> = parts.collect();
    let missing = missing(before, after, parts.iter().map(|part| part.change).sum());
    let rest = parts.iter_mut().find(|part| part.name == NO_LAYER);
    rest.into_iter().for_each(|part| part.change += missing);
    parts.retain(|part| part.change != 0);
    parts.sort_by_key(|part| std::cmp::Reverse(part.change));
    parts
}

/// Returns the growth of each source line at the peak: of the tensors that its operations made. Lines before the change
/// count for the same line with it.
pub(super) fn lines(before: &Explanation, after: &Explanation, naming: &LineNaming<'_>) -> Vec<GrowthLine> {
    type PlaceKey = Option<(String, u32)>;
    let innermost = |explanation: &Explanation, tensor: &TensorLife| -> PlaceKey {
        let frame = frames(explanation, tensor).first()?;
        Some((frame.file.raw().to_owned(), frame.line))
    };
    let old = sums(before, |tensor| {
        let (file, line) = innermost(before, tensor)?;
        naming.changes.moved(&file, line)
    });
    let new = sums(after, |tensor| innermost(after, tensor));
    let sides = both(
        with(old, (None, in_no_tensor(before))),
        with(new, (None, in_no_tensor(after))),
    );
    let mut lines: Vec<_> = sides
        .into_iter()
        .map(|(line, (old, new))| GrowthLine {
            place: line.map(|(file, line)| naming.shown(file, line)),
            before: old,
            after: new,
            change: new.less(old),
        })
        .collect();
    let missing = missing(before, after, lines.iter().map(|line| line.change).sum());
    let rest = lines.iter_mut().find(|line| line.place.is_none());
    rest.into_iter().for_each(|line| line.change += missing);
    lines.retain(|line| line.change != 0);
    lines.sort_by_key(|line| std::cmp::Reverse(line.change));
    lines
}

/// Adds up the bytes of the tensors at the peak by a key.
fn sums<K: Ord>(explanation: &Explanation, key: impl Fn(&TensorLife) -> K) -> BTreeMap<K, Bytes> {
    let mut sums: BTreeMap<K, Bytes> = BTreeMap::new();
    for index in &explanation.peak.tensors {
        let tensor = &explanation.tensors[*index as usize];
        let sum = sums.entry(key(tensor)).or_default();
        *sum += tensor.bytes;
    }
    sums
}

fn with<K: Ord>(mut sums: BTreeMap<K, Bytes>, (key, bytes): (K, Bytes)) -> BTreeMap<K, Bytes> {
    let sum = sums.entry(key).or_default();
    *sum += bytes;
    sums
}

/// Returns by how much more the growth of live memory is than that of these parts. Tensors are rounded up, so that they
/// may add up to more than live memory.
fn missing(before: &Explanation, after: &Explanation, parts: i64) -> i64 {
    after.peak.live.less(before.peak.live) - parts
}

/// Returns the live bytes at the peak that no tensor has.
fn in_no_tensor(explanation: &Explanation) -> Bytes {
    let tensors = explanation.peak.tensors.iter();
    let held: u64 = tensors.map(|index| explanation.tensors[*index as usize].bytes.0).sum();
    explanation.peak.live.saturating_sub(Bytes(held))
}

fn both<K: Ord>(before: BTreeMap<K, Bytes>, after: BTreeMap<K, Bytes>) -> BTreeMap<K, (Bytes, Bytes)> {
    let mut both: BTreeMap<K, (Bytes, Bytes)> = BTreeMap::new();
    for (key, bytes) in before {
        both.entry(key).or_default().0 = bytes;
    }
    for (key, bytes) in after {
        both.entry(key).or_default().1 = bytes;
    }
    both
}

/// Returns the growth between live memory at the peak and the value that is explained.
pub(super) fn allocator(before: &Explanation, after: &Explanation, (pass, metric): (Pass, Metric)) -> Vec<GrowthPart> {
    let warm = |of: &Explanation, metric| of.run.peaks.warm.get(metric);
    let mut parts = Vec::new();
    let mut add = |name: &str, over: &dyn Fn(&Explanation) -> Option<(Bytes, Bytes)>| {
        parts.extend(part(name, over(before), over(after)));
    };
    if metric != Metric::Live {
        add("unused parts of pages (fragmentation)", &|of| {
            Some((of.peak.reserved, of.peak.live))
        });
        add("pages taken at another moment than the peak of live memory", &|of| {
            Some((warm(of, Metric::Reserved)?, of.peak.reserved))
        });
    }
    if metric == Metric::Process {
        add("CUDA context and kernels", &|of| {
            Some((warm(of, Metric::Process)?, warm(of, Metric::Reserved)?))
        });
    }
    if pass == Pass::Cold {
        add("the cold pass, which autotunes", &|of| {
            Some((of.run.peaks.cold.get(metric)?, warm(of, metric)?))
        });
    }
    parts
}

/// Creates a part from the larger and the smaller value on each side; `None` if it did not change or is unknown.
fn part(name: &str, before: Option<(Bytes, Bytes)>, after: Option<(Bytes, Bytes)>) -> Option<GrowthPart> {
    let over = |(more, less): (Bytes, Bytes)| more.less(less);
    let (before, after) = (over(before?), over(after?));
    // A part is usually positive. If one is negative, only the difference has a meaning.
    let bytes = |over: i64| Bytes(u64::try_from(over).unwrap_or(0));
    (before != after).then(|| GrowthPart {
        name: name.into(),
        before: bytes(before),
        after: bytes(after),
        change: after - before,
    })
}
