//! The few functions of the C library that the standard library does not wrap.

use std::ffi::{c_char, c_int, c_long, c_void};

#[repr(C)]
#[derive(Clone, Copy, Default)]
pub(crate) struct Timespec {
    pub(crate) seconds: i64,
    pub(crate) nanoseconds: i64,
}

#[repr(C)]
pub(crate) struct DlInfo {
    pub(crate) file: *const c_char,
    pub(crate) base: *mut c_void,
    pub(crate) symbol: *const c_char,
    pub(crate) address: *mut c_void,
}

pub(crate) const CLOCK_REALTIME: c_int = 0;
pub(crate) const CLOCK_MONOTONIC: c_int = 1;
#[cfg(target_arch = "x86_64")]
pub(crate) const SYS_CLOCK_GETTIME: c_long = 228;
#[cfg(not(target_arch = "x86_64"))]
pub(crate) const SYS_CLOCK_GETTIME: c_long = 113;

#[cfg(target_arch = "x86_64")]
pub(crate) const SYS_GETRANDOM: c_long = 318;
#[cfg(not(target_arch = "x86_64"))]
pub(crate) const SYS_GETRANDOM: c_long = 278;

#[cfg(target_arch = "x86_64")]
pub(crate) const SYS_FUTEX: c_long = 202;
#[cfg(not(target_arch = "x86_64"))]
pub(crate) const SYS_FUTEX: c_long = 98;
pub(crate) const FUTEX_WAIT_BITSET: usize = 9;
pub(crate) const FUTEX_PRIVATE: usize = 128;

pub(crate) const RTLD_NEXT: *mut c_void = std::ptr::without_provenance_mut(usize::MAX);
pub(crate) const RTLD_LAZY: c_int = 1;
pub(crate) const RTLD_NOW: c_int = 2;
/// No flag at all: local is the default.
pub(crate) const RTLD_LOCAL: c_int = 0;
pub(crate) const RTLD_NOLOAD: c_int = 4;

pub(crate) const PROT_READ: c_int = 1;
pub(crate) const PROT_WRITE: c_int = 2;
pub(crate) const MAP_PRIVATE: c_int = 0x02;
pub(crate) const MAP_ANONYMOUS: c_int = 0x20;
pub(crate) const MAP_NORESERVE: c_int = 0x4000;
pub(crate) const MAP_FAILED: *mut c_void = std::ptr::without_provenance_mut(usize::MAX);

unsafe extern "C" {
    pub(crate) fn syscall(number: c_long, ...) -> c_long;
    pub(crate) fn dlsym(handle: *mut c_void, name: *const c_char) -> *mut c_void;
    pub(crate) fn dlopen(file: *const c_char, flags: c_int) -> *mut c_void;
    pub(crate) fn dlerror() -> *const c_char;
    pub(crate) fn dladdr(address: *const c_void, info: *mut DlInfo) -> c_int;
    pub(crate) fn atexit(callback: extern "C" fn()) -> c_int;
    pub(crate) fn write(file: c_int, bytes: *const c_void, count: usize) -> isize;
    pub(crate) fn mmap(
        address: *mut c_void,
        bytes: usize,
        protection: c_int,
        flags: c_int,
        file: c_int,
        offset: i64,
    ) -> *mut c_void;
    pub(crate) fn munmap(address: *mut c_void, bytes: usize) -> c_int;
}
