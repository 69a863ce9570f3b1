//! The virtual CUDA driver, driven through the bindings that Burn uses. Each scenario is a process
//! of `fixtures/driver-tests`, which checks every answer; here its exit and its record are checked.
#![cfg(all(feature = "cli", target_os = "linux"))]

mod driver_support;

use std::collections::HashMap;
use std::os::unix::process::ExitStatusExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};
use std::sync::OnceLock;

use cargo_vram::driver::{self, CONFIG_VARIABLE, DriverError};

const TOTAL: u64 = 24 << 30;
const AVAILABLE: u64 = 23 << 30;

/// The binary with the scenarios, built once.
fn binary() -> &'static Path {
    static BINARY: OnceLock<PathBuf> = OnceLock::new();
    BINARY.get_or_init(|| {
        let built = Command::new(env!("CARGO"))
            .args(["build", "--quiet", "--package", "driver-tests", "--message-format=json"])
            .arg("--target-dir")
            .arg(driver_support::target_dir())
            .current_dir(driver_support::root())
            .stderr(Stdio::inherit())
            .output()
            .expect("cargo runs");
        assert!(built.status.success());
        let executable = cargo_metadata::Message::parse_stream(built.stdout.as_slice())
            .filter_map(Result::ok)
            .find_map(|message| match message {
                cargo_metadata::Message::CompilerArtifact(artifact) => artifact.executable,
                _ => None,
            });
        executable.expect("a binary").into_std_path_buf()
    })
}

struct Ran {
    output: Output,
    lines: Vec<Line>,
}

/// A line of the record.
struct Line {
    event: String,
    fields: HashMap<String, String>,
}

impl Line {
    fn parse(line: &str) -> Self {
        let mut words = line.split(' ');
        let event = words.next().expect("an event").to_owned();
        let field = |word: &str| {
            let (key, value) = word.split_once('=').expect("key=value");
            (key.to_owned(), value.to_owned())
        };
        Self {
            event,
            fields: words.map(field).collect(),
        }
    }

    fn text(&self, key: &str) -> &str {
        self.fields
            .get(key)
            .unwrap_or_else(|| panic!("no {key} in a line of {}", self.event))
    }

    fn number(&self, key: &str) -> u64 {
        self.text(key).parse().expect("a number")
    }
}

impl Ran {
    fn all(&self, event: &'static str) -> impl Iterator<Item = &Line> {
        self.lines.iter().filter(move |line| line.event == event)
    }

    fn only(&self, event: &'static str) -> &Line {
        let mut lines = self.all(event);
        let line = lines.next().unwrap_or_else(|| panic!("no {event} in the record"));
        assert!(lines.next().is_none(), "more than one {event} in the record");
        line
    }

    fn stdout(&self) -> String {
        String::from_utf8_lossy(&self.output.stdout).into_owned()
    }
}

/// Runs a scenario on a card of a compute capability and asserts that it passes.
fn on_card(scenario: &str, capability: (u32, u32)) -> Ran {
    let ran = run(scenario, capability);
    let stderr = String::from_utf8_lossy(&ran.output.stderr);
    assert!(ran.output.status.success(), "{scenario} fails: {stderr}");
    let first = ran.lines.first().expect("a record");
    assert_eq!((first.event.as_str(), first.text("version")), ("start", "1"));
    assert_eq!(first.text("name"), "Test%20Card");
    assert_eq!(ran.lines.last().expect("a record").event, "end");
    ran
}

fn passes(scenario: &str) -> Ran {
    on_card(scenario, (8, 9))
}

