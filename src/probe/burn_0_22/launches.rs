//! The work around every launch: Burn's threads take turns, and a traced pass samples the allocator.
//!
//! Burn frees a tensor on the thread of fusion and allocates on the thread of the CUDA server, which runs behind. How
//! far it runs behind depends on the operating system, and decides which memory is free when the next tensor needs
//! some. On a virtual GPU, we wait for each launch. The order is then always the same. It is one of the orders that can
//! happen without waiting, too.
//!
//! The sample before a launch sees its inputs and outputs together; it waits in the queue of the server's thread. The
//! sample after a launch waits for the server, so that tensors are freed in the same order in every run. Samples change
//! no allocation.

use std::cell::Cell;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, OnceLock};

use cubecl22::client::Client;
use cubecl22::{MemoryScope, StreamMemoryReport};
use tracing::field::{Field, Visit};
use tracing::span::{Attributes, Id, Record};
use tracing::subscriber::Interest;
use tracing::{Event, Metadata, Subscriber};

use super::observed;
use super::stage::Threads;
use crate::probe::timeline::{self, Live, StepMoment};
use crate::probe::{threads, trace};
use crate::protocol::RunJob;
#[cfg(feature = "train")]
use crate::protocol::StreamMemory;

/// The name of the spans of a launch, on the thread that asks for it.
const LAUNCH: &str = "launch_inner";
/// The name of the spans in which a tensor moves from GPU to GPU, on the thread that asks for it.
const TRANSFER: &str = "to_client_tensor";
/// The name of the spans of every allocation, on the server's thread.
const RESERVE: &str = "reserve";
/// The names of the spans within these in which the allocator asks a page for room, or makes a page.
// `reserve` skips its arguments, so only these spans know the size.
const PAGES: [&str; 2] = ["try_reserve", "alloc"];
/// The module of cubecl-server 0.11 that allocates.
const MEMORY: &str = "cubecl_server::memory_management";

const LAUNCH_ID: u64 = 1;
const TRANSFER_ID: u64 = 2;
const RESERVE_ID: u64 = 3;
const PAGE_ID: u64 = 4;

thread_local! {
    /// The size of the current allocation, in bytes.
    static RESERVED: Cell<Option<u64>> = const { Cell::new(None) };
}

/// When a pass samples the allocator.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum LookTimes {
    Never,
    AtLaunches,
    /// At launches, and at the end of each phase after Burn freed its cache for later launches. For each stream, that
    /// cache keeps the shapes and scalars of every launch, by their values. A step counter among them has a new value
    /// in every step.
    // Without this, each step of ResNet-18 on a P100 left 12,288 B, which looked like a leak.
    // See docs/design/burn-0_22-memory.md.
    Uncached,
}

impl LookTimes {
    pub(super) const fn from_job(job: &RunJob) -> Self {
        match (job.traced, job.uncached) {
            (false, _) => Self::Never,
            (true, false) => Self::AtLaunches,
            (true, true) => Self::Uncached,
        }
    }
}

struct LaunchObserver {
    looks: LookTimes,
    threads: Arc<Vec<Threads>>,
    clients: Vec<Client>,
    /// The highest reserved memory that samples saw on each GPU, in bytes.
    most_reserved: Vec<AtomicU64>,
}

static LAUNCHES: OnceLock<LaunchObserver> = OnceLock::new();

/// Makes Burn's threads take turns from now on and, in a traced pass, observes every launch.
pub(super) fn install(gpus: &Arc<Vec<Threads>>, clients: Vec<Client>, looks: LookTimes) {
    // Threads take turns at spans. If a program compiled them out, its threads would race and nobody would notice.
    assert!(
        tracing::level_filters::STATIC_MAX_LEVEL >= tracing::level_filters::LevelFilter::TRACE,
        "the feature `max_level_…` or `release_max_level_…` of `tracing` hides Burn's launches from cargo-vram: switch it off for this target",
    );
    let launches = LaunchObserver {
        looks,
        threads: gpus.clone(),
        most_reserved: clients.iter().map(|_| AtomicU64::new(0)).collect(),
        clients,
    };
    // The program has a subscriber of its own, so no launch will be seen. A missed sample makes the report
    // say so.
    if LAUNCHES.set(launches).is_ok() && tracing::subscriber::set_global_default(Spans).is_err() {
        timeline::missed();
    }
}

