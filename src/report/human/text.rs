//! Texts that are not ours, made harmless; and the colours.

use anstyle::{AnsiColor, Style as Ansi};

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
