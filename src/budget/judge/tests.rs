//! Tests of verdicts on budgets.

use super::*;
use crate::report::sample::{ending_at, measured, run};
use crate::report::{Assumption, Obtained, Phase, ProcessOf, ProcessOverhead, RefusedTensor, RunError};

const MIB: u64 = 1 << 20;

const FILE: &str = "\
version: 1
gpu: l4
models:
  a:
    live: 900 MiB
    reserved: { fail: 2 GiB, warn: 1.5 GiB }
    process: 3 GiB
    cold: { reserved: 6 GiB }
    gpus: { h200: { reserved: 4 GiB } }
  a-b128: { model: a, inputs: { batch_size: 128 }, reserved: 5 GiB }
  warned: { reserved: { warn: 1 GiB } }
  bare: {}
";

fn budgets() -> Budgets {
    Budgets::parse(FILE.as_bytes(), "budgets.yaml", &["l4", "h200"]).unwrap()
}

/// Returns one line per verdict.
fn judged(run: Run) -> Vec<String> {
    lines(judge(&[run], &budgets(), "budgets.yaml"))
}

pub(super) fn lines(verdicts: Vec<Verdict>) -> Vec<String> {
    verdicts
        .into_iter()
        .map(|verdict| {
            let place = verdict
                .line
                .zip(verdict.column)
                .map(|(line, column)| format!("{line}:{column} "))
                .unwrap_or_default();
            format!(
                "{place}{:?} {:?} {}: {}",
                verdict.rule, verdict.status, verdict.model, verdict.message
            )
        })
        .collect()
}

#[test]
fn each_limit_gives_a_verdict_at_its_place() {
    assert_eq!(
        judged(run("a", "l4")),
        [
            "5:11 Budget Pass a: warm live memory is 800 MiB, within its limit of 900 MiB",
            "6:23 Budget Pass a: warm reserved memory is 1 GiB, within its limit of 2 GiB",
            "7:14 Budget Pass a: warm process memory is 1.46 GiB, within its limit of 3 GiB",
            "8:23 Budget Pass a: cold reserved memory is 4 GiB, within its limit of 6 GiB",
        ]
    );
}

#[test]
fn a_figure_at_its_limit_is_within_and_a_byte_more_is_over() {
    let mut at = run("a", "l4");
    at.peaks.warm.live = Some(Bytes(900 * MIB));
    assert_eq!(
        judged(at.clone())[0],
        "5:11 Budget Pass a: warm live memory is 900 MiB, within its limit of 900 MiB"
    );
    at.peaks.warm.live = Some(Bytes(900 * MIB + 1));
    assert_eq!(
        judged(at)[0],
        "5:11 Budget Fail a: warm live memory is 900 MiB, 1 B over its limit of 900 MiB"
    );
}

#[test]
fn a_figure_between_warn_and_fail_is_a_warning_at_the_warn() {
    let mut between = run("a", "l4");
    between.peaks.warm.reserved = Some(Bytes(1600 * MIB));
    assert_eq!(
        judged(between.clone())[1],
        "6:36 Budget Warn a: warm reserved memory is 1.56 GiB, 64 MiB over its warning limit of 1.5 GiB"
    );
    between.peaks.warm.reserved = Some(Bytes(2366 * MIB));
    assert_eq!(
        judged(between)[1],
        "6:23 Budget Fail a: warm reserved memory is 2.31 GiB, 318 MiB over its limit of 2 GiB"
    );
}

#[test]
fn a_warning_alone_is_a_limit() {
    assert_eq!(
        judged(run("warned", "l4")),
        ["11:31 Budget Pass warned: warm reserved memory is 1 GiB, within its limit of 1 GiB"]
    );
}

#[test]
fn another_gpu_inherits_nothing() {
    assert_eq!(
        judged(run("a", "h200")),
        ["9:31 Budget Pass a: warm reserved memory is 1 GiB, within its limit of 4 GiB"]
    );
}

#[test]
fn a_gpu_without_limits_is_unjudged() {
    assert_eq!(
        judged(run("a", "t4")),
        ["4:3 Budget Warn a: `a` has no limits for the GPU `t4`, so it was not checked"]
    );
    assert_eq!(
        judged(run("bare", "l4")),
        ["12:3 Budget Warn bare: `bare` has no limits for the GPU `l4`, so it was not checked"]
    );
}

#[test]
fn a_model_without_budget_is_a_warning() {
    assert_eq!(
        judged(run("other", "l4")),
        ["Budget Warn other: `other` has no budget in budgets.yaml"]
    );
}

