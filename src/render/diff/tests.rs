//! Tests what the outputs show for two reports.

use crate::bytes::Bytes;
use crate::render::markdown::diff::render as markdown;
use crate::render::terminal::diff::render as human;
use crate::report::diff::*;
use crate::report::{
    Autotune, Metric, Parameters, Pass, Phase, PhasePeaks, Problem, Report, Rule, Run, Status, Step, Verdict, sample,
};
use crate::untrusted::PlainName;

const MIB: u64 = 1 << 20;

fn with_live(model: &str, live: u64) -> Run {
    let mut run = sample::run(model, "l4");
    run.peaks.warm.live = Some(Bytes(live * MIB));
    run.peaks.cold.live = None;
    run
}

fn phase(phase: Phase, live: u64) -> PhasePeaks {
    PhasePeaks {
        phase,
        live_peak: Bytes(live * MIB),
        live_end: Bytes(0),
        in_use_end: None,
        reserved_peak: Bytes(0),
        reserved_end: Bytes(0),
    }
}

/// A run whose memory, kernels, version and phases depend on its batch size.
fn larger(batch: u64) -> Run {
    let mut run = with_live("grown", 500 + 10 * batch);
    run.inputs = [("batch_size".into(), batch)].into();
    run.parameters = Some(Parameters {
        count: 1000 + batch,
        learnable: 1000,
        bytes: Bytes(4 * MIB),
    });
    run.autotune = Autotune {
        recorded: 3,
        nearest: u32::try_from(batch).unwrap(),
        assumed: 0,
        chosen: [(
            "matmul".into(),
            [(if batch > 16 { "cmma" } else { "naive" }.into(), 3)].into(),
        )]
        .into(),
    };
    run.burn = format!("0.21.{batch}").into();
    run.steps = vec![Step {
        step: 0,
        pass: Pass::Traced,
        phases: vec![
            phase(Phase::Forward, 400 + 8 * batch),
            phase(Phase::Backward, 500 + 10 * batch),
            phase(Phase::Optimizer, 400),
        ],
    }];
    run
}

fn both() -> ReportDiff {
    let base = sample::report(vec![
        larger(16),
        with_live("same", 800),
        with_live("gone", 800),
        with_live("less", 900),
    ]);
    let head = sample::report(vec![
        larger(32),
        with_live("same", 800),
        with_live("new", 800),
        with_live("less", 600),
    ]);
    diff(&base, &head)
}

#[test]
fn what_grew_is_above_what_is_new_gone_or_less() {
    let text = anstream::adapter::strip_str(&human(&both(), false)).to_string();
    insta::with_settings!({ omit_expression => true }, { insta::assert_snapshot!(text) });
}

#[test]
fn the_same_as_markdown() {
    insta::with_settings!({ omit_expression => true }, { insta::assert_snapshot!(markdown(&both(), 10_000, false)) });
}

#[test]
fn its_json_is_what_its_schema_says() {
    let schema = serde_json::to_value(schemars::schema_for!(ReportDiff)).unwrap();
    let document = serde_json::to_value(both()).unwrap();
    jsonschema::validate(&schema, &document).unwrap();
    assert_eq!(document["models"][0]["figures"][0]["change"], 160 * MIB);
}

#[test]
fn without_a_rule_in_the_report_live_may_grow_by_5_percent_and_16_mib() {
    let status = |before, after| {
        diff(
            &sample::report(vec![with_live("a", before)]),
            &sample::report(vec![with_live("a", after)]),
        )
        .status
    };
    assert_eq!(status(1000, 1050), Status::Warn);
    assert_eq!(status(1000, 1051), Status::Fail);
    assert_eq!(status(1000, 1020), Status::Pass);
    // More than 5 %, but not more than 16 MiB.
    assert_eq!(status(100, 116), Status::Pass);
}

#[test]
fn a_verdict_of_the_newer_report_holds_for_the_figures_that_it_is_on() {
    let verdict = |baseline| Verdict {
        pass: Some(Pass::Warm),
        metric: Some(Metric::Live),
        limit: Some(Bytes(2000 * MIB)),
        limit_written: None,
        actual: Some(Bytes(1500 * MIB)),
        baseline: Some(Bytes(baseline * MIB)),
        ..sample::run("a", "l4").verdict(Rule::Growth, Status::Pass, String::new())
    };
    let status = |baseline| {
        let head = Report {
            verdicts: vec![verdict(baseline)],
            ..sample::report(vec![with_live("a", 1500)])
        };
        diff(&sample::report(vec![with_live("a", 1000)]), &head).status
    };
    assert_eq!((status(1000), status(1200)), (Status::Pass, Status::Fail));
}

#[test]
fn two_equal_reports_differ_in_nothing() {
    let report = sample::report(vec![larger(16)]);
    assert_eq!(human(&diff(&report, &report), false), "1 compared · 1 unchanged\n");
}

/// Compares two explanations of a model: the second has twice the batch size and another kernel.
#[cfg(unix)]
fn explained() -> ReportDiff {
    use crate::explain::{Explanation, sample::resnet_of};

    let (mut before, mut after) = (resnet_of(16, 2), resnet_of(32, 2));
    for (explanation, kernel) in [(&mut before, "naive"), (&mut after, "cmma")] {
        explanation.run.inputs = [("batch_size".into(), explanation.totals.batch_size.unwrap())].into();
        explanation.run.autotune.chosen = [("matmul".into(), [(kernel.into(), 3)].into())].into();
    }
    let of = |explanation: &Explanation| sample::report(vec![explanation.run.clone()]);
    let mut changed = diff(&of(&before), &of(&after));
    crate::explain::add_causes(&mut changed, &[before], &[after]);
    changed
}

