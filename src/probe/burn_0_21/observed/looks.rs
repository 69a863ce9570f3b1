//! Looks at what memory fusion's tensors have. A look gets in line with the operations, on a stream of its own, so that
//! it changes nothing of what is fused, and is made on fusion's own thread.
//!
//! Looks also decide when fusion is to report what it runs: a report costs a copy of its whole table of tensors for
//! every operation that is asked for, and most operations are only put off. Where nothing was expected to run, nor is
//! next, and nothing was launched, there is no look either: the next one finds what ran all the same.

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
use crate::protocol::{Event, Held, Made};

/// The stream of looks: no thread's, and nothing is launched on it.
const STREAM: StreamId = StreamId { value: u64::MAX };

/// Looks once everything that was asked for so far is with fusion.
pub(in crate::probe::burn_0_21) fn look(device: &<Inner as burn21::tensor::backend::BackendTypes>::Device) {
    if trace::is_on() {
        Inner::look_on(device, false);
    }
}

/// How many of the last operations tell what fusion does next.
const TELLING: u32 = 16;
/// How often fusion must have put the next operation off after these to be believed to do so again.
const BELIEVED: u32 = 2;
/// With so many operations put off, fusion may run them at any time, so that it also tells how many there are. On a
/// DenseNet-201, whose queues are run at 1 to 484 operations, something is expected so before 26 of 100 operations,
/// something runs at 20, and nothing runs unexpected.
const MANY: u64 = 32;

/// The last operations that a thread asked for.
struct Asked {
    last: VecDeque<u64>,
    /// Made of all of them, as a polynomial, so that the oldest can be taken out of it.
    hash: u64,
}

/// What the oldest operation counts once there is one more.
const OLDEST: u64 = SPREAD.wrapping_pow(TELLING);

