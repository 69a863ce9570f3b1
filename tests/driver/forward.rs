//! The driver that forwards calls to a real one: it forwards all calls unchanged, counts them, and records the same as
//! a virtual GPU with the same answers.

use std::path::{Path, PathBuf};
use std::sync::OnceLock;

use super::scenario::{AVAILABLE, Line, Ran, Setup, named};
use crate::driver_support;
use crate::driver_support::posing;

const GIB: u64 = 1 << 30;

/// A "real" driver that has only a few functions.
fn echo() -> &'static Path {
    static ECHO: OnceLock<PathBuf> = OnceLock::new();
    ECHO.get_or_init(|| {
        let library = posing::folder().join("libecho.so");
        let source = driver_support::root().join("fixtures/driver-tests/echo.rs");
        posing::compile(&source, &[], &library);
        library
    })
}

fn forwarded_to_echo() -> Setup {
    Setup::new().forwarded_to(echo(), echo())
}

/// The lines that must be equal in both modes.
fn comparable(lines: &[Line]) -> Vec<String> {
    let of_one_way = ["start", "real", "nvrtc", "device", "unsupported"];
    let both = lines.iter().filter(|line| !of_one_way.contains(&line.event.as_str()));
    both.map(Line::comparable).collect()
}

fn assert_agree(setup: impl Fn() -> Setup, scenario: &str) {
    let (here, there) = (setup().passes(scenario), setup().forwarded().passes(scenario));
    let (virtually, forwarded) = (comparable(&here.lines), comparable(&there.lines));
    for (number, (left, right)) in virtually.iter().zip(&forwarded).enumerate() {
        assert_eq!(left, right, "line {number} of {scenario}");
    }
    assert_eq!(virtually.len(), forwarded.len(), "{scenario}");
    assert_eq!(there.lines[0].text("mode"), "forward");
}

#[test]
fn a_forwarded_scenario_has_the_record_of_a_virtual_one() {
    for scenario in [
        "limit",
        "past-the-limit",
        "reuse",
        "both-kinds",
        "bad-pointers",
        "many",
        "pinned",
        "copies",
        "release",
        "streams-and-events",
        "unknown-function",
        "proc-address",
        "launch-limits",
        "shared-memory",
        "many-launches",
        "refused-kernel",
        "compiler",
        "newer-target",
        "tensor-maps-refused",
        "codes",
    ] {
        assert_agree(Setup::new, scenario);
    }
    assert_agree(|| Setup::of_capability((9, 0)), "tensor-maps-checked");
    assert_agree(|| Setup::new().with_gpu("devices=2"), "second-device");
}

#[test]
fn threads_are_counted_together() {
    let ran = Setup::new().forwarded().passes("threads");
    assert_eq!((ran.all("alloc").count(), ran.all("free").count()), (4000, 4000));
    assert_eq!(ran.all("free").last().expect("a line").number("reserved"), 0);
    assert_eq!(ran.all("error").filter(|line| line.number("code") == 201).count(), 2);
    let peak = ran.all("alloc").map(|line| line.number("reserved")).max();
    assert_eq!(peak, Some(ran.only("launches").number("reserved_peak")));
}

#[test]
fn a_crash_of_a_forwarded_process_keeps_what_was_recorded() {
    let ran = Setup::new().forwarded().run("abort");
    assert!(!ran.output.status.success());
    assert_eq!(ran.only("alloc").number("bytes"), 1 << 20);
    assert_eq!(ran.all("end").count(), 0);
}

#[test]
fn the_record_says_which_libraries_and_which_gpu() {
    let ran = Setup::new().forwarded().passes("refused-kernel");
    let order: Vec<&str> = ran.lines.iter().map(|line| line.event.as_str()).take(4).collect();
    assert_eq!(order, ["start", "real", "device", "context"]);
    let folder = posing::folder().canonicalize().unwrap();
    let path = |name: &str| folder.join(name).display().to_string();
    let (real, nvrtc) = (ran.only("real"), ran.only("nvrtc"));
    assert_eq!(
        (real.text("cuda"), real.text("driver_version")),
        (&*path("libcuda.so.1"), "13000")
    );
    assert_eq!(
        (nvrtc.text("path"), nvrtc.text("version")),
        (&*path("libnvrtc.so.13"), "13.0")
    );
    let device = ran.only("device");
    assert_eq!((device.text("name"), device.text("cc")), ("Test%20GPU", "8.9"));
    assert_eq!((device.number("total"), device.number("sm_count")), (24 * GIB, 58));
    let uuid = device.text("uuid");
    let lengths: Vec<usize> = uuid.split('-').map(str::len).collect();
    assert_eq!(lengths, [3, 8, 4, 4, 4, 12], "{uuid}");
    assert!(uuid.starts_with("GPU-") && uuid[4..].chars().all(|c| c == '-' || c.is_ascii_hexdigit()));
    assert!(
        !ran.lines[0].has("total"),
        "what the GPU has is not what a configuration says"
    );
}

