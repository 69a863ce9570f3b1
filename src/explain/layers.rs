//! The layer table: the operations of a forward phase, put together as people call them.

use std::collections::{HashMap, HashSet};

use super::bare;
use super::calls::{Call, Calls};
use super::categories::Origin;
use super::memory::Memory;
use super::trace::{Operation, Trace};
use super::types::{Activations, Layer, Totals};
use crate::bytes::Bytes;
use crate::protocol::{Made, Phase};

/// Modules and functions that only bend a tensor's values.
const ACTIVATIONS: [&str; 24] = [
    "relu",
    "leakyrelu",
    "leaky_relu",
    "prelu",
    "gelu",
    "quickgelu",
    "elu",
    "selu",
    "celu",
    "silu",
    "mish",
    "sigmoid",
    "hardsigmoid",
    "hard_sigmoid",
    "hardswish",
    "log_sigmoid",
    "tanh",
    "softplus",
    "softsign",
    "softmax",
    "log_softmax",
    "quiet_softmax",
    "softmin",
    "shrink",
];
/// Containers that have no function of their own.
const CONTAINERS: [&str; 3] = ["Vec", "Array", "Tuple"];

/// The model's modules by path.
pub(super) struct Modules {
    /// The type of each that has fields; the root's path is empty.
    types: HashMap<String, String>,
    /// The fields of each, in their order.
    fields: HashMap<String, Vec<String>>,
    /// The parameters: the tensor, and its module's path.
    owners: HashMap<u64, String>,
}

impl Modules {
    pub(super) fn of(trace: &Trace) -> Self {
        let mut types = HashMap::new();
        let mut fields: HashMap<String, Vec<String>> = HashMap::new();
        for (path, parent_type) in &trace.modules {
            let parent = parent(path).to_owned();
            types.insert(parent.clone(), parent_type.clone());
            fields.entry(parent).or_default().push(path.clone());
        }
        let mut owners: HashMap<u64, String> = trace
            .belongs
            .iter()
            .filter(|(_, belongs)| !belongs.gradient)
            .map(|(tensor, belongs)| (*tensor, parent(&belongs.path).to_owned()))
            .collect();
        // Mixed precision works on copies of another element type.
        for operation in &trace.operations {
            let owner = operation.inputs.iter().find_map(|input| owners.get(input));
            if let Some(owner) = owner.filter(|_| bare(&operation.name) == "cast").cloned() {
                owners.extend(operation.outputs.iter().map(|made| (made.id, owner.clone())));
            }
        }
        Self { types, fields, owners }
    }

    /// The module that a parameter belongs to.
    pub(super) fn owner(&self, tensor: u64) -> Option<&str> {
        self.owners.get(&tensor).map(String::as_str)
    }

    fn kind(&self, path: &str) -> Option<&str> {
        self.types.get(path).map(String::as_str)
    }

    fn is_leaf(&self, path: &str) -> bool {
        let fields = self.fields.get(path).map_or(&[][..], Vec::as_slice);
        fields.iter().all(|field| !self.types.contains_key(field))
    }

    /// The module of this type nearest to `path`: itself, or what it is a part of.
    fn around<'p>(&self, path: &'p str, kind: &str) -> Option<&'p str> {
        let mut at = path;
        loop {
            if self.kind(at) == Some(kind) {
                return Some(at);
            }
            if at.is_empty() {
                return None;
            }
            at = parent(at);
        }
    }

    /// The first module of this type within `path`.
    fn within(&self, path: &str, kind: &str) -> Option<&str> {
        let fields = self.fields.get(path)?;
        fields.iter().find_map(|field| {
            if self.kind(field) == Some(kind) {
                return Some(field.as_str());
            }
            self.within(field, kind)
        })
    }
}

/// The module that a module or parameter is a field of.
pub(super) fn parent(path: &str) -> &str {
    path.rsplit_once('.').map_or("", |(parent, _)| parent)
}

fn joined(parent: &str, name: &str) -> String {
    if parent.is_empty() {
        name.to_owned()
    } else {
        format!("{parent}.{name}")
    }
}

