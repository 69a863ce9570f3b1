//! The report as JUnit XML, which most CI systems show: one suite per GPU and mode, one case per run.

use std::collections::HashSet;
use std::time::Duration;

use quick_junit::{NonSuccessKind, Report as JUnit, TestCase, TestCaseStatus, TestSuite};

use super::refused::advice;
use crate::render::refused::refusal;
use crate::report::change::{Judged, key_of_run, key_of_verdict, signed_bytes};
use crate::report::words::mode_name;
use crate::report::{GrowthExplanation, Mode, Report, Rule, Run, Status, Verdict};
use crate::untrusted::{Foreign, PlainName, clean};

/// The longest time that is written for a case. A report from elsewhere may contain any number.
const LONGEST: Duration = Duration::from_secs(7 * 24 * 3600);

/// The most causes of a value's growth that are written.
const CAUSES: usize = 5;

/// Renders a report as JUnit XML. Leaves out or replaces characters that XML cannot contain.
///
/// # Errors
/// Fails if the document cannot be written.
pub fn render(report: &Report) -> Result<String, quick_junit::SerializeError> {
    let judged = Judged::new(report);
    let mut junit = JUnit::new("cargo vram");
    // The vector keeps the order of the report. The map only finds a suite in it.
    let mut suites: Vec<((&PlainName, Mode), TestSuite)> = Vec::new();
    let mut places = std::collections::HashMap::new();
    for run in &report.runs {
        let key = (&run.gpu.id, run.mode);
        let at = *places.entry(key).or_insert_with(|| {
            let name = format!("{}, {}", run.gpu.id, mode_name(run.mode));
            suites.push((key, TestSuite::new(name)));
            suites.len() - 1
        });
        let growth = report.growth.iter().filter(|of| of.is_of(run));
        suites[at]
            .1
            .add_test_case(case(run, judged.of(run), &growth.map(sentence).collect::<Vec<_>>()));
    }
    junit.add_test_suites(suites.into_iter().map(|(_, suite)| suite));
    // Verdicts on what has no run, such as a loosened limit of the defaults or a model that no longer exists.
    let runs: HashSet<_> = report.runs.iter().map(key_of_run).collect();
    let failed = report.verdicts.iter().filter(|verdict| verdict.status >= Status::Fail);
    let others = failed.filter(|verdict| !runs.contains(&key_of_verdict(verdict)));
    let mut limits = TestSuite::new("limits");
    for verdict in others {
        let mut status = TestCaseStatus::non_success(match verdict.status {
            Status::Error => NonSuccessKind::Error,
            _ => NonSuccessKind::Failure,
        });
        status.set_type(rule_name(verdict.rule));
        told(&mut status, &[verdict.message.raw()]);
        limits.add_test_case(named(&verdict.model, &verdict.package, status));
    }
    if !limits.test_cases.is_empty() {
        junit.add_test_suite(limits);
    }
    if !report.problems.is_empty() {
        let mut suite = TestSuite::new("targets");
        for problem in &report.problems {
            let mut status = TestCaseStatus::non_success(NonSuccessKind::Error);
            status.set_type(clean(problem.code.as_str()));
            let help = problem.help.as_ref().map(Foreign::raw).unwrap_or_default();
            told(&mut status, &[problem.message.raw(), help]);
            let target = problem.target.as_ref().map(Foreign::raw).unwrap_or("all targets");
            suite.add_test_case(named(target, &problem.package, status));
        }
        junit.add_test_suite(suite);
    }
    // No JUnit schema allows `skipped` on `testsuites`. It is the first such attribute in what quick-junit writes.
    Ok(junit.to_string()?.replacen(" skipped=\"0\"", "", 1))
}

/// Describes why a value grew, on one line per cause.
fn sentence(of: &GrowthExplanation) -> String {
    let rows = of.rows(CAUSES).into_iter().map(|row| {
        let place = row.place.map_or_else(String::new, |place| {
            format!(", {}:{}{}", place.file, place.line, place.remark())
        });
        format!("{} {}{place}", signed_bytes(row.change), row.what)
    });
    rows.collect::<Vec<_>>().join("\n")
}

