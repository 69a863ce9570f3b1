//! The clock: the real one for the record, and a virtual one for threads that launch kernels.
//!
//! Burn's autotune times its candidates with the host's clock, so on a driver that runs nothing
//! the winner would be noise. With `virtual_clock=1` a thread that has launched a kernel sees a
//! `CLOCK_MONOTONIC` that moves by what the thread did and by nothing else. It works only where
//! the library is in `LD_PRELOAD`, so that the exported `clock_gettime` is the process's own.
//!
//! A thread that waits for real time by reading the clock again and again would wait for ever, so
//! after many readings without a launch the clock moves faster: still by what the thread did.
//!
//! A thread that waits to be woken tells the kernel by this clock until when, and the kernel goes by the real one, which is
//! ahead: the wait would be over at once, and a server's thread that looks for work every 150 µs would look all the time. So
//! such a wait is translated. One that ends without being woken moves the clock if it was a long one.
//!
//! Assumed: every launch takes 10 µs; one of the kernels with which Burn 0.22 measures the GPU's throughput takes as long as
//! Burn makes such a launch on a real GPU, 20 ms (cubecl-runtime 0.11, `throughput/benchmarker.rs`): it lengthens its loop until
//! then, and would do so until its count overflows.
//!
//! With `moment=other` the time of day is another one.

use std::cell::Cell;
use std::ffi::{c_int, c_long, c_void};
use std::sync::atomic::{AtomicBool, AtomicPtr, Ordering};

use crate::context;
use crate::libc::{self, Timespec};

const LAUNCH_NANOSECONDS: u64 = 10_000;
/// A part of the names of the kernels that measure throughput.
const MEASURES_THROUGHPUT: &str = "_throughput";
const THROUGHPUT_NANOSECONDS: u64 = 20_000_000;
const READ_NANOSECONDS: u64 = 1;
/// More readings than anything that times a launch makes between two of them.
const PATIENT_READINGS: u32 = 4096;
const WAITING_NANOSECONDS: u64 = 10_000;
const SECOND: u64 = 1_000_000_000;

type ClockGettime = extern "C" fn(c_int, *mut Timespec) -> c_int;

type Syscall = extern "C" fn(c_long, usize, usize, usize, *const Timespec, usize, usize) -> c_long;

static REAL: AtomicPtr<c_void> = AtomicPtr::new(std::ptr::null_mut());
static REAL_SYSCALL: AtomicPtr<c_void> = AtomicPtr::new(std::ptr::null_mut());
static VIRTUAL: AtomicBool = AtomicBool::new(false);
/// A wait as short as this is a look whether there is something to do. How often a thread looks is a matter of chance.
const LOOK_NANOSECONDS: u64 = 1_000_000;
/// Seconds that the time of day is ahead where the moment is another one.
const AHEAD: i64 = 1_234_567;

thread_local! {
    // Const and without a destructor: no allocation, and usable at any time of a thread's life.
    static NOW: Cell<u64> = const { Cell::new(0) };
    /// Since the last launch.
    static READINGS: Cell<u32> = const { Cell::new(0) };
}

#[used]
#[unsafe(link_section = ".init_array")]
static FIND_REAL_CLOCK: extern "C" fn() = {
    extern "C" fn find() {
        // SAFETY: the name is NUL-terminated; `RTLD_NEXT` looks behind this library.
        let real = unsafe { libc::dlsym(libc::RTLD_NEXT, c"clock_gettime".as_ptr()) };
        REAL.store(real, Ordering::Relaxed);
    }
    find
};

fn real_clock(clock: c_int, time: *mut Timespec) -> c_int {
    let real = REAL.load(Ordering::Relaxed);
    if real.is_null() {
        // SAFETY: the kernel checks the pointer itself.
        return unsafe { libc::syscall(libc::SYS_CLOCK_GETTIME, clock, time) } as c_int;
    }
    // SAFETY: `REAL` only ever holds the C library's own `clock_gettime`.
    let real: ClockGettime = unsafe { std::mem::transmute(real) };
    real(clock, time)
}

/// `CLOCK_MONOTONIC` in nanoseconds, never the virtual one.
pub(crate) fn real_nanoseconds() -> u64 {
    let mut time = Timespec::default();
    real_clock(libc::CLOCK_MONOTONIC, &mut time);
    time.nanoseconds_of_all()
}

