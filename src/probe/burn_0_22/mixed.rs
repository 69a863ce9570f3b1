//! Mixed precision: parameters and optimizer state are f32, and each step works on a copy of the model in half
//! precision.

use burn22::module::{Module, ModuleMapper, Param};
use burn22::tensor::{FloatDType, Tensor};

use crate::protocol::Float;

/// Casts the model's parameters to f32. Each stays a leaf of the autodiff graph.
pub(super) fn in_f32<M: Module>(model: M) -> M {
    // Burn makes parameters in the device's default type, which is the half one so that batches fit.
    // See docs/design/what-if.md.
    model.map(&mut InF32)
}

/// Returns a copy of the model whose parameters are cast inside the autodiff graph. The gradients of the model's own
/// parameters are therefore f32.
pub(super) fn in_half<M: Module>(model: &M, half: FloatDType) -> M {
    model.clone().map(&mut InHalf(half))
}

struct InF32;

impl ModuleMapper for InF32 {
    fn map_float<const D: usize>(&mut self, param: Param<Tensor<D>>) -> Param<Tensor<D>> {
        param.map(|tensor| {
            let is_learned = tensor.is_require_grad();
            // Without `detach`, the cast would be part of the graph, and the parameter would not be a leaf.
            let cast = tensor.detach().cast(FloatDType::F32).detach();
            cast.set_require_grad(is_learned)
        })
    }
}

struct InHalf(FloatDType);

impl ModuleMapper for InHalf {
    fn map_float<const D: usize>(&mut self, param: Param<Tensor<D>>) -> Param<Tensor<D>> {
        // Not detached: the backward operation of this cast makes the f32 gradient of the f32 parameter.
        param.map(|tensor| tensor.cast(self.0))
    }
}

/// Returns the element type of the tensors in a step.
pub(super) const fn dtype(float: Float) -> FloatDType {
    match float {
        Float::F32 => FloatDType::F32,
        Float::F16 | Float::MixedF16 => FloatDType::F16,
        Float::Bf16 | Float::MixedBf16 => FloatDType::BF16,
    }
}
