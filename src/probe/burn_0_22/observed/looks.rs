//! Looks at what memory fusion's tensors have, between operations and at the borders of phases. A look is an operation on a stream
//! of its own, so that it changes nothing of what is fused.

use std::any::Any;
use std::collections::HashMap;
use std::sync::{Mutex, MutexGuard, PoisonError};

use burn_cubecl_fusion22::CubeFusionHandle;
use burn_fusion22::stream::Operation;
use burn_fusion22::{ExecutionError, Fusion, FusionBackend, FusionHandle, FusionRuntime, get_client};
use burn_ir22::{CustomOpIr, HandleContainer, OperationIr, TensorId, TensorIr, TensorStatus};
use burn22::tensor::{DType, Shape};
use cubecl_environment22::stream::StreamId;
use cubecl_runtime22::memory_management::ManagedMemoryHandle;
use cubecl22::cuda::CudaDevice;

use crate::probe::burn_0_22::launches;
use crate::probe::numbers::Numbers;
use crate::probe::trace;
use crate::protocol::Held;

/// The name of a look.
pub(super) const NAME: &str = "cargo-vram-look";
/// The stream of looks: no thread's, and nothing is launched on it.
const STREAM: StreamId = StreamId { value: u64::MAX };

/// Looks now, at every tensor. Fusion's server must be free, or another thread's.
pub(in crate::probe::burn_0_22) fn look() {
    look_at(true);
}

/// Looks at what operations made and freed.
pub(super) fn look_between() {
    look_at(false);
}

fn look_at(is_whole: bool) {
    if trace::is_on() {
        burn_cubecl22::Cube::look_at(&cubecl22::Device::Cuda(CudaDevice::new(0)), is_whole);
    }
}

/// Starts the service that is asked. Nothing is asked of a service while another one is at work on the same thread, unless it has
/// started before.
pub(super) fn start() {
    burn_cubecl22::Cube::start(&cubecl22::Device::Cuda(CudaDevice::new(0)));
}

/// A backend whose tensors' memory can be looked at.
trait LookAt<D> {
    fn start(gpu: &D);

    fn look_at(gpu: &D, is_whole: bool);
}

impl<B: FusionBackend> LookAt<B::Device> for Fusion<B>
where
    FusionHandle<B::FusionRuntime>: 'static,
{
    fn start(gpu: &B::Device) {
        drop(get_client::<B>(gpu));
    }

    fn look_at(gpu: &B::Device, is_whole: bool) {
        let look = Look {
            is_whole,
            after: trace::operations(),
            steps: trace::steps(),
        };
        let operation = OperationIr::Custom(CustomOpIr::new(NAME, &[anchor()], &[]));
        drop(get_client::<B>(gpu).register(STREAM, operation, look));
    }
}

/// Without fusion there is no table of tensors to look at.
impl LookAt<cubecl22::Device> for burn_cubecl22::CubeBackend {
    fn start(_: &cubecl22::Device) {}

    fn look_at(_: &cubecl22::Device, _: bool) {}
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

/// What the last look saw, and what may have changed since.
#[derive(Default)]
struct Last {
    launches: u64,
    /// The tensors that had memory.
    held: HashMap<u64, (), Numbers>,
    made: Vec<u64>,
    freed: Vec<u64>,
    /// The piece of each of Burn's memories.
    pieces: HashMap<u64, u64, Numbers>,
}

/// Pieces of memory, which are told to the trace as they are handed out: Burn says how large they are, but not which memory they
/// become.
#[derive(Default)]
struct Pieces {
    next: u64,
    /// What was handed out since the last look: each piece, and its bytes.
    new: Vec<(u64, u64)>,
    /// Where each block began since then: from which memory and from which piece on what is made is of that block.
    blocks: Vec<(u64, u64)>,
}

impl Pieces {
    /// The piece that became a memory: the first of its size, of those that its block was handed out.
    fn find(&mut self, memory: Memory) -> Option<u64> {
        let next = self.blocks.partition_point(|(first, _)| *first <= memory.number);
        let from = next.checked_sub(1).map_or(0, |block| self.blocks[block].1);
        let to = self.blocks.get(next).map_or(u64::MAX, |(_, piece)| *piece);
        let is_it = |(piece, bytes): &(u64, u64)| *bytes == memory.bytes && (from..to).contains(piece);
        let at = self.new.iter().position(is_it)?;
        Some(self.new.remove(at).0)
    }

