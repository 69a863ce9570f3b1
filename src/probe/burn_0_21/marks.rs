//! Phases. Operations run later than the user's thread asks for them, so a phase begins, for the device, with the
//! first operation asked for after it was marked. Tensor ids are given out in that order: an id is a watermark.

use std::collections::VecDeque;
use std::sync::{Arc, Mutex, PoisonError};

use burn::backend::Cuda;
use burn_backend::{Device, DeviceHandle, StreamId};
use burn_cubecl::CubeBackend;
use burn_fusion::inspect::FusionInspector;
use burn_fusion::{Fusion, FusionBackend};
use burn_ir::TensorId;
use cubecl::cuda::CudaDevice;

use super::stage::{Downstream, Upstream};
use crate::probe::run::Marker;
use crate::probe::timeline::{self, Moment};

/// How a backend hands its operations to the device.
trait Hands<D> {
    /// Whether they go through fusion first.
    const FUSED: bool;

    /// The id that the next tensor will be above, where tensors have ids.
    fn watermark(device: &D) -> Option<TensorId>;
}

impl<B: FusionBackend> Hands<B::Device> for Fusion<B> {
    const FUSED: bool = true;

    fn watermark(device: &B::Device) -> Option<TensorId> {
        Some(burn_fusion::get_client::<B>(device).create_empty_handle())
    }
}

impl<R, F, I, T> Hands<R::Device> for CubeBackend<R, F, I, T>
where
    R: burn_cubecl::CubeRuntime,
    F: burn_cubecl::FloatElement,
    I: burn_cubecl::IntElement,
    T: burn_cubecl::BoolElement,
{
    const FUSED: bool = false;

    fn watermark(_: &R::Device) -> Option<TensorId> {
        None
    }
}

/// Marks that fusion has been told of, and that no operation executed so far belongs to.
struct Pending {
    marks: VecDeque<(Moment, TensorId)>,
    inspector: Option<FusionInspector>,
}

static PENDING: Mutex<Pending> = Mutex::new(Pending {
    marks: VecDeque::new(),
    inspector: None,
});

/// What a run calls at each phase.
pub(super) fn marker(device: &CudaDevice, traced: bool) -> Marker {
    let downstream = Arc::new(DeviceHandle::<Downstream>::new(device.to_id()));
    if !<Cuda as Hands<CudaDevice>>::FUSED {
        // Launches come from the thread that marks.
        return Arc::new(move |moment| downstream.submit(move |_| reached(moment)));
    }
    let upstream = Arc::new(DeviceHandle::<Upstream>::new(device.to_id()));
    if !traced {
        // Good to a few operations that fusion still holds back: enough to say where an out of memory happened.
        return Arc::new(move |moment| {
            let downstream = downstream.clone();
            upstream.submit(move |_| downstream.submit(move |_| reached(moment)));
        });
    }
    let device = device.clone();
    Arc::new(move |moment| {
        let Some(watermark) = <Cuda as Hands<CudaDevice>>::watermark(&device) else {
            return;
        };
        let stream = StreamId::current();
        upstream.submit(move |_| {
            let mut pending = PENDING.lock().unwrap_or_else(PoisonError::into_inner);
            pending.marks.push_back((moment, watermark));
            // Watching costs a look at every tensor for every operation: only around the border of two phases.
            if pending.inspector.is_none() {
                pending.inspector = Some(FusionInspector::install(stream));
            }
        });
    })
}

/// Moves on to the phase of the operations that fusion executes now. Called before each launch of a traced pass.
pub(super) fn advance() {
    let mut pending = PENDING.lock().unwrap_or_else(PoisonError::into_inner);
    let Some(inspector) = &pending.inspector else {
        return;
    };
    let newest = inspector
        .drain()
        .iter()
        .flat_map(|report| &report.blocks)
        .flat_map(|block| &block.operations)
        .flat_map(|operation| operation.outputs())
        .map(|tensor| tensor.id)
        .max();
    let Some(newest) = newest else { return };
    let mut reach = None;
    while let Some((moment, watermark)) = pending.marks.front() {
        if *watermark >= newest {
            break;
        }
        reach = Some(*moment);
        pending.marks.pop_front();
    }
    if pending.marks.is_empty() {
        pending.inspector = None;
    }
    drop(pending);
    if let Some(moment) = reach {
        reached(moment);
    }
}

fn reached(moment: Moment) {
    let now = rustix::time::clock_gettime(rustix::time::ClockId::Monotonic);
    timeline::reach(moment, now.tv_sec as u64 * 1_000_000_000 + now.tv_nsec as u64);
}
