//! The adapter for Burn 0.21 and cubecl 0.10. Models use [`Run`]; all code that names types of these crates is here.

#[cfg(feature = "train")]
mod backward;
#[cfg(feature = "distributed")]
mod distributed;
mod launches;
mod marks;
mod mixed;
#[cfg(feature = "explain")]
mod modules;
#[cfg(feature = "explain")]
mod observed;
mod optimizer;
mod parallel;
mod run;
mod stage;
mod train;
#[cfg(feature = "train")]
mod training;
#[cfg(not(all(feature = "train", feature = "distributed")))]
mod without_feature;

use std::collections::BTreeMap;
use std::time::Duration;

use burn_backend21::{Device as _, DeviceId, get_device_settings, set_default_dtypes};
use burn21::backend::Autodiff;
use burn21::module::{Module, ModuleMapper, ModuleVisitor, Param};
use burn21::tensor::backend::Backend;
use burn21::tensor::{Bool, DType, Element, FloatDType, Int, Shape, Tensor, TensorMetadata};
use cubecl21::Runtime;
use cubecl21::config::memory::PersistentMemory;
use cubecl21::config::{CubeClRuntimeConfig, RuntimeConfig, cache::CacheConfig};
use cubecl21::cuda::{CudaDevice, CudaRuntime};

#[cfg(feature = "explain")]
pub use self::observed::Observed;
/// The backend that [`Observed`] runs operations on: Burn's CUDA backend, with fusion or without it, as the models were
/// built.
#[cfg(feature = "explain")]
pub type ObservedBackend = Underlying;
#[cfg(feature = "distributed")]
pub use self::distributed::Distributed;
#[cfg(feature = "distributed")]
use self::observed::in_order;
pub use self::optimizer::IntoOptimizer;
pub use self::parallel::DataParallel;
pub use self::run::Run;
pub use self::train::{Step, Steps, WithBatch, WithLoss, WithModel};
#[cfg(feature = "train")]
pub use self::training::{Epochs, Training};
use super::entry::{Adapter, Declared};
#[cfg(feature = "train")]
pub use super::epochs::TrainingInputs;
use super::pass::{Infer, Marker, ProbePass, Train};
use super::{events, panics, timeline};
use crate::protocol::{BurnFeatures, Float, ProbeEvent, RunJob, Task};

const ADAPTER: Adapter = Adapter {
    name: "burn-0_21",
    features,
};

/// Marks the models of this adapter, so that the compiler can distinguish adapters.
#[doc(hidden)]
pub enum Burn021 {}

/// The backend that models run on.
#[cfg(not(feature = "explain"))]
type ModelBackend = Underlying;
#[cfg(feature = "explain")]
type ModelBackend = observed::Observed;

/// Burn's CUDA backend, with fusion or without it, as the models were built.
#[cfg(not(feature = "no-fusion"))]
type Underlying = burn21::backend::Cuda;
#[cfg(feature = "no-fusion")]
type Underlying = burn_cubecl21::CubeBackend<CudaRuntime, f32, i32, u8>;

/// The backend that models train on: the same with autodiff.
#[cfg(not(feature = "checkpointing"))]
type Tracked = Autodiff<ModelBackend>;
#[cfg(feature = "checkpointing")]
type Tracked = Autodiff<ModelBackend, burn21::backend::autodiff::checkpoint::strategy::BalancedCheckpointing>;

/// Returns the features that the program's Burn was built with.
fn features() -> BurnFeatures {
    use burn_cubecl21::kernel::matmul::MatmulStrategy;
    BurnFeatures {
        fusion: marks::is_fused(),
        // Another crate's features cannot be asked for. This default depends on Burn's feature `autotune`.
        autotune: !matches!(MatmulStrategy::default(), MatmulStrategy::Cube),
    }
}

/// The GPUs of a run and their markers.
struct Device<B: Backend> {
    /// The first GPU.
    device: B::Device,
    /// All GPUs of the process.
    gpus: Vec<B::Device>,
    /// One marker per GPU.
    markers: Vec<Marker>,
}

impl<F: Fn(&mut Run<Tracked, Train>) + 'static> Declared<(Burn021, Train)> for F {
    const TASK: Task = Task::Train;
    const ADAPTER: Adapter = ADAPTER;

    fn run(&self, pass: ProbePass) {
        let mut run = Run::new_started(pass);
        self(&mut run);
        run.sync();
        timeline::finish(None);
    }
}

