//! Marks phases. Operations run later than the user's thread asks for them. So for the GPU, a phase begins with the
//! first operation that was asked for after the mark. Tensor ids are assigned in the order of asking, so an id serves
//! as a watermark.

use std::collections::VecDeque;
use std::sync::{Arc, Mutex, OnceLock, PoisonError};

use burn_backend21::{Device, DeviceHandle, StreamId};
use burn_cubecl21::CubeBackend;
use burn_fusion21::inspect::FusionInspector;
use burn_fusion21::{Fusion, FusionBackend};
use burn_ir21::TensorId;
use cubecl21::cuda::CudaDevice;

use super::stage::{Downstream, Upstream};
use super::{Underlying, launches};
use crate::probe::clock;
use crate::probe::pass::Marker;
use crate::probe::timeline::{self, StepMoment};
use crate::protocol::Phase;

/// How a backend passes its operations to the GPU.
trait OperationPath<D> {
    /// Whether operations go through fusion first.
    const FUSED: bool;

    /// Returns an id that is below the ids of all later tensors, if tensors have ids.
    fn watermark(device: &D) -> Option<TensorId>;
}

impl<B: FusionBackend> OperationPath<B::Device> for Fusion<B> {
    const FUSED: bool = true;

    fn watermark(device: &B::Device) -> Option<TensorId> {
        Some(burn_fusion21::get_client::<B>(device).create_empty_handle())
    }
}

impl<R, F, I, T> OperationPath<R::Device> for CubeBackend<R, F, I, T>
where
    R: burn_cubecl21::CubeRuntime,
    F: burn_cubecl21::FloatElement,
    I: burn_cubecl21::IntElement,
    T: burn_cubecl21::BoolElement,
{
    const FUSED: bool = false;

    fn watermark(_: &R::Device) -> Option<TensorId> {
        None
    }
}

/// Whether operations go through fusion.
pub(super) const fn is_fused() -> bool {
    <Underlying as OperationPath<CudaDevice>>::FUSED
}

/// Marks that are in fusion's queue but that no executed operation has reached yet, and what watches for them.
struct Pending {
    marks: VecDeque<(StepMoment, TensorId)>,
    inspector: Option<FusionInspector>,
    /// The stream of the thread that marks, whose operations are watched.
    stream: Option<StreamId>,
    /// The stream whose operations the inspector reports.
    inspected: Option<StreamId>,
}

static PENDING: Mutex<Pending> = Mutex::new(Pending {
    marks: VecDeque::new(),
    inspector: None,
    stream: None,
    inspected: None,
});

/// Burn's threads for each GPU, if the pass observes launches.
static OBSERVED: OnceLock<Vec<(DeviceHandle<Upstream>, DeviceHandle<Downstream>)>> = OnceLock::new();

/// Waits until the timeline has every moment that the program marked. Called after a panic on a thread of the program.
pub(super) fn settle() {
    for (upstream, downstream) in OBSERVED.get().into_iter().flatten() {
        // Threads that have ended have nothing more to report.
        let _ = upstream.submit_blocking(|_| ());
        let _ = downstream.submit_blocking(|_| ());
    }
}

/// Runs a task on fusion's thread, once fusion has received all operations that were asked for so far.
#[cfg(feature = "explain")]
pub(super) fn in_line(task: impl FnOnce() + Send + 'static) {
    if let Some((upstream, _)) = OBSERVED.get().and_then(|gpus| gpus.first()) {
        upstream.submit(move |_| task());
    }
}

impl Pending {
    /// Makes fusion report which operations of the marking thread it runs, unless it does so already.
    fn watch(&mut self) {
        if self.inspector.is_none() || self.inspected != self.stream {
            // Remove the previous inspector first.
            self.inspector = None;
            self.inspector = self.stream.map(FusionInspector::install);
            self.inspected = self.stream;
        }
    }
}

