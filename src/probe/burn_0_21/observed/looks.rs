//! Looks at which memory fusion's tensors have. A look waits in the queue of the operations and runs on fusion's own
//! thread. It has its own stream, so it does not change what is fused.
//!
//! Looks also decide when fusion reports what it runs. While it reports, fusion copies its whole table of tensors for
//! every operation that is asked for, and it only postpones most of these. A look is skipped if nothing was expected to
//! run, nothing is expected next, and nothing was launched. The next look still finds what ran.

use std::cell::RefCell;
use std::collections::{HashMap, HashSet, VecDeque};
use std::hash::{DefaultHasher, Hash, Hasher};
use std::sync::{Mutex, MutexGuard, PoisonError};

use burn_backend21::{DType, Shape, StreamId};
use burn_cubecl_fusion21::CubeFusionHandle;
use burn_cubecl21::CubeRuntime;
use burn_fusion21::stream::{Operation, OperationStreams};
use burn_fusion21::{Client, FusionRuntime};
use burn_ir21::{CustomOpIr, HandleContainer, OperationIr, TensorId, TensorIr, TensorStatus};
use cubecl21::cuda::{CudaDevice, CudaRuntime};

use super::Inner;
use super::tensor::dropped;
use crate::probe::burn_0_21::{launches, marks};
use crate::probe::numbers::{Numbers, SPREAD};
use crate::probe::{events, trace};
use crate::protocol::{HeldTensor, Made, ProbeEvent};

/// The stream of looks. It belongs to no thread, and nothing is launched on it.
const STREAM: StreamId = StreamId { value: u64::MAX };

/// Looks once fusion has received all operations that were asked for so far.
pub(in crate::probe::burn_0_21) fn look(device: &<Inner as burn21::tensor::backend::BackendTypes>::Device) {
    if trace::is_on() {
        Inner::look_on(device, false);
    }
}

/// The number of last operations from which we predict what fusion does next.
// Predictions, because a runtime of fusion of our own would be a second backend of 418 operations.
// See docs/design/traces.md.
const TELLING: u32 = 16;
/// How often fusion must have postponed the next operation after these before we expect that again.
const BELIEVED: u32 = 2;
/// With this many postponed operations, fusion may run them at any time. So from here on, the prediction also depends
/// on their number. On a DenseNet-201, whose queues run at 1 to 484 operations, we then expect something to run before
/// 26 of 100 operations. Something runs at 20, and nothing runs unexpectedly.
const MANY: u64 = 32;

/// The last operations that a thread asked for.
struct LastOperations {
    last: VecDeque<u64>,
    /// A hash of all of them. It is a polynomial, so that the oldest operation can be removed from it.
    hash: u64,
}

/// The factor of the oldest operation in the hash, once one more operation is added.
const OLDEST: u64 = SPREAD.wrapping_pow(TELLING);

impl LastOperations {
    const fn new() -> Self {
        Self {
            last: VecDeque::new(),
            hash: 0,
        }
    }

    fn push(&mut self, operation: u64) {
        self.hash = self.hash.wrapping_mul(SPREAD).wrapping_add(operation);
        if self.last.len() == TELLING as usize
            && let Some(oldest) = self.last.pop_front()
        {
            self.hash = self.hash.wrapping_sub(oldest.wrapping_mul(OLDEST));
        }
        self.last.push_back(operation);
    }
}

