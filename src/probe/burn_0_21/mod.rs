//! The adapter for Burn 0.21 and cubecl 0.10: everything that names a type of theirs.

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
/// The backend that [`Observed`] runs operations on: Burn's CUDA backend, as the model's features have it.
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
use super::entry::{Adapter, Declared};
use super::pass::{Infer, Marker, Pass, Train};
use super::{events, panics, timeline};
use crate::protocol::{BurnFeatures, Event, Float, RunJob, Task};

const ADAPTER: Adapter = Adapter {
    name: "burn-0_21",
    features,
};

/// Tells the models of this adapter from those of another.
#[doc(hidden)]
pub enum Burn021 {}

/// The backend that models run on.
#[cfg(not(feature = "explain"))]
type Chosen = Underlying;
#[cfg(feature = "explain")]
type Chosen = observed::Observed;

/// Burn's own, as the model's features have it.
#[cfg(not(feature = "no-fusion"))]
type Underlying = burn21::backend::Cuda;
#[cfg(feature = "no-fusion")]
type Underlying = burn_cubecl21::CubeBackend<CudaRuntime, f32, i32, u8>;

/// The same with gradients.
#[cfg(not(feature = "checkpointing"))]
type Tracked = Autodiff<Chosen>;
#[cfg(feature = "checkpointing")]
type Tracked = Autodiff<Chosen, burn21::backend::autodiff::checkpoint::strategy::BalancedCheckpointing>;

/// What the program's Burn was built with.
fn features() -> BurnFeatures {
    use burn_cubecl21::kernel::matmul::MatmulStrategy;
    BurnFeatures {
        fusion: marks::is_fused(),
        autotune: !matches!(MatmulStrategy::default(), MatmulStrategy::Cube),
    }
}

/// The device of a run, and what follows it.
struct Device<B: Backend> {
    /// The first card.
    device: B::Device,
    /// All cards that there are.
    cards: Vec<B::Device>,
    /// One a card.
    markers: Vec<Marker>,
}

impl<F: Fn(&mut Run<Tracked, Train>) + 'static> Declared<(Burn021, Train)> for F {
    const TASK: Task = Task::Train;
    const ADAPTER: Adapter = ADAPTER;

    fn run(&self, pass: Pass) {
        let mut run = Run::new_started(pass);
        self(&mut run);
        run.sync();
        timeline::finish(None);
    }
}

impl<F: Fn(&mut Run<Chosen, Infer>) + 'static> Declared<(Burn021, Infer)> for F {
    const TASK: Task = Task::Infer;
    const ADAPTER: Adapter = ADAPTER;

    fn run(&self, pass: Pass) {
        let mut run = Run::new_started(pass);
        self(&mut run);
        run.sync();
        timeline::finish(None);
    }
}

impl<B: Backend<Device = CudaDevice>, Kind> Run<B, Kind> {
    fn new_started(pass: Pass) -> Self {
        let device = start(&pass.job);
        Self::new(pass, device)
    }
}

fn start<B: Backend<Device = CudaDevice>>(job: &RunJob) -> Device<B> {
    configure(job);
    #[cfg(not(any(
        feature = "explain",
        feature = "what-if",
        feature = "checkpointing",
        feature = "no-fusion"
    )))]
    std::hint::black_box(compiled_here as fn());
    #[cfg(feature = "explain")]
    if let Some(path) = &job.trace {
        // A trace that cannot be written is missing, and the tool says so.
        let _ = crate::probe::trace::open(path, job.foresees);
    }
    panics::watch(panics::Hooks {
        advance: marks::advance,
        settle: marks::settle,
    });
    let cards: Vec<CudaDevice> = (0..job.cards.max(1) as usize).map(CudaDevice::new).collect();
    let device = cards[0].clone();
    if cards.len() > 1 && job.trace.is_some() {
        events::impossible("an explanation is of one card, and this model is over several".to_owned());
    }
    if cards.len() > 1 && cfg!(feature = "no-fusion") {
        events::impossible("several cards are told apart by the threads of Burn's fusion".to_owned());
    }
    if job.what_if.checkpointing != cfg!(feature = "checkpointing")
        || job.what_if.no_fusion != cfg!(feature = "no-fusion")
    {
        events::impossible("these models were built with other features of cargo-vram: checkpointing and fusion are chosen when a model is built".to_owned());
    }
    if let Some(float) = job.what_if.dtype {
        let set = |device| set_default_dtypes::<B>(device, dtype(float), B::IntElem::dtype());
        if let Some(error) = cards.iter().find_map(|device| set(device).err()) {
            events::impossible(format!("the element type cannot be another: {error}"));
        }
    }
    // The contexts are made now, so that they are no part of what the model costs.
    for device in &cards {
        let _ = CudaRuntime::client(device);
    }
    std::thread::sleep(Duration::from_millis(job.settle_ms));
    let markers = marks::markers(&cards, job.traced);
    if job.traced || job.lockstep {
        launches::install(&cards, job.traced);
    }
    if job.lockstep {
        stage::give_way(&cards);
    }
    Device { device, cards, markers }
}

