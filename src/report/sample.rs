//! Hand-made runs for tests.

use std::collections::BTreeMap;

use super::WrittenBy;
use super::{
    Autotune, GrowthCause, GrowthExplanation, GrowthLine, GrowthPart, GrowthPlace, LoadedLibrary, Measurement, Metric,
    Mode, Pass, Peak, Peaks, Phase, PhasePeaks, ProcessOf, ProcessSource, Proof, REPORT_VERSION, Report, Run, RunGpu,
    Status, Step, Tool, Tuning,
};
use crate::bytes::Bytes;
use crate::protocol::WhatIf;
use crate::untrusted::Foreign;

const MIB: u64 = 1 << 20;

/// Returns an estimate that fits into 24 GiB.
pub(crate) fn run(model: &str, gpu: &str) -> Run {
    let peak = |live, reserved, process| Peak {
        live: Some(Bytes(live * MIB)),
        reserved: Some(Bytes(reserved * MIB)),
        process: Some(Bytes(process * MIB)),
    };
    Run {
        model: model.into(),
        package: "p".into(),
        budget: None,
        mode: Mode::Estimate,
        task: None,
        burn: "0.21.0".into(),
        inputs: BTreeMap::new(),
        what_if: WhatIf::default(),
        label: None,
        gpu: RunGpu {
            id: gpu.into(),
            name: gpu.into(),
            total_bytes: Bytes(24 << 30),
            available_bytes: Bytes(23 << 30),
            driver: String::new().into(),
            context: None,
            modules: None,
        },
        parameters: None,
        peaks: Peaks {
            warm: peak(800, 1024, 1500),
            cold: peak(800, 4096, 4500),
        },
        baseline: None,
        epochs: Vec::new(),
        varying: None,
        gpus: Vec::new(),
        steps: Vec::new(),
        oom: None,
        autotune: Autotune::default(),
        recording: None,
        measurement: None,
        streams: 1,
        settling: None,
        recovered_refusals: 0,
        features: None,
        device_reads: 0,
        assumptions: Vec::new(),
        range: None,
        error: None,
        seconds: 0.0,
        pass_seconds: Vec::new(),
    }
}

/// Returns the same run with this much live memory at the end of each step.
pub(crate) fn ending_at(run: Run, ends: &[u64]) -> Run {
    let phase = |live: u64| PhasePeaks {
        phase: Phase::Optimizer,
        live_peak: Bytes(live),
        live_end: Bytes(live),
        in_use_end: None,
        reserved_peak: Bytes(live),
        reserved_end: Bytes(live),
    };
    let steps = ends.iter().zip(0..).map(|(live, step)| Step {
        step,
        pass: Pass::Traced,
        phases: vec![phase(*live)],
    });
    Run {
        steps: steps.collect(),
        ..run
    }
}

/// Returns a report of these runs without verdicts.
pub(crate) fn report(runs: Vec<Run>) -> Report {
    Report {
        version: REPORT_VERSION,
        command: Some(WrittenBy::Check),
        expected_verdicts: Vec::new(),
        tool: Tool {
            name: "cargo-vram".into(),
            version: Foreign::default(),
            fingerprint: Foreign::default(),
        },
        commit: None,
        dirty: None,
        partition: None,
        expected: Vec::new(),
        status: Status::Pass,
        verdicts: Vec::new(),
        runs,
        skipped: Vec::new(),
        base: None,
        problems: Vec::new(),
        growth: Vec::new(),
    }
}

/// Returns the same run as a measurement.
pub(crate) fn measured(run: Run) -> Run {
    let library = LoadedLibrary {
        path: "/lib/libcuda.so.1".into(),
        version: "13.0".into(),
    };
    Run {
        mode: Mode::Measure,
        measurement: Some(Measurement {
            uuid: "GPU-1".into(),
            libcuda: library.clone(),
            libnvrtc: library,
            cores: 16,
            proof: Proof {
                seed: 1,
                expected: 2,
                computed: 2,
            },
            process: Some(ProcessSource {
                of: ProcessOf::Process,
                interval_us: 10_000,
                longest_gap_us: 12_000,
                looks: 100,
            }),
            idle: None,
            others: Vec::new(),
            limit: None,
            tuning: Tuning::Free,
            spread: None,
        }),
        ..run
    }
}

/// An explanation of growth with everything that it can have.
pub(crate) fn growth() -> GrowthExplanation {
    let place = |file: &str, line, edited| {
        Some(GrowthPlace {
            file: file.into(),
            line,
            text: Some("hidden: LinearConfig::new(1024, 6144).init(device),".into()),
            edited,
        })
    };
    let part = |name: &str, before: u64, after: u64| GrowthPart::new(name.into(), Bytes(before), Bytes(after));
    GrowthExplanation {
        package: "p".into(),
        model: "resnet18".into(),
        gpu: "l4".into(),
        mode: Mode::Estimate,
        pass: Pass::Warm,
        metric: Metric::Reserved,
        before: Bytes(80 * MIB),
        after: Bytes(120 * MIB),
        causes: vec![
            GrowthCause {
                what: "hidden is larger".into(),
                change: 35 << 20,
                place: place("src/model.rs", 41, true),
            },
            GrowthCause {
                what: "memory within operations".into(),
                change: 1 << 20,
                place: None,
            },
        ],
        categories: vec![
            part("parameters", 20 * MIB, 30 * MIB),
            part("activations", 40 * MIB, 66 * MIB),
        ],
        layers: vec![part("hidden", 20 * MIB, 55 * MIB), part("no layer", 0, MIB)],
        lines: vec![
            GrowthLine {
                place: place("src/model.rs", 52, false),
                before: Bytes(20 * MIB),
                after: Bytes(55 * MIB),
                change: 35 << 20,
            },
            GrowthLine {
                place: None,
                before: Bytes(0),
                after: Bytes(MIB),
                change: 1 << 20,
            },
        ],
        allocator: vec![part("unused parts of pages (fragmentation)", 10 * MIB, 13 * MIB)],
        unexplained: 1 << 20,
        notes: vec!["Burn 0.21.0 → 0.22.1".into()],
        limits: Vec::new(),
    }
}
