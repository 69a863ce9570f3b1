//! Annotations of GitHub's workflows: a line each, which the runner reads off standard output.

use std::fmt::Write;

use super::human::problems::refusal;
use super::human::text::clean;
use super::refused::advice;
use super::words::{failure, mode_name};
use super::{Mode, Report, Rule, Status};

/// So many of each kind are shown of one step; further ones are dropped without a word.
const SHOWN: usize = 10;
/// Characters of a message that are written.
const MESSAGE: usize = 2000;

/// The kinds of annotation.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Kind {
    Error,
    Warning,
    Notice,
}

impl Kind {
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
    kind: Kind,
    at: Option<Place<'a>>,
    title: String,
    message: String,
}

/// Where it is written.
#[derive(Debug, Clone, Copy)]
struct Place<'a> {
    file: &'a str,
    line: Option<u32>,
    column: Option<u32>,
}

/// Draws what is wrong, and what became better, as annotations: at most ten of each kind, the last of which counts the rest.
/// `prefix` is the folder that files are named from, as the repository has it: `model/`.
#[must_use]
pub fn render(report: &Report, prefix: &str) -> String {
    let all = annotations(report);
    let mut text = String::new();
    for kind in [Kind::Error, Kind::Warning, Kind::Notice] {
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
                message: format!("and {} more, which the report has", of_kind.len() - shown),
            };
            text.push_str(&line(&rest, prefix));
        }
    }
    text
}

fn annotations(report: &Report) -> Vec<Annotation<'_>> {
    let plain = |title: String, message: String| Annotation {
        kind: Kind::Error,
        at: None,
        title,
        message,
    };
    let mut all = Vec::new();
    // Before improvements: nobody is to overlook them.
    for edited in report.base.iter().flat_map(|base| &base.edited) {
        let model = edited.model.as_deref().unwrap_or("defaults");
        let value = |value: &Option<String>| value.clone().unwrap_or_else(|| "none".to_owned());
        all.push(Annotation {
            kind: Kind::Notice,
            at: Some(Place {
                file: &edited.file,
                line: edited.line,
                column: None,
            }),
            title: format!("{model}: this change edits a limit"),
            message: format!("{}: {} → {}", edited.limit, value(&edited.before), value(&edited.after)),
        });
    }
    for problem in &report.problems {
        all.push(plain(
            format!("{}: {}", problem.package, problem.code),
            problem.message.clone(),
        ));
    }
    for run in &report.runs {
        let title = |what: &str| titled(&run.package, run.name(), &run.gpu.id, run.mode, what);
        if let Some(error) = &run.error {
            all.push(plain(title(error.code.as_str()), error.message.clone()));
        }
        if let Some(oom) = &run.oom {
            let facts = refusal(run, oom).into_iter().chain(advice(run, oom));
            all.push(plain(title("out of memory"), facts.collect::<Vec<_>>().join("; ")));
        }
    }
    for verdict in &report.verdicts {
        let (kind, what) = match (verdict.status, verdict.rule) {
            // Both are told above.
            (_, Rule::Oom) | (Status::Error, _) => continue,
            (Status::Pass, _) if verdict.is_improvement() => (Kind::Notice, "improved"),
            (Status::Pass, _) => continue,
            (Status::Warn, _) => (Kind::Warning, "warning"),
            (Status::Fail, rule) => (Kind::Error, failure(rule)),
        };
        all.push(Annotation {
            kind,
            at: verdict.file.as_deref().map(|file| Place {
                file,
                line: verdict.line,
                column: verdict.column,
            }),
            title: titled(&verdict.package, &verdict.model, &verdict.gpu, verdict.mode, what),
            message: verdict.message.clone(),
        });
    }
    all
}

fn titled(package: &str, model: &str, gpu: &str, mode: Mode, what: &str) -> String {
    format!("{package}/{model} on {gpu}, {}: {what}", mode_name(mode))
}

fn line(annotation: &Annotation<'_>, prefix: &str) -> String {
    let mut text = format!("::{} ", annotation.kind.word());
    if let Some(Place { file, line, column }) = annotation.at {
        // A file elsewhere is named from the root of all.
        let prefix = if file.starts_with('/') { "" } else { prefix };
        let _ = write!(text, "file={},", property(&format!("{prefix}{file}")));
        if let Some(line) = line {
            let _ = write!(text, "line={line},");
            if let Some(column) = column {
                let _ = write!(text, "col={column},");
            }
        }
    }
    let message: String = annotation.message.chars().take(MESSAGE).collect();
    let _ = writeln!(text, "title={}::{}", property(&annotation.title), data(&message));
    text
}

/// As the runner's own toolkit escapes what stands behind `::`.
fn data(text: &str) -> String {
    clean(text)
        .replace('%', "%25")
        .replace('\r', "%0D")
        .replace('\n', "%0A")
}

/// As the runner's own toolkit escapes a property.
fn property(text: &str) -> String {
    let short: String = text.chars().take(200).collect();
    data(&short).replace(':', "%3A").replace(',', "%2C")
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::report::{Verdict, sample};

    fn failing(message: &str) -> Verdict {
        Verdict {
            file: Some("budgets.yaml".to_owned()),
            line: Some(12),
            column: Some(5),
            ..Verdict::of(
                &sample::run("resnet18", "l4"),
                Rule::Budget,
                Status::Fail,
                message.to_owned(),
            )
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
        assert!(text.ends_with("::and 4 more, which the report has\n"), "{text}");
    }

    proptest! {
        #[test]
        fn a_message_gives_one_line_whatever_it_holds(message in "\\PC*|(::error|::set-env name=a::|\r|\n|%0A|.){0,20}", model in ".*") {
            let text = drawn(vec![Verdict { model, ..failing(&message) }]);
            prop_assert_eq!(text.lines().count(), 1);
            prop_assert!(text.starts_with("::error file=budgets.yaml,line=12,col=5,title="));
            let title = text.trim_start_matches("::error ").split("::").next().unwrap_or_default();
            prop_assert_eq!(title.matches(',').count(), 3);
        }
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
