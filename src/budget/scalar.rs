//! Parses sizes, percentages, durations and numbers as people write them.

use std::fmt;
use std::time::Duration;

use crate::bytes::Bytes;
use crate::names::quoted;

/// The reason why a key does not accept a scalar.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Bad {
    pub(super) code: &'static str,
    pub(super) message: String,
    pub(super) help: String,
}

impl Bad {
    pub(super) fn new(code: &'static str, message: String, help: impl Into<String>) -> Self {
        Self {
            code,
            message,
            help: help.into(),
        }
    }
}

/// A percentage, exact to 0.0001 %.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct Percent {
    parts_per_million: u64,
}

impl Percent {
    /// Makes a percentage from whole percent.
    #[must_use]
    pub const fn from_percent(percent: u64) -> Self {
        Self {
            parts_per_million: percent * 10_000,
        }
    }

    /// Returns this percentage of `bytes`, rounded down to a whole byte.
    #[must_use]
    pub fn of(self, bytes: Bytes) -> Bytes {
        let part = u128::from(bytes.0) * u128::from(self.parts_per_million) / 1_000_000;
        Bytes(u64::try_from(part).unwrap_or(u64::MAX))
    }

    /// Returns the percentage in parts per million: 5 % is 50,000.
    #[must_use]
    pub const fn parts_per_million(self) -> u64 {
        self.parts_per_million
    }
}

impl fmt::Display for Percent {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (whole, part) = (self.parts_per_million / 10_000, self.parts_per_million % 10_000);
        let digits = format!("{part:04}");
        match digits.trim_end_matches('0') {
            "" => write!(f, "{whole}%"),
            digits => write!(f, "{whole}.{digits}%"),
        }
    }
}

/// The largest number of decimals. Further decimals cannot change a byte; they are an error, so that none is dropped
/// silently.
const MAX_DECIMALS: usize = 18;
/// The longest duration. A timeout stops a process that hangs, so a longer one is probably a mistake.
const LONGEST: Duration = Duration::from_secs(7 * 24 * 60 * 60);

const SIZE_UNITS: [(&str, u64); 10] = [
    ("B", 1),
    ("KiB", 1 << 10),
    ("MiB", 1 << 20),
    ("GiB", 1 << 30),
    ("TiB", 1 << 40),
    ("kB", 1_000),
    ("KB", 1_000),
    ("MB", 1_000_000),
    ("GB", 1_000_000_000),
    ("TB", 1_000_000_000_000),
];
const DURATION_UNITS: [(&str, u64); 3] = [("s", 1_000), ("min", 60_000), ("h", 3_600_000)];

/// Parses a size: `900 MiB`, `1.8GiB`, `2 GB`. Drops a fraction of a byte.
pub(super) fn size(text: &str) -> Result<Bytes, Bad> {
    const HELP: &str = "write a number and a unit: `900 MiB`, `1.8 GiB`, `2 GB` (GiB is 1024³ bytes, GB is 1000³)";
    if text.starts_with('-') {
        return Err(Bad::new(
            "budgets::negative-size",
            format!("the size {} is negative", quoted(text)),
            HELP,
        ));
    }
    let invalid = || Bad::new("budgets::bad-size", format!("{} is not a size", quoted(text)), HELP);
    let (number, unit) = split(text).ok_or_else(invalid)?;
    if unit.is_empty() {
        let [mib, gib, bytes] = ["MiB", "GiB", "B"].map(|unit| quoted(&format!("{number} {unit}")));
        let help = format!("add a unit: {mib}, {gib}, or {bytes} for bytes");
        return Err(Bad::new(
            "budgets::size-without-unit",
            format!("the size {} has no unit", quoted(text)),
            help,
        ));
    }
    let Some(&(_, factor)) = SIZE_UNITS.iter().find(|(name, _)| *name == unit) else {
        let near = SIZE_UNITS.iter().find(|(name, _)| {
            name.eq_ignore_ascii_case(unit) || name.strip_suffix('B').is_some_and(|n| n.eq_ignore_ascii_case(unit))
        });
        let help = match near {
            Some((name, _)) => format!("did you mean {}?", quoted(&format!("{number} {name}"))),
            None => HELP.to_owned(),
        };
        return Err(Bad::new(
            "budgets::unknown-unit",
            format!("unknown size unit {}", quoted(unit)),
            help,
        ));
    };
    match scaled(number, factor) {
        Ok(bytes) => Ok(Bytes(bytes)),
        Err(Scaling::NotANumber) => Err(invalid()),
        Err(Scaling::TooLarge) => Err(Bad::new(
            "budgets::size-too-large",
            format!("the size {} is too large (the limit is 2⁶⁴ − 1 bytes)", quoted(text)),
            "check the unit: no GPU has this much memory",
        )),
        Err(Scaling::TooPrecise) => Err(too_precise(text)),
    }
}

