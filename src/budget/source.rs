//! The text of a budget file, and where in it something stands.

use std::fs::{self, File};
use std::io::{self, Read};
use std::sync::Arc;

use camino::Utf8Path;
use miette::{MietteError, MietteSpanContents, SourceCode, SourceSpan, SpanContents};

use super::problem::{BudgetError, Problem};

/// The largest file that is read: a thousand models, ten times over.
pub(super) const MAX_FILE: u64 = 1 << 20;

/// A part of the file, in bytes.
#[derive(Debug, Default, Clone, Copy, PartialEq, Eq)]
pub struct Span {
    /// Where it starts.
    pub offset: usize,
    /// How long it is.
    pub len: usize,
}

impl Span {
    pub(super) const fn new(start: usize, end: usize) -> Self {
        Self {
            offset: start,
            len: end.saturating_sub(start),
        }
    }

    pub(super) const fn end(self) -> usize {
        self.offset + self.len
    }
}

/// A value and where it is written.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Spanned<T> {
    /// What is meant.
    pub value: T,
    /// Where it is written.
    pub span: Span,
}

/// A place for people: line and column count from 1, columns in characters.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct Position {
    /// The line.
    pub line: u32,
    /// The column.
    pub column: u32,
}

/// The text, with tables to go from characters, which the YAML scanner counts, to bytes, which spans count.
#[derive(Debug)]
pub(super) struct Source {
    name: String,
    text: String,
    /// Whether it can be shown: a control character could steer a terminal.
    fit_to_show: bool,
    /// The byte at which each character starts, and the end of the text.
    characters: Vec<usize>,
    /// For each line, how many characters stand before it.
    lines: Vec<usize>,
}

impl Source {
    pub(super) fn new(name: &str, text: String) -> Self {
        let mut characters = Vec::with_capacity(text.len() + 1);
        let mut lines = vec![0];
        for (offset, character) in text.char_indices() {
            characters.push(offset);
            if character == '\n' {
                lines.push(characters.len());
            }
        }
        characters.push(text.len());
        Self {
            name: name.to_owned(),
            fit_to_show: control_character(&text).is_none(),
            text,
            characters,
            lines,
        }
    }

    /// Checks what the scanner does not: encoding, and characters that would end the text early or move lines.
    pub(super) fn from_bytes(name: &str, bytes: &[u8]) -> Result<Arc<Self>, BudgetError> {
        let text = match str::from_utf8(bytes) {
            Ok(text) => text,
            Err(error) => return Err(not_utf8(name, bytes, error.valid_up_to())),
        };
        // A byte order mark is not a column that a person can see.
        let source = Self::new(name, text.strip_prefix('\u{feff}').unwrap_or(text).to_owned());
        let source = Arc::new(source);
        match control_character(source.text()) {
            Some((offset, character)) => Err(Problem::new(
                "budgets::control-character",
                format!(
                    "the control character {} has no place in text",
                    character.escape_unicode()
                ),
            )
            .at(Span::new(offset, offset + character.len_utf8()), "this character")
            .help("a budget file holds text, in lines that end with LF or CR LF")
            .alone(&source)),
            None => Ok(source),
        }
    }

    pub(super) fn read(path: &Utf8Path, name: &str) -> Result<Vec<u8>, BudgetError> {
        let failed = |error: &io::Error| unreadable(name, error);
        // Asked first, because opening a pipe would wait for its other end.
        let metadata = fs::metadata(path).map_err(|error| failed(&error))?;
        if metadata.is_dir() {
            return Err(failed(&io::Error::from(io::ErrorKind::IsADirectory)));
        }
        if !metadata.is_file() {
            return Err(file_problem(
                name,
                "budgets::not-a-file",
                "is not a regular file",
                "name a file that holds budgets",
            ));
        }
        let mut bytes = Vec::new();
        // One byte past the limit tells, without trusting a size that may change meanwhile.
        File::open(path)
            .and_then(|file| file.take(MAX_FILE + 1).read_to_end(&mut bytes))
            .map_err(|error| failed(&error))?;
        if bytes.len() as u64 > MAX_FILE {
            return Err(too_large(name));
        }
        Ok(bytes)
    }

    pub(super) fn name(&self) -> &str {
        &self.name
    }

    pub(super) fn text(&self) -> &str {
        &self.text
    }

    pub(super) fn slice(&self, span: Span) -> &str {
        self.text().get(span.offset..span.end()).unwrap_or_default()
    }

    pub(super) const fn fit_to_show(&self) -> bool {
        self.fit_to_show
    }

    /// The byte at a line, from 1, and a column, from 0 and in characters.
    pub(super) fn offset(&self, line: usize, column: usize) -> usize {
        let start = self.lines.get(line.saturating_sub(1)).copied().unwrap_or(usize::MAX);
        self.characters
            .get(start.saturating_add(column))
            .copied()
            .unwrap_or(self.text().len())
    }

