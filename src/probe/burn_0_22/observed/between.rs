//! A moment between two operations, in which fusion's server is free.
//!
//! Fusion reports an operation while its server works on it, when nothing can be asked of that server. In between only the model
//! runs. But Burn puts off what a thread drops while it unwinds, and makes up for it when the thread next calls any fusion server,
//! before that server is asked (burn-fusion 0.22, `tensor/deferred.rs`). So whenever an operation was reported, a tensor of a
//! runtime of our own is dropped so: with the next call of the model, Burn registers that drop, and reports it to us.
//!
//! Our runtime computes nothing and has no memory. All of this is Burn's public interface; where Burn stopped doing so, no tensor
//! would ever be seen to have memory, and explanations would say so.

use std::cell::Cell;
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::sync::OnceLock;

use burn_fusion22::stream::{Context, Operation, OrderedExecution};
use burn_fusion22::{Client, ExecutionError, FusionRuntime, NumOperations, OperationFuser, Optimization};
use burn_ir22::{CustomOpIr, HandleContainer, OperationIr, TensorId, TensorIr, TensorStatus};
use burn22::tensor::{DType, Shape};
use cubecl_environment22::stream::StreamId;
use cubecl22::cuda::CudaDevice;

/// The name of the operation that makes our tensor.
const NAME: &str = "cargo-vram-between";
/// The number of our tensor: Burn's own begin at 0.
const TENSOR: u64 = u64::MAX - 1;

static CLIENT: OnceLock<Client<Nothing>> = OnceLock::new();

thread_local! {
    /// On whose stream this thread tells of the next moment already. What is dropped there is told of only if that stream is the one
    /// that calls next.
    static ASKED: Cell<Option<StreamId>> = const { Cell::new(None) };
}

/// Starts our runtime on the thread of the first GPU's fusion server. Called before that GPU's first operation.
pub(super) fn start() {
    let _ = CLIENT.set(Client::new(cubecl22::Device::Cuda(CudaDevice::new(0))));
}

/// Asks for the next moment between two operations. Called on the thread of fusion's server.
pub(super) fn ask() {
    let Some(client) = CLIENT.get() else { return };
    let stream = StreamId::current();
    if ASKED.replace(Some(stream)) == Some(stream) {
        return;
    }
    let tensor = TensorIr {
        id: TensorId::new(TENSOR),
        shape: Shape::new([1]),
        status: TensorStatus::NotInit,
        dtype: DType::F32,
    };
    let operation = OperationIr::Custom(CustomOpIr::new(NAME, &[], &[tensor]));
    let tensors = client.register(stream, operation, Nothing);
    // Nobody is told of a panic that is only resumed.
    let _ = catch_unwind(AssertUnwindSafe(move || {
        let _dropped_while_unwinding = tensors;
        resume_unwind(Box::new(()));
    }));
}

/// What a reported operation is to us.
pub(super) enum Reported {
    /// The model's.
    Model,
    /// It says that this is such a moment.
    Between,
    /// Of our own, and of no interest.
    Own,
}

/// Tells our own operations from the model's.
pub(super) fn reported(operation: &OperationIr) -> Reported {
    match operation {
        OperationIr::Drop(tensor) if tensor.id.value() == TENSOR => {
            ASKED.set(None);
            Reported::Between
        }
        OperationIr::Custom(custom) if custom.id == NAME => Reported::Own,
        _ => Reported::Model,
    }
}

/// Whether a block that runs is our own.
pub(super) fn is_own(operation: &OperationIr) -> bool {
    match operation {
        OperationIr::Drop(tensor) => tensor.id.value() == TENSOR,
        OperationIr::Custom(custom) => custom.id == NAME,
        _ => false,
    }
}

/// A runtime that computes nothing, and an operation that does nothing.
#[derive(Debug)]
struct Nothing;

impl Operation<Self> for Nothing {
    fn execute(&self, _: &mut HandleContainer<()>) -> Result<(), ExecutionError> {
        Ok(())
    }
}

/// What our runtime makes of several operations: it never does.
#[derive(Debug)]
enum Never {}

impl NumOperations for Never {
    fn len(&self) -> usize {
        match *self {}
    }

    fn name(&self) -> &'static str {
        match *self {}
    }
}

impl Optimization<Nothing> for Never {
    fn execute(&mut self, _: &mut Context<()>, _: &OrderedExecution<Nothing>) {
        match *self {}
    }

    fn to_state(&self) {
        match *self {}
    }

    fn from_state(_: &cubecl22::Device, (): ()) -> Self {
        unreachable!("our runtime stores no state that could be read")
    }
}

impl FusionRuntime for Nothing {
    type OptimizationState = ();
    type Optimization = Never;
    type FusionHandle = ();
    type FusionDevice = cubecl22::Device;

    fn fusers(_: cubecl22::Device) -> Vec<Box<dyn OperationFuser<Never>>> {
        Vec::new()
    }
}
