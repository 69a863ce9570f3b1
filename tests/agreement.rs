//! Two estimates of one commit are equal in every byte, in any folder and with other processes beside them.

use std::process::Command;
use std::sync::atomic::{AtomicBool, Ordering};

use serde_json::Value;

use crate::common;

/// Estimates, and returns the report without the values that may differ: the time that each run took, and `dirty`.
fn estimate(target: Option<&std::path::Path>, jobs: &str) -> Value {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("report.json");
    let mut command = common::vram(&["estimate", "-p", "zoo", "--gpu", "l4", "--jobs", jobs]);
    // A first launch compiles every kernel of Burn 0.22, which takes minutes for a large model.
    let models = match common::is_burn_0_22() {
        true => ["sequential", "resnet18_train_step", "resnet18_free_form"],
        false => ["transformer", "sequential", "resnet18_free_form"],
    };
    for model in models {
        command.args(["-m", model]);
    }
    command.args(["--message-format", "json", "--output"]).arg(&file);
    if let Some(target) = target {
        command.env("CARGO_TARGET_DIR", target);
    }
    let output = command.output().unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    let mut report: Value = serde_json::from_slice(&std::fs::read(&file).unwrap()).unwrap();
    // This test makes a folder that may be in the repository, which makes the repository dirty.
    report["dirty"].take();
    for run in report["runs"].as_array_mut().unwrap() {
        assert!(run["seconds"].take().is_number());
        for time in run["pass_seconds"].as_array_mut().unwrap() {
            assert!(time["seconds"].take().is_number());
        }
    }
    report
}

#[test]
fn two_estimates_agree_in_every_byte_in_another_folder_and_under_load() {
    let first = estimate(None, "2");
    // The same target folder at another path, as a CI system's cache restores it.
    let elsewhere = tempfile::tempdir_in(common::target_folder().parent().unwrap()).unwrap();
    let copy = elsewhere.path().join("target");
    let copied = Command::new("cp")
        .args(["-al".as_ref(), common::target_folder().as_os_str(), copy.as_os_str()])
        .status()
        .unwrap();
    assert!(copied.success());
    let done = AtomicBool::new(false);
    let second = std::thread::scope(|scope| {
        scope.spawn(|| {
            while !done.load(Ordering::Relaxed) {
                std::hint::black_box((0..1_000_000_u64).sum::<u64>());
            }
        });
        let second = std::panic::catch_unwind(|| estimate(Some(&copy), "1"));
        done.store(true, Ordering::Relaxed);
        second
    });
    let second = second.unwrap();
    for (one, other) in first["runs"]
        .as_array()
        .unwrap()
        .iter()
        .zip(second["runs"].as_array().unwrap())
    {
        assert_eq!(one, other);
    }
    assert_eq!(first, second);
}

/// Runs the stress run that anyone can start, and returns whether it passed and what it printed.
fn stress(arguments: &[&str]) -> (bool, String) {
    let mut command = Command::new(common::root().join("tests/stress"));
    // The program that was built with the tests. Cargo would build it again with other features of its dependencies.
    command.args(["--program", env!("CARGO_BIN_EXE_cargo-vram")]);
    command.args(arguments).env("CARGO_TARGET_DIR", common::target_folder());
    common::without_test_variables(&mut command);
    let output = command.output().unwrap();
    (output.status.success(), common::said(&output))
}

/// The whole form is `tests/stress --runs 100`, with all models.
#[test]
fn estimates_agree_beside_busy_loops_and_on_one_core() {
    let model = ["-p", "zoo", "--gpu", "l4", "-m", "sequential_inference"];
    let folder = tempfile::tempdir().unwrap();
    let keep = folder.path().to_str().unwrap();
    for busy in [
        &["--runs", "2", "--load", "4", "--keep", keep, "--"][..],
        &["--runs", "1", "--load", "2", "--cpus", "0", "--"],
    ] {
        let (passed, printed) = stress(&[busy, &model].concat());
        assert!(passed, "{printed}");
    }

    // A byte more in one of them.
    let report = std::fs::read_to_string(folder.path().join("2.json")).unwrap();
    let reserved = report.find("\"reserved\": ").unwrap() + "\"reserved\": ".len();
    std::fs::write(
        folder.path().join("2.json"),
        format!("{}9{}", &report[..reserved], &report[reserved..]),
    )
    .unwrap();
    let (passed, printed) = stress(&["--runs", "0", "--keep", keep]);
    assert!(
        !passed && printed.contains("1 reports differ from the first"),
        "{printed}"
    );
}
