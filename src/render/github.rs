//! Annotations for GitHub workflows: one line per annotation. GitHub's runner reads them from standard output.

use std::collections::hash_map::Entry;
use std::collections::{BTreeSet, HashMap, HashSet};
use std::fmt::Write;

use super::refused::advice;
use crate::render::refused::refusal;
use crate::report::change::{key_of_run, key_of_verdict, metric_name, signed, signed_bytes};
use crate::report::words::{failure, mode_name};
use crate::report::{GrowthExplanation, Mode, Report, Rule, Status};
use crate::untrusted::{Foreign, clean};

/// The most annotations of each kind that GitHub shows for one step. It drops further ones silently.
const SHOWN: usize = 10;
/// The most causes of a value's growth that are shown.
const CAUSES: usize = 5;
/// The characters that a message keeps free for the count of what it leaves out.
const REST: usize = 40;
/// The most characters that are written of a message.
const MESSAGE: usize = 2000;

/// The kind of an annotation.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum AnnotationKind {
    Error,
    Warning,
    Notice,
}

impl AnnotationKind {
    const fn word(self) -> &'static str {
        match self {
            Self::Error => "error",
            Self::Warning => "warning",
            Self::Notice => "notice",
        }
    }
}

#[derive(Debug)]
struct Annotation<'a> {
    kind: AnnotationKind,
    at: Option<AnnotationPlace<'a>>,
    title: String,
    message: String,
}

/// The place in a file that an annotation points at.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
struct AnnotationPlace<'a> {
    file: &'a str,
    line: Option<u32>,
    column: Option<u32>,
}

/// Renders problems, warnings, edited limits and improvements as annotations.
///
/// There are at most ten of each kind; the last one counts the rest. `prefix` is the path from the top of the
/// repository to the folder that file names are relative to: `model/`.
#[must_use]
pub fn render(report: &Report, prefix: &str) -> String {
    let all = annotations(report);
    let mut text = String::new();
    // Kind by kind, because GitHub's limit is per kind. The tenth place is for the count of the rest.
    for kind in [AnnotationKind::Error, AnnotationKind::Warning, AnnotationKind::Notice] {
        let of_kind: Vec<_> = all.iter().filter(|annotation| annotation.kind == kind).collect();
        let shown = if of_kind.len() > SHOWN {
            SHOWN - 1
        } else {
            of_kind.len()
        };
        for annotation in &of_kind[..shown] {
            text.push_str(&line(annotation, prefix));
        }
        if of_kind.len() > shown {
            let rest = Annotation {
                kind,
                at: None,
                title: "cargo vram".to_owned(),
                message: format!("and {} more, see the report", of_kind.len() - shown),
            };
            text.push_str(&line(&rest, prefix));
        }
    }
    text
}

fn annotations(report: &Report) -> Vec<Annotation<'_>> {
    let plain = |title: String, message: String| Annotation {
        kind: AnnotationKind::Error,
        at: None,
        title,
        message,
    };
    let mut all = Vec::new();
    // Edited limits come before improvements, so that the limit of ten notices does not hide them.
    for edited in report.base.iter().flat_map(|base| &base.edited) {
        let model = edited.model.as_ref().map_or("defaults", Foreign::raw);
        let [before, after] = edited.raw_values();
        all.push(Annotation {
            kind: AnnotationKind::Notice,
            at: Some(AnnotationPlace {
                file: edited.file.raw(),
                line: edited.line,
                column: None,
            }),
            title: format!("{model}: this change edits a limit"),
            message: format!("{}: {before} → {after}", edited.limit),
        });
    }
    for problem in &report.problems {
        all.push(plain(
            format!("{}: {}", problem.package, problem.code),
            problem.message.raw().to_owned(),
        ));
    }
    for run in &report.runs {
        let title = |what: &str| titled(&run.package, run.name(), &run.gpu.id, run.mode, what);
        if let Some(error) = &run.error {
            all.push(plain(title(error.code.as_str()), error.message.raw().to_owned()));
        }
        if let Some(oom) = &run.oom {
            let facts = refusal(run, oom).into_iter().chain(advice(run, oom));
            all.push(plain(title("out of memory"), facts.collect::<Vec<_>>().join("; ")));
        }
    }
    let dead: HashSet<_> = report
        .runs
        .iter()
        .filter(|run| run.error.is_some())
        .map(key_of_run)
        .collect();
    for verdict in &report.verdicts {
        let (kind, what) = match (verdict.status, verdict.rule) {
            // The loop over the runs already wrote these.
            (_, Rule::Oom) => continue,
            (Status::Error, _) if dead.contains(&key_of_verdict(verdict)) => continue,
            (Status::Error, _) => (AnnotationKind::Error, "not judged"),
            (Status::Pass, _) if verdict.is_improvement() => (AnnotationKind::Notice, "improved"),
            (Status::Pass, _) => continue,
            (Status::Warn, _) => (AnnotationKind::Warning, "warning"),
            (Status::Fail, rule) => (AnnotationKind::Error, failure(rule)),
        };
        all.push(Annotation {
            kind,
            at: verdict.file.as_ref().map(Foreign::raw).map(|file| AnnotationPlace {
                file,
                line: verdict.line,
                column: verdict.column,
            }),
            title: titled(&verdict.package, &verdict.model, &verdict.gpu, verdict.mode, what),
            message: verdict.message.raw().to_owned(),
        });
    }
    all.extend(by_line(report.growth.iter().flat_map(causes)));
    all
}

