//! Burn's two threads a device, `DSU` (fusion) and `DSD` (the CUDA server), run whatever service asks for their
//! stage, in the order in which work was given to them. These are ours: they keep no state, they only get in line.

use std::sync::Arc;

use burn_backend::{Device, DeviceHandle, DeviceId, DeviceService, DeviceServiceStage};
use cubecl::cuda::CudaDevice;
use cubecl_common::device::ServerUtilitiesHandle;
use rustix::process::setpriority_process;
use rustix::thread::gettid;

/// Priorities of the user's thread and of fusion's, below that of the server's thread. Where there are fewer cores
/// than threads, those who wait for the server by spinning would otherwise keep it from running.
const USERS_NICENESS: i32 = 10;
const UPSTREAM_NICENESS: i32 = 5;

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

/// Lets the threads that others wait for run first. Called on the user's thread, after both of Burn's were started.
pub(super) fn give_way(device: &CudaDevice) {
    let upstream = DeviceHandle::<Upstream>::new(device.to_id());
    let _ = upstream.submit_blocking(|_| set_niceness(UPSTREAM_NICENESS));
    set_niceness(USERS_NICENESS);
}

fn set_niceness(niceness: i32) {
    // It is a matter of speed alone: where it is not allowed, so be it.
    let _ = setpriority_process(Some(gettid()), niceness);
}
