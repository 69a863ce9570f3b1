//! A CUDA driver and NVRTC without a GPU behind them.
//!
//! Put first on a process's `LD_LIBRARY_PATH` as `libcuda.so` and `libnvrtc.so`, it is the GPU
//! that its configuration describes: kernels are accepted and not run, memory is counted and
//! refused past what the card has left, and every allocation, refusal and error is recorded.
//!
//! With `mode=forward` it stands before a real driver instead: every call is passed on with its
//! arguments as they are, and counted and recorded just so.
//!
//! As `libnccl.so` it is what several virtual cards of a process are connected by.
//!
//! Built by bare `rustc`, with the standard library and nothing else.

#![warn(clippy::undocumented_unsafe_blocks, unreachable_pub)]

#[macro_use]
mod abi;
#[macro_use]
mod real;
mod call;
mod clock;
mod codes;
mod config;
mod contents;
mod context;
mod copy;
mod device;
mod error;
mod event;
mod forward;
mod forward_memory;
mod handles;
mod hash_keys;
mod inject;
mod launch;
mod libc;
mod maps;
mod memory;
mod module;
mod nccl;
mod nvrtc;
mod pinned;
mod pool;
#[cfg(posing)]
mod posing;
mod proc_address;
mod ptx;
mod record;
mod source_scan;
mod stream;
#[macro_use]
mod trampoline;
mod unwinding;
mod stubs;
mod tensor_map;
