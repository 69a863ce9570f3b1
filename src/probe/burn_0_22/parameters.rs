//! A model's parameters: made where they belong, and counted.

use burn22::module::{Module, ModuleMapper, ModuleVisitor, Param};
use burn22::tensor::{Bool, DType, Int, Shape, Tensor};

use crate::probe::events;
use crate::protocol::Event;

/// Forks a model to the GPUs that its parts are on, each where it is.
pub(super) fn forked_in_place<M: Module>(model: M) -> M {
    model.map(&mut ForkInPlace)
}

struct ForkInPlace;

impl ModuleMapper for ForkInPlace {
    fn map_float<const D: usize>(&mut self, param: Param<Tensor<D>>) -> Param<Tensor<D>> {
        let device = param.val().device();
        param.fork(&device)
    }
}

/// Counts a model's parameters. They have been made by now: the model was forked to its device.
pub(super) fn report<M: Module>(model: &M) {
    let mut counter = Counter::default();
    model.visit(&mut counter);
    events::send(&Event::Parameters {
        count: counter.count,
        learnable: counter.learnable,
        bytes: counter.bytes,
    });
}

#[derive(Default)]
struct Counter {
    count: u64,
    learnable: u64,
    bytes: u64,
}

impl Counter {
    fn add(&mut self, shape: &Shape, dtype: DType, learnable: bool) {
        let elements = shape.num_elements() as u64;
        self.count += elements;
        self.bytes += elements * dtype.size() as u64;
        if learnable {
            self.learnable += elements;
        }
    }
}

impl ModuleVisitor for Counter {
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
