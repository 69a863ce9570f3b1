//! Burn's two threads a device, `DSU` (fusion) and `DSD` (the CUDA server), run whatever service asks for their
//! stage, in the order in which work was given to them. These are ours: they keep no state, they only get in line.

use std::sync::Arc;

use burn_backend::{DeviceId, DeviceService, DeviceServiceStage};
use cubecl_common::device::ServerUtilitiesHandle;

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
