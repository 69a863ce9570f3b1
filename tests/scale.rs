//! Two hundred models in eight partitions, on one machine.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use cargo_vram::report::Report;

use crate::common;

const PARTS: u32 = 8;

/// `cargo vram` in the workspace with many models.
fn vram(arguments: &[&str]) -> Command {
    let mut command = common::vram(arguments);
    command.current_dir(common::fixture("fixtures/many"));
    command
}

/// The path of a partition's report.
fn part(folder: &Path, part: u32) -> PathBuf {
    folder.join(format!("part-{part}.json"))
}

/// The command that estimates a partition.
fn estimate(folder: &Path, number: u32) -> Command {
    let partition = format!("hash:{number}/{PARTS}");
    let file = part(folder, number);
    let mut command = vram(&["estimate", "--gpu", "l4", "--steps", "2", "--partition", &partition]);
    command
        .args(["--quiet", "--message-format", "json", "--output"])
        .arg(file);
    command
}

/// Merges the existing reports; returns the merged report, the exit code and the output.
fn merge(folder: &Path) -> (Option<Report>, Option<i32>, String) {
    let whole = folder.join("whole.json");
    let there: Vec<_> = (1..=PARTS).map(|number| part(folder, number)).collect();
    let output = vram(&["merge", "--message-format", "json", "--output"])
        .arg(&whole)
        .args(there.iter().filter(|path| path.exists()))
        .output()
        .unwrap();
    let said = common::said(&output);
    let report = std::fs::read(&whole).ok();
    let report = report.map(|json| serde_json::from_slice(&json).unwrap());
    (report, output.status.code(), said)
}

#[test]
fn each_of_many_models_is_reported_once_and_a_part_that_died_is_named() {
    let folder = tempfile::tempdir().unwrap();
    let folder = folder.path();
    for number in 1..=PARTS {
        let output = estimate(folder, number).output().unwrap();
        assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    }
    let (report, exit, said) = merge(folder);
    let runs = report.unwrap().runs;
    let names: BTreeSet<_> = runs.iter().map(|run| run.model.as_str()).collect();
    assert_eq!((exit, runs.len(), names.len()), (Some(0), 200, 200), "{said}");
    assert!(runs.iter().all(|run| run.peaks.warm.live.is_some()), "{said}");

    // Kill one estimate while its models run.
    std::fs::remove_file(part(folder, 5)).unwrap();
    std::fs::remove_file(folder.join("whole.json")).unwrap();
    let kept = folder.join("kept");
    let mut killed = estimate(folder, 5)
        .arg("--keep")
        .arg(&kept)
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .spawn()
        .unwrap();
    let begun = Instant::now();
    while !kept.join("estimate/case-2").exists() {
        assert!(begun.elapsed() < Duration::from_secs(300), "no model ran");
        std::thread::sleep(Duration::from_millis(20));
    }
    killed.kill().unwrap();
    killed.wait().unwrap();
    assert!(!part(folder, 5).exists());
    let (report, exit, said) = merge(folder);
    assert_eq!((exit, report.is_none()), (Some(101), true), "{said}");
    assert!(said.contains("hash:5/8"), "{said}");
}
