//! The keys of hash maps: the same in every run.
//!
//! The standard library draws them by chance, and with them the order of every `HashMap`. Burn goes
//! through such a map where workers of several cards share the running statistics of a `BatchNorm`:
//! which card those end up on would be a matter of chance. Keys are asked for as randomness that
//! need not be safe, which is given here without any; everything else gets what the kernel has.
//! With `moment=other` and one card the keys are others: what a model does must not depend on them.
//! It works only where the library is in `LD_PRELOAD`, so that this is the process's own `getrandom`.

use std::ffi::{c_uint, c_void};

use crate::{context, libc};

/// Randomness that need not be safe.
const GRND_INSECURE: c_uint = 4;

/// Each byte of a key, in most runs; and where a model is to show that it depends on the order of its maps.
const KEYS: [u8; 2] = [0, 0x5a];

/// The C library's function, put before it.
#[unsafe(no_mangle)]
pub(crate) extern "C" fn getrandom(buffer: Out, bytes: usize, flags: c_uint) -> isize {
    if flags & GRND_INSECURE == 0 || buffer.0.is_null() {
        // SAFETY: the kernel checks the pointer itself.
        return unsafe { libc::syscall(libc::SYS_GETRANDOM, buffer.0, bytes, flags) } as isize;
    }
    let is_other = context::is_later() && context::configured().is_some_and(|config| config.devices == 1);
    // SAFETY: not null, and by the C library's contract valid for a write of so many bytes.
    unsafe { buffer.0.cast::<u8>().write_bytes(KEYS[usize::from(is_other)], bytes) };
    bytes as isize
}

/// Where `getrandom` writes to.
#[repr(transparent)]
pub(crate) struct Out(*mut c_void);
