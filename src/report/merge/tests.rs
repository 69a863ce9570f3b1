//! Which reports merge, and which are refused.

use super::*;
use crate::bytes::Bytes;
use crate::report::{Oom, Pass, Rule, Skipped, SkippedCheck, sample};

/// Returns the reports of 8 jobs, with 200 models in 8 parts.
fn parts() -> Vec<(String, Report)> {
    let expected: Vec<String> = (0..200).map(|at| format!("p/m{at:03}")).collect();
    let part = |number: u64| {
        let text = format!("hash:{number}/8");
        let part = Partition::parse(&text).unwrap();
        let own = expected.iter().filter(|model| part.holds(model));
        let runs = own.map(|model| sample::run(model.trim_start_matches("p/"), "l4"));
        let runs: Vec<Run> = runs.collect();
        let passed = |run: &Run| run.verdict(Rule::Budget, Status::Pass, String::new());
        let report = Report {
            verdicts: runs.iter().map(passed).collect(),
            partition: Some(text.into()),
            expected: expected.clone().into_iter().map(Into::into).collect(),
            commit: Some("abc".into()),
            skipped: vec![Skipped {
                check: SkippedCheck::Leaks,
                model: None,
                why: "needs 5 steps".into(),
            }],
            ..sample::report(runs)
        };
        (format!("part-{number}.json"), report)
    };
    (1..=8).map(part).collect()
}

fn refused(reports: Vec<(String, Report)>) -> String {
    merge(reports).unwrap_err().to_string()
}

#[test]
fn every_model_of_all_parts_is_there_once_in_the_order_of_the_list() {
    let mut reports = parts();
    reports.reverse();
    let merged = merge(reports).unwrap().unwrap();
    let names: Vec<_> = merged.runs.iter().map(identity).collect();
    assert_eq!(names, merged.expected);
    assert_eq!((merged.partition, merged.skipped.len()), (None, 1));
}

#[test]
fn a_report_of_a_command_that_was_stopped_is_refused_even_where_every_model_is_there() {
    let mut reports = parts();
    reports[2].1.problems.push(Problem {
        package: "p".into(),
        target: None,
        code: ErrorCode::Interrupted,
        message: "SIGTERM stopped the command before it had finished m001 of p".into(),
        help: None,
    });
    assert_eq!(
        refused(reports),
        "part-3.json is incomplete: a signal stopped the command that wrote it"
    );
}

#[test]
fn the_worst_status_is_that_of_all() {
    let mut reports = parts();
    let failed = sample::run("m000", "l4").verdict(Rule::Growth, Status::Fail, String::new());
    reports[3].1.verdicts.push(failed);
    let merged = merge(reports).unwrap().unwrap();
    assert_eq!((merged.status, merged.verdicts.len()), (Status::Fail, 201));
}

#[test]
fn the_whole_is_never_better_than_a_part_says_of_itself() {
    for status in [Status::Warn, Status::Fail, Status::Error] {
        let mut reports = parts();
        reports[5].1.status = status;
        assert_eq!(merge(reports).unwrap().unwrap().status, status);
    }
}

#[test]
fn what_ran_out_of_memory_fails_even_where_nobody_says_so() {
    let mut reports = parts();
    reports[1].1.runs[0].oom = Some(Oom {
        pass: Pass::Warm,
        gpu_number: None,
        step: None,
        phase: None,
        kernel: None,
        requested: None,
        function: None,
        reserved: Bytes(1),
        live: None,
        available: Bytes(0),
        tensor: None,
    });
    assert_eq!(merge(reports).unwrap().unwrap().status, Status::Fail);
}

#[test]
fn a_run_without_a_verdict_is_refused() {
    let mut reports = parts();
    let run = reports[2].1.runs[0].full_name();
    reports[2].1.verdicts.remove(0);
    assert_eq!(refused(reports), format!("no report has a verdict on {run} on l4"));
}

#[test]
fn a_verdict_on_another_gpu_is_none() {
    let mut reports = parts();
    let expected = ExpectedVerdict {
        package: "p".into(),
        model: reports[0].1.runs[0].model.clone(),
        gpu: "h200".into(),
    };
    for (_, report) in &mut reports {
        report.expected_verdicts = vec![expected.clone()];
    }
    assert_eq!(
        refused(reports),
        format!("no report has a verdict on p/{} on h200", expected.model)
    );
}

#[test]
fn a_report_that_names_no_command_or_another_one_is_refused() {
    let mut reports = parts();
    reports[3].1.command = None;
    assert_eq!(refused(reports), "part-4.json does not say which command wrote it");
    let mut reports = parts();
    reports[3].1.command = Some(WrittenBy::Estimate);
    assert!(refused(reports).contains("differ in the command that wrote them: check and estimate"));
}

#[test]
fn a_part_may_be_empty() {
    let mut reports = parts();
    let empty = Report {
        partition: Some("hash:1/8".into()),
        runs: Vec::new(),
        verdicts: Vec::new(),
        ..reports[0].1.clone()
    };
    let own: Vec<String> = reports[0].1.runs.iter().map(identity).collect();
    reports[0].1 = empty;
    for (_, report) in &mut reports {
        report.expected.retain(|model| !own.iter().any(|own| model == own));
    }
    assert_eq!(merge(reports).unwrap().unwrap().status, Status::Pass);
}

#[test]
fn a_part_that_is_missing_is_told_by_its_name() {
    let mut reports = parts();
    reports.remove(2);
    let told = refused(reports);
    assert!(
        told.contains("the report of hash:3/8 is missing (models: p/m"),
        "{told}"
    );
    assert!(!told.contains("incomplete"), "{told}");
}

#[test]
fn a_part_that_was_cut_short_is_told_by_its_file() {
    let mut reports = parts();
    let last = reports[4].1.runs.pop().unwrap();
    let told = refused(reports);
    let lacks = format!("part-5.json (hash:5/8) is incomplete and lacks p/{}", last.model);
    assert_eq!(told, format!("1 model is missing from these reports: {lacks}"));
}

#[test]
fn a_run_of_what_was_not_to_be_run_is_refused() {
    let mut reports = parts();
    reports[6].1.runs.push(sample::run("stranger", "l4"));
    assert_eq!(
        refused(reports),
        "part-7.json has a run of p/stranger, which is not among the expected models"
    );
}

#[test]
fn a_run_that_is_in_two_reports_is_refused() {
    let mut reports = parts();
    let again = reports[0].1.clone();
    reports.push(("again.json".to_owned(), again));
    let told = refused(reports);
    assert!(
        told.contains(" (l4, estimated) is in both part-1.json and again.json"),
        "{told}"
    );
}

#[test]
fn reports_of_different_commits_tools_or_lists_are_refused() {
    let changed = |change: fn(&mut Report)| {
        let mut reports = parts();
        change(&mut reports[1].1);
        refused(reports)
    };
    let told = changed(|report| report.commit = Some("def".into()));
    assert_eq!(told, "part-1.json and part-2.json differ in the commit: abc and def");
    assert!(changed(|report| report.commit = None).contains("the commit: abc and none"));
    assert!(changed(|report| report.tool.version = "9".into()).contains("differ in the version of cargo-vram"));
    assert!(changed(|report| report.tool.fingerprint = "9".into()).contains("fingerprint"));
    assert!(changed(|report| report.expected.push("p/x".into())).contains("the expected models"));
    assert!(changed(|report| report.partition = Some("hash:2/9".into())).contains("the number of parts: 8 and 9"));
}
