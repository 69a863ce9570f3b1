//! Colours, and line breaks that fit the terminal.

use anstyle::{AnsiColor, Style as Ansi};
use unicode_width::UnicodeWidthStr;

pub(in crate::render) const GREEN: Ansi = AnsiColor::Green.on_default();
pub(in crate::render) const YELLOW: Ansi = AnsiColor::Yellow.on_default();
pub(in crate::render) const RED: Ansi = AnsiColor::Red.on_default();
pub(in crate::render) const BOLD: Ansi = Ansi::new().bold();

/// The units that stay on the same line as their number.
const UNITS: [&str; 15] = [
    "B", "KiB", "MiB", "GiB", "TiB", "kB", "KB", "MB", "GB", "TB", "%", "s", "ms", "min", "h",
];
/// The extra indent of all lines of a broken text except its first.
const HANG: usize = 2;

/// Breaks each line that is wider than `width` between words.
///
/// Continued lines are indented further, so that no part of a model's own text looks like a line of this tool. A number
/// stays with its unit, and a command in backticks is not broken. A single word or command may be wider than `width`.
pub(in crate::render) fn wrap(text: &str, width: usize) -> String {
    let mut wrapped = String::new();
    for line in text.lines() {
        let blanks = line.len() - line.trim_start_matches(' ').len();
        // The indent of a line is that of its continuation, too, so that nested texts stay nested.
        let (indent, rest) = line.split_at(blanks);
        wrapped.push_str(indent);
        let mut used = blanks;
        for (at, word) in pieces(rest).into_iter().enumerate() {
            let room = columns(&word);
            match at {
                0 => {}
                _ if used + 1 + room > width => {
                    wrapped.push('\n');
                    wrapped.push_str(indent);
                    wrapped.push_str(&" ".repeat(HANG));
                    used = blanks + HANG;
                }
                _ => {
                    wrapped.push(' ');
                    used += 1;
                }
            }
            wrapped.push_str(&word);
            used += room;
        }
        wrapped.push('\n');
    }
    wrapped
}

/// Splits a line into words. Words that must stay together are one piece.
fn pieces(line: &str) -> Vec<String> {
    let mut pieces: Vec<String> = Vec::new();
    let mut in_command = false;
    // A backtick that is never closed does not start a command.
    let mut left = line.matches('`').count();
    // At each blank, and not at runs of blanks: columns that are aligned by blanks stay aligned.
    for word in line.split(' ') {
        let bare = word.trim_end_matches([',', ';', ':', '.', ')']);
        let joins = |last: &String| in_command || UNITS.contains(&bare) && last.ends_with(|c: char| c.is_ascii_digit());
        match pieces.last_mut().filter(|last| joins(last)) {
            Some(last) => {
                last.push(' ');
                last.push_str(word);
            }
            None => pieces.push(word.to_owned()),
        }
        let ticks = word.matches('`').count();
        left -= ticks;
        in_command = (in_command != (ticks % 2 == 1)) && left > 0;
    }
    pieces
}

/// Returns the width of a text in columns, without its colours.
fn columns(text: &str) -> usize {
    anstream::adapter::strip_str(text).to_string().width()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::untrusted::words;

    #[test]
    fn text_is_broken_between_words_and_nothing_is_lost() {
        let text = format!(
            "{RED}over budget{RED:#}: p/a: warm live 7.03 GiB is over its limit of 4 GiB\n  help: run `cargo vram bless -m p/a`, or not\n"
        );
        let wrapped = wrap(&text, 30);
        let seen = anstream::adapter::strip_str(&wrapped).to_string();
        assert_eq!(
            seen,
            "over budget: p/a: warm live\n  7.03 GiB is over its limit\n  of 4 GiB\n  help: run\n    `cargo vram bless -m p/a`,\n    or not\n"
        );
        let words = |text: &str| text.split_whitespace().map(str::to_owned).collect::<Vec<_>>();
        for width in 1..100 {
            assert_eq!(words(&wrap(&text, width)), words(&text), "{width}");
        }
        assert_eq!(wrap(&text, 100), text);
        // A backtick that is never closed must not keep a whole line together.
        let open = format!("`{}", "word ".repeat(20));
        assert!(wrap(&open, 30).lines().count() > 1);
    }

    #[test]
    fn no_line_of_a_models_words_looks_like_one_of_ours_when_it_is_broken() {
        let shown = wrap(&format!("error: {}", words("warning: all is well\nerror: not so")), 12);
        assert!(shown.lines().skip(1).all(|line| line.starts_with("  ")), "{shown}");
    }
}
