//! How many panics there were, whoever was told of them.
//!
//! The probe's panic hook tells of each one, unless the model has put a hook of its own in its place. Whatever the hook,
//! a panic that is unwound begins with `_Unwind_RaiseException`, which is put before the C library's own here. It works only
//! where the library is in `LD_PRELOAD`.

use std::arch::naked_asm;
use std::ffi::c_void;
use std::sync::atomic::{AtomicPtr, AtomicU64, Ordering};

use crate::libc;

static RAISED: AtomicU64 = AtomicU64::new(0);
static REAL: AtomicPtr<c_void> = AtomicPtr::new(std::ptr::null_mut());

#[used]
#[unsafe(link_section = ".init_array")]
static FIND_REAL: extern "C" fn() = {
    extern "C" fn find() {
        // SAFETY: the name is NUL-terminated; `RTLD_NEXT` looks behind this library, which itself needs the one that has it.
        let real = unsafe { libc::dlsym(libc::RTLD_NEXT, c"_Unwind_RaiseException".as_ptr()) };
        REAL.store(real, Ordering::Relaxed);
    }
    find
};

pub(crate) fn raised() -> u64 {
    RAISED.load(Ordering::Relaxed)
}

/// Counts, where the exception is one of Rust, and goes on to the real one as if this had never been on the stack. The
/// class of an exception, its first eight bytes, is `MOZ\0RUST` for all of them, in older toolchains with the last byte first.
#[cfg(target_arch = "x86_64")]
#[unsafe(naked)]
#[unsafe(no_mangle)]
pub(crate) extern "C" fn _Unwind_RaiseException() {
    naked_asm!(
        "movabs rax, 0x54535552005a4f4d",
        "cmp [rdi], rax",
        "je 2f",
        "bswap rax",
        "cmp [rdi], rax",
        "jne 3f",
        "2:",
        "lock inc qword ptr [rip + {raised}]",
        "3:",
        "jmp qword ptr [rip + {real}]",
        raised = sym RAISED,
        real = sym REAL,
    )
}

/// As above.
#[cfg(target_arch = "aarch64")]
#[unsafe(naked)]
#[unsafe(no_mangle)]
pub(crate) extern "C" fn _Unwind_RaiseException() {
    naked_asm!(
        "movz x9, #0x4f4d",
        "movk x9, #0x005a, lsl #16",
        "movk x9, #0x5552, lsl #32",
        "movk x9, #0x5453, lsl #48",
        "ldr x10, [x0]",
        "cmp x9, x10",
        "b.eq 3f",
        "rev x9, x9",
        "cmp x9, x10",
        "b.ne 2f",
        "3:",
        "adrp x16, {raised}",
        "add x16, x16, :lo12:{raised}",
        "1:",
        "ldxr x9, [x16]",
        "add x9, x9, #1",
        "stxr w10, x9, [x16]",
        "cbnz w10, 1b",
        "2:",
        "adrp x16, {real}",
        "ldr x16, [x16, :lo12:{real}]",
        "br x16",
        raised = sym RAISED,
        real = sym REAL,
    )
}
