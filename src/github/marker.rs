//! The hidden marker that identifies a comment.

use std::fmt;
use std::str::FromStr;

/// The label of a comment, which tells several comments on one pull request apart.
///
/// It has only letters, digits, `.`, `_` and single `-`, so that it cannot end an HTML comment.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Label(String);

/// The longest label in characters.
const LONGEST: usize = 64;

impl FromStr for Label {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let allowed = |character: char| character.is_ascii_alphanumeric() || "._-".contains(character);
        let is_one = (1..=LONGEST).contains(&text.len())
            && text.chars().all(allowed)
            && !text.contains("--")
            && !text.starts_with('-')
            && !text.ends_with('-');
        if !is_one {
            return Err(format!(
                "expected 1 to {LONGEST} letters, digits, `.`, `_` and `-`, without `--` and without `-` at either end"
            ));
        }
        Ok(Self(text.to_owned()))
    }
}

impl fmt::Display for Label {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl Label {
    /// Returns the marker: the first line of the comment.
    #[must_use]
    pub fn marker(&self) -> String {
        format!("<!-- cargo-vram: {self} -->")
    }

    /// Whether the first line of a comment is this marker. A marker further down comes from the report's text.
    #[must_use]
    pub fn is_in(&self, body: &str) -> bool {
        body.lines().next().is_some_and(|line| line.trim_end() == self.marker())
    }

    /// Returns the whole comment: the marker and the body.
    #[must_use]
    pub fn mark(&self, body: &str) -> String {
        format!("{}\n{body}", self.marker())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_label_never_ends_the_comment_it_stands_in() {
        for bad in ["", "a b", "-->", "a--b", "-a", "a-", "a>", "ä", "a\n", &"a".repeat(65)] {
            assert!(bad.parse::<Label>().is_err(), "{bad:?}");
        }
        for good in ["default", "gpu-l4", "a.b_c", "1"] {
            assert!(good.parse::<Label>().is_ok(), "{good:?}");
        }
    }

    #[test]
    fn only_a_marker_on_the_first_line_counts() {
        let label: Label = "l4".parse().unwrap();
        assert!(label.is_in("<!-- cargo-vram: l4 -->\r\nhello"));
        assert!(label.is_in(&label.mark("hello")));
        assert!(!label.is_in("hello\n<!-- cargo-vram: l4 -->"));
        assert!(!label.is_in("<!-- cargo-vram: l40 -->"));
        assert!(!label.is_in(""));
    }
}
