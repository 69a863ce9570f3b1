//! Writes to the trace which tensors are a model's parameters and which are their gradients, with their paths in the
//! model.

use std::any::Any;

use burn21::backend::Autodiff;
use burn21::module::{AutodiffModule, Module, ModuleVisitor, Param};
use burn21::optim::GradientsParams;
use burn21::tensor::backend::{AutodiffBackend, Backend, BackendTypes};
use burn21::tensor::{Bool, Int, Tensor};

use super::observed::{Numbered, Observed};
use crate::probe::trace;

/// Writes the model's modules and the tensors of their parameters. Called again after each step of the optimizer,
/// because parameters then have new tensors.
pub(in crate::probe) fn name<B: Backend, M: Module<B>>(model: &M) {
    if trace::is_on() {
        // A visit makes parameters that do not exist yet, so it must not happen in a pass without a trace.
        model.visit(&mut Names::default());
    }
}

/// Writes which tensors are the gradients of the model's parameters.
pub(in crate::probe) fn name_gradients<B: AutodiffBackend, M: AutodiffModule<B>>(
    model: &M,
    gradients: &GradientsParams,
) {
    if trace::is_on() {
        model.visit(&mut Gradients {
            gradients,
            path: Vec::new(),
        });
    }
}

/// Looks at which tensors exist, once fusion has received all operations that were asked for so far.
pub(in crate::probe) fn look() {
    super::observed::look(&cubecl21::cuda::CudaDevice::default());
}

/// Returns the number of a tensor of the observed backend, with autodiff or without.
fn number(tensor: &dyn Any) -> Option<u64> {
    type Primitive = <Observed as BackendTypes>::FloatTensorPrimitive;
    type Tracked = <Autodiff<Observed> as BackendTypes>::FloatTensorPrimitive;
    let plain = tensor.downcast_ref::<Primitive>();
    let tracked = || tensor.downcast_ref::<Tracked>().map(|tensor| &tensor.primitive);
    plain.or_else(tracked).and_then(Numbered::number)
}

#[derive(Default)]
struct Names {
    path: Vec<String>,
}

impl Names {
    fn belongs(&self, tensor: &dyn Any, learnable: bool) {
        if let Some(number) = number(tensor) {
            trace::belongs(number, &self.path, learnable, false);
        }
    }
}

impl<B: Backend> ModuleVisitor<B> for Names {
    fn enter_module(&mut self, name: &str, container_type: &str) {
        self.path.push(name.to_owned());
        trace::module(&self.path, container_type);
    }

    fn exit_module(&mut self, _: &str, _: &str) {
        self.path.pop();
    }

    fn visit_float<const D: usize>(&mut self, param: &Param<Tensor<B, D>>) {
        let tensor = param.val();
        let learnable = tensor.is_require_grad();
        self.belongs(&tensor.into_primitive().tensor(), learnable);
    }

    fn visit_int<const D: usize>(&mut self, param: &Param<Tensor<B, D, Int>>) {
        self.belongs(&param.val().into_primitive(), false);
    }

    fn visit_bool<const D: usize>(&mut self, param: &Param<Tensor<B, D, Bool>>) {
        self.belongs(&param.val().into_primitive(), false);
    }
}

struct Gradients<'a> {
    gradients: &'a GradientsParams,
    path: Vec<String>,
}

impl<B: AutodiffBackend> ModuleVisitor<B> for Gradients<'_> {
    fn enter_module(&mut self, name: &str, _: &str) {
        self.path.push(name.to_owned());
    }

    fn exit_module(&mut self, _: &str, _: &str) {
        self.path.pop();
    }

    fn visit_float<const D: usize>(&mut self, param: &Param<Tensor<B, D>>) {
        // Gradients are tensors without autodiff. A parameter that the loss does not use has none.
        let gradient = self.gradients.get::<B::InnerBackend, D>(param.id);
        let number = gradient.and_then(|gradient| number(&gradient.into_primitive().tensor()));
        if let Some(number) = number {
            trace::belongs(number, &self.path, true, true);
        }
    }
}