#[test]
fn every_gpu_has_an_identifier_of_its_own() {
    let uuids = |setup: Setup| {
        let ran = setup.with_gpu("devices=2").forwarded().passes("second-device");
        ran.all("device")
            .map(|line| line.text("uuid").to_owned())
            .collect::<Vec<_>>()
    };
    let two = uuids(Setup::new());
    assert_ne!(two[0], two[1]);
    assert_eq!(two, uuids(Setup::new()), "ids are the same in every run");
    let given = "GPU-01234567-89ab-cdef-0123-456789abcdef";
    assert_eq!(uuids(Setup::new().with_gpu(&format!("uuid={given}")))[0], given);
}

#[test]
fn the_context_is_recorded_after_the_real_one_is_there() {
    let ran = Setup::new().forwarded().passes("limit");
    let behind = named(&ran.posing, "context").next().expect("a line");
    assert!(ran.only("context").number("t") >= behind.number("t"));
}

#[test]
fn nothing_but_the_programs_own_calls_reaches_the_gpu() {
    let ran = Setup::new().forwarded().passes("reuse");
    let mut unasked: Vec<_> = named(&ran.posing, "calls")
        .filter(|line| line.number("count") != ran.calls(line.text("function")))
        .map(|line| line.text("function"))
        .collect();
    // The driver's only other calls ask for the version, the device's values, and the device of a thread's context.
    unasked.retain(|name| !name.starts_with("cuDevice"));
    assert_eq!(unasked, ["cuCtxGetDevice", "cuDriverGetVersion"]);
    assert_eq!(
        ran.posing_calls("cuMemGetInfo_v2"),
        1,
        "the driver asks for memory after a refusal"
    );
}

#[test]
fn a_compiler_that_fails_is_quoted() {
    let ran = Setup::new().forwarded().passes("compiler");
    let failures: Vec<_> = ran
        .all("error")
        .filter(|line| line.text("function") == "nvrtcCompileProgram")
        .collect();
    assert_eq!(failures.len(), 5);
    for failure in failures {
        let detail = failure.text("detail");
        assert!(detail.starts_with("nvrtc:%20error:%20invalid%20value"), "{detail}");
        assert_eq!(failure.number("code"), 5);
    }
}

#[test]
fn a_compiler_may_be_used_before_the_driver() {
    let ran = Setup::new().forwarded().passes("compiler-first");
    let order: Vec<&str> = ran.lines.iter().map(|line| line.event.as_str()).take(3).collect();
    assert_eq!(order, ["start", "nvrtc", "real"]);
}

#[test]
fn a_large_gpu_can_be_measured_as_a_smaller_one() {
    let small = || {
        let setup = Setup::new().forwarded().with(&format!("total={}", 8 * GIB));
        setup.with(&format!("available={}", 7 * GIB))
    };
    let ran = small().passes("limit");
    assert_eq!(ran.only("alloc").number("reserved"), 7 * GIB);
    assert_eq!(
        (ran.lines[0].number("total"), ran.lines[0].number("available")),
        (8 * GIB, 7 * GIB)
    );
    assert_eq!(ran.only("device").number("total"), 24 * GIB, "the real total");
    let ran = small().passes("past-the-limit");
    let kinds: Vec<_> = ran.all("refuse").map(|line| line.text("kind")).collect();
    assert_eq!(kinds, ["async", "sync"]);
    for line in ran.all("refuse") {
        assert_eq!((line.number("bytes"), line.number("available")), (7 * GIB + 1, 7 * GIB));
    }
    assert_eq!(
        ran.posing_calls("cuMemAlloc_v2"),
        0,
        "the real driver is not even asked"
    );
    assert_eq!(small().passes("both-kinds").all("refuse").count(), 2);
}

#[test]
fn a_gpu_holds_no_more_than_its_total() {
    let setup = || Setup::new().forwarded().with(&format!("total={}", 8 * GIB));
    for more in ["", "available=9000000000000"] {
        let ran = setup().with(more).passes("past-the-limit");
        assert!(ran.all("refuse").all(|line| line.number("available") == 8 * GIB));
        assert_eq!(ran.all("refuse").count(), 2);
    }
    // A total larger than the real GPU's does not give more memory.
    let ran = Setup::new()
        .forwarded()
        .with("total=9000000000000")
        .passes("past-the-limit");
    assert!(ran.all("refuse").all(|line| line.number("available") == AVAILABLE));
}

#[test]
fn functions_without_an_implementation_reach_the_real_one() {
    let ran = Setup::new().forwarded().passes("unknown-function");
    assert_eq!(ran.all("unsupported").count(), 0);
    let behind: Vec<_> = named(&ran.posing, "unsupported")
        .map(|line| line.text("function"))
        .collect();
    assert_eq!(behind, ["cuGraphCreate"]);
    assert_eq!(ran.calls("cuGraphCreate"), 1);
}

