//! Shows errors with foreign text escaped: names in reports, the words of parsers, and lines of files.
//!
//! An error's text may quote a file that someone else wrote. So every error passes here on its way to the terminal, and
//! no error type needs to escape its own fields.

use std::error::Error;
use std::fmt;

use clap::error::ContextValue;
use miette::{
    Diagnostic, LabeledSpan, MietteError, MietteHandler, ReportHandler, Severity, SourceCode, SourceSpan, SpanContents,
};

use crate::budget::source::read_span;
use crate::untrusted::{clean, clean_source, named, without_commands};

/// Renders errors as [`MietteHandler`] does, with their texts escaped.
pub(super) struct EscapingHandler(pub(super) MietteHandler);

impl ReportHandler for EscapingHandler {
    fn debug(&self, error: &dyn Diagnostic, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut text = String::new();
        let escaped = EscapedError::new(error, None);
        // Format into a string first: the handler breaks long lines, so that a command may stand at the start of a line.
        fmt::write(&mut text, format_args!("{:?}", Rendered(&self.0, &escaped)))?;
        f.write_str(&without_commands(&text))
    }
}

/// Escapes a value that an error about the command line quotes.
pub(super) fn context(value: &ContextValue) -> ContextValue {
    let texts = |texts: &[String]| texts.iter().map(|text| named(text)).collect();
    match value {
        ContextValue::String(text) => ContextValue::String(named(text)),
        ContextValue::Strings(all) => ContextValue::Strings(texts(all)),
        other => other.clone(),
    }
}

/// Formats an error with a handler.
struct Rendered<'a>(&'a MietteHandler, &'a EscapedError);

impl fmt::Debug for Rendered<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.debug(self.1, f)
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
    source: Option<EscapedSource>,
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

// `diagnostic_source` is not forwarded: no error of this tool has one, and miette then prints `source` instead.

fn escaped(label: &LabeledSpan) -> LabeledSpan {
    let text = label.label().map(clean);
    match label.primary() {
        true => LabeledSpan::new_primary_with_span(text, *label.inner()),
        false => LabeledSpan::new_with_span(text, *label.inner()),
    }
}

/// A source text with control characters replaced. Both texts have the same length in bytes.
#[derive(Debug)]
struct EscapedSource {
    name: String,
    original: String,
    shown: String,
}

impl SourceCode for EscapedSource {
    fn read_span<'a>(
        &'a self,
        span: &SourceSpan,
        before: usize,
        after: usize,
    ) -> Result<Box<dyn SpanContents<'a> + 'a>, MietteError> {
        read_span(&self.name, &self.original, &self.shown, (span, before, after))
    }
}

/// Returns the source text with its name, escaped.
fn whole(source: &dyn SourceCode, labels: &[LabeledSpan]) -> Option<EscapedSource> {
    let first = labels.first()?;
    // As many lines around as the text can have, so that places in it count from its start.
    let all = source.read_span(first.inner(), usize::MAX, usize::MAX).ok()?;
    let original = String::from_utf8(all.data().to_vec()).ok()?;
    Some(EscapedSource {
        name: clean(all.name().unwrap_or_default()),
        shown: clean_source(&original),
        original,
    })
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

#[cfg(test)]
mod tests {
    use miette::{GraphicalTheme, MietteHandlerOpts, NamedSource, Report};

    use super::*;

    #[derive(Debug)]
    struct Foreign {
        message: String,
        help: String,
        source: NamedSource<String>,
        at: SourceSpan,
    }

    impl fmt::Display for Foreign {
        fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
            f.write_str(&self.message)
        }
    }

    impl Error for Foreign {}

    impl Diagnostic for Foreign {
        fn help<'a>(&'a self) -> Option<Box<dyn fmt::Display + 'a>> {
            Some(Box::new(&self.help))
        }

        fn source_code(&self) -> Option<&dyn SourceCode> {
            Some(&self.source)
        }

        fn labels(&self) -> Option<Box<dyn Iterator<Item = LabeledSpan> + '_>> {
            Some(Box::new(std::iter::once(LabeledSpan::new_primary_with_span(
                None, self.at,
            ))))
        }
    }

    /// Renders an error on 100 columns, as without a terminal.
    fn rendered(error: Foreign) -> String {
        struct Shown(Report);
        impl fmt::Debug for Shown {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                let options = MietteHandlerOpts::new().graphical_theme(GraphicalTheme::unicode_nocolor());
                EscapingHandler(options.width(100).build()).debug(self.0.as_ref(), f)
            }
        }
        format!("{:?}", Shown(error.into()))
    }

    #[test]
    fn a_broken_line_starts_no_command() {
        let mut broken = 0;
        for length in 60..120 {
            // A word that is longer than a line is broken anywhere.
            let text = format!("{}::error::gone", "x".repeat(length));
            let shown = rendered(Foreign {
                message: text.clone(),
                help: text,
                source: NamedSource::new("budgets.yaml", "a".into()),
                at: (0, 1).into(),
            });
            assert!(
                !shown.lines().any(|line| line.trim_start().starts_with("::")),
                "{shown}"
            );
            broken += usize::from(shown.lines().any(|line| line.trim_start().starts_with(": :error")));
        }
        assert!(broken > 0, "no line was broken before the command");
    }

    #[test]
    fn a_column_counts_the_characters_of_the_original() {
        let text = "a: 1\nmödels: { \u{202e}lives: 1 }\n";
        let at = text.find("lives").unwrap();
        let shown = rendered(Foreign {
            message: "a mistake".into(),
            help: "\tfix\tit".into(),
            source: NamedSource::new("budgets.yaml", text.to_owned()),
            at: (at, 5).into(),
        });
        assert!(shown.contains("[budgets.yaml:2:12]"), "{shown}");
        assert!(shown.contains("mödels: { ???lives"), "{shown}");
        assert!(shown.contains(" fix it"), "{shown}");
    }
}
