//! Writes operations to the trace, when the model asks for them and when fusion runs them.

use std::fmt::Write;

use burn_fusion22::observer::{BlockOperations, FusionObserver};
use burn_ir22::{OperationIr, TensorIr, TensorStatus};

use super::between::{self, Reported};
use super::looks;
use crate::probe::trace;
use crate::protocol::Made;

pub(super) struct Operations;

impl FusionObserver for Operations {
    fn registered(&self, operation: &OperationIr) {
        match between::reported(operation) {
            Reported::Own => return,
            // Only here is fusion's server free. A look from the code below would wait for itself.
            Reported::Between => return looks::look_between(),
            Reported::Model => {}
        }
        match operation {
            OperationIr::Custom(look) if look.id == looks::NAME => return,
            // A drop has no line of the program that asks for it, but memory may go with it: so look after
            // it.
            OperationIr::Drop(_) => {}
            operation => {
                let inputs = operation.inputs().map(|tensor| tensor.id.value()).collect();
                trace::operation(&name(operation), inputs, operation.outputs().map(made).collect());
            }
        }
        between::ask();
    }

    fn block_starts(&self, block: BlockOperations<'_>) {
        if block.iter().any(is_own) {
            return;
        }
        let (mut outputs, mut freed) = (Vec::new(), Vec::new());
        for operation in block.iter() {
            outputs.extend(operation.outputs().map(made));
            let last_used = |tensor: &&TensorIr| tensor.status == TensorStatus::ReadWrite;
            freed.extend(operation.inputs().filter(last_used).map(|tensor| tensor.id.value()));
            if let OperationIr::Drop(tensor) = operation {
                freed.push(tensor.id.value());
            }
        }
        let numbers: Vec<u64> = outputs.iter().map(|made| made.id).collect();
        looks::expect(&numbers, &freed);
        trace::ran(outputs, freed);
    }

    fn block_ran(&self) {}
}

/// Whether an operation is our own, not the model's: a look, or the one that asks for the next look.
pub(in crate::probe::burn_0_22) fn is_own(operation: &OperationIr) -> bool {
    between::is_own(operation) || matches!(operation, OperationIr::Custom(look) if look.id == looks::NAME)
}

fn made(tensor: &TensorIr) -> Made {
    Made {
        id: tensor.id.value(),
        bytes: tensor.shape.num_elements() as u64 * tensor.dtype.size() as u64,
        shape: tensor.shape.iter().map(|side| *side as u64).collect(),
        dtype: tensor.dtype.name().to_owned(),
    }
}

/// Returns the operation's name in Burn's backends: `float_add`, `conv2d`. Burn's debug output for it is
/// `NumericFloat(F32, Add(BinaryOpIr { …`.
fn name(operation: &OperationIr) -> String {
    if let OperationIr::Custom(custom) = operation {
        return custom.id.clone();
    }
    let mut start = Start(String::new());
    // `Start` ends the output early on purpose.
    // Burn has no name for an operation. The whole debug output would list every shape, for each operation.
    let _ = write!(start, "{operation:?}");
    name_of(&start.0)
}

/// The beginning of a text, up to the first brace.
struct Start(String);

impl Write for Start {
    fn write_str(&mut self, text: &str) -> std::fmt::Result {
        let (text, is_whole) = match text.split_once('{') {
            Some((text, _)) => (text, false),
            None => (text, true),
        };
        self.0.push_str(text);
        is_whole.then_some(()).ok_or(std::fmt::Error)
    }
}

fn name_of(start: &str) -> String {
    let words = start.split(['(', ',', ' ']);
    let mut words = words.filter(|word| !word.is_empty() && !word.ends_with("Ir"));
    let kind = words.next().unwrap_or_default();
    let operation = words.next_back();
    let prefix = match kind {
        "BaseFloat" | "NumericFloat" | "Float" => "float_",
        "BaseInt" | "NumericInt" | "Int" => "int_",
        "BaseBool" | "Bool" => "bool_",
        _ => "",
    };
    match (operation, kind) {
        (Some(operation), _) => prefix.to_owned() + &snake_case(operation),
        (None, "Init") => "from_data".to_owned(),
        (None, kind) => snake_case(kind),
    }
}

/// `Conv2dXBackward` → `conv2d_x_backward`
fn snake_case(name: &str) -> String {
    let mut text = String::with_capacity(name.len() + 4);
    for letter in name.chars() {
        if letter.is_ascii_uppercase() && !text.is_empty() {
            text.push('_');
        }
        text.push(letter.to_ascii_lowercase());
    }
    text
}

#[cfg(test)]
mod tests {
    use super::name_of;

    #[test]
    fn operations_are_named_as_backends_name_them() {
        let names = [
            ("NumericFloat(F32, Add(BinaryOpIr ", "float_add"),
            ("BaseFloat(Reshape(ShapeOpIr ", "float_reshape"),
            ("BaseInt(SwapDims(SwapDimsOpIr ", "int_swap_dims"),
            ("Float(F32, Matmul(MatmulOpIr ", "float_matmul"),
            ("Module(Conv2dXBackward(Conv2dXBackwardOpIr ", "conv2d_x_backward"),
            ("Activation(Relu(UnaryOpIr ", "relu"),
            ("Bool(And(BinaryOpIr ", "bool_and"),
            ("Init(InitOperationIr ", "from_data"),
        ];
        for (start, name) in names {
            assert_eq!(name_of(start), name);
        }
    }
}
