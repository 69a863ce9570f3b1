//! Looks at which memory fusion's tensors have, between operations and at the borders of phases. A look is an operation
//! on its own stream, so it does not change what is fused.

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
use crate::protocol::HeldTensor;

/// The name of the operation that looks.
pub(super) const NAME: &str = "cargo-vram-look";
/// The stream of looks. It belongs to no thread, and nothing is launched on it.
const STREAM: StreamId = StreamId { value: u64::MAX };

/// Looks at every tensor now. Fusion's server must be free, or run on another thread.
pub(in crate::probe::burn_0_22) fn look() {
    look_at(true);
}

/// Looks at what operations made and freed since the last look.
pub(super) fn look_between() {
    look_at(false);
}

fn look_at(is_whole: bool) {
    if trace::is_on() {
        burn_cubecl22::Cube::look_at(&cubecl22::Device::Cuda(CudaDevice::new(0)), is_whole);
    }
}

/// Starts the service that looks ask. While another service works on the same thread, a service can only be asked if it
/// has started before.
pub(super) fn start() {
    burn_cubecl22::Cube::start(&cubecl22::Device::Cuda(CudaDevice::new(0)));
}

/// A backend that supports looks.
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

/// What the last look saw, and what may have changed since.
#[derive(Default)]
struct LastLook {
    launches: u64,
    /// The tensors that had memory.
    held: HashMap<u64, (), Numbers>,
    made: Vec<u64>,
    freed: Vec<u64>,
    /// The number of the piece for each of Burn's memories, by the memory's number.
    pieces: HashMap<u64, u64, Numbers>,
}

/// Pieces of memory. They are written to the trace when they are handed out. At that time Burn reports their size, but
/// not which memory they become.
#[derive(Default)]
struct Pieces {
    next: u64,
    /// The pieces that were handed out since the last look, each with its bytes.
    new: Vec<(u64, u64)>,
    /// The beginnings of the blocks since then, as memory number and piece number. What is made from there on belongs
    /// to that block.
    blocks: Vec<(u64, u64)>,
}

impl Pieces {
    /// Returns the piece that became a memory: the first with its size among the pieces that its block was handed.
    fn find(&mut self, memory: MemoryPiece) -> Option<u64> {
        let next = self.blocks.partition_point(|(first, _)| *first <= memory.number);
        let from = next.checked_sub(1).map_or(0, |block| self.blocks[block].1);
        let to = self.blocks.get(next).map_or(u64::MAX, |(_, piece)| *piece);
        // The size alone is not enough: one call of the model may run a hundred blocks, with pieces of equal
        // sizes. See docs/design/burn-0_22-explanations.md.
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

static LAST: Mutex<Option<LastLook>> = Mutex::new(None);
static PIECES: Mutex<Option<Pieces>> = Mutex::new(None);

fn lock<T: Default>(what: &'static Mutex<Option<T>>) -> MutexGuard<'static, Option<T>> {
    let mut guard = what.lock().unwrap_or_else(PoisonError::into_inner);
    guard.get_or_insert_default();
    guard
}

/// Records that the allocator handed out this many bytes. Called on the server's thread.
pub(in crate::probe::burn_0_22) fn reserved(bytes: u64) {
    if let Some(pieces) = lock(&PIECES).as_mut() {
        let number = pieces.allocated(bytes);
        pieces.new.push((number, bytes));
    }
}

/// Records which tensors the block of operations that fusion runs now makes and frees. The next look then need not look
/// at all other tensors.
pub(super) fn expect(made: &[u64], freed: &[u64]) {
    if let Some(pieces) = lock(&PIECES).as_mut() {
        // Burn numbers memories as it makes them, so the number of this one shows where the block begins.
        let memory = ManagedMemoryHandle::new();
        let next = pieces.next;
        pieces.blocks.push((memory.descriptor().id.value as u64, next));
    }
    if let Some(last) = lock(&LAST).as_mut() {
        last.made.extend(made);
        last.freed.extend(freed);
    }
}

/// A look in the queue.
#[derive(Debug)]
struct Look {
    /// The number of operations that were asked for before.
    after: u64,
    /// The number of completed steps.
    steps: u32,
    /// Whether every tensor is looked at. Tensors of other threads come and go without a reported operation.
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
    /// Writes to the trace what changed.
    fn look<H: Clone + 'static>(&self, last: &mut LastLook, handles: &HandleContainer<H>) {
        let launches = trace::launches();
        let is_there = |id: &u64| handles.has_handle(&TensorId::new(*id));
        // Most looks end here. A look comes after each operation, and fusion postpones most of them.
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
        // Reported when a block begins, so the tensor may still be there.
        gone.retain(|id| !is_there(id) && last.held.remove(id).is_some());
        let mut came: Vec<(u64, MemoryPiece)> = Vec::new();
        let mut come = |last: &mut LastLook, id: TensorId| {
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
            // Something else made or freed tensors: a copy from the host, or a read.
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
        // Also if nothing came, because this empties the list of blocks for the next look.
        let came = pieces(&mut last.pieces, came);
        gone.sort_unstable();
        trace::look(self.after, self.steps, came, gone);
    }
}

/// One of Burn's memories: its number, which is higher the later it was made, and its bytes.
#[derive(Clone, Copy)]
struct MemoryPiece {
    number: u64,
    bytes: u64,
}

fn memory<H: Clone + 'static>(handles: &HandleContainer<H>, id: TensorId) -> Option<MemoryPiece> {
    let handle = handles.get_handle_ref(&id)? as &dyn Any;
    let handle = &handle.downcast_ref::<CubeFusionHandle>()?.handle;
    Some(MemoryPiece {
        number: handle.memory.descriptor().id.value as u64,
        bytes: handle.size(),
    })
}

/// Returns the piece of memory of each tensor that came.
fn pieces(known: &mut HashMap<u64, u64, Numbers>, mut came: Vec<(u64, MemoryPiece)>) -> Vec<HeldTensor> {
    if came.iter().any(|(_, memory)| !known.contains_key(&memory.number)) {
        // Nothing has waited for the memory of a copy from the host yet, so wait for it here.
        launches::wait_for_servers();
    }
    let mut all = lock(&PIECES);
    let Some(all) = all.as_mut() else { return Vec::new() };
    came.sort_by_key(|(tensor, memory)| (memory.number, *tensor));
    let mut held: Vec<HeldTensor> = came
        .into_iter()
        .map(|(tensor, memory)| {
            let piece = *known.entry(memory.number).or_insert_with(|| {
                // The persistent pool does not report what it hands out.
                all.find(memory).unwrap_or_else(|| all.allocated(memory.bytes))
            });
            HeldTensor { tensor, memory: piece }
        })
        .collect();
    all.new.clear();
    all.blocks.clear();
    held.sort_by_key(|held| held.tensor);
    held
}