thread_local! {
    static LAST_ASKED: RefCell<LastOperations> = const { RefCell::new(LastOperations::new()) };
    /// Which operations were asked for after which last operations.
    static FOLLOWED: RefCell<HashSet<(u64, &'static str)>> = RefCell::new(HashSet::new());
}

/// Looks before an operation is asked for, if that operation never followed the last ones before: then fusion's
/// behaviour cannot be predicted.
pub(super) fn asking(name: &'static str) {
    let is_new = |history| FOLLOWED.with_borrow_mut(|followed| followed.insert((history, name)));
    // The look after the last operation could not know that this one comes next. Fusion may run its queue for
    // it.
    if history().is_some_and(is_new) {
        Inner::look_on(&CudaDevice::default(), true);
    }
}

/// Adds an operation to the last ones.
pub(super) fn asked(name: &str, outputs: &[Made]) {
    let mut hasher = DefaultHasher::new();
    name.hash(&mut hasher);
    for made in outputs {
        made.shape.len().hash(&mut hasher);
    }
    LAST_ASKED.with_borrow_mut(|last| last.push(hasher.finish()));
}

/// Returns the hash of the last operations, if it can be used for predictions.
fn history() -> Option<u64> {
    let asked = LAST_ASKED.with_borrow(|asked| (asked.last.len() == TELLING as usize).then_some(asked.hash));
    asked.filter(|_| trace::may_foresee())
}

/// Forgets the last operations, because what follows cannot be predicted from them: a phase ends, or fusion is about to
/// run all postponed operations.
pub(in crate::probe::burn_0_21) fn forget() {
    LAST_ASKED.set(LastOperations::new());
}

/// Whether fusion decides when operations run.
pub(super) const ARE_FUSED: bool = marks::is_fused();

/// Writes to the trace which memory tensors got, and which tensors were dropped. Without fusion, both are known at
/// once.
pub(super) fn at_once(came: Vec<HeldTensor>) {
    // The server's thread hands out memory, and must write that to the trace first.
    launches::wait_for_servers();
    let gone = dropped();
    if !came.is_empty() || !gone.is_empty() {
        trace::look(trace::operations(), trace::steps(), came, gone);
    }
}

/// A backend that supports looks.
trait Looks<D> {
    /// Looks. `is_ahead`: before an operation that never followed the last ones, rather than after an operation.
    fn look_on(device: &D, is_ahead: bool);
}

impl<B: burn_fusion21::FusionBackend> Looks<B::Device> for burn_fusion21::Fusion<B> {
    fn look_on(device: &B::Device, is_ahead: bool) {
        send(&burn_fusion21::get_client::<B>(device), None, is_ahead);
    }
}

impl<R, F, I, T> Looks<R::Device> for burn_cubecl21::CubeBackend<R, F, I, T>
where
    R: CubeRuntime,
    F: burn_cubecl21::FloatElement,
    I: burn_cubecl21::IntElement,
    T: burn_cubecl21::BoolElement,
{
    fn look_on(_: &R::Device, _: bool) {
        at_once(Vec::new());
    }
}

pub(super) fn send<R: FusionRuntime>(client: &Client<R>, made: Option<u64>, is_ahead: bool) {
    let glance = Glance {
        after: trace::operations(),
        steps: trace::steps(),
        made,
        history: history(),
        is_ahead,
    };
    let client = client.clone();
    // Wait in the queue of the operations. This is quick if there is nothing to look at.
    marks::in_line(move || {
        if !glance.is_needless() {
            let streams = STREAM.executes(OperationStreams::default);
            let operation = OperationIr::Custom(CustomOpIr::new("cargo-vram", &[anchor()], &[]));
            // This is fusion's own thread, so the look runs at once.
            client.register(streams, operation, glance);
        }
    });
}

/// Returns a tensor that does not exist. Fusion forgets a stream without tensors whenever another stream runs
/// something, and would have to make the stream of looks again for each look.
fn anchor() -> TensorIr {
    TensorIr {
        id: TensorId::new(u64::MAX),
        shape: Shape::new([1]),
        status: TensorStatus::ReadOnly,
        dtype: DType::F32,
    }
}

/// A look in the queue.
#[derive(Debug)]
struct Glance {
    /// The number of operations that were asked for before.
    after: u64,
    /// The number of completed steps.
    steps: u32,
    /// The number of the tensor that the last operation makes.
    made: Option<u64>,
    /// The hash of the last operations.
    history: Option<u64>,
    /// Whether the next operation never followed the last ones before.
    is_ahead: bool,
}

/// What the last look saw, and what may have changed since.
#[derive(Default)]
struct Last {
    launches: u64,
    /// Each tensor's memory, by the tensor's number.
    held: HashMap<u64, u64, Numbers>,
    made: Vec<u64>,
    freed: Vec<u64>,
    /// Whether fusion's reports were off until now.
    is_unwatched: bool,
    /// The number of operations that were asked for when fusion last ran something.
    ran_after: u64,
    /// The situation of the last look.
    came_after: Option<Situation>,
    /// How often fusion ran nothing between a look in this situation and the next look.
    quiet: HashMap<Situation, u32, Numbers>,
    /// The hashes of last operations after which fusion once ran something.
    busy: HashSet<u64, Numbers>,
}

/// The situation from which we predict whether fusion postpones the next operation: the hash of the last operations,
/// and the number of postponed operations if there are many (else 0).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
struct Situation {
    history: u64,
    put_off: u64,
}

impl Last {
    fn situation(&self, glance: &Glance) -> Option<Situation> {
        let put_off = glance.after - self.ran_after;
        glance.history.map(|history| Situation {
            history,
            // Below that, each number of postponed operations would have to be learned separately.
            put_off: if put_off < MANY { 0 } else { put_off },
        })
    }

    /// Whether fusion is expected to postpone the next operation.
    fn believes(&self, situation: Situation) -> bool {
        !self.busy.contains(&situation.history) && self.quiet.get(&situation).is_some_and(|times| *times >= BELIEVED)
    }

    /// Learns what happened since the last look. Returns whether something is expected to run before the next look.
    fn expects(&mut self, has_run: bool, glance: &Glance) -> bool {
        if has_run {
            self.ran_after = glance.after;
        }
        if has_run && let Some(situation) = self.came_after {
            // For good, and for any number of postponed operations: a wrong prediction ends the pass.
            self.busy.insert(situation.history);
        }
        if glance.is_ahead {
            return true;
        }
        let situation = self.situation(glance);
        if let Some(situation) = std::mem::replace(&mut self.came_after, situation).filter(|_| !has_run) {
            *self.quiet.entry(situation).or_default() += 1;
        }
        !situation.is_some_and(|situation| self.believes(situation))
    }
}

static LAST: Mutex<Option<Last>> = Mutex::new(None);

fn last() -> MutexGuard<'static, Option<Last>> {
    LAST.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Records that fusion reports what it runs from now on, and that a look has found everything that ran before.
pub(in crate::probe::burn_0_21) fn watched() {
    last().get_or_insert_default().is_unwatched = false;
}

/// Records which tensors the operations that fusion runs now make and free. The next look then need not look at all
/// other tensors.
pub(in crate::probe::burn_0_21) fn expect(made: impl Iterator<Item = u64>, freed: &[u64]) {
    let mut last = last();
    let last = last.get_or_insert_default();
    last.made.extend(made);
    last.freed.extend(freed);
}

impl<R: FusionRuntime> Operation<R> for Glance {
    fn execute(&self, handles: &mut HandleContainer<R::FusionHandle>) {
        let is_watched = marks::watch(self.look(handles));
        last().get_or_insert_default().is_unwatched = !is_watched;
    }
}

impl Glance {
    /// Whether this look can be skipped: nothing was expected to run, nothing is expected next, and nothing was
    /// launched.
    fn is_needless(&self) -> bool {
        let mut last = last();
        let last = last.get_or_insert_default();
        let is_needless = last.is_unwatched
            && !self.is_ahead
            && last.launches == trace::launches()
            && last.situation(self).is_some_and(|situation| last.believes(situation));
        if is_needless {
            last.expects(false, self);
        }
        is_needless
    }

    /// Writes to the trace what changed. Returns whether something is expected to run before the next look.
    fn look<H: Clone + 'static>(&self, handles: &HandleContainer<H>) -> bool {
        let mut last = last();
        let last = last.get_or_insert_default();
        let launches = trace::launches();
        let is_there = |id: &u64| handles.has_handle(&TensorId::new(*id));
        // A view of a tensor needs no launch.
        // It would else go unseen: nothing is launched, and another tensor may have gone, so that the count
        // stays the same.
        let is_view = self
            .made
            .is_some_and(|id| is_there(&id) && !last.held.contains_key(&id));
        // If nothing ran since the last look, fusion still holds everything back.
        let has_run = launches != last.launches || handles.num_handles() != last.held.len() || is_view;
        // Nobody reported what ran, so the trace would have a gap. The tool starts the pass again with
        // reports throughout. On the zoo, this happens for no model.
        if has_run && last.is_unwatched {
            events::send(&ProbeEvent::Unforeseen);
            std::process::exit(0);
        }
        let expects = last.expects(has_run, self);
        if !has_run {
            return expects;
        }
        last.launches = launches;
        let mut came = Vec::new();
        let mut gone: Vec<u64> = std::mem::take(&mut last.freed);
        gone.retain(|id| !is_there(id) && last.held.remove(id).is_some());
        for id in std::mem::take(&mut last.made) {
            come(last, handles, TensorId::new(id), &mut came);
        }
        // The numbers are compared first, because fusion's table has thousands of tensors and there are
        // thousands of looks.
        if handles.num_handles() != last.held.len() {
            // Something else made or freed tensors: a copy from the host, or a read.
            let mut are_held = true;
            for id in handles.handle_ids() {
                are_held &= come(last, handles, *id, &mut came);
            }
            if !are_held || handles.num_handles() != last.held.len() {
                let all: Vec<u64> = last.held.keys().copied().filter(|id| !is_there(id)).collect();
                for id in all {
                    last.held.remove(&id);
                    gone.push(id);
                }
            }
        }
        // The table is a hash map. Two traces must not differ by its order.
        came.sort_by_key(|held: &HeldTensor| held.tensor);
        gone.sort_unstable();
        trace::look(self.after, self.steps, came, gone);
        expects
    }
}

/// Records the memory of a tensor that had none at the last look. Returns whether the tensor is known to have memory.
fn come<H: Clone + 'static>(
    last: &mut Last,
    handles: &HandleContainer<H>,
    id: TensorId,
    came: &mut Vec<HeldTensor>,
) -> bool {
    if last.held.contains_key(&id.value()) {
        return true;
    }
    let handle = handles.get_handle_ref(&id).map(|handle| handle as &dyn std::any::Any);
    let handle = handle.and_then(|handle| handle.downcast_ref::<CubeFusionHandle<CudaRuntime>>());
    // Burn shows the number of a piece of memory only in its debug output.
    let memory = handle.and_then(|handle| trace::memory_number(&format!("{:?}", handle.handle.memory)));
    if let Some(memory) = memory {
        last.held.insert(id.value(), memory);
        came.push(HeldTensor {
            tensor: id.value(),
            memory,
        });
    }
    memory.is_some()
}
