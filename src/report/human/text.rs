//! Texts that are not ours, made harmless; and the colours.

use anstyle::{AnsiColor, Style as Ansi};
use unicode_width::UnicodeWidthStr;

pub(in crate::report) const GREEN: Ansi = AnsiColor::Green.on_default();
pub(in crate::report) const YELLOW: Ansi = AnsiColor::Yellow.on_default();
pub(in crate::report) const RED: Ansi = AnsiColor::Red.on_default();
pub(in crate::report) const BOLD: Ansi = Ansi::new().bold();

/// How much of a model's own words is shown; all of them are in the JSON report.
const SHOWN: usize = 600;
/// How much of a name is shown: of a card, a process, an input, a file.
const NAME: usize = 200;

/// A text that is not ours: nothing in it may steer a terminal, or turn what follows around.
pub(crate) fn clean(text: &str) -> String {
    let harmless = |c: char| match c {
        '\n' => c,
        c if c.is_control() || is_unseen(c) => '\u{fffd}',
        c => c,
    };
    text.trim_end().chars().map(harmless).collect()
}

/// Whether a character takes no room of its own but changes how others are read: their direction, their line, or
/// whether they are there at all.
const fn is_unseen(c: char) -> bool {
    matches!(
        c,
        '\u{61c}'
            | '\u{200b}'..='\u{200f}'
            | '\u{2028}'..='\u{202e}'
            | '\u{2060}'..='\u{206f}'
            | '\u{feff}'
            | '\u{fff9}'..='\u{fffb}'
            | '\u{e0000}'..='\u{e007f}'
    )
}

/// A name that is not ours, on one line whatever it holds.
pub(crate) fn named(text: &str) -> String {
    clean(&cut(text, NAME)).replace('\n', " ")
}

/// A model's own words, cut to a readable length; no line of them looks like one of ours.
pub(in crate::report) fn words(text: &str) -> String {
    clean(&cut(text, SHOWN)).replace('\n', "\n    ")
}

fn cut(text: &str, most: usize) -> String {
    let mut shown: String = text.chars().take(most).collect();
    if shown.len() < text.len() {
        shown.push('…');
    }
    shown
}

/// Units that stay on the line of their number.
const UNITS: [&str; 15] = [
    "B", "KiB", "MiB", "GiB", "TiB", "kB", "KB", "MB", "GB", "TB", "%", "s", "ms", "min", "h",
];
/// How much further the second line of a text begins than its first.
const HANG: usize = 2;

/// Breaks each line that is wider than `width` between words. What follows begins further to the right, so that no part of
/// a model's own words looks like a line of ours. A number stays with its unit, and a command in one piece; what is wider
/// than the terminal by itself goes beyond.
pub(in crate::report) fn wrap(text: &str, width: usize) -> String {
    let mut wrapped = String::new();
    for line in text.lines() {
        let blanks = line.len() - line.trim_start_matches(' ').len();
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

/// Words, with what stays together as one.
fn pieces(line: &str) -> Vec<String> {
    let mut pieces: Vec<String> = Vec::new();
    let mut in_command = false;
    // One that is never closed is no command.
    let mut left = line.matches('`').count();
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

/// Columns that a text takes, its colours left out.
fn columns(text: &str) -> usize {
    anstream::adapter::strip_str(text).to_string().width()
}

#[cfg(test)]
mod tests {
    use super::*;

    const HOSTILE: &str = "\u{1b}[2J\u{1b}]0;x\u{7}\u{9b}31m\u{202e}\n::error::gone\r\n";

    #[test]
    fn a_models_words_cannot_steer_a_terminal_or_pose_as_ours() {
        let shown = words(HOSTILE);
        assert!(
            !shown.chars().any(|c| (c.is_control() && c != '\n') || c == '\u{202e}'),
            "{shown:?}"
        );
        assert!(shown.lines().skip(1).all(|line| line.starts_with("    ")), "{shown:?}");
        assert!(words(&"x".repeat(10_000)).chars().count() <= SHOWN + 1);
    }

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

    #[test]
    fn what_is_not_seen_is_shown() {
        let hidden = "a\u{61c}\u{200b}\u{200f}\u{2028}\u{202e}\u{2066}\u{feff}\u{e0041}z";
        assert_eq!(clean(hidden), format!("a{}z", "\u{fffd}".repeat(8)));
    }

    #[test]
    fn a_name_stays_on_its_line() {
        let shown = named(HOSTILE);
        assert!(!shown.chars().any(char::is_control), "{shown:?}");
        assert!(named(&"x".repeat(10_000)).chars().count() <= NAME + 1);
    }
}
