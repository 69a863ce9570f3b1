//! The driver library, called through the bindings that Burn uses. Each scenario is a process of
//! `fixtures/driver-tests`, which checks every answer. These tests check its exit code and its record.

mod forward;
mod injection;
mod library;
mod scenario;
mod virtual_gpu;
