//! Tests of verdicts on drift.

use super::*;
use crate::budget::Budgets;
use crate::budget::judge::judge;
use crate::budget::judge::tests::lines;
use crate::report::sample::{measured, run};
use crate::report::{Autotune, OtherProcess, Phase, RecordingId, RunError};

const FILE: &str = "\
version: 1
gpu: l4
defaults: { drift: { warn: 2%, fail: 5% } }
models:
  a: { reserved: 100 GiB }
  a-b128: { model: a, inputs: { batch_size: 128 }, reserved: 100 GiB, drift: { warn: 1% } }
  strict: { reserved: 100 GiB, drift: { fail: 0% } }
";

/// Returns only the verdicts on drift.
fn drift_by(file: &str, runs: &[Run]) -> Vec<Verdict> {
    let budgets = Budgets::parse(file.as_bytes(), "budgets.yaml", &["l4", "h200"]).unwrap();
    let mut verdicts = judge(runs, &budgets, "budgets.yaml");
    verdicts.retain(|verdict| verdict.rule == Rule::Drift);
    verdicts
}

fn drift(runs: &[Run]) -> Vec<String> {
    lines(drift_by(FILE, runs))
}

/// Makes a measured and an estimated run with these bytes of reserved memory.
fn reserved(model: &str, measured_bytes: u64, estimated_bytes: u64) -> [Run; 2] {
    let mut runs = [measured(run(model, "l4")), run(model, "l4")];
    runs[0].peaks.warm.reserved = Some(Bytes(measured_bytes));
    runs[1].peaks.warm.reserved = Some(Bytes(estimated_bytes));
    runs
}

fn oom(step: u32) -> Option<Oom> {
    Some(Oom {
        pass: Pass::Warm,
        gpu_number: None,
        step: Some(step),
        phase: Some(Phase::Optimizer),
        kernel: None,
        requested: Some(Bytes(1)),
        function: None,
        reserved: Bytes(2),
        live: None,
        available: Bytes(0),
        tensor: None,
    })
}

fn error() -> Option<RunError> {
    Some(RunError {
        code: crate::report::ErrorCode::TimedOut,
        message: String::new().into(),
        help: None,
    })
}

#[test]
fn a_measurement_and_its_estimate_give_a_verdict_on_live_and_one_on_reserved() {
    let verdicts = drift_by(FILE, &reserved("a", 10_000, 10_300));
    assert_eq!(
        lines(verdicts.clone()),
        [
            "5:3 Drift Pass a: warm live memory: measured 800 MiB, estimated 800 MiB; equal to the byte; within the drift limit of 5 %",
            "5:3 Drift Warn a: warm reserved memory: measured 9.77 KiB, estimated 10.06 KiB; the difference is 300 B (3 %); a drift above 2 % (200 B) is a warning",
        ]
    );
    let reserved = &verdicts[1];
    assert_eq!(
        (reserved.actual, reserved.baseline, reserved.limit),
        (Some(Bytes(10_000)), Some(Bytes(10_300)), Some(Bytes(200)))
    );
    assert_eq!(
        (reserved.mode, reserved.pass, reserved.metric),
        (Mode::Measure, Some(Pass::Warm), Some(Metric::Reserved))
    );
}

#[test]
fn a_difference_at_the_limit_is_within_and_a_byte_more_is_over_on_either_side() {
    let status = |measured, estimated| drift_by(FILE, &reserved("a", measured, estimated))[1].status;
    // 2 % and 5 % of 10,049 are 200.98 and 502.45, which round down to 200 and 502 bytes.
    assert_eq!(status(10_049, 10_249), Status::Pass);
    assert_eq!(status(10_049, 10_250), Status::Warn);
    assert_eq!(status(10_049, 9_848), Status::Warn);
    assert_eq!(status(10_049, 10_551), Status::Warn);
    assert_eq!(status(10_049, 10_552), Status::Fail);
    assert_eq!(status(10_049, 9_546), Status::Fail);
    // The percentage refers to the measured value.
    assert_eq!(status(100, 105), Status::Warn);
    assert_eq!(status(105, 100), Status::Warn);
    assert_eq!(status(20, 21), Status::Warn);
    assert_eq!(status(21, 20), Status::Warn);
    assert_eq!(status(19, 20), Status::Fail);
}

