//! Tasks for Burn's own threads. Burn has two threads per GPU: `DSU` (fusion) and `DSD` (the CUDA server). Each runs
//! the tasks of all services of its stage, in the order in which they were submitted. The services here are ours: they
//! have no state, and only put tasks into these queues.

use std::sync::Arc;

use cubecl_common22::device::{DeviceId, DeviceService, DeviceServiceStage, ServerUtilitiesHandle};
use cubecl_common22::device_handle::DeviceHandle;
use cubecl_environment22::stream::StreamId;
use rustix::process::setpriority_process;
use rustix::thread::gettid;

/// The niceness of the user's thread, which puts it below Burn's threads. It spins most of the time while it waits for
/// them. If there are fewer cores than threads, it would keep them from running.
///
/// It is no more than this, because niceness counts against every process of the machine: at 19, beside six busy loops
/// on two cores, a pass of 10 s ran into its limit of 10 minutes.
// On one core, ResNet-18 takes 9.0 s with it and 11.8 s with 0. See docs/design/priority.md.
const USERS_NICENESS: i32 = 5;

/// The number of the CUDA runtime in cubecl's device ids: `RuntimeId::Cuda`.
// With another number, our services would get threads of their own, and wait for nothing of Burn's.
const CUDA: u16 = 0;

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

/// Burn's two threads for one GPU.
pub(super) struct Threads {
    pub(super) fusion: DeviceHandle<Upstream>,
    pub(super) server: DeviceHandle<Downstream>,
}

impl Threads {
    /// Starts the threads of the GPU with this number, unless they run already.
    pub(super) fn new(gpu: u16) -> Self {
        let id = DeviceId::new(CUDA, gpu);
        Self {
            fusion: DeviceHandle::new(id),
            server: DeviceHandle::new(id),
        }
    }

    /// Waits until both threads have finished their queues. Returns whether both still run.
    pub(super) fn wait(&self) -> bool {
        self.fusion.submit_blocking(|_| ()).is_ok() && self.server.submit_blocking(|_| ()).is_ok()
    }
}

/// Lowers the priority of the user's thread, so that the threads for which it waits run first. Called on the user's
/// thread after Burn's threads have started, because threads inherit the priority of the thread that starts them.
pub(super) fn give_way() {
    // This only affects speed, so it does not matter if it is not allowed.
    let _ = setpriority_process(Some(gettid()), USERS_NICENESS);
}

/// The stream that another thread of the program would have. Every thread has its own stream, with its own memory.
pub(super) struct OtherStream(StreamId);

impl OtherStream {
    pub(super) fn new() -> Self {
        // A real thread, because only a thread gets the next stream id. A made-up id might be that of another
        // thread.
        let other = std::thread::spawn(StreamId::current).join();
        Self(other.unwrap_or_else(|_| StreamId::current()))
    }

    /// Runs work on this thread as if that other thread ran it.
    pub(super) fn run<R>(&self, work: impl FnOnce() -> R) -> R {
        self.0.executes(work)
    }
}