impl<F: Fn(&mut Run<ModelBackend, Infer>) + 'static> Declared<(Burn021, Infer)> for F {
    const TASK: Task = Task::Infer;
    const ADAPTER: Adapter = ADAPTER;

    fn run(&self, pass: ProbePass) {
        let mut run = Run::new_started(pass);
        self(&mut run);
        run.sync();
        timeline::finish(None);
    }
}

impl<B: Backend<Device = CudaDevice>, Kind> Run<B, Kind> {
    fn new_started(pass: ProbePass) -> Self {
        let device = start(&pass.job);
        Self::new(pass, device)
    }
}

fn start<B: Backend<Device = CudaDevice>>(job: &RunJob) -> Device<B> {
    // Before anything of Burn runs, because cubecl refuses a configuration once it has read one.
    configure(job);
    cargo_vram_generics_0_21::instantiate();
    #[cfg(feature = "explain")]
    if let Some(path) = &job.trace {
        // If the trace cannot be opened, its file is missing, and the tool reports that.
        let _ = crate::probe::trace::open(path, job.foresees);
    }
    panics::watch(panics::Hooks {
        advance: marks::advance,
        settle: marks::settle,
    });
    let gpus: Vec<CudaDevice> = (0..job.gpus.max(1) as usize).map(CudaDevice::new).collect();
    let device = gpus[0].clone();
    if gpus.len() > 1 && job.trace.is_some() {
        events::impossible("an explanation covers one GPU, and this model uses several".to_owned());
    }
    if gpus.len() > 1 && cfg!(feature = "no-fusion") {
        events::impossible(
            "a model over several GPUs needs Burn's fusion: cargo-vram recognizes each GPU by its fusion thread"
                .to_owned(),
        );
    }
    // A build that was made by hand must not pass for the model itself.
    if job.what_if.checkpointing != cfg!(feature = "checkpointing")
        || job.what_if.no_fusion != cfg!(feature = "no-fusion")
    {
        events::impossible(
            "these models were built with other features of cargo-vram than the job needs: checkpointing and fusion \
             are fixed when a model is built"
                .to_owned(),
        );
    }
    // Before the first tensor operation, which fixes the default types of its device for good.
    if let Some(float) = job.what_if.dtype {
        let set = |device| set_default_dtypes::<B>(device, dtype(float), B::IntElem::dtype());
        if let Some(error) = gpus.iter().find_map(|device| set(device).err()) {
            events::impossible(format!("unsupported dtype: {error}"));
        }
    }
    // Create the CUDA contexts now, so that the model's memory does not include them.
    for device in &gpus {
        let _ = CudaRuntime::client(device);
    }
    std::thread::sleep(Duration::from_millis(job.settle_ms));
    let markers = marks::markers(&gpus, job.traced);
    // The cold and warm passes of a measurement have neither, and run freely. See docs/design/threads.md.
    if job.traced || job.lockstep {
        launches::install(&gpus, job.traced);
    }
    if job.lockstep {
        stage::give_way(&gpus);
    }
    Device { device, gpus, markers }
}

/// Returns the element type of the tensors in a step.
const fn dtype(float: Float) -> FloatDType {
    match float {
        Float::F32 => FloatDType::F32,
        Float::F16 | Float::MixedF16 => FloatDType::F16,
        Float::Bf16 | Float::MixedBf16 => FloatDType::BF16,
    }
}

/// Keeps autotune's choices and compiled kernels apart from the user's own, because no GPU could run virtual kernels.
/// All other settings come from the user's `cubecl.toml` and environment.
fn configure(job: &RunJob) {
    let mut config = CubeClRuntimeConfig::from_current_dir().override_from_env();
    config.autotune.cache = CacheConfig::File(job.autotune.clone());
    config.compilation.cache = job.kernels.clone().map(CacheConfig::File);
    // In a hand-written loop, a race decides which tensors are in the persistent pool. Without that pool there is no
    // race.
    // `Enforced` has no race, and `Disabled` has none either, so both stay as the user set them.
    if job.lockstep && job.free_form && matches!(config.memory.persistent_memory, PersistentMemory::Enabled) {
        config.memory.persistent_memory = PersistentMemory::Disabled;
    }
    CubeClRuntimeConfig::set(config);
}

