//! Marks phases. Operations run later than the user's thread asks for them. Fusion's observer reports both: which
//! operations are registered, in program order, and which of them a block runs. So an operation has the phase in which
//! it was registered, and the GPU reaches a phase with the first block that runs one of its operations.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, OnceLock, PoisonError};

use burn_fusion22::observer::{BlockOperations, FusionObservation, FusionObserver};
use burn_ir22::{OperationIr, TensorId};

use super::stage::Threads;
use super::{launches, observed};
use crate::probe::clock;
use crate::probe::pass::Marker;
use crate::probe::threads;
use crate::probe::timeline::{self, StepMoment};

/// The phases of one GPU.
#[derive(Default)]
struct Phases {
    /// Every marked moment, in program order.
    marked: Vec<StepMoment>,
    /// The number of these that the GPU has reached.
    reached: usize,
    /// For each registered operation that has not run yet: the tensor that it makes, and the number of moments that
    /// were marked when it was registered.
    registered: HashMap<TensorId, usize>,
}

/// One entry per GPU, by its number.
static PHASES: Mutex<Vec<Phases>> = Mutex::new(Vec::new());
/// Burn's threads and the observer of fusion's blocks, if the pass observes launches.
static OBSERVED: OnceLock<(Arc<Vec<Threads>>, FusionObservation)> = OnceLock::new();

/// Runs `act` on the phases of the GPU that this thread belongs to.
fn with<R>(act: impl FnOnce(&mut Phases) -> R) -> R {
    let gpu = threads::gpu().unwrap_or(0) as usize;
    let mut all = PHASES.lock().unwrap_or_else(PoisonError::into_inner);
    if all.len() <= gpu {
        all.resize_with(gpu + 1, Phases::default);
    }
    act(&mut all[gpu])
}

/// Returns the markers that a run calls at each phase, one per GPU.
pub(super) fn markers(gpus: &Arc<Vec<Threads>>, traced: bool, is_fused: bool) -> Vec<Marker> {
    let is_observed = traced && is_fused;
    if is_observed {
        let _ = OBSERVED.set((gpus.clone(), FusionObservation::new(Arc::new(Observer))));
    }
    (0..gpus.len())
        .map(|gpu| {
            let threads = gpus.clone();
            let mark = move |moment: StepMoment| mark(&threads[gpu], moment, traced, is_observed);
            Arc::new(mark) as Marker
        })
        .collect()
}

fn mark(threads: &Threads, moment: StepMoment, traced: bool, is_observed: bool) {
    if !traced {
        // This is exact enough to say in which phase the GPU ran out of memory.
        // Through fusion's queue first: the server would come to the mark before operations that fusion still
        // has.
        let server = threads.server.clone();
        threads.fusion.submit(move |_| server.submit(move |_| reached(moment)));
        return;
    }
    if is_observed {
        observed::look();
    }
    let server = &threads.server;
    // Wait for it. Otherwise chance would decide whether the sample at this border sees what the program frees next.
    let _ = threads.fusion.submit_blocking(|_| {
        let _ = server.submit_blocking(move |_| {
            launches::marked(moment);
            if !is_observed {
                // Without fusion there are no blocks, so the phase ends at the mark itself.
                launches::ends_phase_here();
                reached(moment);
            }
        });
        if is_observed {
            // On fusion's thread: operations that it receives after this belong to the new phase.
            // See docs/design/phases.md.
            with(|phases| phases.marked.push(moment));
        }
    });
}

/// Waits until the timeline has every moment that the program marked. Called after a panic on a thread of the program.
pub(super) fn settle() {
    let gpus = OBSERVED.get().map(|(gpus, _)| gpus);
    for threads in gpus.into_iter().flat_map(|gpus| gpus.iter()) {
        // Threads that have ended have nothing more to report.
        threads.wait();
    }
}

struct Observer;

impl FusionObserver for Observer {
    fn registered(&self, operation: &OperationIr) {
        if observed::is_own(operation) {
            return;
        }
        with(|phases| {
            let marked = phases.marked.len();
            let made = operation.outputs().map(|tensor| (tensor.id, marked));
            phases.registered.extend(made);
        });
    }

    fn block_starts(&self, block: BlockOperations<'_>) {
        if block.iter().any(observed::is_own) {
            return;
        }
        let came: Vec<StepMoment> = with(|phases| {
            let mut newest = phases.reached;
            for tensor in block.iter().flat_map(OperationIr::outputs) {
                // Operations of both phases in one block belong to the later phase, as with Burn 0.21.
                newest = newest.max(phases.registered.remove(&tensor.id).unwrap_or(0));
            }
            let came = phases.marked[phases.reached..newest].to_vec();
            phases.reached = newest;
            came
        });
        let Some((last, passed)) = came.split_last() else {
            return;
        };
        // Before the timeline moves on, so that the sample belongs to the phase that ends.
        launches::ends_phase();
        for moment in passed {
            timeline::pass(*moment, clock::now());
        }
        reached(*last);
    }

    fn block_ran(&self) {}
}

fn reached(moment: StepMoment) {
    timeline::reach(moment, clock::now());
}
