//! Tests the rendering of handmade reports.

use super::*;
use crate::budget::{Budgets, judge, unjudged};
use crate::bytes::Bytes;
use crate::report::sample::{self, measured};
use crate::report::{
    Assumption, Autotune, Base, Baseline, BaselineFrom, Obtained, Oom, OtherProcess, Pass, Peak, Phase, ProcessOf,
    ProcessOverhead, Run, RunError, Skipped, SkippedCheck, Spread, SpreadPeak,
};
use crate::untrusted::{Foreign, PlainName};

const MIB: u64 = 1 << 20;
const BUDGETS: &str = "\
version: 1
gpu: l4
defaults: { drift: { warn: 2%, fail: 5% } }
models:
  vgg16: { reserved: { fail: 9 GiB, warn: 7.5 GiB }, process: 9.5 GiB, gpus: { h200: { reserved: 40 GiB, process: 36 GiB } } }
  resnet18: { live: 2 GiB, reserved: 3 GiB, cold: { reserved: 4 GiB }, gpus: { h200: { reserved: 40 GiB } } }
";

/// Compares the text without colours, on a wide and on a narrow terminal.
macro_rules! assert_seen {
    ($report:expr, $style:expr) => {
        let report = $report;
        let seen: Vec<_> = [120, 80]
            .map(|width| format!("{}\n{}", "-".repeat(width), seen(&report, &ReportStyle { width, ..$style })))
            .into();
        insta::with_settings!({ omit_expression => true }, { insta::assert_snapshot!(seen.join("\n")) });
    };
}

fn seen(report: &Report, style: &ReportStyle) -> String {
    anstream::adapter::strip_str(&render(report, style)).to_string()
}

fn style() -> ReportStyle {
    ReportStyle {
        headline: "as the caller says".to_owned(),
        width: 120,
        wraps: true,
        judged: true,
        ..ReportStyle::default()
    }
}

/// A report of these runs with their verdicts.
fn report(runs: Vec<Run>) -> Report {
    let budgets = Budgets::parse(BUDGETS.as_bytes(), "budgets.yaml", &["l4", "h200"]).unwrap();
    let verdicts = judge(&runs, &budgets, "budgets.yaml");
    Report {
        verdicts,
        skipped: unjudged(&runs).into_iter().collect(),
        ..sample::report(runs)
    }
}

fn peak(live: u64, reserved: u64, outside: u64) -> Peak {
    Peak {
        live: Some(Bytes(live * MIB)),
        reserved: Some(Bytes(reserved * MIB)),
        process: Some(Bytes((reserved + outside) * MIB)),
    }
}

fn vgg16(gpu: &str) -> Run {
    let mut run = sample::run("vgg16", gpu);
    run.inputs = [("batch_size".into(), 32), ("image_size".into(), 224)].into();
    run.peaks.warm = peak(6021, 7200, 450);
    run.peaks.cold = peak(6021, 17000, 450);
    on(gpu, &mut run);
    run
}

fn resnet18(gpu: &str) -> Run {
    let mut run = sample::run("resnet18", gpu);
    run.inputs = [("batch_size".into(), 32)].into();
    run.peaks.warm = peak(1700, 2900, 450);
    run.peaks.cold = peak(1700, 3100, 450);
    on(gpu, &mut run);
    run
}

fn on(gpu: &str, run: &mut Run) {
    if gpu == "h200" {
        run.gpu.name = "NVIDIA H200".into();
        run.gpu.total_bytes = Bytes(143_156 * MIB);
        run.gpu.available_bytes = Bytes(142_600 * MIB);
    }
    let outside = |bytes, source: &str| {
        Some(ProcessOverhead {
            bytes: Bytes(bytes * MIB),
            obtained: Obtained::Measured,
            source: source.into(),
        })
    };
    run.gpu.context = outside(418, "before the model was made");
    run.gpu.modules = outside(32, "after its kernels were loaded");
}

#[test]
fn an_estimate_alone() {
    let mut resnet = resnet18("l4");
    resnet.peaks.cold.reserved = Some(Bytes(4500 * MIB));
    resnet.assumptions = vec![Assumption::from_document("code", "the clock")];
    assert_seen!(report(vec![vgg16("l4"), resnet]), style());
}

