//! Diagnostics for mistakes in a budget file.

use std::fmt::{self, Display};
use std::sync::Arc;

use miette::{Diagnostic, LabeledSpan, Severity, SourceCode};

use super::source::{BudgetText, SourcePosition, Span};

/// The number of mistakes that are shown. A file with more probably repeats one mistake.
const MAX_SHOWN: usize = 50;
/// The line length in bytes up to which the source is shown. A snippet of a longer line fills the screen.
const MAX_LINE: usize = 2000;

/// All mistakes found in a budget file. A single mistake is the diagnostic itself. Several are related diagnostics of
/// one that counts them.
#[derive(Debug, Clone)]
pub struct BudgetError {
    file: String,
    problems: Vec<BudgetProblem>,
    not_shown: usize,
}

impl BudgetError {
    /// The mistakes in the order of the file, at most the first fifty.
    #[must_use]
    pub fn problems(&self) -> &[BudgetProblem] {
        &self.problems
    }

    /// Returns the mistake if there is only one. A heading above it would repeat the name of the file and nothing else.
    fn only(&self) -> Option<&BudgetProblem> {
        match (self.problems.as_slice(), self.not_shown) {
            ([only], 0) => Some(only),
            _ => None,
        }
    }
}

impl Display for BudgetError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if let Some(only) = self.only() {
            return only.fmt(f);
        }
        let shown = self.problems.len();
        write!(f, "{} has {} mistakes", self.file, shown + self.not_shown)?;
        match self.not_shown {
            0 => Ok(()),
            _ => write!(f, "; the first {shown} are shown"),
        }
    }
}

impl std::error::Error for BudgetError {}

impl Diagnostic for BudgetError {
    fn code<'a>(&'a self) -> Option<Box<dyn Display + 'a>> {
        match self.only() {
            Some(only) => Diagnostic::code(only),
            None => Some(Box::new("budgets::invalid")),
        }
    }

    fn help<'a>(&'a self) -> Option<Box<dyn Display + 'a>> {
        self.only().and_then(Diagnostic::help)
    }

    fn source_code(&self) -> Option<&dyn SourceCode> {
        self.only().and_then(Diagnostic::source_code)
    }

    fn labels(&self) -> Option<Box<dyn Iterator<Item = LabeledSpan> + '_>> {
        self.only().and_then(Diagnostic::labels)
    }

    fn related<'a>(&'a self) -> Option<Box<dyn Iterator<Item = &'a dyn Diagnostic> + 'a>> {
        match self.only() {
            Some(_) => None,
            None => Some(Box::new(self.problems.iter().map(|problem| problem as &dyn Diagnostic))),
        }
    }
}

/// One mistake or warning: what is wrong, its position, and how to fix it.
#[derive(Debug, Clone)]
pub struct BudgetProblem {
    code: &'static str,
    severity: Severity,
    message: String,
    help: Option<String>,
    /// The first label marks the mistake; the others mark related text.
    labels: Vec<(Span, &'static str)>,
    file: String,
    position: Option<SourcePosition>,
    /// Absent if no snippet is shown: the problem has no position, the text has control characters, or a line is too
    /// long.
    source: Option<Arc<BudgetText>>,
}

impl BudgetProblem {
    pub(crate) fn new(code: &'static str, message: String) -> Self {
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

    pub(crate) fn at(mut self, span: Span, label: &'static str) -> Self {
        self.labels.push((span, label));
        self
    }

    pub(crate) fn help(mut self, help: impl Into<String>) -> Self {
        self.help = Some(help.into());
        self
    }

    pub(crate) const fn warning(mut self) -> Self {
        self.severity = Severity::Warning;
        self
    }

    /// Makes an error that has only this problem.
    pub(crate) fn alone(self, source: &Arc<BudgetText>) -> BudgetError {
        BudgetError {
            file: source.name().to_owned(),
            problems: vec![self.located(source)],
            not_shown: 0,
        }
    }

    pub(crate) fn located(mut self, source: &Arc<BudgetText>) -> Self {
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

    /// The stable name of the problem: `budgets::unknown-key`.
    #[must_use]
    pub const fn code(&self) -> &'static str {
        self.code
    }

    /// What is wrong, without the position.
    #[must_use]
    pub fn message(&self) -> &str {
        &self.message
    }

    /// How to fix the problem.
    #[must_use]
    pub fn advice(&self) -> Option<&str> {
        self.help.as_deref()
    }

    /// The position of the mistake; absent if the problem is about the whole file.
    #[must_use]
    pub const fn position(&self) -> Option<SourcePosition> {
        self.position
    }
}

impl Display for BudgetProblem {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.position {
            Some(SourcePosition { line, column }) => {
                write!(f, "{}:{line}:{column}: {}", self.file, self.message)
            }
            None => write!(f, "{}: {}", self.file, self.message),
        }
    }
}

impl std::error::Error for BudgetProblem {}

impl Diagnostic for BudgetProblem {
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

/// Collects mistakes, so that one mistake does not hide the others.
#[derive(Debug, Default)]
pub(crate) struct Problems(Vec<BudgetProblem>);

impl Problems {
    pub(crate) fn push(&mut self, problem: BudgetProblem) {
        self.0.push(problem);
    }

    /// Converts the problems into one error. Returns `Ok` if there are none.
    pub(crate) fn into_result(self, source: &Arc<BudgetText>) -> Result<(), BudgetError> {
        if self.0.is_empty() {
            Ok(())
        } else {
            Err(self.into_error(source))
        }
    }

    /// Converts the problems into one error, sorted by position.
    pub(crate) fn into_error(mut self, source: &Arc<BudgetText>) -> BudgetError {
        // Keys are checked in another order than they stand in the file. Sorted first, so that the first
        // mistakes are shown.
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
