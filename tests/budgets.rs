//! Budget files, from their text to the printed errors.

/// Compares the printed text with the accepted snapshot.
macro_rules! assert_shown {
    ($text:expr) => {
        insta::with_settings!({ omit_expression => true }, { insta::assert_snapshot!($text) })
    };
}

mod any_text;
mod files;
mod meaning;
mod mistakes;
mod models;

use cargo_vram::budget::{BudgetError, BudgetProblem, Budgets};
use miette::{Diagnostic, GraphicalReportHandler, GraphicalTheme, NarratableReportHandler};

/// Some of the built-in GPUs.
const GPUS: [&str; 5] = ["a100-40gb", "a100-80gb", "h200", "l4", "t4"];

fn parse(text: &str) -> Result<Budgets, BudgetError> {
    Budgets::parse(text.as_bytes(), "budgets.yaml", &GPUS)
}

/// Parses a file without mistakes.
fn good(text: &str) -> Budgets {
    parse(text).unwrap_or_else(|error| panic!("{}", shown(&error)))
}

/// The printed errors of a file with mistakes.
fn refused(text: &str) -> String {
    shown(&parse(text).expect_err("the file has a mistake"))
}

/// The printed text of an error; asserts that each mistake has its place, code and help in every rendering.
fn shown(error: &BudgetError) -> String {
    let mut graphical = String::new();
    GraphicalReportHandler::new_themed(GraphicalTheme::unicode_nocolor())
        .with_width(110)
        .render_report(&mut graphical, error)
        .expect("can be rendered");
    let mut narrated = String::new();
    NarratableReportHandler::new()
        .render_report(&mut narrated, error)
        .expect("can be narrated");
    assert!(!error.problems().is_empty());
    for problem in error.problems() {
        for text in [&graphical, &narrated] {
            assert!(text.contains(problem.code()), "{text}");
            assert!(!text.contains("Failed to read"), "{text}");
        }
        assert!(narrated.contains(&problem.to_string()), "{narrated}");
        let place = problem
            .position()
            .map(|at| format!("budgets.yaml:{}:{}", at.line, at.column));
        if let Some(place) = place {
            assert!(problem.to_string().starts_with(&place), "{problem}");
            assert!(
                problem.source_code().is_none() || graphical.contains(&format!("[{place}]")),
                "{graphical}"
            );
        }
        assert!(problem.advice().is_some(), "{problem}");
    }
    // Trailing spaces are invisible in a snapshot, and editors remove them.
    graphical.lines().map(|line| format!("{}\n", line.trim_end())).collect()
}

/// The codes of the mistakes, in the order of the file.
fn codes(text: &str) -> Vec<&'static str> {
    parse(text).map_or_else(
        |error| error.problems().iter().map(BudgetProblem::code).collect(),
        |_| Vec::new(),
    )
}

/// The parts of the text that a mistake labels.
fn labels(problem: &BudgetProblem) -> Vec<(usize, usize)> {
    problem
        .labels()
        .into_iter()
        .flatten()
        .map(|label| (label.offset(), label.len()))
        .collect()
}
