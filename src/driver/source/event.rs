//! Events: done as soon as they are recorded.

use std::ffi::c_uint;

use crate::abi::{Answer, INVALID_HANDLE, INVALID_VALUE, Out, ensure, fault};
use crate::handles::Handles;
use crate::{clock, context, stream};

struct Event {
    device: usize,
    timed: bool,
    /// When it was recorded, in the recording thread's nanoseconds.
    recorded: Option<u64>,
}

static EVENTS: Handles<Event> = Handles::new(0x45);

const DISABLE_TIMING: c_uint = 2;
const INTERPROCESS: c_uint = 4;

fn with<R>(event: u64, look: impl FnOnce(&mut Event) -> R) -> Answer<R> {
    EVENTS
        .with(event, look)
        .ok_or(fault(INVALID_HANDLE, "no_such_event"))
}

pub(crate) fn check(event: u64) -> Answer {
    with(event, |_| ())
}

pub(crate) fn forget(device: usize) {
    EVENTS.retain(|event| event.device != device);
}

fn record(event: u64, on: u64) -> Answer {
    let device = stream::device(on)?;
    let same_device = with(event, |event| {
        if event.timed {
            event.recorded = Some(clock::thread_nanoseconds());
        }
        event.device == device
    })?;
    ensure(same_device, INVALID_HANDLE, "event_of_another_device")
}

fn elapsed(milliseconds: Out<f32>, start: u64, end: u64) -> Answer {
    let time = |event| {
        with(event, |event| {
            event.timed.then_some(event.recorded).flatten()
        })?
        .ok_or(fault(INVALID_HANDLE, "event_without_a_time"))
    };
    let nanoseconds = time(end)? as i64 - time(start)? as i64;
    milliseconds.set(nanoseconds as f32 / 1e6)
}

driver_functions! {
    fn cuEventCreate(event: Out<u64>, flags: c_uint) {
        let device = context::current()?;
        let without_timing = flags & DISABLE_TIMING != 0;
        let known = flags < 8 && (flags & INTERPROCESS == 0 || without_timing);
        ensure(known, INVALID_VALUE, "flags")?;
        ensure(event.address() != 0, INVALID_VALUE, "null_result")?;
        event.set(EVENTS.insert(Event { device, timed: !without_timing, recorded: None }))
    }

    // Needs no current context: Burn drops events on threads that never set one, and on real cards that works.
    fn cuEventDestroy_v2(event: u64) {
        EVENTS.remove(event).map(|_| ()).ok_or(fault(INVALID_HANDLE, "no_such_event"))
    }

    fn cuEventRecord(event: u64, stream: u64) {
        record(event, stream)
    }

    fn cuEventRecordWithFlags(event: u64, stream: u64, flags: c_uint) {
        ensure(flags <= 1, INVALID_VALUE, "flags")?;
        record(event, stream)
    }

    fn cuEventQuery(event: u64) {
        context::card()?;
        check(event)
    }

    fn cuEventSynchronize(event: u64) {
        context::card()?;
        check(event)
    }

    fn cuEventElapsedTime(milliseconds: Out<f32>, start: u64, end: u64) {
        elapsed(milliseconds, start, end)
    }

    fn cuEventElapsedTime_v2(milliseconds: Out<f32>, start: u64, end: u64) {
        elapsed(milliseconds, start, end)
    }
}