#[cfg(unix)]
#[test]
fn explanations_tell_which_categories_and_layers_changed() {
    let changed = explained();
    let causes = &changed.models[0].causes;
    let largest = |kind| {
        let cause = causes.iter().find(|cause| cause.kind == kind).unwrap();
        (cause.name.raw(), cause.bytes.unwrap() > 0)
    };
    assert_eq!(largest(CauseKind::Category), ("activations", true));
    assert!(largest(CauseKind::Layer).1);
    // The likeliest kind of reason comes first, and within a kind the largest change. Nothing unchanged is listed.
    let kinds: Vec<_> = causes.iter().map(|cause| cause.kind).collect();
    assert!(kinds.is_sorted(), "{kinds:?}");
    assert_eq!(
        (kinds.first(), kinds.last()),
        (Some(&CauseKind::Input), Some(&CauseKind::Autotune))
    );
    for kind in causes.chunk_by(|one, other| one.kind == other.kind) {
        let bytes: Vec<_> = kind
            .iter()
            .filter_map(|cause| cause.bytes)
            .map(i64::unsigned_abs)
            .collect();
        assert!(bytes.is_sorted_by(|more, less| more >= less), "{bytes:?}");
    }
    assert!(
        causes
            .iter()
            .all(|cause| cause.bytes != Some(0) && cause.name != "parameters")
    );
}

#[cfg(unix)]
#[test]
fn what_changed_is_in_lists_with_layers_before_kernels() {
    let text = anstream::adapter::strip_str(&human(&explained(), false)).to_string();
    insta::with_settings!({ omit_expression => true }, { insta::assert_snapshot!(text) });
}

#[cfg(unix)]
#[test]
fn what_changed_is_in_tables_with_layers_before_kernels() {
    let text = markdown(&explained(), 60_000, false);
    insta::with_settings!({ omit_expression => true }, { insta::assert_snapshot!(text) });
}

#[test]
fn quiet_leaves_what_regressed_and_its_likeliest_reason() {
    let text = anstream::adapter::strip_str(&human(&both(), true)).to_string();
    insta::with_settings!({ omit_expression => true }, { insta::assert_snapshot!(text) });
    let page = markdown(&both(), 10_000, true);
    assert!(
        page.contains("p/grown") && !page.contains("p/less") && !page.contains("p/new"),
        "{page}"
    );
    assert!(!page.contains("####") && !page.contains("cmma"), "{page}");
    let same = sample::report(vec![larger(16)]);
    assert_eq!(human(&diff(&same, &same), true), "");
}

#[test]
fn a_page_of_many_models_that_changed_is_no_longer_than_it_may_be() {
    let runs = |live| {
        let name = |at: u64| PlainName::escaped(&format!("{at}{}", "_".repeat(100)));
        let run = |at: u64| Run {
            model: name(at),
            inputs: [(PlainName::escaped(&"<batch_size>".repeat(20)), live)].into(),
            ..with_live("x", live + at)
        };
        sample::report((0..500).map(run).collect())
    };
    let page = markdown(&diff(&runs(500), &runs(900)), 60_000, false);
    assert!(page.len() <= 60_000, "{}", page.len());
    assert!(page.contains("… and 490 more; "), "{page}");
}

#[test]
fn a_model_that_died_or_ran_out_of_memory_is_never_fine() {
    use crate::report::{Oom, RunError};

    let of = |more: fn(&mut Run)| {
        let mut run = with_live("a", 800);
        more(&mut run);
        sample::report(vec![run])
    };
    let before = of(|_| ());
    let died = of(|run| {
        run.peaks.warm.live = None;
        run.error = Some(RunError {
            code: crate::report::ErrorCode::Panicked,
            message: String::new().into(),
            help: None,
        });
    });
    let full = of(|run| {
        run.oom = Some(Oom {
            pass: Pass::Warm,
            gpu_number: None,
            step: None,
            phase: None,
            kernel: None,
            requested: None,
            function: None,
            reserved: Bytes(0),
            live: None,
            available: Bytes(0),
            tensor: None,
        });
    });
    for (after, status, word) in [
        (&died, Status::Error, "model-panicked"),
        (&full, Status::Fail, "out-of-memory"),
    ] {
        let diff = diff(&before, after);
        assert_eq!((diff.status, diff.models[0].state), (status, ModelState::Changed));
        assert!(human(&diff, false).contains(word) && markdown(&diff, 10_000, false).contains(word));
    }
    assert_eq!(diff(&died, &before).status, Status::Pass);
}

#[test]
fn a_report_whose_models_could_not_be_built_is_never_fine() {
    let problem = Problem {
        package: "p".into(),
        target: Some("vram".into()),
        code: crate::report::ErrorCode::BuildFailed,
        message: "`vram` of p does not compile".into(),
        help: None,
    };
    let head = Report {
        problems: vec![problem],
        ..sample::report(Vec::new())
    };
    let diff = diff(&sample::report(vec![with_live("gone", 800)]), &head);
    assert_eq!(diff.status, Status::Error);
    for text in [human(&diff, false), markdown(&diff, 60_000, false)] {
        assert!(
            text.contains("does not compile") && text.contains("1 could not run"),
            "{text}"
        );
    }
    assert!(markdown(&diff, 60_000, false).starts_with("### ❌"));
}
