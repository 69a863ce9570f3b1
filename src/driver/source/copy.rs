//! Copies and fills: ranges are checked, device memory reads as zeros or as whatever a second pass is to find, nothing else
//! moves.

use std::ffi::{c_uchar, c_uint, c_ushort};
use std::sync::atomic::{AtomicU64, Ordering};

use crate::abi::{Answer, INVALID_VALUE, In, ensure, fault};
use crate::config::Reads;
use crate::{contents, context, memory, stream};

static READS: AtomicU64 = AtomicU64::new(0);

/// How often device memory was copied to the host.
pub(crate) fn reads() -> u64 {
    READS.load(Ordering::Relaxed)
}

/// Checks that the host's side of a copy is there.
fn check_host(address: u64, bytes: usize) -> Answer {
    ensure(
        address != 0 || bytes == 0,
        INVALID_VALUE,
        "null_host_memory",
    )
}

/// Writes to the host what device memory holds, as far as anyone can know: zeros, unless other values are asked for.
fn fill_host(address: u64, from: u64, bytes: usize) -> Answer {
    check_host(address, bytes)?;
    if bytes == 0 {
        return Ok(());
    }
    let host = std::ptr::with_exposed_provenance_mut::<u8>(address as usize);
    // SAFETY: CUDA's contract: the caller's buffer has room for the bytes that it asked for.
    unsafe { host.write_bytes(0, bytes) };
    if context::card().is_ok_and(|card| card.reads == Reads::Other) {
        // SAFETY: as above; its bytes were just written, so they are initialized.
        contents::answer(from, unsafe { std::slice::from_raw_parts_mut(host, bytes) });
    }
    Ok(())
}

fn upload(to: u64, from: u64, bytes: usize) -> Answer {
    memory::check(to, bytes as u64)?;
    check_host(from, bytes)
}

fn download(to: u64, from: u64, bytes: usize) -> Answer {
    memory::check(from, bytes as u64)?;
    READS.fetch_add(1, Ordering::Relaxed);
    fill_host(to, from, bytes)?;
    #[cfg(posing)]
    crate::posing::copied(to, from, bytes);
    Ok(())
}

fn on_device(to: u64, from: u64, bytes: usize) -> Answer {
    memory::check(from, bytes as u64)?;
    memory::check(to, bytes as u64)
}

/// A copy whose two sides are told by their addresses alone.
fn unified(to: u64, from: u64, bytes: usize) -> Answer {
    match (
        memory::holding(to).is_some(),
        memory::holding(from).is_some(),
    ) {
        (true, true) => on_device(to, from, bytes),
        (true, false) => upload(to, from, bytes),
        (false, true) => download(to, from, bytes),
        (false, false) => {
            check_host(to, bytes)?;
            check_host(from, bytes)?;
            if bytes > 0 {
                let from = std::ptr::with_exposed_provenance::<u8>(from as usize);
                let to = std::ptr::with_exposed_provenance_mut::<u8>(to as usize);
                // SAFETY: CUDA's contract: both host ranges are valid; `copy` lets them overlap.
                unsafe { std::ptr::copy(from, to, bytes) };
            }
            Ok(())
        }
    }
}

/// `CUDA_MEMCPY2D`.
#[repr(C)]
#[derive(Clone, Copy)]
pub(crate) struct Copy2d {
    source: Side,
    destination: Side,
    width: usize,
    height: usize,
}

#[repr(C)]
#[derive(Clone, Copy)]
struct Side {
    x: usize,
    y: usize,
    kind: c_uint,
    host: u64,
    device: u64,
    array: u64,
    pitch: usize,
}

const HOST: c_uint = 1;
const DEVICE: c_uint = 2;
const UNIFIED: c_uint = 4;

/// One side of a plane copy: where its first row begins and how far its rows are apart.
struct Rows {
    start: u64,
    pitch: usize,
    on_host: bool,
}

