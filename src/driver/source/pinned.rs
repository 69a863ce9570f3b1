//! Pinned host memory: mapped lazily, so that more of it fits than the host has, and never
//! charged to the card.

use std::collections::BTreeMap;
use std::ffi::c_uint;
use std::sync::Mutex;

use crate::abi::{
    Answer, HOST_MEMORY_NOT_REGISTERED, INVALID_VALUE, OUT_OF_MEMORY, Out, ensure, fault,
};
use crate::handles::lock;
use crate::record::Line;
use crate::{context, forward_memory, libc};

pub(crate) struct Pinned {
    /// Address and bytes of each mapping.
    live: BTreeMap<u64, usize>,
    registered: BTreeMap<u64, usize>,
    total: u64,
    peak: u64,
}

pub(crate) static PINNED: Mutex<Pinned> = Mutex::new(Pinned {
    live: BTreeMap::new(),
    registered: BTreeMap::new(),
    total: 0,
    peak: 0,
});

impl Pinned {
    /// Counts what was just handed out.
    pub(crate) fn add(&mut self, address: u64, bytes: usize) {
        self.live.insert(address, bytes);
        self.total += bytes as u64;
        self.peak = self.peak.max(self.total);
        Line::new("pinned")
            .with("bytes", bytes)
            .with("total", self.total)
            .write();
    }

    /// The bytes of what is no longer held; `None` where it never was.
    pub(crate) fn remove(&mut self, address: u64) -> Option<usize> {
        let bytes = self.live.remove(&address)?;
        self.total -= bytes as u64;
        Line::new("unpinned")
            .with("bytes", bytes)
            .with("total", self.total)
            .write();
        Some(bytes)
    }
}

pub(crate) fn peak() -> u64 {
    lock(&PINNED).peak
}

fn allocate(bytes: usize) -> Answer<u64> {
    ensure(bytes > 0, INVALID_VALUE, "zero_bytes")?;
    // SAFETY: a new anonymous mapping touches no memory that is in use.
    let address = unsafe {
        libc::mmap(
            std::ptr::null_mut(),
            bytes,
            libc::PROT_READ | libc::PROT_WRITE,
            libc::MAP_PRIVATE | libc::MAP_ANONYMOUS | libc::MAP_NORESERVE,
            -1,
            0,
        )
    };
    ensure(address != libc::MAP_FAILED, OUT_OF_MEMORY, "host_memory")?;
    lock(&PINNED).add(address.addr() as u64, bytes);
    Ok(address.expose_provenance() as u64)
}

fn free(address: u64) -> Answer {
    let bytes = lock(&PINNED).remove(address);
    let bytes = bytes.ok_or(fault(INVALID_VALUE, "not_pinned_memory"))?;
    // SAFETY: the mapping is ours, was live until now, and its owner gave it back.
    unsafe {
        libc::munmap(
            std::ptr::with_exposed_provenance_mut(address as usize),
            bytes,
        )
    };
    Ok(())
}

fn holds(address: u64) -> bool {
    let pinned = lock(&PINNED);
    [&pinned.live, &pinned.registered]
        .into_iter()
        .any(|ranges| {
            let last = ranges.range(..=address).next_back();
            last.is_some_and(|(start, bytes)| address < start + *bytes as u64)
        })
}

driver_functions! {
    fn cuMemAllocHost_v2(address: Out<u64>, bytes: usize) {
        context::current()?;
        address.set(allocate(bytes)?)
    } forward(real) {
        forward_memory::pin(address, bytes, real)
    }

    fn cuMemHostAlloc(address: Out<u64>, bytes: usize, flags: c_uint) {
        context::current()?;
        ensure(flags < 8, INVALID_VALUE, "flags")?;
        address.set(allocate(bytes)?)
    } forward(real) {
        forward_memory::pin(address, bytes, real)
    }

    fn cuMemFreeHost(address: u64) {
        context::current()?;
        free(address)
    } forward(real) {
        forward_memory::unpin(address, real)
    }

    fn cuMemHostRegister_v2(address: u64, bytes: usize, _flags: c_uint) {
        context::current()?;
        ensure(address != 0 && bytes > 0, INVALID_VALUE, "empty_range")?;
        lock(&PINNED).registered.insert(address, bytes);
        Ok(())
    }

    fn cuMemHostUnregister(address: u64) {
        context::current()?;
        let removed = lock(&PINNED).registered.remove(&address);
        ensure(removed.is_some(), HOST_MEMORY_NOT_REGISTERED, "not_registered")
    }

    fn cuMemHostGetDevicePointer_v2(device: Out<u64>, host: u64, flags: c_uint) {
        context::current()?;
        ensure(flags == 0 && holds(host), INVALID_VALUE, "not_pinned_memory")?;
        // With unified addressing both sides see one address.
        device.set(host)
    }

    fn cuMemHostGetFlags(flags: Out<c_uint>, host: u64) {
        context::current()?;
        ensure(holds(host), INVALID_VALUE, "not_pinned_memory")?;
        flags.set(0)
    }
}
