//! Makes foreign text safe to show: names, and the output of models.

use std::borrow::Cow;
use std::fmt;

use schemars::{JsonSchema, Schema, SchemaGenerator};
use serde::{Deserialize, Serialize};

/// Compares a type of texts with strings, and makes it a string like any other in a JSON schema.
macro_rules! like_text {
    ($name:ident) => {
        impl PartialEq<str> for $name {
            fn eq(&self, other: &str) -> bool {
                self.0 == other
            }
        }

        impl PartialEq<&str> for $name {
            fn eq(&self, other: &&str) -> bool {
                self.0 == *other
            }
        }

        impl PartialEq<String> for $name {
            fn eq(&self, other: &String) -> bool {
                self.0 == *other
            }
        }

        impl PartialEq<$name> for String {
            fn eq(&self, other: &$name) -> bool {
                *self == other.0
            }
        }

        impl JsonSchema for $name {
            fn inline_schema() -> bool {
                true
            }

            fn schema_name() -> Cow<'static, str> {
                String::schema_name()
            }

            fn json_schema(generator: &mut SchemaGenerator) -> Schema {
                String::json_schema(generator)
            }
        }
    };
}

/// A name that someone else wrote: a model, a driver, or whoever made a report. `Display` escapes it.
///
/// It does not become a `str` by itself, so the compiler refuses code that shows it as it is.
#[derive(Debug, Default, Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(transparent)]
pub struct Foreign(String);

impl Foreign {
    /// Returns the text as it is, to compare it or to pass it to code that escapes it.
    #[must_use]
    pub fn raw(&self) -> &str {
        &self.0
    }

    /// Whether there is no text.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Returns the text as a terminal shows it: escaped and cut, with all lines but the first indented.
    pub(crate) fn on_terminal(&self) -> String {
        words(&self.0)
    }

    /// Returns the text as it is, for code that escapes it.
    #[must_use]
    pub fn into_raw(self) -> String {
        self.0
    }
}

impl fmt::Display for Foreign {
    /// Writes the text on one line, escaped and cut after 600 characters. Honors a width.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(&clean(&cut(&self.0, SHOWN)).replace('\n', " "))
    }
}

impl From<String> for Foreign {
    fn from(text: String) -> Self {
        Self(text)
    }
}

impl From<&str> for Foreign {
    fn from(text: &str) -> Self {
        Self(text.to_owned())
    }
}

like_text!(Foreign);

/// A name that is harmless wherever it is shown: of a model, a package, a budget or a GPU. Reading refuses all others.
///
/// It has 1 to 200 characters, on one line, none of them a control character or invisible, and starts no command of a CI
/// service. Markdown and HTML still need their own escapes.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(try_from = "String")]
pub struct PlainName(String);

/// A text that cannot be a [`PlainName`].
#[derive(Debug, thiserror::Error)]
#[error("`{}` is not a name: a name is one line of 1 to 200 visible characters", named(.0))]
pub struct InvalidName(String);

impl PlainName {
    /// Checks that a text is such a name.
    ///
    /// # Errors
    /// The text is empty, longer than 200 characters, or has a character that is not allowed.
    pub fn parse(text: impl Into<String>) -> Result<Self, InvalidName> {
        let text = text.into();
        match !text.is_empty() && named(&text) == text {
            true => Ok(Self(text)),
            false => Err(InvalidName(text)),
        }
    }

    /// Makes a name of any text: replaces what is not allowed, and cuts it.
    pub(crate) fn escaped(text: &str) -> Self {
        // Cut again, because escaping can add a character, and the cut itself adds one.
        let name: String = named(text).chars().take(NAME).collect();
        match name.trim_end() {
            "" => Self('\u{fffd}'.to_string()),
            name => Self(name.to_owned()),
        }
    }

    /// Returns the name.
    #[must_use]
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl std::ops::Deref for PlainName {
    type Target = str;

    fn deref(&self) -> &str {
        &self.0
    }
}

impl fmt::Display for PlainName {
    /// Honors a width.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(&self.0)
    }
}

impl std::borrow::Borrow<str> for PlainName {
    fn borrow(&self) -> &str {
        &self.0
    }
}

impl AsRef<std::path::Path> for PlainName {
    fn as_ref(&self) -> &std::path::Path {
        self.0.as_ref()
    }
}

impl TryFrom<String> for PlainName {
    type Error = InvalidName;

    fn try_from(text: String) -> Result<Self, InvalidName> {
        Self::parse(text)
    }
}

#[cfg(test)]
impl From<&str> for PlainName {
    fn from(text: &str) -> Self {
        Self::parse(text).unwrap()
    }
}

like_text!(PlainName);

/// The number of characters of a model's output that are shown. The JSON report has all of it.
const SHOWN: usize = 600;
/// The number of characters of a name that are shown: of a GPU, a process, an input or a file.
const NAME: usize = 200;

/// Replaces characters that could control a terminal or change the direction of text, and breaks up what a CI service
/// would take for a command.
pub(crate) fn clean(text: &str) -> String {
    let harmless = |c: char| match c {
        '\n' => c,
        '\t' => ' ',
        // Replaced, not removed: a reader must see that something was there.
        c if c.is_control() || is_unseen(c) => '\u{fffd}',
        c => c,
    };
    let shown: String = text.trim_end().chars().map(harmless).collect();
    without_commands(&shown)
}

