//! The work around every launch: Burn's threads take turns, and a traced pass samples the allocator.
//!
//! Burn frees a tensor on the thread of fusion and allocates on the thread of the CUDA server, which runs behind. How
//! far it runs behind depends on the operating system, and decides which memory is free when the next tensor needs
//! some. On a virtual GPU, we wait for each launch. The order is then always the same. It is one of the orders that can
//! happen without waiting, too.
//!
//! The sample before a launch sees its inputs and outputs together; it waits in the queue of the server's thread. The
//! sample after a launch waits for the server, so that tensors are freed in the same order in every run. The metadata
//! that a launch allocates for itself is added from the span of that allocation. Samples change no allocation.

use std::cell::Cell;
use std::collections::BTreeMap;
use std::sync::{Mutex, OnceLock, PoisonError};

use burn_backend21::{Device, DeviceHandle, StreamId};
use cubecl21::Runtime;
use cubecl21::client::ComputeClient;
use cubecl21::config::{CubeClRuntimeConfig, RuntimeConfig};
use cubecl21::cuda::{CudaDevice, CudaRuntime};
use tracing::field::{Field, Visit};
use tracing::span::{Attributes, Id, Record};
use tracing::subscriber::Interest;
use tracing::{Event, Metadata, Subscriber};

use super::marks;
use super::stage::{Downstream, Upstream};
use crate::probe::threads;
use crate::probe::timeline::{self, Live, StepMoment};
#[cfg(feature = "explain")]
use crate::probe::trace;
#[cfg(feature = "train")]
use crate::protocol::StreamMemory;

/// The name of the spans of a launch, on the thread that asks for it.
const LAUNCH: &str = "launch_inner";
/// The name of the spans in which a tensor moves from GPU to GPU, on the thread that asks for it.
const TRANSFER: &str = "to_client_tensor";
/// The name of the spans of what the server allocates for itself within a launch.
const OWN: &str = "empty";
/// The name of the spans of every allocation, on the server's thread.
const RESERVE: &str = "reserve";
/// The name of the spans in which reserved memory goes to a tensor, or to what else it was reserved for.
#[cfg(feature = "explain")]
const BIND: &str = "bind";
// cubecl's own memory management has spans named `reserve`, too. Without the target, an allocation would
// count twice.
const SERVER_TARGET: &str = "cubecl_cuda::compute::command";

// The ids are the same for all spans of a kind. Nobody asks which span it was, so no table of spans is
// needed.
const LAUNCH_ID: u64 = 1;
const OWN_ID: u64 = 2;
const RESERVE_ID: u64 = 3;
const TRANSFER_ID: u64 = 4;

struct Launches {
    /// Whether the pass samples the allocator.
    traced: bool,
    fusion: DeviceHandle<Upstream>,
    server: DeviceHandle<Downstream>,
    client: ComputeClient<CudaRuntime>,
    alignment: u64,
    max_streams: u64,
    /// One stream id for each of the server's streams that were used so far.
    streams: Mutex<BTreeMap<u64, StreamId>>,
}

/// One entry per GPU.
static LAUNCHES: OnceLock<Vec<Launches>> = OnceLock::new();

thread_local! {
    /// Live bytes before the launch.
    static BEFORE: Cell<u64> = const { Cell::new(0) };
    static OWN_BYTES: Cell<u64> = const { Cell::new(0) };
    /// The size of the last reservation, in bytes.
    #[cfg(feature = "explain")]
    static RESERVED: Cell<u64> = const { Cell::new(0) };
}

/// Makes Burn's threads take turns from now on and, in a traced pass, observes every launch.
pub(super) fn install(devices: &[CudaDevice], traced: bool) {
    // Threads take turns at spans. If a program compiled them out, its threads would race and nobody would notice.
    assert!(
        tracing::level_filters::STATIC_MAX_LEVEL >= tracing::level_filters::LevelFilter::TRACE,
        "the feature `max_level_…` or `release_max_level_…` of `tracing` hides Burn's launches from cargo-vram: switch it off for this target",
    );
    let launches: Vec<Launches> = devices
        .iter()
        .map(|device| Launches::from_device(device, traced))
        .collect();
    #[cfg(feature = "explain")]
    launches
        .iter()
        // `false`: the inspector reports blocks only at the next launch, so lines between two reports may be
        // another block's.
        .for_each(|launches| trace::start(launches.alignment, false));
    // The program has a subscriber of its own, so no launch will be seen. A missed sample makes the report
    // say so.
    if LAUNCHES.set(launches).is_ok() && tracing::subscriber::set_global_default(Spans).is_err() {
        timeline::missed();
    }
}

