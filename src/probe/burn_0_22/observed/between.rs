//! Finds a moment between two operations, in which fusion's server is free.
//!
//! Fusion reports an operation while its server works on it; during that time the server takes no requests. Between
//! operations, only the model's own code runs. But Burn postpones what a thread drops while it unwinds. It registers
//! such a drop when the thread next calls any fusion server, before that server gets the call (burn-fusion 0.22,
//! `tensor/deferred.rs`). So after each reported operation, we drop a tensor of our own runtime while unwinding. At the
//! next call of the model, Burn registers that drop and reports it to us.
//!
//! Our runtime computes nothing and has no memory. All of this uses Burn's public interface. If a later Burn stopped
//! doing this, no tensor would ever be seen to have memory, and explanations would show that.

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
/// The number of our tensor. Burn's own numbers begin at 0.
const TENSOR: u64 = u64::MAX - 1;

static CLIENT: OnceLock<Client<Nothing>> = OnceLock::new();

thread_local! {
    /// The stream on which this thread has already asked for the next moment. Burn reports a drop on a stream only if
    /// that stream makes the next call.
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
    // `resume_unwind` calls no panic hook, so nobody sees this.
    // The driver does not count this unwind either: it knows `resume_unwind` (`panics.rs`).
    // See docs/design/burn-0_22-explanations.md.
    let _ = catch_unwind(AssertUnwindSafe(move || {
        let _dropped_while_unwinding = tensors;
        resume_unwind(Box::new(()));
    }));
}

/// The kind of a reported operation.
pub(super) enum Reported {
    /// An operation of the model.
    Model,
    /// Our own operation which shows that this is a moment between two operations.
    Between,
    /// Another operation of our own, to be ignored.
    Own,
}

/// Distinguishes our own operations from the model's.
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

/// Whether an operation in a block is our own.
pub(super) fn is_own(operation: &OperationIr) -> bool {
    match operation {
        OperationIr::Drop(tensor) => tensor.id.value() == TENSOR,
        OperationIr::Custom(custom) => custom.id == NAME,
        _ => false,
    }
}

/// A runtime that computes nothing, and also an operation that does nothing.
#[derive(Debug)]
struct Nothing;

impl Operation<Self> for Nothing {
    fn execute(&self, _: &mut HandleContainer<()>) -> Result<(), ExecutionError> {
        Ok(())
    }
}

/// The type of our runtime's fused operations. It has no values, because our runtime never fuses.
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
