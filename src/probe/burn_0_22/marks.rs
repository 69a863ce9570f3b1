//! Phases. Operations run later than the user's thread asks for them. Fusion's observer reports both: which operations are
//! registered, in the program's order, and which of them a block runs. So an operation has the phase it was registered in, and
//! the GPU comes to a phase with the first block that runs an operation of it.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, OnceLock, PoisonError};

use burn_fusion22::observer::{BlockOperations, FusionObservation, FusionObserver};
use burn_ir22::{OperationIr, TensorId};

use super::stage::Threads;
use super::{launches, observed};
use crate::probe::clock;
use crate::probe::pass::Marker;
use crate::probe::threads;
use crate::probe::timeline::{self, Moment};

/// The phases of one GPU.
#[derive(Default)]
struct Phases {
    /// Every moment that was marked, in the program's order.
    marked: Vec<Moment>,
    /// How many of these the GPU came to.
    reached: usize,
    /// How many moments were marked when an operation was registered that has not run yet, by the tensor that it makes.
    registered: HashMap<TensorId, usize>,
}

/// One for each GPU, by its number.
static PHASES: Mutex<Vec<Phases>> = Mutex::new(Vec::new());
/// Burn's threads, where launches are observed, with what reports fusion's blocks.
static OBSERVED: OnceLock<(Arc<Vec<Threads>>, FusionObservation)> = OnceLock::new();

/// Those of the GPU whose thread this is.
fn with<R>(act: impl FnOnce(&mut Phases) -> R) -> R {
    let gpu = threads::card().unwrap_or(0) as usize;
    let mut all = PHASES.lock().unwrap_or_else(PoisonError::into_inner);
    if all.len() <= gpu {
        all.resize_with(gpu + 1, Phases::default);
    }
    act(&mut all[gpu])
}

/// What a run calls at each phase, one for each GPU.
pub(super) fn markers(gpus: &Arc<Vec<Threads>>, traced: bool, is_fused: bool) -> Vec<Marker> {
    let is_observed = traced && is_fused;
    if is_observed {
        let _ = OBSERVED.set((gpus.clone(), FusionObservation::new(Arc::new(Observer))));
    }
    (0..gpus.len())
        .map(|gpu| {
            let threads = gpus.clone();
            let mark = move |moment: Moment| mark(&threads[gpu], moment, traced, is_observed);
            Arc::new(mark) as Marker
        })
        .collect()
}

fn mark(threads: &Threads, moment: Moment, traced: bool, is_observed: bool) {
    if !traced {
        // Enough to say where an out of memory happened.
        let server = threads.server.clone();
        threads.fusion.submit(move |_| server.submit(move |_| reached(moment)));
        return;
    }
    if is_observed {
        observed::look();
    }
    let server = &threads.server;
    // Waited for: what the program frees next by itself is not to be in the look of this border, or not by chance.
    let _ = threads.fusion.submit_blocking(|_| {
        let _ = server.submit_blocking(move |_| {
            launches::marked(moment);
            if !is_observed {
                launches::ends_phase_here();
                reached(moment);
            }
        });
        if is_observed {
            with(|phases| phases.marked.push(moment));
        }
    });
}

/// Waits until every moment that the program came to is known, on the way out of a panic on its own thread.
pub(super) fn settle() {
    let gpus = OBSERVED.get().map(|(gpus, _)| gpus);
    for threads in gpus.into_iter().flat_map(|gpus| gpus.iter()) {
        // Threads that are gone know no more than they told.
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
        let came: Vec<Moment> = with(|phases| {
            let mut newest = phases.reached;
            for tensor in block.iter().flat_map(OperationIr::outputs) {
                newest = newest.max(phases.registered.remove(&tensor.id).unwrap_or(0));
            }
            let came = phases.marked[phases.reached..newest].to_vec();
            phases.reached = newest;
            came
        });
        let Some((last, passed)) = came.split_last() else {
            return;
        };
        launches::ends_phase();
        for moment in passed {
            timeline::pass(*moment, clock::now());
        }
        reached(*last);
    }

    fn block_ran(&self) {}
}

fn reached(moment: Moment) {
    timeline::reach(moment, clock::now());
}
