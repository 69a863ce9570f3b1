//! Watches uploads. `Tensor::from_data` allocates as soon as it is called, while earlier operations may still wait for
//! fusion's thread. So chance decides what is allocated first. A model that itself runs on that thread has only one
//! order, program order.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, OnceLock};

use burn_fusion22::observer::{BlockOperations, FusionObservation, FusionObserver};
use burn_ir22::{BaseOperationIr, OperationIr, TensorIr};
use cubecl_environment22::stream::StreamId;

use super::stage::Threads;
use super::{failures, observed};
use crate::probe::events;
use crate::protocol::ProbeEvent;

/// Whether the program's own thread uploaded something.
static UPLOADED: AtomicBool = AtomicBool::new(false);
/// Whether another thread of the program asked for operations. If the model ran on fusion's thread, that other thread
/// might wait for fusion's thread forever.
// Two passes of such a model may differ. They are then reported as nondeterministic.
// See docs/design/burn-0_22-memory.md.
static IS_SHARED: AtomicBool = AtomicBool::new(false);
static OBSERVED: OnceLock<FusionObservation> = OnceLock::new();

/// Watches uploads and tensors that are too large, from now on. Called on the program's own thread.
///
/// `largest` is the size in bytes of the largest tensor that Burn allocates on each of the GPUs. `waits`: whether we
/// wait for each launch.
pub(super) fn watch(largest: u64, waits: bool) {
    let own = StreamId::current();
    let _ = OBSERVED.set(FusionObservation::new(Arc::new(UploadObserver { own, largest, waits })));
}

/// Lets the pass upload in any order, because the model cannot run on fusion's thread.
#[cfg(feature = "train")]
pub(super) fn accept_any_order() {
    IS_SHARED.store(true, Ordering::Relaxed);
}

/// Ends a pass that has uploads, if all its operations come from the program's own thread. The tool then starts the
/// pass again on fusion's thread. Before that, `keep` saves what this pass compiled.
pub(super) fn end_if_unordered(keep: impl FnOnce()) {
    if UPLOADED.load(Ordering::Relaxed) && !IS_SHARED.load(Ordering::Relaxed) {
        keep();
        events::send(&ProbeEvent::Uploads);
        std::process::exit(0);
    }
}

/// Runs a model on the thread of fusion, where each operation runs within the call that asks for it.
pub(super) fn inside(threads: &Threads, model: impl FnOnce() + Send) {
    if let Err(panic) = threads.fusion.exclusive(model) {
        panic.resume();
    }
}

struct UploadObserver {
    /// The stream of the program's own thread.
    own: StreamId,
    largest: u64,
    /// Whether we wait for each launch.
    waits: bool,
}

impl UploadObserver {
    /// Returns a tensor's bytes, if they are too many for any page of Burn's allocator.
    fn too_large(&self, tensor: &TensorIr) -> Option<u64> {
        let bytes = (tensor.shape.num_elements() * tensor.dtype.size()) as u64;
        (bytes > self.largest).then_some(bytes)
    }
}

fn base(operation: &OperationIr) -> Option<&BaseOperationIr> {
    match operation {
        OperationIr::BaseFloat(base) | OperationIr::BaseInt(base) | OperationIr::BaseBool(base) => Some(base),
        _ => None,
    }
}

impl FusionObserver for UploadObserver {
    fn registered(&self, operation: &OperationIr) {
        if observed::is_own(operation) {
            return;
        }
        // Fusion's thread runs a task under the stream of the thread that submitted it.
        let is_own = StreamId::current() == self.own;
        if !is_own {
            IS_SHARED.store(true, Ordering::Relaxed);
        }
        if let OperationIr::Init(upload) = operation {
            // cubecl logs neither this nor the launches that it then skips.
            if let Some(bytes) = self.too_large(&upload.out) {
                failures::too_large(bytes);
            }
            if is_own {
                UPLOADED.store(true, Ordering::Relaxed);
            }
        }
    }

    fn block_starts(&self, block: BlockOperations<'_>) {
        if block.iter().any(observed::is_own) {
            return;
        }
        let mut expected = None;
        for operation in block.iter() {
            let too_large = operation.outputs().find_map(|tensor| self.too_large(tensor));
            match (base(operation), too_large) {
                // Nothing is launched for an empty tensor, so no launch could fail.
                (Some(BaseOperationIr::Empty(_)), Some(bytes)) => failures::too_large(bytes),
                // An expanded tensor has the memory of its input.
                (Some(BaseOperationIr::Expand(_)), _) => {}
                _ => expected = expected.or(too_large),
            }
        }
        // If we do not wait for launches, a block's failure is logged only after other blocks began, so keep the
        // expectation.
        if expected.is_some() || self.waits {
            failures::expect_too_large(expected);
        }
    }

    fn block_ran(&self) {}
}
