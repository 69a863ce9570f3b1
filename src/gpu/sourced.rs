//! [`Sourced`]: a value with its source.

use std::fmt;

use serde::Deserialize;

use crate::bytes::Bytes;
use crate::report::{Obtained, ProcessOverhead};

/// The origin of a value: how it is known, and its source.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Provenance {
    /// How the value is known.
    pub obtained: Obtained,
    /// The log, record or document with the value; for an assumption, its reason.
    pub source: String,
}

impl Provenance {
    /// The provenance of a value that was read from a GPU; `source` is the log or record.
    pub fn from_measurement(source: impl Into<String>) -> Self {
        Self {
            obtained: Obtained::Measured,
            source: source.into(),
        }
    }

    /// The provenance of a value that the vendor, a reference or the user states.
    pub fn from_document(source: impl Into<String>) -> Self {
        Self {
            obtained: Obtained::Documented,
            source: source.into(),
        }
    }

    /// The provenance of a value that was found nowhere; `source` says how it was derived.
    pub fn from_assumption(source: impl Into<String>) -> Self {
        Self {
            obtained: Obtained::Assumed,
            source: source.into(),
        }
    }

    /// Whether the value was neither read from a GPU of this type nor stated by anybody.
    #[must_use]
    pub const fn is_assumed(&self) -> bool {
        matches!(self.obtained, Obtained::Assumed)
    }
}

impl fmt::Display for Provenance {
    /// Writes `measured: deviceQuery output, …`.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}", self.obtained, self.source)
    }
}

/// A value with its [`Provenance`].
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
#[serde(
    try_from = "WrittenValue<T>",
    bound(deserialize = "T: Deserialize<'de> + PartialOrd")
)]
pub struct Sourced<T> {
    /// The value.
    pub value: T,
    /// The origin of the value.
    pub provenance: Provenance,
    /// The address of the publication, if known.
    pub link: Option<String>,
    /// The lowest and the highest published value, if there are several.
    pub readings: Option<(T, T)>,
}

impl<T> Sourced<T> {
    /// A value with a single reading and without a link.
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
    /// The value and its provenance in the form of a report.
    #[must_use]
    pub fn outside(&self) -> ProcessOverhead {
        ProcessOverhead {
            bytes: self.value,
            obtained: self.provenance.obtained,
            source: self.provenance.source.clone().into(),
        }
    }
}

/// A value as it is written in the data file: `{ bytes = 1, measured = "…" }`.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct WrittenValue<T> {
    #[serde(alias = "bytes")]
    value: T,
    measured: Option<String>,
    documented: Option<String>,
    assumed: Option<String>,
    link: Option<String>,
    readings: Option<(T, T)>,
}

impl<T: PartialOrd> TryFrom<WrittenValue<T>> for Sourced<T> {
    type Error = &'static str;

    fn try_from(written: WrittenValue<T>) -> Result<Self, Self::Error> {
        let provenance = match (written.measured, written.documented, written.assumed) {
            (Some(text), None, None) => Provenance::from_measurement(text),
            (None, Some(text), None) => Provenance::from_document(text),
            (None, None, Some(text)) => Provenance::from_assumption(text),
            _ => return Err("expected exactly one of `measured`, `documented` and `assumed`"),
        };
        if provenance.source.trim().is_empty() {
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
