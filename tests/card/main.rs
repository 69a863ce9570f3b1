//! What is told of the cards of a machine: over a virtual driver that poses as the real one, and over small libraries that
//! each have one fault.
#![cfg(all(feature = "cli", target_os = "linux"))]
#![expect(clippy::unwrap_used, reason = "a test that cannot go on has failed")]

mod archive;
#[path = "../archive_support/mod.rs"]
mod archive_support;
#[path = "../common/mod.rs"]
mod common;
mod doctor;
mod faults;

use std::path::Path;
use std::process::{Command, Output};

use cargo_vram::budget::Budgets;
use cargo_vram::driver::{self, DriverLibrary};
use cargo_vram::gpu::Profiles;
use common::card::{self, CardFolder, builtin, card_folder};
use common::said;
use serde_json::Value;

fn library() -> DriverLibrary {
    let rustc = std::env::var_os("RUSTC").unwrap_or_else(|| "rustc".into());
    driver::build(Path::new(&rustc), None, &common::target_folder()).unwrap()
}

/// `cargo vram`, on a machine with this card.
fn on(card: &CardFolder, arguments: &[&str]) -> Output {
    let mut command = common::vram(arguments);
    card.apply(&mut command);
    command.env("CUDA_PATH", card.toolkit());
    command.output().unwrap()
}

/// The configuration of a built-in card on which nothing was loaded yet: beside a context of this size, all of it is free.
fn idle(id: &str, context: u64) -> String {
    let total = Profiles::builtin().unwrap().get(id).unwrap().total.value.0;
    let lines = builtin(id);
    let others = lines.lines().filter(|line| !line.starts_with("available="));
    let others: String = others.map(|line| format!("{line}\n")).collect();
    format!("{others}available={}\n", total - context)
}

/// What the profile of a built-in card says of its context.
fn context(id: &str) -> u64 {
    Profiles::builtin().unwrap().get(id).unwrap().context.value.0
}

#[track_caller]
fn assert_exit(output: &Output, code: i32) {
    assert_eq!(output.status.code(), Some(code), "{}", said(output));
}

#[test]
fn a_built_in_card_is_recognised() {
    let card = card_folder(&idle("h200", context("h200")));
    let output = on(&card, &["gpus", "--here"]);
    assert_exit(&output, 0);
    let said = said(&output);
    assert!(said.contains("NVIDIA H200") && said.contains(&card::uuid(0)), "{said}");
    assert!(
        said.contains("`gpu: h200` is enough") && !said.contains("gpu_profiles"),
        "{said}"
    );
}

#[test]
fn a_card_of_ones_own_is_printed_as_budgets_take_it() {
    let card =
        card_folder("name=NVIDIA RTX 4000 Ada\ntotal=20000000000\ncc_major=8\ncc_minor=9\nsm_count=48\ndevices=2\n");
    let output = on(&card, &["gpus", "--here"]);
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
    assert_eq!(entry.context, None, "what nobody measured is not stated");

    let output = on(&card, &["gpus", "--here", "--message-format", "json"]);
    assert_exit(&output, 0);
    let document: Value = serde_json::from_slice(&output.stdout).unwrap();
    assert_eq!(document["driver"]["version"], "13.0");
    let devices = document["devices"].as_array().unwrap();
    assert_eq!(devices.len(), 2);
    assert_eq!(devices[1]["uuid"], card::uuid(1));
    assert_eq!(
        devices[1]["profile"]["total_bytes"]["source"],
        "as its driver reports it"
    );
    assert_eq!(devices[0]["entry"]["like"], "l4");
    assert_eq!(devices[0]["built_in"], Value::Null);
}

