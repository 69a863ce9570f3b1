//! Models on several GPUs: the layers split over the GPUs, or the whole model on each GPU.

use std::sync::LazyLock;

use cargo_vram::bytes::Bytes;
use cargo_vram::report::{ErrorCode, GpuShare, Phase, Status};

use crate::common;
use crate::common::{Checked, Once, run};

fn checked() -> &'static Checked {
    static CHECKED: Once<Checked> = Once::new("gpus", |_| {
        // The models for Burn 0.22 are translated, so they have no baselines.
        let arguments = match common::is_burn_0_22() {
            true => selected("estimate", &["--gpu", "l4"]),
            false => selected("check", &["--estimate", "--exact", "--require-baseline"]),
        };
        Checked::new(&arguments)
    });
    CHECKED.get()
}

/// The arguments of a command for the models of `fixtures/cards`.
fn selected<'a>(command: &'a str, more: &[&'a str]) -> Vec<&'a str> {
    static MANIFEST: LazyLock<String> = LazyLock::new(|| common::manifest("fixtures/cards"));
    let package = match common::is_burn_0_22() {
        true => ["--manifest-path", &MANIFEST],
        false => ["-p", "cards"],
    };
    [&[command][..], &package, more].concat()
}

/// Writes a file with these budgets for an L4.
fn budgets(models: &str) -> (tempfile::TempDir, String) {
    common::budgets(&format!("version: 1\ngpu: l4\nmodels:\n{models}"))
}

/// The arguments that check the model with split layers against a budgets file.
fn split(file: &str) -> Vec<&str> {
    selected("check", &["-m", "transformer_split", "--estimate", "--budgets", file])
}

/// The live memory of a GPU at the end of a step.
fn left(gpu: &GpuShare, step: u32) -> u64 {
    let step = gpu.steps.iter().find(|known| known.step == step).unwrap();
    let last = step.phases.iter().find(|phase| phase.phase == Phase::Optimizer);
    last.unwrap().live_end.0
}

/// The parameters would lose their f32 values, because each GPU would get the model in half precision.
#[test]
fn mixed_precision_is_refused_where_every_gpu_has_the_whole_model() {
    let mixed = [
        "--gpu",
        "l4",
        "--dtype",
        "mixed-f16",
        "-m",
        "resnet18_data_parallel",
        "--set",
        "batch_size=2",
        "--set",
        "blocks=1",
    ];
    let (report, exit, text) = common::report(&selected("estimate", &mixed));
    assert_eq!(exit, 101, "{text}");
    let mixed = report.runs.iter().find(|run| !run.what_if.is_none()).unwrap();
    assert_eq!(mixed.error.as_ref().unwrap().code, ErrorCode::Impossible, "{text}");
}

#[test]
fn each_gpu_has_its_own_peaks_and_the_fullest_stands_for_the_run() {
    let Checked { report, exit, text } = checked();
    assert_eq!((*exit, report.runs.len()), (0, 2), "{text}");
    for run in &report.runs {
        assert_eq!(run.inputs["gpus"], 2);
        let numbers: Vec<_> = run.gpus.iter().map(|gpu| gpu.gpu_number).collect();
        assert_eq!(numbers, [0, 1]);
        let outside = run.gpu.total_bytes.0 - run.gpu.available_bytes.0;
        for gpu in &run.gpus {
            let warm = gpu.peaks.warm;
            assert!(warm.live.unwrap() > Bytes(0) && warm.live <= warm.reserved, "{warm:?}");
            assert_eq!(warm.process.unwrap().0, warm.reserved.unwrap().0 + outside);
        }
        let most = |of: fn(&GpuShare) -> Option<Bytes>| run.gpus.iter().map(of).max().unwrap();
        assert_eq!(run.peaks.warm.live, most(|gpu| gpu.peaks.warm.live));
        assert_eq!(run.peaks.warm.reserved, most(|gpu| gpu.peaks.warm.reserved));
        assert_eq!(run.peaks.cold.reserved, most(|gpu| gpu.peaks.cold.reserved));
        let mut assumptions = run.assumptions.iter();
        assert!(assumptions.any(|line| line.code() == "several-gpus"), "{run:?}");
        for gpu in ["GPU 0", "GPU 1"] {
            assert!(text.contains(&format!("{} {gpu}", run.full_name())), "{text}");
        }
    }
}

#[test]
fn parts_add_up_to_the_whole() {
    let run = run(&checked().report, "transformer_split");
    // A step leaves the parameters and the two states of AdamW on some GPU.
    let whole = 3 * run.parameters.unwrap().bytes.0;
    let left: u64 = run.gpus.iter().map(|gpu| left(gpu, 1)).sum();
    let beside = left - whole;
    // Fusion delays work past the end of a step, so the value may include tensors that fusion still holds. Here, these
    // are the last tensors between the GPUs: 8 × 256 × 256 floats in each direction.
    assert!(
        beside < 2 * 8 * 256 * 256 * 4,
        "{beside} bytes beside parameters and state"
    );
}

#[test]
fn the_first_gpu_alone_has_the_optimizer() {
    let run = run(&checked().report, "resnet18_data_parallel");
    let whole = 3 * run.parameters.unwrap().bytes.0;
    let [first, second] = run.gpus.as_slice() else {
        panic!("{} GPUs", run.gpus.len());
    };
    for step in 1..3 {
        assert!(left(first, step).abs_diff(whole) < 1 << 20, "{}", left(first, step));
        assert!(left(second, step) < 1 << 20, "{}", left(second, step));
    }
    // During the forward and backward phase, each GPU holds as much as a single GPU would, apart from optimizer states.
    let (first, second) = (first.peaks.warm.live.unwrap(), second.peaks.warm.live.unwrap());
    assert!(first > second && second.0 > first.0 / 10 * 9, "{first} {second}");
}

#[test]
fn two_runs_agree_in_every_byte() {
    let again = selected("estimate", &["--gpu", "l4", "--jobs", "1"]);
    let (again, exit, text) = common::report(&again);
    assert_eq!(exit, 0, "{text}");
    for run in &again.runs {
        let first = common::run(&checked().report, &run.model);
        assert_eq!(first.gpus, run.gpus, "{}", run.model);
        assert_eq!(first.peaks, run.peaks);
    }
}

#[test]
fn what_an_update_leaves_is_there_however_few_steps_are_asked_for() {
    let gpus_after = |steps: &str| {
        let model = selected(
            "estimate",
            &[
                "-m",
                "transformer_split",
                "--set",
                "layers=2",
                "--gpu",
                "l4",
                "--steps",
                steps,
            ],
        );
        let (mut report, exit, text) = common::report(&model);
        assert_eq!(exit, 0, "{text}");
        report.runs.remove(0).gpus
    };
    // The GPU without the loss runs its update one step later.
    assert_eq!(gpus_after("3"), gpus_after("2"));
}

#[test]
fn a_gpu_over_its_limits_fails_by_its_number() {
    let models = "  transformer_split:\n    inputs: { layers: 2 }\n    gpus:\n      0: { reserved: 1 GiB }\n      1: { live: 16 MiB, cold: { reserved: 32 MiB } }\n      7: { live: 1 GiB }\n";
    let (_folder, file) = budgets(models);
    let (report, exit, text) = common::report(&split(&file));
    assert_eq!(exit, 101, "{text}");
    let told: Vec<_> = report
        .verdicts
        .iter()
        .map(|verdict| (verdict.gpu_number, verdict.status, verdict.line))
        .collect();
    let expected = [
        (Some(0), Status::Pass, Some(7)),
        (Some(1), Status::Fail, Some(8)),
        (Some(1), Status::Fail, Some(8)),
        (Some(7), Status::Error, Some(9)),
    ];
    assert_eq!(told, expected, "{text}");
    assert!(text.contains("live memory on GPU 1"), "{text}");
    assert!(
        text.contains("the budget has limits for GPU 7, but the model runs on 2 GPUs, numbered from 0"),
        "{text}"
    );
    // The row of a GPU shows that GPU's limit or, without a limit, its memory.
    let row = |gpu: &str| {
        let name = format!("cards/transformer_split {gpu}");
        let row = text.lines().find(|line| line.trim().starts_with(&name));
        row.unwrap_or_else(|| panic!("{text}")).to_owned()
    };
    let available = report.runs[0].gpu.available_bytes;
    assert!(row("GPU 0").contains(" 1 GiB "), "{text}");
    assert!(row("GPU 1").contains(&format!("GPU {available}")), "{text}");
}

#[test]
fn a_model_may_be_over_more_gpus_than_it_says() {
    let model = selected("estimate", &["-m", "transformer_split", "--gpu", "l4"]);
    let (report, exit, text) = common::report(&[&model[..], &["--set", "gpus=4"]].concat());
    assert_eq!((exit, report.runs[0].gpus.len()), (0, 4), "{text}");
    let (report, exit, text) = common::report(&[&model[..], &["--set", "gpus=17"]].concat());
    assert_eq!(exit, 101, "{text}");
    assert_eq!(report.runs[0].error.as_ref().unwrap().code, "too-few-gpus");
    let (report, _, text) = common::report(&[&model[..], &["--set", "gpus=0"]].concat());
    assert_eq!(report.runs[0].error.as_ref().unwrap().code, "impossible", "{text}");
}

#[test]
fn a_gpu_without_limits_is_a_warning_and_a_row_is_of_the_gpu_that_fails() {
    let models = "  transformer_split: { inputs: { layers: 2 }, gpus: { 0: { live: 16 MiB } } }\n";
    let (_folder, file) = budgets(models);
    let (report, exit, text) = common::report(&split(&file));
    assert_eq!(exit, 100, "{text}");
    let told: Vec<_> = report
        .verdicts
        .iter()
        .map(|verdict| (verdict.gpu_number, verdict.status))
        .collect();
    assert_eq!(told, [(Some(0), Status::Fail), (Some(1), Status::Warn)], "{text}");
    assert!(text.contains("`transformer_split` has no limits for GPU 1"), "{text}");
    let live = report.runs[0].gpus[0].peaks.warm.live.unwrap();
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("report.json");
    std::fs::write(&path, serde_json::to_vec(&report).unwrap()).unwrap();
    let path = path.to_str().unwrap();
    let comment = common::said(&common::output(&["merge", path, "--message-format", "markdown"]));
    assert!(
        comment.contains(&format!("live on GPU 0, {live} of 16 MiB")),
        "{comment}"
    );
}

/// Burn's distributed training over NCCL. It needs another build of Burn, so one test has all assertions.
#[test]
fn distributed_workers_have_an_optimizer_each_and_agree_in_every_byte() {
    if common::is_burn_0_22() {
        // Burn 0.22 has no `.ddp` yet.
        return;
    }
    let estimate = |more: &[&str]| {
        // `tests/run` builds this.
        let manifest = common::manifest("fixtures/distributed");
        let model = ["estimate", "--manifest-path", &manifest, "--gpu", "l4", "--steps", "3"];
        let (report, exit, text) = common::report(&[&model[..], more].concat());
        (report.runs, exit, text)
    };
    let ddp = |more: &[&str]| estimate(&[&["-m", "ddp"], more].concat());
    let (runs, exit, text) = estimate(&["-m", "ddp", "-m", "data_parallel"]);
    assert_eq!((exit, runs.len()), (0, 2), "{text}");
    let [run, both] = ["ddp", "data_parallel"].map(|model| {
        let run = runs.iter().find(|run| run.model == model);
        run.unwrap_or_else(|| panic!("{text}"))
    });
    let [first, second] = run.gpus.as_slice() else {
        panic!("{} GPUs", run.gpus.len());
    };
    let parameters = run.parameters.unwrap().bytes.0;
    for step in 1..3 {
        // Burn drops the last tensors of an update late: at most three of eight layers.
        // Each GPU has parameters and the two states of Adam. The first GPU also has the original model, from which the
        // others were forked: Burn's learner keeps it.
        assert!(
            left(second, step).abs_diff(3 * parameters) < parameters * 2 / 5,
            "{}",
            left(second, step)
        );
        let kept = left(first, step) - left(second, step);
        assert!((parameters..parameters * 3 / 2).contains(&kept), "{kept}");
    }
    // In the backward phase, each GPU has the gradients of all parameters, and a copy of the gradient that NCCL
    // reduces.
    let live = |gpu: &GpuShare| gpu.peaks.warm.live.unwrap().0;
    assert!(
        live(second) > live(&both.gpus[1]) + 2 * parameters,
        "{} {}",
        live(second),
        live(&both.gpus[1])
    );
    // The workers share the statistics of a `BatchNorm`, and the order of a hash map decides which GPU holds them. Two
    // runs agree nevertheless.
    let (again, _, _) = ddp(&[]);
    let again = &again[0];
    assert_eq!((&run.gpus, run.peaks), (&again.gpus, again.peaks));
    // If one worker runs out of memory, the others do not wait for it.
    let (runs, _, text) = ddp(&["--set", "batch_size=1000000"]);
    assert!(text.contains("out of memory"), "{text}");
    assert!(runs[0].oom.is_some() && runs[0].seconds < 120.0, "{:?}", runs[0]);
    let (runs, _, text) = ddp(&["--set", "gpus=1"]);
    assert!(runs[0].error.is_some() && text.contains("at least two GPUs"), "{text}");
    // The reason in the message is Burn's.
    let (runs, _, text) = ddp(&["--accumulate", "2"]);
    assert!(runs[0].error.is_none() && runs[1].error.is_some(), "{text}");
    assert!(text.contains("a batch's first part"), "{text}");
}
