//! What happens around every launch: Burn's threads take turns, and a traced pass looks at the allocator.
//!
//! Burn frees a tensor on the thread of fusion and allocates on the thread of the CUDA server, which runs behind: what
//! is free when the next tensor needs room depends on how far behind, that is, on the operating system. On a virtual
//! GPU each launch is waited for, so that the order is one of those that can happen, and always the same.
//!
//! The look before a launch sees its inputs and outputs together; it is put in line on the server's thread. The one
//! after it waits for the server, so that tensors are freed in the same order in every run. Looking changes no allocation.

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
use crate::probe::timeline::{self, Live, Moment};
use crate::probe::{threads, trace};
use crate::protocol::RunJob;

/// Spans of a launch, on the thread that asks for it.
const LAUNCH: &str = "launch_inner";
/// Spans in which a tensor goes from GPU to GPU, on the thread that asks for it.
const TRANSFER: &str = "to_client_tensor";
/// Spans of every allocation, on the server's thread.
const RESERVE: &str = "reserve";
/// Spans within these, in which a page is asked for room, or made.
const PAGES: [&str; 2] = ["try_reserve", "alloc"];
/// Where cubecl-server 0.11 allocates.
const MEMORY: &str = "cubecl_server::memory_management";

const LAUNCH_ID: u64 = 1;
const TRANSFER_ID: u64 = 2;
const RESERVE_ID: u64 = 3;
const PAGE_ID: u64 = 4;

thread_local! {
    /// The size of what is allocated.
    static RESERVED: Cell<Option<u64>> = const { Cell::new(None) };
}

/// When a pass looks at the allocator.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Looks {
    Never,
    AtLaunches,
    /// And, at the end of each phase, once Burn freed what it keeps for later launches: each stream keeps the shapes and scalars
    /// of every launch, by their values. A step counter among them is another value in every step.
    Uncached,
}

impl Looks {
    pub(super) const fn of(job: &RunJob) -> Self {
        match (job.traced, job.uncached) {
            (false, _) => Self::Never,
            (true, false) => Self::AtLaunches,
            (true, true) => Self::Uncached,
        }
    }
}

struct Launches {
    looks: Looks,
    threads: Arc<Vec<Threads>>,
    clients: Vec<Client>,
    /// The most bytes that each GPU's allocator was seen to have reserved.
    most_reserved: Vec<AtomicU64>,
}

static LAUNCHES: OnceLock<Launches> = OnceLock::new();

/// Takes turns from now on and, in a traced pass, observes every launch.
pub(super) fn install(gpus: &Arc<Vec<Threads>>, clients: Vec<Client>, looks: Looks) {
    // Turns are taken at spans: a program that compiles them out would race, and nobody would see it.
    assert!(
        tracing::level_filters::STATIC_MAX_LEVEL >= tracing::level_filters::LevelFilter::TRACE,
        "the feature `max_level_…` or `release_max_level_…` of `tracing` hides Burn's launches from cargo-vram: switch it off for this target",
    );
    let launches = Launches {
        looks,
        threads: gpus.clone(),
        most_reserved: clients.iter().map(|_| AtomicU64::new(0)).collect(),
        clients,
    };
    if LAUNCHES.set(launches).is_ok() && tracing::subscriber::set_global_default(Spans).is_err() {
        timeline::missed();
    }
}

/// The most bytes that a GPU's allocator was seen to have reserved.
pub(super) fn most_reserved(gpu: usize) -> u64 {
    let seen = LAUNCHES.get().and_then(|launches| launches.most_reserved.get(gpu));
    seen.map_or(0, |most| most.load(Ordering::Relaxed))
}

/// One GPU, of those that are observed.
#[derive(Clone, Copy)]
struct Gpu {
    launches: &'static Launches,
    number: usize,
}

/// The GPU whose thread this is. A program's own thread launches on the one there is, or nobody knows where.
fn gpu() -> Option<Gpu> {
    let launches = LAUNCHES.get()?;
    let number = match threads::card() {
        Some(number) => number as usize,
        None if launches.clients.len() == 1 => 0,
        None => return None,
    };
    (number < launches.clients.len()).then_some(Gpu { launches, number })
}

/// Waits until every GPU's server did what it was given.
pub(super) fn wait_for_servers() {
    for threads in LAUNCHES.get().into_iter().flat_map(|launches| launches.threads.iter()) {
        if threads.server.submit_blocking(|_| ()).is_err() {
            timeline::missed();
        }
    }
}

/// Waits until every GPU did what it was given. Both ends of a transfer go by what is next in line on their own servers, so
/// that what is there when it comes is otherwise a matter of chance.
fn wait_for_all() {
    // Burn's own threads would wait for themselves.
    if threads::card().is_some() {
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
        self.launches.looks != Looks::Never
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
        let looked = self.threads().server.submit_blocking(move |_| {
            if self.looks() {
                self.look();
            }
        });
        if looked.is_err() {
            timeline::missed();
        }
    }

    /// Looks at the allocator, on the server's own thread.
    fn look(self) {
        let (live, streams) = self.live();
        timeline::sample(live, streams);
    }

    fn ends_phase(self) {
        if self.launches.looks != Looks::Uncached {
            return;
        }
        if self.launches.clients[self.number].memory_cleanup().is_err() {
            timeline::missed();
        }
        self.look();
    }

    /// What all streams hold together, and how many hold something.
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

/// The program came to a moment: looks at what is live, on the server's own thread.
pub(super) fn marked(moment: Moment) {
    if let Some(gpu) = gpu() {
        timeline::marked(moment, gpu.live().0);
    }
}

/// This GPU comes to the next phase: frees what Burn keeps for later launches, where that is wanted, and looks at what is left.
pub(super) fn ends_phase() {
    if let Some(gpu) = gpu()
        && gpu.threads().server.submit_blocking(move |_| gpu.ends_phase()).is_err()
    {
        timeline::missed();
    }
}

/// The same, on the server's own thread.
pub(super) fn ends_phase_here() {
    if let Some(gpu) = gpu() {
        gpu.ends_phase();
    }
}

/// The last step ended: looks at what it leaves, on all GPUs. Of other steps the last launch sees it, when it comes to the next.
pub(super) fn ends_steps() {
    let Some(launches) = LAUNCHES.get().filter(|launches| launches.looks != Looks::Never) else {
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

/// The subscriber: sees the spans above, and nothing else is even made.
struct Spans;

fn wanted(metadata: &Metadata<'_>) -> bool {
    let name = metadata.name();
    let is_allocation = (name == RESERVE || PAGES.contains(&name)) && metadata.target().starts_with(MEMORY);
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
            let mut fields = Fields::default();
            span.record(&mut fields);
            fields
        };
        let id = match span.metadata().name() {
            TRANSFER => TRANSFER_ID,
            RESERVE => {
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
            // A copy before a tensor goes to another GPU: it is not looked at, and waited for all the same.
            (LAUNCH_ID, None) => wait_for_servers(),
            (TRANSFER_ID, _) => wait_for_all(),
            (RESERVE_ID, _) => {
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
struct Fields {
    /// The kernel that a span is the launch of.
    kernel: String,
    /// How many bytes are allocated.
    size: Option<u64>,
}

impl Visit for Fields {
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
