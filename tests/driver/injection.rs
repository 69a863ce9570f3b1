//! Injected faults: each happens at the requested call, in both modes, and the call does not reach the driver behind.

use super::scenario::{Ran, Setup};

const OUT_OF_MEMORY: u64 = 2;

fn both_ways() -> [fn() -> Setup; 2] {
    [Setup::new, || Setup::new().forwarded()]
}

/// The result codes that a function returned in a scenario, in order.
fn codes(ran: &Ran, function: &str) -> Vec<u64> {
    let stdout = ran.stdout();
    let lines = stdout.lines().filter_map(|line| line.split_once(' '));
    lines
        .filter(|(name, _)| *name == function)
        .map(|(_, code)| code.parse().expect("a code"))
        .collect()
}

fn injected(ran: &Ran) -> Vec<(String, u64)> {
    ran.all("error")
        .filter(|line| line.text("detail") == "injected")
        .map(|line| (line.text("function").to_owned(), line.number("code")))
        .collect()
}

#[test]
fn the_first_the_middle_or_the_last_call_fails_and_no_other() {
    for setup in both_ways() {
        for number in 1..=3 {
            let setup = || setup().with(&format!("inject=cuLaunchKernel:{number}:719"));
            let ran = setup().passes("codes");
            let expected: Vec<u64> = (1..=3).map(|call| if call == number { 719 } else { 0 }).collect();
            assert_eq!(codes(&ran, "cuLaunchKernel"), expected);
            assert_eq!(injected(&ran), [("cuLaunchKernel".to_owned(), 719)]);
            assert_eq!(ran.only("launches").number("count"), 2);
            assert_eq!(ran.calls("cuLaunchKernel"), 3);
            if !ran.posing.is_empty() {
                assert_eq!(ran.posing_calls("cuLaunchKernel"), 2, "the real driver is not called");
            }
        }
    }
}

#[test]
fn a_call_that_never_comes_changes_nothing() {
    for setup in both_ways() {
        let ran = setup().with("inject=cuLaunchKernel:4:719").passes("codes");
        assert_eq!(codes(&ran, "cuLaunchKernel"), [0; 3]);
        assert_eq!(injected(&ran), []);
    }
}

#[test]
fn an_injected_lack_of_memory_is_a_refusal() {
    for setup in both_ways() {
        for number in 1..=3 {
            let ran = setup()
                .with(&format!("inject=cuMemAllocAsync:{number}:2"))
                .passes("codes");
            let refusal = ran.only("refuse");
            assert_eq!(
                (refusal.text("kind"), refusal.number("bytes")),
                ("async", number * 1000)
            );
            let before: u64 = (1..number).map(|index| index * 1000).sum();
            assert_eq!(refusal.number("reserved"), before);
            assert_eq!(refusal.number("available"), super::scenario::AVAILABLE - before);
            assert_eq!(injected(&ran), []);
            assert_eq!(ran.all("alloc").count(), 2);
            assert_eq!(
                codes(&ran, "cuMemAllocAsync")
                    .iter()
                    .filter(|code| **code == OUT_OF_MEMORY)
                    .count(),
                1
            );
        }
    }
}

#[test]
fn an_allocation_can_fail_for_another_reason() {
    for setup in both_ways() {
        let ran = setup().with("inject=cuMemAllocAsync:2:719").passes("codes");
        assert_eq!(codes(&ran, "cuMemAllocAsync"), [0, 719, 0]);
        assert_eq!(injected(&ran), [("cuMemAllocAsync".to_owned(), 719)]);
        assert_eq!(ran.all("refuse").count(), 0);
    }
}