/// Operations that are one row of the table.
pub(super) struct Row {
    /// Indices into the trace's operations.
    pub(super) operations: Vec<usize>,
    pub(super) call: Call,
    /// Where the parameters that it uses belong.
    owner: Option<String>,
    pub(super) path: String,
    pub(super) inferred: bool,
    kind: String,
}

impl Row {
    /// What it makes: the largest tensor that a later operation of the step reads, and of several the last. A `BatchNorm` ends with
    /// operations that make its running statistics, which it reads itself if it is called once more.
    fn output<'a>(&self, trace: &'a Trace, readers: &HashMap<u64, usize>) -> Option<&'a Made> {
        let last = *self.operations.last()?;
        let made = |index: &usize| trace.operations[*index].outputs.first();
        let is_read = |made: &&Made| readers.get(&made.id).is_some_and(|reader| *reader > last);
        let read = self.operations.iter().filter_map(made).filter(is_read);
        read.max_by_key(|made| made.bytes).or_else(|| made(&last))
    }

    /// Whether an operation is part of it, too.
    fn goes_on(
        &self,
        trace: &Trace,
        modules: &Modules,
        operation: &Operation,
        call: &Call,
        owner: Option<&str>,
    ) -> bool {
        let is_module = self.is_module(modules);
        let is_same_place = self.call.source == call.source || is_module && self.is_within_module(call);
        if self.call.modules != call.modules || !is_same_place {
            return false;
        }
        if !is_module && (self.call.function != call.function || self.call.site != call.site) {
            return false;
        }
        match (&self.owner, owner) {
            (Some(own), Some(owner)) => own == owner,
            // A module's function may do something to the input before it comes to its parameters.
            (Some(_), None) => is_module,
            (None, _) if is_module && self.may_have_parameters(modules) => true,
            // From the same place in the function once more: that is a call of its own.
            (None, None) => trace.operations[self.operations[0]].stack != operation.stack,
            (None, Some(_)) => false,
        }
    }

    /// Whether both are lines of the module's own function, in one call of it: the user's code has modules with parameters of their own.
    fn is_within_module(&self, call: &Call) -> bool {
        let (Some(module), Some(own), Some(other)) = (self.call.modules.last(), &self.call.source, &call.source) else {
            return false;
        };
        let names = own
            .function
            .split("::")
            .map(|name| name.split('<').next().unwrap_or(name));
        let is_own = names.into_iter().any(|name| name == module.kind);
        is_own && own.function == other.function && self.call.callers == call.callers
    }

    /// Takes the last operations away that have nothing to do with those before: they prepare what the next module of this type is given.
    fn strays(&mut self, trace: &Trace, modules: &Modules) -> Vec<usize> {
        let ids = |index: &usize| {
            let operation = &trace.operations[*index];
            let made = operation.outputs.iter().map(|made| made.id);
            made.chain(operation.inputs.iter().copied())
        };
        let mut first_use: HashMap<u64, usize> = HashMap::new();
        for (place, index) in self.operations.iter().enumerate() {
            for id in ids(index) {
                first_use.entry(id).or_insert(place);
            }
        }
        let uses_parameters = |index: &usize| ids(index).any(|id| modules.owner(id).is_some());
        let mut start = self.operations.len();
        let mut earliest = usize::MAX;
        for (place, index) in self.operations.iter().enumerate().rev() {
            if uses_parameters(index) {
                break;
            }
            earliest = ids(index).map(|id| first_use[&id]).fold(earliest, usize::min);
            if earliest >= place {
                start = place;
            }
        }
        self.operations.split_off(start)
    }

    /// Whether the innermost function is that of a module without modules in it, rather than one that the module called.
    fn is_module(&self, modules: &Modules) -> bool {
        let Some(last) = self.call.modules.last() else {
            return false;
        };
        let mut of_this_type = modules.types.iter().filter(|(_, kind)| **kind == last.kind).peekable();
        if of_this_type.peek().is_none() {
            // It has no fields: nothing but its function tells of it.
            return true;
        }
        of_this_type.all(|(path, _)| modules.is_leaf(path))
    }

    fn may_have_parameters(&self, modules: &Modules) -> bool {
        let kind = self.call.modules.last().map(|last| last.kind.as_str());
        modules.owners.values().any(|owner| modules.kind(owner) == kind)
    }
}