fn run(scenario: &str, capability: (u32, u32)) -> Ran {
    let folder = tempfile::tempdir().expect("a folder");
    let (record, config) = (folder.path().join("record"), folder.path().join("config"));
    let text = format!(
        "record={}\nmode=virtual\nname=Test Card\ntotal={TOTAL}\navailable={AVAILABLE}\n\
         cc_major={}\ncc_minor={}\nvirtual_clock=1\nsome_later_key=1\n",
        record.display(),
        capability.0,
        capability.1,
    );
    std::fs::write(&config, text).expect("a configuration");
    let library = driver_support::library();
    let output = Command::new(binary())
        .arg(scenario)
        .env("LD_LIBRARY_PATH", &library.folder)
        .env("LD_PRELOAD", &library.library)
        .env(CONFIG_VARIABLE, &config)
        .output()
        .expect("the scenario starts");
    let record = std::fs::read_to_string(&record).unwrap_or_default();
    assert!(record.is_empty() || record.ends_with('\n'));
    Ran {
        output,
        lines: record.lines().map(Line::parse).collect(),
    }
}

#[test]
fn without_a_configuration_there_is_no_device() {
    let library = driver_support::library();
    let status = Command::new(binary())
        .arg("no-device")
        .env("LD_LIBRARY_PATH", &library.folder)
        .env_remove(CONFIG_VARIABLE)
        .status()
        .expect("the scenario starts");
    assert!(status.success());
}

#[test]
fn a_card_gives_exactly_what_it_has_left() {
    let ran = passes("limit");
    assert_eq!(ran.only("alloc").number("reserved"), AVAILABLE);
    assert_eq!(ran.only("free").number("reserved"), 0);
    assert_eq!(ran.only("launches").number("reserved_peak"), AVAILABLE);
    assert_eq!(ran.all("error").count(), 0);
}

#[test]
fn one_byte_more_is_refused_both_ways() {
    let ran = passes("past-the-limit");
    let kinds: Vec<_> = ran.all("refuse").map(|line| line.text("kind")).collect();
    assert_eq!(kinds, ["async", "sync"]);
    for line in ran.all("refuse") {
        assert_eq!(line.number("bytes"), AVAILABLE + 1);
        assert_eq!(line.number("available"), AVAILABLE);
        assert_eq!(line.number("reserved"), 0);
        assert_eq!(line.text("kernel"), "-");
    }
    assert_eq!(ran.all("alloc").count(), 0);
    assert_eq!(ran.all("error").count(), 0, "a refusal has its own line");
}

#[test]
fn freed_memory_is_used_again_at_once() {
    let ran = passes("reuse");
    assert_eq!(ran.all("alloc").count(), 10_000);
    assert!(ran.all("alloc").all(|line| line.number("reserved") == AVAILABLE));
}

#[test]
fn both_kinds_of_memory_come_from_one_card() {
    let ran = passes("both-kinds");
    assert_eq!(ran.all("refuse").count(), 2);
    assert_eq!(ran.only("launches").number("reserved_peak"), AVAILABLE);
}

#[test]
fn bad_pointers_are_refused_and_recorded() {
    let ran = passes("bad-pointers");
    assert_eq!(ran.all("error").count(), 7);
    let double = ran
        .all("error")
        .filter(|line| line.text("detail") == "not_an_allocation");
    assert_eq!(double.count(), 4);
}

#[test]
fn a_hundred_thousand_allocations_are_counted_to_the_byte() {
    let ran = passes("many");
    assert_eq!(ran.only("launches").number("reserved_peak"), 100_000 * 512);
    assert_eq!(ran.only("launches").number("reserved"), 0);
}

#[test]
fn more_pinned_memory_than_the_host_has_is_given_and_not_charged() {
    let ran = passes("pinned");
    assert_eq!(ran.only("launches").number("pinned_peak"), 4 << 40);
    assert_eq!(ran.only("launches").number("reserved_peak"), 0);
    assert_eq!(ran.all("unpinned").last().expect("a line").number("total"), 0);
}

#[test]
fn device_memory_reads_as_zeros_within_its_bounds() {
    let ran = passes("copies");
    assert_eq!(ran.all("error").count(), 3);
    assert_eq!(ran.only("launches").number("reads"), 2);
}

#[test]
fn a_crash_keeps_what_was_recorded() {
    let ran = run("abort", (8, 9));
    assert_eq!(ran.output.status.signal(), Some(6));
    assert_eq!(ran.only("alloc").number("bytes"), 1 << 20);
    assert_eq!(ran.all("end").count(), 0);
}

