//! The driver library, driven through the bindings that Burn uses. Each scenario is a process of
//! `fixtures/driver-tests`, which checks every answer; here its exit and its record are checked.
#![cfg(all(feature = "cli", target_os = "linux"))]

#[path = "../driver_support/mod.rs"]
mod driver_support;

mod forward;
mod injection;
mod library;
#[path = "../driver_support/posing.rs"]
mod posing;
mod scenario;
mod virtual_card;