/// Puts the forward operations of a step together; `calls` tells who asked for each.
pub(super) fn rows(trace: &Trace, modules: &Modules, calls: &mut Calls<'_>, step: u32) -> Vec<Row> {
    let mut rows: Vec<Row> = Vec::new();
    let forward = trace
        .operations
        .iter()
        .enumerate()
        .filter(|(_, operation)| operation.at == (Some(step), Phase::Forward));
    let mut all: Vec<(usize, Call)> = forward.map(|(index, operation)| (index, calls.of(operation))).collect();
    // That of a `TrainStep` is computed within the model.
    all.retain(|(_, call)| !call.is_loss);
    // The loss is no layer. A program whose functions have no names has no modules to tell it by.
    if all.iter().any(|(_, call)| !call.modules.is_empty()) {
        let root = modules.kind("").map(str::to_owned);
        let outermost = |call: &Call| call.modules.first().map(|first| first.kind.clone());
        let is_known = all.iter().any(|(_, call)| outermost(call) == root);
        all.retain(|(_, call)| {
            let outermost = outermost(call);
            outermost.is_some() && (!is_known || outermost == root)
        });
    }
    for (index, call) in all {
        let operation = &trace.operations[index];
        // What only moves a tensor to where it is makes nothing.
        if operation.outputs.iter().all(|made| operation.inputs.contains(&made.id)) {
            continue;
        }
        let owner = operation.inputs.iter().find_map(|input| modules.owner(*input));
        match rows.last_mut() {
            Some(row) if row.goes_on(trace, modules, operation, &call, owner) => {
                row.operations.push(index);
                if row.owner.is_none() {
                    row.owner = owner.map(str::to_owned);
                }
            }
            last => {
                let is_next = |row: &&mut Row| {
                    row.owner.is_some() && row.call.modules == call.modules && row.call.source == call.source
                };
                let before = last.filter(|row| owner.is_some() && is_next(row));
                let mut operations = before.map_or_else(Vec::new, |row| row.strays(trace, modules));
                operations.push(index);
                rows.push(Row {
                    operations,
                    call,
                    owner: owner.map(str::to_owned),
                    path: String::new(),
                    inferred: false,
                    kind: String::new(),
                });
            }
        }
    }
    let makers = makers(trace);
    rows.retain(|row| !is_of_ones(trace, row, &makers));
    name(&mut rows, trace, modules);
    rows
}

/// Which operations make each tensor, in their order.
fn makers(trace: &Trace) -> HashMap<u64, Vec<usize>> {
    let mut makers: HashMap<u64, Vec<usize>> = HashMap::new();
    for (index, operation) in trace.operations.iter().enumerate() {
        for made in &operation.outputs {
            makers.entry(made.id).or_default().push(index);
        }
    }
    makers
}

/// The last forward operation of a step that reads each tensor. What the next step reads, such as running statistics, is no output.
fn readers(trace: &Trace, step: Option<u32>) -> HashMap<u64, usize> {
    let operations = trace.operations.iter().enumerate();
    let forward = operations.filter(|(_, operation)| operation.at == (step, Phase::Forward));
    let reads = forward.flat_map(|(index, operation)| operation.inputs.iter().map(move |id| (*id, index)));
    reads.collect()
}

/// Whether it only adds or drops sides of one: the same map, seen otherwise.
fn is_of_ones(trace: &Trace, row: &Row, makers: &HashMap<u64, Vec<usize>>) -> bool {
    let [index] = row.operations[..] else { return false };
    let operation = &trace.operations[index];
    let ([input], Some(made)) = (&operation.inputs[..], operation.outputs.first()) else {
        return false;
    };
    if !operation.name.ends_with("_reshape") {
        return false;
    }
    let given = makers.get(input).and_then(|makers| {
        let before = makers.partition_point(|maker| *maker < index);
        let newest = makers[..before].last()?;
        trace.operations[*newest].outputs.iter().find(|made| made.id == *input)
    });
    let sides = |made: &Made| made.shape.iter().copied().filter(|side| *side != 1).collect::<Vec<_>>();
    given.is_some_and(|given| sides(given) == sides(made))
}

