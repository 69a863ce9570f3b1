//! Writes to the trace which tensors are a model's parameters and which are their gradients, with their paths in the
//! model.

use burn_fusion22::{FusionRuntime, FusionTensor};
use burn22::module::{Module, ModuleVisitor, Param};
use burn22::optim::GradientsParams;
use burn22::tensor::{Bool, Int, Tensor};

use crate::probe::trace;

/// Writes the model's modules and the tensors of their parameters. Called again after each step of the optimizer,
/// because parameters then have new tensors.
pub(in crate::probe::burn_0_22) fn name<M: Module>(model: &M) {
    if trace::is_on() {
        // A visit makes parameters that do not exist yet, so it must not happen in a pass without a trace.
        model.visit(&mut ParameterNames::default());
    }
}

/// Writes which tensors are the gradients of the model's parameters.
pub(in crate::probe::burn_0_22) fn name_gradients<M: Module>(model: &M, gradients: &GradientsParams) {
    if trace::is_on() {
        model.visit(&mut GradientNames {
            gradients,
            path: Vec::new(),
        });
    }
}

/// A tensor of the backend.
trait TraceNumber {
    /// Returns the number by which the trace knows the tensor.
    fn number(&self) -> Option<u64>;
}

impl<R: FusionRuntime> TraceNumber for FusionTensor<R> {
    fn number(&self) -> Option<u64> {
        Some(self.id.value())
    }
}

impl TraceNumber for burn_cubecl22::tensor::CubeTensor {
    fn number(&self) -> Option<u64> {
        None
    }
}

fn number<const D: usize>(tensor: Tensor<D>) -> Option<u64> {
    let plain = match tensor.device().is_autodiff() {
        true => tensor.inner(),
        false => tensor,
    };
    plain.try_into_primitive::<burn_cubecl22::Cube>().ok()?.number()
}

#[derive(Default)]
struct ParameterNames {
    path: Vec<String>,
}

impl ParameterNames {
    fn belongs(&self, number: Option<u64>, learnable: bool) {
        if let Some(number) = number {
            trace::belongs(number, &self.path, learnable, false);
        }
    }
}

impl ModuleVisitor for ParameterNames {
    fn enter_module(&mut self, name: &str, container_type: &str) {
        self.path.push(name.to_owned());
        trace::module(&self.path, container_type);
    }

    fn exit_module(&mut self, _: &str, _: &str) {
        self.path.pop();
    }

    fn visit_float<const D: usize>(&mut self, param: &Param<Tensor<D>>) {
        let tensor = param.val();
        let learnable = tensor.is_require_grad();
        self.belongs(number(tensor), learnable);
    }

    fn visit_int<const D: usize>(&mut self, param: &Param<Tensor<D, Int>>) {
        let tensor = param.val().try_into_primitive::<burn_cubecl22::Cube>();
        self.belongs(tensor.ok().and_then(|tensor| tensor.number()), false);
    }

    fn visit_bool<const D: usize>(&mut self, param: &Param<Tensor<D, Bool>>) {
        let tensor = param.val().try_into_primitive::<burn_cubecl22::Cube>();
        self.belongs(tensor.ok().and_then(|tensor| tensor.number()), false);
    }
}

struct GradientNames<'a> {
    gradients: &'a GradientsParams,
    path: Vec<String>,
}

impl ModuleVisitor for GradientNames<'_> {
    fn enter_module(&mut self, name: &str, _: &str) {
        self.path.push(name.to_owned());
    }

    fn exit_module(&mut self, _: &str, _: &str) {
        self.path.pop();
    }

    fn visit_float<const D: usize>(&mut self, param: &Param<Tensor<D>>) {
        if let Some(number) = self.gradients.get::<D>(param.id).and_then(number) {
            trace::belongs(number, &self.path, true, true);
        }
    }
}
