//! The layer table: the operations of a forward phase, grouped into the calls that a user would name.

use std::collections::{HashMap, HashSet};

use super::calls::{Calls, TracedCall};
use super::categories::CategoryOrigin;
use super::memory::MemoryHistory;
use super::trace::{Operation, ReadTrace, bare};
use super::types::{Activations, Layer, Totals};
use crate::bytes::Bytes;
use crate::protocol::{Made, Phase};

/// Names of activation modules and functions.
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
    /// The type of each module that has fields. The root's path is empty.
    types: HashMap<String, String>,
    /// The fields of each module, in order.
    fields: HashMap<String, Vec<String>>,
    /// The path of the module that each parameter tensor belongs to.
    owners: HashMap<u64, String>,
}

impl Modules {
    pub(super) fn from_trace(trace: &ReadTrace) -> Self {
        let mut types = HashMap::new();
        let mut fields: HashMap<String, Vec<String>> = HashMap::new();
        // The trace has the type of each field's parent, so only modules with fields get a type.
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
        // Mixed precision works on copies of the parameters in another element type.
        for operation in &trace.operations {
            let owner = operation.inputs.iter().find_map(|input| owners.get(input));
            if let Some(owner) = owner.filter(|_| bare(&operation.name) == "cast").cloned() {
                owners.extend(operation.outputs.iter().map(|made| (made.id, owner.clone())));
            }
        }
        Self { types, fields, owners }
    }

    /// Returns the module that a parameter belongs to.
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

    /// Returns the innermost module of this type that is `path` or contains it.
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