#[test]
fn an_estimate_that_is_not_judged() {
    let mut unjudged = report(vec![vgg16("l4"), resnet18("l4")]);
    unjudged.verdicts.clear();
    unjudged.skipped.clear();
    assert_seen!(
        unjudged,
        ReportStyle {
            judged: false,
            ..style()
        }
    );
}

/// The runs of `check` on a machine with a GPU: the declared GPU is estimated, the local GPU is measured and estimated.
fn checked() -> Vec<Run> {
    let mut measured_vgg = measured(vgg16("h200"));
    measured_vgg.peaks.warm = peak(6021, 35_900, 462);
    measured_vgg.peaks.cold = peak(6021, 53_850, 470);
    let mut estimated_vgg = vgg16("h200");
    estimated_vgg.peaks.warm = peak(6021, 35_695, 450);
    estimated_vgg.peaks.cold = peak(6021, 53_850, 450);
    estimated_vgg.autotune = Autotune {
        recorded: 30,
        nearest: 0,
        assumed: 4,
        ..Autotune::default()
    };
    let mut measured_resnet = measured(resnet18("h200"));
    measured_resnet.peaks.warm = peak(1700, 3100, 455);
    let mut estimated_resnet = resnet18("h200");
    estimated_resnet.peaks.warm = peak(1701, 2900, 450);
    vec![
        vgg16("l4"),
        resnet18("l4"),
        measured_vgg,
        measured_resnet,
        estimated_vgg,
        estimated_resnet,
    ]
}

#[test]
fn a_measurement_above_its_estimate_with_drift() {
    assert_seen!(report(checked()), style());
}

#[test]
fn one_gpu_measured_and_estimated() {
    let mut runs = checked();
    runs.drain(..2);
    for run in &mut runs {
        run.inputs.clear();
    }
    assert_seen!(report(runs), style());
}

fn others() -> Vec<OtherProcess> {
    let other = |pid, name: Option<&str>, bytes: Option<u64>| OtherProcess {
        pid,
        name: name.map(Into::into),
        bytes: bytes.map(|bytes| Bytes(bytes * MIB)),
    };
    vec![
        other(4711, Some("/usr/bin/python3"), Some(3277)),
        other(99, None, None),
        other(12, Some("\u{1b}[2J\nwarning: all is well"), Some(8)),
    ]
}

/// Measurements with other processes on the GPU, a spread, and limited GPU memory.
fn disturbed() -> Report {
    let mut vgg = measured(vgg16("h200"));
    let mut resnet = measured(resnet18("h200"));
    for run in [&mut vgg, &mut resnet] {
        let measurement = run.measurement.as_mut().unwrap();
        measurement.others = others();
        measurement.idle = Some(Bytes(520 * MIB));
        measurement.libcuda.path = "/lib/\u{1b}[31mlibcuda.so.580.82.07".into();
        let range = |least, most| Some([Bytes(least * MIB), Bytes(most * MIB)]);
        measurement.spread = Some(Spread {
            repeats: 5,
            warm: SpreadPeak {
                live: range(6021, 6021),
                reserved: range(7200, 7400),
                process: None,
            },
            cold: SpreadPeak {
                live: None,
                reserved: range(17_000, 35_000),
                process: range(17_450, 35_450),
            },
        });
    }
    resnet.measurement.as_mut().unwrap().spread = None;
    resnet.measurement.as_mut().unwrap().process.as_mut().unwrap().of = ProcessOf::Device;
    vgg.measurement.as_mut().unwrap().limit = Some(Bytes(24 << 30));
    vgg.gpu.name = "NVIDIA \u{1b}]0;x\u{7}H200".into();
    report(vec![vgg, resnet])
}

#[test]
fn a_measurement_with_others_on_the_gpu_and_a_spread() {
    assert_seen!(disturbed(), style());
}