impl Timespec {
    fn of(nanoseconds: u64) -> Self {
        Self {
            seconds: (nanoseconds / SECOND) as i64,
            nanoseconds: (nanoseconds % SECOND) as i64,
        }
    }

    fn nanoseconds_of_all(self) -> u64 {
        (self.seconds as u64)
            .saturating_mul(SECOND)
            .saturating_add(self.nanoseconds as u64)
    }
}

/// The time as the calling thread sees it.
pub(crate) fn thread_nanoseconds() -> u64 {
    match NOW.get() {
        0 => real_nanoseconds(),
        now => now,
    }
}

pub(crate) fn use_virtual_clock(yes: bool) {
    VIRTUAL.store(yes, Ordering::Relaxed);
}

/// How long a launch of a kernel takes.
pub(crate) fn launch_nanoseconds(kernel: &str) -> u64 {
    match kernel.contains(MEASURES_THROUGHPUT) {
        true => THROUGHPUT_NANOSECONDS,
        false => LAUNCH_NANOSECONDS,
    }
}

/// Moves the calling thread's clock by one launch, which takes so long; the first launch makes it virtual.
pub(crate) fn launched(nanoseconds: u64) {
    if VIRTUAL.load(Ordering::Relaxed) {
        let now = match NOW.get() {
            0 => real_nanoseconds(),
            now => now,
        };
        NOW.set(now + nanoseconds);
        READINGS.set(0);
    }
}

/// The C library's function, put before it.
#[unsafe(no_mangle)]
pub(crate) extern "C" fn clock_gettime(clock: c_int, time: Out) -> c_int {
    let now = NOW.get();
    if now == 0 || clock != libc::CLOCK_MONOTONIC || time.0.is_null() {
        let code = real_clock(clock, time.0);
        if clock == libc::CLOCK_REALTIME && code == 0 && !time.0.is_null() && context::is_later() {
            // SAFETY: not null, and the call above has written to it.
            unsafe { (*time.0).seconds += AHEAD };
        }
        return code;
    }
    let readings = READINGS.get().saturating_add(1);
    READINGS.set(readings);
    let waits = readings > PATIENT_READINGS;
    let now = now + if waits { WAITING_NANOSECONDS } else { READ_NANOSECONDS };
    NOW.set(now);
    // SAFETY: not null, and by the C library's contract valid for a write.
    unsafe { time.0.write(Timespec::of(now)) };
    0
}

/// The C library's function, put before it. `until` is what that argument means to a futex.
#[unsafe(no_mangle)]
pub(crate) extern "C" fn syscall(
    number: c_long,
    first: usize,
    operation: usize,
    third: usize,
    until: *const Timespec,
    fifth: usize,
    sixth: usize,
) -> c_long {
    let mut real = REAL_SYSCALL.load(Ordering::Relaxed);
    if real.is_null() {
        // SAFETY: the name is NUL-terminated; `RTLD_NEXT` looks behind this library.
        real = unsafe { libc::dlsym(libc::RTLD_NEXT, c"syscall".as_ptr()) };
        REAL_SYSCALL.store(real, Ordering::Relaxed);
    }
    // SAFETY: the C library's own `syscall`, which is always there, and takes what it does not need of six words.
    let real: Syscall = unsafe { std::mem::transmute(real) };
    let now = NOW.get();
    let waits = number == libc::SYS_FUTEX && operation & !libc::FUTEX_PRIVATE == libc::FUTEX_WAIT_BITSET;
    if now == 0 || !waits || until.is_null() {
        return real(number, first, operation, third, until, fifth, sixth);
    }
    // SAFETY: not null, and by the kernel's contract a moment of `CLOCK_MONOTONIC`.
    let virtual_end = unsafe { (*until).nanoseconds_of_all() };
    let long = virtual_end.saturating_sub(now);
    let real_end = real_nanoseconds().saturating_add(long);
    let end = Timespec::of(real_end);
    let code = real(number, first, operation, third, &end, fifth, sixth);
    if code != 0 && long >= LOOK_NANOSECONDS && real_nanoseconds() >= real_end {
        NOW.set(virtual_end);
    }
    code
}

/// Where `clock_gettime` writes to.
#[repr(transparent)]
pub(crate) struct Out(*mut Timespec);
