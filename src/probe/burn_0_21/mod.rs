//! The adapter for Burn 0.21 and cubecl 0.10: everything that names an internal of theirs.

mod launches;
mod marks;
mod panics;
mod stage;

use std::time::Duration;

use burn::backend::{Autodiff, Cuda};
use burn::module::{Module, ModuleVisitor, Param};
use burn::tensor::backend::Backend;
use burn::tensor::{Bool, Int, Tensor, TensorMetadata};
use cubecl::Runtime;
use cubecl::config::memory::PersistentMemory;
use cubecl::config::{CubeClRuntimeConfig, RuntimeConfig, cache::CacheConfig};
use cubecl::cuda::{CudaDevice, CudaRuntime};

use super::events;
use super::run::{Context, Infer, Marker, Run, Train};
use super::timeline;
use crate::protocol::{Event, RunJob, Task};

/// The name of this adapter, as the feature that switches it on.
pub(super) const ADAPTER: &str = "burn-0_21";

/// The device of a run, and what follows it.
pub(super) struct Device<B: Backend> {
    pub(super) device: B::Device,
    pub(super) marker: Marker,
}

/// A function that can be declared as a model. `Kind` is [`Train`] or [`Infer`], and is inferred.
pub trait Declared<Kind>: 'static {
    /// What such a model does.
    const TASK: Task;

    /// Runs one pass on the CUDA backend.
    fn run(&self, context: Context);
}

impl<F: Fn(&mut Run<Autodiff<Cuda>, Train>) + 'static> Declared<Train> for F {
    const TASK: Task = Task::Train;

    fn run(&self, context: Context) {
        let device = start(&context.job);
        let mut run = context.into_run(device);
        self(&mut run);
        run.sync();
        timeline::finish();
    }
}

impl<F: Fn(&mut Run<Cuda, Infer>) + 'static> Declared<Infer> for F {
    const TASK: Task = Task::Infer;

    fn run(&self, context: Context) {
        let device = start(&context.job);
        let mut run = context.into_run(device);
        self(&mut run);
        run.sync();
        timeline::finish();
    }
}

fn start<B: Backend<Device = CudaDevice>>(job: &RunJob) -> Device<B> {
    configure(job);
    panics::watch();
    let device = CudaDevice::default();
    // The context is made now, so that it is no part of what the model costs.
    let client = CudaRuntime::client(&device);
    std::thread::sleep(Duration::from_millis(job.settle_ms));
    let marker = marks::marker(&device, job.traced);
    if job.traced || job.lockstep {
        launches::install(&device, client, job.traced);
    }
    if job.lockstep {
        stage::give_way(&device);
    }
    Device { device, marker }
}

/// Keeps autotune's choices apart from the user's own, and virtual kernels out of the user's cache of compiled ones.
/// Everything else stays as the user's `cubecl.toml` and environment have it.
fn configure(job: &RunJob) {
    let mut config = CubeClRuntimeConfig::from_current_dir().override_from_env();
    config.autotune.cache = CacheConfig::File(job.autotune.clone());
    config.compilation.cache = None;
    // Burn asks for a parameter's memory from one thread while another allocates it: which parameters end up in the
    // persistent pool is a race. Without that pool there is none, and the others are as they are when it loses.
    if job.lockstep && matches!(config.memory.persistent_memory, PersistentMemory::Enabled) {
        config.memory.persistent_memory = PersistentMemory::Disabled;
    }
    CubeClRuntimeConfig::set(config);
}

/// Counts a model's parameters. They have been made by now: the model was forked to its device.
pub(super) fn report_parameters<B: Backend, M: Module<B>>(model: &M) {
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
    fn add(&mut self, tensor: &impl TensorMetadata, learnable: bool) {
        let elements = tensor.shape().num_elements() as u64;
        self.count += elements;
        self.bytes += elements * tensor.dtype().size() as u64;
        if learnable {
            self.learnable += elements;
        }
    }
}

impl<B: Backend> ModuleVisitor<B> for Counter {
    fn visit_float<const D: usize>(&mut self, param: &Param<Tensor<B, D>>) {
        let tensor = param.val();
        let learnable = tensor.is_require_grad();
        self.add(&tensor.into_primitive(), learnable);
    }

    fn visit_int<const D: usize>(&mut self, param: &Param<Tensor<B, D, Int>>) {
        self.add(&param.val().into_primitive(), false);
    }

    fn visit_bool<const D: usize>(&mut self, param: &Param<Tensor<B, D, Bool>>) {
        self.add(&param.val().into_primitive(), false);
    }
}
