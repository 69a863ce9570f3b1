//! Uploads. `Tensor::from_data` allocates as soon as it is called, beside operations that still wait for fusion's thread: what is
//! allocated first is a matter of chance. A model that runs on that thread itself has one order, that of its program.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, OnceLock};

use burn_fusion22::observer::{BlockOperations, FusionObservation, FusionObserver};
use burn_ir22::OperationIr;
use cubecl_environment22::stream::StreamId;

use super::failures;
use super::stage::Threads;
use crate::probe::events;
use crate::protocol::Event;

/// Whether the order of uploads is a matter of chance, and they are looked for.
static MAY_RACE: AtomicBool = AtomicBool::new(false);
/// Whether the program's own thread uploaded something.
static UPLOADED: AtomicBool = AtomicBool::new(false);
/// Whether another thread of the program asked for operations: it would wait for fusion's thread, maybe for ever.
static IS_SHARED: AtomicBool = AtomicBool::new(false);
static OBSERVED: OnceLock<FusionObservation> = OnceLock::new();

/// Looks at uploads from now on. Called on the program's own thread. `may_race` says whether their order is a matter of chance.
pub(super) fn watch(may_race: bool) {
    MAY_RACE.store(may_race, Ordering::Relaxed);
    let own = StreamId::current();
    let _ = OBSERVED.set(FusionObservation::new(Arc::new(Observer { own })));
}

/// Ends a pass whose uploads are in an order of chance, and whose operations all come from the program's own thread: it is to be begun
/// anew on fusion's. What it compiled is kept by `keep`.
pub(super) fn end_if_unordered(keep: impl FnOnce()) {
    let is_set = |flag: &AtomicBool| flag.load(Ordering::Relaxed);
    if is_set(&MAY_RACE) && is_set(&UPLOADED) && !is_set(&IS_SHARED) {
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
}

impl FusionObserver for Observer {
    fn registered(&self, operation: &OperationIr) {
        // Fusion does what it is given in the name of the thread that gave it.
        let is_own = StreamId::current() == self.own;
        if !is_own {
            IS_SHARED.store(true, Ordering::Relaxed);
        }
        if let OperationIr::Init(upload) = operation {
            failures::uploads((upload.out.shape.num_elements() * upload.out.dtype.size()) as u64);
            if is_own {
                UPLOADED.store(true, Ordering::Relaxed);
            }
        }
    }

    fn block_starts(&self, _: BlockOperations<'_>) {}

    fn block_ran(&self) {}
}