#[test]
fn a_released_context_takes_its_memory_with_it() {
    let ran = passes("release");
    assert_eq!(ran.all("launches").last().expect("totals").number("reserved"), 0);
    assert_eq!(ran.all("alloc").count(), ran.all("free").count());
    assert_eq!(ran.all("unsupported").count(), 0, "the safe API finds all it calls");
    assert_eq!(ran.only("error").number("code"), 709);
}

#[test]
fn stale_streams_and_events_are_refused() {
    let ran = passes("streams-and-events");
    assert_eq!(ran.all("stream").count(), 2);
    assert!(ran.all("error").all(|line| line.number("code") == 400));
}

#[test]
fn every_thread_needs_a_context_of_its_own() {
    let ran = passes("threads");
    assert_eq!(ran.all("alloc").count(), 4000);
    assert_eq!(ran.all("free").last().expect("a line").number("reserved"), 0);
    assert_eq!(ran.all("error").filter(|line| line.number("code") == 201).count(), 2);
}

#[test]
fn functions_that_are_not_there_are_recorded() {
    let ran = passes("unknown-function");
    assert_eq!(ran.only("unsupported").text("function"), "cuGraphCreate");
    let kernel = ran.all("error").next().expect("a line");
    assert_eq!(
        (kernel.text("function"), kernel.number("code")),
        ("cuModuleGetFunction", 500)
    );
}

#[test]
fn the_driver_resolves_its_own_functions() {
    passes("proc-address");
}

#[test]
fn launches_past_the_cards_limits_are_refused() {
    let ran = passes("launch-limits");
    assert_eq!(ran.only("launches").number("count"), 2);
}

#[test]
fn shared_memory_past_the_opt_in_is_refused() {
    let ran = passes("shared-memory");
    assert_eq!(ran.only("launches").number("count"), 2);
    assert_eq!(ran.only("module").number("functions"), 1);
}

#[test]
fn launches_are_counted_and_not_recorded_one_by_one() {
    let ran = passes("many-launches");
    assert_eq!(ran.only("launches").number("count"), 100_000);
    assert!(ran.lines.len() < 10);
}

#[test]
fn a_refusal_names_the_last_kernel() {
    assert_eq!(passes("refused-kernel").only("refuse").text("kernel"), "gemm");
}

#[test]
fn only_architectures_that_the_compiler_knows_compile() {
    let ran = passes("compiler");
    assert_eq!(ran.all("error").count(), 5);
}

#[test]
fn code_for_a_newer_card_does_not_load() {
    let ran = passes("newer-target");
    assert_eq!(ran.all("module").count(), 2);
}

#[test]
fn tensor_maps_are_refused_before_hopper() {
    let ran = on_card("tensor-maps-refused", (8, 9));
    assert_eq!(ran.all("error").count(), 2);
}

#[test]
fn tensor_maps_are_checked_from_hopper_on() {
    let ran = on_card("tensor-maps-checked", (9, 0));
    assert!(ran.all("error").all(|line| line.number("code") == 1));
    assert_eq!(ran.all("error").count(), 6);
}

#[test]
fn candidates_take_the_time_of_their_launches_in_every_run() {
    let first = passes("clock").stdout();
    assert_eq!(first, "10001\n30001\n20001\n30001\n");
    assert_eq!(passes("clock").stdout(), first);
}

#[test]
fn a_thread_that_launches_can_still_wait() {
    let start = std::time::Instant::now();
    passes("wait");
    assert!(start.elapsed().as_secs() < 60);
}

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
    let mut clippy = Command::new("clippy-driver");
    if clippy.arg("--version").output().is_err() {
        return;
    }
    let out = tempfile::tempdir().unwrap();
    let output = Command::new("clippy-driver")
        .args([
            "--crate-type",
            "cdylib",
            "--crate-name",
            "cargo_vram_driver",
            "--edition",
            "2024",
        ])
        .args(["-C", "panic=abort", "--emit=metadata", "-Dwarnings", "--out-dir"])
        .arg(out.path())
        .arg(driver_support::root().join("src/driver/source/lib.rs"))
        .output()
        .unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
}
