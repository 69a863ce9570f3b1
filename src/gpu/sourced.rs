//! A figure together with where it comes from.

use std::fmt;

use serde::Deserialize;

use crate::bytes::Bytes;
use crate::report::{Obtained, Outside};

/// Where a figure comes from.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Provenance {
    /// Read from a card; the text names the log or record.
    Measured(String),
    /// Stated by the vendor, a reference or the user; the text names it.
    Documented(String),
    /// Found nowhere; the text says how it was arrived at.
    Assumed(String),
}

impl Provenance {
    /// Whether nobody has read the figure from such a card or stated it.
    #[must_use]
    pub const fn is_assumed(&self) -> bool {
        matches!(self, Self::Assumed(_))
    }

    /// The source or, for what is assumed, the reason.
    #[must_use]
    pub fn text(&self) -> &str {
        match self {
            Self::Measured(text) | Self::Documented(text) | Self::Assumed(text) => text,
        }
    }
}

impl fmt::Display for Provenance {
    /// `measured: deviceQuery output, …`
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let kind = match self {
            Self::Measured(_) => "measured",
            Self::Documented(_) => "documented",
            Self::Assumed(_) => "assumed",
        };
        write!(f, "{kind}: {}", self.text())
    }
}

/// A figure with its [`Provenance`].
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
#[serde(try_from = "Written<T>", bound(deserialize = "T: Deserialize<'de> + PartialOrd"))]
pub struct Sourced<T> {
    /// The figure.
    pub value: T,
    /// Where it comes from.
    pub provenance: Provenance,
    /// The address of the publication, where it is known.
    pub link: Option<String>,
    /// The lowest and the highest published value, where there are several.
    pub readings: Option<(T, T)>,
}

impl<T> Sourced<T> {
    /// A figure of which there is one reading, without an address.
    #[must_use]
    pub const fn new(value: T, provenance: Provenance) -> Self {
        Self {
            value,
            provenance,
            link: None,
            readings: None,
        }
    }
}

impl Sourced<Bytes> {
    /// As the report has it.
    #[must_use]
    pub fn outside(&self) -> Outside {
        Outside {
            bytes: self.value,
            obtained: match self.provenance {
                Provenance::Measured(_) => Obtained::Measured,
                Provenance::Documented(_) => Obtained::Documented,
                Provenance::Assumed(_) => Obtained::Assumed,
            },
            source: self.provenance.text().to_owned(),
        }
    }
}

/// A figure as the data file has it: `{ bytes = 1, measured = "…" }`.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Written<T> {
    #[serde(alias = "bytes")]
    value: T,
    measured: Option<String>,
    documented: Option<String>,
    assumed: Option<String>,
    link: Option<String>,
    readings: Option<(T, T)>,
}

impl<T: PartialOrd> TryFrom<Written<T>> for Sourced<T> {
    type Error = &'static str;

    fn try_from(written: Written<T>) -> Result<Self, Self::Error> {
        let provenance = match (written.measured, written.documented, written.assumed) {
            (Some(text), None, None) => Provenance::Measured(text),
            (None, Some(text), None) => Provenance::Documented(text),
            (None, None, Some(text)) => Provenance::Assumed(text),
            _ => return Err("expected exactly one of `measured`, `documented` and `assumed`"),
        };
        if provenance.text().trim().is_empty() {
            return Err("expected a source, found an empty text");
        }
        if written
            .readings
            .as_ref()
            .is_some_and(|(lowest, highest)| written.value < *lowest || *highest < written.value)
        {
            return Err("expected a value between the lowest and the highest of its `readings`");
        }
        if written.link.as_ref().is_some_and(|link| !link.starts_with("https://")) {
            return Err("expected a `link` that begins with https://");
        }
        Ok(Self {
            value: written.value,
            provenance,
            link: written.link,
            readings: written.readings,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[derive(Debug, Deserialize)]
    struct File {
        total: Sourced<u64>,
    }

    fn read(text: &str) -> Result<Sourced<u64>, String> {
        toml_edit::de::from_str::<File>(text)
            .map(|file| file.total)
            .map_err(|e| e.to_string())
    }

    #[test]
    fn a_figure_carries_its_source() {
        let figure = read(r#"total = { bytes = 5, measured = "a log" }"#).unwrap();
        assert_eq!(figure.value, 5);
        assert_eq!(figure.provenance.to_string(), "measured: a log");
        assert!(!figure.provenance.is_assumed());
        assert_eq!((figure.link, figure.readings), (None, None));
        let several =
            r#"total = { bytes = 5, measured = "a log", link = "https://example.org/log", readings = [4, 5] }"#;
        let figure = read(several).unwrap();
        assert_eq!(figure.link.as_deref(), Some("https://example.org/log"));
        assert_eq!(figure.readings, Some((4, 5)));
    }

    #[test]
    fn a_figure_without_exactly_one_source_is_refused() {
        for text in [
            "total = { bytes = 5 }",
            r#"total = { bytes = 5, measured = "a", assumed = "b" }"#,
            r#"total = { bytes = 5, assumed = " " }"#,
            r#"total = { bytes = 5, guessed = "b" }"#,
            r#"total = { bytes = 5, measured = "a", readings = [6, 7] }"#,
            r#"total = { bytes = 5, measured = "a", readings = [3, 4] }"#,
            r#"total = { bytes = 5, measured = "a", link = "a page" }"#,
        ] {
            assert!(read(text).is_err(), "{text}");
        }
    }
}
