//! Estimates agree with recordings of real GPUs, and recording and comparing work.

use std::path::{Path, PathBuf};
use std::process::{Command, Output};

use cargo_vram::bytes::Bytes;
use cargo_vram::recording::agreement::{AgreementError, ComparedValue, compare};
use cargo_vram::recording::{Recordings, RunIdentity};
use cargo_vram::report::{Mode, PlainName, RecordingId, Run};
use serde_json::{Value, json};

use crate::common;

fn recordings_folder() -> PathBuf {
    common::root().join("fixtures/recordings")
}

/// A new estimate of a measured run.
fn estimate(measured: &Run) -> Run {
    let mut arguments = vec![
        "estimate",
        "-p",
        &measured.package,
        "-m",
        &measured.model,
        "--gpu",
        measured.gpu.id.as_str(),
    ];
    let inputs: Vec<_> = measured
        .inputs
        .iter()
        .map(|(name, value)| format!("{name}={value}"))
        .collect();
    for input in &inputs {
        arguments.extend(["--set", input]);
    }
    let (report, _, text) = common::report(&arguments);
    let of_this_run = |run: &&Run| RunIdentity::from_run(run) == RunIdentity::from_run(measured);
    report
        .runs
        .iter()
        .find(of_this_run)
        .unwrap_or_else(|| panic!("no run:\n{text}"))
        .clone()
}

#[test]
fn every_recording_agrees_with_todays_estimate() {
    let recordings = Recordings::load(&recordings_folder()).unwrap();
    let mut compared = 0;
    let mut disagreements = Vec::new();
    for recording in recordings.iter() {
        // An estimate replays the autotune choices of the newest driver.
        let newest = recordings.for_gpu(recording.gpu()).unwrap().driver() == recording.driver();
        for measured in recording.report().runs.iter().filter(|_| newest) {
            compared += 1;
            for disagreement in compare(measured, &estimate(measured)) {
                let of = format!(
                    "{} {}: {}",
                    recording.gpu(),
                    recording.driver(),
                    RunIdentity::from_run(measured)
                );
                disagreements.push(format!("{of}: {disagreement}"));
            }
        }
    }
    assert!(disagreements.is_empty(), "{}", disagreements.join("\n"));
    if compared == 0 {
        eprintln!("there are no recordings: no estimate was compared with a real GPU");
    } else {
        eprintln!("{compared} recorded runs agree");
    }
}

/// An invented run, which nobody measured.
fn by_hand(mode: Mode, live: u64, warm: u64, cold: u64) -> Run {
    serde_json::from_value(json!({
        "model": "resnet18", "package": "zoo", "mode": mode, "task": "train", "burn": "0.21.0",
        "inputs": {"batch_size": 32}, "parameters": null, "steps": [], "oom": null,
        "gpu": {"id": "l4", "name": "NVIDIA L4", "total_bytes": 0, "available_bytes": 0, "driver": "580.82.07"},
        "peaks": {"warm": {"live": live, "reserved": warm, "process": null},
                  "cold": {"live": null, "reserved": cold, "process": null}},
        "autotune": {"recorded": 10, "nearest": 0, "assumed": 1},
        "streams": 1, "device_reads": 0, "assumptions": [], "error": null, "seconds": 1.5,
    }))
    .unwrap()
}

fn off(estimated: &Run) -> Vec<(ComparedValue, u64)> {
    let measured = by_hand(Mode::Measure, 1_000, 1_000_000, 2_000_000);
    compare(&measured, estimated)
        .into_iter()
        .map(|disagreement| match disagreement {
            AgreementError::Off { figure, allowed, .. } => (figure, allowed.0),
            other => panic!("{other}"),
        })
        .collect()
}

#[test]
fn one_byte_of_live_is_a_disagreement() {
    let estimate = |live| by_hand(Mode::Estimate, live, 1_000_000, 2_000_000);
    assert_eq!(off(&estimate(1_000)), []);
    assert_eq!(off(&estimate(1_001)), [(ComparedValue::WarmLive, 0)]);
    assert_eq!(off(&estimate(999)), [(ComparedValue::WarmLive, 0)]);
}

#[test]
fn one_percent_and_one_byte_of_warm_reserved_is_a_disagreement() {
    let estimate = |warm| by_hand(Mode::Estimate, 1_000, warm, 2_000_000);
    for agreeing in [990_000, 1_000_000, 1_010_000] {
        assert_eq!(off(&estimate(agreeing)), []);
    }
    for disagreeing in [989_999, 1_010_001] {
        assert_eq!(off(&estimate(disagreeing)), [(ComparedValue::WarmReserved, 10_000)]);
    }
}