#[test]
fn a_gpu_that_fell_off_the_bus_answers_nothing_any_more() {
    for setup in both_ways() {
        let ran = setup().with("inject=cuMemAllocAsync:2:999:sticky").passes("codes");
        assert_eq!(codes(&ran, "cuStreamCreate"), [0], "before it");
        assert_eq!(codes(&ran, "cuMemAllocAsync"), [0, 999, 999]);
        assert_eq!(codes(&ran, "kernel"), [1], "the compiler fails as well");
        assert_eq!(codes(&ran, "cuLaunchKernel"), [999; 3]);
        assert_eq!(codes(&ran, "cuGraphCreate"), [999]);
        assert_eq!(codes(&ran, "cuMemFreeAsync"), [999; 3]);
        assert_eq!(codes(&ran, "cuGetErrorName"), [0], "a name needs no GPU");
        assert!(injected(&ran).contains(&("nvrtcCreateProgram".to_owned(), 11)));
        assert_eq!(ran.all("unsupported").count(), 0);
        assert_eq!(ran.only("launches").number("reserved"), 1000);
    }
}

#[test]
fn a_gpu_that_is_full_for_good_refuses_every_allocation() {
    for setup in both_ways() {
        let ran = setup().with("inject=cuMemAllocAsync:1:2:sticky").passes("codes");
        let bytes: Vec<u64> = ran.all("refuse").map(|line| line.number("bytes")).collect();
        assert_eq!(bytes, [1000, 2000, 3000]);
        assert_eq!(ran.all("alloc").count(), 0);
    }
}

#[test]
fn what_comes_before_the_driver_is_initialised_can_fail() {
    for setup in both_ways() {
        let ran = setup().with("inject=cuDriverGetVersion:1:999").passes("codes");
        assert_eq!(codes(&ran, "cuDriverGetVersion"), [999]);
        assert_eq!(ran.lines[1].text("detail"), "injected");
        assert_eq!(codes(&ran, "cuInit"), [0]);
        let ran = setup().with("inject=cuInit:1:100").passes("codes");
        assert_eq!(codes(&ran, "cuInit"), [100]);
        assert_eq!(codes(&ran, "cuDeviceGetCount"), [3], "never initialised");
        assert_eq!(injected(&ran), [("cuInit".to_owned(), 100)]);
    }
}

#[test]
fn a_compiler_and_a_function_without_implementation_can_fail() {
    for setup in both_ways() {
        let ran = setup().with("inject=nvrtcCompileProgram:1:6").passes("codes");
        assert_eq!(codes(&ran, "kernel"), [1]);
        assert_eq!(injected(&ran), [("nvrtcCompileProgram".to_owned(), 6)]);
        let ran = setup().with("inject=nvrtcCompileProgram:1:6:sticky").passes("codes");
        assert_eq!(codes(&ran, "cuGraphCreate"), [999], "no code of the compiler's");
        let ran = setup().with("inject=cuGraphCreate:1:700").passes("codes");
        assert_eq!(codes(&ran, "cuGraphCreate"), [700]);
        assert_eq!(injected(&ran), [("cuGraphCreate".to_owned(), 700)]);
    }
}

#[test]
fn an_injection_that_cannot_be_read_leaves_no_device() {
    for text in [
        "cuInit",
        "cuInit:0:1",
        "cuInit:1",
        "cuInit:1:x",
        "cuInit:1:2:often",
        "cuInit:1:2:sticky:x",
        ":1:2",
        "cuMemAlloc:1:2",
    ] {
        for setup in both_ways() {
            let ran = setup().with(&format!("inject={text}")).run("codes");
            assert_eq!(codes(&ran, "cuInit"), [100], "{text}");
        }
    }
}

#[test]
fn every_function_that_was_called_is_counted() {
    for setup in both_ways() {
        let ran = setup().passes("codes");
        for (function, count) in [
            ("cuInit", 1),
            ("cuMemAllocAsync", 3),
            ("cuLaunchKernel", 3),
            ("cuGraphCreate", 1),
            ("cuGetErrorName", 1),
            ("nvrtcCompileProgram", 1),
            ("cuMemAlloc_v2", 0),
        ] {
            assert_eq!(ran.calls(function), count, "{function}");
        }
        let names: Vec<_> = ran.all("calls").map(|line| line.text("function")).collect();
        assert!(names.is_sorted());
        assert_eq!(ran.lines.last().unwrap().event, "end");
    }
}
