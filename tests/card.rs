//! What is told of the cards of a machine: over a virtual driver that poses as the real one, and over small libraries that
//! each have one fault.
#![cfg(all(feature = "cli", target_os = "linux"))]
#![expect(clippy::unwrap_used, reason = "a test that cannot go on has failed")]

mod common;

use std::path::{Path, PathBuf};
use std::process::{Command, Output};
use std::time::{Duration, Instant};

use cargo_vram::budget::Budgets;
use cargo_vram::driver::{self, DriverLibrary};
use cargo_vram::gpu::{Libraries, Profiles, Survey, SurveyError, survey_within};
use common::card::{self, CardFolder, builtin, card_folder};
use serde_json::Value;

/// Longer than any driver takes that answers.
const PATIENCE: Duration = Duration::from_secs(20);

fn library() -> DriverLibrary {
    let rustc = std::env::var_os("RUSTC").unwrap_or_else(|| "rustc".into());
    driver::build(Path::new(&rustc), None, &common::target_folder()).unwrap()
}

/// `cargo vram`, on a machine with this card.
fn on(card: &CardFolder, arguments: &[&str]) -> Output {
    let mut command = common::vram(arguments);
    card.apply(&mut command);
    command.output().unwrap()
}

fn said(output: &Output) -> String {
    String::from_utf8_lossy(&output.stdout).into_owned() + &String::from_utf8_lossy(&output.stderr)
}

#[track_caller]
fn assert_exit(output: &Output, code: i32) {
    assert_eq!(output.status.code(), Some(code), "{}", said(output));
}

/// A driver of a few functions, with what a test is about switched on by name.
const FAKE: &str = r#"
use std::ffi::{c_char, c_int, c_uint};
#[unsafe(no_mangle)] extern "C" fn cuDriverGetVersion(version: &mut c_int) -> c_uint { *version = 12_040; 0 }
#[unsafe(no_mangle)] extern "C" fn cuInit(_: c_uint) -> c_uint {
    if cfg!(chatters) { println!("nonsense device ordinal=0\n\u{7}"); }
    if cfg!(hangs) { loop { std::thread::park(); } }
    if cfg!(aborts) { eprintln!("driver: assertion failed"); std::process::abort(); }
    if cfg!(exits) { std::process::exit(0); }
    if cfg!(no_device) { 100 } else if cfg!(mismatch) { 803 } else if cfg!(compat) { 804 } else if cfg!(unknown) { 999 } else { 0 }
}
#[cfg(not(lacks))]
#[unsafe(no_mangle)] extern "C" fn cuDeviceGetCount(count: &mut c_int) -> c_uint {
    let visible = std::env::var("CUDA_VISIBLE_DEVICES").ok();
    *count = visible.map_or(1, |visible| visible.split(',').filter(|one| !one.is_empty()).count() as c_int);
    0
}
#[unsafe(no_mangle)] extern "C" fn cuDeviceGet(device: &mut c_int, ordinal: c_int) -> c_uint { *device = ordinal; 0 }
#[unsafe(no_mangle)] unsafe extern "C" fn cuDeviceGetName(name: *mut c_char, room: c_int, _: c_int) -> c_uint {
    // As long as there is room, and no NUL at the end.
    unsafe { std::ptr::write_bytes(name.cast::<u8>(), b'%', room as usize) };
    0
}
#[unsafe(no_mangle)] extern "C" fn cuDeviceGetUuid(id: &mut [u8; 16], device: c_int) -> c_uint { *id = [device as u8; 16]; 0 }
#[cfg(mig)]
#[unsafe(no_mangle)] extern "C" fn cuDeviceGetUuid_v2(id: &mut [u8; 16], _: c_int) -> c_uint { *id = [0xab; 16]; 0 }
#[unsafe(no_mangle)] extern "C" fn cuDeviceTotalMem_v2(bytes: &mut usize, _: c_int) -> c_uint { *bytes = 8 << 30; 0 }
#[unsafe(no_mangle)] extern "C" fn cuDeviceGetAttribute(value: &mut c_int, which: c_int, _: c_int) -> c_uint {
    *value = 7;
    if cfg!(newer) && matches!(which, 13 | 36) { 1 } else { 0 }
}
"#;

/// A folder with such a driver as its only library.
fn fake(fault: &str) -> tempfile::TempDir {
    let folder = tempfile::tempdir().unwrap();
    let source = folder.path().join("fake.rs");
    std::fs::write(&source, FAKE).unwrap();
    card::compile(&source, &folder.path().join("libcuda.so"), &["--cfg", fault]);
    std::fs::create_dir(folder.path().join("dev")).unwrap();
    std::fs::write(folder.path().join("dev/nvidiactl"), "").unwrap();
    folder
}