/// Breaks up workflow commands: GitHub looks for `::` at the start of a line, after blanks, and for `##[` anywhere.
pub(crate) fn without_commands(text: &str) -> String {
    let text = text.replace("##[", "## [");
    let starts_command = |line: &&str| {
        let line = line.trim_start();
        // `:::` starts no command. The compiler writes it before the path of another file.
        line.starts_with("::") && !line.starts_with(":::")
    };
    if !text.lines().any(|line| starts_command(&line)) {
        return text;
    }
    let lines = text.split('\n').map(|line| match starts_command(&line) {
        true => line.replacen("::", ": :", 1),
        false => line.to_owned(),
    });
    lines.collect::<Vec<_>>().join("\n")
}

/// Replaces the same characters as [`clean`] in a source text, of which a message shows lines. The text keeps its
/// length in bytes, so that places in it stay right.
pub(crate) fn clean_source(text: &str) -> String {
    let mut shown = String::with_capacity(text.len());
    let mut left = text.chars().peekable();
    while let Some(c) = left.next() {
        match c {
            '\n' | '\t' => shown.push(c),
            '\r' if left.peek() == Some(&'\n') => shown.push(c),
            c if c.is_control() || is_unseen(c) => shown.extend(std::iter::repeat_n('?', c.len_utf8())),
            c => shown.push(c),
        }
    }
    shown.replace("##[", "##?")
}

/// Whether a character is invisible, or changes how others are shown, such as their direction.
///
/// These are the characters with Unicode's property `Default_Ignorable_Code_Point`
/// (`DerivedCoreProperties.txt`), line and paragraph separators, annotations, and the noncharacters, which XML forbids.
const fn is_unseen(c: char) -> bool {
    let is_noncharacter = matches!(c, '\u{fdd0}'..='\u{fdef}') || c as u32 & 0xfffe == 0xfffe;
    is_noncharacter
        || matches!(
            c,
            '\u{ad}'
                | '\u{34f}'
                | '\u{61c}'
                | '\u{115f}'..='\u{1160}'
                | '\u{17b4}'..='\u{17b5}'
                | '\u{180b}'..='\u{180f}'
                | '\u{200b}'..='\u{200f}'
                | '\u{2028}'..='\u{202e}'
                | '\u{2060}'..='\u{206f}'
                | '\u{3164}'
                | '\u{fe00}'..='\u{fe0f}'
                | '\u{feff}'
                | '\u{ffa0}'
                | '\u{fff0}'..='\u{fffb}'
                | '\u{1bca0}'..='\u{1bca3}'
                | '\u{1d173}'..='\u{1d17a}'
                | '\u{e0000}'..='\u{e0fff}'
        )
}

/// Replaces the control characters of a document for programs, except for colors.
///
/// A document escapes foreign text by its own rules. This is a second check.
pub(crate) fn without_controls(text: &str) -> Cow<'_, str> {
    without(text, |_| false)
}

/// Makes a text safe to print for people: replaces what [`clean`] replaces, except for colors, and breaks up what a CI
/// service would take for a command.
///
/// This is a second check, in case a caller did not escape foreign text.
pub(crate) fn printable(text: &str) -> String {
    let shown = without(text, is_unseen);
    // A pipe gets no colors, so a color must not hide the start of a command.
    let plain = anstream::adapter::strip_str(&shown).to_string();
    match without_commands(&plain) {
        safe if safe != plain => safe,
        _ => shown.into_owned(),
    }
}

/// Replaces control characters, except for colors, and others.
fn without(text: &str, is_other: impl Fn(char) -> bool) -> Cow<'_, str> {
    let is_harmful = |c: char| (c.is_control() && !matches!(c, '\n' | '\t')) || is_other(c);
    if !text.contains(is_harmful) {
        return Cow::Borrowed(text);
    }
    let (mut shown, mut rest) = (String::with_capacity(text.len()), text);
    while let Some(at) = rest.find(is_harmful) {
        let (harmless, found) = rest.split_at(at);
        let (replaced, length) = match color(found) {
            Some(length) => (&found[..length], length),
            None => ("\u{fffd}", found.chars().next().map_or(0, char::len_utf8)),
        };
        shown.push_str(harmless);
        shown.push_str(replaced);
        rest = &found[length..];
    }
    shown.push_str(rest);
    Cow::Owned(shown)
}

/// Returns the length of the sequence at the start of a text that sets a color or a style: `ESC [ 1 ; 31 m`.
fn color(text: &str) -> Option<usize> {
    let parameters = text.strip_prefix("\u{1b}[")?;
    let end = parameters.find(|c: char| !c.is_ascii_digit() && c != ';')?;
    parameters[end..].starts_with('m').then_some(end + 3)
}

/// Makes a foreign name safe to show on one line, and cuts it.
pub(crate) fn named(text: &str) -> String {
    // Cut first, so that a text of any length costs little.
    clean(&cut(text, NAME)).replace('\n', " ")
}

