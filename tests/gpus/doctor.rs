//! `cargo vram doctor` on machines with and without a GPU.

use std::process::Output;

use serde_json::Value;

use super::faults::fake;
use super::{assert_exit, on, said};
use crate::common;
use crate::common::gpu::{self, GpuFolder, builtin, gpu_folder};

fn doctor(gpu: &GpuFolder) -> Output {
    on(gpu, &["doctor", "-p", "zoo"])
}

#[test]
fn the_doctor_finds_nothing_wrong_with_a_gpu_that_works() {
    let gpu = gpu_folder(&builtin("h200"));
    let output = doctor(&gpu);
    assert_exit(&output, 0);
    let said = said(&output);
    for line in [
        "pass  host: ",
        "pass  rustc",
        "pass  cargo",
        "pass  virtual driver: ",
        "pass  NVIDIA device node: ",
        "pass  CUDA driver: ",
        "for CUDA 13.0",
        "pass  NVRTC: ",
        "version 13.0",
        "pass  CUDA headers: ",
        "pass  GPU 0: NVIDIA H200, GPU-7672616d-0000-0001-0000-000000000000, 139.80 GiB, compute capability 9.0, profile `h200`",
        "pass  kernel: compiled, and ran on GPU 0",
        "pass  NVML: ",
        "driver 580.82.07, lists processes (0 now)",
        "pass  GPU 0: 139.80 GiB of 139.80 GiB free",
        "Burn 0.21.0, fusion on, autotune on",
        "pass  autotune of your own runs: ",
        "pass  disk: ",
    ] {
        assert!(said.contains(line), "{line}\n{said}");
    }
    assert!(!said.contains("warn  ") && !said.contains("fail  "), "{said}");
}

#[test]
fn the_doctor_warns_of_what_makes_a_measurement_worse() {
    let total = 24_u64 << 30;
    for (config, line) in [
        (
            format!("total={total}\nnvml_idle={}\n", total / 2 + 1),
            "warn  GPU 0: 12.00 GiB of 24.00 GiB free",
        ),
        ("nvml_processes=refused\n".to_owned(), "it does not list processes here"),
        ("nvml_init=9\n".to_owned(), "warn  NVML: "),
        ("nvml_memory=15\n".to_owned(), "warn  NVML: "),
        (
            "driver_version=11080\nnvrtc_version=11.8\n".to_owned(),
            "warn  CUDA driver: ",
        ),
        (
            "name=Lab GPU\n".to_owned(),
            "profile `lab-gpu`, from the driver's report",
        ),
    ] {
        let gpu = gpu_folder(&(builtin("l4") + &config));
        let output = doctor(&gpu);
        let said = said(&output);
        assert!(
            said.contains(line) && said.contains("help: "),
            "{config}: {line}\n{said}"
        );
        assert!(!said.contains("fail  "), "{config}\n{said}");
        assert_exit(&output, 0);
    }
}

#[test]
fn the_doctor_tells_a_compiler_that_is_too_new_for_the_driver() {
    let gpu = gpu_folder(&(builtin("l4") + "driver_version=12090\n"));
    let output = doctor(&gpu);
    assert_exit(&output, 101);
    let said = said(&output);
    assert!(
        said.contains("warn  NVRTC: ") && said.contains("CUDA_ERROR_UNSUPPORTED_PTX_VERSION (222)"),
        "{said}"
    );
    assert!(said.contains("help: install a newer driver, or NVRTC of"), "{said}");
}