#[test]
fn the_largest_figures_do_not_overflow() {
    let verdicts = drift_by(FILE, &reserved("a", u64::MAX, 0));
    assert_eq!(verdicts[1].status, Status::Fail);
    assert_eq!(verdicts[1].limit, Some(Bytes(922_337_203_685_477_580)));
    let none = drift_by(FILE, &reserved("a", 0, 1));
    assert_eq!(none[1].status, Status::Fail);
    assert!(
        none[1]
            .message
            .raw()
            .contains("estimated 1 B; the difference is 1 B; the drift limit is 5 % (0 B)")
    );
}

#[test]
fn a_models_own_limit_replaces_the_default_and_is_pointed_at() {
    assert_eq!(
        drift(&reserved("strict", 10_000, 10_001))[1],
        "7:47 Drift Fail strict: warm reserved memory: measured 9.77 KiB, estimated 9.77 KiB; the difference is 1 B (0.01 %); the drift limit is 0 % (0 B)"
    );
    let named = |run: Run| Run {
        budget: Some("a-b128".into()),
        ..run
    };
    let [one, other] = reserved("a", 10_000, 20_000).map(named);
    // A limit that has only `warn` never fails.
    assert!(drift(&[one, other])[1].starts_with("6:86 Drift Warn a-b128: warm reserved memory:"));
}

#[test]
fn a_model_without_budget_has_the_defaults() {
    assert!(drift(&reserved("other", 100, 200))[1].starts_with("3:38 Drift Fail other: warm reserved memory:"));
}

#[test]
fn without_a_limit_and_without_a_measurement_nothing_is_said() {
    let none = "version: 1\ngpu: l4\nmodels: { a: { reserved: 100 GiB } }\n";
    assert_eq!(drift_by(none, &reserved("a", 100, 200)), []);
    assert_eq!(drift(&[run("a", "l4"), run("a", "l4")]), [""; 0]);
}

#[test]
fn only_the_same_model_gpu_and_inputs_are_compared() {
    let [one, same] = reserved("a", 100, 100);
    let others: [fn(&mut Run); 5] = [
        |run| run.package = "q".into(),
        |run| run.model = "b".into(),
        |run| run.budget = Some("a-b128".into()),
        |run| run.gpu.id = "h200".into(),
        |run| _ = run.inputs.insert("batch_size".into(), 64),
    ];
    let others = others.map(|change| {
        let mut other = same.clone();
        change(&mut other);
        other
    });
    let alone: Vec<_> = [one.clone()].into_iter().chain(others.clone()).collect();
    assert_eq!(
        drift(&alone),
        [
            "5:3 Drift Warn a: the measurement and the estimate cannot be compared: there is no estimate of this model on `l4` with the same inputs"
        ]
    );
    let both: Vec<_> = others.into_iter().chain([same, one]).collect();
    assert_eq!(drift(&both).len(), 2);
    assert!(drift(&both).iter().all(|said| said.contains("equal to the byte")));
}

#[test]
fn an_estimate_for_a_gpu_as_large_is_preferred_and_another_size_is_told() {
    let [one, mut smaller] = reserved("a", 100, 100);
    smaller.gpu.total_bytes = Bytes(20 << 30);
    smaller.peaks.warm.reserved = Some(Bytes(102));
    assert!(
        drift(&[one.clone(), smaller.clone()])[1]
            .ends_with("; the estimate is for a GPU with 20 GiB, but this GPU has 24 GiB")
    );
    let same = run("a", "l4");
    let said = drift(&[one, smaller, same]);
    assert!(said[1].contains("estimated 1 GiB"), "{said:?}");
}

#[test]
fn a_missing_figure_cannot_be_compared() {
    let [mut one, mut other] = reserved("a", 100, 100);
    one.peaks.warm.live = None;
    other.peaks.warm.reserved = None;
    assert_eq!(
        drift(&[one, other]),
        [
            "5:3 Drift Warn a: warm live memory cannot be compared: the measurement has no value for it",
            "5:3 Drift Warn a: warm reserved memory cannot be compared: the estimate has no value for it",
        ]
    );
}

