//! Two estimates of one commit agree in every byte, wherever and beside whatever they are made.
#![cfg(feature = "cli")]
#![expect(clippy::unwrap_used, reason = "a test that cannot go on has failed")]

mod common;

use std::process::Command;
use std::sync::atomic::{AtomicBool, Ordering};

use serde_json::Value;

/// The report without the one figure that differs.
fn estimate(target: Option<&std::path::Path>, jobs: &str) -> Value {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("report.json");
    let mut command = common::vram(&["estimate", "-p", "zoo", "--gpu", "l4", "--jobs", jobs]);
    // A first launch compiles every kernel of Burn 0.22, which takes minutes for a large model.
    let models = match common::is_burn_0_22() {
        true => [
            "sequential",
            "sequential_inference",
            "resnet18_train_step",
            "resnet18_free_form",
        ],
        false => ["vgg16", "transformer", "sequential", "resnet18_free_form"],
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
    // The folder that this test makes may lie in the repository.
    report["dirty"].take();
    for run in report["runs"].as_array_mut().unwrap() {
        assert!(run["seconds"].take().is_number());
    }
    report
}

#[test]
fn two_estimates_agree_in_every_byte_in_another_folder_and_under_load() {
    let first = estimate(None, "2");
    // The same target folder elsewhere, as a CI system's cache would bring it back.
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