fn case(run: &Run, verdicts: &[&Verdict], growth: &[String]) -> TestCase {
    let mut case = named(run.name(), &run.package, status(run, verdicts, growth));
    case.set_time(
        // In a report from elsewhere, `seconds` may be negative or not a number.
        Duration::try_from_secs_f64(run.seconds)
            .unwrap_or_default()
            .min(LONGEST),
    );
    // JUnit has no status for a warning. So the case passes, and its output has the warning.
    let warnings = verdicts.iter().filter(|verdict| verdict.status == Status::Warn);
    let warnings: Vec<_> = warnings
        .map(|verdict| format!("warning: {}", clean(verdict.message.raw())))
        .collect();
    if !warnings.is_empty() {
        case.set_system_out(warnings.join("\n"));
    }
    case
}

fn named(name: &str, class: &str, status: TestCaseStatus) -> TestCase {
    let mut case = TestCase::new(clean(name), status);
    case.set_classname(clean(class));
    case
}

fn status(run: &Run, verdicts: &[&Verdict], growth: &[String]) -> TestCaseStatus {
    let of = |wanted| verdicts.iter().filter(move |verdict| verdict.status == wanted);
    // JUnit's `error` is for a run that is incomplete, its `failure` for a value that breaks a rule.
    if let Some(error) = &run.error {
        let mut status = TestCaseStatus::non_success(NonSuccessKind::Error);
        status.set_type(clean(error.code.as_str()));
        told(
            &mut status,
            &[
                error.message.raw(),
                error.help.as_ref().map(Foreign::raw).unwrap_or_default(),
            ],
        );
        return status;
    }
    if let Some(oom) = &run.oom {
        // An out of memory is a result about the model, so it is a failure and not an error.
        let mut status = TestCaseStatus::non_success(NonSuccessKind::Failure);
        status.set_type("oom");
        let facts: Vec<_> = refusal(run, oom).into_iter().chain(advice(run, oom)).collect();
        told(&mut status, &["out of memory", &facts.join("\n")]);
        return status;
    }
    for (wanted, kind) in [
        // Errors first: they say that the check itself is incomplete, which failures do not.
        (Status::Error, NonSuccessKind::Error),
        (Status::Fail, NonSuccessKind::Failure),
    ] {
        if let Some(first) = of(wanted).next() {
            let mut status = TestCaseStatus::non_success(kind);
            status.set_type(rule_name(first.rule));
            let messages = of(wanted).map(|verdict| verdict.message.raw());
            let messages: Vec<&str> = messages.chain(growth.iter().map(String::as_str)).collect();
            told(&mut status, &messages);
            return status;
        }
    }
    TestCaseStatus::success()
}

/// Sets the first sentence as the message of a status, and all of them as its description.
fn told(status: &mut TestCaseStatus, sentences: &[&str]) {
    let all: Vec<_> = sentences
        .iter()
        .filter(|sentence| !sentence.is_empty())
        .map(|sentence| clean(sentence))
        .collect();
    status.set_message(all.first().cloned().unwrap_or_default());
    status.set_description(all.join("\n"));
}

