//! Mistakes in a budget file, as diagnostics.

use std::fmt::{self, Display};
use std::sync::Arc;

use miette::{Diagnostic, LabeledSpan, Severity, SourceCode};

use super::source::{Position, Source, Span};

/// How many mistakes are shown. Whoever has more has one mistake that repeats.
const MAX_SHOWN: usize = 50;
/// A snippet of a longer line says nothing and fills the screen.
const MAX_LINE: usize = 2000;

/// All mistakes found in a budget file. One diagnostic, with one related diagnostic a mistake.
#[derive(Debug, Clone)]
pub struct BudgetError {
    file: String,
    problems: Vec<Problem>,
    not_shown: usize,
}

impl BudgetError {
    /// The mistakes, in the order of the file; the first fifty where there are more.
    #[must_use]
    pub fn problems(&self) -> &[Problem] {
        &self.problems
    }
}

impl Display for BudgetError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match (self.problems.as_slice(), self.not_shown) {
            ([Problem { position: None, .. }], 0) => write!(f, "{} cannot be used", self.file),
            ([_], 0) => write!(f, "{} has a mistake", self.file),
            (problems, 0) => write!(f, "{} has {} mistakes", self.file, problems.len()),
            (problems, more) => {
                write!(
                    f,
                    "{} has {} mistakes, of which the first {} are shown",
                    self.file,
                    problems.len() + more,
                    problems.len()
                )
            }
        }
    }
}

impl std::error::Error for BudgetError {}

impl Diagnostic for BudgetError {
    fn code<'a>(&'a self) -> Option<Box<dyn Display + 'a>> {
        Some(Box::new("budgets::invalid"))
    }

    fn related<'a>(&'a self) -> Option<Box<dyn Iterator<Item = &'a dyn Diagnostic> + 'a>> {
        Some(Box::new(self.problems.iter().map(|problem| problem as &dyn Diagnostic)))
    }
}

/// One mistake, or one warning: what it is, where it stands, and what to do about it.
#[derive(Debug, Clone)]
pub struct Problem {
    code: &'static str,
    severity: Severity,
    message: String,
    help: Option<String>,
    /// The first label is where the mistake is; the others help to understand it.
    labels: Vec<(Span, &'static str)>,
    file: String,
    position: Option<Position>,
    /// Absent where there is nothing to show of it.
    source: Option<Arc<Source>>,
}

impl Problem {
    pub(super) fn new(code: &'static str, message: String) -> Self {
        Self {
            code,
            severity: Severity::Error,
            message,
            help: None,
            labels: Vec::new(),
            file: String::new(),
            position: None,
            source: None,
        }
    }

    pub(super) fn at(mut self, span: Span, label: &'static str) -> Self {
        self.labels.push((span, label));
        self
    }

    pub(super) fn help(mut self, help: impl Into<String>) -> Self {
        self.help = Some(help.into());
        self
    }

    pub(super) const fn warning(mut self) -> Self {
        self.severity = Severity::Warning;
        self
    }

    /// An error of this problem alone.
    pub(super) fn alone(self, source: &Arc<Source>) -> BudgetError {
        BudgetError {
            file: source.name().to_owned(),
            problems: vec![self.located(source)],
            not_shown: 0,
        }
    }

    pub(super) fn located(mut self, source: &Arc<Source>) -> Self {
        source.name().clone_into(&mut self.file);
        if let Some(&(span, _)) = self.labels.first() {
            self.position = Some(source.position(span));
            let short = |&(span, _): &(Span, _)| source.line_len(span) <= MAX_LINE;
            if source.fit_to_show() && self.labels.iter().all(short) {
                self.source = Some(Arc::clone(source));
            }
        }
        self
    }

    /// A stable name, as `budgets::unknown-key`.
    #[must_use]
    pub const fn code(&self) -> &'static str {
        self.code
    }

    /// What is wrong, without the place.
    #[must_use]
    pub fn message(&self) -> &str {
        &self.message
    }

    /// What to do about it.
    #[must_use]
    pub fn advice(&self) -> Option<&str> {
        self.help.as_deref()
    }

    /// Where it stands; absent where it is about the whole file.
    #[must_use]
    pub const fn position(&self) -> Option<Position> {
        self.position
    }
}

impl Display for Problem {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.position {
            Some(Position { line, column }) => {
                write!(f, "{}:{line}:{column}: {}", self.file, self.message)
            }
            None => write!(f, "{}: {}", self.file, self.message),
        }
    }
}

impl std::error::Error for Problem {}

impl Diagnostic for Problem {
    fn code<'a>(&'a self) -> Option<Box<dyn Display + 'a>> {
        Some(Box::new(self.code))
    }

    fn severity(&self) -> Option<Severity> {
        Some(self.severity)
    }

    fn help<'a>(&'a self) -> Option<Box<dyn Display + 'a>> {
        self.help.as_ref().map(|help| Box::new(help) as Box<dyn Display>)
    }

    fn source_code(&self) -> Option<&dyn SourceCode> {
        self.source.as_deref().map(|source| source as &dyn SourceCode)
    }

    fn labels(&self) -> Option<Box<dyn Iterator<Item = LabeledSpan> + '_>> {
        self.source.as_ref()?;
        Some(Box::new(self.labels.iter().enumerate().map(
            |(index, &(span, label))| {
                let place = (span.offset, span.len);
                match index {
                    0 => LabeledSpan::new_primary_with_span(Some(label.to_owned()), place),
                    _ => LabeledSpan::new_with_span(Some(label.to_owned()), place),
                }
            },
        )))
    }
}

/// Collects mistakes, so that none hides the others.
#[derive(Debug, Default)]
pub(super) struct Problems(Vec<Problem>);

impl Problems {
    pub(super) fn push(&mut self, problem: Problem) {
        self.0.push(problem);
    }

    /// All of them as one error, or nothing.
    pub(super) fn into_result(self, source: &Arc<Source>) -> Result<(), BudgetError> {
        if self.0.is_empty() {
            Ok(())
        } else {
            Err(self.into_error(source))
        }
    }

    /// All of them as one error.
    pub(super) fn into_error(mut self, source: &Arc<Source>) -> BudgetError {
        self.0
            .sort_by_key(|problem| problem.labels.first().map(|(span, _)| span.offset));
        let not_shown = self.0.len().saturating_sub(MAX_SHOWN);
        self.0.truncate(MAX_SHOWN);
        let problems = self.0.into_iter().map(|problem| problem.located(source)).collect();
        BudgetError {
            file: source.name().to_owned(),
            problems,
            not_shown,
        }
    }
}