#[test]
fn arguments_arrive_in_registers_and_on_the_stack() {
    let ran = forwarded_to_echo().passes("arguments");
    assert_eq!(ran.calls("cuLinkAddData_v2"), 1);
    assert_eq!(
        ran.only("unsupported").text("function"),
        "cuGraphCreate",
        "the real one has no such function"
    );
    let missing = ran.only("error");
    assert_eq!(
        (missing.text("function"), missing.number("code")),
        ("cuCtxSynchronize", 801)
    );
    assert_eq!(missing.text("detail"), "not_in_the_real_library");
}

#[test]
fn memory_that_nobody_counts_is_not_handed_out() {
    let ran = Setup::new().forwarded().passes("uncounted");
    let refused: Vec<_> = ran.all("unsupported").map(|line| line.text("function")).collect();
    assert_eq!(
        refused,
        ["cuMemAllocManaged", "cuMemAddressReserve", "cuMemMap", "cuMemCreate"]
    );
    assert_eq!(
        named(&ran.posing, "unsupported").count(),
        0,
        "the real driver is not even asked"
    );
}

#[test]
fn a_resolved_function_is_counted_too() {
    let ran = Setup::new().forwarded().passes("proc-address");
    assert_eq!((ran.calls("cuMemAlloc_v2"), ran.posing_calls("cuMemAlloc_v2")), (1, 1));
    assert_eq!(ran.only("alloc").number("bytes"), 512);
}

#[test]
fn a_function_of_no_known_address_is_replaced_where_it_must_be() {
    forwarded_to_echo().passes("hidden-addresses");
}

#[test]
fn memory_that_came_from_nowhere_is_told_when_it_goes() {
    let ran = forwarded_to_echo().passes("unknown-address");
    let error = ran.only("error");
    assert_eq!((error.text("function"), error.number("code")), ("cuMemFree_v2", 0));
    assert_eq!(error.text("detail"), "unknown_address");
    assert_eq!(ran.all("free").count(), 0);
}

#[test]
fn nothing_behind_a_binary_image_is_read() {
    let ran = forwarded_to_echo().passes("binary-image");
    let module = ran.only("module");
    assert_eq!((module.number("ptx"), module.number("functions")), (0, 0));
}

#[test]
fn a_posing_gpu_computes_what_proves_a_gpu() {
    let mut expected = 42_u64;
    for _ in 0..1000 {
        expected = expected
            .wrapping_mul(6_364_136_223_846_793_005)
            .wrapping_add(1_442_695_040_888_963_407);
    }
    let ran = Setup::new().forwarded().passes("proof");
    assert_eq!(ran.stdout(), format!("{expected}\n"));
    let ran = Setup::new().passes("proof");
    assert_eq!(ran.stdout(), "0\n", "the shipped library computes nothing");
}

#[test]
fn two_copies_in_one_process_stay_apart_even_where_one_is_preloaded() {
    let ran = Setup::new().forwarded().preloaded().passes("refused-kernel");
    assert_eq!(
        (ran.calls("cuLaunchKernel"), ran.posing_calls("cuLaunchKernel")),
        (1, 1)
    );
    assert_eq!(
        named(&ran.posing, "start").next().expect("a line").text("mode"),
        "virtual"
    );
    assert_eq!(ran.only("refuse").text("kernel"), "gemm");
}

/// Runs a scenario without a usable driver; returns the run and the loader's error.
fn fails(libcuda: &Path) -> (Ran, String) {
    let ran = Setup::new().forwarded_to(libcuda, libcuda).passes("no-driver");
    let first = ran.all("error").next().expect("a line");
    assert_eq!((first.text("function"), first.number("code")), ("cuInit", 303));
    let detail = first.text("detail").to_owned();
    (ran, detail)
}

#[test]
fn a_library_that_cannot_be_loaded_is_an_error_of_every_call() {
    let (ran, detail) = fails(Path::new("/nowhere/libcuda.so.1"));
    assert!(detail.contains("No%20such%20file"), "{detail}");
    assert_eq!(ran.all("real").count(), 0);
    let compiler = ran.all("error").last().expect("a line");
    assert_eq!(
        (compiler.text("function"), compiler.number("code")),
        ("nvrtcCreateProgram", 11)
    );
    let (_, detail) = fails(&driver_support::root().join("Cargo.toml"));
    assert!(detail.contains("ELF"), "{detail}");
}

#[test]
fn a_library_that_would_forward_to_itself_is_refused() {
    let own = driver_support::library().library;
    assert_eq!(fails(&own).1, "this_library_itself");
    for relative in ["", "libcuda.so.1"] {
        assert_eq!(fails(Path::new(relative)).1, "not_an_absolute_path");
    }
}