/// Gives every row its path and kind.
fn name(rows: &mut [Row], trace: &Trace, modules: &Modules) {
    // The parameters used last, which tell where we are.
    let mut here = String::new();
    // The next row that has an owner, for each: itself, or one behind it.
    let mut next_owned = vec![None; rows.len()];
    let mut next = None;
    for (number, row) in rows.iter().enumerate().rev() {
        next = row.owner.as_ref().map(|_| number).or(next);
        next_owned[number] = next;
    }
    for number in 0..rows.len() {
        let next = next_owned[number].and_then(|next: usize| rows[next].owner.clone());
        let row = &rows[number];
        let last = row.call.modules.last().map(|last| last.kind.clone());
        let (path, kind, inferred) = if let Some(owner) = &row.owner {
            let kind = modules.kind(owner).unwrap_or("parameter").to_owned();
            if modules.is_leaf(owner) || row.is_module(modules) {
                here.clone_from(owner);
                (owner.clone(), kind, false)
            } else {
                let function = function(row, trace);
                (joined(owner, &function), function, true)
            }
        } else if let Some(kind) = last.filter(|_| row.is_module(modules)) {
            // A module without parameters: Burn does not tell what its field is called.
            let around = around(row, modules, &here, next.as_deref(), 1);
            (joined(&around, &kind.to_lowercase()), kind, true)
        } else {
            let around = around(row, modules, &here, next.as_deref(), 0);
            let function = function(row, trace);
            (joined(&around, &function), function, true)
        };
        let row = &mut rows[number];
        (row.path, row.kind, row.inferred) = (path, kind, inferred);
    }
}

/// What was called: `flatten`; where that is not known, Burn's name of the operation.
fn function(row: &Row, trace: &Trace) -> String {
    match &row.call.function {
        Some((name, _)) => name.clone(),
        None => super::bare(&trace.operations[row.operations[0]].name).to_owned(),
    }
}

/// The module that something without parameters happens in: the one of the innermost call's type nearest to where we
/// are. `skip`: so many of the innermost calls are its own.
fn around(row: &Row, modules: &Modules, here: &str, next: Option<&str>, skip: usize) -> String {
    let calls = &row.call.modules[..row.call.modules.len() - skip];
    for call in calls.iter().rev() {
        if CONTAINERS.contains(&call.kind.as_str()) {
            continue;
        }
        let found = modules
            .around(here, &call.kind)
            .or_else(|| modules.around(next?, &call.kind))
            .or_else(|| modules.within("", &call.kind));
        if let Some(found) = found {
            return found.to_owned();
        }
    }
    String::new()
}

/// The table, with the batch first.
pub(super) fn table(
    trace: &Trace,
    rows: &[Row],
    modules: &Modules,
    memory: &Memory,
    origins: &HashMap<u64, Origin<'_>>,
    activations: Activations,
) -> Vec<Layer> {
    let own_memory: HashSet<u64> = memory
        .tensors
        .iter()
        .filter(|tensor| tensor.shares.is_none())
        .map(|tensor| tensor.id)
        .collect();
    let mut layers = inputs(trace, rows, origins);
    let mut counted = HashSet::new();
    let step = rows
        .first()
        .and_then(|row| trace.operations[*row.operations.first()?].at.0);
    let readers = readers(trace, step);
    for row in rows {
        let Some(made) = row.output(trace, &readers) else {
            continue;
        };
        let is_activation = ACTIVATIONS.contains(&row.kind.to_lowercase().as_str());
        if is_activation && activations == Activations::Fused && !layers.is_empty() {
            continue;
        }
        let counts = !(is_activation && activations == Activations::InPlace);
        let [parameters, learnable, bytes] = match &row.owner {
            Some(owner) if counted.insert(owner.clone()) => parameters(trace, modules, owner, origins),
            _ => [0; 3],
        };
        layers.push(Layer {
            path: row.path.clone(),
            inferred: row.inferred,
            kind: row.kind.clone(),
            activation: is_activation,
            output: made.shape.clone(),
            dtype: made.dtype.clone(),
            parameters,
            learnable,
            parameter_bytes: Bytes(bytes),
            feature_bytes: Bytes(if counts { made.bytes } else { 0 }),
            shares_memory: !own_memory.contains(&made.id),
            source: row.call.source.clone(),
        });
    }
    layers
}

