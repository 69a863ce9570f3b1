//! Burn's two threads for each GPU, `DSU` (fusion) and `DSD` (the CUDA server), run whatever service asks for their stage, in
//! the order in which they were given work. These services are ours: they keep no state, they only get in line.

use std::sync::Arc;

use cubecl_common22::device::{DeviceId, DeviceService, DeviceServiceStage, ServerUtilitiesHandle};
use cubecl_common22::device_handle::DeviceHandle;
use cubecl_environment22::stream::StreamId;
use rustix::process::setpriority_process;
use rustix::thread::gettid;

/// The priority of the user's thread, below that of Burn's. It waits for them by spinning, most of the time, and
/// would keep them from running where there are fewer cores than threads.
const USERS_NICENESS: i32 = 19;

/// The number of the CUDA runtime within cubecl's device ids: `RuntimeId::Cuda`.
const CUDA: u16 = 0;

/// In line with the operations that fusion is given.
pub(super) struct Upstream;

/// In line with allocations and launches.
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

/// Both threads of one GPU.
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

    /// Waits until both did what they were given. Whether they are still there.
    pub(super) fn wait(&self) -> bool {
        self.fusion.submit_blocking(|_| ()).is_ok() && self.server.submit_blocking(|_| ()).is_ok()
    }
}

/// Lets the threads that others wait for run first. Called on the user's thread, after Burn's own were started: threads inherit
/// the priority of the one that starts them.
pub(super) fn give_way() {
    // It is a matter of speed alone: where it is not allowed, so be it.
    let _ = setpriority_process(Some(gettid()), USERS_NICENESS);
}

/// The stream that another thread of the program's would have: every thread has one of its own, and memory with it.
pub(super) struct Elsewhere(StreamId);

impl Elsewhere {
    pub(super) fn new() -> Self {
        let other = std::thread::spawn(StreamId::current).join();
        Self(other.unwrap_or_else(|_| StreamId::current()))
    }

    /// Has this thread do what that one would.
    pub(super) fn run<R>(&self, work: impl FnOnce() -> R) -> R {
        self.0.executes(work)
    }
}
