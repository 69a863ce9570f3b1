//! What crosses the C boundary: result codes, out and in pointers, and the macro that exports.

use std::ffi::{CStr, c_char};

pub(crate) type CUresult = u32;
/// What every function of the driver answers, before it becomes a `CUresult`.
pub(crate) type Answer<T = ()> = Result<T, Fault>;

pub(crate) const SUCCESS: CUresult = 0;
pub(crate) const INVALID_VALUE: CUresult = 1;
pub(crate) const OUT_OF_MEMORY: CUresult = 2;
pub(crate) const NOT_INITIALIZED: CUresult = 3;
pub(crate) const NO_DEVICE: CUresult = 100;
pub(crate) const INVALID_DEVICE: CUresult = 101;
pub(crate) const INVALID_IMAGE: CUresult = 200;
pub(crate) const INVALID_CONTEXT: CUresult = 201;
pub(crate) const NO_BINARY_FOR_GPU: CUresult = 209;
pub(crate) const UNSUPPORTED_LIMIT: CUresult = 215;
pub(crate) const INVALID_PTX: CUresult = 218;
pub(crate) const UNSUPPORTED_PTX_VERSION: CUresult = 222;
pub(crate) const SHARED_OBJECT_INIT_FAILED: CUresult = 303;
pub(crate) const INVALID_HANDLE: CUresult = 400;
pub(crate) const NOT_FOUND: CUresult = 500;
pub(crate) const NOT_READY: CUresult = 600;
pub(crate) const PRIMARY_CONTEXT_ACTIVE: CUresult = 708;
pub(crate) const CONTEXT_IS_DESTROYED: CUresult = 709;
pub(crate) const HOST_MEMORY_NOT_REGISTERED: CUresult = 713;
pub(crate) const COOPERATIVE_LAUNCH_TOO_LARGE: CUresult = 720;
pub(crate) const NOT_SUPPORTED: CUresult = 801;
pub(crate) const UNKNOWN: CUresult = 999;
/// NVRTC's own `NVRTC_ERROR_INTERNAL_ERROR`.
pub(crate) const NVRTC_INTERNAL_ERROR: CUresult = 11;
/// NCCL's own `ncclInternalError`.
pub(crate) const NCCL_INTERNAL_ERROR: CUresult = 3;

/// Why a call is refused: the code that it answers, and a word for the record.
#[derive(Clone, Copy)]
pub(crate) struct Fault {
    pub(crate) code: CUresult,
    /// Empty where the record has a line of its own for this refusal.
    pub(crate) detail: &'static str,
}

pub(crate) const fn fault(code: CUresult, detail: &'static str) -> Fault {
    Fault { code, detail }
}

/// A fault that the record already tells, by a `refuse` line.
pub(crate) const fn recorded(code: CUresult) -> Fault {
    Fault { code, detail: "" }
}

pub(crate) fn ensure(condition: bool, code: CUresult, detail: &'static str) -> Answer {
    if condition {
        Ok(())
    } else {
        Err(fault(code, detail))
    }
}

/// A pointer that a result is written through.
#[repr(transparent)]
#[derive(Clone, Copy)]
pub(crate) struct Out<T>(*mut T);

impl<T> Out<T> {
    /// Writes the result; a null pointer is an invalid value.
    pub(crate) fn set(self, value: T) -> Answer {
        ensure(!self.0.is_null(), INVALID_VALUE, "null_result")?;
        self.set_if_wanted(value);
        Ok(())
    }

    /// Writes the result unless the caller passed null to say that it is not wanted.
    pub(crate) fn set_if_wanted(self, value: T) {
        if !self.0.is_null() {
            // SAFETY: CUDA's contract: a result pointer that is not null is valid for a write.
            unsafe { self.0.write_unaligned(value) }
        }
    }

    /// Writes `value` where the caller keeps one, and gives back what was there. The pointer was
    /// checked to be one.
    pub(crate) fn replace(self, value: T) -> T {
        // SAFETY: CUDA's contract: a pointer to an object that the caller keeps is valid.
        unsafe { self.0.replace(value) }
    }

    pub(crate) fn address(self) -> usize {
        self.0.addr()
    }

    /// Writes `bytes` from the pointer on; the caller vouched for the room.
    pub(crate) fn fill(self, bytes: &[u8]) -> Answer {
        ensure(!self.0.is_null(), INVALID_VALUE, "null_result")?;
        // SAFETY: CUDA's contract: the buffer has the size that the caller asked for before or
        // passed beside it, and `bytes` is no longer than that.
        unsafe { std::ptr::copy_nonoverlapping(bytes.as_ptr(), self.0.cast(), bytes.len()) }
        Ok(())
    }
}

impl<T> Out<T> {
    /// Where a function of the real library is to write its result.
    pub(crate) fn to(value: &mut T) -> Self {
        Self(value)
    }

    /// The same, for as many values as there are.
    pub(crate) fn to_all(values: &mut [T]) -> Self {
        Self(values.as_mut_ptr())
    }
}

