//! The zoo, estimated once. Each test checks another aspect of the same report.

use cargo_vram::bytes::Bytes;
use cargo_vram::report::{Metric, Pass, Phase, Status, Task};

use crate::common;
use crate::common::{Checked, Once, run};

/// Models that train, and that also run for inference under another name.
const TWINS: [&str; 6] = [
    "vgg16",
    "resnet18",
    "densenet201",
    "sequential",
    "transformer",
    "decoder",
];

fn checked() -> &'static Checked {
    static CHECKED: Once<Checked> = Once::new("zoo", |_| {
        // The tool ends a run that takes more memory of the host. Burn 0.22 needs more because it includes LLVM, which
        // compiles the kernels.
        let most = if common::is_burn_0_22() { "320 MiB" } else { "238 MiB" };
        let arguments = ["check", "-p", "zoo", "--estimate", "--exact", "--require-baseline"];
        Checked::new(&[&arguments[..], &["--host-memory", most]].concat())
    });
    CHECKED.get()
}

#[test]
fn the_zoo_is_within_its_budgets() {
    let Checked { report, exit, text } = checked();
    assert_eq!(*exit, 0, "{text}");
    assert_eq!(report.status, Status::Pass, "{text}");
    assert_eq!(report.expected.len(), 15);
    assert_eq!(report.runs.len(), 15);
    assert!(report.problems.is_empty());
}

#[test]
fn every_figure_is_the_one_that_was_accepted() {
    let Checked { report, text, .. } = checked();
    for run in &report.runs {
        let baseline = run.baseline.as_ref().unwrap_or_else(|| panic!("{text}"));
        assert_eq!(baseline.peaks, run.peaks, "{}: {text}", run.model);
    }
}

#[test]
fn parameter_counts_are_those_of_the_literature() {
    let count = |name: &str| run(&checked().report, name).parameters.unwrap();
    assert_eq!(count("vgg16").count, 138_357_544);
    assert_eq!(count("vgg16").bytes.0, 4 * 138_357_544);
    assert_eq!(count("resnet18").learnable, 11_689_512);
    assert_eq!(
        count("resnet18").count,
        11_689_512 + 9_600,
        "with the running statistics of its batch norms"
    );
    assert_eq!(count("densenet201").count, 20_242_984);
    assert_eq!(count("sequential").count, 112_576);
    assert_eq!(count("sequential").bytes.0, 450_304);
    let transformer = zoo_transformer(8192, 256, 256, 4, 1024);
    assert_eq!(count("transformer").count, transformer);
    assert_eq!(count("decoder").count, 1_100_048_384, "TinyLlama 1.1B");
    for twin in TWINS {
        let inference = count(&format!("{twin}_inference"));
        assert_eq!(inference.count, count(twin).count, "{twin}");
    }
}

/// The number of parameters of a transformer: embeddings, blocks (attention, norms, feed-forward), the last norm, the
/// head.
fn zoo_transformer(vocabulary: u64, positions: u64, width: u64, layers: u64, hidden: u64) -> u64 {
    let attention = 4 * (width * width + width);
    let feed_forward = 2 * width * hidden + hidden + width;
    let block = attention + feed_forward + 2 * 2 * width;
    (vocabulary + positions) * width + layers * block + 2 * width + (width + 1) * vocabulary
}

#[test]
fn the_traced_pass_holds_what_the_warm_pass_holds() {
    for run in &checked().report.runs {
        let traced = run
            .steps
            .iter()
            .flat_map(|step| &step.phases)
            .map(|phase| phase.reserved_peak)
            .max();
        assert_eq!(traced, run.peaks.warm.reserved, "{}", run.model);
        assert!(
            !run.assumptions.iter().any(|line| line.code() == "reserved-differs"),
            "{}",
            run.model
        );
    }
}

#[test]
fn live_is_never_more_than_reserved() {
    for run in &checked().report.runs {
        assert!(
            run.peaks.warm.live.unwrap() <= run.peaks.warm.reserved.unwrap(),
            "{}",
            run.model
        );
        for phase in run.steps.iter().flat_map(|step| &step.phases) {
            assert!(phase.live_end <= phase.live_peak && phase.reserved_end <= phase.reserved_peak);
            assert!(phase.live_peak <= phase.reserved_peak, "{} {phase:?}", run.model);
        }
    }
}

#[test]
fn a_training_step_goes_through_its_phases() {
    let run = run(&checked().report, "vgg16");
    assert_eq!(run.task, Some(Task::Train));
    if common::is_burn_0_22() {
        let settling = run.settling.unwrap();
        assert!(settling.settled && settling.steps >= 3, "{settling:?}");
        assert_eq!(run.steps.len(), settling.steps as usize);
    } else {
        assert_eq!(run.steps.len(), 5);
    }
    for step in &run.steps {
        assert_eq!(step.pass, Pass::Traced);
        let phases: Vec<_> = step
            .phases
            .iter()
            .map(|phase| phase.phase)
            .filter(|phase| *phase > Phase::Batch)
            .collect();
        assert_eq!(
            phases,
            [Phase::Forward, Phase::Backward, Phase::Optimizer],
            "step {}",
            step.step
        );
    }
}