/// Returns the markers that a run calls at each phase, one per GPU.
pub(super) fn markers(devices: &[CudaDevice], traced: bool) -> Vec<Marker> {
    // Without fusion there is no queue of operations to wait for, and no report to make complete.
    if traced && <Underlying as OperationPath<CudaDevice>>::FUSED {
        let threads = |device: &CudaDevice| (DeviceHandle::new(device.to_id()), DeviceHandle::new(device.to_id()));
        let _ = OBSERVED.set(devices.iter().map(threads).collect());
    }
    match devices {
        [device] => vec![marker(device, traced)],
        devices => devices.iter().map(|device| in_queue(device, traced)).collect(),
    }
}

/// Returns a marker that only waits in the queues of Burn's threads.
///
/// The start of a phase is then wrong by the few operations that fusion still holds back. With several GPUs this is the
/// best possible: the ids of tensors that move from GPU to GPU do not show which operation belongs to which phase.
fn in_queue(device: &CudaDevice, traced: bool) -> Marker {
    let upstream = DeviceHandle::<Upstream>::new(device.to_id());
    let downstream = Arc::new(DeviceHandle::<Downstream>::new(device.to_id()));
    Arc::new(move |moment| {
        let downstream = downstream.clone();
        if !traced {
            upstream.submit(move |_| downstream.submit(move |_| reached(moment)));
            return;
        }
        // Wait for it, because the program's next action may change this GPU's memory through another GPU.
        let _ = upstream.submit_blocking(move |_| {
            let _ = downstream.submit_blocking(move |_| {
                launches::marked(moment);
                reached(moment);
            });
        });
    })
}

fn marker(device: &CudaDevice, traced: bool) -> Marker {
    let downstream = Arc::new(DeviceHandle::<Downstream>::new(device.to_id()));
    if !<Underlying as OperationPath<CudaDevice>>::FUSED {
        // Without fusion, the thread that marks also launches.
        return Arc::new(move |moment| downstream.submit(move |_| reached(moment)));
    }
    if !traced {
        // This is exact enough to say in which phase the GPU ran out of memory.
        return in_queue(device, traced);
    }
    let upstream = Arc::new(DeviceHandle::<Upstream>::new(device.to_id()));
    let device = device.clone();
    Arc::new(move |moment| {
        #[cfg(feature = "explain")]
        {
            super::observed::forget();
            super::observed::look(&device);
        }
        let Some(watermark) = <Underlying as OperationPath<CudaDevice>>::watermark(&device) else {
            return;
        };
        let stream = StreamId::current();
        let downstream = downstream.clone();
        // Wait for it. Otherwise chance would decide whether the sample at this border sees what the program frees
        // next.
        let _ = upstream.submit_blocking(move |_| {
            let _ = downstream.submit_blocking(move |_| launches::marked(moment));
            let mut pending = PENDING.lock().unwrap_or_else(PoisonError::into_inner);
            pending.marks.push_back((moment, watermark));
            pending.stream = Some(stream);
            // While fusion reports, it lists every tensor for every operation, so watch only around the border of two
            // phases.
            pending.watch();
            drop(pending);
            // The look above found what ran before. From now on, fusion reports what runs.
            #[cfg(feature = "explain")]
            super::observed::watched();
        });
    })
}

