//! The module that each tensor belongs to, and the line that asked for it.

use std::collections::{BTreeSet, HashMap};

use super::calls::Calls;
use super::categories::CategoryOrigin;
use super::layers::{self, CalledLayer, Modules};
use super::trace::ReadTrace;
use super::types::SourceLocation;

/// The module that each tensor belongs to, and the line that asked for it.
pub(super) struct TensorSources {
    /// Per tensor: the path of the module, and whether it was inferred.
    pub(super) modules: HashMap<u64, (String, bool)>,
    /// Per tensor: the stack of the user's lines that led to it, as an index into `stacks`.
    pub(super) stack_of: HashMap<u64, usize>,
    /// The user's lines, the innermost first. No stack is empty, and each one is there once.
    pub(super) stacks: Vec<Vec<SourceLocation>>,
}

impl TensorSources {
    pub(super) fn new(
        trace: &ReadTrace,
        modules: &Modules,
        rows: &[CalledLayer],
        calls: &mut Calls<'_>,
        origins: &HashMap<u64, CategoryOrigin<'_>>,
        gradients: &HashMap<u64, u64>,
    ) -> Self {
        let mut known: HashMap<u64, (String, bool)> = HashMap::new();
        // What the model itself says comes first: later entries never replace it.
        let own = trace.belongs.keys().map(|tensor| (tensor, tensor));
        for (tensor, named) in own.chain(gradients) {
            let belongs = &trace.belongs[named];
            known.insert(*tensor, (layers::parent(&belongs.path).to_owned(), false));
        }
        // Every step has tensors with new numbers, so the rows of the first step are not enough.
        let steps: BTreeSet<u32> = trace.operations.iter().filter_map(|operation| operation.at.0).collect();
        let mut note = |rows: &[CalledLayer]| {
            for row in rows {
                for made in row
                    .operations
                    .iter()
                    .flat_map(|index| &trace.operations[*index].outputs)
                {
                    known.entry(made.id).or_insert_with(|| (row.path.clone(), row.inferred));
                }
            }
        };
        // The rows of the first step are known already.
        note(rows);
        for step in steps.into_iter().skip(1) {
            note(&layers::rows(trace, modules, calls, step));
        }
        // If nothing else is known, a tensor belongs to the module of its operation's first input with a known module.
        for operation in &trace.operations {
            let given = operation.inputs.iter().find_map(|input| known.get(input).cloned());
            if let Some((path, _)) = given {
                for made in &operation.outputs {
                    known.entry(made.id).or_insert_with(|| (path.clone(), true));
                }
            }
        }
        let (stack_of, stacks) = stacks(calls, origins);
        Self {
            modules: known,
            stack_of,
            stacks,
        }
    }

    /// Returns the user's line that asked for a tensor.
    pub(super) fn source(&self, tensor: u64) -> Option<&SourceLocation> {
        self.stacks[*self.stack_of.get(&tensor)?].first()
    }
}

/// Returns the stack of each tensor, and the stacks in the order in which their tensors were made.
fn stacks(
    calls: &mut Calls<'_>,
    origins: &HashMap<u64, CategoryOrigin<'_>>,
) -> (HashMap<u64, usize>, Vec<Vec<SourceLocation>>) {
    let mut in_order: Vec<_> = origins.iter().collect();
    // The map has no order of its own, and two explanations of one model must be equal.
    in_order.sort_unstable_by_key(|(tensor, origin)| (origin.number, **tensor));
    let mut stacks: Vec<Vec<SourceLocation>> = Vec::new();
    let mut known: HashMap<Vec<SourceLocation>, usize> = HashMap::new();
    let mut stack_of = HashMap::new();
    for (tensor, origin) in in_order {
        let call = calls.of(origin.operation);
        let Some(source) = call.source else { continue };
        let stack: Vec<_> = std::iter::once(source).chain(call.callers).collect();
        let number = *known.entry(stack).or_insert_with_key(|stack| {
            stacks.push(stack.clone());
            stacks.len() - 1
        });
        stack_of.insert(*tensor, number);
    }
    (stack_of, stacks)
}