impl Asked {
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
    static LAST_ASKED: RefCell<Asked> = const { RefCell::new(Asked::new()) };
    /// What was asked for after those.
    static FOLLOWED: RefCell<HashSet<(u64, &'static str)>> = RefCell::new(HashSet::new());
}

/// An operation is about to be asked for: where it did not follow what came before it yet, nobody knows what fusion does.
pub(super) fn asking(name: &'static str) {
    let is_new = |history| FOLLOWED.with_borrow_mut(|followed| followed.insert((history, name)));
    if history().is_some_and(is_new) {
        Inner::look_on(&CudaDevice::default(), true);
    }
}

/// Remembers what the next look comes after.
pub(super) fn asked(name: &str, outputs: &[Made]) {
    let mut hasher = DefaultHasher::new();
    name.hash(&mut hasher);
    for made in outputs {
        made.shape.len().hash(&mut hasher);
    }
    LAST_ASKED.with_borrow_mut(|last| last.push(hasher.finish()));
}

/// What was asked for last, where that tells anything.
fn history() -> Option<u64> {
    let asked = LAST_ASKED.with_borrow(|asked| (asked.last.len() == TELLING as usize).then_some(asked.hash));
    asked.filter(|_| trace::may_foresee())
}

/// What comes next is not what came next before: a phase ends, or fusion is about to run all that it put off.
pub(in crate::probe::burn_0_21) fn forget() {
    LAST_ASKED.set(Asked::new());
}

/// Whether fusion decides when operations run.
pub(super) const ARE_FUSED: bool = marks::is_fused();

/// Tells the trace which memory tensors got, and which tensors were dropped: where there is no fusion, that is known at once.
pub(super) fn at_once(came: Vec<Held>) {
    // Memory is handed out on the server's thread, which is to tell of it first.
    launches::wait_for_servers();
    let gone = dropped();
    if !came.is_empty() || !gone.is_empty() {
        trace::look(trace::operations(), trace::steps(), came, gone);
    }
}

/// A backend whose tensors' memory can be looked at.
trait Looks<D> {
    /// `is_ahead`: before an operation that is new here, rather than after one.
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
    // In line with the operations, which is soon done where there is nothing to see.
    marks::in_line(move || {
        if !glance.is_needless() {
            let streams = STREAM.executes(OperationStreams::default);
            let operation = OperationIr::Custom(CustomOpIr::new("cargo-vram", &[anchor()], &[]));
            // On fusion's own thread, which does it at once.
            client.register(streams, operation, glance);
        }
    });
}

/// A tensor that there is not. Fusion forgets a stream that has none whenever another runs something, and would make the
/// stream of looks anew for each.
fn anchor() -> TensorIr {
    TensorIr {
        id: TensorId::new(u64::MAX),
        shape: Shape::new([1]),
        status: TensorStatus::ReadOnly,
        dtype: DType::F32,
    }
}

/// A look on its way.
#[derive(Debug)]
struct Glance {
    /// After which operation.
    after: u64,
    /// After how many steps.
    steps: u32,
    /// What the last operation makes.
    made: Option<u64>,
    /// What was asked for last.
    history: Option<u64>,
    /// What is asked for next never was after these.
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
    /// Whether fusion was not to report what it ran until now.
    is_unwatched: bool,
    /// After which operation fusion last ran something.
    ran_after: u64,
    /// What the last look came after.
    came_after: Option<Situation>,
    /// How often fusion ran nothing before the next look, by what a look came after.
    quiet: HashMap<Situation, u32, Numbers>,
    /// After what it once ran something.
    busy: HashSet<u64, Numbers>,
}

/// What tells whether fusion puts the next operation off: what was asked for last, and how many are put off where they
/// are many.
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
            put_off: if put_off < MANY { 0 } else { put_off },
        })
    }

    /// Whether the next operation is believed to be put off.
    fn believes(&self, situation: Situation) -> bool {
        !self.busy.contains(&situation.history) && self.quiet.get(&situation).is_some_and(|times| *times >= BELIEVED)
    }

    /// Learns what came of the last look, and whether to expect that something runs before the next.
    fn expects(&mut self, has_run: bool, glance: &Glance) -> bool {
        if has_run {
            self.ran_after = glance.after;
        }
        if has_run && let Some(situation) = self.came_after {
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

/// Fusion reports what it runs from now on, and everything that it ran before was looked at.
pub(in crate::probe::burn_0_21) fn watched() {
    last().get_or_insert_default().is_unwatched = false;
}

/// Fusion runs operations that make and free these: the next look need not look at all others.
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
    /// Whether nothing was expected to run, nor is next, and nothing was launched.
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

    /// Tells the trace what changed, and whether something is expected to run before the next look.
    fn look<H: Clone + 'static>(&self, handles: &HandleContainer<H>) -> bool {
        let mut last = last();
        let last = last.get_or_insert_default();
        let launches = trace::launches();
        let is_there = |id: &u64| handles.has_handle(&TensorId::new(*id));
        // A view of a tensor needs no launch.
        let is_view = self
            .made
            .is_some_and(|id| is_there(&id) && !last.held.contains_key(&id));
        // Where nothing ran since, fusion still holds everything back.
        let has_run = launches != last.launches || handles.num_handles() != last.held.len() || is_view;
        if has_run && last.is_unwatched {
            events::send(&Event::Unforeseen);
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
        if handles.num_handles() != last.held.len() {
            // Something else made or freed some: a copy from the host, a read.
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
        came.sort_by_key(|held: &Held| held.tensor);
        gone.sort_unstable();
        trace::look(self.after, self.steps, came, gone);
        expects
    }
}

/// A tensor may have memory now that had none at the last look: whether it is known to have some.
fn come<H: Clone + 'static>(last: &mut Last, handles: &HandleContainer<H>, id: TensorId, came: &mut Vec<Held>) -> bool {
    if last.held.contains_key(&id.value()) {
        return true;
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
    memory.is_some()
}
