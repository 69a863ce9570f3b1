//! The category of each tensor, and the bytes of each category at each sample.

use std::collections::HashMap;

use super::memory::{Life, MemoryHistory};
use super::trace::{Operation, ReadTrace, bare};
use super::types::Category;
use crate::protocol::{Made, Phase};

/// A tensor with the operation that made it.
#[derive(Clone, Copy)]
pub(super) struct CategoryOrigin<'a> {
    pub(super) operation: &'a Operation,
    /// The operation's number, from 1.
    pub(super) number: u64,
    pub(super) made: &'a Made,
}

/// Returns the operation that made each tensor.
pub(super) fn origins(trace: &ReadTrace) -> HashMap<u64, CategoryOrigin<'_>> {
    let mut origins = HashMap::new();
    for (index, operation) in trace.operations.iter().enumerate() {
        for made in &operation.outputs {
            // An operation may return a tensor that it was given; the operation that made the tensor comes first.
            origins.entry(made.id).or_insert(CategoryOrigin {
                operation,
                number: index as u64 + 1,
                made,
            });
        }
    }
    // Burn also makes tensors inside an operation. Their numbers lie between the tensors of the operation before and of
    // this one.
    let mut last: Vec<(u64, usize)> = Vec::new();
    for (index, operation) in trace.operations.iter().enumerate() {
        let newest = operation.outputs.iter().map(|made| made.id).max();
        // Only rising numbers, because `partition_point` needs a sorted list.
        let newest = newest.filter(|newest| last.last().is_none_or(|(before, _)| before < newest));
        last.extend(newest.map(|newest| (newest, index)));
    }
    for made in &trace.inner {
        let at = last.partition_point(|(newest, _)| *newest < made.id);
        if let Some((_, index)) = last.get(at) {
            origins.entry(made.id).or_insert(CategoryOrigin {
                operation: &trace.operations[*index],
                number: *index as u64 + 1,
                made,
            });
        }
    }
    origins
}

/// Adds tensors that no operation makes and that share another tensor's memory: another thread of the program uses that
/// memory under a tensor number of its own.
pub(super) fn with_aliases<'a>(
    memory: &MemoryHistory,
    mut origins: HashMap<u64, CategoryOrigin<'a>>,
) -> HashMap<u64, CategoryOrigin<'a>> {
    for tensor in &memory.tensors {
        let of = tensor
            .shares
            .and_then(|shares| origins.get(&memory.tensors[shares].id).copied());
        if let Some(of) = of {
            origins.entry(tensor.id).or_insert(of);
        }
    }
    origins
}

/// Returns the category of each tensor.
pub(super) fn categories(
    trace: &ReadTrace,
    memory: &MemoryHistory,
    origins: &HashMap<u64, CategoryOrigin<'_>>,
    gradients: &HashMap<u64, u64>,
) -> Vec<Category> {
    let borders = Borders::from_trace(trace);
    // In inference, no parameter receives a gradient, so gradients cannot tell parameters from running statistics.
    let learns = trace.belongs.values().any(|belongs| belongs.learnable);
    let of = |tensor: &Life| match category(trace, &borders, tensor, origins.get(&tensor.id)) {
        Category::Buffer if !learns && trace.belongs.contains_key(&tensor.id) => Category::Parameter,
        Category::ActivationGradient if gradients.contains_key(&tensor.id) => Category::Gradient,
        category => category,
    };
    memory.tensors.iter().map(of).collect()
}

/// Operations that keep every value, in another shape, order or element type.
// Elementwise operations are left out on purpose: in `dy * x`, `dy` is the gradient of an activation. See
// docs/design/categories.md.
const SAME_VALUES: [&str; 4] = ["reshape", "swap_dims", "permute", "cast"];
/// Operations that make tensors to which other operations add.
const BLANK: [&str; 2] = ["zeros", "full"];

/// Finds tensors that only serve a parameter's gradient, and maps each of them, and each gradient, to the gradient.
///
/// Examples are a matrix product that is then reshaped, a half-precision gradient that is cast, and zeros that rows are
/// added to.
pub(super) fn becoming_gradients(trace: &ReadTrace) -> HashMap<u64, u64> {
    let mut uses: HashMap<u64, u32> = HashMap::new();
    for id in trace.operations.iter().flat_map(|operation| &operation.inputs) {
        *uses.entry(*id).or_default() += 1;
    }
    let made = trace.operations.iter().flat_map(|operation| {
        let blank = BLANK.contains(&bare(&operation.name));
        operation.outputs.iter().map(move |made| (made.id, blank))
    });
    let is_blank: HashMap<u64, bool> = made.collect();
    let named = trace.belongs.iter().filter(|(_, belongs)| belongs.gradient);
    let mut gradients: HashMap<u64, u64> = named.map(|(id, _)| (*id, *id)).collect();
    let backward = trace
        .operations
        .iter()
        .filter(|operation| operation.at.1 == Phase::Backward);
    // From the end, so that a chain of operations is followed back from its gradient.
    for operation in backward.rev() {
        let made = operation.outputs.iter();
        let Some(gradient) = made.filter_map(|made| gradients.get(&made.id)).next().copied() else {
            continue;
        };
        let keeps = SAME_VALUES.contains(&bare(&operation.name));
        // A tensor with a second reader serves something else, too, so it keeps its category.
        let becomes = |id: &&u64| uses.get(*id) == Some(&1) && (keeps || is_blank.get(*id) == Some(&true));
        let becoming = operation.inputs.iter().filter(becomes);
        for id in becoming {
            gradients.entry(*id).or_insert(gradient);
        }
    }
    gradients
}

