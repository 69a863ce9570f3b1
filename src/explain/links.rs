//! Links each backward operation to its forward call.
//!
//! `loss.backward()` asks for all backward operations, so their own stacks do not show where a gradient comes from.
//! Other facts do: the names of autodiff's functions on both stacks, the tensors that the forward phase saved, and the
//! tensor that each gradient belongs to.
//!
//! One step of autodiff is one or several operations, which form a group. If no forward call fits, an operation keeps
//! the line of `loss.backward()`.

use std::collections::{HashMap, HashSet};
use std::hash::{DefaultHasher, Hash, Hasher};

use super::trace::ReadTrace;
use crate::protocol::{Frame, Phase};

/// What a stack shows about autodiff.
#[derive(Debug, Clone, Default)]
struct LinkKind {
    /// The name of autodiff's function, such as `conv2d`.
    function: Option<String>,
    /// Whether autodiff is computing gradients.
    is_backward: bool,
    /// A hash of the frames that called the function, which distinguishes one call from another.
    call: u64,
    /// The addresses of all frames, the outermost first.
    path: Vec<u64>,
}

/// A forward call of one of autodiff's functions.
struct LinkNode {
    call: u64,
    /// The frame addresses from which autodiff asked for the last of its operations.
    path: Vec<u64>,
    stack: u32,
    /// The length of the longest chain of calls that leads to it. Autodiff goes backward from the deepest call.
    depth: usize,
    reads: Vec<u64>,
    makes: Vec<u64>,
    is_used: bool,
}

impl LinkNode {
    fn has(&self, id: u64) -> bool {
        self.reads.contains(&id) || self.makes.contains(&id)
    }
}

/// The operations that compute one gradient.
#[derive(Default)]
struct Group {
    function: Option<String>,
    operations: Vec<usize>,
    reads: Vec<u64>,
    makes: Vec<u64>,
    /// The gradient that the operations take as input.
    given: HashSet<u64>,
    /// The frame addresses from which autodiff asked for the last operation.
    last: Option<Vec<u64>>,
}

/// Finds the forward call of each backward operation. Operations that autodiff asks for within a forward phase, as in
/// Burn's `TrainStep`, are moved to the backward phase.
pub(super) fn link(trace: &mut ReadTrace) {
    let kinds: HashMap<u32, LinkKind> = trace
        .stacks
        .iter()
        .map(|(stack, frames)| (*stack, kind(trace, frames)))
        .collect();
    // See docs/design/burn-0_22-explanations.md.
    let made = trace.operations.iter().flat_map(|operation| &operation.outputs);
    let shapes: HashMap<u64, Vec<u64>> = made.map(|made| (made.id, made.shape.clone())).collect();
    let mut linker = Linker {
        shapes,
        nodes: Vec::new(),
        depths: HashMap::new(),
        gradients: HashSet::new(),
        by_function: HashMap::new(),
        whose: HashMap::new(),
        found: Vec::new(),
    };
    let mut group = Group::default();
    let mut is_backward = false;
    let mut step = None;
    for (index, operation) in trace.operations.iter().enumerate() {
        let Some(kind) = kinds.get(&operation.stack) else {
            continue;
        };
        let makes: Vec<u64> = operation.outputs.iter().map(|made| made.id).collect();
        // A gradient belongs to a forward call of its own step.
        if step != operation.at.0 {
            step = operation.at.0;
            linker.resolve(std::mem::take(&mut group));
            linker.forget();
        }
        if !kind.is_backward {
            if std::mem::take(&mut is_backward) {
                linker.resolve(std::mem::take(&mut group));
            }
            linker.forward(kind, operation.stack, &operation.inputs, makes);
            continue;
        }
        is_backward = true;
        let mut given = linker.given(&group, &operation.name, &operation.inputs);
        // `given` depends on the group: what the last group made is a foreign gradient for the next one.
        if !Linker::goes_on(&group, kind, &given) {
            linker.resolve(std::mem::take(&mut group));
            group.function.clone_from(&kind.function);
            given = linker.given(&group, &operation.name, &operation.inputs);
        }
        group.given.extend(given);
        group.operations.push(index);
        group.last = Some(kind.path.clone());
        group.reads.extend(&operation.inputs);
        linker.gradients.extend(&makes);
        group.makes.extend(makes);
    }
    linker.resolve(group);
    for (index, stack) in linker.found {
        trace.operations[index].forward = Some(stack);
    }
    for operation in &mut trace.operations {
        let is_backward = kinds.get(&operation.stack).is_some_and(|kind| kind.is_backward);
        // A `TrainStep` of Burn 0.22 marks no backward phase. Only the stacks show where autodiff goes
        // backward.
        if is_backward && operation.at.1 == Phase::Forward {
            operation.at.1 = Phase::Backward;
        }
    }
}

