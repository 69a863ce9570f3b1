//! Memory that a real driver hands out: counted here, and never its own.
//!
//! The table stays locked while the real driver allocates or frees, so that the record has the
//! order in which memory really came and went: an address that one thread frees may be another's
//! at once, and a limit must not be passed by two threads together.

use crate::abi::{Answer, Fault, OUT_OF_MEMORY, Out, SUCCESS, fault};
use crate::forward::{current_device, device_of, limits};
use crate::handles::lock;
use crate::memory::{Kind, MEMORY, Memory, refuse};
use crate::pinned;

/// An allocation about to be asked for.
pub(crate) struct Ask {
    pub(crate) kind: Kind,
    pub(crate) bytes: u64,
    /// The stream or pool that says which device; 0 for the current context's.
    pub(crate) on: u64,
}

/// Allocates by `real`; `given` says the address and the bytes that came of it.
pub(crate) fn allocate(
    ask: Ask,
    real: impl FnOnce() -> Answer,
    given: impl FnOnce() -> Option<(u64, u64)>,
) -> Answer {
    let Some(device) = device_of(ask.on) else {
        // No context: the real driver says so, and gives nothing.
        return real();
    };
    let mut memory = lock(&MEMORY);
    let limit = limits().and_then(|limits| limits.available);
    if let Some(left) = limit.map(|limit| limit.saturating_sub(memory.reserved(device)))
        && ask.bytes > left
    {
        return Err(refuse(&memory, device, ask.kind, ask.bytes, Some(left)));
    }
    match real() {
        Ok(()) => {
            if let Some((address, bytes)) = given() {
                memory.add(address, bytes, device, ask.kind);
            }
            Ok(())
        }
        Err(Fault {
            code: OUT_OF_MEMORY,
            ..
        }) => Err(refused(&memory, device, &ask)),
        Err(fault) => Err(fault),
    }
}

fn refused(memory: &Memory, device: usize, ask: &Ask) -> Fault {
    let (mut free, mut total) = (0, 0);
    let code = ask!(cuMemGetInfo_v2(
        Out::to(&mut free) => Out<usize>,
        Out::to(&mut total) => Out<usize>,
    ));
    let free = (code == Some(SUCCESS)).then_some(free as u64);
    refuse(memory, device, ask.kind, ask.bytes, free)
}

/// A refusal that was put in on purpose, recorded as a real one.
pub(crate) fn refuse_injected(kind: Kind, bytes: u64, on: u64) -> Fault {
    let device = device_of(on).unwrap_or(0);
    refused(&lock(&MEMORY), device, &Ask { kind, bytes, on })
}

/// Frees by `real` what was allocated above.
pub(crate) fn free(address: u64, real: impl FnOnce() -> Answer) -> Answer {
    let mut memory = lock(&MEMORY);
    real()?;
    match memory.at(address) {
        Some(allocation) => memory.release(allocation),
        None if address == 0 => {}
        // It worked, and a figure is wrong: some other way of allocating is not counted.
        None => return Err(fault(SUCCESS, "unknown_address")),
    }
    Ok(())
}

/// `cuMemGetInfo`, of the card as it is configured to seem.
pub(crate) fn info(free: Out<usize>, total: Out<usize>, real: impl FnOnce() -> Answer) -> Answer {
    real()?;
    let Some(limits) = limits() else {
        return Ok(());
    };
    if let Some(seeming) = limits.total {
        total.set_if_wanted(seeming as usize);
    }
    if let (Some(available), Some(device)) = (limits.available, current_device()) {
        let left = available.saturating_sub(lock(&MEMORY).reserved(device));
        // Less, where others use the card as well.
        let left = free.written().map(|really| left.min(really as u64));
        free.set_if_wanted(left.unwrap_or(0) as usize);
    }
    Ok(())
}

/// Pinned memory, allocated by `real`.
pub(crate) fn pin(address: Out<u64>, bytes: usize, real: impl FnOnce() -> Answer) -> Answer {
    let mut pinned = lock(&pinned::PINNED);
    real()?;
    if let Some(address) = address.written() {
        pinned.add(address, bytes);
    }
    Ok(())
}

pub(crate) fn unpin(address: u64, real: impl FnOnce() -> Answer) -> Answer {
    let mut pinned = lock(&pinned::PINNED);
    real()?;
    match pinned.remove(address) {
        None if address != 0 => Err(fault(SUCCESS, "unknown_address")),
        _ => Ok(()),
    }
}
