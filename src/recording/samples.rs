//! Test data: lines that Burn's autotune wrote in an estimate, and hand-made reports. Nothing here was measured.

use std::collections::BTreeMap;
use std::path::Path;

use serde_json::json;

use super::{GpuFacts, RunIdentity, Tuned};
use crate::report::{LoadedLibrary, Report, Run};

pub(crate) const CONV: &str = "burn_cubecl-kernel-conv-forward-tune";
pub(crate) const REDUCE: &str = "burn_cubecl-kernel-reduce-tune-reduce-dim";
/// ResNet-18's first two convolutions at batch 32, then the same at batch 64.
pub(crate) const CONV_LINES: &str = include_str!("samples/burn_cubecl-kernel-conv-forward-tune.json.log");
/// A reduction of VGG16, and a reduction of the transformer.
pub(crate) const REDUCE_LINES: &str = include_str!("samples/burn_cubecl-kernel-reduce-tune-reduce-dim.json.log");

/// Parses one line of a sample.
pub(crate) fn tuned(lines: &str, at: usize) -> Tuned {
    Tuned::parse(lines.lines().nth(at).unwrap()).unwrap()
}

/// Returns the line that Burn writes for a key.
pub(crate) fn line(tuned: &Tuned) -> String {
    let results: Vec<_> = tuned
        .outcomes
        .iter()
        .map(|outcome| json!({"outcome": outcome}))
        .collect();
    json!({
        "key": {"key": tuned.key, "checksum": tuned.checksum},
        "value": {"fastest_index": tuned.fastest, "results": results},
    })
    .to_string()
}

/// Returns the same key with the candidate `index` first, as if it were the fastest.
pub(crate) fn choosing(index: usize, tuned: &Tuned) -> Tuned {
    let mut tuned = tuned.clone();
    let is_chosen = |outcome: &serde_json::Value| outcome["Ok"]["index"] == json!(index);
    let at = tuned.outcomes.iter().position(is_chosen).unwrap();
    let chosen = tuned.outcomes.remove(at);
    tuned.outcomes.insert(0, chosen);
    tuned.fastest = index;
    tuned
}

/// Returns the same key, but the candidates `names` failed.
pub(crate) fn failing(names: &[&str], tuned: &Tuned) -> Tuned {
    let mut tuned = tuned.clone();
    for outcome in &mut tuned.outcomes {
        if let Some(name) = names.iter().find(|name| outcome["Ok"]["name"] == json!(name)) {
            *outcome = json!({"Err": {"InvalidSamples": {"name": name}}});
        }
    }
    tuned.outcomes.sort_by_key(|outcome| outcome.get("Err").is_some());
    let (first, _) = tuned.succeeded().next().unwrap();
    tuned.fastest = first;
    tuned
}

/// Writes the autotune files of a cold pass into a folder.
pub(crate) fn autotune(folder: &Path, files: &[(&str, &[Tuned])]) {
    let device = folder.join("autotune/0.10.0/device-0-0-cuda");
    std::fs::create_dir_all(&device).unwrap();
    for (module, tuned) in files {
        let text: String = tuned.iter().map(|tuned| line(tuned) + "\n").collect();
        std::fs::write(device.join(format!("{module}.json.log")), text).unwrap();
    }
}

pub(crate) fn identity(model: &str, batch_size: u64) -> RunIdentity {
    RunIdentity {
        package: "zoo".into(),
        model: model.into(),
        inputs: BTreeMap::from([("batch_size".into(), batch_size)]),
    }
}

/// Returns a measurement that may be recorded.
pub(crate) fn measured(model: &str, batch_size: u64) -> Run {
    serde_json::from_value(json!({
        "model": model, "package": "zoo", "mode": "measure", "task": "train", "burn": "0.21.0",
        "inputs": {"batch_size": batch_size},
        "gpu": {"id": "l4", "name": "NVIDIA L4", "total_bytes": 23_659_020_288_u64,
                "available_bytes": 23_443_013_632_u64, "driver": "580.82.07"},
        "parameters": null,
        "peaks": {"warm": {"live": 1000, "reserved": 20_000, "process": null},
                  "cold": {"live": null, "reserved": 30_000, "process": null}},
        "steps": [], "oom": null, "autotune": {"recorded": 0, "nearest": 0, "assumed": 0},
        "measurement": {
            "uuid": "GPU-0", "libcuda": {"path": "/lib/libcuda.so.580.82.07", "version": "13.0"},
            "libnvrtc": {"path": "/lib/libnvrtc.so.13", "version": "13.0"},
            "cores": 16, "proof": {"seed": 1, "expected": 2, "computed": 2}, "process": null, "idle": null, "others": [],
            "limit": null, "tuning": "free", "spread": null,
        },
        "streams": 1, "device_reads": 0, "assumptions": [], "error": null, "seconds": 1.5,
    }))
    .unwrap()
}

pub(crate) fn report(runs: Vec<Run>) -> Report {
    let mut report: Report = serde_json::from_value(json!({
        "version": 2, "tool": {"name": "cargo-vram", "version": "0.1.0", "fingerprint": "0123"}, "commit": "abcd",
        "partition": null, "expected": ["zoo/resnet18", "zoo/vgg16"], "status": "pass", "runs": [], "verdicts": [],
        "skipped": [],
    }))
    .unwrap();
    report.runs = runs;
    report
}

pub(crate) fn gpu(driver: &str) -> GpuFacts {
    let library = |path: &str| LoadedLibrary {
        path: path.into(),
        version: "13.0".into(),
    };
    GpuFacts {
        gpu: "l4".into(),
        driver: driver.into(),
        device: BTreeMap::from([("name".into(), "NVIDIA L4".into()), ("sm_count".into(), "58".into())]),
        libcuda: library("/lib/libcuda.so"),
        libnvrtc: library("/lib/libnvrtc.so"),
        context: None,
        modules: None,
    }
}
