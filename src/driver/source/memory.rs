//! Device memory: counted, refused past what the card has left, and backed by nothing.

use std::collections::BTreeMap;
use std::sync::Mutex;

use crate::abi::{
    Answer, CUresult, Fault, INVALID_VALUE, In, OUT_OF_MEMORY, Out, ensure, fault, recorded,
};
use crate::config::{Config, MAX_DEVICES};
use crate::forward_memory::{self, Ask};
use crate::handles::lock;
use crate::record::Line;
use crate::{call, context, launch, pool, record, stream};

/// Where device addresses are handed out: far from anything that a Linux process maps by itself.
const FIRST_ADDRESS: u64 = 0x2000_0000_0000;
const LAST_ADDRESS: u64 = 0x5000_0000_0000;
const SMALL_ALIGNMENT: u64 = 512;
const LARGE_ALIGNMENT: u64 = 2 << 20;

#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Kind {
    /// From `cuMemAlloc`.
    Sync,
    /// From `cuMemAllocAsync`.
    Async,
}

impl Kind {
    fn name(self) -> &'static str {
        match self {
            Self::Sync => "sync",
            Self::Async => "async",
        }
    }
}

#[derive(Clone, Copy)]
pub(crate) struct Allocation {
    pub(crate) address: u64,
    pub(crate) bytes: u64,
    pub(crate) device: usize,
    kind: Kind,
}

pub(crate) struct Memory {
    live: BTreeMap<u64, Allocation>,
    next: u64,
    /// Bytes asked for and not yet freed, by device.
    reserved: [u64; MAX_DEVICES],
    /// Of all devices together.
    peak: u64,
}

pub(crate) static MEMORY: Mutex<Memory> = Mutex::new(Memory {
    live: BTreeMap::new(),
    next: FIRST_ADDRESS,
    reserved: [0; MAX_DEVICES],
    peak: 0,
});

impl Memory {
    /// The next free range, after the last one handed out, so that a stale address stays stale.
    fn place(&mut self, bytes: u64) -> Option<u64> {
        let alignment = if bytes < LARGE_ALIGNMENT {
            SMALL_ALIGNMENT
        } else {
            LARGE_ALIGNMENT
        };
        for start in [self.next, FIRST_ADDRESS] {
            let mut candidate = start.next_multiple_of(alignment);
            for allocation in self.live.range(start..).map(|(_, allocation)| allocation) {
                if candidate + bytes <= allocation.address {
                    break;
                }
                let end = allocation.address + allocation.bytes;
                candidate = candidate.max(end.next_multiple_of(alignment));
            }
            if candidate + bytes <= LAST_ADDRESS {
                self.next = candidate + bytes;
                return Some(candidate);
            }
        }
        None
    }

    pub(crate) fn reserved(&self, device: usize) -> u64 {
        self.reserved[device]
    }

    /// The allocation that begins at an address.
    pub(crate) fn at(&self, address: u64) -> Option<Allocation> {
        self.live.get(&address).copied()
    }

    fn holding(&self, address: u64) -> Option<Allocation> {
        let (_, allocation) = self.live.range(..=address).next_back()?;
        (address < allocation.address + allocation.bytes).then_some(*allocation)
    }

    /// Counts what was just handed out.
    pub(crate) fn add(&mut self, address: u64, bytes: u64, device: usize, kind: Kind) {
        // A real driver hands an address out again once it is free: freed in a way that is not
        // counted, but freed.
        if let Some(stale) = self.at(address) {
            self.release(stale);
        }
        self.live.insert(
            address,
            Allocation {
                address,
                bytes,
                device,
                kind,
            },
        );
        self.reserved[device] += bytes;
        self.peak = self.peak.max(self.reserved.iter().sum());
        Line::new("alloc")
            .with("kind", kind.name())
            .with("bytes", bytes)
            .address("ptr", address)
            .with("reserved", self.reserved[device])
            .with("device", device)
            .write();
    }

    pub(crate) fn release(&mut self, allocation: Allocation) {
        self.live.remove(&allocation.address);
        self.reserved[allocation.device] -= allocation.bytes;
        Line::new("free")
            .with("kind", allocation.kind.name())
            .with("bytes", allocation.bytes)
            .address("ptr", allocation.address)
            .with("reserved", self.reserved[allocation.device])
            .with("device", allocation.device)
            .write();
    }
}

