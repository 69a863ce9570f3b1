//! Phases. Operations run later than the user's thread asks for them, so a phase begins, for the device, with the
//! first operation asked for after it was marked. Tensor ids are given out in that order: an id is a watermark.

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
use crate::probe::timeline::{self, Moment};
use crate::protocol::Phase;

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
        Some(burn_fusion21::get_client::<B>(device).create_empty_handle())
    }
}

impl<R, F, I, T> Hands<R::Device> for CubeBackend<R, F, I, T>
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
    <Underlying as Hands<CudaDevice>>::FUSED
}

/// Marks that fusion has been told of, and that no operation executed so far belongs to.
struct Pending {
    marks: VecDeque<(Moment, TensorId)>,
    inspector: Option<FusionInspector>,
    /// The thread that marks, whose operations are of interest.
    stream: Option<StreamId>,
    /// The thread whose operations the inspector reports.
    inspected: Option<StreamId>,
}

static PENDING: Mutex<Pending> = Mutex::new(Pending {
    marks: VecDeque::new(),
    inspector: None,
    stream: None,
    inspected: None,
});

/// Burn's threads, where launches are observed.
static OBSERVED: OnceLock<Vec<(DeviceHandle<Upstream>, DeviceHandle<Downstream>)>> = OnceLock::new();

/// Waits until every moment that the program came to is known, on the way out of a panic on its own thread.
pub(super) fn settle() {
    for (upstream, downstream) in OBSERVED.get().into_iter().flatten() {
        // Threads that are gone know no more than they told.
        let _ = upstream.submit_blocking(|_| ());
        let _ = downstream.submit_blocking(|_| ());
    }
}

/// Has fusion's thread do this once everything that was asked for so far is with fusion.
#[cfg(feature = "explain")]
pub(super) fn in_line(task: impl FnOnce() + Send + 'static) {
    if let Some((upstream, _)) = OBSERVED.get().and_then(|cards| cards.first()) {
        upstream.submit(move |_| task());
    }
}

impl Pending {
    /// Has fusion report what it runs of the thread that marks, where it does not yet.
    fn watch(&mut self) {
        if self.inspector.is_none() || self.inspected != self.stream {
            // The one before goes first.
            self.inspector = None;
            self.inspector = self.stream.map(FusionInspector::install);
            self.inspected = self.stream;
        }
    }
}

/// What a run calls at each phase, one a card.
pub(super) fn markers(devices: &[CudaDevice], traced: bool) -> Vec<Marker> {
    if traced && <Underlying as Hands<CudaDevice>>::FUSED {
        let threads = |device: &CudaDevice| (DeviceHandle::new(device.to_id()), DeviceHandle::new(device.to_id()));
        let _ = OBSERVED.set(devices.iter().map(threads).collect());
    }
    match devices {
        [device] => vec![marker(device, traced)],
        devices => devices.iter().map(|device| in_queue(device, traced)).collect(),
    }
}

/// A phase begins good to the few operations that fusion still holds back. Of several cards that is all there is: which
/// operation belongs where is not told by the ids of tensors that go from card to card.
fn in_queue(device: &CudaDevice, traced: bool) -> Marker {
    let upstream = DeviceHandle::<Upstream>::new(device.to_id());
    let downstream = Arc::new(DeviceHandle::<Downstream>::new(device.to_id()));
    Arc::new(move |moment| {
        let downstream = downstream.clone();
        if !traced {
            upstream.submit(move |_| downstream.submit(move |_| reached(moment)));
            return;
        }
        // Waited for: what the program does next, it may do to this card's memory by way of another.
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
    if !<Underlying as Hands<CudaDevice>>::FUSED {
        // Launches come from the thread that marks.
        return Arc::new(move |moment| downstream.submit(move |_| reached(moment)));
    }
    if !traced {
        // Enough to say where an out of memory happened.
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
        let Some(watermark) = <Underlying as Hands<CudaDevice>>::watermark(&device) else {
            return;
        };
        let stream = StreamId::current();
        let downstream = downstream.clone();
        // Waited for: what the program frees next by itself is not to be in the look of this border, or not by chance.
        let _ = upstream.submit_blocking(move |_| {
            let _ = downstream.submit_blocking(move |_| launches::marked(moment));
            let mut pending = PENDING.lock().unwrap_or_else(PoisonError::into_inner);
            pending.marks.push_back((moment, watermark));
            pending.stream = Some(stream);
            // Watching costs a look at every tensor for every operation: only around the border of two phases.
            pending.watch();
            drop(pending);
            // The look above found what ran before; fusion reports what runs from now on.
            #[cfg(feature = "explain")]
            super::observed::watched();
        });
    })
}

/// Moves on to the phase of the operations that fusion executes now. Called before each launch of a traced pass.
pub(super) fn advance() {
    let mut pending = PENDING.lock().unwrap_or_else(PoisonError::into_inner);
    let Some(inspector) = &pending.inspector else {
        return;
    };
    let reports = inspector.drain();
    #[cfg(feature = "explain")]
    ran(&reports);
    // What another thread asked for is a batch, which fusion may hold back until the step goes forward.
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
        .max();
    let Some(newest) = newest else { return };
    let mut reach: Option<Moment> = None;
    while let Some((moment, watermark)) = pending.marks.front() {
        if *watermark >= newest {
            break;
        }
        if let Some(passed) = reach.replace(*moment) {
            timeline::pass(passed, clock::now());
        }
        pending.marks.pop_front();
    }
    if pending.marks.is_empty() && !is_explained() {
        pending.inspector = None;
    }
    drop(pending);
    if let Some(moment) = reach {
        reached(moment);
    }
}

/// Whether fusion is to report what it runs until this is called again, which it does around a border in any case.
/// Called on fusion's thread; returns whether it does.
#[cfg(feature = "explain")]
pub(super) fn watch(is_on: bool) -> bool {
    let mut pending = PENDING.lock().unwrap_or_else(PoisonError::into_inner);
    if is_on {
        pending.watch();
    } else if pending.marks.is_empty()
        && let Some(inspector) = pending.inspector.take()
    {
        ran(&inspector.drain());
    }
    pending.inspector.is_some()
}

/// Whether every operation is of interest, rather than those around a border.
fn is_explained() -> bool {
    #[cfg(feature = "explain")]
    let is_on = crate::probe::trace::is_on();
    #[cfg(not(feature = "explain"))]
    let is_on = false;
    is_on
}

/// Tells the trace what each block of operations makes and frees.
#[cfg(feature = "explain")]
fn ran(reports: &[burn_fusion21::inspect::FusionReport]) {
    if is_explained() {
        reports.iter().flat_map(|report| &report.blocks).for_each(block_ran);
    }
}

/// What is made and used up within a fused block is never there.
#[cfg(feature = "explain")]
fn block_ran(block: &burn_fusion21::inspect::FusionBlock) {
    use burn_fusion21::inspect::BlockKind;
    use burn_ir21::{OperationIr, TensorStatus};

    use crate::protocol::Made;

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

fn reached(moment: Moment) {
    timeline::reach(moment, clock::now());
}