#[test]
fn a_budget_of_another_name_is_judged_for_itself_alone() {
    let named = Run {
        budget: Some("a-b128".into()),
        ..run("a", "l4")
    };
    assert_eq!(
        judged(named),
        ["10:62 Budget Pass a-b128: warm reserved memory is 1 GiB, within its limit of 5 GiB"]
    );
}

#[test]
fn a_missing_figure_is_an_error_and_never_within() {
    let mut missing = run("a", "h200");
    missing.peaks.warm.reserved = None;
    assert_eq!(
        judged(missing),
        ["9:31 Budget Error a: warm reserved memory cannot be checked: the run has no value for it"]
    );
}

#[test]
fn a_run_that_died_can_fail_and_cannot_pass() {
    let mut died = run("a", "h200");
    died.error = Some(RunError {
        code: crate::report::ErrorCode::Panicked,
        message: String::new().into(),
        help: None,
    });
    assert_eq!(
        judged(died.clone()),
        [
            "9:31 Budget Error a: warm reserved memory cannot be checked: the run ended early (`model-panicked`) after a peak of 1 GiB"
        ]
    );
    died.peaks.warm.reserved = Some(Bytes(5000 * MIB));
    assert_eq!(
        judged(died),
        ["9:31 Budget Fail a: warm reserved memory is 4.88 GiB, 904 MiB over its limit of 4 GiB"]
    );
}

#[test]
fn out_of_memory_fails_whatever_the_budget_says() {
    let oom = Oom {
        pass: Pass::Warm,
        gpu_number: None,
        step: Some(1),
        phase: Some(Phase::Optimizer),
        kernel: None,
        requested: Some(Bytes(21 << 30)),
        function: None,
        reserved: Bytes(20 << 30),
        live: None,
        available: Bytes(3 << 30),
        tensor: None,
    };
    let mut out = run("a", "h200");
    out.oom = Some(oom);
    let said = "Oom Fail a: out of memory on `h200` in the warm pass, step 1, optimizer: the model requested 21 GiB, with 20 GiB reserved and 3 GiB free";
    // A value within its limit says nothing about the rest of a run that ended early.
    assert_eq!(judged(out.clone()), [said]);
    // The value exceeded its limit before the run ended, so there are two verdicts.
    out.peaks.warm.reserved = Some(Bytes(20 << 30));
    assert_eq!(judged(out.clone()).len(), 2);
    out.peaks.warm.reserved = None;
    assert_eq!(judged(out.clone()), [said]);
    out.gpu.id = "t4".into();
    assert_eq!(judged(out.clone()).len(), 2);
    out.model = "other".into();
    assert!(judged(out.clone())[0].starts_with("Oom Fail other:"));
    // A tensor that is too large for any page.
    out.oom.as_mut().unwrap().tensor = Some(RefusedTensor {
        largest: Bytes(5_914_755_072),
        ..RefusedTensor::default()
    });
    let said = judged(out).remove(0);
    assert!(
        said.ends_with("3 GiB free; Burn allocates at most 5.51 GiB for one tensor, a quarter of the GPU's memory"),
        "{said}"
    );
}

/// Sets how the context and the modules of a run's GPU were obtained.
fn outside(run: &mut Run, context: Obtained, modules: Obtained) {
    let of = |obtained| {
        Some(ProcessOverhead {
            bytes: Bytes(400 * MIB),
            obtained,
            source: "a log".into(),
        })
    };
    run.gpu.context = of(context);
    run.gpu.modules = of(modules);
}

#[test]
fn a_process_figure_says_that_its_context_is_assumed() {
    let mut assumed = run("a", "l4");
    // The assumption's text does not decide, only the values of the run's GPU.
    assumed.assumptions = vec![Assumption::from_document("gpu-value", "CUDA context of l4: assumed")];
    let said = "7:14 Budget Pass a: warm process memory (context assumed) is 1.46 GiB, within its limit of 3 GiB";
    assert_eq!(judged(assumed.clone())[2], said.replace(" (context assumed)", ""));
    outside(&mut assumed, Obtained::Assumed, Obtained::Measured);
    assert_eq!(judged(assumed.clone())[2], said);
    outside(&mut assumed, Obtained::Assumed, Obtained::Assumed);
    assert_eq!(
        judged(assumed.clone())[2],
        said.replace("context", "context and modules")
    );
    outside(&mut assumed, Obtained::Measured, Obtained::Documented);
    assert_eq!(judged(assumed)[2], said.replace(" (context assumed)", ""));
}