pub(crate) fn reserve(card: &Config, device: usize, bytes: usize, kind: Kind) -> Answer<u64> {
    ensure(bytes > 0, INVALID_VALUE, "zero_bytes")?;
    let bytes = bytes as u64;
    let mut memory = lock(&MEMORY);
    let held = memory.reserved[device];
    let available = card.available.saturating_sub(held);
    let place = if bytes <= available {
        memory.place(bytes)
    } else {
        None
    };
    let Some(address) = place else {
        return Err(refuse(&memory, device, kind, bytes, Some(available)));
    };
    memory.add(address, bytes, device, kind);
    Ok(address)
}

/// Records a refusal; `available` is what was left, where that is known.
#[cold]
pub(crate) fn refuse(
    memory: &Memory,
    device: usize,
    kind: Kind,
    bytes: u64,
    available: Option<u64>,
) -> Fault {
    launch::with_last_kernel(|kernel| {
        let mut line = Line::new("refuse")
            .with("kind", kind.name())
            .with("bytes", bytes)
            .with("reserved", memory.reserved[device]);
        if let Some(available) = available {
            line = line.with("available", available);
        }
        line.text("kernel", kernel).with("device", device).write();
    });
    recorded(OUT_OF_MEMORY)
}

/// Refuses an allocation on purpose: recorded as if the card had been full.
#[cold]
pub(crate) fn refuse_injected(kind: Kind, bytes: u64, on: u64) -> CUresult {
    record::start();
    if call::forwards() {
        return forward_memory::refuse_injected(kind, bytes, on).code;
    }
    let device = stream::device(on).unwrap_or(0);
    let memory = lock(&MEMORY);
    let available = context::configured().map(|card| card.available);
    let left = available.map(|available| available.saturating_sub(memory.reserved[device]));
    refuse(&memory, device, kind, bytes, left).code
}

fn release(address: u64) -> Answer {
    let mut memory = lock(&MEMORY);
    let allocation = memory.at(address);
    memory.release(allocation.ok_or(fault(INVALID_VALUE, "not_an_allocation"))?);
    Ok(())
}

/// Frees what a destroyed context still held.
pub(crate) fn free_all(device: usize) {
    let mut memory = lock(&MEMORY);
    let left: Vec<_> = memory
        .live
        .values()
        .filter(|allocation| allocation.device == device)
        .copied()
        .collect();
    for allocation in left {
        memory.release(allocation);
    }
}

/// Of all devices together.
pub(crate) fn reserved_and_peak() -> (u64, u64) {
    let memory = lock(&MEMORY);
    (memory.reserved.iter().sum(), memory.peak)
}

pub(crate) fn reserved(device: usize) -> u64 {
    lock(&MEMORY).reserved[device]
}

/// The allocation that an address lies in.
pub(crate) fn holding(address: u64) -> Option<Allocation> {
    lock(&MEMORY).holding(address)
}

/// Whether `bytes` from `address` on lie in one allocation. Stricter than a card, which notices
/// an overrun at the end of a page at the earliest.
pub(crate) fn check(address: u64, bytes: u64) -> Answer {
    if bytes == 0 {
        return Ok(());
    }
    let allocation = holding(address).ok_or(fault(INVALID_VALUE, "not_device_memory"))?;
    let room = allocation.address + allocation.bytes - address;
    ensure(bytes <= room, INVALID_VALUE, "past_the_allocation")
}

