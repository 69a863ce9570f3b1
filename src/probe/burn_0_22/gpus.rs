//! The GPUs of a run.

use std::sync::Arc;

use burn22::tensor::Device;
use cubecl22::MemoryScope;
use cubecl22::client::Client;

use super::stage::Threads;
use super::{failures, launches, watchdog};
use crate::probe::pass::Marker;
use crate::probe::timeline;

/// The GPUs of a run, with their markers, clients and threads.
pub(super) struct Gpus {
    pub(super) devices: Vec<Device>,
    pub(super) markers: Vec<Marker>,
    pub(super) clients: Vec<Client>,
    pub(super) threads: Arc<Vec<Threads>>,
    /// Whether each step of a ready-made loop runs on the thread of fusion.
    pub(super) steps_inside: bool,
    /// Whether the pass ends if a step hangs there.
    pub(super) watched: bool,
}

impl Gpus {
    /// Runs the part of a step after its batch: on the thread of fusion if the job asks for that, else on this thread.
    pub(super) fn in_step<R: Send>(&self, work: impl FnOnce() -> R + Send) -> R {
        if !self.steps_inside {
            return work();
        }
        let watch = self.watched.then(watchdog::watch);
        // `exclusive` keeps the caller's stream, so memory is allocated on the same stream as without it.
        let done = self.threads[0].fusion.exclusive(work);
        drop(watch);
        // Continued, not raised: a second panic of the same cause would be counted by the driver.
        // See docs/design/burn-0_22-failures.md.
        done.unwrap_or_else(|panic| panic.resume())
    }

    /// Returns the GPU that models are made on, unless they choose another one.
    pub(super) fn first(&self) -> &Device {
        &self.devices[0]
    }

    /// Waits until the GPUs have finished all their work.
    pub(super) fn sync(&self) {
        for device in &self.devices {
            // Burn goes on after a failed launch. The failure shows in a read or here, and a model may read
            // nothing.
            failures::note(device.sync());
        }
    }

    /// Returns the size in bytes of the largest tensor that Burn allocates on each of the GPUs.
    pub(super) fn largest_tensor(&self) -> u64 {
        let largest = self.clients.iter().map(|client| {
            let memory = &client.properties().memory;
            // The sizes of pages are aligned like the tensors in them.
            memory.max_page_size / memory.alignment * memory.alignment
        });
        largest.min().unwrap_or(u64::MAX)
    }

    /// Returns the highest reserved memory of the GPUs so far, in bytes, added up. If the pass takes no samples at
    /// launches, this sees only what is reserved now.
    pub(super) fn most_reserved(&self) -> u64 {
        for threads in self.threads.iter() {
            if !threads.wait() {
                timeline::missed();
            }
        }
        let now = |(gpu, client): (usize, &Client)| {
            let now = client.memory_report(MemoryScope::Device).usage().bytes_reserved;
            // cubecl returns free pages to the driver from time to time, so the highest value may be in the
            // past.
            now.max(launches::most_reserved(gpu))
        };
        self.clients.iter().enumerate().map(now).sum()
    }
}