/// Merges annotations at one line into one, in the order of the lines' first annotations.
///
/// A line that many models share would otherwise use up GitHub's limit.
fn by_line<'a>(annotations: impl Iterator<Item = Annotation<'a>>) -> impl Iterator<Item = Annotation<'a>> {
    let mut lines: Vec<Vec<Annotation<'_>>> = Vec::new();
    let mut known: HashMap<Option<AnnotationPlace<'_>>, usize> = HashMap::new();
    for annotation in annotations {
        match known.entry(annotation.at) {
            Entry::Occupied(at) => lines[*at.get()].push(annotation),
            Entry::Vacant(at) => {
                at.insert(lines.len());
                lines.push(vec![annotation]);
            }
        }
    }
    lines.into_iter().map(merged)
}

/// Merges annotations at one line. If they are about several runs, the message names each.
fn merged(annotations: Vec<Annotation<'_>>) -> Annotation<'_> {
    let runs: BTreeSet<&String> = annotations.iter().map(|annotation| &annotation.title).collect();
    let runs = runs.len();
    let message = |annotation: &Annotation<'_>| match runs {
        1 => annotation.message.clone(),
        _ => format!("{}: {}", annotation.title, annotation.message),
    };
    let title = match runs {
        1 => annotations[0].title.clone(),
        _ => format!("{runs} runs: grew here"),
    };
    let mut text = String::new();
    for (number, annotation) in annotations.iter().enumerate() {
        let line = message(annotation);
        let rest = annotations.len() - number;
        // Whole lines, and room for the count of the others.
        if number > 0 && text.chars().count() + line.chars().count() + REST > MESSAGE {
            text.push_str(&format!("\nand {rest} more, see the report"));
            break;
        }
        let separator = if number > 0 { "\n" } else { "" };
        text.push_str(&format!("{separator}{line}"));
    }
    Annotation {
        kind: annotations[0].kind,
        at: annotations[0].at,
        title,
        message: text,
    }
}

/// Returns an annotation at the line of each cause that adds memory, for the first [`CAUSES`] of a value.
fn causes(of: &GrowthExplanation) -> impl Iterator<Item = Annotation<'_>> {
    let causes = of.causes.iter().filter(|cause| cause.change > 0).take(CAUSES);
    causes.filter_map(|cause| {
        // A line that the change does not edit is only where the memory was asked for.
        let place = cause.place.as_ref().filter(|place| place.edited)?;
        Some(Annotation {
            kind: AnnotationKind::Notice,
            at: Some(AnnotationPlace {
                file: place.file.raw(),
                line: Some(place.line),
                column: None,
            }),
            title: titled(&of.package, &of.model, &of.gpu, of.mode, "grew here"),
            message: format!(
                "{} of {}: {} memory {} → {}; {}",
                signed_bytes(cause.change),
                signed(of.before, of.after),
                metric_name(of.pass, of.metric),
                of.before,
                of.after,
                cause.what
            ),
        })
    })
}

fn titled(package: &str, model: &str, gpu: &str, mode: Mode, what: &str) -> String {
    format!("{package}/{model} on {gpu}, {}: {what}", mode_name(mode))
}

fn line(annotation: &Annotation<'_>, prefix: &str) -> String {
    let mut text = format!("::{} ", annotation.kind.word());
    if let Some(AnnotationPlace { file, line, column }) = annotation.at {
        // An absolute path needs no prefix.
        let prefix = if file.starts_with('/') { "" } else { prefix };
        let _ = write!(text, "file={},", property(&format!("{prefix}{file}")));
        // A column without its line points nowhere.
        if let Some(line) = line {
            let _ = write!(text, "line={line},");
            if let Some(column) = column {
                let _ = write!(text, "col={column},");
            }
        }
    }
    // Cut before escaping, so that no escape is cut in two.
    let message: String = annotation.message.chars().take(MESSAGE).collect();
    let _ = writeln!(text, "title={}::{}", property(&annotation.title), data(&message));
    text
}

/// Escapes the text after the second `::` in the same way as GitHub's own toolkit.
fn data(text: &str) -> String {
    clean(text)
        // `%` comes first: later, it would escape the other escapes.
        .replace('%', "%25")
        .replace('\r', "%0D")
        .replace('\n', "%0A")
}

