//! The clock of events and traces, which the driver's records use too.

/// Returns the time, in nanoseconds of `CLOCK_MONOTONIC`.
pub(super) fn now() -> u64 {
    // rustix does not ask the C library, whose `clock_gettime` the driver replaces in an estimate. So this is
    // the real time on every thread. See docs/design/virtual-clock.md.
    let now = rustix::time::clock_gettime(rustix::time::ClockId::Monotonic);
    now.tv_sec as u64 * 1_000_000_000 + now.tv_nsec as u64
}
