//! Which forward call each operation of backward belongs to.
//!
//! A backward operation is asked for by `loss.backward()`, so its own stack does not say where its gradient comes from. The names of
//! autodiff's functions on both stacks, the tensors that forward saved, and whose gradient each tensor is, do. One step of autodiff is
//! one or several operations, a group. Where nothing fits, an operation keeps the line of `loss.backward()`.

use std::collections::{HashMap, HashSet};
use std::hash::{DefaultHasher, Hash, Hasher};

use super::trace::Trace;
use crate::protocol::{Frame, Phase};

/// What a stack says of autodiff.
#[derive(Debug, Clone, Default)]
struct Kind {
    /// Autodiff's function: `conv2d`.
    function: Option<String>,
    /// Whether it is computing gradients.
    is_backward: bool,
    /// Made of what called the function, which tells one call from another.
    call: u64,
    /// The addresses of all frames, the outermost first.
    path: Vec<u64>,
}

/// A call of one of autodiff's functions in forward.
struct Node {
    call: u64,
    /// Where autodiff asked for the last of its operations.
    path: Vec<u64>,
    stack: u32,
    /// How many calls lead to it, one after the other: autodiff goes backward from the deepest.
    depth: usize,
    reads: Vec<u64>,
    makes: Vec<u64>,
    is_used: bool,
}

impl Node {
    fn has(&self, id: u64) -> bool {
        self.reads.contains(&id) || self.makes.contains(&id)
    }
}

/// The operations of one gradient.
#[derive(Default)]
struct Group {
    function: Option<String>,
    operations: Vec<usize>,
    reads: Vec<u64>,
    makes: Vec<u64>,
    /// The gradient that they are made of.
    given: HashSet<u64>,
    /// Where autodiff asked for the last of them.
    last: Option<Vec<u64>>,
}

/// Finds the forward call of each backward operation. Operations that autodiff asks for within a forward phase, as in Burn's
/// `TrainStep`, are backward ones from here on.
pub(super) fn link(trace: &mut Trace) {
    let kinds: HashMap<u32, Kind> = trace
        .stacks
        .iter()
        .map(|(stack, frames)| (*stack, kind(trace, frames)))
        .collect();
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
        if is_backward && operation.at.1 == Phase::Forward {
            operation.at.1 = Phase::Backward;
        }
    }
}

struct Linker {
    shapes: HashMap<u64, Vec<u64>>,
    nodes: Vec<Node>,
    /// The depth of each tensor's node.
    depths: HashMap<u64, usize>,
    /// Tensors that backward made.
    gradients: HashSet<u64>,
    /// Nodes by their function, in their order.
    by_function: HashMap<String, Vec<usize>>,
    /// The tensors that a tensor is the gradient of.
    whose: HashMap<u64, Vec<u64>>,
    /// The stack of the forward call, by the operation's index.
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

    fn forward(&mut self, kind: &Kind, stack: u32, reads: &[u64], makes: Vec<u64>) {
        let Some(function) = &kind.function else { return };
        // Further down in the same call: the same place once more is the next round of a loop.
        let is_same =
            |last: &&mut Node| last.call == kind.call && kind.path > last.path && reads.iter().any(|id| last.has(*id));
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
        self.nodes.push(Node {
            call: kind.call,
            path: kind.path.clone(),
            stack,
            depth,
            reads: reads.to_vec(),
            makes,
            is_used: false,
        });
    }

    /// The gradients that an operation takes which the group did not make. One that a gradient is added to has come another way.
    fn given(&self, group: &Group, name: &str, inputs: &[u64]) -> Vec<u64> {
        let is_own = |id: &u64| group.makes.contains(id);
        if name == "float_add" && inputs.iter().any(is_own) {
            return Vec::new();
        }
        let given = inputs.iter().filter(|id| self.gradients.contains(*id) && !is_own(id));
        given.copied().collect()
    }

    /// Whether an operation, which takes these gradients, is of the same one as those of the group: autodiff asks for it further down in
    /// the same function, and there is one gradient that all of them are made of.
    fn goes_on(group: &Group, kind: &Kind, given: &[u64]) -> bool {
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
                // The gradient of the loss, which forward made last.
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

    /// Tensors that the group makes are gradients of those of the same shape among these.
    fn owe(&mut self, group: &Group, of: &[u64]) {
        for made in &group.makes {
            let shape = self.shapes.get(made);
            let mut whose: Vec<u64> = of.iter().copied().filter(|id| self.shapes.get(id) == shape).collect();
            // A sum hands its gradient on as it is.
            let mut next = 0;
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
        let is_possible = |node: &usize| !self.nodes[*node].is_used;
        let mut possible: Vec<usize> = alike.into_iter().filter(is_possible).collect();
        // The deepest first, and of these the last.
        possible.sort_by_key(|node| std::cmp::Reverse((self.nodes[*node].depth, *node)));
        let unused = || possible.iter().copied();
        let saved = |node: usize| group.reads.iter().filter(|id| self.nodes[node].has(**id)).count();
        // The deepest of those that share the most.
        let most = unused().map(saved).max().unwrap_or(0);
        if most > 0 {
            return unused().find(|node| saved(*node) == most);
        }
        // Without a name of its function, nothing else tells.
        group.function.as_ref()?;
        let owed: Vec<u64> = group
            .reads
            .iter()
            .filter_map(|id| self.whose.get(id))
            .flatten()
            .copied()
            .collect();
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

fn kind(trace: &Trace, frames: &[Frame]) -> Kind {
    let mut kind = Kind::default();
    let mut from = 0;
    for (at, frame) in frames.iter().enumerate() {
        let symbols = trace.addresses.get(&frame.address).map_or(&[][..], Vec::as_slice);
        for symbol in symbols {
            let name = symbol.function.as_str();
            // What calls every backward function has no name of its own.
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

/// `…<impl … for …Autodiff<B,C>>::conv2d` and `<…<impl …>::conv2d::WithBias as …Backward<B, 3>>::backward` → `conv2d`
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