    pub(super) fn position(&self, span: Span) -> Position {
        let character = self.characters.partition_point(|&offset| offset < span.offset);
        let line = self.lines.partition_point(|&first| first <= character);
        let first = self.lines.get(line.saturating_sub(1)).copied().unwrap_or_default();
        let number = |value: usize| u32::try_from(value).unwrap_or(u32::MAX);
        Position {
            line: number(line),
            column: number(character.saturating_sub(first) + 1),
        }
    }

    /// How many bytes the line has on which a span starts.
    pub(super) fn line_len(&self, span: Span) -> usize {
        let text = self.text();
        let before = text.get(..span.offset).map_or(0, |before| {
            before.rfind('\n').map_or(before.len(), |at| before.len() - at)
        });
        let after = text
            .get(span.offset..)
            .map_or(0, |after| after.find('\n').unwrap_or(after.len()));
        before + after
    }
}

impl SourceCode for Source {
    /// As for any text, under the file's name, and with columns counted in characters as everywhere here.
    fn read_span<'a>(
        &'a self,
        span: &SourceSpan,
        before: usize,
        after: usize,
    ) -> Result<Box<dyn SpanContents<'a> + 'a>, MietteError> {
        let found = self.text.read_span(span, before, after)?;
        let column = match found.column() {
            0 => 0,
            _ => self
                .position(Span::new(found.span().offset(), found.span().offset()))
                .column
                .saturating_sub(1) as usize,
        };
        Ok(Box::new(MietteSpanContents::new_named(
            self.name.clone(),
            found.data(),
            *found.span(),
            found.line(),
            column,
            found.line_count(),
        )))
    }
}

fn control_character(text: &str) -> Option<(usize, char)> {
    text.char_indices().find(|&(offset, character)| match character {
        '\n' | '\t' => false,
        // A lone one would be a line to the scanner and none to an editor.
        '\r' => text.as_bytes().get(offset + 1) != Some(&b'\n'),
        _ => character.is_control(),
    })
}

fn not_utf8(name: &str, bytes: &[u8], valid: usize) -> BudgetError {
    let mut text = String::from_utf8_lossy(bytes.get(..valid).unwrap_or_default()).into_owned();
    if text.starts_with('\u{feff}') {
        text.remove(0);
    }
    let offset = text.len();
    text.push(char::REPLACEMENT_CHARACTER);
    let byte = bytes.get(valid).copied().unwrap_or_default();
    Problem::new(
        "budgets::not-utf-8",
        format!("the byte 0x{byte:02x} at offset {valid} is not UTF-8"),
    )
    .at(Span::new(offset, text.len()), "this byte")
    .help("save the file as UTF-8")
    .alone(&Arc::new(Source::new(name, text)))
}

pub(super) fn too_large(name: &str) -> BudgetError {
    file_problem(
        name,
        "budgets::file-too-large",
        "is larger than 1 MiB",
        "name a file that holds budgets, and nothing else",
    )
}

fn unreadable(name: &str, error: &io::Error) -> BudgetError {
    let (code, help) = match error.kind() {
        io::ErrorKind::NotFound => ("budgets::file-not-found", "`cargo vram init` writes one"),
        io::ErrorKind::IsADirectory => {
            return file_problem(
                name,
                "budgets::not-a-file",
                "is a folder",
                "name the file in it that holds the budgets",
            );
        }
        io::ErrorKind::PermissionDenied => (
            "budgets::permission-denied",
            "the file must be readable by the user who runs this",
        ),
        _ => ("budgets::unreadable", "the operating system would not read it"),
    };
    file_problem(name, code, &format!("cannot be read: {error}"), help)
}

fn file_problem(name: &str, code: &'static str, message: &str, help: &str) -> BudgetError {
    Problem::new(code, message.to_owned())
        .help(help)
        .alone(&Arc::new(Source::new(name, String::new())))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn positions_count_characters_and_offsets_count_bytes() {
        let source = Source::new("f", "é: ü\r\nb: ö!".to_owned());
        let at = source.offset(2, 4);
        assert_eq!(source.slice(Span::new(at, at + 1)), "!");
        assert_eq!(source.position(Span::new(at, at + 1)), Position { line: 2, column: 5 });
        assert_eq!(source.position(Span::new(0, 1)), Position { line: 1, column: 1 });
    }

    #[test]
    fn a_place_past_the_end_is_the_end() {
        let source = Source::new("f", "ab\n".to_owned());
        assert_eq!(source.offset(9, 9), 3);
        assert_eq!(source.offset(1, 99), 3);
        assert_eq!(source.position(Span::new(3, 3)), Position { line: 2, column: 1 });
    }

    #[test]
    fn every_refusal_of_the_operating_system_has_its_own_code() {
        let code = |kind| unreadable("f", &io::Error::from(kind)).problems()[0].code();
        assert_eq!(code(io::ErrorKind::NotFound), "budgets::file-not-found");
        assert_eq!(code(io::ErrorKind::PermissionDenied), "budgets::permission-denied");
        assert_eq!(code(io::ErrorKind::IsADirectory), "budgets::not-a-file");
        assert_eq!(code(io::ErrorKind::TimedOut), "budgets::unreadable");
    }
}
