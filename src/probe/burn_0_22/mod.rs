//! The adapter for Burn 0.22 and cubecl 0.11. Models use [`Run`]; all code that names types of these crates is here.

mod failures;
mod gpus;
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
#[cfg(feature = "train")]
mod training;
mod uploads;
mod watchdog;
#[cfg(not(feature = "train"))]
mod without_feature;

use std::sync::Arc;
use std::time::Duration;

use burn22::tensor::Device;
use cubecl22::client::Client;
use cubecl22::config::cache::CacheConfig;
use cubecl22::config::{CubeClRuntimeConfig, RuntimeConfig};
use cubecl22::cuda::CudaDevice;

use self::gpus::Gpus;
use self::mixed::dtype;
pub use self::optimizer::IntoOptimizer;
pub use self::parallel::DataParallel;
pub use self::run::Run;
use self::stage::Threads;
pub use self::steps::{Step, Steps};
pub use self::train::{WithBatch, WithLoss, WithModel};
#[cfg(feature = "train")]
pub use self::training::{Epochs, Training};
use super::entry::{Adapter, Declared};
#[cfg(feature = "train")]
pub use super::epochs::TrainingInputs;
use super::pass::{Infer, ProbePass, Train};
use super::{events, panics, timeline, trace};
use crate::protocol::{BurnFeatures, Inside, RunJob, Task};

const ADAPTER: Adapter = Adapter {
    name: "burn-0_22",
    features,
};

/// Marks the models of this adapter, so that the compiler can distinguish adapters.
#[doc(hidden)]
pub enum Burn022 {}

/// How a backend passes its operations to the GPU.
trait OperationPath {
    /// Whether operations go through fusion first.
    const FUSED: bool;
}

impl<B: burn_fusion22::FusionBackend> OperationPath for burn_fusion22::Fusion<B> {
    const FUSED: bool = true;
}

impl OperationPath for burn_cubecl22::CubeBackend {
    const FUSED: bool = false;
}

/// Returns the features that the program's Burn was built with.
fn features() -> BurnFeatures {
    use burn_cubecl22::kernel::matmul::MatmulStrategy;
    BurnFeatures {
        fusion: burn_cubecl22::Cube::FUSED,
        // Another crate's features cannot be asked for. This default depends on Burn's feature `autotune`.
        autotune: !matches!(MatmulStrategy::default(), MatmulStrategy::Cube),
    }
}

impl<F: Fn(&mut Run<Train>) + Sync + 'static> Declared<(Burn022, Train)> for F {
    const TASK: Task = Task::Train;
    const ADAPTER: Adapter = ADAPTER;

    fn run(&self, pass: ProbePass) {
        run_pass(pass, |gpu| gpu.autodiff(), self);
    }
}

impl<F: Fn(&mut Run<Infer>) + Sync + 'static> Declared<(Burn022, Infer)> for F {
    const TASK: Task = Task::Infer;
    const ADAPTER: Adapter = ADAPTER;

    fn run(&self, pass: ProbePass) {
        run_pass(pass, |gpu| gpu, self);
    }
}

fn run_pass<Kind>(pass: ProbePass, device: fn(Device) -> Device, model: impl Fn(&mut Run<Kind>) + Sync) {
    let gpus = start(&pass.job, device);
    let (autotune, kernels) = (pass.job.autotune.clone(), pass.job.kernels.clone());
    // With several GPUs, each thread is the server of only one of them.
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
    // Before the GPU's first operation, and before the model could install a logger of its own.
    failures::watch();
    panics::watch(panics::Hooks {
        advance: || (),
        settle: marks::settle,
    });
    let count = u16::try_from(job.gpus.max(1)).unwrap_or(1);
    let is_fused = features().fusion;
    if count > 1 && !is_fused {
        events::impossible(
            "a model over several GPUs needs Burn's fusion: cargo-vram recognizes each GPU by its fusion thread"
                .to_owned(),
        );
    }
    if job.what_if.no_fusion {
        events::impossible(
            "`--no-fusion` does not work with Burn 0.22: its own Cargo feature `fusion` decides, and no other feature \
             can switch that off"
                .to_owned(),
        );
    }
    if let Some(path) = &job.trace {
        if !is_fused {
            events::impossible(
                "with Burn 0.22, an explanation needs fusion: build with Burn's feature `fusion`".to_owned(),
            );
        }
        if count > 1 {
            events::impossible("an explanation covers one GPU, and this model uses several".to_owned());
        }
        // If the trace cannot be opened, its file is missing, and the tool reports that.
        // `false`: the observer reports what runs at little cost, so there is nothing to predict as with Burn
        // 0.21.
        let _ = trace::open(path, false);
    }
    // Do this before the first operation of a GPU, because the first handle of a service waits for that GPU's thread.
    let threads = Arc::new((0..count).map(Threads::new).collect::<Vec<_>>());
    let clients: Vec<Client> = (0..count)
        // Create the CUDA contexts now, so that the model's memory does not include them.
        .map(|gpu| cubecl22::Device::Cuda(CudaDevice::new(gpu.into())).client())
        .collect();
    if trace::is_on() {
        trace::start(clients[0].properties().memory.alignment, true);
        observed::start(job.inside != Inside::Nothing);
    }
    // Before the model: Burn would otherwise tune again, and measure throughput with buffers of up to 1 GiB.
    store::import(&job.autotune, job.kernels.as_deref());
    std::thread::sleep(Duration::from_millis(job.settle_ms));
    let devices = (0..count).map(|gpu| prepared(gpu, job, device)).collect();
    let markers = marks::markers(&threads, job.traced, is_fused);
    if job.traced || job.lockstep {
        launches::install(&threads, clients.clone(), launches::LookTimes::from_job(job));
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

/// Returns the program's device for a GPU, with the dtype and the checkpointing that the job asks for.
fn prepared(gpu: u16, job: &RunJob, device: fn(Device) -> Device) -> Device {
    // At run time, where Burn 0.21 has types: these what-ifs need no other build here.
    let mut cuda = Device::cuda(usize::from(gpu));
    if let Some(float) = job.what_if.dtype
        && let Err(error) = cuda.configure(dtype(float))
    {
        events::impossible(format!("unsupported dtype: {error}"));
    }
    let made = device(cuda);
    match job.what_if.checkpointing && made.is_autodiff() {
        true => made.gradient_checkpointing(),
        false => made,
    }
}

/// A path below which no file can exist.
// With kernels of 15 MB in a database on disk, Burn's listing of it took seconds of each pass.
// See docs/design/burn-0_22.md.
const NO_FOLDER: &str = "/dev/null";

/// Keeps autotune's choices and compiled kernels apart from the user's own, because no GPU could run virtual kernels.
/// All other settings come from the user's `cubecl.toml` and environment.
fn configure(job: &RunJob) {
    let mut config = CubeClRuntimeConfig::from_current_dir().override_from_env();
    config.compilation.cache = job.kernels.is_some();
    // Whatever the user set: without the cache, the choices would not be in the database to be exported.
    config.autotune.disable_cache = false;
    // By a virtual clock, no candidate is close to the GPU's peak. So try every candidate, as Burn does if none is
    // close enough.
    config.autotune.disable_short_circuit |= job.lockstep;
    config.environment.name = "cargo-vram".to_owned();
    // If Burn cannot open a database, it keeps everything in memory. Between passes, the tool's files keep it.
    config.environment.path = CacheConfig::Directory(NO_FOLDER.into());
    CubeClRuntimeConfig::set(config);
}