#[test]
fn the_context_of_a_card_is_measured_where_nobody_else_uses_it() {
    let lines = idle("l4", 201 << 20);
    let card = card_folder(&lines);
    // As it was called before.
    for option in ["--here", "--detect"] {
        let output = on(&card, &["gpus", option]);
        assert_exit(&output, 0);
        let text = String::from_utf8(output.stdout).unwrap();
        assert!(text.contains("    context: 210763776 B\n"), "{text}");
        assert!(!text.contains("not measured"), "{text}");
    }
    card.configure(&format!("{lines}nvml_other=4711:1000000\n"));
    let output = on(&card, &["gpus", "--here"]);
    assert_exit(&output, 0);
    let text = String::from_utf8(output.stdout).unwrap();
    assert!(
        text.contains("the context was not measured: process 4711 uses the GPU"),
        "{text}"
    );
    assert!(!text.contains("    context: "), "{text}");
    // A process that NVML does not show.
    card.configure(&idle("l4", 2 << 30));
    let output = on(&card, &["gpus", "--here"]);
    assert_exit(&output, 0);
    assert!(
        said(&output).contains("2 GiB are in use beside one, where about 174 MiB were expected"),
        "{}",
        said(&output)
    );
    card.configure(&format!("{lines}nvml_processes=refused\n"));
    let output = on(&card, &["gpus", "--here"]);
    assert_exit(&output, 0);
    assert!(said(&output).contains("NVML does not list"), "{}", said(&output));
}

#[test]
fn cards_are_detected_outside_of_a_workspace() {
    let card = card_folder(&idle("t4", context("t4")));
    let folder = tempfile::tempdir().unwrap();
    let mut command = common::vram(&["gpus", "--here"]);
    card.apply(&mut command);
    command.env("CUDA_PATH", card.toolkit());
    let output = command.current_dir(folder.path()).output().unwrap();
    assert_exit(&output, 0);
    assert!(said(&output).contains("`gpu: t4` is enough"), "{}", said(&output));
    assert_eq!(
        std::fs::read_dir(folder.path()).unwrap().count(),
        0,
        "nothing is left there"
    );
}

#[test]
fn a_kernel_proves_that_a_card_computes() {
    // The survey takes the posing driver's configuration from the environment, so it is run by hand here.
    let card = card_folder(&builtin("l4"));
    let run = |libcuda: &Path, seed: &str| {
        let mut command = Command::new(library().survey);
        card.apply(&mut command);
        command.env("CUDA_PATH", card.toolkit());
        let libnvrtc = card.path.join("libnvrtc.so.13");
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
    let text = run(&card.path.join("libcuda.so.1"), "18446744073709551615");
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
    let another = proof(&run(&card.path.join("libcuda.so.1"), "1"));
    assert_ne!(another.2, computed);
}

#[test]
fn a_driver_that_runs_no_kernels_is_no_card() {
    // The virtual driver as it is shipped: everything succeeds, and nothing is computed.
    let folder = tempfile::tempdir().unwrap();
    let config = folder.path().join("config");
    std::fs::write(&config, "mode=virtual\nrecord=/dev/null\n").unwrap();
    let library = library();
    let libcuda = folder.path().join("libcuda.so");
    std::fs::copy(&library.library, &libcuda).unwrap();
    let card = card_folder("");
    let mut command = common::vram(&["doctor", "-p", "zoo"]);
    card.apply(&mut command);
    command.env("CUDA_PATH", card.toolkit());
    let search = format!("{}:{}", folder.path().display(), card.path.display());
    let output = command
        .env("LD_LIBRARY_PATH", search)
        .env(driver::CONFIG_VARIABLE, &config)
        .output()
        .unwrap();
    assert_exit(&output, 101);
    let said = said(&output);
    assert!(
        said.contains("fail  kernel: none ran on GPU 0: a kernel computed 0, and should have"),
        "{said}"
    );
}

#[test]
fn the_surveys_source_passes_clippy() {
    let mut clippy = Command::new("clippy-driver");
    if clippy.arg("--version").output().is_err() {
        println!("clippy is not here: not tried");
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