/// Returns the entry of the GPU that this thread belongs to. For the program's own threads, that is the only GPU. With
/// several GPUs, it is unknown.
fn launches() -> Option<&'static Launches> {
    let all = LAUNCHES.get()?;
    match threads::gpu() {
        Some(gpu) => all.get(gpu as usize),
        None if all.len() == 1 => all.first(),
        None => None,
    }
}

/// Returns the memory of each stream of the only GPU, if the pass observes launches. Waits for the server.
#[cfg(feature = "train")]
pub(super) fn streams() -> Vec<StreamMemory> {
    let Some(launches) = launches().filter(|launches| launches.traced) else {
        return Vec::new();
    };
    let (sender, receiver) = std::sync::mpsc::channel();
    let sent = launches.server.submit_blocking(move |_| {
        let _ = sender.send(launches.of_streams());
    });
    if sent.is_err() {
        timeline::missed();
    }
    receiver.recv().unwrap_or_default()
}

/// Waits until the server of every GPU has finished its queue.
pub(super) fn wait_for_servers() {
    for launches in LAUNCHES.get().into_iter().flatten() {
        if launches.server.submit_blocking(|_| ()).is_err() {
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
    for launches in LAUNCHES.get().into_iter().flatten() {
        if launches.fusion.submit_blocking(|_| ()).is_err() {
            timeline::missed();
        }
    }
    wait_for_servers();
}

impl Launches {
    fn from_device(device: &CudaDevice, traced: bool) -> Self {
        let client = CudaRuntime::client(device);
        Self {
            traced,
            fusion: DeviceHandle::new(device.to_id()),
            server: DeviceHandle::new(device.to_id()),
            alignment: client.properties().memory.alignment,
            client,
            max_streams: u64::from(CubeClRuntimeConfig::get().streaming.max_streams).max(1),
            streams: Mutex::new(BTreeMap::new()),
        }
    }

    fn before(&'static self) {
        if !self.traced {
            return;
        }
        marks::advance();
        self.meet_stream();
        // Queued and not waited for: the launch itself comes next in the same queue.
        self.server.submit(|_| {
            if let Some(live) = self.look() {
                BEFORE.set(live);
                OWN_BYTES.set(0);
            }
            timeline::launched();
        });
    }

    /// Remembers the current stream.
    fn meet_stream(&self) {
        let stream = StreamId::current();
        let mut streams = self.streams.lock().unwrap_or_else(PoisonError::into_inner);
        // cubecl maps thread streams to its own by the same modulo, and reports memory only for the caller's
        // stream. One id for each of them is enough, and more would count it twice.
        streams.entry(stream.value % self.max_streams).or_insert(stream);
    }

    fn after(&'static self) {
        // Waited for in every pass of an estimate, also in one that takes no samples. This is what makes two
        // runs equal. See docs/design/threads.md.
        let looked = self.server.submit_blocking(|_| {
            if !self.traced {
                return;
            }
            let own = OWN_BYTES.take();
            if own > 0 {
                // The launch's metadata is allocated after the first sample and freed before the second.
                // See docs/design/phases.md.
                timeline::spike(BEFORE.get() + own);
            }
            self.look();
        });
        if looked.is_err() {
            timeline::missed();
        }
    }

    /// Samples the allocator, and returns the live bytes. Called on the server's own thread.
    fn look(&self) -> Option<u64> {
        let (live, held) = self.live()?;
        timeline::sample(live, held);
        Some(live.bytes)
    }

    /// Returns the memory of each stream. Called on the server's own thread.
    #[cfg(feature = "train")]
    fn of_streams(&self) -> Vec<StreamMemory> {
        let streams = self.streams.lock().unwrap_or_else(PoisonError::into_inner);
        let memory = streams.iter().filter_map(|(number, stream)| {
            let usage = stream.executes(|| self.client.memory_usage()).ok()?;
            Some(StreamMemory {
                stream: *number,
                in_use: usage.bytes_in_use,
                reserved: usage.bytes_reserved,
            })
        });
        memory.collect()
    }

    /// Returns the live memory of all streams together, and the number of streams that hold memory.
    fn live(&self) -> Option<(Live, u32)> {
        let streams = self.streams.lock().unwrap_or_else(PoisonError::into_inner);
        let mut live = Live::default();
        let mut held = 0;
        for stream in streams.values() {
            let Ok(usage) = stream.executes(|| self.client.memory_usage()) else {
                timeline::missed();
                return None;
            };
            // With padding, this is what the allocator cannot hand out. Leaks are judged without it: padding
            // made the ends of steps differ by some hundred bytes. See docs/design/leaks.md.
            live.bytes += usage.bytes_in_use + usage.bytes_padding;
            live.in_use += usage.bytes_in_use;
            held += u32::from(usage.bytes_reserved > 0);
        }
        Some((live, held))
    }
}

/// Records the live memory when the program marks a moment. Called on the server's own thread.
pub(super) fn marked(moment: StepMoment) {
    if let Some((live, _)) = launches().and_then(Launches::live) {
        timeline::marked(moment, live);
    }
}

/// The tracing subscriber. Only the spans named above are created.
struct Spans;

fn wanted(metadata: &Metadata<'_>) -> bool {
    metadata.is_span()
        && ([LAUNCH, TRANSFER].contains(&metadata.name())
            || (is_allocation(metadata.name()) && metadata.target() == SERVER_TARGET))
}

fn is_allocation(name: &str) -> bool {
    #[cfg(feature = "explain")]
    if name == BIND {
        return true;
    }
    [OWN, RESERVE].contains(&name)
}

impl Subscriber for Spans {
    fn register_callsite(&self, metadata: &'static Metadata<'static>) -> Interest {
        // All other spans are then never made, which costs nothing. That is why this is not
        // `tracing-subscriber`.
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
        let (id, name) = match span.metadata().name() {
            #[cfg(feature = "explain")]
            // `reserve` knows the size and `bind` the number of the memory. Both come one after the other on
            // the server's thread, so a thread-local links them.
            BIND => (RESERVE_ID, BIND),
            LAUNCH => (LAUNCH_ID, LAUNCH),
            TRANSFER => return Id::from_u64(TRANSFER_ID),
            OWN => (OWN_ID, OWN),
            _ => (RESERVE_ID, RESERVE),
        };
        if let Some(launches) = launches().filter(|launches| launches.traced) {
            let mut fields = Fields::default();
            span.record(&mut fields);
            match name {
                #[cfg(feature = "explain")]
                BIND => {
                    if let Some(memory) = fields.memory {
                        trace::allocated(memory, RESERVED.get());
                    }
                }
                LAUNCH => timeline::launching(fields.kernel),
                OWN => OWN_BYTES.set(OWN_BYTES.get() + fields.size.next_multiple_of(launches.alignment)),
                // A data loader's stream holds memory before anything is launched on it.
                _ => {
                    launches.meet_stream();
                    #[cfg(feature = "explain")]
                    RESERVED.set(fields.size);
                }
            }
        }
        Id::from_u64(id)
    }

    fn enter(&self, span: &Id) {
        match (span.into_u64(), launches()) {
            (LAUNCH_ID, Some(launches)) => launches.before(),
            (TRANSFER_ID, _) => wait_for_all(),
            _ => {}
        }
    }

    fn exit(&self, span: &Id) {
        match (span.into_u64(), launches()) {
            (LAUNCH_ID, Some(launches)) => launches.after(),
            // A copy before a tensor moves to another GPU: wait for it, but take no sample.
            (LAUNCH_ID, None) => wait_for_servers(),
            (TRANSFER_ID, _) => wait_for_all(),
            _ => {}
        }
    }

    fn record(&self, _: &Id, _: &Record<'_>) {}

    fn record_follows_from(&self, _: &Id, _: &Id) {}

    fn event(&self, _: &Event<'_>) {}
}

#[derive(Default)]
struct Fields {
    kernel: String,
    size: u64,
    /// The number of the memory that a reservation becomes.
    #[cfg(feature = "explain")]
    memory: Option<u64>,
}

impl Visit for Fields {
    fn record_u64(&mut self, field: &Field, value: u64) {
        if field.name() == "size" {
            self.size = value;
        }
    }

    fn record_debug(&mut self, field: &Field, value: &dyn std::fmt::Debug) {
        if field.name() == "kernel.name" {
            self.kernel = format!("{value:?}");
        }
        #[cfg(feature = "explain")]
        if field.name() == "new" {
            self.memory = trace::memory_number(&format!("{value:?}"));
        }
    }
}
