//! Finds, for each tensor of one explanation, the same tensor of the other one.

use std::collections::BTreeMap;

use similar::{Algorithm, DiffOp};

use crate::explain::{Category, Explanation, TensorLife};
use crate::report::Phase;
use crate::untrusted::Foreign;

/// The tensors of two explanations that are the same part of the model, as indices into their lists.
pub(super) struct TensorPairs {
    /// For each tensor with the change, the one before it.
    pub(super) before: Vec<Option<usize>>,
    /// For each tensor before the change, the one with it.
    pub(super) after: Vec<Option<usize>>,
    /// For each tensor with the change that has no pair, the same tensor of another step before the change.
    others: Vec<Option<usize>>,
}

/// What two tensors must have in common to be a pair, whatever their size.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
struct PairKey<'a> {
    /// The step, counted from the step of the peak; `None` for tensors that stay from step to step.
    step: Option<i64>,
    phase: Phase,
    module: &'a str,
    operation: &'a str,
}

impl PairKey<'_> {
    fn without_step(self) -> Self {
        Self { step: None, ..self }
    }
}

/// What a pair of the same size has in common.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
struct TensorSize<'a> {
    shape: &'a [u64],
    dtype: &'a str,
    bytes: u64,
}

impl TensorPairs {
    pub(super) fn new(before: &Explanation, after: &Explanation) -> Self {
        let mut pairs = Self {
            before: vec![None; after.tensors.len()],
            after: vec![None; before.tensors.len()],
            others: vec![None; after.tensors.len()],
        };
        let (old, new) = (groups(before, true), groups(after, true));
        for (key, new) in &new {
            if let Some(old) = old.get(key) {
                pairs.align((before, old), (after, new));
            }
        }
        // A renamed module has the same operations and sizes under another name.
        let (old, new) = (groups(before, false), groups(after, false));
        for (key, new) in &new {
            let rest = |tensors: &[usize], known: &[Option<usize>]| -> Vec<usize> {
                tensors
                    .iter()
                    .copied()
                    .filter(|tensor| known[*tensor].is_none())
                    .collect()
            };
            let Some(old) = old.get(key) else { continue };
            let (old, new) = (rest(old, &pairs.after), rest(new, &pairs.before));
            pairs.align_equal((before, &old), (after, &new));
        }
        pairs.find_others(before, after);
        pairs
    }

    /// Returns the tensor before the change that a tensor is the same as, in this step or in another one.
    pub(super) fn counterpart(&self, after: usize) -> Option<usize> {
        self.before[after].or(self.others[after])
    }

    /// Finds tensors that are there in more steps than before: those of a step that the other side does not have at the
    /// same distance from its peak.
    fn find_others(&mut self, before: &Explanation, after: &Explanation) {
        let old = groups(before, true);
        // The groups are sorted by step, so the first one is of the earliest step.
        let mut earliest: BTreeMap<PairKey<'_>, &Vec<usize>> = BTreeMap::new();
        for (key, tensors) in old.iter().filter(|(key, _)| key.step.is_some()) {
            earliest.entry(key.without_step()).or_insert(tensors);
        }
        for (key, new) in groups(after, true) {
            if key.step.is_none() || old.contains_key(&key) {
                continue;
            }
            let Some(old) = earliest.get(&key.without_step()) else {
                continue;
            };
            for (old, new) in old.iter().zip(new) {
                if self.before[new].is_some() {
                    continue;
                }
                // A tensor that is made once has its step as the only difference.
                match self.after[*old] {
                    None => self.pair(*old, new),
                    Some(_) => self.others[new] = Some(*old),
                }
            }
        }
    }

    fn pair(&mut self, before: usize, after: usize) {
        self.before[after] = Some(before);
        self.after[before] = Some(after);
    }

    /// Pairs the tensors of one module and operation, in the order in which they came.
    fn align(&mut self, (before, old): (&Explanation, &[usize]), (after, new): (&Explanation, &[usize])) {
        if old.len() == new.len() || is_too_large(old, new) {
            old.iter().zip(new).for_each(|(old, new)| self.pair(*old, *new));
            return;
        }
        let (sizes_old, sizes_new) = (sizes_of(before, old), sizes_of(after, new));
        for part in similar::capture_diff_slices(Algorithm::Myers, &sizes_old, &sizes_new) {
            let (old_range, new_range) = match part {
                DiffOp::Equal { .. } | DiffOp::Replace { .. } => (part.old_range(), part.new_range()),
                DiffOp::Delete { .. } | DiffOp::Insert { .. } => continue,
            };
            let both = old[old_range].iter().zip(&new[new_range]);
            both.for_each(|(old, new)| self.pair(*old, *new));
        }
    }

    /// Pairs only tensors of the same size.
    fn align_equal(&mut self, (before, old): (&Explanation, &[usize]), (after, new): (&Explanation, &[usize])) {
        if is_too_large(old, new) {
            return;
        }
        let (sizes_old, sizes_new) = (sizes_of(before, old), sizes_of(after, new));
        for part in similar::capture_diff_slices(Algorithm::Myers, &sizes_old, &sizes_new) {
            if let DiffOp::Equal { .. } = part {
                let both = old[part.old_range()].iter().zip(&new[part.new_range()]);
                both.for_each(|(old, new)| self.pair(*old, *new));
            }
        }
    }
}

/// Whether two groups have too many tensors to be aligned by size.
const fn is_too_large(old: &[usize], new: &[usize]) -> bool {
    old.len().saturating_mul(new.len()) > MOST_COMPARED
}

/// The most comparisons of two groups. A model has far fewer tensors per module and operation.
const MOST_COMPARED: usize = 4_000_000;

/// Groups the tensors by key, each group in the order in which its tensors came.
fn groups(explanation: &Explanation, by_module: bool) -> BTreeMap<PairKey<'_>, Vec<usize>> {
    let mut groups: BTreeMap<_, Vec<usize>> = BTreeMap::new();
    let peak = explanation.peak.step;
    for (index, tensor) in explanation.tensors.iter().enumerate() {
        let mut key = key(tensor, peak);
        if !by_module {
            key.module = "";
        }
        groups.entry(key).or_default().push(index);
    }
    groups
}

fn key(tensor: &TensorLife, peak: Option<u32>) -> PairKey<'_> {
    let stays = matches!(
        tensor.category,
        Category::Parameter | Category::Buffer | Category::OptimizerState
    );
    let step = tensor.step.filter(|_| !stays);
    PairKey {
        step: step.map(|step| i64::from(step) - i64::from(peak.unwrap_or(0))),
        phase: tensor.phase,
        module: tensor.module.as_ref().map(Foreign::raw).unwrap_or_default(),
        operation: tensor.operation.raw(),
    }
}

fn sizes_of<'a>(explanation: &'a Explanation, tensors: &[usize]) -> Vec<TensorSize<'a>> {
    let size = |tensor: &usize| {
        let tensor = &explanation.tensors[*tensor];
        TensorSize {
            shape: &tensor.shape,
            dtype: tensor.dtype.raw(),
            bytes: tensor.logical.0,
        }
    };
    tensors.iter().map(size).collect()
}