/// Returns the highest reserved memory that samples saw on a GPU, in bytes.
pub(super) fn most_reserved(gpu: usize) -> u64 {
    let seen = LAUNCHES.get().and_then(|launches| launches.most_reserved.get(gpu));
    seen.map_or(0, |most| most.load(Ordering::Relaxed))
}

/// One of the observed GPUs.
#[derive(Clone, Copy)]
struct Gpu {
    launches: &'static LaunchObserver,
    number: usize,
}

/// Returns the GPU that this thread belongs to. For the program's own threads, that is the only GPU. With several GPUs,
/// it is unknown.
fn gpu() -> Option<Gpu> {
    let launches = LAUNCHES.get()?;
    let number = match threads::gpu() {
        Some(number) => number as usize,
        None if launches.clients.len() == 1 => 0,
        None => return None,
    };
    (number < launches.clients.len()).then_some(Gpu { launches, number })
}

/// Waits until the server of every GPU has finished its queue.
pub(super) fn wait_for_servers() {
    for threads in LAUNCHES.get().into_iter().flat_map(|launches| launches.threads.iter()) {
        if threads.server.submit_blocking(|_| ()).is_err() {
            timeline::missed();
        }
    }
}

/// Waits until fusion and the server of every GPU have finished their queues. Both ends of a transfer wait in the
/// queues of their own servers, so without this, chance would decide what memory exists when the transfer happens.
fn wait_for_all() {
    // One of Burn's own threads would wait for itself.
    if threads::gpu().is_some() {
        return;
    }
    for threads in LAUNCHES.get().into_iter().flat_map(|launches| launches.threads.iter()) {
        if !threads.wait() {
            timeline::missed();
        }
    }
}

impl Gpu {
    fn threads(self) -> &'static Threads {
        &self.launches.threads[self.number]
    }

    fn looks(self) -> bool {
        self.launches.looks != LookTimes::Never
    }

    fn before(self) {
        if !self.looks() {
            return;
        }
        self.threads().server.submit(move |_| {
            self.look();
            timeline::launched();
        });
    }

    fn after(self) {
        // Waited for in every pass of an estimate, also in one that takes no samples. This is what makes two
        // runs equal. See docs/design/threads.md.
        let looked = self.threads().server.submit_blocking(move |_| {
            if self.looks() {
                self.look();
            }
        });
        if looked.is_err() {
            timeline::missed();
        }
    }

    /// Samples the allocator. Called on the server's own thread.
    fn look(self) {
        let (live, streams) = self.live();
        timeline::sample(live, streams);
    }

    fn ends_phase(self) {
        if self.launches.looks != LookTimes::Uncached {
            return;
        }
        // This also frees pages, so only a pass whose reserved memory nobody reads may do it.
        if self.launches.clients[self.number].memory_cleanup().is_err() {
            timeline::missed();
        }
        self.look();
    }

    /// Returns the live memory of all streams together, and the number of streams that hold memory.
    fn live(self) -> (Live, u32) {
        let report = self.launches.clients[self.number].memory_report(MemoryScope::Device);
        let usage = report.usage();
        self.launches.most_reserved[self.number].fetch_max(usage.bytes_reserved, Ordering::Relaxed);
        let live = Live {
            bytes: usage.bytes_in_use + usage.bytes_padding,
            in_use: usage.bytes_in_use,
        };
        let holds = |stream: &&StreamMemoryReport| stream.usage().bytes_reserved > 0;
        (live, report.streams.iter().filter(holds).count() as u32)
    }
}

/// Returns the memory of each stream; none if the pass does not observe launches. If the job asks for it, this first
/// frees Burn's cache for later launches.
#[cfg(feature = "train")]
pub(super) fn streams() -> Vec<StreamMemory> {
    let Some(gpu) = gpu().filter(|gpu| gpu.looks()) else {
        return Vec::new();
    };
    ends_phase();
    let report = gpu.launches.clients[gpu.number].memory_report(MemoryScope::Device);
    let memory = |stream: &StreamMemoryReport| StreamMemory {
        stream: stream.stream.value,
        in_use: stream.usage().bytes_in_use,
        reserved: stream.usage().bytes_reserved,
    };
    report.streams.iter().map(memory).collect()
}

/// Records the live memory when the program marks a moment. Called on the server's own thread.
pub(super) fn marked(moment: StepMoment) {
    if let Some(gpu) = gpu() {
        timeline::marked(moment, gpu.live().0);
    }
}

