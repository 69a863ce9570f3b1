//! How many panics there were, whoever was told of them.
//!
//! The probe's panic hook tells of each one, unless the model has put a hook of its own in its place. Whatever the hook,
//! a panic that is unwound begins with `_Unwind_RaiseException`, which is put before the C library's own here. It works only
//! where the library is in `LD_PRELOAD`.
//!
//! So does `resume_unwind`, which goes on with a panic that was told, and no hook is asked: Burn 0.22 does so from thread to thread.
//! What is on the stack there the probe shows in the first raises of the process, see [`SHOWN`].

use std::arch::naked_asm;
use std::ffi::{c_int, c_void};
use std::sync::atomic::{AtomicPtr, AtomicU64, AtomicUsize, Ordering};

use crate::libc;

static RAISED: AtomicU64 = AtomicU64::new(0);
static REAL: AtomicPtr<c_void> = AtomicPtr::new(std::ptr::null_mut());
/// The first three raises of the process: by `resume_unwind`, by `resume_unwind` in another function, and by a panic. No lock holds
/// them, for a process may be forked anywhere.
static SHOWN: [Shown; 3] = [const { [const { AtomicUsize::new(0) }; FRAMES] }; 3];
/// How many of these there were; and what came after them.
static COUNT: AtomicUsize = AtomicUsize::new(0);

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

/// How many functions are looked at: those of the standard library, from the one that raises, and the one that asked for it.
const FRAMES: usize = 8;

/// Where the functions begin that are on the stack of a raise, the innermost first.
type Functions = [usize; FRAMES];
type Shown = [AtomicUsize; FRAMES];

/// Whether a raise is one of those by which the probe shows what they look like.
fn is_shown(raise: &Functions) -> bool {
    let place = SHOWN.get(COUNT.fetch_add(1, Ordering::Relaxed));
    for (known, function) in place.into_iter().flatten().zip(raise) {
        known.store(*function, Ordering::Relaxed);
    }
    place.is_some()
}

/// Whether it comes from `resume_unwind`: its innermost functions are those of the two shown ones, up to the first that a panic has
/// otherwise. Where these two differ before that, nobody can tell.
fn is_resumed(raise: &Functions) -> bool {
    let [one, other, panic] = SHOWN.each_ref().map(|shown| shown.each_ref().map(|known| known.load(Ordering::Relaxed)));
    let Some(differs) = one.iter().zip(&panic).position(|(one, panic)| one != panic) else {
        return false;
    };
    let innermost = &one[..=differs];
    !innermost.contains(&0) && other.starts_with(innermost) && raise.starts_with(innermost)
}

unsafe extern "C" {
    fn _Unwind_Backtrace(step: extern "C" fn(*mut c_void, *mut c_void) -> c_int, argument: *mut c_void) -> c_int;
    fn _Unwind_GetIP(context: *mut c_void) -> usize;
    fn _Unwind_FindEnclosingFunction(address: *mut c_void) -> *mut c_void;
}

/// A walk up the stack of a raise.
struct Walk {
    /// Where the raise returns to, which is in the innermost function.
    returns_to: usize,
    functions: Functions,
    count: usize,
}

extern "C" fn step(context: *mut c_void, walk: *mut c_void) -> c_int {
    const GO_ON: c_int = 0;
    const STOP: c_int = 5;
    // SAFETY: `raises` hands in its own, which outlives the walk, and nobody else has it meanwhile.
    let walk = unsafe { &mut *walk.cast::<Walk>() };
    // SAFETY: the context is the unwinder's.
    let address = unsafe { _Unwind_GetIP(context) };
    if walk.count == 0 && address != walk.returns_to {
        return GO_ON;
    }
    let Some(place) = walk.functions.get_mut(walk.count) else {
        return STOP;
    };
    let called_from = std::ptr::without_provenance_mut(address.wrapping_sub(1));
    // SAFETY: any address may be asked for.
    *place = unsafe { _Unwind_FindEnclosingFunction(called_from) }.addr();
    walk.count += 1;
    GO_ON
}

/// Counts a raise, unless it goes on with a panic that was counted.
extern "C" fn raises(returns_to: usize) {
    let mut walk = Walk {
        returns_to,
        functions: [0; FRAMES],
        count: 0,
    };
    // SAFETY: `step` takes its argument for what it is, and keeps nothing.
    unsafe { _Unwind_Backtrace(step, (&raw mut walk).cast()) };
    if !is_shown(&walk.functions) && !is_resumed(&walk.functions) {
        RAISED.fetch_add(1, Ordering::Relaxed);
    }
}

/// Counts, where the exception is one of Rust, and goes on to the real one as if this had never been on the stack. The
/// class of an exception, its first eight bytes, is `MOZ\0RUST` for all of them, in older toolchains with the last byte first.
#[cfg(target_arch = "x86_64")]
#[unsafe(naked)]
#[unsafe(no_mangle)]
pub(crate) extern "C" fn _Unwind_RaiseException() {
    naked_asm!(
        ".cfi_startproc",
        "movabs rax, 0x54535552005a4f4d",
        "cmp [rdi], rax",
        "je 2f",
        "bswap rax",
        "cmp [rdi], rax",
        "jne 3f",
        "2:",
        "push rdi",
        ".cfi_adjust_cfa_offset 8",
        "mov rdi, [rsp + 8]",
        "call {raises}",
        "pop rdi",
        ".cfi_adjust_cfa_offset -8",
        "3:",
        "jmp qword ptr [rip + {real}]",
        ".cfi_endproc",
        raises = sym raises,
        real = sym REAL,
    )
}

/// As above.
#[cfg(target_arch = "aarch64")]
#[unsafe(naked)]
#[unsafe(no_mangle)]
pub(crate) extern "C" fn _Unwind_RaiseException() {
    naked_asm!(
        ".cfi_startproc",
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
        "stp x29, x30, [sp, #-32]!",
        ".cfi_adjust_cfa_offset 32",
        ".cfi_offset x29, -32",
        ".cfi_offset x30, -24",
        "str x0, [sp, #16]",
        "mov x0, x30",
        "bl {raises}",
        "ldr x0, [sp, #16]",
        "ldp x29, x30, [sp], #32",
        ".cfi_adjust_cfa_offset -32",
        ".cfi_restore x29",
        ".cfi_restore x30",
        "2:",
        "adrp x16, {real}",
        "ldr x16, [x16, :lo12:{real}]",
        "br x16",
        ".cfi_endproc",
        raises = sym raises,
        real = sym REAL,
    )
}
