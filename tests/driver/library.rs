//! Compiles the driver.

use std::path::Path;
use std::process::Command;

use cargo_vram::driver::{self, DriverError};

use crate::driver_support;

#[test]
fn the_driver_is_compiled_once() {
    let built = driver_support::library();
    let modified = || {
        std::fs::metadata(&built.library)
            .and_then(|file| file.modified())
            .unwrap()
    };
    let before = modified();
    assert_eq!(driver_support::library(), built);
    assert_eq!(modified(), before);
}

#[test]
fn two_processes_may_build_the_driver_at_once() {
    let folder = tempfile::tempdir().unwrap();
    let build = || driver::build(&driver_support::rustc(), None, folder.path()).unwrap();
    let libraries: Vec<_> = std::thread::scope(|scope| {
        let threads: Vec<_> = (0..2).map(|_| scope.spawn(build)).collect();
        threads.into_iter().map(|thread| thread.join().unwrap()).collect()
    });
    assert_eq!(libraries[0], libraries[1]);
}

#[test]
fn a_target_that_models_do_not_run_on_is_named() {
    let folder = tempfile::tempdir().unwrap();
    let rustc = driver_support::rustc();
    let error = driver::build(&rustc, Some("aarch64-apple-darwin"), folder.path()).unwrap_err();
    assert!(matches!(error, DriverError::UnsupportedHost { target } if target.contains("darwin")));
    let missing = Path::new("/nowhere/rustc");
    let error = driver::build(missing, None, folder.path()).unwrap_err();
    assert!(matches!(error, DriverError::Rustc { .. }));
}

#[test]
fn the_drivers_source_passes_clippy() {
    if Command::new("clippy-driver").arg("--version").output().is_err() {
        return;
    }
    for cfg in [&[][..], &["--cfg", "posing"]] {
        let out = tempfile::tempdir().unwrap();
        let output = Command::new("clippy-driver")
            .args(["--crate-type", "cdylib", "--crate-name", "cargo_vram_driver"])
            .args([
                "--edition",
                "2024",
                "-C",
                "panic=abort",
                "--emit=metadata",
                "-Dwarnings",
            ])
            .args(["--check-cfg", "cfg(posing)"])
            .args(cfg)
            .arg("--out-dir")
            .arg(out.path())
            .arg(driver_support::root().join("src/driver/source/lib.rs"))
            .output()
            .unwrap();
        assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    }
}
