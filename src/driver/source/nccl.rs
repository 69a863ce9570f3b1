//! NCCL between virtual cards: communicators are known, their calls are checked and counted, and nothing is moved.
//!
//! A call never waits for another rank, since none has anything to give. What the real library holds of each card for
//! itself, the buffers of its channels, is not known here and counted nowhere.

use std::ffi::{c_char, c_int, c_void};
use std::sync::Mutex;

use crate::abi::{Answer, CUresult, Fault, In, Out, ensure, fault};
use crate::call::Call;
use crate::context;
use crate::handles::{Handles, lock};
use crate::{memory, stream};

const INVALID_ARGUMENT: CUresult = 4;
const INVALID_USAGE: CUresult = 5;

/// 2.27.3, as NCCL writes it.
const VERSION: c_int = 22_703;
/// The size of what tells communicators apart.
const ID_BYTES: usize = 128;
/// Bytes of an element, by NCCL's number of its type: i8, u8, i32, u32, i64, u64, f16, f32, f64, bf16, f8e4m3, f8e5m2.
const ELEMENT: [u64; 12] = [1, 1, 4, 4, 8, 8, 2, 4, 8, 2, 1, 1];
/// Sum, product, maximum, minimum, average.
const OPERATIONS: u32 = 5;

/// `ncclUniqueId`, which is passed by value.
#[repr(C)]
#[derive(Clone, Copy)]
pub(crate) struct UniqueId([u8; ID_BYTES]);

struct Communicator {
    id: [u8; ID_BYTES],
    device: usize,
    rank: c_int,
    ranks: c_int,
}

static COMMUNICATORS: Handles<Communicator> = Handles::new(0x4b);
/// How many ids were handed out.
static IDS: Mutex<u64> = Mutex::new(0);

fn invalid(detail: &'static str) -> Fault {
    fault(INVALID_ARGUMENT, detail)
}

/// A bad pointer, in NCCL's words.
fn as_argument(error: Fault) -> Fault {
    invalid(error.detail)
}

fn with<R>(communicator: u64, look: impl FnOnce(&mut Communicator) -> R) -> Answer<R> {
    COMMUNICATORS
        .with(communicator, look)
        .ok_or(invalid("no_such_communicator"))
}

fn join(out: Out<u64>, ranks: c_int, id: UniqueId, rank: c_int) -> Answer {
    let device = context::current().map_err(as_argument)?;
    ensure((0..ranks).contains(&rank), INVALID_ARGUMENT, "rank")?;
    ensure(out.address() != 0, INVALID_ARGUMENT, "null_result")?;
    out.set_if_wanted(COMMUNICATORS.insert(Communicator {
        id: id.0,
        device,
        rank,
        ranks,
    }));
    Ok(())
}

/// What a call hands over: memory of the communicator's own card, of so many elements.
fn handed(communicator: u64, address: u64, count: usize, element: u32) -> Answer {
    let device = with(communicator, |communicator| communicator.device)?;
    let element = ELEMENT.get(element as usize);
    let element = element.ok_or(invalid("element_type"))?;
    let bytes = (count as u64)
        .checked_mul(*element)
        .ok_or(invalid("size"))?;
    if bytes == 0 {
        return Ok(());
    }
    memory::check(address, bytes).map_err(as_argument)?;
    let of = memory::holding(address).map(|allocation| allocation.device);
    ensure(
        of == Some(device),
        INVALID_ARGUMENT,
        "memory_of_another_card",
    )
}

fn on(communicator: u64, stream: u64) -> Answer {
    let device = with(communicator, |communicator| communicator.device)?;
    let of = stream::device(stream).map_err(as_argument)?;
    ensure(of == device, INVALID_USAGE, "stream_of_another_card")
}

fn reduces(operation: u32) -> Answer {
    ensure(operation < OPERATIONS, INVALID_ARGUMENT, "operation")
}

fn peer(communicator: u64, peer: c_int) -> Answer {
    let ranks = with(communicator, |communicator| communicator.ranks)?;
    ensure((0..ranks).contains(&peer), INVALID_ARGUMENT, "no_such_rank")
}

fn ranks(communicator: u64) -> Answer<usize> {
    with(communicator, |communicator| {
        communicator.ranks.max(1) as usize
    })
}