/// Makes a model's output safe to show, and cuts it. Indents all lines but the first, so that none looks like ours.
pub(crate) fn words(text: &str) -> String {
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
    fn no_line_starts_a_command_of_a_ci_service() {
        assert_eq!(
            clean("::error::a\n  ::set-env name=b::c\nd::e\n  ::: f.rs\n##[error]g"),
            ": :error::a\n  : :set-env name=b::c\nd::e\n  ::: f.rs\n## [error]g"
        );
        assert!(!words(HOSTILE).lines().any(|line| line.trim_start().starts_with("::")));
        assert_eq!(named("::error::x"), ": :error::x");
    }

    #[test]
    fn a_source_text_keeps_its_length() {
        let source = "a: \u{1b}[2J\u{202e} ##[error]\n\tb";
        let shown = clean_source(source);
        assert_eq!(shown, "a: ?[2J??? ##?error]\n\tb");
        assert_eq!(shown.len(), source.len());
        assert_eq!(clean_source("a\r\nb\rc"), "a\r\nb?c");
    }

    #[test]
    fn what_is_not_seen_is_shown() {
        let hidden = "a\u{61c}\u{200b}\u{200f}\u{2028}\u{202e}\u{2066}\u{feff}\u{e0041}z";
        assert_eq!(clean(hidden), format!("a{}z", "\u{fffd}".repeat(8)));
    }

    #[test]
    fn printed_text_keeps_its_colors_only() {
        let colors = "\u{1b}[1;31merror\u{1b}[0m: a\n\tb ⚠\n";
        assert_eq!(printable(colors), colors);
        assert_eq!(without_controls(colors), colors);
        assert_eq!(printable("a\n \u{1b}[1m::error::b"), "a\n : :error::b");
        assert_eq!(printable("#\u{1b}[0m#\u{1b}[1m[error]b"), "## [error]b");
        let hostile = "\u{1b}[2J\u{1b}[31\u{9b}1m\u{202e}\r\n::error::\u{7}##[x\u{1b}";
        assert_eq!(
            printable(hostile),
            "\u{fffd}[2J\u{fffd}[31\u{fffd}1m\u{fffd}\u{fffd}\n: :error::\u{fffd}## [x\u{fffd}"
        );
        assert_eq!(
            without_controls(hostile),
            "\u{fffd}[2J\u{fffd}[31\u{fffd}1m\u{202e}\u{fffd}\n::error::\u{fffd}##[x\u{fffd}"
        );
    }

    #[test]
    fn names_with_invisible_characters_are_refused() {
        // One of each range.
        for c in "\u{ad}\u{34f}\u{1160}\u{17b4}\u{180e}\u{200d}\u{3164}\u{fe0f}\u{ffa0}\u{fff8}\u{1bca0}\u{1d17a}\u{e0101}\u{fdd0}\u{1fffe}\u{10ffff}".chars()
        {
            assert!(PlainName::parse(format!("a{c}")).is_err(), "{c:?}");
        }
    }

    #[test]
    fn a_foreign_name_is_shown_escaped_and_kept_as_it_is() {
        let name = Foreign::from(HOSTILE);
        assert_eq!(name.to_string(), named(HOSTILE));
        assert_eq!(name.raw(), HOSTILE);
        let json = serde_json::to_string(&name).unwrap();
        assert_eq!(json, serde_json::to_string(HOSTILE).unwrap());
        assert_eq!(serde_json::from_str::<Foreign>(&json).unwrap(), name);
        assert_eq!(format!("{:>4}", Foreign::from("l4")), "  l4");
    }

    #[test]
    fn a_plain_name_is_refused_unless_it_is_harmless() {
        let long = "x".repeat(NAME + 1);
        for hostile in [
            "",
            HOSTILE,
            "a\nb",
            "a\tb",
            "a ",
            "::error::a",
            "##[error]a",
            "a\u{202e}b",
            "a\u{fffe}",
            &long,
        ] {
            let error = serde_json::from_value::<PlainName>(hostile.into())
                .unwrap_err()
                .to_string();
            assert!(
                error.contains("is not a name") && !error.contains(char::is_control),
                "{error:?}"
            );
        }
        for name in [
            "resnet18",
            "resnet18 with adam",
            "größe",
            "r#type",
            "zoo-0_22",
            "a|b<i>",
            &"x".repeat(NAME),
        ] {
            assert_eq!(PlainName::parse(name).unwrap(), *name);
        }
    }

    proptest::proptest! {
        #[test]
        fn whatever_is_escaped_is_a_plain_name(text in "(\\PC|::|##\\[|[ \n\r\t\u{0}\u{1b}\u{85}\u{202e}\u{ffff}]){0,220}") {
            let name = PlainName::escaped(&text);
            proptest::prop_assert_eq!(PlainName::parse(name.as_str()).unwrap(), name);
        }
    }

    #[test]
    fn a_name_stays_on_its_line() {
        let shown = named(HOSTILE);
        assert!(!shown.chars().any(char::is_control), "{shown:?}");
        assert!(named(&"x".repeat(10_000)).chars().count() <= NAME + 1);
    }
}
