//! What happens around every launch: Burn's threads take turns, and a traced pass looks at the allocator.
//!
//! Burn frees a tensor on the thread of fusion and allocates on the thread of the CUDA server, which runs behind: what
//! is free when the next tensor needs room depends on how far behind, that is, on the operating system. On a virtual
//! GPU each launch is waited for, so that the order is one of those that can happen, and always the same.
//!
//! The look before a launch sees its inputs and outputs together; it is put in line on the server's thread. The one
//! after it waits for the server, so that tensors are freed in the same order in every run. What a launch allocates
//! for itself, its metadata, is added from the allocation's own span. Looking changes no allocation.

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
use crate::probe::timeline::{self, Live, Moment};
#[cfg(feature = "explain")]
use crate::probe::trace;

/// Spans of a launch, on the thread that asks for it.
const LAUNCH: &str = "launch_inner";
/// Spans in which a tensor goes from card to card, on the thread that asks for it.
const TRANSFER: &str = "to_client_tensor";
/// Spans of what the server allocates for itself within a launch.
const OWN: &str = "empty";
/// Spans of every allocation, on the server's thread.
const RESERVE: &str = "reserve";
/// Spans in which such memory becomes a tensor's, or whatever it was reserved for.
#[cfg(feature = "explain")]
const BIND: &str = "bind";
const SERVER_TARGET: &str = "cubecl_cuda::compute::command";

const LAUNCH_ID: u64 = 1;
const OWN_ID: u64 = 2;
const RESERVE_ID: u64 = 3;
const TRANSFER_ID: u64 = 4;

struct Launches {
    /// Whether the allocator is looked at.
    traced: bool,
    fusion: DeviceHandle<Upstream>,
    server: DeviceHandle<Downstream>,
    client: ComputeClient<CudaRuntime>,
    alignment: u64,
    max_streams: u64,
    /// One stream id for each of the server's streams that were seen.
    streams: Mutex<BTreeMap<u64, StreamId>>,
}

/// One a card.
static LAUNCHES: OnceLock<Vec<Launches>> = OnceLock::new();

thread_local! {
    /// Live bytes before the launch.
    static BEFORE: Cell<u64> = const { Cell::new(0) };
    static OWN_BYTES: Cell<u64> = const { Cell::new(0) };
    /// The size of what was reserved last.
    #[cfg(feature = "explain")]
    static RESERVED: Cell<u64> = const { Cell::new(0) };
}

/// Takes turns from now on and, in a traced pass, observes every launch.
pub(super) fn install(devices: &[CudaDevice], traced: bool) {
    // Turns are taken at spans: a program that compiles them out would race, and nobody would see it.
    assert!(
        tracing::level_filters::STATIC_MAX_LEVEL >= tracing::level_filters::LevelFilter::TRACE,
        "the feature `max_level_…` or `release_max_level_…` of `tracing` hides Burn's launches from cargo-vram: switch it off for this target",
    );
    let launches: Vec<Launches> = devices.iter().map(|device| Launches::of(device, traced)).collect();
    #[cfg(feature = "explain")]
    launches
        .iter()
        .for_each(|launches| trace::start(launches.alignment, false));
    if LAUNCHES.set(launches).is_ok() && tracing::subscriber::set_global_default(Spans).is_err() {
        timeline::missed();
    }
}

/// Those of the card whose thread this is. A program's own thread launches on the one there is, or nobody knows where.
fn launches() -> Option<&'static Launches> {
    let all = LAUNCHES.get()?;
    match threads::card() {
        Some(card) => all.get(card as usize),
        None if all.len() == 1 => all.first(),
        None => None,
    }
}

/// Waits until every card's server did what it was given.
pub(super) fn wait_for_servers() {
    for launches in LAUNCHES.get().into_iter().flatten() {
        if launches.server.submit_blocking(|_| ()).is_err() {
            timeline::missed();
        }
    }
}

/// Waits until every card did what it was given. Both ends of a transfer go by what is next in line on their own servers, so
/// that what is there when it comes is otherwise a matter of chance.
fn wait_for_all() {
    // Burn's own threads would wait for themselves.
    if threads::card().is_some() {
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
    fn of(device: &CudaDevice, traced: bool) -> Self {
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
        self.server.submit(|_| {
            if let Some(live) = self.look() {
                BEFORE.set(live);
                OWN_BYTES.set(0);
            }
            timeline::launched();
        });
    }

    /// Remembers the stream that is worked for now.
    fn meet_stream(&self) {
        let stream = StreamId::current();
        let mut streams = self.streams.lock().unwrap_or_else(PoisonError::into_inner);
        streams.entry(stream.value % self.max_streams).or_insert(stream);
    }

    fn after(&'static self) {
        let looked = self.server.submit_blocking(|_| {
            if !self.traced {
                return;
            }
            let own = OWN_BYTES.take();
            if own > 0 {
                timeline::spike(BEFORE.get() + own);
            }
            self.look();
        });
        if looked.is_err() {
            timeline::missed();
        }
    }

    /// Looks at the allocator, on the server's own thread.
    fn look(&self) -> Option<u64> {
        let (live, held) = self.live()?;
        timeline::sample(live, held);
        Some(live.bytes)
    }

    /// What all streams hold together, and how many hold something.
    fn live(&self) -> Option<(Live, u32)> {
        let streams = self.streams.lock().unwrap_or_else(PoisonError::into_inner);
        let mut live = Live::default();
        let mut held = 0;
        for stream in streams.values() {
            let Ok(usage) = stream.executes(|| self.client.memory_usage()) else {
                timeline::missed();
                return None;
            };
            live.bytes += usage.bytes_in_use + usage.bytes_padding;
            live.in_use += usage.bytes_in_use;
            held += u32::from(usage.bytes_reserved > 0);
        }
        Some((live, held))
    }
}

/// The program came to a moment: looks at what is live, on the server's own thread.
pub(super) fn marked(moment: Moment) {
    if let Some((live, _)) = launches().and_then(Launches::live) {
        timeline::marked(moment, live);
    }
}

/// The subscriber: sees the two spans above, and nothing else is even made.
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
            // A copy before a tensor goes to another card: it is not looked at, and waited for all the same.
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
    /// The number of the memory that something reserved becomes.
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
