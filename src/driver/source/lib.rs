//! A CUDA driver and NVRTC without a GPU behind them.
//!
//! Put first on a process's `LD_LIBRARY_PATH` as `libcuda.so` and `libnvrtc.so`, it is the GPU
//! that its configuration describes: kernels are accepted and not run, memory is counted and
//! refused past what the card has left, and every allocation, refusal and error is recorded.
//!
//! Built by bare `rustc`, with the standard library and nothing else.

#![warn(clippy::undocumented_unsafe_blocks, unreachable_pub)]

#[macro_use]
mod abi;
mod clock;
mod config;
mod context;
mod copy;
mod device;
mod error;
mod event;
mod handles;
mod launch;
mod libc;
mod memory;
mod module;
mod nvrtc;
mod pinned;
mod pool;
mod proc_address;
mod ptx;
mod record;
mod source_scan;
mod stream;
mod stubs;
mod tensor_map;