#[test]
fn verbose_tells_how_it_was_measured() {
    let shown = seen(
        &disturbed(),
        &ReportStyle {
            verbose: true,
            ..style()
        },
    );
    insta::with_settings!({ omit_expression => true }, { insta::assert_snapshot!(shown) });
}

#[test]
fn what_is_wrong_is_told_in_quiet_too() {
    let shown = seen(&disturbed(), &ReportStyle { quiet: true, ..style() });
    assert_eq!(shown.matches("another process on").count(), 3, "{shown}");
    assert!(!shown.contains("reserved"), "{shown}");
}

#[test]
fn an_out_of_memory_in_one_of_both_and_an_error() {
    let mut runs = checked();
    runs[2].oom = Some(Oom {
        pass: Pass::Warm,
        gpu_number: None,
        step: Some(1),
        phase: Some(Phase::Optimizer),
        kernel: Some("matmul\u{1b}[2J".into()),
        requested: Some(Bytes(21 << 30)),
        function: None,
        reserved: Bytes(130 << 30),
        live: Some(Bytes(127 << 30)),
        available: Bytes(3 << 30),
        tensor: None,
    });
    runs[3].error = Some(RunError {
        code: crate::report::ErrorCode::DriverError,
        message: "cuMemcpyDtoHAsync_v2 failed with error 719 (CUDA_ERROR_LAUNCH_FAILED) in the warm pass".into(),
        help: Some("look at the kernel log".into()),
    });
    assert_seen!(report(runs), style());
}

#[test]
fn nothing_from_outside_steers_a_terminal() {
    let hostile = "\u{1b}[2J\u{1b}]0;x\u{7}\u{202e}\n::error::gone\r";
    let mut all = disturbed();
    for run in &mut all.runs {
        run.model = PlainName::escaped(hostile);
        run.gpu.name = hostile.into();
        run.inputs = [(PlainName::escaped(hostile), 1)].into();
        run.assumptions = vec![Assumption::from_document(hostile, hostile)];
        for outside in [&mut run.gpu.context, &mut run.gpu.modules].into_iter().flatten() {
            outside.source = hostile.into();
        }
        let measurement = run.measurement.as_mut().unwrap();
        measurement.uuid = hostile.into();
        for library in [&mut measurement.libcuda, &mut measurement.libnvrtc] {
            library.path = hostile.into();
            library.version = hostile.into();
        }
        run.error = Some(RunError {
            code: crate::report::ErrorCode::parse("x"),
            message: hostile.to_owned().into(),
            help: Some(hostile.to_owned().into()),
        });
    }
    for verdict in &mut all.verdicts {
        verdict.message = hostile.to_owned().into();
        verdict.file = Some(hostile.into());
    }
    let headline = hostile.to_owned();
    let shown = render(
        &all,
        &ReportStyle {
            headline,
            verbose: true,
            ..style()
        },
    );
    let ours = anstream::adapter::strip_str(&shown).to_string();
    assert!(
        !ours.chars().any(|c| (c.is_control() && c != '\n') || c == '\u{202e}'),
        "{ours:?}"
    );
    // `strip_str` would also hide foreign escapes, so look for them in the unstripped text.
    assert!(!shown.contains("\u{1b}[2J") && !shown.contains("\u{1b}]"), "{shown:?}");
    assert!(!ours.lines().any(|line| line.starts_with("::")), "{ours}");
}

/// The same run with a baseline of this many MiB of live memory.
fn since(run: Run, live: u64) -> Run {
    let mut peaks = run.peaks;
    peaks.warm.live = Some(Bytes(live * MIB));
    Run {
        baseline: Some(Baseline {
            from: BaselineFrom::Lock,
            burn: run.burn.clone(),
            inputs: run.inputs.clone(),
            parameters: None,
            peaks,
            differs: Vec::new(),
        }),
        ..run
    }
}

#[test]
fn two_limits_that_are_exceeded_are_both_told_and_what_to_do_stands_below() {
    let mut resnet = since(resnet18("l4"), 1700);
    resnet.peaks.warm = peak(2200, 3300, 450);
    let all = report(vec![since(vgg16("l4"), 6021), resnet]);
    assert_eq!(
        state::told(&state::ShownReport::new(&all), &all.runs[1]),
        "over budget: live, reserved; regressed: live"
    );
    assert_seen!(all, style());
}

