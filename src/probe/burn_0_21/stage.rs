//! Burn's two threads a device, `DSU` (fusion) and `DSD` (the CUDA server), run whatever service asks for their
//! stage, in the order in which work was given to them. These are ours: they keep no state, they only get in line.

use std::sync::Arc;
use std::sync::mpsc::{Sender, channel};
use std::time::Duration;

use burn_backend21::{Device, DeviceHandle, DeviceId, DeviceService, DeviceServiceStage, StreamId};
use cubecl_common21::device::ServerUtilitiesHandle;
use cubecl21::cuda::CudaDevice;
use rustix::process::setpriority_process;
use rustix::thread::gettid;

/// The priority of the user's thread, below that of Burn's. It waits for them by spinning, most of the time, and
/// would keep them from running where there are fewer cores than threads.
const USERS_NICENESS: i32 = 19;

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

/// The stream that another thread of the program's would have: every thread has one of its own, and memory with it.
pub(in crate::probe) struct Elsewhere(StreamId);

impl Elsewhere {
    pub(in crate::probe) fn new() -> Self {
        let other = std::thread::spawn(StreamId::current).join();
        Self(other.unwrap_or_else(|_| StreamId::current()))
    }

    /// That of this thread, for others.
    #[cfg(feature = "distributed")]
    pub(in crate::probe) fn here() -> Self {
        Self(StreamId::current())
    }

    /// Has this thread do what that one would.
    pub(in crate::probe) fn run<R>(&self, work: impl FnOnce() -> R) -> R {
        self.0.executes(work)
    }
}

/// How long fusion's thread is held at most: where the user's thread waits for it meanwhile, neither would go on.
const LONGEST_HOLD: Duration = Duration::from_secs(5);

/// Holds fusion's thread, after what it was given, until the answer is dropped.
pub(super) fn hold(device: DeviceId) -> Sender<()> {
    let (gate, opened) = channel();
    DeviceHandle::<Upstream>::new(device).submit(move |_| {
        let _ = opened.recv_timeout(LONGEST_HOLD);
    });
    gate
}

/// Lets the threads that others wait for run first. Called on the user's thread.
pub(super) fn give_way(devices: &[CudaDevice]) {
    // Threads inherit the priority of the one that starts them, so Burn's are started first.
    for device in devices {
        let _ = DeviceHandle::<Upstream>::new(device.to_id());
        let _ = DeviceHandle::<Downstream>::new(device.to_id());
    }
    // It is a matter of speed alone: where it is not allowed, so be it.
    let _ = setpriority_process(Some(gettid()), USERS_NICENESS);
}