impl Side {
    fn rows(&self, width: usize) -> Answer<Rows> {
        let base = match self.kind {
            HOST => self.host,
            DEVICE | UNIFIED => self.device,
            _ => return Err(fault(INVALID_VALUE, "memory_type")),
        };
        let pitch = if self.pitch == 0 {
            self.x + width
        } else {
            self.pitch
        };
        ensure(self.x + width <= pitch, INVALID_VALUE, "pitch")?;
        let on_host =
            self.kind == HOST || (self.kind == UNIFIED && memory::holding(base).is_none());
        Ok(Rows {
            start: base + (self.y * pitch + self.x) as u64,
            pitch,
            on_host,
        })
    }
}

impl Rows {
    /// From the first byte of the first row to the last of the last.
    fn span(&self, width: usize, height: usize) -> usize {
        (height - 1) * self.pitch + width
    }

    fn check(&self, width: usize, height: usize) -> Answer {
        let span = self.span(width, height);
        if self.on_host {
            check_host(self.start, span)
        } else {
            memory::check(self.start, span as u64)
        }
    }
}

fn plane(copy: In<Copy2d>) -> Answer {
    let copy = copy.get()?;
    let (width, height) = (copy.width, copy.height);
    let (from, to) = (copy.source.rows(width)?, copy.destination.rows(width)?);
    if width == 0 || height == 0 {
        return Ok(());
    }
    from.check(width, height)?;
    to.check(width, height)?;
    if to.on_host && !from.on_host {
        READS.fetch_add(1, Ordering::Relaxed);
    }
    for row in (0..height).filter(|_| to.on_host) {
        let offset = |rows: &Rows| rows.start + (row * rows.pitch) as u64;
        if from.on_host {
            unified(offset(&to), offset(&from), width)?;
        } else {
            fill_host(offset(&to), offset(&from), width)?;
        }
    }
    Ok(())
}

/// Counts a copy by a real driver, if it is one from device memory to the host.
fn forward_copy(reads: bool, real: impl FnOnce() -> Answer) -> Answer {
    real()?;
    READS.fetch_add(u64::from(reads), Ordering::Relaxed);
    Ok(())
}

/// Whether a copy told by its addresses alone reads device memory.
fn reads_device(to: u64, from: u64) -> bool {
    memory::holding(to).is_none() && memory::holding(from).is_some()
}

fn plane_reads_device(copy: In<Copy2d>) -> bool {
    let Ok(copy) = copy.get() else { return false };
    let (width, height) = (copy.width, copy.height);
    match (copy.source.rows(width), copy.destination.rows(width)) {
        (Ok(from), Ok(to)) => width > 0 && height > 0 && to.on_host && !from.on_host,
        _ => false,
    }
}

fn fill(address: u64, element: usize, count: usize) -> Answer {
    let aligned = address.is_multiple_of(element as u64);
    ensure(aligned, INVALID_VALUE, "alignment")?;
    let bytes = element
        .checked_mul(count)
        .ok_or(fault(INVALID_VALUE, "size"))?;
    memory::check(address, bytes as u64)
}

fn fill_plane(address: u64, pitch: usize, element: usize, width: usize, height: usize) -> Answer {
    if width == 0 || height == 0 {
        return Ok(());
    }
    ensure(
        height == 1 || width * element <= pitch,
        INVALID_VALUE,
        "pitch",
    )?;
    memory::check(address, ((height - 1) * pitch + width * element) as u64)
}

/// Functions that need a current context.
fn now() -> Answer {
    context::current().map(|_| ())
}

/// Functions that need a stream.
fn on(stream: u64) -> Answer {
    stream::device(stream).map(|_| ())
}