#[test]
fn a_run_that_died_is_not_compared() {
    for at in [0, 1] {
        let mut runs = reserved("a", 100, 100);
        runs[at].error = error();
        let which = ["measured", "estimated"][at];
        assert_eq!(
            drift(&runs),
            [format!(
                "5:3 Drift Warn a: the measurement and the estimate cannot be compared: the {which} run ended early (`timed-out`)"
            )]
        );
        // It is unknown whether the run that died would have run out of memory.
        runs[1 - at].oom = oom(1);
        assert!(drift(&runs)[0].contains("cannot be compared"));
    }
}

#[test]
fn out_of_memory_in_one_of_both_is_drift() {
    let mut runs = reserved("a", 7 << 30, 6 << 30);
    runs[0].oom = oom(1);
    assert_eq!(
        drift(&runs),
        [
            "5:3 Drift Fail a: the measurement ran out of memory in the warm pass, step 1, optimizer, but the estimate fits with 6 GiB reserved"
        ]
    );
    if let Some(measurement) = &mut runs[0].measurement {
        measurement.others.push(OtherProcess {
            pid: 7,
            name: None,
            bytes: Some(Bytes(1 << 30)),
        });
    }
    assert!(drift(&runs)[0].ends_with("; another process on the GPU held memory (1 GiB known)"));
    let mut runs = reserved("a", 7 << 30, 6 << 30);
    runs[1].oom = oom(2);
    assert_eq!(
        drift(&runs),
        [
            "5:3 Drift Fail a: the estimate ran out of memory in the warm pass, step 2, optimizer, but the measurement fits with 7 GiB reserved"
        ]
    );
    let warn_alone = FILE.replace("warn: 2%, fail: 5%", "warn: 2%");
    assert_eq!(drift_by(&warn_alone, &runs)[0].status, Status::Warn);
}

#[test]
fn out_of_memory_in_both_is_agreement() {
    let mut runs = reserved("a", 7 << 30, 6 << 30);
    runs[0].oom = oom(1);
    runs[1].oom = oom(2);
    assert_eq!(
        drift(&runs),
        [
            "5:3 Drift Pass a: both ran out of memory: the measurement in the warm pass, step 1, optimizer, the estimate in the warm pass, step 2, optimizer"
        ]
    );
}

#[test]
fn a_drift_says_on_how_many_choices_its_estimate_rests() {
    let mut runs = reserved("a", 10_000, 10_300);
    runs[1].autotune = Autotune {
        recorded: 25,
        nearest: 3,
        assumed: 12,
        ..Autotune::default()
    };
    let rests = "; the estimate used 40 autotune choices (12 assumed, 3 from the nearest recorded key)";
    assert!(drift(&runs)[1].ends_with(rests));
    runs[1].autotune = Autotune {
        recorded: 40,
        ..Autotune::default()
    };
    assert!(!drift(&runs)[1].contains("autotune"));
}

#[test]
fn reserved_under_assumed_choices_only_warns_and_live_fails_all_the_same() {
    let mut runs = reserved("a", 10_000, 20_000);
    runs[1].peaks.warm.live = Some(Bytes(3 << 30));
    let status = |runs: &[Run]| {
        let verdicts = drift_by(FILE, runs);
        [verdicts[0].status, verdicts[1].status]
    };
    assert_eq!(status(&runs), [Status::Fail, Status::Fail]);
    runs[1].autotune.assumed = 1;
    assert_eq!(status(&runs), [Status::Fail, Status::Warn]);
    assert!(
        drift(&runs)[1]
            .ends_with("; this is only a warning because not all autotune choices were recorded on this GPU")
    );
    // The choices were recorded, but on another GPU.
    runs[1].autotune = Autotune {
        recorded: 40,
        ..Autotune::default()
    };
    let mut recorded_on = |gpu: &str| {
        runs[1].recording = Some(RecordingId {
            gpu: gpu.into(),
            driver: "580.82.07".into(),
        });
        (
            status(&runs),
            drift(&runs)[1].contains("the autotune choices were recorded on `like`"),
        )
    };
    assert_eq!(recorded_on("like"), ([Status::Fail, Status::Warn], true));
    let own = recorded_on(reserved("a", 1, 1)[1].gpu.id.as_str());
    assert_eq!(own, ([Status::Fail, Status::Fail], false));
}