/// Parameters that belong to a module itself: how many, how many of them learnable, and bytes of all.
fn parameters(trace: &Trace, modules: &Modules, owner: &str, origins: &HashMap<u64, Origin<'_>>) -> [u64; 3] {
    let mut seen = HashSet::new();
    let mut sum = [0; 3];
    let own = trace
        .belongs
        .iter()
        .filter(|(tensor, belongs)| !belongs.gradient && modules.owner(**tensor) == Some(owner));
    for (tensor, belongs) in own {
        let Some(origin) = origins.get(tensor) else { continue };
        // After each step of the optimizer another tensor is the same parameter.
        if seen.insert(&belongs.path) {
            let count: u64 = origin.made.shape.iter().product();
            sum[0] += count;
            sum[1] += if belongs.learnable { count } else { 0 };
            sum[2] += origin.made.bytes;
        }
    }
    sum
}

/// What the batch consists of, as far as layers use it: as it is, or by way of operations that are no layers, such as a view
/// with a side of one more.
fn inputs(trace: &Trace, rows: &[Row], origins: &HashMap<u64, Origin<'_>>) -> Vec<Layer> {
    let mut seen = HashSet::new();
    let mut found = Vec::new();
    let used = rows
        .iter()
        .flat_map(|row| &row.operations)
        .flat_map(|index| &trace.operations[*index].inputs);
    for tensor in used {
        let mut to_follow = vec![*tensor];
        while let Some(tensor) = to_follow.pop() {
            let Some(origin) = origins.get(&tensor).filter(|_| seen.insert(tensor)) else {
                continue;
            };
            match origin.operation.at.1 {
                // Burn 0.22 makes parameters when they are first asked for.
                Phase::Batch if !trace.belongs.contains_key(&origin.made.id) => found.push(origin),
                Phase::Forward => to_follow.extend(origin.operation.inputs.iter().rev()),
                _ => {}
            }
        }
    }
    found
        .into_iter()
        .map(|origin| Layer {
            path: "input".to_owned(),
            inferred: true,
            kind: "input".to_owned(),
            activation: false,
            output: origin.made.shape.clone(),
            dtype: origin.made.dtype.clone(),
            parameters: 0,
            learnable: 0,
            parameter_bytes: Bytes(0),
            feature_bytes: Bytes(origin.made.bytes),
            shares_memory: false,
            source: None,
        })
        .collect()
}

/// What the layers add up to.
pub(super) fn totals(layers: &[Layer], batch_size: Option<u64>) -> Totals {
    let sum = |of: fn(&Layer) -> u64| layers.iter().map(of).sum::<u64>();
    let (parameters, learnable) = (sum(|layer| layer.parameters), sum(|layer| layer.learnable));
    let parameter_bytes: Bytes = layers.iter().map(|layer| layer.parameter_bytes).sum();
    let feature_bytes: Bytes = layers.iter().map(|layer| layer.feature_bytes).sum();
    let input_bytes: Bytes = layers
        .iter()
        .filter(|layer| layer.kind == "input")
        .map(|layer| layer.feature_bytes)
        .sum();
    Totals {
        batch_size,
        parameters,
        learnable,
        not_learnable: parameters - learnable,
        parameter_bytes,
        feature_bytes,
        input_bytes,
        forward_backward_bytes: Bytes((feature_bytes - input_bytes).0 * 2),
        total_bytes: parameter_bytes + feature_bytes,
    }
}
