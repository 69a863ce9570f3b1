//! The text of a budget file, and positions in it.

use std::fs::{self, File};
use std::io::{self, Read};
use std::sync::Arc;

use camino::Utf8Path;
use miette::{MietteError, MietteSpanContents, SourceCode, SourceSpan, SpanContents};

use super::problem::{BudgetError, BudgetProblem};

/// The size limit of a file in bytes (1 MiB): about ten times what a thousand models need.
pub(crate) const MAX_FILE: u64 = 1 << 20;

/// A range of bytes in the file.
#[derive(Debug, Default, Clone, Copy, PartialEq, Eq)]
pub struct Span {
    /// The offset of its first byte.
    pub offset: usize,
    /// Its length in bytes.
    pub len: usize,
}

impl Span {
    pub(crate) const fn new(start: usize, end: usize) -> Self {
        Self {
            offset: start,
            len: end.saturating_sub(start),
        }
    }

    pub(crate) const fn end(self) -> usize {
        self.offset + self.len
    }
}

/// A value and its range in the file.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Spanned<T> {
    /// The value.
    pub value: T,
    /// The range of the value or, for some values, of its key.
    pub span: Span,
}

/// A line and column, as messages show them. Both count from 1; columns count characters, not bytes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct SourcePosition {
    /// The line, from 1.
    pub line: u32,
    /// The column in characters, from 1.
    pub column: u32,
}

/// The text of a file, with tables that convert characters into bytes: the YAML scanner counts characters, spans count
/// bytes.
#[derive(Debug)]
pub(crate) struct BudgetText {
    name: String,
    text: String,
    /// Whether diagnostics may show the text: it has no control character, which could control a terminal.
    fit_to_show: bool,
    /// The byte offset of each character, and the length of the text at the end.
    characters: Vec<usize>,
    /// The number of characters before each line.
    lines: Vec<usize>,
}

