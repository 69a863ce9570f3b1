//! Escapes text from outside for Markdown. It stays text, stays in its table cell and mentions nobody.
//!
//! GitHub searches the rendered text for mentions, references, links, emoji and formulas. Backslashes and entities are
//! gone by then and prevent nothing. So a space without width breaks each of them.

use std::fmt::Write;

use unicode_width::UnicodeWidthChar;

use crate::untrusted::clean;

/// A space without width. It ends a word for everything that searches for words.
const GAP: char = '\u{200b}';
/// The most characters that are shown of a name.
const NAME: usize = 100;
/// The most characters that are shown of a sentence.
const WORDS: usize = 400;
/// The most accents on one letter. More would cover the lines above and below.
const ACCENTS: usize = 2;

/// Escapes a name as text.
pub(in crate::render) fn name(text: &str) -> String {
    escape(text, NAME)
}

/// Escapes a sentence as text.
pub(in crate::render) fn words(text: &str) -> String {
    escape(text, WORDS)
}

/// Formats a name as code. It uses `<code>`, because Markdown's backticks cannot contain every text.
pub(in crate::render) fn code(text: &str) -> String {
    format!("<code>{}</code>", name(text))
}

/// Formats a commit with 12 digits. A text that is not a commit is formatted like any name.
pub(in crate::render) fn commit(text: &str) -> String {
    match text.get(..12) {
        // 64 digits: the length of a commit in a repository that uses SHA-256.
        Some(short) if text.len() <= 64 && text.bytes().all(|byte| byte.is_ascii_hexdigit()) => {
            format!("<code>{short}</code>")
        }
        _ => code(text),
    }
}

fn escape(text: &str, most: usize) -> String {
    // Cut first, so that no entity is cut in two. Clean before
    // gaps come in: `clean` would replace them as invisible.
    let mut shown: String = text.chars().take(most).collect();
    if shown.len() < text.len() {
        shown.push('…');
    }
    let shown: Vec<char> = clean(&shown).chars().collect();
    let mut escaped = String::new();
    let mut accents = 0;
    for (at, &c) in shown.iter().enumerate() {
        accents = if c.width() == Some(0) { accents + 1 } else { 0 };
        if accents > ACCENTS {
            continue;
        }
        let c = if c == '\n' { ' ' } else { c };
        match c {
            // At the start of a line, these characters may begin a list, a code block or a heading.
            c if at == 0 && c.is_ascii() && c != '$' && (!c.is_ascii_alphanumeric() || is_numbered(&shown)) => {
                let _ = write!(escaped, "&#{};", u32::from(c));
            }
            // `$` begins and ends a formula. Only another character prevents that.
            '$' => escaped.push('\u{ff04}'),
            // A list of what is harmless within a line. All other ASCII
            // becomes an entity, known to be dangerous or not.
            ' ' | ',' | '.' | '/' | '%' | '(' | ')' | '+' | '=' | '?' | '!' | '-' | ';' | '\'' => escaped.push(c),
            c if c.is_ascii_alphanumeric() || !c.is_ascii() => escaped.push(c),
            c => {
                let _ = write!(escaped, "&#{};", u32::from(c));
            }
        }
        if is_broken_after(&shown, at) {
            escaped.push(GAP);
        }
    }
    escaped
}

/// Whether the text begins like an item of a numbered list.
fn is_numbered(text: &[char]) -> bool {
    let digits = text.iter().take_while(|c| c.is_ascii_digit()).count();
    digits > 0 && matches!(text.get(digits), Some('.' | ')')) && text.get(digits + 1).is_none_or(|c| c.is_whitespace())
}

/// Whether something that GitHub searches for would continue after this character.
fn is_broken_after(text: &[char], at: usize) -> bool {
    let lower = |at: usize| text.get(at).map(char::to_ascii_lowercase);
    let before = |back: usize| at.checked_sub(back).and_then(lower);
    let next = lower(at + 1);
    match lower(at) {
        // @mention, name@host, #123, repository#123, and the full-width forms, which a filter may convert.
        Some('@' | '#' | '\u{ff20}' | '\u{ff03}') => true,
        // https://, mailto:, :emoji:
        Some(':') => next.is_some_and(|next| next != ' '),
        // www.
        Some('w') => before(1) == Some('w') && before(2) == Some('w'),
        // GH-123
        Some('h') => before(1) == Some('g') && next == Some('-'),
        // A commit: GitHub links seven or more hexadecimal digits.
        Some(c) if c.is_ascii_hexdigit() && next.is_some_and(|next| next.is_ascii_hexdigit()) => {
            let run = text[..=at].iter().rev().take_while(|c| c.is_ascii_hexdigit()).count();
            run % 6 == 0
        }
        _ => false,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nothing_that_github_looks_for_is_left() {
        for (text, shown) in [
            ("@octocat", "&#64;\u{200b}octocat"),
            ("a#123", "a&#35;\u{200b}123"),
            ("https://a.b", "https&#58;\u{200b}//a.b"),
            ("www.a.b", "www\u{200b}.a.b"),
            ("GH-12", "GH\u{200b}-12"),
            (":tada:", "&#58;\u{200b}tada&#58;"),
            ("$x$", "＄x＄"),
            ("deadbeef", "deadbe\u{200b}ef"),
            ("a|b`c<!--d", "a&#124;b&#96;c&#60;!--d"),
            ("a\r\nb\u{202e}c", "a\u{fffd} b\u{fffd}c"),
            ("a: b", "a&#58; b"),
            ("- a", "&#45; a"),
            ("1. a", "&#49;. a"),
            ("1.2", "1.2"),
            ("    a", "&#32;   a"),
        ] {
            assert_eq!(escape(text, 100), shown, "{text}");
        }
    }

    #[test]
    fn accents_do_not_pile_up() {
        let piled = format!("a{}b", "\u{301}".repeat(50));
        assert_eq!(escape(&piled, 100), "a\u{301}\u{301}b");
    }

    #[test]
    fn a_text_is_cut_and_says_so() {
        assert_eq!(escape("abcdef", 3), "abc…");
    }
}