driver_functions! {
    fn ncclGetVersion(version: Out<c_int>) {
        version.set(VERSION).map_err(as_argument)
    }

    fn ncclGetUniqueId(id: Out<UniqueId>) {
        let mut ids = lock(&IDS);
        *ids += 1;
        let mut bytes = [0; ID_BYTES];
        bytes[..8].copy_from_slice(&ids.to_ne_bytes());
        id.set(UniqueId(bytes)).map_err(as_argument)
    }

    fn ncclCommInitRank(communicator: Out<u64>, ranks: c_int, id: UniqueId, rank: c_int) {
        join(communicator, ranks, id, rank)
    }

    fn ncclCommInitRankConfig(
        communicator: Out<u64>,
        ranks: c_int,
        id: UniqueId,
        rank: c_int,
        _config: *mut c_void,
    ) {
        join(communicator, ranks, id, rank)
    }

    fn ncclCommInitAll(communicators: Out<u64>, count: c_int, devices: In<c_int>) {
        let mut made = Vec::new();
        for rank in 0..count.max(0) {
            let ordinal = devices.at(rank as usize).unwrap_or(rank);
            let device = context::device(ordinal).map_err(as_argument)?;
            let id = [0; ID_BYTES];
            made.push(COMMUNICATORS.insert(Communicator { id, device, rank, ranks: count }));
        }
        let bytes: Vec<u8> = made.iter().flat_map(|made| made.to_ne_bytes()).collect();
        communicators.fill(&bytes).map_err(as_argument)
    }

    fn ncclCommFinalize(communicator: u64) { with(communicator, |_| ()) }

    fn ncclCommDestroy(communicator: u64) {
        COMMUNICATORS.remove(communicator).map(|_| ()).ok_or(invalid("no_such_communicator"))
    }

    fn ncclCommAbort(communicator: u64) {
        COMMUNICATORS.remove(communicator).map(|_| ()).ok_or(invalid("no_such_communicator"))
    }

    fn ncclCommGetUniqueId(communicator: u64, id: Out<UniqueId>) {
        id.set(UniqueId(with(communicator, |communicator| communicator.id)?)).map_err(as_argument)
    }

    fn ncclCommCount(communicator: u64, count: Out<c_int>) {
        count.set(with(communicator, |communicator| communicator.ranks)?).map_err(as_argument)
    }

    fn ncclCommCuDevice(communicator: u64, device: Out<c_int>) {
        device.set(with(communicator, |communicator| communicator.device as c_int)?).map_err(as_argument)
    }

    fn ncclCommUserRank(communicator: u64, rank: Out<c_int>) {
        rank.set(with(communicator, |communicator| communicator.rank)?).map_err(as_argument)
    }

    fn ncclCommGetAsyncError(communicator: u64, error: Out<c_int>) {
        with(communicator, |_| ())?;
        error.set(0).map_err(as_argument)
    }

    fn ncclGroupStart() { Ok(()) }
    fn ncclGroupEnd() { Ok(()) }

    fn ncclSend(buffer: u64, count: usize, element: u32, to: c_int, communicator: u64, stream: u64) {
        peer(communicator, to)?;
        on(communicator, stream)?;
        handed(communicator, buffer, count, element)
    }

    fn ncclRecv(buffer: u64, count: usize, element: u32, from: c_int, communicator: u64, stream: u64) {
        peer(communicator, from)?;
        on(communicator, stream)?;
        handed(communicator, buffer, count, element)
    }

    fn ncclAllReduce(
        from: u64,
        to: u64,
        count: usize,
        element: u32,
        operation: u32,
        communicator: u64,
        stream: u64,
    ) {
        reduces(operation)?;
        on(communicator, stream)?;
        handed(communicator, from, count, element)?;
        handed(communicator, to, count, element)
    }

    fn ncclReduce(
        from: u64,
        to: u64,
        count: usize,
        element: u32,
        operation: u32,
        root: c_int,
        communicator: u64,
        stream: u64,
    ) {
        reduces(operation)?;
        peer(communicator, root)?;
        on(communicator, stream)?;
        handed(communicator, from, count, element)?;
        let is_root = with(communicator, |communicator| communicator.rank == root)?;
        if is_root { handed(communicator, to, count, element) } else { Ok(()) }
    }

    fn ncclBroadcast(
        from: u64,
        to: u64,
        count: usize,
        element: u32,
        root: c_int,
        communicator: u64,
        stream: u64,
    ) {
        peer(communicator, root)?;
        on(communicator, stream)?;
        let is_root = with(communicator, |communicator| communicator.rank == root)?;
        if is_root {
            handed(communicator, from, count, element)?;
        }
        handed(communicator, to, count, element)
    }

    fn ncclBcast(buffer: u64, count: usize, element: u32, root: c_int, communicator: u64, stream: u64) {
        peer(communicator, root)?;
        on(communicator, stream)?;
        handed(communicator, buffer, count, element)
    }

    fn ncclAllGather(from: u64, to: u64, count: usize, element: u32, communicator: u64, stream: u64) {
        on(communicator, stream)?;
        handed(communicator, from, count, element)?;
        handed(communicator, to, count.saturating_mul(ranks(communicator)?), element)
    }

    fn ncclReduceScatter(
        from: u64,
        to: u64,
        count: usize,
        element: u32,
        operation: u32,
        communicator: u64,
        stream: u64,
    ) {
        reduces(operation)?;
        on(communicator, stream)?;
        handed(communicator, from, count.saturating_mul(ranks(communicator)?), element)?;
        handed(communicator, to, count, element)
    }
}

/// NCCL's sentence for a code.
#[unsafe(no_mangle)]
pub(crate) extern "C" fn ncclGetErrorString(code: CUresult) -> *const c_char {
    static CALL: Call = Call::new("ncclGetErrorString\0");
    let _ = CALL.enter();
    let text = match code {
        0 => c"no error",
        1 => c"unhandled cuda error",
        2 => c"unhandled system error",
        3 => c"internal error",
        INVALID_ARGUMENT => c"invalid argument",
        INVALID_USAGE => c"invalid usage",
        6 => c"remote process exited or there was a network error",
        7 => c"operation in progress",
        _ => c"unknown result code",
    };
    text.as_ptr()
}

/// What went wrong last is in the record.
#[unsafe(no_mangle)]
pub(crate) extern "C" fn ncclGetLastError(_communicator: u64) -> *const c_char {
    static CALL: Call = Call::new("ncclGetLastError\0");
    let _ = CALL.enter();
    c"".as_ptr()
}