#[test]
fn growth_since_another_revision_is_not_accepted_with_bless_and_an_outdated_file_is() {
    let bless = "cargo vram bless";
    let edit = "to allow growth since the base, edit `growth` in budgets.yaml";
    let mut run = since(resnet18("l4"), 1000);
    let offers = |all: &Report| {
        let text = seen(all, &style());
        let next = text.split("next steps").nth(1).unwrap_or_default().to_owned();
        (next.contains(bless), next.contains(edit))
    };
    assert_eq!(offers(&report(vec![run.clone()])), (true, false));
    run.baseline.as_mut().unwrap().from = BaselineFrom::Rebuilt;
    let mut rebuilt = report(vec![run]);
    assert_eq!(offers(&rebuilt), (false, true));
    let outdated = rebuilt.runs[0].verdict(Rule::Baseline, Status::Fail, "it differs".to_owned());
    rebuilt.verdicts.push(outdated.clone());
    assert_eq!(offers(&rebuilt), (true, true));
    rebuilt.verdicts = vec![outdated];
    assert_eq!(offers(&rebuilt), (true, false));
}

#[test]
fn growth_without_lines_is_followed_by_the_command_that_names_them() {
    let mut all = report(vec![since(resnet18("l4"), 1000)]);
    let next = |all: &Report| {
        let style = ReportStyle {
            wraps: false,
            ..style()
        };
        let text = seen(all, &style);
        text.split("next steps").nth(1).unwrap_or_default().to_owned()
    };
    let text = next(&all);
    assert!(
        text.contains("cargo vram check --base REV --why (names the lines"),
        "{text}"
    );
    let mut base = Base {
        folder: Foreign::default(),
        revision: "origin/main".into(),
        commit: "0123456789".into(),
        edited: Vec::new(),
        dependencies: Vec::new(),
    };
    all.base = Some(base.clone());
    let text = next(&all);
    assert!(
        text.contains("check --base origin/main --why (names the lines that need more memory)"),
        "{text}"
    );
    // A name that a shell would run is not offered for copying.
    base.revision = "main;reboot".into();
    all.base = Some(base);
    assert!(next(&all).contains("--base REV "), "{}", next(&all));
    all.growth = vec![sample::growth()];
    assert!(!next(&all).contains("--why"), "{}", next(&all));
    // The command looked for lines already, and found none.
    all.growth.clear();
    assert!(next(&all).contains("--why"), "{}", next(&all));
    all.skipped.push(Skipped {
        check: SkippedCheck::GrowthCauses,
        model: None,
        why: "the base has no such model".into(),
    });
    assert!(!next(&all).contains("--why"), "{}", next(&all));
}

#[test]
fn a_baseline_that_nothing_moved_from_is_told() {
    let seen = |runs| seen(&report(runs), &style());
    assert!(seen(vec![since(vgg16("l4"), 6021)]).contains("\nbaseline: unchanged\n"));
    let some = seen(vec![since(vgg16("l4"), 6000), since(resnet18("l4"), 1700)]);
    assert!(
        some.contains("\nbaseline: 1 of 2 runs unchanged\n  vgg16: live 5.86 GiB → 5.88 GiB"),
        "{some}"
    );
    assert!(seen(vec![vgg16("l4")]).contains("no baseline yet"));
}