#[test]
fn one_byte_of_warm_reserved_is_a_disagreement_where_every_choice_was_recorded() {
    let estimate = |warm, nearest, assumed| {
        let mut run = by_hand(Mode::Estimate, 1_000, warm, 2_000_000);
        (run.autotune.nearest, run.autotune.assumed) = (nearest, assumed);
        run
    };
    assert_eq!(off(&estimate(1_000_000, 0, 0)), []);
    assert_eq!(off(&estimate(1_000_001, 0, 0)), [(ComparedValue::WarmReserved, 0)]);
    assert_eq!(off(&estimate(1_000_001, 1, 0)), []);
    assert_eq!(off(&estimate(1_000_001, 0, 1)), []);
    let mut of_another_gpu = estimate(1_000_001, 0, 0);
    of_another_gpu.recording = Some(RecordingId {
        gpu: PlainName::parse("h200").unwrap(),
        driver: "580.82.07".into(),
    });
    assert_eq!(off(&of_another_gpu), []);
}

#[test]
fn five_percent_and_one_byte_of_cold_reserved_is_a_disagreement() {
    let estimate = |cold| by_hand(Mode::Estimate, 1_000, 1_000_000, cold);
    for agreeing in [1_900_000, 2_100_000] {
        assert_eq!(off(&estimate(agreeing)), []);
    }
    for disagreeing in [1_899_999, 2_100_001] {
        assert_eq!(off(&estimate(disagreeing)), [(ComparedValue::ColdReserved, 100_000)]);
    }
}

#[test]
fn the_largest_figures_there_are_can_be_compared() {
    let measured = by_hand(Mode::Measure, u64::MAX, u64::MAX, u64::MAX);
    let estimated = by_hand(Mode::Estimate, u64::MAX, 0, u64::MAX);
    let disagreements = compare(&measured, &estimated);
    assert!(matches!(
        disagreements[..],
        [AgreementError::Off {
            figure: ComparedValue::WarmReserved,
            ..
        }]
    ));
}

#[test]
fn a_figure_that_is_missing_and_an_end_that_differs_are_disagreements() {
    let (measured, estimated) = (by_hand(Mode::Measure, 1, 2, 3), by_hand(Mode::Estimate, 1, 2, 3));
    assert_eq!(compare(&measured, &estimated), []);
    let mut without_live = measured.clone();
    without_live.peaks.warm.live = None;
    let missing = AgreementError::Missing {
        figure: ComparedValue::WarmLive,
        mode: Mode::Measure,
    };
    assert_eq!(compare(&without_live, &estimated), [missing]);

    let oom = json!({"pass": "warm", "step": 1, "phase": "backward", "kernel": null, "requested": 1, "reserved": 1, "available": 0});
    let mut full = estimated.clone();
    full.oom = Some(serde_json::from_value(oom).unwrap());
    let differs = AgreementError::OutOfMemory {
        measured: false,
        estimated: true,
    };
    assert_eq!(compare(&measured, &full), [differs]);
    let mut both = measured.clone();
    both.oom.clone_from(&full.oom);
    both.peaks.warm.reserved = Some(Bytes(99));
    assert_eq!(
        compare(&both, &full),
        [],
        "the memory at an out of memory is not a value of the model"
    );

    let mut failed = estimated.clone();
    let error = json!({"code": "model-panicked", "message": "", "help": null});
    failed.error = Some(serde_json::from_value(error).unwrap());
    assert!(matches!(
        compare(&measured, &failed)[..],
        [AgreementError::Incomplete {
            mode: Mode::Estimate,
            ..
        }]
    ));
}

#[test]
fn what_is_not_of_the_same_run_cannot_be_compared() {
    let (measured, estimated) = (by_hand(Mode::Measure, 1, 2, 3), by_hand(Mode::Estimate, 1, 2, 3));
    let incomparable = |measured: &Run, estimated: &Run| {
        assert!(matches!(
            compare(measured, estimated)[..],
            [AgreementError::Incomparable { .. }]
        ));
    };
    incomparable(&estimated, &estimated);
    incomparable(&measured, &measured);
    let mut other = estimated.clone();
    other.gpu.id = PlainName::parse("t4").unwrap();
    incomparable(&measured, &other);
    let mut other = estimated;
    other.inputs.insert(PlainName::parse("batch_size").unwrap(), 64);
    incomparable(&measured, &other);
}