driver_functions! {
    fn cuMemAlloc_v2(address: Out<u64>, bytes: usize) asks(Kind::Sync, bytes, 0) {
        let device = context::current()?;
        address.set(reserve(context::card()?, device, bytes, Kind::Sync)?)
    } forward(real) {
        let ask = Ask { kind: Kind::Sync, bytes: bytes as u64, on: 0 };
        forward_memory::allocate(ask, real, || Some((address.written()?, bytes as u64)))
    }

    fn cuMemAllocPitch_v2(
        address: Out<u64>,
        pitch: Out<usize>,
        width: usize,
        height: usize,
        element: u32,
    ) asks(Kind::Sync, pitched(width, height), 0) {
        let device = context::current()?;
        ensure(matches!(element, 4 | 8 | 16), INVALID_VALUE, "element_size")?;
        let row = width.next_multiple_of(SMALL_ALIGNMENT as usize);
        let bytes = row.checked_mul(height).ok_or(fault(INVALID_VALUE, "size"))?;
        address.set(reserve(context::card()?, device, bytes, Kind::Sync)?)?;
        pitch.set(row)
    } forward(real) {
        let ask = Ask { kind: Kind::Sync, bytes: pitched(width, height) as u64, on: 0 };
        let given = || Some((address.written()?, pitch.written()? as u64 * height as u64));
        forward_memory::allocate(ask, real, given)
    }

    fn cuMemAllocAsync(address: Out<u64>, bytes: usize, on: u64) asks(Kind::Async, bytes, on) {
        let device = stream::device(on)?;
        address.set(reserve(context::card()?, device, bytes, Kind::Async)?)
    } forward(real) {
        let ask = Ask { kind: Kind::Async, bytes: bytes as u64, on };
        forward_memory::allocate(ask, real, || Some((address.written()?, bytes as u64)))
    }

    fn cuMemAllocFromPoolAsync(address: Out<u64>, bytes: usize, from: u64, on: u64)
    asks(Kind::Async, bytes, on) {
        stream::device(on)?;
        let device = pool::device(from)?;
        address.set(reserve(context::card()?, device, bytes, Kind::Async)?)
    } forward(real) {
        let ask = Ask { kind: Kind::Async, bytes: bytes as u64, on: from };
        forward_memory::allocate(ask, real, || Some((address.written()?, bytes as u64)))
    }

    fn cuMemFree_v2(address: u64) {
        context::current()?;
        // Freeing null does nothing, as on a card.
        if address == 0 { Ok(()) } else { release(address) }
    } forward(real) {
        forward_memory::free(address, real)
    }

    fn cuMemFreeAsync(address: u64, on: u64) {
        stream::device(on)?;
        release(address)
    } forward(real) {
        forward_memory::free(address, real)
    }

    fn cuMemGetInfo_v2(free: Out<usize>, total: Out<usize>) {
        let device = context::current()?;
        let card = context::card()?;
        free.set_if_wanted(card.available.saturating_sub(reserved(device)) as usize);
        total.set_if_wanted(card.total as usize);
        Ok(())
    } forward(real) {
        forward_memory::info(free, total, real)
    }

    fn cuMemGetAddressRange_v2(base: Out<u64>, bytes: Out<usize>, address: u64) {
        context::current()?;
        let allocation = holding(address).ok_or(fault(INVALID_VALUE, "not_device_memory"))?;
        base.set_if_wanted(allocation.address);
        bytes.set_if_wanted(allocation.bytes as usize);
        Ok(())
    }

    fn cuPointerGetAttribute(data: Out<u64>, attribute: u32, address: u64) {
        let device = context::current()?;
        pointer_attribute(data, attribute, address, device)
    }

    fn cuPointerGetAttributes(count: u32, attributes: In<u32>, data: In<Out<u64>>, address: u64) {
        let device = context::current()?;
        for index in 0..count as usize {
            pointer_attribute(data.at(index)?, attributes.at(index)?, address, device)?;
        }
        Ok(())
    }
}

/// What a pitched allocation takes at least, before anybody knows its pitch.
fn pitched(width: usize, height: usize) -> usize {
    let row = width.next_multiple_of(SMALL_ALIGNMENT as usize);
    row.saturating_mul(height)
}

/// What is known of a device address. Each attribute has its own size, so the answer is written
/// at that size and no wider.
fn pointer_attribute(data: Out<u64>, attribute: u32, address: u64, _device: usize) -> Answer {
    const MEMORY_TYPE_DEVICE: u32 = 2;
    let allocation = holding(address).ok_or(fault(INVALID_VALUE, "not_device_memory"))?;
    match attribute {
        1 => data.set(context::handle_of(allocation.device)),
        2 => data.fill(&MEMORY_TYPE_DEVICE.to_ne_bytes()),
        3 => data.set(address),
        8 => data.fill(&[0]),
        9 => data.fill(&(allocation.device as u32).to_ne_bytes()),
        11 => data.set(allocation.address),
        12 => data.set(allocation.bytes),
        13 => data.fill(&[1]),
        _ => Err(fault(INVALID_VALUE, "pointer_attribute")),
    }
}