/// Cuts a property to 200 characters and escapes it in the same way as GitHub's own toolkit.
fn property(text: &str) -> String {
    let short: String = text.chars().take(200).collect();
    // A property ends at a comma, and all of them end at `::`.
    data(&short).replace(':', "%3A").replace(',', "%2C")
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::report::{Metric, Verdict, sample};
    use crate::untrusted::PlainName;

    fn failing(message: &str) -> Verdict {
        Verdict {
            file: Some("budgets.yaml".into()),
            line: Some(12),
            column: Some(5),
            ..sample::run("resnet18", "l4").verdict(Rule::Budget, Status::Fail, message.to_owned())
        }
    }

    fn drawn(verdicts: Vec<Verdict>) -> String {
        render(
            &Report {
                verdicts,
                ..sample::report(Vec::new())
            },
            "",
        )
    }

    #[test]
    fn a_verdict_points_at_its_limit() {
        assert_eq!(
            drawn(vec![failing("100 % of it,\nand: more")]),
            "::error file=budgets.yaml,line=12,col=5,title=p/resnet18 on l4%2C estimated%3A over budget::100 %25 of it,%0Aand: more\n"
        );
    }

    #[test]
    fn there_are_ten_of_a_kind_and_the_last_counts_the_rest() {
        assert_eq!(drawn(vec![failing("x"); 10]).lines().count(), 10);
        let text = drawn(vec![failing("x"); 13]);
        assert_eq!(text.lines().count(), 10);
        assert!(text.ends_with("::and 4 more, see the report\n"), "{text}");
    }

    proptest! {
        #[test]
        fn a_message_gives_one_line_whatever_it_holds(message in "\\PC*|(::error|::set-env name=a::|\r|\n|%0A|.){0,20}", model in ".*") {
            let text = drawn(vec![Verdict { model: PlainName::escaped(&model), ..failing(&message) }]);
            prop_assert_eq!(text.lines().count(), 1);
            prop_assert!(text.starts_with("::error file=budgets.yaml,line=12,col=5,title="));
            let title = text.trim_start_matches("::error ").split("::").next().unwrap_or_default();
            prop_assert_eq!(title.matches(',').count(), 3);
        }
    }

    #[test]
    fn causes_of_growth_stand_at_their_lines() {
        let report = Report {
            growth: vec![sample::growth()],
            ..sample::report(Vec::new())
        };
        assert_eq!(
            render(&report, "model/"),
            "::notice file=model/src/model.rs,line=41,title=p/resnet18 on l4%2C estimated%3A grew here::+35 MiB of +40 MiB: \
             reserved memory 80 MiB → 120 MiB; hidden is larger\n"
        );
    }

    #[test]
    fn causes_at_one_line_are_one_annotation() {
        let of = |model: &str, metric| GrowthExplanation {
            model: model.into(),
            metric,
            ..sample::growth()
        };
        let drawn = |growth| {
            let report = Report {
                growth,
                ..sample::report(Vec::new())
            };
            render(&report, "")
        };
        assert_eq!(
            drawn(vec![of("a", Metric::Live), of("a", Metric::Reserved)]),
            "::notice file=src/model.rs,line=41,title=p/a on l4%2C estimated%3A grew here::+35 MiB of +40 MiB: \
             live memory 80 MiB → 120 MiB; hidden is larger%0A+35 MiB of +40 MiB: reserved memory 80 MiB → 120 MiB; \
             hidden is larger\n"
        );
        // Many models that share a line would otherwise take all places.
        let names: Vec<_> = (0..12).map(|number| format!("m{number}")).collect();
        let text = drawn(names.iter().map(|name| of(name, Metric::Live)).collect());
        assert_eq!(text.lines().count(), 1, "{text}");
        assert!(
            text.contains("title=12 runs%3A grew here::p/m0 on l4, estimated: grew here: +35 MiB"),
            "{text}"
        );
        // What does not fit is counted, and no line is cut.
        let names: Vec<_> = (0..99)
            .map(|number| format!("a_model_with_a_long_name_{number}"))
            .collect();
        let text = drawn(names.iter().map(|name| of(name, Metric::Live)).collect());
        let shown = text.matches("hidden is larger").count();
        assert!(
            text.ends_with(&format!("hidden is larger%0Aand {} more, see the report\n", 99 - shown)),
            "{text}"
        );
        assert!((5..99).contains(&shown), "{text}");
    }

    #[test]
    fn files_are_named_from_the_top_of_the_repository() {
        let report = Report {
            verdicts: vec![failing("too much")],
            ..sample::report(Vec::new())
        };
        assert!(render(&report, "model/").contains("file=model/budgets.yaml,line=12,"));
    }
}