/// A replacement of the tool: a run holds 100 MiB per image and fits if that is within the limit of the GPU. An
/// estimate allows one image more. The script logs its calls.
const STAND_IN: &str = r#"#!/usr/bin/env bash
set -euo pipefail
echo "$*" >>"$CALLS"
mode=$2 limit=0 out= batch= model=
while [ $# -gt 0 ]; do
    case $1 in
        -o) out=$2; shift ;;
        -m) model=$2; shift ;;
        --limit) limit=8192; shift ;;
        --gpu) [ "$2" = edge ] && limit=8292; shift ;;
        --set) batch=${2#batch_size=}; shift ;;
    esac
    shift
done
bytes=$((batch * 100))
oom=null error=null
if [ "$limit" -gt 0 ] && [ "$bytes" -gt "$limit" ]; then oom='{"pass": "warm"}'; fi
if [ "${FAILING:-}" = "$model" ]; then error='{"code": "model-panicked"}'; fi
cat >"$out" <<JSON
{"runs": [{"mode": "$mode", "gpu": {"id": "l4"}, "oom": $oom, "error": $error,
  "peaks": {"warm": {"live": $bytes, "reserved": $((bytes + 1))}, "cold": {"reserved": null}}}]}
JSON
"#;

fn record_script(folder: &Path, failing: &str) -> Output {
    let tool = folder.join("cargo-vram");
    common::write_program(&tool, STAND_IN);
    std::fs::write(folder.join("zoo.tar.zst"), "").unwrap();
    Command::new(recordings_folder().join("record"))
        .args(["zoo.tar.zst", "recordings"])
        .current_dir(folder)
        .env("CARGO_VRAM", "./cargo-vram")
        .env("CALLS", folder.join("calls"))
        .env("FAILING", failing)
        .output()
        .unwrap()
}

fn calls(folder: &Path) -> Vec<String> {
    let text = std::fs::read_to_string(folder.join("calls")).unwrap();
    text.lines().map(str::to_owned).collect()
}

#[test]
fn the_recording_script_measures_all_finds_the_edge_and_does_nothing_twice() {
    let folder = tempfile::tempdir().unwrap();
    let output = record_script(folder.path(), "");
    let text = String::from_utf8(output.stdout).unwrap();
    assert!(
        output.status.success(),
        "{text}{}",
        String::from_utf8_lossy(&output.stderr)
    );
    let words = |line: &str| line.split_whitespace().map(str::to_owned).collect::<Vec<_>>();
    let has = |row: &str| assert!(text.lines().any(|line| words(line) == words(row)), "{row} in\n{text}");
    has("resnet18 32 3200 3200 3201 3201 - -");
    has("resnet18 81 82");
    has("vgg16 81 82");
    let first = calls(folder.path());
    let recorded: Vec<_> = first.iter().filter(|call| call.contains("--record ")).collect();
    assert_eq!(recorded.len(), 15 * 3);
    assert!(
        recorded.iter().all(|call| !call.contains("--limit")),
        "a smaller GPU is never recorded"
    );
    let unique: std::collections::BTreeSet<_> = first.iter().collect();
    assert_eq!(unique.len(), first.len(), "nothing is run twice");
    let again = record_script(folder.path(), "");
    assert_eq!(String::from_utf8(again.stdout).unwrap(), text);
    assert_eq!(calls(folder.path()), first, "a second start has nothing to do");
}

#[test]
fn the_recording_script_goes_on_after_a_failure_and_tries_it_again() {
    let folder = tempfile::tempdir().unwrap();
    let output = record_script(folder.path(), "vgg16");
    let text = String::from_utf8(output.stdout).unwrap();
    assert_eq!(output.status.code(), Some(1), "{text}");
    assert!(
        text.contains("could not be told") && text.contains("transformer_inference"),
        "{text}"
    );
    let before = calls(folder.path()).len();
    assert!(record_script(folder.path(), "").status.success());
    let after = calls(folder.path());
    let of_vgg16 = |call: &String| call.contains("-m vgg16 ");
    assert!(
        after.len() > before && after[before..].iter().all(of_vgg16),
        "only the failed runs run again"
    );
}

#[test]
fn every_model_of_the_zoo_is_recorded() {
    let script = std::fs::read_to_string(recordings_folder().join("record")).unwrap();
    let budgets = std::fs::read_to_string(common::root().join("fixtures/zoo/benches/vram.rs")).unwrap();
    let models = budgets.split_once("models!(").unwrap().1.split_once(')').unwrap().0;
    let mut names: Vec<_> = models
        .split(',')
        .map(str::trim)
        .filter(|name| !name.is_empty())
        .collect();
    let recorded = script.split_once("MODELS=(").unwrap().1.split_once("\n)").unwrap().0;
    let mut recorded: Vec<_> = recorded
        .lines()
        .filter_map(|line| line.trim().trim_matches('"').split(' ').next())
        .filter(|name| !name.is_empty())
        .collect();
    names.sort_unstable();
    recorded.sort_unstable();
    assert_eq!(recorded, names);
}

#[test]
fn the_names_that_the_recording_script_asks_for_are_those_of_the_report() {
    let run = serde_json::to_value(by_hand(Mode::Measure, 1, 2, 3)).unwrap();
    for path in [
        "/gpu/id",
        "/oom",
        "/error",
        "/peaks/warm/live",
        "/peaks/warm/reserved",
        "/peaks/cold/reserved",
    ] {
        assert!(
            run.pointer(path)
                .is_some_and(|value: &Value| path == "/oom" || path == "/error" || !value.is_null())
        );
    }
}