    /// Returns the first module of this type inside `path`.
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

/// Returns the path of the module that has this module or parameter as a field.
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

/// Operations that form one row of the table.
pub(super) struct CalledLayer {
    /// Indices into the trace's operations.
    pub(super) operations: Vec<usize>,
    pub(super) call: TracedCall,
    /// The path of the module whose parameters the row uses.
    owner: Option<String>,
    pub(super) path: String,
    pub(super) inferred: bool,
    kind: String,
}

impl CalledLayer {
    /// Returns the output of the row: the largest tensor that a later operation of the step reads, or the last of
    /// equals. A `BatchNorm` ends with operations that make its running statistics, which it reads itself if it is
    /// called again.
    fn output<'a>(&self, trace: &'a ReadTrace, readers: &HashMap<u64, usize>) -> Option<&'a Made> {
        let last = *self.operations.last()?;
        let made = |index: &usize| trace.operations[*index].outputs.first();
        let is_read = |made: &&Made| readers.get(&made.id).is_some_and(|reader| *reader > last);
        let read = self.operations.iter().filter_map(made).filter(is_read);
        read.max_by_key(|made| made.bytes).or_else(|| made(&last))
    }

    /// Whether an operation belongs to this row, too.
    fn goes_on(
        &self,
        trace: &ReadTrace,
        modules: &Modules,
        operation: &Operation,
        call: &TracedCall,
        owner: Option<&str>,
    ) -> bool {
        // A row is a call. Rows by names alone would split `gelu`, whose first operation comes twice in Burn
        // 0.22. See docs/design/layers.md.
        let is_module = self.is_module(modules);
        let is_same_place = self.call.source == call.source || is_module && self.is_within_module(call);
        if self.call.modules != call.modules || !is_same_place {
            return false;
        }
        // Without parameters, only the call site tells two calls of one function apart.
        if !is_module && (self.call.function != call.function || self.call.site != call.site) {
            return false;
        }
        match (&self.owner, owner) {
            (Some(own), Some(owner)) => own == owner,
            // A module's function may change its input before it uses its parameters.
            (Some(_), None) => is_module,
            (None, _) if is_module && self.may_have_parameters(modules) => true,
            // The same place in the function again is a call of its own.
            (None, None) => trace.operations[self.operations[0]].stack != operation.stack,
            (None, Some(_)) => false,
        }
    }

    /// Whether both calls come from one call of the module's own function. A user's module with parameters is one row,
    /// even if its function has several lines.
    fn is_within_module(&self, call: &TracedCall) -> bool {
        let (Some(module), Some(own), Some(other)) = (self.call.modules.last(), &self.call.source, &call.source) else {
            return false;
        };
        let names = own
            .function
            .raw()
            .split("::")
            .map(|name| name.split('<').next().unwrap_or(name));
        let is_own = names.into_iter().any(|name| name == module.kind);
        is_own && own.function == other.function && self.call.callers == call.callers
    }

    /// Removes the last operations if they have nothing to do with those before: they prepare the input of the next
    /// module of this type.
    fn strays(&mut self, trace: &ReadTrace, modules: &Modules) -> Vec<usize> {
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
        // From the end: `start` is the first place from which on no operation shares a tensor with one before
        // it.
        let mut start = self.operations.len();
        let mut earliest = usize::MAX;
        for (place, index) in self.operations.iter().enumerate().rev() {
            // An operation with parameters certainly belongs to this layer.
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

    /// Whether the innermost function belongs to a module without submodules, and not to a function that a module
    /// called.
    fn is_module(&self, modules: &Modules) -> bool {
        let Some(last) = self.call.modules.last() else {
            return false;
        };
        let mut of_this_type = modules.types.iter().filter(|(_, kind)| **kind == last.kind).peekable();
        if of_this_type.peek().is_none() {
            // The module has no fields, so only its function shows it.
            return true;
        }
        of_this_type.all(|(path, _)| modules.is_leaf(path))
    }

    fn may_have_parameters(&self, modules: &Modules) -> bool {
        let kind = self.call.modules.last().map(|last| last.kind.as_str());
        modules.owners.values().any(|owner| modules.kind(owner) == kind)
    }
}

/// Groups the forward operations of a step into rows. `calls` finds who asked for each operation.
pub(super) fn rows(trace: &ReadTrace, modules: &Modules, calls: &mut Calls<'_>, step: u32) -> Vec<CalledLayer> {
    let mut rows: Vec<CalledLayer> = Vec::new();
    let forward = trace
        .operations
        .iter()
        .enumerate()
        .filter(|(_, operation)| operation.at == (Some(step), Phase::Forward));
    let mut all: Vec<(usize, TracedCall)> = forward.map(|(index, operation)| (index, calls.of(operation))).collect();
    // A `TrainStep` computes its loss inside the model.
    all.retain(|(_, call)| !call.is_loss);
    // The loss is not a layer. A program without function names has no modules, so its loss cannot be found.
    if all.iter().any(|(_, call)| !call.modules.is_empty()) {
        let root = modules.kind("").map(str::to_owned);
        let outermost = |call: &TracedCall| call.modules.first().map(|first| first.kind.clone());
        // If the root's own function was inlined, no call begins with the root. Then every call within a
        // module counts.
        let is_known = all.iter().any(|(_, call)| outermost(call) == root);
        all.retain(|(_, call)| {
            let outermost = outermost(call);
            outermost.is_some() && (!is_known || outermost == root)
        });
    }
    for (index, call) in all {
        let operation = &trace.operations[index];
        // An operation that returns its own input makes nothing: it moves a tensor to where the tensor already is.
        if operation.outputs.iter().all(|made| operation.inputs.contains(&made.id)) {
            continue;
        }
        let owner = operation.inputs.iter().find_map(|input| modules.owner(*input));
        // Only the last row can go on: a module that is called again later has a second row.
        match rows.last_mut() {
            Some(row) if row.goes_on(trace, modules, operation, &call, owner) => {
                row.operations.push(index);
                if row.owner.is_none() {
                    row.owner = owner.map(str::to_owned);
                }
            }
            last => {
                // A loop calls the next module of the same type from the same line. The last operations may
                // already be its input.
                let is_next = |row: &&mut CalledLayer| {
                    row.owner.is_some() && row.call.modules == call.modules && row.call.source == call.source
                };
                let before = last.filter(|row| owner.is_some() && is_next(row));
                let mut operations = before.map_or_else(Vec::new, |row| row.strays(trace, modules));
                operations.push(index);
                rows.push(CalledLayer {
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

/// Returns the operations that make each tensor, in order.
fn makers(trace: &ReadTrace) -> HashMap<u64, Vec<usize>> {
    let mut makers: HashMap<u64, Vec<usize>> = HashMap::new();
    for (index, operation) in trace.operations.iter().enumerate() {
        for made in &operation.outputs {
            makers.entry(made.id).or_default().push(index);
        }
    }
    makers
}

/// Returns the last forward operation of a step that reads each tensor. Tensors that only the next step reads, such as
/// running statistics, are not outputs.
fn readers(trace: &ReadTrace, step: Option<u32>) -> HashMap<u64, usize> {
    let operations = trace.operations.iter().enumerate();
    let forward = operations.filter(|(_, operation)| operation.at == (step, Phase::Forward));
    let reads = forward.flat_map(|(index, operation)| operation.inputs.iter().map(move |id| (*id, index)));
    reads.collect()
}

/// Whether a row only adds or removes dimensions of size 1, so that its output is the same feature map.
fn is_of_ones(trace: &ReadTrace, row: &CalledLayer, makers: &HashMap<u64, Vec<usize>>) -> bool {
    let [index] = row.operations[..] else { return false };
    let operation = &trace.operations[index];
    let ([input], Some(made)) = (&operation.inputs[..], operation.outputs.first()) else {
        return false;
    };
    // Such a view is not a layer in Keras either. A `flatten` that joins dimensions is one.
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

/// Sets the path and the kind of every row.
fn name(rows: &mut [CalledLayer], trace: &ReadTrace, modules: &Modules) {
    // The module whose parameters were used last, which shows the current place in the model.
    let mut here = String::new();
    // For each row, the next row with an owner: the row itself or a later one.
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
            // A module without parameters: Burn does not report the name of its field.
            // The innermost call is the module itself, so the name comes from the module around it.
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

/// Returns the called function, such as `flatten`. If it is unknown, Burn's name of the operation.
fn function(row: &CalledLayer, trace: &ReadTrace) -> String {
    match &row.call.function {
        Some((name, _)) => name.clone(),
        None => bare(&trace.operations[row.operations[0]].name).to_owned(),
    }
}

/// Returns the module in which an operation without parameters runs: of the innermost call's type, the module nearest
/// to `here`. The `skip` innermost calls are left out.
fn around(row: &CalledLayer, modules: &Modules, here: &str, next: Option<&str>, skip: usize) -> String {
    let calls = &row.call.modules[..row.call.modules.len() - skip];
    for call in calls.iter().rev() {
        if CONTAINERS.contains(&call.kind.as_str()) {
            continue;
        }
        // From the nearest place to the farthest. Another module of this type may be meant, so the row is
        // marked as inferred.
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

/// Builds the table. The batch comes first.
pub(super) fn table(
    trace: &ReadTrace,
    rows: &[CalledLayer],
    modules: &Modules,
    memory: &MemoryHistory,
    origins: &HashMap<u64, CategoryOrigin<'_>>,
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
        // An activation at the very beginning has no layer before it to be part of.
        if is_activation && activations == Activations::Fused && !layers.is_empty() {
            continue;
        }
        let counts = !(is_activation && activations == Activations::InPlace);
        let [parameters, learnable, bytes] = match &row.owner {
            // A module that is called twice has its parameters only once.
            Some(owner) if counted.insert(owner.clone()) => parameters(trace, modules, owner, origins),
            _ => [0; 3],
        };
        layers.push(Layer {
            path: row.path.clone().into(),
            inferred: row.inferred,
            kind: row.kind.clone().into(),
            activation: is_activation,
            output: made.shape.clone(),
            dtype: made.dtype.clone().into(),
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

/// Returns the parameters of a module itself: their number, the number of learnable ones, and the bytes of all.
fn parameters(
    trace: &ReadTrace,
    modules: &Modules,
    owner: &str,
    origins: &HashMap<u64, CategoryOrigin<'_>>,
) -> [u64; 3] {
    let mut seen = HashSet::new();
    let mut sum = [0; 3];
    let own = trace
        .belongs
        .iter()
        .filter(|(tensor, belongs)| !belongs.gradient && modules.owner(**tensor) == Some(owner));
    for (tensor, belongs) in own {
        let Some(origin) = origins.get(tensor) else { continue };
        // After each optimizer step, another tensor is the same parameter.
        if seen.insert(&belongs.path) {
            let count: u64 = origin.made.shape.iter().product();
            sum[0] += count;
            sum[1] += if belongs.learnable { count } else { 0 };
            sum[2] += origin.made.bytes;
        }
    }
    sum
}

/// Returns the tensors of the batch that layers use, directly or through operations that are not layers, such as a view
/// with one more dimension of size 1.
fn inputs(trace: &ReadTrace, rows: &[CalledLayer], origins: &HashMap<u64, CategoryOrigin<'_>>) -> Vec<Layer> {
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
                // Burn 0.22 makes parameters when they are first used, which may be in the batch phase.
                Phase::Batch if !trace.belongs.contains_key(&origin.made.id) => found.push(origin),
                // `pop` takes the last one, so `rev` keeps the inputs in their order.
                Phase::Forward => to_follow.extend(origin.operation.inputs.iter().rev()),
                _ => {}
            }
        }
    }
    found
        .into_iter()
        .map(|origin| Layer {
            path: "input".into(),
            inferred: true,
            kind: "input".into(),
            activation: false,
            output: origin.made.shape.clone(),
            dtype: origin.made.dtype.clone().into(),
            parameters: 0,
            learnable: 0,
            parameter_bytes: Bytes(0),
            feature_bytes: Bytes(origin.made.bytes),
            shares_memory: false,
            source: None,
        })
        .collect()
}

/// Adds up the layers.
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
        // Inputs receive no gradient.
        forward_backward_bytes: Bytes((feature_bytes - input_bytes).0 * 2),
        total_bytes: parameter_bytes + feature_bytes,
    }
}