/// Ends a phase on this thread's GPU. If the job asks for it, this frees Burn's cache for later launches and samples
/// the allocator.
pub(super) fn ends_phase() {
    if let Some(gpu) = gpu()
        && gpu.threads().server.submit_blocking(move |_| gpu.ends_phase()).is_err()
    {
        timeline::missed();
    }
}

/// Ends a phase like [`ends_phase`]. Called on the server's own thread.
pub(super) fn ends_phase_here() {
    if let Some(gpu) = gpu() {
        gpu.ends_phase();
    }
}

/// Records the live memory that the last step leaves, on all GPUs. In other steps, the last launch sees it when the
/// program comes to the next step.
pub(super) fn ends_steps() {
    let Some(launches) = LAUNCHES.get().filter(|launches| launches.looks != LookTimes::Never) else {
        return;
    };
    for (number, threads) in launches.threads.iter().enumerate() {
        let gpu = Gpu { launches, number };
        let looked = threads.server.submit_blocking(move |_| timeline::ended(gpu.live().0));
        if looked.is_err() {
            timeline::missed();
        }
    }
}

/// The tracing subscriber. Only the spans named above are created.
struct Spans;

fn wanted(metadata: &Metadata<'_>) -> bool {
    let name = metadata.name();
    let is_allocation = (name == RESERVE || PAGES.contains(&name)) && metadata.target().starts_with(MEMORY);
    // Only explanations need allocations. Other passes leave these spans out, because each page makes one.
    metadata.is_span() && ([LAUNCH, TRANSFER].contains(&name) || (is_allocation && trace::is_on()))
}

impl Subscriber for Spans {
    fn register_callsite(&self, metadata: &'static Metadata<'static>) -> Interest {
        if wanted(metadata) {
            Interest::always()
        } else {
            Interest::never()
        }
    }

    fn enabled(&self, metadata: &Metadata<'_>) -> bool {
        wanted(metadata)
    }

    fn new_span(&self, span: &Attributes<'_>) -> Id {
        let fields = || {
            let mut fields = SpanFields::default();
            span.record(&mut fields);
            fields
        };
        let id = match span.metadata().name() {
            TRANSFER => TRANSFER_ID,
            RESERVE => {
                // The allocator may ask several pages. The last one that it asks serves the allocation.
                RESERVED.set(None);
                RESERVE_ID
            }
            LAUNCH => {
                if gpu().is_some_and(Gpu::looks) {
                    timeline::launching(fields().kernel);
                }
                LAUNCH_ID
            }
            _ => {
                RESERVED.set(fields().size);
                PAGE_ID
            }
        };
        Id::from_u64(id)
    }

    fn enter(&self, span: &Id) {
        match (span.into_u64(), gpu()) {
            (LAUNCH_ID, Some(gpu)) => gpu.before(),
            (TRANSFER_ID, _) => wait_for_all(),
            _ => {}
        }
    }

    fn exit(&self, span: &Id) {
        match (span.into_u64(), gpu()) {
            (LAUNCH_ID, Some(gpu)) => gpu.after(),
            // A copy before a tensor moves to another GPU: wait for it, but take no sample.
            (LAUNCH_ID, None) => wait_for_servers(),
            (TRANSFER_ID, _) => wait_for_all(),
            (RESERVE_ID, _) => {
                // None if the persistent pool served it: that pool has no such spans, and a look finds the
                // memory later.
                if let Some(bytes) = RESERVED.take() {
                    observed::reserved(bytes);
                }
            }
            _ => {}
        }
    }

    fn record(&self, _: &Id, _: &Record<'_>) {}

    fn record_follows_from(&self, _: &Id, _: &Id) {}

    fn event(&self, _: &Event<'_>) {}
}

#[derive(Default)]
struct SpanFields {
    /// The kernel that the span launches.
    kernel: String,
    /// The size of the allocation, in bytes.
    size: Option<u64>,
}

impl Visit for SpanFields {
    fn record_u64(&mut self, field: &Field, value: u64) {
        if field.name() == "size" {
            self.size = Some(value);
        }
    }

    fn record_debug(&mut self, field: &Field, value: &dyn std::fmt::Debug) {
        if field.name() == "kernel.name" {
            self.kernel = format!("{value:?}");
        }
    }
}