/// A size with the number and the unit that the file has.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct WrittenSize {
    /// The text, with one space before the unit: `300 MB`.
    pub(super) text: String,
    /// Whether the unit is a power of 1000 (kB, MB, GB, TB).
    pub(super) is_decimal: bool,
}

/// Returns `text` as a size with one space before the unit. Returns `None` if `text` is not the size `bytes`.
pub(super) fn written_size(text: &str, bytes: Bytes) -> Option<WrittenSize> {
    // The span of a quoted value includes its quotes.
    let text = text.trim_matches(['"', '\'']);
    // A message must never show a text that means another size.
    if size(text) != Ok(bytes) {
        return None;
    }
    let (number, unit) = split(text)?;
    Some(WrittenSize {
        text: format!("{number} {unit}"),
        is_decimal: unit != "B" && !unit.contains('i'),
    })
}

/// Parses a percentage: `5%`, `2.5 %`.
pub(super) fn percent(text: &str) -> Result<Percent, Bad> {
    const HELP: &str = "write a number from 0, with at most four decimals, and `%`: `5%`, `2.5%`";
    let invalid = || {
        Bad::new(
            "budgets::bad-percentage",
            format!("{} is not a percentage", quoted(text)),
            HELP,
        )
    };
    let (number, unit) = split(text).ok_or_else(invalid)?;
    let decimals = number.split_once('.').map_or(0, |(_, decimals)| decimals.len());
    if unit != "%" || decimals > 4 {
        return Err(invalid());
    }
    scaled(number, 10_000)
        .map(|parts_per_million| Percent { parts_per_million })
        .map_err(|_| invalid())
}

/// Parses a duration, rounded down to milliseconds: `90 s`, `10 min`, `1.5 h`.
pub(super) fn duration(text: &str) -> Result<Duration, Bad> {
    const HELP: &str = "write a number and a unit, more than 0 and at most 7 days: `90 s`, `10 min`, `1 h`";
    let invalid = || {
        Bad::new(
            "budgets::bad-duration",
            format!("{} is not a duration", quoted(text)),
            HELP,
        )
    };
    let (number, unit) = split(text).ok_or_else(invalid)?;
    let &(_, factor) = DURATION_UNITS
        .iter()
        .find(|(name, _)| *name == unit)
        .ok_or_else(invalid)?;
    let duration = Duration::from_millis(scaled(number, factor).map_err(|_| invalid())?);
    if duration.is_zero() || duration > LONGEST {
        Err(invalid())
    } else {
        Ok(duration)
    }
}

/// Parses a whole number that has only digits: `32`.
pub(super) fn count(text: &str) -> Result<u64, Bad> {
    // `parse` alone would accept `+32`.
    let digits = !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit());
    match text.parse() {
        Ok(number) if digits => Ok(number),
        _ => Err(Bad::new(
            "budgets::bad-number",
            format!("{} is not a whole number from 0 to 2⁶⁴ − 1", quoted(text)),
            "write only digits, without sign, decimal point or separators: `32`",
        )),
    }
}

/// Parses a compute capability into its major and minor version: `8.9`.
pub(super) fn compute_capability(text: &str) -> Result<(u32, u32), Bad> {
    let number = |part: &str| count(part).ok().and_then(|number| u32::try_from(number).ok());
    text.split_once('.')
        .and_then(|(major, minor)| Some((number(major)?, number(minor)?)))
        .ok_or_else(|| {
            Bad::new(
                "budgets::bad-compute-capability",
                format!("{} is not a compute capability", quoted(text)),
                "write the major and minor version: `8.9`",
            )
        })
}

fn too_precise(text: &str) -> Bad {
    let message = format!("the size {} has more than {MAX_DECIMALS} decimals", quoted(text));
    Bad::new(
        "budgets::bad-size",
        message,
        "round the number: fractions of a byte are dropped",
    )
}

/// Splits a text into its leading number and the rest, without the spaces between them.
fn split(text: &str) -> Option<(&str, &str)> {
    let end = text
        .find(|c: char| !c.is_ascii_digit() && c != '.')
        .unwrap_or(text.len());
    let (number, unit) = text.split_at_checked(end)?;
    number
        .starts_with(|c: char| c.is_ascii_digit())
        .then(|| (number, unit.trim_start_matches(' ')))
}

enum Scaling {
    NotANumber,
    TooLarge,
    TooPrecise,
}

