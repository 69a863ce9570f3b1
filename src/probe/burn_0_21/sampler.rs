//! Looks at Burn's allocator before and after every launch of a traced pass.
//!
//! The look before a launch sees its inputs and outputs together; it is put in line on the server's thread. The one
//! after it waits for the server, so that tensors are freed in the same order in every run. What a launch allocates
//! for itself, its metadata, is added from the allocation's own span.

use std::cell::Cell;
use std::collections::BTreeMap;
use std::sync::{Mutex, OnceLock, PoisonError};

use burn_backend::{Device, DeviceHandle, StreamId};
use cubecl::client::ComputeClient;
use cubecl::config::{CubeClRuntimeConfig, RuntimeConfig};
use cubecl::cuda::{CudaDevice, CudaRuntime};
use tracing::field::{Field, Visit};
use tracing::span::{Attributes, Id, Record};
use tracing::subscriber::Interest;
use tracing::{Event, Metadata, Subscriber};

use super::marks;
use super::stage::Downstream;
use crate::probe::timeline::{self, Sample};

/// Spans of a launch, on the thread that asks for it.
const LAUNCH: &str = "launch_inner";
/// Spans of what the server allocates for itself within a launch.
const OWN: &str = "empty";
const OWN_TARGET: &str = "cubecl_cuda::compute::command";

const LAUNCH_ID: u64 = 1;
const OWN_ID: u64 = 2;

struct Sampler {
    server: DeviceHandle<Downstream>,
    client: ComputeClient<CudaRuntime>,
    alignment: u64,
    max_streams: u64,
    /// One stream id for each of the server's streams that were seen.
    streams: Mutex<BTreeMap<u64, StreamId>>,
}

static SAMPLER: OnceLock<Sampler> = OnceLock::new();

thread_local! {
    static BEFORE: Cell<Sample> = const { Cell::new(Sample { live: 0, reserved: 0 }) };
    static OWN_BYTES: Cell<u64> = const { Cell::new(0) };
}

/// Observes every launch from now on.
pub(super) fn install(device: &CudaDevice, client: ComputeClient<CudaRuntime>) {
    let alignment = client.properties().memory.alignment;
    let sampler = Sampler {
        server: DeviceHandle::new(device.to_id()),
        client,
        alignment,
        max_streams: u64::from(CubeClRuntimeConfig::get().streaming.max_streams).max(1),
        streams: Mutex::new(BTreeMap::new()),
    };
    if SAMPLER.set(sampler).is_ok() && tracing::subscriber::set_global_default(Spans).is_err() {
        timeline::missed();
    }
}

impl Sampler {
    fn before(&'static self) {
        marks::advance();
        let stream = StreamId::current();
        let mut streams = self.streams.lock().unwrap_or_else(PoisonError::into_inner);
        streams.entry(stream.value % self.max_streams).or_insert(stream);
        drop(streams);
        self.server.submit(|_| {
            if let Some(sample) = self.look() {
                BEFORE.set(sample);
                OWN_BYTES.set(0);
            }
        });
    }

    fn after(&'static self) {
        let looked = self.server.submit_blocking(|_| {
            let own = OWN_BYTES.take();
            if own > 0 {
                let before = BEFORE.get();
                timeline::spike(Sample {
                    live: before.live + own,
                    ..before
                });
            }
            self.look();
        });
        if looked.is_err() {
            timeline::missed();
        }
    }

    /// Adds up all streams, on the server's own thread.
    fn look(&self) -> Option<Sample> {
        let streams = self.streams.lock().unwrap_or_else(PoisonError::into_inner);
        let mut total = Sample::default();
        let mut held = 0;
        for stream in streams.values() {
            let Ok(usage) = stream.executes(|| self.client.memory_usage()) else {
                timeline::missed();
                return None;
            };
            total.live += usage.bytes_in_use + usage.bytes_padding;
            total.reserved += usage.bytes_reserved;
            held += u32::from(usage.bytes_reserved > 0);
        }
        timeline::sample(total, held);
        Some(total)
    }
}

/// The subscriber: sees the two spans above, and nothing else is even made.
struct Spans;

fn wanted(metadata: &Metadata<'_>) -> bool {
    metadata.is_span()
        && (metadata.name() == LAUNCH || (metadata.name() == OWN && metadata.target() == OWN_TARGET))
}

impl Subscriber for Spans {
    fn register_callsite(&self, metadata: &'static Metadata<'static>) -> Interest {
        if wanted(metadata) { Interest::always() } else { Interest::never() }
    }

    fn enabled(&self, metadata: &Metadata<'_>) -> bool {
        wanted(metadata)
    }

    fn new_span(&self, span: &Attributes<'_>) -> Id {
        let mut fields = Fields::default();
        span.record(&mut fields);
        if span.metadata().name() == LAUNCH {
            timeline::launching(fields.kernel);
            return Id::from_u64(LAUNCH_ID);
        }
        if let Some(sampler) = SAMPLER.get() {
            OWN_BYTES.set(OWN_BYTES.get() + fields.size.next_multiple_of(sampler.alignment));
        }
        Id::from_u64(OWN_ID)
    }

    fn enter(&self, span: &Id) {
        if let (LAUNCH_ID, Some(sampler)) = (span.into_u64(), SAMPLER.get()) {
            sampler.before();
        }
    }

    fn exit(&self, span: &Id) {
        if let (LAUNCH_ID, Some(sampler)) = (span.into_u64(), SAMPLER.get()) {
            sampler.after();
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
    }
}