#[test]
fn the_doctor_fails_where_a_gpu_cannot_be_used() {
    let gpu = gpu_folder(&builtin("l4"));
    std::fs::remove_file(gpu.toolkit().join("include/cuda_fp16.h")).unwrap();
    for name in ["libnvrtc.so", "libnvrtc.so.13"] {
        std::fs::remove_file(gpu.path.join(name)).unwrap();
        // A file that cannot be loaded as a library, so that the tool does not find a real NVRTC instead.
        std::fs::copy(env!("CARGO_BIN_EXE_cargo-vram"), gpu.path.join(name)).unwrap();
    }
    let output = doctor(&gpu);
    assert_exit(&output, 101);
    let text = said(&output);
    assert!(
        text.contains("fail  NVRTC: ") && text.contains("kernels cannot be compiled"),
        "{text}"
    );
    assert!(text.contains("has no cuda_fp16.h"), "{text}");
    assert!(text.contains("pass  GPU 0: NVIDIA L4"), "{text}");

    for (fault, line) in [
        (
            "mismatch",
            "fail  CUDA driver: the CUDA driver does not match NVIDIA's kernel module",
        ),
        ("no_device", "fail  CUDA driver: the CUDA driver finds no GPU"),
    ] {
        let folder = fake(fault);
        let mut command = common::vram(&["doctor", "-p", "zoo"]);
        gpu::show(&mut command, folder.path());
        let output = command.output().unwrap();
        assert_exit(&output, 101);
        let said = said(&output);
        assert!(said.contains(line), "{said}");
        // The checks without a GPU are printed too.
        assert!(said.contains("Burn 0.21.0"), "{said}");
    }
}

#[test]
fn without_a_gpu_nothing_of_it_can_fail() {
    let mut command = common::vram(&["doctor", "-p", "zoo"]);
    gpu::hide(&mut command);
    // Without a device node, the doctor ignores a broken driver.
    let broken = fake("aborts");
    let output = command.env("LD_LIBRARY_PATH", broken.path()).output().unwrap();
    assert_exit(&output, 0);
    let said = said(&output);
    assert!(said.contains("pass  GPU: none (not needed for estimates)"), "{said}");
    assert!(
        said.contains("not needed for estimates") && !said.contains("fail  "),
        "{said}"
    );
}

#[test]
fn the_doctor_tells_programs_each_check_by_its_name() {
    let gpu = gpu_folder(&(builtin("l4") + "nvml_processes=refused\n"));
    let output = on(&gpu, &["doctor", "-p", "zoo", "--message-format", "json"]);
    assert_exit(&output, 0);
    let checks: Value = serde_json::from_slice(&output.stdout).unwrap();
    let checks = checks.as_array().unwrap();
    let names: Vec<_> = checks.iter().map(|check| check["name"].as_str().unwrap()).collect();
    let expected = [
        "host",
        "rustc",
        "cargo",
        "virtual-driver",
        "device-node",
        "cuda-driver",
        "nvrtc",
        "cuda-headers",
        "libdevice",
        "gpu",
        "kernel",
        "nvml",
        "free-memory",
        "workspace",
        "budgets",
        "models",
        "autotune",
        "disk",
    ];
    assert_eq!(names, expected);
    for check in checks {
        assert!(!check["what"].as_str().unwrap().is_empty(), "{check}");
        // Each check that does not pass has a fix.
        assert_eq!(check["status"] == "pass", check["fix"].is_null(), "{check}");
    }
    let nvml = &checks[11];
    assert_eq!(nvml["status"], "warn", "{nvml}");
    assert!(
        nvml["fix"]
            .as_str()
            .unwrap()
            .contains("let no other process use the GPU"),
        "{nvml}"
    );
}

#[test]
fn a_quiet_doctor_names_only_what_is_wrong() {
    let gpu = gpu_folder(&builtin("l4"));
    let output = on(&gpu, &["doctor", "-p", "zoo", "-q"]);
    assert_exit(&output, 0);
    assert_eq!(said(&output), "");
    gpu.configure(&(builtin("l4") + "nvml_processes=refused\n"));
    let output = on(&gpu, &["doctor", "-p", "zoo", "-q"]);
    assert_exit(&output, 0);
    let said = said(&output);
    assert!(
        said.starts_with("warn  NVML: ") && said.contains("      help: ") && said.lines().count() == 2,
        "{said}"
    );
}
