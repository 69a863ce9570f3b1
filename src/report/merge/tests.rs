//! What is joined, and what is refused.

use super::*;
use crate::report::{Rule, Skipped, Verdict, sample};

/// 200 models in 8 parts, as their jobs write them.
fn parts() -> Vec<(String, Report)> {
    let expected: Vec<String> = (0..200).map(|at| format!("p/m{at:03}")).collect();
    let part = |number: u64| {
        let text = format!("hash:{number}/8");
        let part = Partition::parse(&text).unwrap();
        let own = expected.iter().filter(|model| part.holds(model));
        let runs = own.map(|model| sample::run(model.trim_start_matches("p/"), "l4"));
        let report = Report {
            partition: Some(text),
            expected: expected.clone(),
            commit: Some("abc".to_owned()),
            skipped: vec![Skipped {
                what: "leaks".to_owned(),
                why: "needs 5 steps".to_owned(),
            }],
            ..sample::report(runs.collect())
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
fn the_worst_status_is_that_of_all() {
    let mut reports = parts();
    let failed = Verdict::of(&sample::run("m000", "l4"), Rule::Growth, Status::Fail, String::new());
    reports[3].1.verdicts.push(failed);
    let merged = merge(reports).unwrap().unwrap();
    assert_eq!((merged.status, merged.verdicts.len()), (Status::Fail, 1));
}

#[test]
fn a_part_that_is_missing_is_told_by_its_name() {
    let mut reports = parts();
    reports.remove(2);
    let told = refused(reports);
    assert!(told.contains("the report of hash:3/8 is missing, with p/m"), "{told}");
    assert!(!told.contains("incomplete"), "{told}");
}

#[test]
fn a_part_that_was_cut_short_is_told_by_its_file() {
    let mut reports = parts();
    let last = reports[4].1.runs.pop().unwrap();
    let told = refused(reports);
    let lacks = format!("part-5.json (hash:5/8) is incomplete, it lacks p/{}", last.model);
    assert_eq!(told, format!("1 model is not in any of these reports: {lacks}"));
}

#[test]
fn a_run_of_what_was_not_to_be_run_is_refused() {
    let mut reports = parts();
    reports[6].1.runs.push(sample::run("stranger", "l4"));
    assert_eq!(
        refused(reports),
        "p/stranger of part-7.json is not among the models that were to be run"
    );
}

#[test]
fn a_run_that_is_in_two_reports_is_refused() {
    let mut reports = parts();
    let again = reports[0].1.clone();
    reports.push(("again.json".to_owned(), again));
    let told = refused(reports);
    assert!(
        told.contains(" (l4, estimated) is in part-1.json and in again.json"),
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
    let told = changed(|report| report.commit = Some("def".to_owned()));
    assert_eq!(told, "part-1.json and part-2.json differ in commit: abc, and def");
    assert!(changed(|report| report.commit = None).contains("commit: abc, and none"));
    assert!(changed(|report| report.tool.version = "9".to_owned()).contains("differ in tool"));
    assert!(changed(|report| report.tool.fingerprint = "9".to_owned()).contains("fingerprint"));
    assert!(changed(|report| report.expected.push("p/x".to_owned())).contains("models that were to be run"));
    assert!(changed(|report| report.partition = Some("hash:2/9".to_owned())).contains("number of parts: 8, and 9"));
}