/// The element type of the tensors of a step.
const fn dtype(float: Float) -> FloatDType {
    match float {
        Float::F32 => FloatDType::F32,
        Float::F16 | Float::MixedF16 => FloatDType::F16,
        Float::Bf16 | Float::MixedBf16 => FloatDType::BF16,
    }
}

/// Has what Burn's fusion and memory management are generic over be compiled in this crate, as optimized as dependencies are,
/// rather than in the user's own, which mostly is not: passes are faster, and no figure is another. It is never called. Builds
/// on demand go without, for they are made for few passes.
#[cfg(not(any(
    feature = "explain",
    feature = "what-if",
    feature = "checkpointing",
    feature = "no-fusion"
)))]
fn compiled_here() {
    use burn21::tensor::ops::FloatTensorOps;
    let tensor = |device: &CudaDevice| Chosen::float_zeros(Shape::new([1]), device, FloatDType::F32);
    let device = CudaDevice::default();
    let sum = Chosen::float_add(tensor(&device), tensor(&device));
    drop(Chosen::float_matmul(sum, tensor(&device)));
}

/// Keeps autotune's choices and compiled kernels apart from the user's own: virtual kernels are none that a card could run.
/// Everything else stays as the user's `cubecl.toml` and environment have it.
fn configure(job: &RunJob) {
    let mut config = CubeClRuntimeConfig::from_current_dir().override_from_env();
    config.autotune.cache = CacheConfig::File(job.autotune.clone());
    config.compilation.cache = job.kernels.clone().map(CacheConfig::File);
    // Which tensors of a loop written by hand end up in the persistent pool is a race; without that pool there is none.
    if job.lockstep && job.free_form && matches!(config.memory.persistent_memory, PersistentMemory::Enabled) {
        config.memory.persistent_memory = PersistentMemory::Disabled;
    }
    CubeClRuntimeConfig::set(config);
}

/// How many parameters are asked for before fusion's thread wakes up, where nothing has woken it before.
const ASKED_BEFORE_AWAKE: usize = 32;
/// How many are asked for while fusion's thread makes one.
const ASKED_WHILE_ONE_IS_MADE: usize = 2;

/// Makes a model's parameters, and decides a race of Burn's in doing so, so that it always comes out the same.
///
/// Burn asks for a parameter's memory on the user's thread, which switches the persistent pool on before and off after each,
/// while fusion's thread allocates them, one by one and more slowly. What is allocated while the user's thread is still
/// asking is nearly always held in that pool; what comes later is not. A size that was held there once is held there ever
/// after, gradients and optimizer state of that size included. So the sizes of those parameters that usually win are put
/// there first, and then fusion's thread waits until each has been asked for.
///
/// The figures of the race, above, were seen on two cores. There is no GPU in it: it is a matter of the host's threads.
fn make_parameters<B: Backend, M: Module<B>>(model: &M, cards: &[B::Device]) {
    // What was made with the model is not to get between.
    for card in cards {
        let _ = B::sync(card);
    }
    let mut sizes = Sizes::default();
    model.visit(&mut sizes);
    let asleep = if sizes.awake { 0 } else { ASKED_BEFORE_AWAKE };
    let element = |card| DType::from(get_device_settings::<B>(card).float_dtype).size();
    let element = cards.first().map_or(0, element);
    for (card, shapes) in sizes.shapes {
        let winners = shapes.len().saturating_sub(asleep) / ASKED_WHILE_ONE_IS_MADE;
        let client = CudaRuntime::client(&CudaDevice::from_id(card));
        for shape in shapes.into_iter().take(winners) {
            drop(client.memory_persistent_allocation((), |()| client.empty_tensor(shape, element)));
        }
    }
    model.visit(&mut Make);
}

/// Forks a model to the cards that its parts are on, each where it is.
fn forked_in_place<B: Backend, M: Module<B>>(model: M) -> M {
    model.map(&mut ForkInPlace)
}

struct ForkInPlace;

impl<B: Backend> ModuleMapper<B> for ForkInPlace {
    fn map_float<const D: usize>(&mut self, param: Param<Tensor<B, D>>) -> Param<Tensor<B, D>> {
        let device = param.val().device();
        param.fork(&device)
    }
}

/// Makes every parameter. One at a time: only so much can be asked for while fusion's thread waits.
struct Make;

impl<B: Backend> ModuleVisitor<B> for Make {
    fn visit_float<const D: usize>(&mut self, param: &Param<Tensor<B, D>>) {
        if !param.is_initialized() {
            let gate = stage::hold(param.lazy_device().to_id());
            let made = param.val();
            drop(gate);
            let _ = B::sync(&made.device());
        }
    }
}

/// The parameters that are still to be made.
#[derive(Default)]
struct Sizes {
    /// By card, in the order in which they are asked for.
    shapes: BTreeMap<DeviceId, Vec<Shape>>,
    /// Whether others were made already.
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

/// Counts a model's parameters. They have been made by now: the model was forked to its device.
fn report_parameters<B: Backend, M: Module<B>>(model: &M) {
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