driver_functions! {
    fn cuMemcpyHtoD_v2(to: u64, from: u64, bytes: usize) { now()?; upload(to, from, bytes) }

    fn cuMemcpyDtoH_v2(to: u64, from: u64, bytes: usize) {
        now()?;
        download(to, from, bytes)
    } forward(real) {
        forward_copy(true, real)
    }

    fn cuMemcpyDtoD_v2(to: u64, from: u64, bytes: usize) { now()?; on_device(to, from, bytes) }

    fn cuMemcpy(to: u64, from: u64, bytes: usize) {
        now()?;
        unified(to, from, bytes)
    } forward(real) {
        forward_copy(reads_device(to, from), real)
    }

    fn cuMemcpy2D_v2(copy: In<Copy2d>) {
        now()?;
        plane(copy)
    } forward(real) {
        forward_copy(plane_reads_device(copy), real)
    }

    fn cuMemcpy2DUnaligned_v2(copy: In<Copy2d>) {
        now()?;
        plane(copy)
    } forward(real) {
        forward_copy(plane_reads_device(copy), real)
    }

    fn cuMemcpyHtoDAsync_v2(to: u64, from: u64, bytes: usize, stream: u64) {
        on(stream)?;
        upload(to, from, bytes)
    }

    fn cuMemcpyDtoHAsync_v2(to: u64, from: u64, bytes: usize, stream: u64) {
        on(stream)?;
        download(to, from, bytes)
    } forward(real) {
        forward_copy(true, real)
    }

    fn cuMemcpyDtoDAsync_v2(to: u64, from: u64, bytes: usize, stream: u64) {
        on(stream)?;
        on_device(to, from, bytes)
    }

    fn cuMemcpyAsync(to: u64, from: u64, bytes: usize, stream: u64) {
        on(stream)?;
        unified(to, from, bytes)
    } forward(real) {
        forward_copy(reads_device(to, from), real)
    }

    fn cuMemcpy2DAsync_v2(copy: In<Copy2d>, stream: u64) {
        on(stream)?;
        plane(copy)
    } forward(real) {
        forward_copy(plane_reads_device(copy), real)
    }

    fn cuMemcpyPeer(to: u64, to_context: u64, from: u64, from_context: u64, bytes: usize) {
        context::device_of(to_context)?;
        context::device_of(from_context)?;
        on_device(to, from, bytes)
    }

    fn cuMemcpyPeerAsync(
        to: u64,
        to_context: u64,
        from: u64,
        from_context: u64,
        bytes: usize,
        stream: u64,
    ) {
        on(stream)?;
        context::device_of(to_context)?;
        context::device_of(from_context)?;
        on_device(to, from, bytes)
    }

    fn cuMemsetD8_v2(to: u64, _value: c_uchar, count: usize) { now()?; fill(to, 1, count) }
    fn cuMemsetD16_v2(to: u64, _value: c_ushort, count: usize) { now()?; fill(to, 2, count) }
    fn cuMemsetD32_v2(to: u64, _value: c_uint, count: usize) { now()?; fill(to, 4, count) }

    fn cuMemsetD8Async(to: u64, _value: c_uchar, count: usize, stream: u64) {
        on(stream)?;
        fill(to, 1, count)
    }

    fn cuMemsetD16Async(to: u64, _value: c_ushort, count: usize, stream: u64) {
        on(stream)?;
        fill(to, 2, count)
    }

    fn cuMemsetD32Async(to: u64, _value: c_uint, count: usize, stream: u64) {
        on(stream)?;
        fill(to, 4, count)
    }

    fn cuMemsetD2D8_v2(to: u64, pitch: usize, _value: c_uchar, width: usize, height: usize) {
        now()?;
        fill_plane(to, pitch, 1, width, height)
    }

    fn cuMemsetD2D16_v2(to: u64, pitch: usize, _value: c_ushort, width: usize, height: usize) {
        now()?;
        fill_plane(to, pitch, 2, width, height)
    }

    fn cuMemsetD2D32_v2(to: u64, pitch: usize, _value: c_uint, width: usize, height: usize) {
        now()?;
        fill_plane(to, pitch, 4, width, height)
    }

    fn cuMemsetD2D8Async(
        to: u64,
        pitch: usize,
        _value: c_uchar,
        width: usize,
        height: usize,
        stream: u64,
    ) {
        on(stream)?;
        fill_plane(to, pitch, 1, width, height)
    }

    fn cuMemsetD2D16Async(
        to: u64,
        pitch: usize,
        _value: c_ushort,
        width: usize,
        height: usize,
        stream: u64,
    ) {
        on(stream)?;
        fill_plane(to, pitch, 2, width, height)
    }

    fn cuMemsetD2D32Async(
        to: u64,
        pitch: usize,
        _value: c_uint,
        width: usize,
        height: usize,
        stream: u64,
    ) {
        on(stream)?;
        fill_plane(to, pitch, 4, width, height)
    }
}