fn category(trace: &ReadTrace, borders: &Borders, tensor: &Life, origin: Option<&CategoryOrigin<'_>>) -> Category {
    if let Some(belongs) = trace.belongs.get(&tensor.id) {
        // The first momentum of an optimizer is the gradient itself.
        let is_kept = || origin.is_some_and(|origin| borders.outlives(tensor, origin.operation.at.0));
        return match (belongs.gradient, belongs.learnable) {
            (true, _) if is_kept() => Category::OptimizerState,
            (true, _) => Category::Gradient,
            (false, true) => Category::Parameter,
            (false, false) => Category::Buffer,
        };
    }
    let Some(origin) = origin else {
        return Category::Unattributed;
    };
    let (step, phase) = origin.operation.at;
    match phase {
        Phase::Batch => Category::Input,
        Phase::Forward | Phase::Training | Phase::Validation | Phase::Between => Category::Activation,
        Phase::Backward => Category::ActivationGradient,
        // A tensor that still exists in the next step was made to stay.
        Phase::Optimizer if borders.outlives(tensor, step) => Category::OptimizerState,
        // Parameters that nobody named count here, too: only their phase is known.
        Phase::Model | Phase::Context if borders.outlives(tensor, step) => Category::Buffer,
        Phase::Optimizer | Phase::Model | Phase::Context => Category::Workspace,
    }
}

/// The number of the last forward or backward operation of each step. A tensor that an earlier step did not mean to
/// keep is gone by then, even if fusion delayed the operations that use it.
struct Borders(HashMap<u32, u64>);

impl Borders {
    fn from_trace(trace: &ReadTrace) -> Self {
        let numbered = trace.operations.iter().zip(1..);
        let before = numbered.filter(|(operation, _)| matches!(operation.at.1, Phase::Forward | Phase::Backward));
        Self(
            before
                .filter_map(|(operation, number)| Some((operation.at.0?, number)))
                .collect(),
        )
    }

    fn outlives(&self, tensor: &Life, step: Option<u32>) -> bool {
        // Nobody saw the tensor go, so it exists to the end.
        let (Some(after), Some(steps)) = (tensor.gone_after, tensor.gone_steps) else {
            return true;
        };
        // What was made before the first step must outlive step 0.
        let next = step.map_or(0, |step| step + 1);
        match self.0.get(&next) {
            Some(end) => after >= *end,
            // There is no next step.
            None => steps >= next,
        }
    }
}

fn live() -> impl Iterator<Item = Category> {
    Category::ALL.into_iter().filter(|category| category.is_live())
}

/// Returns the bytes of each category at each sample, in the order of [`Category::ALL`]. They add up to live memory.
pub(super) fn over_time(
    memory: &MemoryHistory,
    categories: &[Category],
    origins: &HashMap<u64, CategoryOrigin<'_>>,
) -> Vec<(Category, Vec<u64>)> {
    let samples = memory.samples.len();
    // Only the changes, and a running sum at the end: a tensor that lives through a million samples has two
    // entries.
    let mut changes: HashMap<Category, Vec<i64>> = live().map(|one| (one, vec![0; samples + 1])).collect();
    let mut add = |category: Category, from: usize, to: usize, bytes: u64| {
        let bytes = i64::try_from(bytes).unwrap_or(i64::MAX);
        // A piece that comes and goes between two samples is in none of their sums.
        if let Some(changes) = changes.get_mut(&category).filter(|_| from < to) {
            changes[from] += bytes;
            changes[to] -= bytes;
        }
    };
    for piece in &memory.pieces {
        let end = piece.died.unwrap_or(samples);
        // No tensor ever had this piece, so an operation needed it for itself.
        if piece.holders.is_empty() {
            add(Category::Workspace, piece.born, end, piece.bytes);
        }
        for (number, (from, holders)) in piece.holders.iter().enumerate() {
            let to = piece.holders.get(number + 1).map_or(end, |(next, _)| (*next).min(end));
            // `min` takes the category that comes first in the enum: a view of a parameter is still the
            // parameter.
            let category = holders.iter().map(|tensor| categories[*tensor]).min();
            let logical = holders
                .iter()
                .filter_map(|tensor| origins.get(&memory.tensors[*tensor].id))
                .map(|origin| origin.made.bytes)
                .max()
                .unwrap_or(piece.bytes)
                // An expanded view has more elements than its memory has room for. The padding must not
                // underflow.
                .min(piece.bytes);
            add(category.unwrap_or(Category::Unattributed), *from, to, logical);
            add(Category::Alignment, *from, to, piece.bytes - logical);
        }
    }
    let mut series: Vec<(Category, Vec<u64>)> = live()
        .map(|category| {
            let mut sum = 0_i64;
            let changes = changes.remove(&category).unwrap_or_default();
            let bytes = changes[..samples].iter().map(|change| {
                sum += change;
                u64::try_from(sum).unwrap_or(0)
            });
            (category, bytes.collect())
        })
        .collect();
    for (sample, (unknown, over)) in memory.unknown.iter().zip(&memory.over).enumerate() {
        let mut over = *over;
        // Bytes that were rounded up too far come from alignment first, and only then from other categories.
        let alignment_first = |category: &Category| *category != Category::Alignment;
        let mut order: Vec<usize> = (0..series.len()).collect();
        order.sort_by_key(|at| (alignment_first(&series[*at].0), std::cmp::Reverse(*at)));
        for at in order {
            let bytes = &mut series[at].1[sample];
            let less = over.min(*bytes);
            *bytes -= less;
            over -= less;
            if over == 0 {
                break;
            }
        }
        if let Some((_, bytes)) = series
            .iter_mut()
            .find(|(category, _)| *category == Category::Unattributed)
        {
            bytes[sample] += unknown;
        }
    }
    series
}
