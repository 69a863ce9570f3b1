//! The way into functions whose signatures are not known here: whatever the caller passed, in
//! registers and on the stack, reaches the real function unchanged.
//!
//! Each such function loads the address of its own static and jumps to [`enter`], which keeps every
//! register that can hold an argument, asks [`target`] where to go, and goes there. The stack is
//! then as the caller left it, so arguments on it need no copying.

use std::arch::naked_asm;
use std::cell::Cell;
use std::ffi::c_void;

use crate::abi::CUresult;
use crate::call::{self, Call, Turn};
use crate::real::Library;
use crate::record::Line;
use crate::{inject, record};

/// A function without a virtual implementation.
pub(crate) struct Stub {
    call: Call,
    /// Whether the real one may be called.
    passes: bool,
}

impl Stub {
    pub(crate) const fn new(name: &'static str, passes: bool) -> Self {
        Self {
            call: Call::new(name),
            passes,
        }
    }

    #[cold]
    fn unsupported(&self) -> CUresult {
        let name = self.call.name();
        if call::forwards() {
            record::start();
        }
        Line::new("unsupported").with("function", name).write();
        Library::of(name).not_supported()
    }
}

thread_local! {
    /// What [`answer`] answers next on this thread.
    static ANSWER: Cell<CUresult> = const { Cell::new(0) };
}

/// Where a call of a stub goes: to the real function, or to [`answer`]. Never null.
extern "C" fn target(stub: &'static Stub) -> *const c_void {
    let code = match stub.call.enter() {
        Turn::Injected(code) => inject::tell(stub.call.name(), code),
        // A real library that has no such function leaves it unsupported.
        Turn::Forward if stub.passes => match stub.call.real() {
            Ok(address) => return address,
            Err(_) => stub.unsupported(),
        },
        Turn::Forward | Turn::Virtual => stub.unsupported(),
    };
    ANSWER.set(code);
    answer as *const c_void
}

/// Looks at no argument, so it may be jumped to with any.
extern "C" fn answer() -> CUresult {
    ANSWER.get()
}

/// Expects the address of a [`Stub`] in `r11`, which carries no argument. At the entry the stack is
/// 8 bytes off 16; after nine pushes and 128 bytes it is aligned for the call.
#[cfg(target_arch = "x86_64")]
#[unsafe(naked)]
pub(crate) extern "C" fn enter() {
    naked_asm!(
        "push rdi",
        "push rsi",
        "push rdx",
        "push rcx",
        "push r8",
        "push r9",
        "push rax",
        "push r10",
        "push r11",
        "sub rsp, 128",
        "movups [rsp], xmm0",
        "movups [rsp + 16], xmm1",
        "movups [rsp + 32], xmm2",
        "movups [rsp + 48], xmm3",
        "movups [rsp + 64], xmm4",
        "movups [rsp + 80], xmm5",
        "movups [rsp + 96], xmm6",
        "movups [rsp + 112], xmm7",
        "mov rdi, r11",
        "call {target}",
        "movups xmm0, [rsp]",
        "movups xmm1, [rsp + 16]",
        "movups xmm2, [rsp + 32]",
        "movups xmm3, [rsp + 48]",
        "movups xmm4, [rsp + 64]",
        "movups xmm5, [rsp + 80]",
        "movups xmm6, [rsp + 96]",
        "movups xmm7, [rsp + 112]",
        "add rsp, 128",
        "pop r11",
        "mov r11, rax",
        "pop r10",
        "pop rax",
        "pop r9",
        "pop r8",
        "pop rcx",
        "pop rdx",
        "pop rsi",
        "pop rdi",
        "jmp r11",
        target = sym target,
    )
}

/// Expects the address of a [`Stub`] in `x16`, which carries no argument.
#[cfg(target_arch = "aarch64")]
#[unsafe(naked)]
pub(crate) extern "C" fn enter() {
    naked_asm!(
        "stp x29, x30, [sp, #-224]!",
        "mov x29, sp",
        "stp x0, x1, [sp, #16]",
        "stp x2, x3, [sp, #32]",
        "stp x4, x5, [sp, #48]",
        "stp x6, x7, [sp, #64]",
        "str x8, [sp, #80]",
        "stp q0, q1, [sp, #96]",
        "stp q2, q3, [sp, #128]",
        "stp q4, q5, [sp, #160]",
        "stp q6, q7, [sp, #192]",
        "mov x0, x16",
        "bl {target}",
        "mov x16, x0",
        "ldp x0, x1, [sp, #16]",
        "ldp x2, x3, [sp, #32]",
        "ldp x4, x5, [sp, #48]",
        "ldp x6, x7, [sp, #64]",
        "ldr x8, [sp, #80]",
        "ldp q0, q1, [sp, #96]",
        "ldp q2, q3, [sp, #128]",
        "ldp q4, q5, [sp, #160]",
        "ldp q6, q7, [sp, #192]",
        "ldp x29, x30, [sp], #224",
        "br x16",
        target = sym target,
    )
}

/// The whole body of a stub: hands its static to [`enter`].
#[cfg(target_arch = "x86_64")]
macro_rules! trampoline {
    ($stub:ident) => {
        std::arch::naked_asm!(
            "lea r11, [rip + {stub}]",
            "jmp {enter}",
            stub = sym $stub,
            enter = sym $crate::trampoline::enter,
        )
    };
}

/// The whole body of a stub: hands its static to [`enter`].
#[cfg(target_arch = "aarch64")]
macro_rules! trampoline {
    ($stub:ident) => {
        std::arch::naked_asm!(
            "adrp x16, {stub}",
            "add x16, x16, :lo12:{stub}",
            "b {enter}",
            stub = sym $stub,
            enter = sym $crate::trampoline::enter,
        )
    };
}
