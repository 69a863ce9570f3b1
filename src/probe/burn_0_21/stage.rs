//! Tasks for Burn's own threads. Burn has two threads per GPU: `DSU` (fusion) and `DSD` (the CUDA server). Each runs
//! the tasks of all services of its stage, in the order in which they were submitted. The services here are ours: they
//! have no state, and only put tasks into these queues.

use std::sync::Arc;
use std::sync::mpsc::{Sender, channel};
use std::time::Duration;

use burn_backend21::{Device, DeviceHandle, DeviceId, DeviceService, DeviceServiceStage, StreamId};
use cubecl_common21::device::ServerUtilitiesHandle;
use cubecl21::cuda::CudaDevice;
use rustix::process::setpriority_process;
use rustix::thread::gettid;

/// The niceness of the user's thread, which puts it below Burn's threads. It spins most of the time while it waits for
/// them. If there are fewer cores than threads, it would keep them from running.
///
/// It is no more than this, because niceness counts against every process of the machine: at 19, beside six busy loops
/// on two cores, a pass of 10 s ran into its limit of 10 minutes.
// On one core, ResNet-18 takes 9.0 s with it and 11.8 s with 0. See docs/design/priority.md.
const USERS_NICENESS: i32 = 5;

/// The service whose tasks wait in the queue of fusion's operations.
pub(super) struct Upstream;

/// The service whose tasks wait in the queue of allocations and launches.
pub(super) struct Downstream;

impl DeviceService for Upstream {
    fn init(_: DeviceId) -> Self {
        Self
    }

    fn utilities(&self) -> ServerUtilitiesHandle {
        Arc::new(())
    }

    fn stage() -> DeviceServiceStage {
        DeviceServiceStage::Upstream
    }
}

impl DeviceService for Downstream {
    fn init(_: DeviceId) -> Self {
        Self
    }

    fn utilities(&self) -> ServerUtilitiesHandle {
        Arc::new(())
    }

    fn stage() -> DeviceServiceStage {
        DeviceServiceStage::Downstream
    }
}

/// The stream that another thread of the program would have. Every thread has its own stream, with its own memory.
pub(in crate::probe) struct OtherStream(StreamId);

impl OtherStream {
    pub(in crate::probe) fn new() -> Self {
        // A real thread, because only a thread gets the next stream id. A made-up id might be that of another
        // thread.
        let other = std::thread::spawn(StreamId::current).join();
        Self(other.unwrap_or_else(|_| StreamId::current()))
    }

    /// Returns the stream of this thread, for other threads to use.
    #[cfg(feature = "distributed")]
    pub(in crate::probe) fn here() -> Self {
        Self(StreamId::current())
    }

    /// Runs work on this thread as if that other thread ran it.
    pub(in crate::probe) fn run<R>(&self, work: impl FnOnce() -> R) -> R {
        self.0.executes(work)
    }
}

/// The longest time for which fusion's thread is held. Without a limit, both threads would hang if the user's thread
/// waited for it.
const LONGEST_HOLD: Duration = Duration::from_secs(5);

/// Makes fusion's thread finish its queue and then wait until the returned value is dropped.
pub(super) fn hold(device: DeviceId) -> Sender<()> {
    let (gate, opened) = channel();
    DeviceHandle::<Upstream>::new(device).submit(move |_| {
        // An error is the usual end: it means that the sender was dropped.
        let _ = opened.recv_timeout(LONGEST_HOLD);
    });
    gate
}

/// Waits until the threads of these GPUs have done what they were asked for so far.
#[cfg(feature = "train")]
pub(super) fn drain(devices: &[DeviceId]) {
    for device in devices {
        // Threads that have ended have nothing more to do.
        let _ = DeviceHandle::<Upstream>::new(*device).submit_blocking(|_| ());
        let _ = DeviceHandle::<Downstream>::new(*device).submit_blocking(|_| ());
    }
}

/// Lowers the priority of the user's thread, so that the threads for which it waits run first. Called on the user's
/// thread.
pub(super) fn give_way(devices: &[CudaDevice]) {
    // Start Burn's threads first, because threads inherit the priority of the thread that starts them.
    for device in devices {
        let _ = DeviceHandle::<Upstream>::new(device.to_id());
        let _ = DeviceHandle::<Downstream>::new(device.to_id());
    }
    // This only affects speed, so it does not matter if it is not allowed.
    let _ = setpriority_process(Some(gettid()), USERS_NICENESS);
}
