//! Commands that describe the GPUs of a machine, with a virtual driver that poses as a real one, and with small
//! libraries that have one fault each.

mod archive;
mod doctor;
mod faults;

use std::path::Path;
use std::process::{Command, Output};

use cargo_vram::budget::Budgets;
use cargo_vram::driver::{self, DriverLibrary};
use cargo_vram::gpu::Profiles;
use serde_json::Value;

use crate::common;
use crate::common::gpu::{self, GpuFolder, builtin, gpu_folder};
use crate::common::said;

fn library() -> DriverLibrary {
    let rustc = std::env::var_os("RUSTC").unwrap_or_else(|| "rustc".into());
    driver::build(Path::new(&rustc), None, &common::target_folder()).unwrap()
}

/// Runs `cargo vram` as on a machine with this GPU.
fn on(gpu: &GpuFolder, arguments: &[&str]) -> Output {
    let mut command = common::vram(arguments);
    gpu.apply(&mut command);
    command.env("CUDA_PATH", gpu.toolkit());
    command.output().unwrap()
}

/// The configuration of an idle built-in GPU: all its memory is free, except a context of `context` bytes.
fn idle(id: &str, context: u64) -> String {
    let total = Profiles::builtin().unwrap().get(id).unwrap().total.value.0;
    let lines = builtin(id);
    let others = lines.lines().filter(|line| !line.starts_with("available="));
    let others: String = others.map(|line| format!("{line}\n")).collect();
    format!("{others}available={}\n", total - context)
}

/// The size of the context in the profile of a built-in GPU.
fn context(id: &str) -> u64 {
    Profiles::builtin().unwrap().get(id).unwrap().context.value.0
}

#[track_caller]
fn assert_exit(output: &Output, code: i32) {
    assert_eq!(output.status.code(), Some(code), "{}", said(output));
}

#[test]
fn a_built_in_gpu_is_recognised() {
    let gpu = gpu_folder(&idle("h200", context("h200")));
    let output = on(&gpu, &["gpus", "--here"]);
    assert_exit(&output, 0);
    let said = said(&output);
    assert!(said.contains("NVIDIA H200") && said.contains(&gpu::uuid(0)), "{said}");
    assert!(
        said.contains("`gpu: h200` is enough") && !said.contains("gpu_profiles"),
        "{said}"
    );
}

#[test]
fn a_gpu_of_ones_own_is_printed_as_budgets_take_it() {
    let gpu =
        gpu_folder("name=NVIDIA RTX 4000 Ada\ntotal=20000000000\ncc_major=8\ncc_minor=9\nsm_count=48\ndevices=2\n");
    let output = on(&gpu, &["gpus", "--here"]);
    assert_exit(&output, 0);
    let text = String::from_utf8(output.stdout).unwrap();
    let profiles = Profiles::builtin().unwrap();
    let known: Vec<_> = profiles.ids().collect();
    let file = format!("version: 1\ngpu: rtx-4000-ada\nmodels: {{}}\n{text}");
    let budgets = Budgets::parse(file.as_bytes(), "budgets.yaml", &known).unwrap_or_else(|e| panic!("{e:?}\n{file}"));
    let entry = &budgets.gpu_profiles["rtx-4000-ada"];
    assert_eq!(entry.total.as_ref().unwrap().value.0, 20_000_000_000);
    assert_eq!(entry.sm_count.as_ref().unwrap().value, 48);
    assert_eq!(entry.name.as_ref().unwrap().value, "NVIDIA RTX 4000 Ada");
    assert_eq!(entry.context, None, "a context that was not measured is not printed");

    let output = on(&gpu, &["gpus", "--here", "--message-format", "json"]);
    assert_exit(&output, 0);
    let document: Value = serde_json::from_slice(&output.stdout).unwrap();
    assert_eq!(document["driver"]["version"], "13.0");
    let devices = document["devices"].as_array().unwrap();
    assert_eq!(devices.len(), 2);
    assert_eq!(devices[1]["uuid"], gpu::uuid(1));
    assert_eq!(
        devices[1]["profile"]["total_bytes"]["source"],
        "reported by the GPU's driver"
    );
    assert_eq!(devices[0]["entry"]["like"], "l4");
    assert_eq!(devices[0]["built_in"], Value::Null);
}

