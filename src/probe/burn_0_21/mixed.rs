//! Mixed precision: parameters, and what the optimizer keeps, are f32. Each step works on a copy of the model in half precision.

use burn21::module::{Module, ModuleMapper, Param};
use burn21::tensor::backend::Backend;
use burn21::tensor::{FloatDType, Tensor};

/// The model with its parameters in f32, each a leaf of the graph as it was.
pub(super) fn in_f32<B: Backend, M: Module<B>>(model: M) -> M {
    model.map(&mut InF32)
}

/// A copy of the model whose parameters are cast inside the graph, so that the gradients of the model's own arrive in f32.
pub(super) fn in_half<B: Backend, M: Module<B>>(model: &M, half: FloatDType) -> M {
    model.clone().map(&mut InHalf(half))
}

struct InF32;

impl<B: Backend> ModuleMapper<B> for InF32 {
    fn map_float<const D: usize>(&mut self, param: Param<Tensor<B, D>>) -> Param<Tensor<B, D>> {
        param.map(|tensor| {
            let is_learned = tensor.is_require_grad();
            let cast = tensor.detach().cast(FloatDType::F32).detach();
            cast.set_require_grad(is_learned)
        })
    }
}

struct InHalf(FloatDType);

impl<B: Backend> ModuleMapper<B> for InHalf {
    fn map_float<const D: usize>(&mut self, param: Param<Tensor<B, D>>) -> Param<Tensor<B, D>> {
        param.map(|tensor| tensor.cast(self.0))
    }
}
