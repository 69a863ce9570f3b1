//! The adapter for Burn 0.22 and cubecl 0.11: everything that names a type of theirs.

mod failures;
mod launches;
mod marks;
mod mixed;
mod observed;
mod optimizer;
mod parallel;
mod parameters;
mod run;
mod stage;
mod steps;
mod store;
mod train;
mod uploads;
mod watchdog;
#[cfg(not(feature = "train"))]
mod without_feature;

use std::sync::Arc;
use std::time::Duration;

use burn22::tensor::{Device, FloatDType};
use cubecl22::MemoryScope;
use cubecl22::client::Client;
use cubecl22::config::cache::CacheConfig;
use cubecl22::config::{CubeClRuntimeConfig, RuntimeConfig};
use cubecl22::cuda::CudaDevice;

pub use self::optimizer::IntoOptimizer;
pub use self::parallel::DataParallel;
pub use self::run::Run;
use self::stage::Threads;
pub use self::steps::{Step, Steps};
pub use self::train::{WithBatch, WithLoss, WithModel};
use super::entry::{Adapter, Declared};
use super::pass::{Infer, Marker, Pass, Train};
use super::{events, panics, timeline, trace};
use crate::protocol::{BurnFeatures, Float, Inside, RunJob, Task};

const ADAPTER: Adapter = Adapter {
    name: "burn-0_22",
    features,
};

/// Tells the models of this adapter from those of another.
#[doc(hidden)]
pub enum Burn022 {}

/// How a backend hands its operations to the GPU.
trait Hands {
    /// Whether they go through fusion first.
    const FUSED: bool;
}

impl<B: burn_fusion22::FusionBackend> Hands for burn_fusion22::Fusion<B> {
    const FUSED: bool = true;
}

impl Hands for burn_cubecl22::CubeBackend {
    const FUSED: bool = false;
}

/// What the program's Burn was built with.
fn features() -> BurnFeatures {
    use burn_cubecl22::kernel::matmul::MatmulStrategy;
    BurnFeatures {
        fusion: burn_cubecl22::Cube::FUSED,
        autotune: !matches!(MatmulStrategy::default(), MatmulStrategy::Cube),
    }
}

/// The GPUs of a run, and what follows each.
struct Gpus {
    devices: Vec<Device>,
    markers: Vec<Marker>,
    clients: Vec<Client>,
    threads: Arc<Vec<Threads>>,
    /// Whether each step of a ready-made loop runs on the thread of fusion.
    steps_inside: bool,
    /// Whether a step that hangs there is to end.
    watched: bool,
}

impl Gpus {
    /// Runs what a step does after its batch was made, where the job wants it.
    fn in_step<R: Send>(&self, work: impl FnOnce() -> R + Send) -> R {
        if !self.steps_inside {
            return work();
        }
        let watch = self.watched.then(watchdog::watch);
        let done = self.threads[0].fusion.exclusive(work);
        drop(watch);
        done.unwrap_or_else(|panic| panic.resume())
    }

    /// The one that models are made on, unless they say otherwise.
    fn first(&self) -> &Device {
        &self.devices[0]
    }

    /// Waits until they have done everything they were given.
    fn sync(&self) {
        for device in &self.devices {
            failures::note(device.sync());
        }
    }

    /// The largest tensor, in bytes, that Burn allocates on each of them.
    fn largest_tensor(&self) -> u64 {
        let largest = self.clients.iter().map(|client| {
            let memory = &client.properties().memory;
            // Pages are as aligned as what lies in them.
            memory.max_page_size / memory.alignment * memory.alignment
        });
        largest.min().unwrap_or(u64::MAX)
    }

    /// The most bytes that their allocators have reserved so far. Where nothing looks at launches, this sees only what they
    /// reserve now.
    fn most_reserved(&self) -> u64 {
        for threads in self.threads.iter() {
            if !threads.wait() {
                timeline::missed();
            }
        }
        let now = |(gpu, client): (usize, &Client)| {
            let now = client.memory_report(MemoryScope::Device).usage().bytes_reserved;
            now.max(launches::most_reserved(gpu))
        };
        self.clients.iter().enumerate().map(now).sum()
    }
}

impl<F: Fn(&mut Run<Train>) + Sync + 'static> Declared<(Burn022, Train)> for F {
    const TASK: Task = Task::Train;
    const ADAPTER: Adapter = ADAPTER;

    fn run(&self, pass: Pass) {
        run_pass(pass, |gpu| gpu.autodiff(), self);
    }
}

impl<F: Fn(&mut Run<Infer>) + Sync + 'static> Declared<(Burn022, Infer)> for F {
    const TASK: Task = Task::Infer;
    const ADAPTER: Adapter = ADAPTER;

    fn run(&self, pass: Pass) {
        run_pass(pass, |gpu| gpu, self);
    }
}

