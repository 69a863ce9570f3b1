//! Mixed precision: parameters and optimizer state are f32, and each step works on a copy of the model in half
//! precision.

use burn21::module::{Module, ModuleMapper, Param};
use burn21::tensor::backend::Backend;
use burn21::tensor::{FloatDType, Tensor};

/// Casts the model's parameters to f32. Each stays a leaf of the autodiff graph.
pub(super) fn in_f32<B: Backend, M: Module<B>>(model: M) -> M {
    // Burn makes parameters in the device's default type, which is the half one so that batches fit.
    // See docs/design/what-if.md.
    model.map(&mut InF32)
}

/// Returns a copy of the model whose parameters are cast inside the autodiff graph. The gradients of the model's own
/// parameters are therefore f32.
pub(super) fn in_half<B: Backend, M: Module<B>>(model: &M, half: FloatDType) -> M {
    model.clone().map(&mut InHalf(half))
}

struct InF32;

impl<B: Backend> ModuleMapper<B> for InF32 {
    fn map_float<const D: usize>(&mut self, param: Param<Tensor<B, D>>) -> Param<Tensor<B, D>> {
        param.map(|tensor| {
            let is_learned = tensor.is_require_grad();
            // Without `detach`, the cast would be part of the graph, and the parameter would not be a leaf.
            let cast = tensor.detach().cast(FloatDType::F32).detach();
            cast.set_require_grad(is_learned)
        })
    }
}

struct InHalf(FloatDType);

impl<B: Backend> ModuleMapper<B> for InHalf {
    fn map_float<const D: usize>(&mut self, param: Param<Tensor<B, D>>) -> Param<Tensor<B, D>> {
        // Not detached: the backward operation of this cast makes the f32 gradient of the f32 parameter.
        param.map(|tensor| tensor.cast(self.0))
    }
}