struct Linker {
    shapes: HashMap<u64, Vec<u64>>,
    nodes: Vec<LinkNode>,
    /// The depth of the call that made each tensor.
    depths: HashMap<u64, usize>,
    /// The tensors that backward operations made.
    gradients: HashSet<u64>,
    /// The calls of each function, as indices into `nodes`, in order.
    by_function: HashMap<String, Vec<usize>>,
    /// The tensors that a tensor is the gradient of.
    whose: HashMap<u64, Vec<u64>>,
    /// The stack of the forward call, by the index of the backward operation.
    found: Vec<(usize, u32)>,
}

impl Linker {
    fn forget(&mut self) {
        self.nodes.clear();
        self.depths.clear();
        self.gradients.clear();
        self.by_function.clear();
        self.whose.clear();
    }

    fn forward(&mut self, kind: &LinkKind, stack: u32, reads: &[u64], makes: Vec<u64>) {
        let Some(function) = &kind.function else { return };
        // An operation further down in the same function belongs to the same call. The same place again is the next
        // iteration of a loop.
        // A later place in a function mostly has a larger address, so a longer way down compares as larger.
        let is_same = |last: &&mut LinkNode| {
            last.call == kind.call && kind.path > last.path && reads.iter().any(|id| last.has(*id))
        };
        let depth = reads
            .iter()
            .filter_map(|id| self.depths.get(id))
            .max()
            .map_or(1, |deepest| deepest + 1);
        if let Some(last) = self.nodes.last_mut().filter(is_same) {
            self.depths.extend(makes.iter().map(|id| (*id, last.depth)));
            last.path.clone_from(&kind.path);
            last.reads.extend(reads);
            last.makes.extend(makes);
            return;
        }
        self.depths.extend(makes.iter().map(|id| (*id, depth)));
        self.by_function
            .entry(function.clone())
            .or_default()
            .push(self.nodes.len());
        self.nodes.push(LinkNode {
            call: kind.call,
            path: kind.path.clone(),
            stack,
            depth,
            reads: reads.to_vec(),
            makes,
            is_used: false,
        });
    }

    /// Returns the gradients that an operation takes and that the group did not make. If the operation adds to a tensor
    /// of the group, the other gradient came another way and does not count.
    fn given(&self, group: &Group, name: &str, inputs: &[u64]) -> Vec<u64> {
        let is_own = |id: &u64| group.makes.contains(id);
        if name == "float_add" && inputs.iter().any(is_own) {
            return Vec::new();
        }
        let given = inputs.iter().filter(|id| self.gradients.contains(*id) && !is_own(id));
        given.copied().collect()
    }

    /// Whether an operation that takes these gradients belongs to the group: autodiff asks for it further down in the
    /// same function, and all operations of the group take one gradient.
    fn goes_on(group: &Group, kind: &LinkKind, given: &[u64]) -> bool {
        let is_later = group.last.as_ref().is_some_and(|last| kind.path > *last);
        let of: HashSet<&u64> = group.given.iter().chain(given).collect();
        group.function == kind.function && is_later && of.len() <= 1
    }

    fn resolve(&mut self, group: Group) {
        if group.operations.is_empty() {
            return;
        }
        let Some(node) = self.find(&group) else {
            if group.reads.is_empty() {
                // The group makes the gradient of the loss, which the forward phase made last.
                let last = self.nodes.last().map(|last| last.makes.clone()).unwrap_or_default();
                self.owe(&group, &last);
            }
            return;
        };
        self.nodes[node].is_used = true;
        let stack = self.nodes[node].stack;
        self.found.extend(group.operations.iter().map(|index| (*index, stack)));
        let reads = self.nodes[node].reads.clone();
        self.owe(&group, &reads);
    }

    /// Notes that the group's tensors are gradients of the tensors in `of` that have the same shape.
    fn owe(&mut self, group: &Group, of: &[u64]) {
        for made in &group.makes {
            let shape = self.shapes.get(made);
            let mut whose: Vec<u64> = of.iter().copied().filter(|id| self.shapes.get(id) == shape).collect();
            // A sum passes its gradient on unchanged.
            let mut next = 0;
            // Sums of sums: each new tensor is followed, too, and each only once.
            while let Some(id) = whose.get(next).copied() {
                next += 1;
                let sums = ["float_add", "float_sub"]
                    .into_iter()
                    .filter_map(|name| self.by_function.get(name));
                for node in sums
                    .flatten()
                    .map(|node| &self.nodes[*node])
                    .filter(|node| node.makes.contains(&id))
                {
                    let alike = node.reads.iter().filter(|read| self.shapes.get(read) == shape);
                    let new: Vec<u64> = alike.copied().filter(|read| !whose.contains(read)).collect();
                    whose.extend(new);
                }
            }
            self.whose.entry(*made).or_default().extend(whose);
        }
    }