#[test]
fn an_estimated_process_that_rests_on_an_assumed_context_warns_and_never_fails() {
    let mut over = run("a", "l4");
    over.peaks.warm.process = Some(Bytes(4096 * MIB));
    let process = |run: &Run| judged(run.clone()).swap_remove(2);
    let figure = |assumed: &str| {
        format!(
            "7:14 Budget Warn a: warm process memory ({assumed} assumed) is 4 GiB, 1 GiB over its limit of 3 GiB; this is only a warning because nobody measured the CUDA context on `l4`: run `cargo vram check` on that GPU, or set `context` in `gpu_profiles`"
        )
    };
    outside(&mut over, Obtained::Assumed, Obtained::Documented);
    assert_eq!(process(&over), figure("context"));
    outside(&mut over, Obtained::Assumed, Obtained::Assumed);
    assert_eq!(process(&over), figure("context and modules"));
    outside(&mut over, Obtained::Documented, Obtained::Assumed);
    let fails = "7:14 Budget Fail a: warm process memory (modules assumed) is 4 GiB, 1 GiB over its limit of 3 GiB";
    assert_eq!(process(&over), fails, "kernels are assumed on every GPU");
    let fails = "7:14 Budget Fail a: warm process memory is 4 GiB, 1 GiB over its limit of 3 GiB";
    outside(&mut over, Obtained::Documented, Obtained::Measured);
    assert_eq!(process(&over), fails);
    // The other metrics do not depend on the context.
    outside(&mut over, Obtained::Assumed, Obtained::Assumed);
    over.peaks.warm.reserved = Some(Bytes(3072 * MIB));
    assert!(judged(over)[1].contains("Fail a: warm reserved"));
}

#[test]
fn a_measured_process_fails_and_says_how_it_was_read() {
    let mut over = measured(run("a", "l4"));
    // Assumptions about the GPU do not affect a measurement.
    outside(&mut over, Obtained::Assumed, Obtained::Assumed);
    assert_eq!(
        judged(over.clone())[2],
        "7:14 Budget Pass a: warm process memory (polled every 10 ms, a lower bound) is 1.46 GiB, within its limit of 3 GiB"
    );
    over.peaks.warm.process = Some(Bytes(4096 * MIB));
    if let Some(process) = over.measurement.as_mut().and_then(|measured| measured.process.as_mut()) {
        process.of = ProcessOf::Device;
    }
    assert_eq!(
        judged(over.clone())[2],
        "7:14 Budget Fail a: warm process memory (whole GPU minus memory used before, polled every 10 ms) is 4 GiB, 1 GiB over its limit of 3 GiB"
    );
    over.peaks.warm.process = None;
    assert_eq!(
        judged(over)[2].split_once(") ").unwrap().1,
        "cannot be checked: the run has no value for it"
    );
}

#[test]
fn a_measurement_is_judged_by_the_limits_of_its_gpu() {
    assert_eq!(
        judged(measured(run("a", "h200"))),
        ["9:31 Budget Pass a: warm reserved memory is 1 GiB, within its limit of 4 GiB"]
    );
    assert_eq!(
        judged(measured(run("a", "t4"))),
        ["4:3 Budget Warn a: `a` has no limits for the GPU `t4`, so it was not checked"]
    );
}

#[test]
fn a_leak_fails_with_the_command_that_shows_it_and_too_few_steps_are_told() {
    let grown = |steps: usize| ending_at(run("a", "l4"), &[10, 50, 60, 70, 80][..steps]);
    assert_eq!(
        judged(grown(5))[0],
        "Leak Fail a: live memory grows on average by 10 B per step, 30 B over 3 steps; to see the tensors, run `cargo vram explain a -p p --leak --steps 5`"
    );
    assert_eq!(unjudged(&[grown(5)]), None);
    assert!(judged(grown(4))[0].starts_with("5:11 Budget Pass"));
    let told = unjudged(&[grown(5), grown(4)]).unwrap();
    assert_eq!((told.what().as_str(), told.why.raw()), ("leaks", "needs `--steps 5`"));
    // A training of two epochs needs something else than a model with four steps.
    let mut trained = grown(5);
    let epoch = |epoch: u32| {
        serde_json::json!({
            "epoch": epoch, "part": "training", "first_step": 0, "steps": 5, "live_peak": 1, "in_use_end": 1,
            "reserved_peak": 1, "reserved_end": 1, "streams": 1, "new_streams": 0, "new_streams_reserved": 0,
        })
    };
    trained.epochs = [1, 2]
        .map(|number| serde_json::from_value(epoch(number)).unwrap())
        .into();
    assert_eq!(
        unjudged(&[grown(4), trained]).unwrap().why.raw(),
        "needs `--steps 5`, and `epochs: 3` in the inputs of the budget"
    );
    // A run that ended early reports that itself.
    let mut died = grown(3);
    died.error = Some(RunError {
        code: crate::report::ErrorCode::Panicked,
        message: "it did".into(),
        help: None,
    });
    assert_eq!(unjudged(&[died]), None);
}