fn ask(folder: &Path, visible: Option<&str>) -> Result<Survey, SurveyError> {
    let libraries = Libraries {
        libcuda: Some(folder.join("libcuda.so")),
        ..Libraries::default()
    };
    survey_within(PATIENCE, &library().survey, &libraries, None, visible)
}

#[test]
fn a_built_in_card_is_recognised() {
    let card = card_folder(&builtin("h200"));
    let output = on(&card, &["gpus", "--detect"]);
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
    let output = on(&card, &["gpus", "--detect"]);
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

    let output = on(&card, &["gpus", "--detect", "--message-format", "json"]);
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
fn cards_are_detected_outside_of_a_workspace() {
    let card = card_folder(&builtin("t4"));
    let folder = tempfile::tempdir().unwrap();
    let mut command = common::vram(&["gpus", "--detect"]);
    card.apply(&mut command);
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
fn each_fault_of_a_driver_has_its_name() {
    let error = |fault: &str| ask(fake(fault).path(), None).unwrap_err();
    assert!(matches!(error("no_device"), SurveyError::NoCard { .. }));
    assert!(matches!(error("mismatch"), SurveyError::Mismatch { code: 803, .. }));
    assert!(matches!(error("compat"), SurveyError::Mismatch { code: 804, .. }));
    let unknown = error("unknown");
    assert!(
        matches!(&unknown, SurveyError::Refused { code: 999, function, .. } if function == "cuInit"),
        "{unknown}"
    );
    let lacks = error("lacks");
    assert_eq!(
        lacks.to_string(),
        "the CUDA driver (for CUDA 12.4) is too old: it has no cuDeviceGetCount"
    );
    let aborts = error("aborts");
    assert!(
        aborts.to_string().contains("SIGABRT") && aborts.to_string().contains("assertion failed"),
        "{aborts}"
    );
    // It left with exit code 0, and without an answer.
    let exits = error("exits");
    assert!(matches!(exits, SurveyError::Died { .. }), "{exits}");
}

#[test]
fn what_a_driver_prints_is_no_answer() {
    let survey = ask(fake("chatters").path(), None).unwrap();
    assert_eq!(survey.devices.len(), 1);
    // A name without an end is cut, and of percent signs nothing is made.
    assert_eq!(survey.devices[0].name, "%".repeat(255));
    assert_eq!(survey.devices[0].pci, None);
}

#[test]
fn a_driver_that_no_longer_tells_its_clocks_is_asked_for_the_rest() {
    let survey = ask(fake("newer").path(), None).unwrap();
    assert_eq!(survey.devices[0].clock_rate, None);
    assert_eq!(survey.devices[0].sm_count, 7);
    let survey = ask(fake("older").path(), None).unwrap();
    assert_eq!(survey.devices[0].clock_rate, Some(7));
}

#[test]
fn a_slice_of_a_card_has_an_id_of_its_own_kind() {
    let uuid = |fault| ask(fake(fault).path(), None).unwrap().devices[0].uuid.clone();
    assert_eq!(uuid("whole"), "GPU-00000000-0000-0000-0000-000000000000");
    assert_eq!(uuid("mig"), "MIG-abababab-abab-abab-abab-abababababab");
}

#[test]
fn the_cards_that_are_visible_are_those_that_are_told() {
    let folder = fake("whole");
    assert_eq!(ask(folder.path(), Some("0,1,GPU-6f")).unwrap().devices.len(), 3);
    let survey = ask(folder.path(), Some("5,6")).unwrap();
    assert_eq!(
        survey.device(Some("1")).unwrap().uuid,
        "GPU-01010101-0101-0101-0101-010101010101"
    );
    assert!(matches!(ask(folder.path(), Some("")), Err(SurveyError::NoCard { .. })));
}

#[test]
fn a_driver_that_hangs_is_given_up() {
    let folder = fake("hangs");
    let libraries = Libraries {
        libcuda: Some(folder.path().join("libcuda.so")),
        ..Libraries::default()
    };
    let patience = Duration::from_millis(700);
    let program = library().survey;
    let started = Instant::now();
    let error = survey_within(patience, &program, &libraries, None, None).unwrap_err();
    assert!(matches!(error, SurveyError::TimedOut { .. }), "{error}");
    assert!(started.elapsed() < PATIENCE, "{:?}", started.elapsed());
}

#[test]
fn what_is_no_driver_cannot_be_loaded() {
    let folder = tempfile::tempdir().unwrap();
    let libcuda = folder.path().join("libcuda.so");
    std::fs::write(&libcuda, b"\x7fELF and nothing else").unwrap();
    let error = ask(folder.path(), None).unwrap_err();
    assert!(
        matches!(&error, SurveyError::Unloadable { detail, .. } if !detail.is_empty()),
        "{error}"
    );
    std::fs::remove_file(&libcuda).unwrap();
    assert!(matches!(ask(folder.path(), None), Err(SurveyError::Unloadable { .. })));
    // A library, but another one.
    let libc: PathBuf = std::fs::read_to_string("/proc/self/maps")
        .unwrap()
        .lines()
        .find_map(|line| line.split_once('/').filter(|(_, path)| path.contains("libc.so")))
        .map(|(_, path)| format!("/{path}").into())
        .unwrap();
    std::os::unix::fs::symlink(libc, &libcuda).unwrap();
    let error = ask(folder.path(), None).unwrap_err();
    assert!(matches!(&error, SurveyError::TooOld { version: None, .. }), "{error}");
}

#[test]
fn detecting_says_what_to_do_where_no_card_can_be_used() {
    for (fault, hint) in [
        ("mismatch", "reboot"),
        ("no_device", "nvidia-smi -L"),
        ("unknown", "dmesg"),
    ] {
        let folder = fake(fault);
        let mut command = common::vram(&["gpus", "--detect"]);
        card::show(&mut command, folder.path());
        let output = command.output().unwrap();
        assert_exit(&output, 101);
        assert!(said(&output).contains(hint), "{}", said(&output));
        assert!(output.stdout.is_empty());
    }
}

fn doctor(card: &CardFolder) -> Output {
    on(card, &["doctor", "-p", "zoo"])
}

#[test]
fn the_doctor_finds_nothing_wrong_with_a_card_that_works() {
    let card = card_folder(&builtin("h200"));
    let output = doctor(&card);
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
        "pass  kernel: one was compiled, and ran on GPU 0",
        "pass  NVML: ",
        "driver 580.82.07, shows processes (0 now)",
        "pass  GPU 0: 139.80 GiB of 139.80 GiB are free",
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
            "warn  GPU 0: 12.00 GiB of 24.00 GiB are free",
        ),
        ("nvml_processes=refused\n".to_owned(), "it does not show processes here"),
        ("nvml_init=9\n".to_owned(), "warn  NVML: "),
        ("nvml_memory=15\n".to_owned(), "warn  NVML: "),
        (
            "driver_version=11080\nnvrtc_version=11.8\n".to_owned(),
            "warn  CUDA driver: ",
        ),
        (
            "name=Lab card\n".to_owned(),
            "profile `lab-card`, made from its driver's report",
        ),
    ] {
        let card = card_folder(&(builtin("l4") + &config));
        let output = doctor(&card);
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
    let card = card_folder(&(builtin("l4") + "driver_version=12090\n"));
    let output = doctor(&card);
    assert_exit(&output, 101);
    let said = said(&output);
    assert!(
        said.contains("warn  NVRTC: ") && said.contains("CUDA_ERROR_UNSUPPORTED_PTX_VERSION (222)"),
        "{said}"
    );
    assert!(said.contains("NVRTC is newer than the driver: install"), "{said}");
}

#[test]
fn the_doctor_fails_where_a_card_cannot_be_used() {
    let card = card_folder(&builtin("l4"));
    std::fs::remove_file(card.path.join("toolkit/include/cuda_fp16.h")).unwrap();
    for name in ["libnvrtc.so", "libnvrtc.so.13"] {
        std::fs::remove_file(card.path.join(name)).unwrap();
        // One that cannot be loaded, so that no real one takes its place.
        std::fs::copy(env!("CARGO_BIN_EXE_cargo-vram"), card.path.join(name)).unwrap();
    }
    let output = doctor(&card);
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
            "fail  CUDA driver: the CUDA driver does not fit the kernel's",
        ),
        ("no_device", "fail  CUDA driver: the CUDA driver finds no card"),
    ] {
        let folder = fake(fault);
        let mut command = common::vram(&["doctor", "-p", "zoo"]);
        card::show(&mut command, folder.path());
        let output = command.output().unwrap();
        assert_exit(&output, 101);
        let said = said(&output);
        assert!(said.contains(line), "{said}");
        // What has nothing to do with the card is told all the same.
        assert!(said.contains("Burn 0.21.0"), "{said}");
    }
}

#[test]
fn without_a_card_nothing_of_it_can_fail() {
    let mut command = common::vram(&["doctor", "-p", "zoo"]);
    card::hide(&mut command);
    // A driver that does not work is none of its business then.
    let broken = fake("aborts");
    let output = command.env("LD_LIBRARY_PATH", broken.path()).output().unwrap();
    assert_exit(&output, 0);
    let said = said(&output);
    assert!(
        said.contains("pass  GPU: none, and none is needed to estimate"),
        "{said}"
    );
    assert!(
        said.contains("not needed to estimate") && !said.contains("fail  "),
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
