//! Uploads. `Tensor::from_data` allocates as soon as it is called, beside operations that still wait for fusion's thread: what is
//! allocated first is a matter of chance. A model that runs on that thread itself has one order, that of its program.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, OnceLock};

use burn_fusion22::observer::{BlockOperations, FusionObservation, FusionObserver};
use burn_ir22::{BaseOperationIr, OperationIr, TensorIr};
use cubecl_environment22::stream::StreamId;

use super::stage::Threads;
use super::{failures, observed};
use crate::probe::events;
use crate::protocol::Event;

/// Whether the program's own thread uploaded something.
static UPLOADED: AtomicBool = AtomicBool::new(false);
/// Whether another thread of the program asked for operations: it would wait for fusion's thread, maybe for ever.
static IS_SHARED: AtomicBool = AtomicBool::new(false);
static OBSERVED: OnceLock<FusionObservation> = OnceLock::new();

/// Looks at uploads and at tensors that are too large, from now on. Called on the program's own thread. `largest` is the largest tensor,
/// in bytes, that Burn allocates on each of the GPUs; `waits`: whether each launch is waited for.
pub(super) fn watch(largest: u64, waits: bool) {
    let own = StreamId::current();
    let _ = OBSERVED.set(FusionObservation::new(Arc::new(Observer { own, largest, waits })));
}

/// Ends a pass that has uploads, and whose operations all come from the program's own thread: it is to be begun anew on fusion's. What it
/// compiled is kept by `keep`.
pub(super) fn end_if_unordered(keep: impl FnOnce()) {
    if UPLOADED.load(Ordering::Relaxed) && !IS_SHARED.load(Ordering::Relaxed) {
        keep();
        events::send(&Event::Uploads);
        std::process::exit(0);
    }
}

/// Runs a model on the thread of fusion, where each operation is executed in the call that asks for it.
pub(super) fn inside(threads: &Threads, model: impl FnOnce() + Send) {
    if let Err(panic) = threads.fusion.exclusive(model) {
        panic.resume();
    }
}

struct Observer {
    /// The stream of the program's own thread.
    own: StreamId,
    largest: u64,
    /// Whether each launch is waited for.
    waits: bool,
}

impl Observer {
    /// A tensor's bytes, where Burn has no page for them.
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

impl FusionObserver for Observer {
    fn registered(&self, operation: &OperationIr) {
        if observed::is_own(operation) {
            return;
        }
        // Fusion does what it is given in the name of the thread that gave it.
        let is_own = StreamId::current() == self.own;
        if !is_own {
            IS_SHARED.store(true, Ordering::Relaxed);
        }
        if let OperationIr::Init(upload) = operation {
            // cubecl says nothing of it, nor of the launches that it then leaves out.
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
                // Nothing is launched that could fail.
                (Some(BaseOperationIr::Empty(_)), Some(bytes)) => failures::too_large(bytes),
                // The memory is that of its input.
                (Some(BaseOperationIr::Expand(_)), _) => {}
                _ => expected = expected.or(too_large),
            }
        }
        // Where nothing waits for launches, a block's failure is told when others began.
        if expected.is_some() || self.waits {
            failures::expect_too_large(expected);
        }
    }

    fn block_ran(&self) {}
}