#[test]
fn the_context_of_a_gpu_is_measured_where_nobody_else_uses_it() {
    let lines = idle("l4", 201 << 20);
    let gpu = gpu_folder(&lines);
    // `--detect` is the old name of `--here`.
    for option in ["--here", "--detect"] {
        let output = on(&gpu, &["gpus", option]);
        assert_exit(&output, 0);
        let text = String::from_utf8(output.stdout).unwrap();
        assert!(text.contains("    context: 210763776 B\n"), "{text}");
        assert!(!text.contains("not measured"), "{text}");
    }
    gpu.configure(&format!("{lines}nvml_other=4711:1000000\n"));
    let output = on(&gpu, &["gpus", "--here"]);
    assert_exit(&output, 0);
    let text = String::from_utf8(output.stdout).unwrap();
    assert!(
        text.contains("the context was not measured: process 4711 uses the GPU"),
        "{text}"
    );
    assert!(!text.contains("    context: "), "{text}");
    // Memory of a process that NVML does not show.
    gpu.configure(&idle("l4", 2 << 30));
    let output = on(&gpu, &["gpus", "--here"]);
    assert_exit(&output, 0);
    assert!(
        said(&output).contains("2 GiB are in use with one context, but about 174 MiB were expected"),
        "{}",
        said(&output)
    );
    gpu.configure(&format!("{lines}nvml_processes=refused\n"));
    let output = on(&gpu, &["gpus", "--here"]);
    assert_exit(&output, 0);
    assert!(said(&output).contains("NVML does not list"), "{}", said(&output));
}

#[test]
fn gpus_are_detected_outside_of_a_workspace() {
    let gpu = gpu_folder(&idle("t4", context("t4")));
    let folder = tempfile::tempdir().unwrap();
    let mut command = common::vram(&["gpus", "--here"]);
    gpu.apply(&mut command);
    command.env("CUDA_PATH", gpu.toolkit());
    let output = command.current_dir(folder.path()).output().unwrap();
    assert_exit(&output, 0);
    assert!(said(&output).contains("`gpu: t4` is enough"), "{}", said(&output));
    assert_eq!(
        std::fs::read_dir(folder.path()).unwrap().count(),
        0,
        "the command leaves no file"
    );
}

#[test]
fn a_kernel_proves_that_a_gpu_computes() {
    // The survey program runs directly here, because it needs the posing driver's configuration in its environment.
    let gpu = gpu_folder(&builtin("l4"));
    let run = |libcuda: &Path, seed: &str| {
        let mut command = Command::new(library().survey);
        gpu.apply(&mut command);
        command.env("CUDA_PATH", gpu.toolkit());
        let libnvrtc = gpu.path.join("libnvrtc.so.13");
        command.args([Path::new("--libcuda"), libcuda, Path::new("--libnvrtc"), &libnvrtc]);
        let output = command.args(["--proof", seed]).output().unwrap();
        assert_exit(&output, 0);
        String::from_utf8(output.stdout).unwrap()
    };
    let proof = |text: &str| {
        let line = text
            .lines()
            .find(|line| line.starts_with("proof "))
            .unwrap_or_else(|| panic!("{text}"));
        let value = |key: &str| {
            line.split(' ')
                .find_map(|word| word.strip_prefix(key))
                .unwrap()
                .to_owned()
        };
        (value("seed="), value("expected="), value("computed="))
    };
    let text = run(&gpu.path.join("libcuda.so.1"), "18446744073709551615");
    let (seed, expected, computed) = proof(&text);
    assert_eq!(
        (seed.as_str(), &expected),
        ("18446744073709551615", &computed),
        "{text}"
    );
    assert!(
        text.contains("context ordinal=0 free=") && text.contains("nvrtc version=13.0"),
        "{text}"
    );
    let another = proof(&run(&gpu.path.join("libcuda.so.1"), "1"));
    assert_ne!(another.2, computed);
}

#[test]
fn a_driver_that_runs_no_kernels_is_no_gpu() {
    // The virtual driver of estimates: every call succeeds, but no kernel computes.
    let folder = tempfile::tempdir().unwrap();
    let config = folder.path().join("config");
    std::fs::write(&config, "mode=virtual\nrecord=/dev/null\n").unwrap();
    let library = library();
    let libcuda = folder.path().join("libcuda.so");
    std::fs::copy(&library.library, &libcuda).unwrap();
    let gpu = gpu_folder("");
    let mut command = common::vram(&["doctor", "-p", "zoo"]);
    gpu.apply(&mut command);
    command.env("CUDA_PATH", gpu.toolkit());
    let search = format!("{}:{}", folder.path().display(), gpu.path.display());
    let output = command
        .env("LD_LIBRARY_PATH", search)
        .env(driver::CONFIG_VARIABLE, &config)
        .output()
        .unwrap();
    assert_exit(&output, 101);
    let said = said(&output);
    assert!(
        said.contains("fail  kernel: cannot run on GPU 0: a test kernel computed 0, expected"),
        "{said}"
    );
}

#[test]
fn the_surveys_source_passes_clippy() {
    let mut clippy = Command::new("clippy-driver");
    if clippy.arg("--version").output().is_err() {
        println!("skipped: clippy is not installed");
        return;
    }
    let folder = tempfile::tempdir().unwrap();
    let output = Command::new("clippy-driver")
        .args(["--crate-type", "bin", "--edition", "2024", "-D", "warnings", "-o"])
        .args([
            folder.path().join("survey"),
            common::root().join("src/driver/source/survey.rs"),
        ])
        .output()
        .unwrap();
    assert!(output.status.success(), "{}", said(&output));
}