#[test]
fn growth_that_nothing_judges_is_told_with_what_to_do() {
    let mut run = since(resnet18("l4"), 1700);
    run.baseline.as_mut().unwrap().peaks.warm.reserved = Some(Bytes(2000 * MIB));
    let mut all = report(vec![run]);
    let style = ReportStyle {
        wraps: false,
        ..style()
    };
    let moved = "reserved 1.95 GiB → 2.83 GiB (+900 MiB, +45 %)";
    let advice = "not judged: to judge it, list `live` and `reserved` under `growth` in budgets.yaml, which replaces \
                  the default";
    let accepted = seen(&all, &style);
    assert!(
        accepted.contains(&format!("\nbaseline: changed\n  resnet18: {moved}; {advice}\n")),
        "{accepted}"
    );
    // The base's values are only shown. The verdicts are still those of the accepted baseline.
    all.runs[0].baseline.as_mut().unwrap().from = BaselineFrom::Base;
    all.base = Some(Base {
        folder: Foreign::default(),
        revision: "main".into(),
        commit: "0123456789".into(),
        edited: Vec::new(),
        dependencies: Vec::new(),
    });
    let based = seen(&all, &style);
    assert!(based.contains("\naccepted baseline: unchanged\n\n"), "{based}");
    assert!(
        based.contains(
            "\ncompared with main (0123456)\n  p/resnet18: reserved 1.95 GiB → 2.83 GiB (+45 %)\n  not judged: a check \
             judges growth since the accepted baseline; to judge growth since main, add --rebuild\n"
        ),
        "{based}"
    );
}

#[test]
fn a_limit_is_told_in_the_unit_in_which_it_was_written() {
    let file = "version: 1\ngpu: l4\nmodels:\n  a: { reserved: 300MB, live: { fail: 0.3 GB, warn: 250 MB } }\n";
    let budgets = Budgets::parse(file.as_bytes(), "budgets.yaml", &["l4"]).unwrap();
    let mut run = sample::run("a", "l4");
    run.peaks.warm = peak(270, 290, 450);
    let verdicts = judge(&[run.clone()], &budgets, "budgets.yaml");
    let mut all = sample::report(vec![run]);
    all.verdicts = verdicts;
    let seen = seen(
        &all,
        &ReportStyle {
            wraps: false,
            ..style()
        },
    );
    for told in [
        " 300 MB ",
        " 250 MB ",
        "warm reserved memory is 290 MiB (304.09 MB), 4.09 MB over its limit of 300 MB",
        "warm live memory is 270 MiB (283.12 MB), 33.12 MB over its warning limit of 250 MB",
    ] {
        assert!(seen.contains(told), "{told}:\n{seen}");
    }
    assert!(!seen.contains("286.10 MiB"), "{seen}");
}

#[test]
fn each_of_several_gpus_is_named_wherever_a_model_is() {
    let mut all = report(vec![vgg16("l4"), vgg16("h200")]);
    all.verdicts[0].status = Status::Fail;
    let seen = seen(
        &all,
        &ReportStyle {
            wraps: false,
            ..style()
        },
    );
    assert!(seen.contains("p/vgg16 on l4: "), "{seen}");
    assert!(seen.contains("vgg16 on h200 "), "{seen}");
}

#[test]
fn each_failure_has_its_own_word() {
    let mut runs = checked();
    runs[3].peaks.warm.reserved = Some(Bytes(41 << 30));
    let all = report(runs);
    let shown = state::ShownReport::new(&all);
    let told: Vec<_> = all.runs.iter().map(|run| state::told(&shown, run)).collect();
    assert_eq!(told, ["ok", "ok", "ok", "over budget; drift: reserved", "ok", "ok"]);
    let mut runs = checked();
    runs[2].peaks.warm.reserved = Some(Bytes(20 << 30));
    runs[2].peaks.warm.process = Some(Bytes(20 << 30));
    for run in &mut runs {
        run.autotune.assumed = 0;
    }
    let all = report(runs);
    assert_eq!(
        state::told(&state::ShownReport::new(&all), &all.runs[2]),
        "drift: reserved"
    );
}

#[test]
fn no_figure_is_broken_in_two_however_narrow_the_terminal() {
    for mut runs in [
        checked(),
        vec![vgg16("l4"), resnet18("l4")],
        vec![measured(vgg16("h200"))],
    ] {
        for run in &mut runs {
            run.model = PlainName::escaped(&format!("{}_with_a_long_name", run.model));
        }
        let all = report(runs);
        for width in [20, 60, 80, 100, 120, 200] {
            let shown = seen(&all, &ReportStyle { width, ..style() });
            assert!(
                !shown.lines().any(|line| line.split_whitespace().next() == Some("GiB")),
                "{width}:\n{shown}"
            );
        }
    }
}