    fn allocated(&mut self, bytes: u64) -> u64 {
        let number = self.next;
        self.next += 1;
        trace::allocated(number, bytes);
        number
    }
}

static LAST: Mutex<Option<Last>> = Mutex::new(None);
static PIECES: Mutex<Option<Pieces>> = Mutex::new(None);

fn lock<T: Default>(what: &'static Mutex<Option<T>>) -> MutexGuard<'static, Option<T>> {
    let mut guard = what.lock().unwrap_or_else(PoisonError::into_inner);
    guard.get_or_insert_default();
    guard
}

/// The allocator handed out so many bytes. Called on the server's thread.
pub(in crate::probe::burn_0_22) fn reserved(bytes: u64) {
    if let Some(pieces) = lock(&PIECES).as_mut() {
        let number = pieces.allocated(bytes);
        pieces.new.push((number, bytes));
    }
}

/// Fusion runs a block of operations that make and free these: the next look need not look at all others.
pub(super) fn expect(made: &[u64], freed: &[u64]) {
    if let Some(pieces) = lock(&PIECES).as_mut() {
        // Burn numbers its memories as it makes them, and so this one.
        let memory = ManagedMemoryHandle::new();
        let next = pieces.next;
        pieces.blocks.push((memory.descriptor().id.value as u64, next));
    }
    if let Some(last) = lock(&LAST).as_mut() {
        last.made.extend(made);
        last.freed.extend(freed);
    }
}

/// A look on its way.
#[derive(Debug)]
struct Look {
    /// After which operation.
    after: u64,
    /// After how many steps.
    steps: u32,
    /// Whether every tensor is looked at: another thread's come and go without an operation.
    is_whole: bool,
}

impl<R: FusionRuntime> Operation<R> for Look
where
    R::FusionHandle: 'static,
{
    fn execute(&self, handles: &mut HandleContainer<R::FusionHandle>) -> Result<(), ExecutionError> {
        if let Some(last) = lock(&LAST).as_mut() {
            self.look(last, handles);
        }
        Ok(())
    }
}

impl Look {
    /// Tells the trace what changed.
    fn look<H: Clone + 'static>(&self, last: &mut Last, handles: &HandleContainer<H>) {
        let launches = trace::launches();
        let is_there = |id: &u64| handles.has_handle(&TensorId::new(*id));
        let may_have_run = self.is_whole
            || launches != last.launches
            || handles.num_handles() != last.held.len()
            || !last.made.is_empty()
            || !last.freed.is_empty();
        if !may_have_run {
            return;
        }
        let has_run = launches != last.launches || !last.made.is_empty() || !last.freed.is_empty();
        last.launches = launches;
        let mut gone: Vec<u64> = std::mem::take(&mut last.freed);
        gone.retain(|id| !is_there(id) && last.held.remove(id).is_some());
        let mut came: Vec<(u64, Memory)> = Vec::new();
        let mut come = |last: &mut Last, id: TensorId| {
            if last.held.contains_key(&id.value()) {
                return;
            }
            if let Some(memory) = memory(handles, id) {
                last.held.insert(id.value(), ());
                came.push((id.value(), memory));
            }
        };
        for id in std::mem::take(&mut last.made) {
            come(last, TensorId::new(id));
        }
        if self.is_whole || handles.num_handles() != last.held.len() {
            // Something else made or freed some: a copy from the host, a read.
            for id in handles.handle_ids() {
                come(last, *id);
            }
            let all: Vec<u64> = last.held.keys().copied().filter(|id| !is_there(id)).collect();
            for id in all {
                last.held.remove(&id);
                gone.push(id);
            }
        }
        if came.is_empty() && gone.is_empty() && !has_run {
            return;
        }
        let came = pieces(&mut last.pieces, came);
        gone.sort_unstable();
        trace::look(self.after, self.steps, came, gone);
    }
}

/// A piece of Burn's memory: its number, which is higher the later it was made, and its bytes.
#[derive(Clone, Copy)]
struct Memory {
    number: u64,
    bytes: u64,
}

fn memory<H: Clone + 'static>(handles: &HandleContainer<H>, id: TensorId) -> Option<Memory> {
    let handle = handles.get_handle_ref(&id)? as &dyn Any;
    let handle = &handle.downcast_ref::<CubeFusionHandle>()?.handle;
    Some(Memory {
        number: handle.memory.descriptor().id.value as u64,
        bytes: handle.size(),
    })
}

/// Which pieces the tensors have that came.
fn pieces(known: &mut HashMap<u64, u64, Numbers>, mut came: Vec<(u64, Memory)>) -> Vec<Held> {
    if came.iter().any(|(_, memory)| !known.contains_key(&memory.number)) {
        // A copy from the host is asked for, and nobody waits for its memory.
        launches::wait_for_servers();
    }
    let mut all = lock(&PIECES);
    let Some(all) = all.as_mut() else { return Vec::new() };
    came.sort_by_key(|(tensor, memory)| (memory.number, *tensor));
    let mut held: Vec<Held> = came
        .into_iter()
        .map(|(tensor, memory)| {
            let piece = *known.entry(memory.number).or_insert_with(|| {
                // The pool of parameters tells nobody what it hands out.
                all.find(memory).unwrap_or_else(|| all.allocated(memory.bytes))
            });
            Held { tensor, memory: piece }
        })
        .collect();
    all.new.clear();
    all.blocks.clear();
    held.sort_by_key(|held| held.tensor);
    held
}
