//! Streams: nothing runs on them, so all of their work is done when it is asked for.

use std::ffi::{c_int, c_uint, c_void};

use crate::abi::{Answer, INVALID_HANDLE, INVALID_VALUE, Out, ensure, fault};
use crate::handles::Handles;
use crate::record::Line;
use crate::{context, event, forward};

#[derive(Clone, Copy)]
struct Stream {
    device: usize,
    flags: c_uint,
    priority: c_int,
}

static STREAMS: Handles<Stream> = Handles::new(0x44);

/// Null, `CU_STREAM_LEGACY` and `CU_STREAM_PER_THREAD`: streams that every context has.
const LAST_DEFAULT: u64 = 2;
const GREATEST_PRIORITY: c_int = -5;

/// The device of a stream; the default streams are those of the current context.
#[inline]
pub(crate) fn device(stream: u64) -> Answer<usize> {
    Ok(find(stream)?.device)
}

fn find(stream: u64) -> Answer<Stream> {
    let current = context::current()?;
    if stream <= LAST_DEFAULT {
        return Ok(Stream {
            device: current,
            flags: 0,
            priority: 0,
        });
    }
    STREAMS
        .with(stream, |stream| *stream)
        .ok_or(fault(INVALID_HANDLE, "no_such_stream"))
}

pub(crate) fn forget(device: usize) {
    STREAMS.retain(|stream| stream.device != device);
}

fn create(out: Out<u64>, flags: c_uint, priority: c_int) -> Answer {
    let device = context::current()?;
    ensure(flags <= 1, INVALID_VALUE, "flags")?;
    ensure(out.address() != 0, INVALID_VALUE, "null_result")?;
    let priority = priority.clamp(GREATEST_PRIORITY, 0);
    let handle = STREAMS.insert(Stream {
        device,
        flags,
        priority,
    });
    Line::new("stream")
        .address("handle", handle)
        .with("device", device)
        .write();
    out.set(handle)
}

/// Calls back on the caller's thread: all earlier work of the stream is done.
type HostFunction = Option<extern "C" fn(*mut c_void)>;
type StreamCallback = Option<extern "C" fn(u64, u32, *mut c_void)>;

driver_functions! {
    fn cuStreamCreate(stream: Out<u64>, flags: c_uint) {
        create(stream, flags, 0)
    } forward(real) {
        real()?;
        forward::stream_created(stream.written());
        Ok(())
    }

    fn cuStreamCreateWithPriority(stream: Out<u64>, flags: c_uint, priority: c_int) {
        create(stream, flags, priority)
    } forward(real) {
        real()?;
        forward::stream_created(stream.written());
        Ok(())
    }

    fn cuStreamDestroy_v2(stream: u64) {
        context::current()?;
        STREAMS.remove(stream).map(|_| ()).ok_or(fault(INVALID_HANDLE, "no_such_stream"))
    } forward(real) {
        real()?;
        forward::disown(stream);
        Ok(())
    }

    fn cuStreamSynchronize(stream: u64) {
        device(stream).map(|_| ())
    }

    fn cuStreamQuery(stream: u64) {
        device(stream).map(|_| ())
    }

    fn cuStreamWaitEvent(stream: u64, event: u64, flags: c_uint) {
        device(stream)?;
        ensure(flags <= 1, INVALID_VALUE, "flags")?;
        event::check(event)
    }

    fn cuStreamIsCapturing(stream: u64, status: Out<c_uint>) {
        device(stream)?;
        status.set(0)
    }

    fn cuStreamGetFlags(stream: u64, flags: Out<c_uint>) {
        flags.set(find(stream)?.flags)
    }

    fn cuStreamGetPriority(stream: u64, priority: Out<c_int>) {
        priority.set(find(stream)?.priority)
    }

    fn cuStreamGetCtx(stream: u64, context: Out<u64>) {
        context.set(context::handle_of(device(stream)?))
    }

    fn cuStreamGetDevice(stream: u64, ordinal: Out<c_int>) {
        ordinal.set(device(stream)? as c_int)
    }

    fn cuStreamGetId(stream: u64, id: Out<u64>) {
        device(stream)?;
        id.set(stream)
    }

    fn cuLaunchHostFunc(stream: u64, function: HostFunction, data: *mut c_void) {
        device(stream)?;
        let function = function.ok_or(fault(INVALID_VALUE, "null_function"))?;
        function(data);
        Ok(())
    }

    fn cuLaunchHostFunc_v2(stream: u64, function: HostFunction, data: *mut c_void, _mode: c_uint) {
        device(stream)?;
        let function = function.ok_or(fault(INVALID_VALUE, "null_function"))?;
        function(data);
        Ok(())
    }

    fn cuStreamAddCallback(
        stream: u64,
        callback: StreamCallback,
        data: *mut c_void,
        flags: c_uint,
    ) {
        device(stream)?;
        ensure(flags == 0, INVALID_VALUE, "flags")?;
        let callback = callback.ok_or(fault(INVALID_VALUE, "null_function"))?;
        callback(stream, 0, data);
        Ok(())
    }
}
