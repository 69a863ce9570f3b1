//! What each tensor is for, and how many bytes are held for what at each sample.

use std::collections::HashMap;

use super::bare;
use super::memory::{Life, Memory};
use super::trace::{Operation, Trace};
use super::types::Category;
use crate::protocol::{Made, Phase};

/// A tensor as its operation made it.
#[derive(Clone, Copy)]
pub(super) struct Origin<'a> {
    pub(super) operation: &'a Operation,
    /// The operation's number, from 1.
    pub(super) number: u64,
    pub(super) made: &'a Made,
}

/// Where each tensor is from.
pub(super) fn origins(trace: &Trace) -> HashMap<u64, Origin<'_>> {
    let mut origins = HashMap::new();
    for (index, operation) in trace.operations.iter().enumerate() {
        for made in &operation.outputs {
            // An operation may hand on the tensor that it was given.
            origins.entry(made.id).or_insert(Origin {
                operation,
                number: index as u64 + 1,
                made,
            });
        }
    }
    // What Burn makes on its way has a number between those of the operation before and of the operation itself.
    let mut last: Vec<(u64, usize)> = Vec::new();
    for (index, operation) in trace.operations.iter().enumerate() {
        let newest = operation.outputs.iter().map(|made| made.id).max();
        let newest = newest.filter(|newest| last.last().is_none_or(|(before, _)| before < newest));
        last.extend(newest.map(|newest| (newest, index)));
    }
    for made in &trace.inner {
        let at = last.partition_point(|(newest, _)| *newest < made.id);
        if let Some((_, index)) = last.get(at) {
            origins.entry(made.id).or_insert(Origin {
                operation: &trace.operations[*index],
                number: *index as u64 + 1,
                made,
            });
        }
    }
    origins
}

/// Adds tensors that no operation makes and that have another one's memory: another thread of the program's uses them under a number
/// of their own.
pub(super) fn with_aliases<'a>(memory: &Memory, mut origins: HashMap<u64, Origin<'a>>) -> HashMap<u64, Origin<'a>> {
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

/// What each of the tensors is for.
pub(super) fn categories(
    trace: &Trace,
    memory: &Memory,
    origins: &HashMap<u64, Origin<'_>>,
    gradients: &HashMap<u64, u64>,
) -> Vec<Category> {
    let borders = Borders::of(trace);
    // In inference nothing receives a gradient, so that does not tell parameters from running statistics.
    let learns = trace.belongs.values().any(|belongs| belongs.learnable);
    let of = |tensor: &Life| match category(trace, &borders, tensor, origins.get(&tensor.id)) {
        Category::Buffer if !learns && trace.belongs.contains_key(&tensor.id) => Category::Parameter,
        Category::ActivationGradient if gradients.contains_key(&tensor.id) => Category::Gradient,
        category => category,
    };
    memory.tensors.iter().map(of).collect()
}

/// Operations that keep every value, in another shape, order or element type.
const SAME_VALUES: [&str; 4] = ["reshape", "swap_dims", "permute", "cast"];
/// Operations that make what others add to.
const BLANK: [&str; 2] = ["zeros", "full"];

/// Tensors that serve nothing but a parameter's gradient: the matrix product that is then looked at in another shape, the half-precision
/// gradient that is cast, the zeros that rows are added to. By each of these, and by each gradient: the gradient.
pub(super) fn becoming_gradients(trace: &Trace) -> HashMap<u64, u64> {
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
    for operation in backward.rev() {
        let made = operation.outputs.iter();
        let Some(gradient) = made.filter_map(|made| gradients.get(&made.id)).next().copied() else {
            continue;
        };
        let keeps = SAME_VALUES.contains(&bare(&operation.name));
        let becomes = |id: &&u64| uses.get(*id) == Some(&1) && (keeps || is_blank.get(*id) == Some(&true));
        let becoming = operation.inputs.iter().filter(becomes);
        for id in becoming {
            gradients.entry(*id).or_insert(gradient);
        }
    }
    gradients
}

fn category(trace: &Trace, borders: &Borders, tensor: &Life, origin: Option<&Origin<'_>>) -> Category {
    if let Some(belongs) = trace.belongs.get(&tensor.id) {
        // The first momentum is the gradient itself.
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
        Phase::Forward => Category::Activation,
        Phase::Backward => Category::ActivationGradient,
        // What is there when the next step is under way was made to stay.
        Phase::Optimizer if borders.outlives(tensor, step) => Category::OptimizerState,
        Phase::Model | Phase::Context if borders.outlives(tensor, step) => Category::Buffer,
        Phase::Optimizer | Phase::Model | Phase::Context => Category::Workspace,
    }
}

/// With which operation each step comes to its optimizer: what an earlier step did not mean to keep is gone by then, even where fusion
/// put off what uses it.
struct Borders(HashMap<u32, u64>);

impl Borders {
    fn of(trace: &Trace) -> Self {
        let numbered = trace.operations.iter().zip(1..);
        let before = numbered.filter(|(operation, _)| matches!(operation.at.1, Phase::Forward | Phase::Backward));
        Self(
            before
                .filter_map(|(operation, number)| Some((operation.at.0?, number)))
                .collect(),
        )
    }

    fn outlives(&self, tensor: &Life, step: Option<u32>) -> bool {
        let (Some(after), Some(steps)) = (tensor.gone_after, tensor.gone_steps) else {
            return true;
        };
        let next = step.map_or(0, |step| step + 1);
        match self.0.get(&next) {
            Some(end) => after >= *end,
            // It was the last step.
            None => steps >= next,
        }
    }
}

fn live() -> impl Iterator<Item = Category> {
    Category::ALL.into_iter().filter(|category| category.is_live())
}

/// Bytes by category, in the order of [`Category::ALL`], at each sample: they add up to live.
pub(super) fn over_time(
    memory: &Memory,
    categories: &[Category],
    origins: &HashMap<u64, Origin<'_>>,
) -> Vec<(Category, Vec<u64>)> {
    let samples = memory.samples.len();
    let mut changes: HashMap<Category, Vec<i64>> = live().map(|one| (one, vec![0; samples + 1])).collect();
    let mut add = |category: Category, from: usize, to: usize, bytes: u64| {
        let bytes = i64::try_from(bytes).unwrap_or(i64::MAX);
        if let Some(changes) = changes.get_mut(&category).filter(|_| from < to) {
            changes[from] += bytes;
            changes[to] -= bytes;
        }
    };
    for piece in &memory.pieces {
        let end = piece.died.unwrap_or(samples);
        if piece.holders.is_empty() {
            add(Category::Workspace, piece.born, end, piece.bytes);
        }
        for (number, (from, holders)) in piece.holders.iter().enumerate() {
            let to = piece.holders.get(number + 1).map_or(end, |(next, _)| (*next).min(end));
            let category = holders.iter().map(|tensor| categories[*tensor]).min();
            let logical = holders
                .iter()
                .filter_map(|tensor| origins.get(&memory.tensors[*tensor].id))
                .map(|origin| origin.made.bytes)
                .max()
                .unwrap_or(piece.bytes)
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
        // Whatever was rounded up too far was rounded up: alignment, and only where there is none, something else.
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
