//! Looks at what memory fusion's tensors have. A look gets in line with the operations, on a stream of its own, so that
//! it changes nothing of what is fused, and is made on fusion's own thread.

use std::collections::HashMap;
use std::sync::{Mutex, PoisonError};

use burn_backend::StreamId;
use burn_cubecl::CubeRuntime;
use burn_cubecl_fusion::CubeFusionHandle;
use burn_fusion::stream::{Operation, OperationStreams};
use burn_fusion::{Client, FusionRuntime};
use burn_ir::{CustomOpIr, HandleContainer, OperationIr};
use cubecl::cuda::CudaRuntime;

use super::Inner;
use crate::probe::trace;
use crate::protocol::Held;

/// The stream of looks: no thread's, and nothing is launched on it.
const STREAM: StreamId = StreamId { value: u64::MAX };

/// Looks once everything that was asked for so far is with fusion.
pub(in crate::probe::burn_0_21) fn look(device: &<Inner as burn::tensor::backend::BackendTypes>::Device) {
    if trace::is_on() {
        Inner::look_on(device);
    }
}

/// A backend whose tensors' memory can be looked at, where it is fused.
trait Looks<D> {
    fn look_on(device: &D);
}

impl<B: burn_fusion::FusionBackend> Looks<B::Device> for burn_fusion::Fusion<B> {
    fn look_on(device: &B::Device) {
        send(&burn_fusion::get_client::<B>(device));
    }
}

impl<R, F, I, T> Looks<R::Device> for burn_cubecl::CubeBackend<R, F, I, T>
where
    R: CubeRuntime,
    F: burn_cubecl::FloatElement,
    I: burn_cubecl::IntElement,
    T: burn_cubecl::BoolElement,
{
    fn look_on(_: &R::Device) {}
}

pub(super) fn send<R: FusionRuntime>(client: &Client<R>) {
    let streams = STREAM.executes(OperationStreams::default);
    let operation = OperationIr::Custom(CustomOpIr::new("cargo-vram", &[], &[]));
    client.register(
        streams,
        operation,
        Glance {
            after: trace::operations(),
            steps: trace::steps(),
        },
    );
}

/// A look on its way.
#[derive(Debug)]
struct Glance {
    /// After which operation.
    after: u64,
    /// After how many steps.
    steps: u32,
}

/// What the last look saw, and what may have changed since.
#[derive(Default)]
struct Last {
    launches: u64,
    /// Each tensor's memory, by the tensor's number.
    held: HashMap<u64, u64>,
    made: Vec<u64>,
    freed: Vec<u64>,
}

static LAST: Mutex<Option<Last>> = Mutex::new(None);

/// Fusion runs operations that make and free these: the next look need not look at all others.
pub(in crate::probe::burn_0_21) fn expect(made: impl Iterator<Item = u64>, freed: &[u64]) {
    let mut last = LAST.lock().unwrap_or_else(PoisonError::into_inner);
    let last = last.get_or_insert_default();
    last.made.extend(made);
    last.freed.extend(freed);
}

impl<R: FusionRuntime> Operation<R> for Glance {
    fn execute(&self, handles: &mut HandleContainer<R::FusionHandle>) {
        let mut last = LAST.lock().unwrap_or_else(PoisonError::into_inner);
        let last = last.get_or_insert_default();
        let launches = trace::launches();
        // Where nothing ran since, fusion still holds everything back.
        if launches == last.launches && handles.num_handles() == last.held.len() {
            return;
        }
        last.launches = launches;
        let is_there = |id: &u64| handles.has_handle(&burn_ir::TensorId::new(*id));
        let mut came = Vec::new();
        let mut gone: Vec<u64> = std::mem::take(&mut last.freed);
        gone.retain(|id| !is_there(id) && last.held.remove(id).is_some());
        for id in std::mem::take(&mut last.made) {
            come(last, handles, burn_ir::TensorId::new(id), &mut came);
        }
        if handles.num_handles() != last.held.len() {
            // Something else made or freed some: a copy from the host, a read.
            let all: Vec<u64> = last.held.keys().copied().filter(|id| !is_there(id)).collect();
            for id in all {
                last.held.remove(&id);
                gone.push(id);
            }
            for id in handles.handle_ids() {
                come(last, handles, *id, &mut came);
            }
        }
        came.sort_by_key(|held: &Held| held.tensor);
        gone.sort_unstable();
        trace::look(self.after, self.steps, came, gone);
    }
}

/// A tensor has memory now that had none at the last look.
fn come<H: Clone + 'static>(
    last: &mut Last,
    handles: &HandleContainer<H>,
    id: burn_ir::TensorId,
    came: &mut Vec<Held>,
) {
    if last.held.contains_key(&id.value()) {
        return;
    }
    let handle = handles.get_handle_ref(&id).map(|handle| handle as &dyn std::any::Any);
    let handle = handle.and_then(|handle| handle.downcast_ref::<CubeFusionHandle<CudaRuntime>>());
    // The number of a piece of memory is only shown, never told.
    let memory = handle.and_then(|handle| trace::memory_number(&format!("{:?}", handle.handle.memory)));
    if let Some(memory) = memory {
        last.held.insert(id.value(), memory);
        came.push(Held {
            tensor: id.value(),
            memory,
        });
    }
}
