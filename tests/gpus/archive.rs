//! Archives on a machine that has a GPU, but neither Rust nor a workspace.

use std::path::PathBuf;
use std::process::Output;

use super::{assert_exit, library, said};
use crate::archive_support::{Small, model, tiny};
use crate::common;
use crate::common::gpu::{self, GpuFolder, builtin, gpu_folder};

/// Packs an archive of two models; returns its temporary folder and its path.
fn packed() -> (Small, PathBuf) {
    let small = Small::new(model()).with_driver(&library());
    let file = small.folder.path().join("small.tar.zst");
    small.pack(&file).unwrap();
    (small, file)
}

/// Runs `cargo vram` with an archive in an empty folder, without Rust. Asserts that it leaves no file there.
fn without_rust(gpu: Option<&GpuFolder>, arguments: &[&str], file: &std::path::Path) -> Output {
    let elsewhere = tempfile::tempdir().unwrap();
    let mut command = common::vram(arguments);
    match gpu {
        Some(gpu) => {
            gpu.apply(&mut command);
            command.env("CUDA_PATH", gpu.toolkit());
        }
        None => gpu::hide(&mut command),
    }
    let output = command
        .arg("--archive-file")
        .arg(file)
        .current_dir(elsewhere.path())
        .env("PATH", "/nonexistent")
        .env("RUSTC", "/nonexistent")
        .env_remove("CARGO")
        .output()
        .unwrap();
    let left: Vec<_> = std::fs::read_dir(elsewhere.path()).unwrap().collect();
    assert!(left.is_empty(), "{left:?}");
    output
}

#[test]
fn the_doctor_looks_at_a_gpu_without_rust() {
    let (_small, file) = packed();
    let gpu = gpu_folder(&builtin("h200"));
    let output = without_rust(Some(&gpu), &["doctor"], &file);
    assert_exit(&output, 0);
    let said = said(&output);
    for line in [
        "pass  rustc: not needed with an archive",
        "pass  cargo: not needed with an archive",
        "pass  virtual driver: from the archive",
        "pass  CUDA driver: ",
        "profile `h200`",
        "pass  kernel: compiled, and ran on GPU 0",
        "pass  NVML: ",
        "built from commit 0123456789abcdef, with uncommitted changes, with alpha, beta",
        "pass  budgets.yaml: 0 budgets",
    ] {
        assert!(said.contains(line), "{line}\n{said}");
    }
    for elsewhere in ["workspace", "disk", "autotune", "fail  ", "warn  "] {
        assert!(!said.contains(elsewhere), "{elsewhere}\n{said}");
    }
    let output = without_rust(None, &["doctor", "--message-format", "json"], &file);
    assert_exit(&output, 0);
    let checks: serde_json::Value = serde_json::from_slice(&output.stdout).unwrap();
    assert_eq!(checks[1]["name"], "rustc");
    assert_eq!(checks[1]["what"], "rustc: not needed with an archive");
}

#[test]
fn the_gpus_of_a_machine_are_detected_without_rust() {
    let (_small, file) = packed();
    let gpu = gpu_folder(&super::idle("t4", super::context("t4")));
    let output = without_rust(Some(&gpu), &["gpus", "--here"], &file);
    assert_exit(&output, 0);
    assert!(said(&output).contains("`gpu: t4` is enough"), "{}", said(&output));
    let output = without_rust(Some(&gpu), &["gpus"], &file);
    assert_exit(&output, 2);
    assert!(said(&output).contains("--here"), "{}", said(&output));
}

#[test]
fn the_models_of_an_archive_are_listed_and_none_of_its_programs_is_run() {
    let (_small, file) = packed();
    // An archive whose program does not list its models.
    let mut silent = Small::new(tiny());
    silent.models = vec!["gamma", "delta"];
    let other = silent.folder.path().join("other.tar.zst");
    silent.pack(&other).unwrap();
    for (file, names) in [(&file, ["alpha", "beta"]), (&other, ["gamma", "delta"])] {
        let output = without_rust(None, &["list", "--message-format", "json"], file);
        assert_exit(&output, 0);
        let models: serde_json::Value = serde_json::from_slice(&output.stdout).unwrap();
        assert_eq!(
            (&models[0]["model"], &models[1]["model"]),
            (&names[0].into(), &names[1].into())
        );
        assert_eq!(
            (&models[0]["package"], &models[0]["burn"]),
            (&"small".into(), &"0.21.0".into())
        );
        assert_eq!(
            (&models[0]["task"], &models[1]["task"]),
            (&"train".into(), &"infer".into())
        );
    }
    let output = without_rust(None, &["list", "-p", "smal"], &other);
    assert_exit(&output, 2);
    assert!(said(&output).contains("no package `smal`"), "{}", said(&output));
}

#[test]
fn what_is_no_archive_is_refused_whoever_asks() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("small.tar.zst");
    std::fs::write(&file, "text").unwrap();
    for arguments in [&["doctor"][..], &["gpus", "--here"], &["list"]] {
        let output = without_rust(None, arguments, &file);
        assert_exit(&output, 2);
        assert!(said(&output).contains("archive::not_zstd"), "{}", said(&output));
    }
}