/// Multiplies `number` by `factor` exactly, and rounds down.
fn scaled(number: &str, factor: u64) -> Result<u64, Scaling> {
    let (whole, decimals) = match number.split_once('.') {
        Some((_, "")) => return Err(Scaling::NotANumber),
        Some(parts) => parts,
        None => (number, ""),
    };
    if !decimals.bytes().all(|byte| byte.is_ascii_digit()) {
        return Err(Scaling::NotANumber);
    }
    if decimals.len() > MAX_DECIMALS {
        return Err(Scaling::TooPrecise);
    }
    let whole: u64 = whole.parse().map_err(|_| Scaling::TooLarge)?;
    // At most 18 digits, so the value is below 10^18, and its product with any factor is far below 2^128.
    let part: u128 = decimals
        .bytes()
        .fold(0, |sum, digit| sum * 10 + u128::from(digit - b'0'));
    let ten: u128 = decimals.bytes().fold(1, |ten, _| ten * 10);
    // Integers, because floats (as in the crate `bytesize`) are not exact to the byte. See
    // docs/design/budget-yaml.md.
    let bytes = u128::from(whole) * u128::from(factor) + part * u128::from(factor) / ten;
    u64::try_from(bytes).map_err(|_| Scaling::TooLarge)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes_are_exact_and_rounded_down() {
        assert_eq!(size("900 MiB"), Ok(Bytes(943_718_400)));
        assert_eq!(size("900MiB"), Ok(Bytes(943_718_400)));
        assert_eq!(size("1.8 GiB"), Ok(Bytes(1_932_735_283))); // 1,932,735,283.2
        assert_eq!(size("2 GB"), Ok(Bytes(2_000_000_000)));
        assert_eq!(size("1.5 B"), Ok(Bytes(1)));
        assert_eq!(size("18446744073709551615 B"), Ok(Bytes(u64::MAX)));
        assert_eq!(size("0.000000000000000001 TiB"), Ok(Bytes(0)));
    }

    #[test]
    fn a_size_is_told_as_it_was_written() {
        let written = |text, bytes| written_size(text, Bytes(bytes)).map(|size| (size.text, size.is_decimal));
        let is = |text: &str, is_decimal| Some((text.to_owned(), is_decimal));
        assert_eq!(written("300MB", 300_000_000), is("300 MB", true));
        assert_eq!(written("'300 MB'", 300_000_000), is("300 MB", true));
        assert_eq!(written("1.8 GiB", 1_932_735_283), is("1.8 GiB", false));
        assert_eq!(written("7 B", 7), is("7 B", false));
        // The span of a value may hold another text, such as an alias.
        assert_eq!(written("*large", 7), None);
        assert_eq!(written("8 B", 7), None);
    }

    #[test]
    fn what_is_no_size_says_why() {
        let code = |text| size(text).map_err(|bad| bad.code);
        assert_eq!(code("900"), Err("budgets::size-without-unit"));
        assert_eq!(code("-1 GiB"), Err("budgets::negative-size"));
        assert_eq!(code("18446744073709551616 B"), Err("budgets::size-too-large"));
        assert_eq!(code("99999999999999999999999999 GiB"), Err("budgets::size-too-large"));
        assert_eq!(code("20000000 TiB"), Err("budgets::size-too-large"));
        assert_eq!(code("5 gib"), Err("budgets::unknown-unit"));
        for text in [
            "",
            "GiB",
            ".5 GiB",
            "5. GiB",
            "1.2.3 GiB",
            "1e3 GiB",
            "0.0000000000000000001 GiB",
            "+5 GiB",
            "٣ GiB",
        ] {
            assert!(code(text).is_err(), "{text}");
        }
        assert!(size("5 G").unwrap_err().help == "did you mean `5 GB`?");
    }

    #[test]
    fn percentages_are_exact() {
        assert_eq!(percent("5%").map(Percent::parts_per_million), Ok(50_000));
        assert_eq!(percent("0.0001 %").map(Percent::parts_per_million), Ok(1));
        assert_eq!(percent("2.50%").unwrap().to_string(), "2.5%");
        assert_eq!(percent("200%").unwrap().to_string(), "200%");
        for text in ["5", "-5%", "5 %%", "0.00001%", "%", "99999999999999999999%"] {
            assert!(percent(text).is_err(), "{text}");
        }
    }

    #[test]
    fn durations_have_units_and_an_end() {
        assert_eq!(duration("10 min"), Ok(Duration::from_secs(600)));
        assert_eq!(duration("90 s"), Ok(Duration::from_secs(90)));
        assert_eq!(duration("1.5h"), Ok(Duration::from_secs(5400)));
        for text in ["10", "0 s", "-1 s", "8000 h", "10 minutes", "99999999999999999999 h"] {
            assert!(duration(text).is_err(), "{text}");
        }
    }

    #[test]
    fn numbers_are_digits() {
        assert_eq!(count("32"), Ok(32));
        for text in ["", "+32", "-1", "3.0", "0x20", "1_000", "18446744073709551616"] {
            assert!(count(text).is_err(), "{text}");
        }
        assert_eq!(compute_capability("8.9"), Ok((8, 9)));
        assert!(compute_capability("8").is_err());
    }
}