impl<T: Copy> Out<T> {
    /// What the real function wrote; to be asked after its success alone. `None` where the caller
    /// did not want it.
    pub(crate) fn written(self) -> Option<T> {
        // SAFETY: CUDA's contract: a result pointer that is not null is valid, and the real
        // function, which has just succeeded, wrote its result there.
        (!self.0.is_null()).then(|| unsafe { self.0.read_unaligned() })
    }
}

/// A pointer that arguments are read from.
#[repr(transparent)]
#[derive(Clone, Copy)]
pub(crate) struct In<T>(*const T);

impl<T: Copy> In<T> {
    pub(crate) fn get(self) -> Answer<T> {
        self.at(0)
    }

    /// The element at `index` of an array that the caller says is longer.
    pub(crate) fn at(self, index: usize) -> Answer<T> {
        ensure(!self.0.is_null(), INVALID_VALUE, "null_argument")?;
        // SAFETY: CUDA's contract: an argument pointer that is not null is valid for the count
        // of elements passed beside it.
        Ok(unsafe { self.0.add(index).read_unaligned() })
    }
}

/// A NUL-terminated text that the caller owns.
#[repr(transparent)]
#[derive(Clone, Copy)]
pub(crate) struct Text(*const c_char);

impl Text {
    /// The bytes of an image that is text; `None` for machine code, which may have no NUL.
    pub(crate) fn source<'call>(self) -> Option<&'call [u8]> {
        const ELF: [u8; 4] = *b"\x7fELF";
        const FAT_BINARY: [u8; 4] = 0xba55_ed50_u32.to_le_bytes();
        let mut first = [0; 4];
        for (index, byte) in first.iter_mut().enumerate().filter(|_| !self.0.is_null()) {
            // SAFETY: CUDA's contract: an image is a text that ends with NUL, or has a header of
            // four bytes and more. No byte before this one was a NUL.
            *byte = unsafe { self.0.cast::<u8>().add(index).read() };
            if *byte == 0 {
                break;
            }
        }
        let text = first[0].is_ascii_graphic() || first[0].is_ascii_whitespace();
        if !text || first == ELF || first == FAT_BINARY {
            return None;
        }
        self.bytes().ok()
    }

    /// The bytes, valid while the call lasts.
    pub(crate) fn bytes<'call>(self) -> Answer<&'call [u8]> {
        ensure(!self.0.is_null(), INVALID_VALUE, "null_text")?;
        // SAFETY: CUDA's contract: the text is NUL-terminated and lives as long as the call; no
        // caller keeps the slice longer than that.
        Ok(unsafe { CStr::from_ptr(self.0) }.to_bytes())
    }
}

/// The code of a real function, as an answer.
#[inline]
pub(crate) fn answered(code: CUresult) -> Answer {
    ensure(code == SUCCESS, code, "real")
}

/// What a forwarded call amounts to: the real call alone, or what the function makes of it.
macro_rules! forwarded {
    ($call:ident) => {
        $call()
    };
    ($call:ident, $real:ident $forward:block) => {{
        let $real = $call;
        let forward = || -> $crate::abi::Answer { $forward };
        forward()
    }};
}

/// Exports functions of the driver. Each body is the virtual function and gives an [`Answer`],
/// whose fault is recorded. Forwarded, a function is a call of the real one with the very same
/// arguments; what has to be counted beside it stands in `forward(real)`, where `real()` makes
/// that call. `asks(kind, bytes, stream)` marks what allocates device memory.
macro_rules! driver_functions {
    ($(
        fn $name:ident ( $( $arg:ident : $type:ty ),* $(,)? )
        $( asks ( $kind:expr, $bytes:expr, $on:expr ) )?
        $body:block
        $( forward ( $real:ident ) $forward:block )?
    )*) => { $(
        #[unsafe(no_mangle)]
        #[allow(clippy::too_many_arguments, reason = "the signature is CUDA's")]
        pub(crate) extern "C" fn $name($($arg: $type),*) -> $crate::abi::CUresult {
            static CALL: $crate::call::Call = $crate::call::Call::new(concat!(stringify!($name), "\0"));
            let answer = match CALL.enter() {
                $crate::call::Turn::Virtual => {
                    let answer = || -> $crate::abi::Answer { $body };
                    answer()
                }
                $crate::call::Turn::Forward => {
                    let call = || -> $crate::abi::Answer {
                        let address = CALL.real()?;
                        // SAFETY: the address is that of the real library's function of this
                        // name, and the signature is CUDA's for that name.
                        let real = unsafe {
                            std::mem::transmute::<
                                *mut std::ffi::c_void,
                                extern "C" fn($($type),*) -> $crate::abi::CUresult,
                            >(address)
                        };
                        $crate::abi::answered(real($($arg),*))
                    };
                    forwarded!(call $(, $real $forward)?)
                }
                $crate::call::Turn::Injected(code) => {
                    $( if code == $crate::abi::OUT_OF_MEMORY {
                        return $crate::memory::refuse_injected($kind, $bytes as u64, $on);
                    } )?
                    return $crate::inject::tell(CALL.name(), code);
                }
            };
            $crate::record::answer(CALL.name(), answer)
        }
    )* };
}
