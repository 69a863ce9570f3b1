//! The virtual GPU: its answers, its errors and its records.

use std::os::unix::process::ExitStatusExt;
use std::process::Command;

use cargo_vram::driver::CONFIG_VARIABLE;

use super::scenario::{AVAILABLE, Ran, Setup, binary};
use crate::driver_support;

/// Runs a scenario on a GPU with this compute capability, and asserts that it passes.
fn on_gpu(scenario: &str, capability: (u32, u32)) -> Ran {
    let ran = Setup::of_capability(capability).passes(scenario);
    assert_eq!(ran.lines[0].text("name"), "Test%20GPU");
    assert_eq!(ran.lines[0].text("mode"), "virtual");
    ran
}

fn passes(scenario: &str) -> Ran {
    on_gpu(scenario, (8, 9))
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
fn a_gpu_gives_exactly_what_it_has_left() {
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
fn both_kinds_of_memory_come_from_one_gpu() {
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
fn device_memory_reads_as_the_type_that_a_kernel_had_there() {
    Setup::new().with("reads=other").passes("typed-reads");
}

#[test]
fn a_crash_keeps_what_was_recorded() {
    let ran = Setup::of_capability((8, 9)).run("abort");
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
fn launches_past_the_gpus_limits_are_refused() {
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
    assert!(ran.lines.iter().filter(|line| line.event != "calls").count() < 10);
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
fn code_for_a_newer_gpu_does_not_load() {
    let ran = passes("newer-target");
    assert_eq!(ran.all("module").count(), 2);
}

#[test]
fn tensor_maps_are_refused_before_hopper() {
    let ran = on_gpu("tensor-maps-refused", (8, 9));
    assert_eq!(ran.all("error").count(), 2);
}

#[test]
fn tensor_maps_are_checked_from_hopper_on() {
    let ran = on_gpu("tensor-maps-checked", (9, 0));
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
fn hash_maps_have_one_order_and_nothing_else_is_less_random() {
    let [first, second] = [(); 2].map(|()| passes("hash-keys").stdout());
    let split = |said: &str| {
        let (order, random) = said.split_once('\n').expect("two lines");
        (order.to_owned(), random.to_owned())
    };
    let ((order, random), (same, other)) = (split(&first), split(&second));
    assert_eq!(order, same);
    assert_ne!(random, other);
}

#[test]
fn a_thread_that_launches_can_still_wait() {
    let start = std::time::Instant::now();
    passes("wait");
    assert!(start.elapsed().as_secs() < 60);
}

#[test]
fn what_goes_from_gpu_to_gpu_is_checked_and_nothing_is_held_for_it() {
    let ran = Setup::new().with_gpu("devices=2").passes("collectives");
    let calls = |name: &str| {
        let mut calls = ran.all("calls").filter(|line| line.text("function") == name);
        calls.next().map(|line| line.number("count"))
    };
    assert_eq!(calls("ncclAllReduce"), Some(4));
    assert_eq!(calls("ncclSend"), Some(3));
    let refused: Vec<_> = ran.all("error").map(|line| line.text("detail").to_owned()).collect();
    let expected = [
        "no_such_rank",
        "past_the_allocation",
        "memory_of_another_card",
        "stream_of_another_card",
        "no_such_communicator",
    ];
    assert_eq!(refused, expected);
    assert_eq!(ran.only("unsupported").text("function"), "ncclMemAlloc");
    assert_eq!(ran.all("alloc").count(), 2, "what the program asked for itself");
}
