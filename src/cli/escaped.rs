//! Shows errors with foreign text escaped: names in reports, the words of parsers, and lines of files.
//!
//! An error's text may quote a file that someone else wrote. So every error passes here on its way to the terminal, and
//! no error type needs to escape its own fields.

use std::error::Error;
use std::fmt;

use miette::{Diagnostic, LabeledSpan, MietteHandler, NamedSource, ReportHandler, Severity, SourceCode};

use crate::untrusted::{clean, clean_source};

/// Renders errors as [`MietteHandler`] does, with their texts escaped.
pub(super) struct EscapingHandler(pub(super) MietteHandler);

impl ReportHandler for EscapingHandler {
    fn debug(&self, error: &dyn Diagnostic, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.debug(&EscapedError::new(error, None), f)
    }
}

/// An error with all its texts escaped.
#[derive(Debug)]
struct EscapedError {
    message: String,
    cause: Option<EscapedCause>,
    code: Option<String>,
    help: Option<String>,
    url: Option<String>,
    severity: Option<Severity>,
    labels: Vec<LabeledSpan>,
    source: Option<NamedSource<String>>,
    related: Vec<EscapedError>,
}

impl EscapedError {
    /// `around` is the source text of the error that this one is related to.
    fn new(error: &dyn Diagnostic, around: Option<&dyn SourceCode>) -> Self {
        let text = |shown: Option<Box<dyn fmt::Display + '_>>| shown.map(|shown| clean(&shown.to_string()));
        let labels: Vec<_> = error
            .labels()
            .into_iter()
            .flatten()
            .map(|label| escaped(&label))
            .collect();
        let source_code = error.source_code().or(around);
        let source = source_code.and_then(|source| whole(source, &labels));
        let related = error.related().into_iter().flatten();
        let related = related.map(|related| Self::new(related, source_code)).collect();
        Self {
            message: clean(&error.to_string()),
            cause: error.source().map(EscapedCause::new),
            code: text(error.code()),
            help: text(error.help()),
            url: text(error.url()),
            severity: error.severity(),
            // A label without its source text cannot be shown.
            labels: if source.is_some() { labels } else { Vec::new() },
            source,
            related,
        }
    }
}

fn escaped(label: &LabeledSpan) -> LabeledSpan {
    let text = label.label().map(clean);
    match label.primary() {
        true => LabeledSpan::new_primary_with_span(text, *label.inner()),
        false => LabeledSpan::new_with_span(text, *label.inner()),
    }
}

/// Returns the source text with its name, escaped.
fn whole(source: &dyn SourceCode, labels: &[LabeledSpan]) -> Option<NamedSource<String>> {
    let first = labels.first()?;
    // As many lines around as the text can have, so that places in it count from its start.
    let all = source.read_span(first.inner(), usize::MAX, usize::MAX).ok()?;
    let text = String::from_utf8_lossy(all.data());
    Some(NamedSource::new(
        clean(all.name().unwrap_or_default()),
        clean_source(&text),
    ))
}

impl fmt::Display for EscapedError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.message)
    }
}

impl Error for EscapedError {
    fn source(&self) -> Option<&(dyn Error + 'static)> {
        self.cause.as_ref().map(|cause| cause as _)
    }
}

impl Diagnostic for EscapedError {
    fn code<'a>(&'a self) -> Option<Box<dyn fmt::Display + 'a>> {
        self.code.as_ref().map(|text| Box::new(text) as _)
    }

    fn severity(&self) -> Option<Severity> {
        self.severity
    }

    fn help<'a>(&'a self) -> Option<Box<dyn fmt::Display + 'a>> {
        self.help.as_ref().map(|text| Box::new(text) as _)
    }

    fn url<'a>(&'a self) -> Option<Box<dyn fmt::Display + 'a>> {
        self.url.as_ref().map(|text| Box::new(text) as _)
    }

    fn source_code(&self) -> Option<&dyn SourceCode> {
        self.source.as_ref().map(|source| source as _)
    }

    fn related<'a>(&'a self) -> Option<Box<dyn Iterator<Item = &'a dyn Diagnostic> + 'a>> {
        match self.related.is_empty() {
            true => None,
            false => Some(Box::new(self.related.iter().map(|related| related as &dyn Diagnostic))),
        }
    }

    fn labels(&self) -> Option<Box<dyn Iterator<Item = LabeledSpan> + '_>> {
        match self.labels.is_empty() {
            true => None,
            false => Some(Box::new(self.labels.iter().cloned())),
        }
    }
}

/// A cause of an error with its text escaped.
#[derive(Debug)]
struct EscapedCause {
    message: String,
    cause: Option<Box<EscapedCause>>,
}

impl EscapedCause {
    fn new(error: &(dyn Error + 'static)) -> Self {
        Self {
            message: clean(&error.to_string()),
            cause: error.source().map(|cause| Box::new(Self::new(cause))),
        }
    }
}

impl fmt::Display for EscapedCause {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.message)
    }
}

impl Error for EscapedCause {
    fn source(&self) -> Option<&(dyn Error + 'static)> {
        self.cause.as_ref().map(|cause| cause as _)
    }
}
