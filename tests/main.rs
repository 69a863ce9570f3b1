//! The project's integration tests, one module per subject. `tests/all` runs them.
#![cfg(feature = "cli")]
#![cfg_attr(test, expect(clippy::unwrap_used, reason = "a test that cannot go on has failed"))]

mod agreement;
#[cfg(unix)]
mod archive;
#[cfg(unix)]
mod archive_refused;
#[cfg(unix)]
mod archive_support;
mod base;
mod baseline;
mod broken;
mod budgets;
#[cfg(target_os = "linux")]
mod burn_0_22;
mod commands;
#[cfg(unix)]
mod comment;
mod common;
mod docs;
#[cfg(target_os = "linux")]
mod driver;
#[cfg(target_os = "linux")]
mod driver_support;
#[cfg(target_os = "linux")]
mod driver_symbols;
#[cfg(target_os = "linux")]
mod epochs;
#[cfg(target_os = "linux")]
mod explain;
#[cfg(target_os = "linux")]
mod faults;
mod fit;
#[cfg(target_os = "linux")]
mod fooled;
#[cfg(target_os = "linux")]
mod gate;
#[cfg(target_os = "linux")]
mod gpus;
mod growth;
#[cfg(target_os = "linux")]
mod hostile;
#[cfg(target_os = "linux")]
mod leftovers;
#[cfg(target_os = "linux")]
mod measure;
mod new_project;
#[cfg(target_os = "linux")]
mod nvml;
mod options;
mod out_of_memory;
mod pairs;
#[cfg(unix)]
mod recordings;
#[cfg(unix)]
mod report;
mod rooms;
mod scale;
mod several_gpus;
#[cfg(target_os = "linux")]
mod system;
mod what_if;
mod zoo;