#[test]
fn after_the_first_step_adam_holds_its_two_states_beside_the_parameters() {
    for name in ["vgg16", "sequential"] {
        let run = run(&checked().report, name);
        // The `Sequential` model trains with SGD, which has no state.
        let copies = if name == "vgg16" { 3 } else { 1 };
        for step in &run.steps {
            let end = step
                .phases
                .iter()
                .find(|phase| phase.phase == Phase::Optimizer)
                .unwrap()
                .live_end;
            let beside = end.0 - copies * run.parameters.unwrap().bytes.0;
            assert!(
                beside < 64 << 10,
                "{name}, step {}: {beside} bytes beside parameters and state",
                step.step
            );
        }
    }
}

#[test]
fn a_cache_holds_keys_and_values_of_its_whole_context() {
    let run = run(&checked().report, "decoder_inference");
    // The usual formula of a key-value cache: two tensors per layer, with the key-value heads only. That is 45,056
    // bytes per token.
    let (layers, heads, head_size, context) = (22, 4, 64, 2048);
    let cache = 2 * layers * heads * head_size * context * 4;
    assert_eq!(cache, 92_274_688);
    let weights = run.parameters.unwrap().bytes.0;
    assert_eq!(weights, 4_400_193_536);
    if common::is_burn_0_22() {
        // With Burn 0.22, fusion frees the cache before the step's last launch. So its size shows only in the peak,
        // which is in the attention.
        let arguments = [
            "estimate",
            "-p",
            "zoo",
            "-m",
            "decoder_inference",
            "--gpu",
            "l4",
            "--set",
        ];
        let (longer, exit, text) = common::report(&[&arguments[..], &["context_len=3072"]].concat());
        assert_eq!(exit, 0, "{text}");
        let (prompt, more) = (512, 1024);
        let caches = cache / context * more;
        let sine_and_cosine = 2 * more * head_size * 4;
        // In one layer, each of 32 heads has a score for each pair of tokens. Each also has a copy of the keys, which
        // eight heads share.
        let scores = 32 * prompt * more * 4;
        let keys = 32 * more * head_size * 4;
        let grown = longer.runs[0].peaks.warm.live.unwrap().0 - run.peaks.warm.live.unwrap().0;
        assert_eq!(grown, caches + sine_and_cosine + scores + keys);
        return;
    }
    for step in &run.steps {
        let last = step.phases.iter().find(|phase| phase.phase == Phase::Forward).unwrap();
        // The rest is sine and cosine of every position, and the tokens.
        let beside = last.live_end.0 - weights - cache - 2 * context * head_size * 4;
        assert!(beside < 64 << 10, "{beside} bytes");
    }
}

#[test]
fn a_large_model_takes_nothing_of_the_host() {
    // `checked` gives each process at most 250 MB of host memory.
    for model in ["decoder", "decoder_inference"] {
        let run = run(&checked().report, model);
        assert_eq!(run.error, None);
        assert!(run.parameters.unwrap().bytes > Bytes(4_000_000_000), "{model}");
    }
}

#[test]
fn inference_holds_less_than_training() {
    for twin in TWINS {
        let report = &checked().report;
        let (train, infer) = (run(report, twin), run(report, &format!("{twin}_inference")));
        assert_eq!(infer.task, Some(Task::Infer));
        assert!(infer.peaks.warm.live < train.peaks.warm.live, "{twin}");
    }
}

#[test]
fn every_figure_is_marked_as_an_estimate_and_says_what_it_assumes() {
    for run in &checked().report.runs {
        assert_eq!(run.gpu.id, "l4");
        assert!(run.gpu.driver.raw().starts_with("virtual "));
        assert!(
            run.assumptions
                .iter()
                .any(|line| line.to_string().contains("loaded kernels")),
            "{}",
            run.model
        );
        let choices = &run.autotune;
        assert!(
            choices.recorded + choices.nearest + choices.assumed > 0,
            "{}",
            run.model
        );
    }
}

#[test]
fn a_loop_written_by_hand_says_that_it_varies() {
    let run = run(&checked().report, "resnet18_free_form");
    assert!(run.assumptions.iter().any(|line| line.code() == "hand-written-step"));
}

#[test]
fn batches_made_on_another_thread_are_counted() {
    let report = &checked().report;
    let (own, other) = (run(report, "sequential"), run(report, "sequential_loader"));
    assert_eq!(own.streams, 1);
    assert!(other.streams > 1, "{} streams", other.streams);
    // In every step, one image of 3 × 682 × 700 floats is made on the stream of the other thread.
    let batch = 3 * 682 * 700 * 4;
    let phases = other.steps.iter().flat_map(|step| &step.phases);
    assert!(
        phases
            .filter(|phase| phase.phase == Phase::Batch)
            .all(|phase| phase.live_peak.0 >= batch)
    );
    // With Burn 0.22, if no loss is read, fusion frees gradients in another order.
    if !common::is_burn_0_22() {
        assert!(other.peaks.warm.live.unwrap() >= own.peaks.warm.live.unwrap());
    }
}

#[test]
fn reading_the_loss_is_no_read_of_the_device() {
    assert_eq!(run(&checked().report, "resnet18").device_reads, 0);
}

#[test]
fn each_verdict_points_at_its_line() {
    let report = &checked().report;
    let text = std::fs::read_to_string(common::workspace().join("budgets.yaml")).unwrap();
    let lines: Vec<_> = text.lines().collect();
    let verdicts: Vec<_> = report
        .verdicts
        .iter()
        .filter(|v| v.metric == Some(Metric::Reserved))
        .collect();
    assert!(verdicts.len() >= 15);
    for verdict in verdicts {
        let line = lines[verdict.line.unwrap() as usize - 1];
        assert!(line.contains("reserved"), "{line}");
    }
}
