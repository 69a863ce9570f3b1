//! The report as JUnit XML, which most CI systems show: a suite a card and mode, a case a run.

use std::time::Duration;

use quick_junit::{NonSuccessKind, Report as JUnit, TestCase, TestCaseStatus, TestSuite};

use super::change::Judged;
use super::human::problems::refusal;
use super::human::text;
use super::refused::advice;
use super::words::mode_name;
use super::{Mode, Report, Rule, Run, Status, Verdict};

/// A pass takes no longer.
const LONGEST: Duration = Duration::from_secs(7 * 24 * 3600);

/// Draws a report as JUnit XML. Characters that XML cannot hold are left out.
///
/// # Errors
/// The document cannot be written.
pub fn render(report: &Report) -> Result<String, quick_junit::SerializeError> {
    let judged = Judged::new(report);
    let mut junit = JUnit::new("cargo vram");
    let mut suites: Vec<((&str, Mode), TestSuite)> = Vec::new();
    let mut places = std::collections::HashMap::new();
    for run in &report.runs {
        let key = (run.gpu.id.as_str(), run.mode);
        let at = *places.entry(key).or_insert_with(|| {
            let name = format!("{}, {}", clean(&run.gpu.id), mode_name(run.mode));
            suites.push((key, TestSuite::new(name)));
            suites.len() - 1
        });
        suites[at].1.add_test_case(case(run, judged.of(run)));
    }
    junit.add_test_suites(suites.into_iter().map(|(_, suite)| suite));
    if !report.problems.is_empty() {
        let mut suite = TestSuite::new("targets");
        for problem in &report.problems {
            let mut status = TestCaseStatus::non_success(NonSuccessKind::Error);
            status.set_type(clean(problem.code.as_str()));
            let help = problem.help.as_deref().unwrap_or_default();
            told(&mut status, &[&problem.message, help]);
            let target = problem.target.as_deref().unwrap_or("all targets");
            suite.add_test_case(named(target, &problem.package, status));
        }
        junit.add_test_suite(suite);
    }
    // No schema of JUnit knows how many were skipped of all suites together; quick-junit writes that, too, first of all.
    Ok(junit.to_string()?.replacen(" skipped=\"0\"", "", 1))
}

fn case(run: &Run, verdicts: &[&Verdict]) -> TestCase {
    let mut case = named(run.name(), &run.package, status(run, verdicts));
    case.set_time(
        Duration::try_from_secs_f64(run.seconds)
            .unwrap_or_default()
            .min(LONGEST),
    );
    let warnings = verdicts.iter().filter(|verdict| verdict.status == Status::Warn);
    let warnings: Vec<_> = warnings
        .map(|verdict| format!("warning: {}", clean(&verdict.message)))
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

fn status(run: &Run, verdicts: &[&Verdict]) -> TestCaseStatus {
    let of = |wanted| verdicts.iter().filter(move |verdict| verdict.status == wanted);
    if let Some(error) = &run.error {
        let mut status = TestCaseStatus::non_success(NonSuccessKind::Error);
        status.set_type(clean(error.code.as_str()));
        told(
            &mut status,
            &[&error.message, error.help.as_deref().unwrap_or_default()],
        );
        return status;
    }
    if let Some(oom) = &run.oom {
        let mut status = TestCaseStatus::non_success(NonSuccessKind::Failure);
        status.set_type("oom");
        let facts: Vec<_> = refusal(run, oom).into_iter().chain(advice(run, oom)).collect();
        told(&mut status, &["out of memory", &facts.join("\n")]);
        return status;
    }
    for (wanted, kind) in [
        (Status::Error, NonSuccessKind::Error),
        (Status::Fail, NonSuccessKind::Failure),
    ] {
        if let Some(first) = of(wanted).next() {
            let mut status = TestCaseStatus::non_success(kind);
            status.set_type(rule_name(first.rule));
            let messages: Vec<&str> = of(wanted).map(|verdict| verdict.message.as_str()).collect();
            told(&mut status, &messages);
            return status;
        }
    }
    TestCaseStatus::success()
}

/// The first sentence as the message, all of them below it.
fn told(status: &mut TestCaseStatus, sentences: &[&str]) {
    let all: Vec<_> = sentences
        .iter()
        .filter(|sentence| !sentence.is_empty())
        .map(|sentence| clean(sentence))
        .collect();
    status.set_message(all.first().cloned().unwrap_or_default());
    status.set_description(all.join("\n"));
}

/// What is not ours, without what no XML can hold; quick-junit leaves all of that out but these two.
fn clean(text: &str) -> String {
    text::clean(text).replace(['\u{fffe}', '\u{ffff}'], "\u{fffd}")
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
        Verdict::of(&sample::run("a", "l4"), Rule::Growth, Status::Fail, message.to_owned())
    }

    #[test]
    fn a_suite_a_card_and_mode_and_a_case_a_run() {
        let mut broken = sample::run("c", "l4");
        broken.error = Some(RunError {
            code: crate::report::ErrorCode::Panicked,
            message: "it panicked".to_owned(),
            help: Some("mend it".to_owned()),
        });
        let runs = vec![
            sample::run("a", "l4"),
            sample::run("b", "l4"),
            broken,
            sample::measured(sample::run("a", "h200")),
        ];
        let warning = Verdict {
            model: "b".to_owned(),
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
            run.model = name.clone();
            let verdict = Verdict { model: name, ..failing(&message) };
            let report = Report { verdicts: vec![verdict], ..sample::report(vec![run]) };
            let text = render(&report).unwrap();
            // What XML 1.0 allows, and nothing that was not written here.
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