/// The number of parameters that are asked for before fusion's thread wakes up, if nothing has woken it before.
// Without a pool, a decoder's inference held 9 % less than measured. With every parameter in it, VGG16 held
// 69 % too much. See docs/design/persistent-pool.md.
const ASKED_BEFORE_AWAKE: usize = 32;
/// The number of parameters that are asked for while fusion's thread makes one.
const ASKED_WHILE_ONE_IS_MADE: usize = 2;

/// Makes a model's parameters so that a race within Burn always has the same result.
///
/// Burn asks for a parameter's memory on the user's thread, which switches the persistent pool on before each parameter
/// and off after it. Fusion's thread allocates the parameters one by one, and more slowly. What it allocates while the
/// user's thread is still asking is nearly always in that pool; what it allocates later is not. A size that was in the
/// pool once stays there, also for gradients and optimizer state of that size.
///
/// So this function first puts the sizes of those parameters that usually win the race into the pool. Then it makes
/// fusion's thread wait until each parameter has been asked for.
///
/// The two numbers above were observed on two cores. Only the host's threads are in this race; the GPU is not.
fn make_parameters<B: Backend, M: Module<B>>(model: &M, gpus: &[B::Device]) {
    // Finish what was made with the model first, so that it does not interfere.
    for gpu in gpus {
        let _ = B::sync(gpu);
    }
    let mut sizes = Sizes::default();
    model.visit(&mut sizes);
    let asleep = if sizes.awake { 0 } else { ASKED_BEFORE_AWAKE };
    let element = |gpu| DType::from(get_device_settings::<B>(gpu).float_dtype).size();
    let element = gpus.first().map_or(0, element);
    for (gpu, shapes) in sizes.shapes {
        let winners = shapes.len().saturating_sub(asleep) / ASKED_WHILE_ONE_IS_MADE;
        let client = CudaRuntime::client(&CudaDevice::from_id(gpu));
        for shape in shapes.into_iter().take(winners) {
            // Freed at once: a size that was in the pool once stays there, and the parameter itself takes the
            // slice.
            drop(client.memory_persistent_allocation((), |()| client.empty_tensor(shape, element)));
        }
    }
    model.visit(&mut MakeParameters);
}

/// Forks a model in place: each parameter on the GPU that it is on.
fn forked_in_place<B: Backend, M: Module<B>>(model: M) -> M {
    model.map(&mut ForkInPlace)
}

struct ForkInPlace;

impl<B: Backend> ModuleMapper<B> for ForkInPlace {
    fn map_float<const D: usize>(&mut self, param: Param<Tensor<B, D>>) -> Param<Tensor<B, D>> {
        // `model.fork` takes one device, and would move all parts of a split model to it.
        let device = param.val().device();
        param.fork(&device)
    }
}

/// Makes every parameter, one at a time, because fusion's queue is limited while its thread waits.
struct MakeParameters;

impl<B: Backend> ModuleVisitor<B> for MakeParameters {
    fn visit_float<const D: usize>(&mut self, param: &Param<Tensor<B, D>>) {
        if !param.is_initialized() {
            let gate = stage::hold(param.lazy_device().to_id());
            let made = param.val();
            drop(gate);
            let _ = B::sync(&made.device());
        }
    }
}

/// The parameters that do not exist yet.
#[derive(Default)]
struct Sizes {
    /// Their shapes per GPU, in the order in which they are asked for.
    shapes: BTreeMap<DeviceId, Vec<Shape>>,
    /// Whether other parameters exist already, so that fusion's thread is awake.
    awake: bool,
}

impl<B: Backend> ModuleVisitor<B> for Sizes {
    fn visit_float<const D: usize>(&mut self, param: &Param<Tensor<B, D>>) {
        if param.is_initialized() {
            self.awake = true;
        } else {
            let shapes = self.shapes.entry(param.lazy_device().to_id()).or_default();
            shapes.push(param.lazy_shape());
        }
    }
}

/// Counts and reports a model's parameters. All exist by now, because the model was forked to its device.
fn report_parameters<B: Backend, M: Module<B>>(model: &M) {
    let mut counter = Counter::default();
    model.visit(&mut counter);
    events::send(&ProbeEvent::Parameters {
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