/// Moves the timeline to the phase of the operations that fusion executes now. Called before each launch of a traced
/// pass.
pub(super) fn advance() {
    let mut pending = PENDING.lock().unwrap_or_else(PoisonError::into_inner);
    let Some(inspector) = &pending.inspector else {
        return;
    };
    let reports = inspector.drain();
    #[cfg(feature = "explain")]
    ran(&reports);
    // Operations of another thread make a batch. Fusion may hold them back until the forward phase.
    let is_loader = pending.stream.is_some_and(|stream| stream != StreamId::current());
    if let Some((moment, _)) = pending.marks.front().filter(|_| is_loader).copied()
        && moment.phase == Phase::Batch
    {
        pending.marks.pop_front();
        reached(moment);
    }
    let newest = reports
        .iter()
        .flat_map(|report| &report.blocks)
        .flat_map(|block| &block.operations)
        .flat_map(|operation| operation.outputs())
        .map(|tensor| tensor.id)
        // The highest id, so operations of both phases in one fused kernel belong to the later phase.
        // See docs/design/phases.md.
        .max();
    let Some(newest) = newest else { return };
    let mut reach: Option<StepMoment> = None;
    while let Some((moment, watermark)) = pending.marks.front() {
        if *watermark >= newest {
            break;
        }
        if let Some(passed) = reach.replace(*moment) {
            timeline::pass(passed, clock::now());
        }
        pending.marks.pop_front();
    }
    // With reports for every operation, a DenseNet-201 took 3.7 times as long. See docs/design/traces.md.
    if pending.marks.is_empty() && !is_explained() {
        pending.inspector = None;
    }
    drop(pending);
    if let Some(moment) = reach {
        reached(moment);
    }
}

/// Switches fusion's reports on or off until the next call. Around the border of two phases, they stay on. Called on
/// fusion's thread. Returns whether reports are on.
#[cfg(feature = "explain")]
pub(super) fn watch(is_on: bool) -> bool {
    let mut pending = PENDING.lock().unwrap_or_else(PoisonError::into_inner);
    if is_on {
        pending.watch();
    } else if pending.marks.is_empty()
        && let Some(inspector) = pending.inspector.take()
    {
        // Reports from before the switch would be lost with the inspector.
        ran(&inspector.drain());
    }
    pending.inspector.is_some()
}

/// Whether every operation is watched, not only those around a border.
fn is_explained() -> bool {
    #[cfg(feature = "explain")]
    let is_on = crate::probe::trace::is_on();
    #[cfg(not(feature = "explain"))]
    let is_on = false;
    is_on
}

/// Writes to the trace what each block of operations makes and frees.
#[cfg(feature = "explain")]
fn ran(reports: &[burn_fusion21::inspect::FusionReport]) {
    if is_explained() {
        reports.iter().flat_map(|report| &report.blocks).for_each(block_ran);
    }
}

/// Writes a block to the trace. It leaves out tensors that are made and used up within one fused block, because they
/// never get memory.
#[cfg(feature = "explain")]
fn block_ran(block: &burn_fusion21::inspect::FusionBlock) {
    use burn_fusion21::inspect::BlockKind;
    use burn_ir21::{OperationIr, TensorStatus};

    use crate::protocol::Made;

    // A fused block is one kernel. Operations of another block run one after the other, and their tensors do
    // get memory in between.
    let at_once = match block.kind {
        BlockKind::Fused { .. } => block.operations.len(),
        BlockKind::Unfused => 1,
    };
    for operations in block.operations.chunks(at_once.max(1)) {
        let mut made = Vec::new();
        let mut freed = Vec::new();
        for operation in operations {
            made.extend(operation.outputs().map(|tensor| Made {
                id: tensor.id.value(),
                bytes: tensor.shape.num_elements() as u64 * tensor.dtype.size() as u64,
                shape: tensor.shape.iter().map(|side| *side as u64).collect(),
                dtype: tensor.dtype.name().to_owned(),
            }));
            if let OperationIr::Drop(tensor) = operation {
                freed.push(tensor.id.value());
            } else {
                let used_up = operation
                    .inputs()
                    .filter(|tensor| tensor.status == TensorStatus::ReadWrite);
                freed.extend(used_up.map(|tensor| tensor.id.value()));
            }
        }
        let within: Vec<u64> = made
            .iter()
            .map(|made| made.id)
            .filter(|id| freed.contains(id))
            .collect();
        made.retain(|made| !within.contains(&made.id));
        freed.retain(|id| !within.contains(id));
        super::observed::expect(made.iter().map(|made| made.id), &freed);
        crate::probe::trace::ran(made, freed);
    }
}

fn reached(moment: StepMoment) {
    timeline::reach(moment, clock::now());
}