const fn rule_name(rule: Rule) -> &'static str {
    match rule {
        Rule::Budget => "budget",
        Rule::Growth => "growth",
        Rule::Baseline => "baseline",
        Rule::Drift => "drift",
        Rule::Oom => "oom",
        Rule::Leak => "leak",
        Rule::Edit => "edit",
        Rule::Build => "build",
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::report::{RunError, sample};

    fn failing(message: &str) -> Verdict {
        sample::run("a", "l4").verdict(Rule::Growth, Status::Fail, message.to_owned())
    }

    #[test]
    fn a_failed_verdict_without_a_run_is_a_failed_case() {
        let run = sample::run("a", "l4");
        let of_run = run.verdict(Rule::Growth, Status::Fail, "it grew".to_owned());
        let edit = Verdict {
            package: "budgets".into(),
            model: "defaults".into(),
            ..run.verdict(Rule::Edit, Status::Fail, "a limit was raised".to_owned())
        };
        let warning = Verdict {
            status: Status::Warn,
            ..edit.clone()
        };
        let report = Report {
            verdicts: vec![of_run, edit, warning],
            ..sample::report(vec![run])
        };
        let xml = render(&report).unwrap();
        assert!(xml.contains("tests=\"2\" failures=\"2\" errors=\"0\""), "{xml}");
        assert!(xml.contains("<testsuite name=\"limits\""), "{xml}");
        assert!(xml.contains("a limit was raised"), "{xml}");
    }

    #[test]
    fn a_failure_names_the_lines_that_made_the_model_grow() {
        let run = sample::run("resnet18", "l4");
        let report = Report {
            verdicts: vec![run.verdict(Rule::Growth, Status::Fail, "it grew".to_owned())],
            growth: vec![sample::growth()],
            ..sample::report(vec![run])
        };
        let text = render(&report).unwrap();
        assert!(text.contains("message=\"it grew\""), "{text}");
        let rows = "it grew\n+35 MiB hidden is larger, src/model.rs:41\n+1 MiB memory within operations\n";
        assert!(text.contains(rows) && text.contains("+1 MiB not explained"), "{text}");
    }

    #[test]
    fn a_suite_a_gpu_and_mode_and_a_case_a_run() {
        let mut broken = sample::run("c", "l4");
        broken.error = Some(RunError {
            code: crate::report::ErrorCode::Panicked,
            message: "it panicked".into(),
            help: Some("mend it".into()),
        });
        let runs = vec![
            sample::run("a", "l4"),
            sample::run("b", "l4"),
            broken,
            sample::measured(sample::run("a", "h200")),
        ];
        let warning = Verdict {
            model: "b".into(),
            status: Status::Warn,
            ..failing("near its limit")
        };
        let report = Report {
            verdicts: vec![
                failing("warm live grew by 12.40 % (223 MiB)"),
                failing("and reserved"),
                warning,
            ],
            ..sample::report(runs)
        };
        insta::with_settings!({ omit_expression => true }, { insta::assert_snapshot!(render(&report).unwrap()) });
    }

    #[test]
    fn there_are_no_attributes_but_those_that_jenkins_knows() {
        let report = sample::report(vec![sample::run("a", "l4")]);
        let text = render(&Report {
            verdicts: vec![failing("x")],
            ..report
        })
        .unwrap();
        for (tag, known) in [
            ("testsuites", &["name", "time", "tests", "failures", "errors"][..]),
            ("testsuite", &["name", "tests", "failures", "errors", "time", "skipped"]),
            ("testcase", &["name", "time", "classname"]),
            ("failure", &["type", "message"]),
        ] {
            let start = format!("<{tag} ");
            let elements: Vec<_> = text.split(start.as_str()).skip(1).collect();
            assert!(!elements.is_empty(), "{tag}");
            for element in elements {
                let attributes = element.split('>').next().unwrap_or_default();
                let names = attributes
                    .split('"')
                    .step_by(2)
                    .map(|name| name.trim_matches([' ', '=', '/']));
                for name in names.filter(|name| !name.is_empty()) {
                    assert!(known.contains(&name), "{tag} {name}");
                }
            }
        }
    }

    fn text() -> impl Strategy<Value = String> {
        let rare = "(\\]\\]>|<!\\[CDATA\\[|[\u{0}\u{1b}\u{85}\u{fffd}\u{fffe}\u{ffff}\u{10ffff}<&'\"\r\n\t]){0,8}";
        prop_oneof![any::<String>(), rare]
    }

    proptest! {
        #[test]
        fn names_and_messages_stay_what_they_are(name in text(), message in text()) {
            let mut run = sample::run("a", "l4");
            let name = PlainName::escaped(&name);
            run.model = name.clone();
            let verdict = Verdict { model: name, ..failing(&message) };
            let report = Report { verdicts: vec![verdict], ..sample::report(vec![run]) };
            let text = render(&report).unwrap();
            // The text has only characters that XML 1.0 allows, and only the elements that `render` writes.
            let allowed = |c: char| matches!(c, '\t' | '\n' | '\r' | ' '..='\u{d7ff}' | '\u{e000}'..='\u{fffd}' | '\u{10000}'..);
            prop_assert!(text.chars().all(allowed));
            for (tag, count) in [("<testsuite ", 1), ("<testcase ", 1), ("<failure ", 1), ("<error", 0)] {
                prop_assert_eq!(text.matches(tag).count(), count, "{}", tag);
            }
            let parsed = JUnit::deserialize_from_str(&text);
            prop_assert!(parsed.is_ok(), "{:?}", parsed);
        }
    }
}
