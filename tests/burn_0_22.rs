//! What only Burn 0.22 does. What it has in common with Burn 0.21 the other tests ask of both.
#![cfg(all(feature = "cli", target_os = "linux"))]
#![expect(clippy::unwrap_used, reason = "a test that cannot go on has failed")]

mod common;

use cargo_vram::report::{Report, Run, Status};
use common::burn_0_22::ZOO;

/// Checks models of the zoo on a GPU of so much memory.
fn check(total: &str, models: &str, more: &[&str]) -> (Report, i32, String) {
    let (_folder, budgets) = common::budgets(&format!(
        "version: 1\ngpu: small\ngpu_profiles:\n  small: {{ like: l4, total: {total} }}\nmodels:\n{models}"
    ));
    let manifest = common::root().join(ZOO).join("Cargo.toml");
    let manifest = manifest.to_str().unwrap();
    let arguments = ["check", "--estimate", "--manifest-path", manifest, "--budgets", &budgets];
    common::report(&[&arguments, more].concat())
}
