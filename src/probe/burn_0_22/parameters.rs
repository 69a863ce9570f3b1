//! Forks a model's parameters in place, and counts them.

use burn22::module::{Module, ModuleMapper, ModuleVisitor, Param};
use burn22::tensor::{Bool, DType, Int, Shape, Tensor};

use crate::probe::events;
use crate::protocol::ProbeEvent;

/// Forks a model in place: each parameter on the GPU that it is on.
pub(super) fn forked_in_place<M: Module>(model: M) -> M {
    model.map(&mut ForkInPlace)
}

struct ForkInPlace;

impl ModuleMapper for ForkInPlace {
    fn map_float<const D: usize>(&mut self, param: Param<Tensor<D>>) -> Param<Tensor<D>> {
        // `model.fork` takes one device, and would move all parts of a split model to it.
        let device = param.val().device();
        param.fork(&device)
    }
}

/// Counts and reports a model's parameters. All exist by now, because the model was forked to its device.
pub(super) fn report<M: Module>(model: &M) {
    let mut counter = ParameterCounter::default();
    model.visit(&mut counter);
    events::send(&ProbeEvent::Parameters {
        count: counter.count,
        learnable: counter.learnable,
        bytes: counter.bytes,
    });
}

#[derive(Default)]
struct ParameterCounter {
    count: u64,
    learnable: u64,
    bytes: u64,
}

impl ParameterCounter {
    fn add(&mut self, shape: &Shape, dtype: DType, learnable: bool) {
        let elements = shape.num_elements() as u64;
        self.count += elements;
        self.bytes += elements * dtype.size() as u64;
        if learnable {
            self.learnable += elements;
        }
    }
}

impl ModuleVisitor for ParameterCounter {
    fn visit_float<const D: usize>(&mut self, param: &Param<Tensor<D>>) {
        let tensor = param.val();
        self.add(&tensor.shape(), tensor.dtype(), tensor.is_require_grad());
    }

    fn visit_int<const D: usize>(&mut self, param: &Param<Tensor<D, Int>>) {
        let tensor = param.val();
        self.add(&tensor.shape(), tensor.dtype(), false);
    }

    fn visit_bool<const D: usize>(&mut self, param: &Param<Tensor<D, Bool>>) {
        let tensor = param.val();
        self.add(&tensor.shape(), tensor.dtype(), false);
    }
}