impl BudgetText {
    pub(crate) fn new(name: &str, text: String) -> Self {
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

    /// Checks what the scanner does not check: the encoding, and control characters that end the text early or shift
    /// line numbers.
    pub(crate) fn from_bytes(name: &str, bytes: &[u8]) -> Result<Arc<Self>, BudgetError> {
        let text = match str::from_utf8(bytes) {
            Ok(text) => text,
            Err(error) => return Err(not_utf8(name, bytes, error.valid_up_to())),
        };
        // A byte order mark is invisible, so it must not count as a column.
        let source = Self::new(name, text.strip_prefix('\u{feff}').unwrap_or(text).to_owned());
        let source = Arc::new(source);
        match control_character(source.text()) {
            Some((offset, character)) => Err(BudgetProblem::new(
                "budgets::control-character",
                format!("the control character {} is not allowed", character.escape_unicode()),
            )
            .at(Span::new(offset, offset + character.len_utf8()), "this character")
            .help("remove it: only tabs and line ends (LF or CR LF) are allowed")
            .alone(&source)),
            None => Ok(source),
        }
    }

    pub(crate) fn read(path: &Utf8Path, name: &str) -> Result<Vec<u8>, BudgetError> {
        let failed = |error: &io::Error| unreadable(name, error);
        // Check the file type first, because opening a pipe would wait for its other end.
        let metadata = fs::metadata(path).map_err(|error| failed(&error))?;
        if metadata.is_dir() {
            return Err(failed(&io::Error::from(io::ErrorKind::IsADirectory)));
        }
        if !metadata.is_file() {
            return Err(file_problem(
                name,
                "budgets::not-a-file",
                "the path is not a regular file",
                "choose a regular file with `--budgets FILE`",
            ));
        }
        let mut bytes = Vec::new();
        // Read at most one byte past the limit. The size in the metadata may change before the file is read.
        File::open(path)
            .and_then(|file| file.take(MAX_FILE + 1).read_to_end(&mut bytes))
            .map_err(|error| failed(&error))?;
        if bytes.len() as u64 > MAX_FILE {
            return Err(too_large(name));
        }
        Ok(bytes)
    }

    pub(crate) fn name(&self) -> &str {
        &self.name
    }

    pub(crate) fn text(&self) -> &str {
        &self.text
    }

    pub(crate) fn slice(&self, span: Span) -> &str {
        self.text().get(span.offset..span.end()).unwrap_or_default()
    }

    pub(crate) const fn fit_to_show(&self) -> bool {
        self.fit_to_show
    }

    /// Returns the byte offset of a line (from 1) and a column (from 0, in characters).
    pub(crate) fn offset(&self, line: usize, column: usize) -> usize {
        let start = self.lines.get(line.saturating_sub(1)).copied().unwrap_or(usize::MAX);
        self.characters
            .get(start.saturating_add(column))
            .copied()
            .unwrap_or(self.text().len())
    }

    pub(crate) fn position(&self, span: Span) -> SourcePosition {
        let character = self.characters.partition_point(|&offset| offset < span.offset);
        let line = self.lines.partition_point(|&first| first <= character);
        let first = self.lines.get(line.saturating_sub(1)).copied().unwrap_or_default();
        let number = |value: usize| u32::try_from(value).unwrap_or(u32::MAX);
        SourcePosition {
            line: number(line),
            column: number(character.saturating_sub(first) + 1),
        }
    }

    /// Returns the length in bytes of the line on which a span starts.
    pub(crate) fn line_len(&self, span: Span) -> usize {
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

impl SourceCode for BudgetText {
    fn read_span<'a>(
        &'a self,
        span: &SourceSpan,
        before: usize,
        after: usize,
    ) -> Result<Box<dyn SpanContents<'a> + 'a>, MietteError> {
        read_span(&self.name, &self.text, &self.text, (span, before, after))
    }
}

/// Reads a span of a text as miette does, but with the file's name, and with columns counted in characters.
///
/// `shown` is the text as a message shows it. It has the same bytes per line as `text`, but maybe other characters.
pub(crate) fn read_span<'a>(
    name: &str,
    text: &str,
    shown: &'a str,
    (span, before, after): (&SourceSpan, usize, usize),
) -> Result<Box<dyn SpanContents<'a> + 'a>, MietteError> {
    let found = shown.read_span(span, before, after)?;
    let column = match found.column() {
        0 => 0,
        _ => {
            let before = text.get(..found.span().offset()).unwrap_or_default();
            before.chars().rev().take_while(|&c| c != '\n').count()
        }
    };
    Ok(Box::new(MietteSpanContents::new_named(
        name.to_owned(),
        found.data(),
        *found.span(),
        found.line(),
        column,
        found.line_count(),
    )))
}

fn control_character(text: &str) -> Option<(usize, char)> {
    text.char_indices().find(|&(offset, character)| match character {
        '\n' | '\t' => false,
        // The scanner ends a line at a lone CR, but editors do not, so line numbers would differ.
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
    // A snippet needs valid text, so this character stands for the wrong byte. What follows it is not shown.
    text.push(char::REPLACEMENT_CHARACTER);
    let byte = bytes.get(valid).copied().unwrap_or_default();
    BudgetProblem::new(
        "budgets::not-utf-8",
        format!("the byte 0x{byte:02x} at offset {valid} is not UTF-8"),
    )
    .at(Span::new(offset, text.len()), "this byte")
    .help("save the file as UTF-8")
    .alone(&Arc::new(BudgetText::new(name, text)))
}

pub(crate) fn too_large(name: &str) -> BudgetError {
    file_problem(
        name,
        "budgets::file-too-large",
        "the file is larger than 1 MiB",
        "check that `--budgets FILE` names the right file",
    )
}

fn unreadable(name: &str, error: &io::Error) -> BudgetError {
    let (code, help) = match error.kind() {
        io::ErrorKind::NotFound => ("budgets::file-not-found", "run `cargo vram init` to write one"),
        io::ErrorKind::IsADirectory => {
            return file_problem(
                name,
                "budgets::not-a-file",
                "the path is a folder",
                "choose a file with `--budgets FILE`",
            );
        }
        io::ErrorKind::PermissionDenied => (
            "budgets::permission-denied",
            "give the user who runs `cargo vram` permission to read the file",
        ),
        _ => ("budgets::unreadable", "check the file and its disk"),
    };
    file_problem(name, code, &format!("the file cannot be read: {error}"), help)
}

fn file_problem(name: &str, code: &'static str, message: &str, help: &str) -> BudgetError {
    BudgetProblem::new(code, message.to_owned())
        .help(help)
        .alone(&Arc::new(BudgetText::new(name, String::new())))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn positions_count_characters_and_offsets_count_bytes() {
        let source = BudgetText::new("f", "é: ü\r\nb: ö!".to_owned());
        let at = source.offset(2, 4);
        assert_eq!(source.slice(Span::new(at, at + 1)), "!");
        assert_eq!(
            source.position(Span::new(at, at + 1)),
            SourcePosition { line: 2, column: 5 }
        );
        assert_eq!(source.position(Span::new(0, 1)), SourcePosition { line: 1, column: 1 });
    }

    #[test]
    fn a_place_past_the_end_is_the_end() {
        let source = BudgetText::new("f", "ab\n".to_owned());
        assert_eq!(source.offset(9, 9), 3);
        assert_eq!(source.offset(1, 99), 3);
        assert_eq!(source.position(Span::new(3, 3)), SourcePosition { line: 2, column: 1 });
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