    fn find(&self, group: &Group) -> Option<usize> {
        let alike: Vec<usize> = match &group.function {
            Some(function) => self.by_function.get(function).cloned().unwrap_or_default(),
            None => (0..self.nodes.len()).collect(),
        };
        // Autodiff goes backward through each call once.
        let is_possible = |node: &usize| !self.nodes[*node].is_used;
        let mut possible: Vec<usize> = alike.into_iter().filter(is_possible).collect();
        // The deepest calls first, and the last of equals first.
        possible.sort_by_key(|node| std::cmp::Reverse((self.nodes[*node].depth, *node)));
        let unused = || possible.iter().copied();
        let saved = |node: usize| group.reads.iter().filter(|id| self.nodes[node].has(**id)).count();
        // The deepest of the calls that share the most tensors with the group.
        let most = unused().map(saved).max().unwrap_or(0);
        if most > 0 {
            return unused().find(|node| saved(*node) == most);
        }
        // Without the name of the function, nothing else shows the call.
        group.function.as_ref()?;
        let owed: Vec<u64> = group
            .reads
            .iter()
            .filter_map(|id| self.whose.get(id))
            .flatten()
            .copied()
            .collect();
        // No call shares a tensor with the group, so only shapes and the flow of gradients are evidence.
        let fits = |node: &usize| {
            let node = &self.nodes[*node];
            let mut ids = node.reads.iter().chain(&node.makes);
            ids.any(|id| {
                group
                    .makes
                    .iter()
                    .any(|made| self.shapes.get(made) == self.shapes.get(id))
            })
        };
        let flows = |node: &usize| self.nodes[*node].makes.iter().any(|id| owed.contains(id));
        unused().find(|node| fits(node) && flows(node))
    }
}

fn kind(trace: &ReadTrace, frames: &[Frame]) -> LinkKind {
    let mut kind = LinkKind::default();
    let mut from = 0;
    for (at, frame) in frames.iter().enumerate() {
        // The loop goes on to the outermost frame: only further out does the stack show that autodiff goes
        // backward.
        let symbols = trace.addresses.get(&frame.address).map_or(&[][..], Vec::as_slice);
        for symbol in symbols {
            let name = symbol.function.as_str();
            // `ops::base` calls every backward function, so its name does not identify one.
            let is_function = name.contains("burn_autodiff::ops::") && !name.contains("burn_autodiff::ops::base::");
            if kind.function.is_none() && is_function {
                kind.function = function(name);
                from = at + 1;
            }
            kind.is_backward |= name.contains("burn_autodiff::runtime::") && name.contains("backward");
        }
    }
    kind.path = frames.iter().rev().map(|frame| frame.address).collect();
    let mut hasher = DefaultHasher::new();
    frames[from..].hash(&mut hasher);
    kind.call = hasher.finish();
    kind
}

/// Extracts the name of the function: `…<impl … for …Autodiff<B,C>>::conv2d` and `<…<impl …>::conv2d::WithBias as
/// …Backward<B, 3>>::backward` give `conv2d`.
fn function(name: &str) -> Option<String> {
    let name = name.split(" as burn_autodiff::ops::backward::Backward").next()?;
    let (_, path) = name.rsplit_once(">::")?;
    let function = path.split("::").next()?;
    (!function.is_empty() && !function.starts_with('<')).then(|| function.to_owned())
}

#[cfg(test)]
mod tests {
    use super::function;

    #[test]
    fn both_stacks_name_the_function_of_autodiff() {
        let forward = "burn_autodiff::ops::module::<impl burn_backend::backend::ops::modules::base::ModuleOps<burn_autodiff::backend::Autodiff<B,C>> for burn_autodiff::backend::Autodiff<B,C>>::conv2d";
        let backward = "<burn_autodiff::ops::module::<impl burn_backend::backend::ops::modules::base::ModuleOps<burn_autodiff::backend::Autodiff<B,C>> for burn_autodiff::backend::Autodiff<B,C>>::conv2d::Conv2DWithBias as burn_autodiff::ops::backward::Backward<B,3_usize>>::backward";
        for name in [forward, backward] {
            assert_eq!(function(name).as_deref(), Some("conv2d"));
        }
        let nameless = [
            "burn_autodiff::ops::backward::unary",
            "<burn_autodiff::ops::module::MaxPool2D as burn_autodiff::ops::backward::Backward<B,1_usize>>::backward",
        ];
        for name in nameless {
            assert_eq!(function(name), None, "{name}");
        }
    }
}