fn run_pass<Kind>(pass: Pass, device: fn(Device) -> Device, model: impl Fn(&mut Run<Kind>) + Sync) {
    let gpus = start(&pass.job, device);
    let (autotune, kernels) = (pass.job.autotune.clone(), pass.job.kernels.clone());
    // Where there are several GPUs, one thread is the server of one of them alone.
    let has_one_thread = gpus.threads.len() == 1 && features().fusion;
    let is_inside = pass.job.inside == Inside::All && has_one_thread;
    let is_traced = trace::is_on();
    let is_watched = pass.job.watched;
    let may_race = pass.job.lockstep && !is_inside && has_one_thread;
    if features().fusion {
        uploads::watch(gpus.largest_tensor(), pass.job.lockstep);
    }
    let threads = gpus.threads.clone();
    let run = || {
        let mut run = Run::new(pass, gpus);
        model(&mut run);
        run.sync();
    };
    let watch = (is_watched && is_inside).then(watchdog::watch);
    if is_inside {
        uploads::inside(&threads[0], run);
    } else {
        run();
    }
    drop(watch);
    if may_race && !is_traced {
        uploads::end_if_unordered(|| store::export_kernels(kernels.as_deref()));
    }
    store::export(&autotune, kernels.as_deref());
    timeline::finish(Some(failures::retried()));
}

fn start(job: &RunJob, device: fn(Device) -> Device) -> Arc<Gpus> {
    configure(job);
    failures::watch();
    panics::watch(panics::Hooks {
        advance: || (),
        settle: marks::settle,
    });
    let count = u16::try_from(job.cards.max(1)).unwrap_or(1);
    let is_fused = features().fusion;
    if count > 1 && !is_fused {
        events::impossible("several cards are told apart by the threads of Burn's fusion".to_owned());
    }
    if job.what_if.no_fusion {
        events::impossible("Burn 0.22 fuses operations or not by its own Cargo feature `fusion`, which an additional feature cannot switch off".to_owned());
    }
    if let Some(path) = &job.trace {
        if !is_fused {
            events::impossible(
                "an explanation is of what Burn 0.22's fusion tells: build with Burn's feature `fusion`".to_owned(),
            );
        }
        if count > 1 {
            events::impossible("an explanation is of one card, and this model is over several".to_owned());
        }
        // A trace that cannot be written is missing, and the tool says so.
        let _ = trace::open(path, false);
    }
    // Before the first operation of a GPU: the first handle of a service waits for that GPU's thread.
    let threads = Arc::new((0..count).map(Threads::new).collect::<Vec<_>>());
    let clients: Vec<Client> = (0..count)
        // The contexts are made now, so that they are no part of what the model costs.
        .map(|gpu| cubecl22::Device::Cuda(CudaDevice::new(gpu.into())).client())
        .collect();
    if trace::is_on() {
        trace::start(clients[0].properties().memory.alignment, true);
        observed::start(job.inside != Inside::Nothing);
    }
    store::import(&job.autotune, job.kernels.as_deref());
    std::thread::sleep(Duration::from_millis(job.settle_ms));
    let devices = (0..count).map(|gpu| prepared(gpu, job, device)).collect();
    let markers = marks::markers(&threads, job.traced, is_fused);
    if job.traced || job.lockstep {
        launches::install(&threads, clients.clone(), launches::Looks::of(job));
    }
    if job.lockstep {
        stage::give_way();
    }
    Arc::new(Gpus {
        devices,
        markers,
        clients,
        watched: job.watched,
        steps_inside: job.inside == Inside::Steps && threads.len() == 1 && is_fused,
        threads,
    })
}

/// The element type of the tensors of a step.
const fn dtype(float: Float) -> FloatDType {
    match float {
        Float::F32 => FloatDType::F32,
        Float::F16 | Float::MixedF16 => FloatDType::F16,
        Float::Bf16 | Float::MixedBf16 => FloatDType::BF16,
    }
}

/// A device of the program's, as the job wants it.
fn prepared(gpu: u16, job: &RunJob, device: fn(Device) -> Device) -> Device {
    let mut cuda = Device::cuda(usize::from(gpu));
    if let Some(float) = job.what_if.dtype
        && let Err(error) = cuda.configure(dtype(float))
    {
        events::impossible(format!("the element type cannot be another: {error}"));
    }
    let made = device(cuda);
    match job.what_if.checkpointing && made.is_autodiff() {
        true => made.gradient_checkpointing(),
        false => made,
    }
}

/// A path below which there can be no file.
const NO_FOLDER: &str = "/dev/null";

/// Keeps autotune's choices and compiled kernels apart from the user's own: virtual kernels are none that a GPU could run.
/// Everything else stays as the user's `cubecl.toml` and environment have it.
fn configure(job: &RunJob) {
    let mut config = CubeClRuntimeConfig::from_current_dir().override_from_env();
    config.compilation.cache = job.kernels.is_some();
    config.autotune.disable_cache = false;
    // A virtual clock tells no candidate that is close to the GPU's peak: every one is tried, as where none is close enough.
    config.autotune.disable_short_circuit |= job.lockstep;
    config.environment.name = "cargo-vram".to_owned();
    // Where Burn can open no database, all that it would hold stays in memory. The tool's files hold it between passes.
    config.environment.path = CacheConfig::Directory(NO_FOLDER.into());
    CubeClRuntimeConfig::set(config);
}
