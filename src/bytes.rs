//! A type for a number of bytes, so that it is not mixed up with other numbers.

use std::fmt;
use std::iter::Sum;
use std::ops::{Add, AddAssign, Sub};

use serde::{Deserialize, Serialize};

/// An exact number of bytes. Texts show it in KiB, MiB and GiB (1024-based).
#[derive(Debug, Default, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[cfg_attr(feature = "cli", derive(schemars::JsonSchema))]
#[serde(transparent)]
pub struct Bytes(pub u64);

impl Bytes {
    /// One KiB: 1024 bytes.
    pub const KIB: Self = Self(1 << 10);
    /// One MiB: 1024 KiB.
    pub const MIB: Self = Self(1 << 20);
    /// One GiB: 1024 MiB.
    pub const GIB: Self = Self(1 << 30);

    /// Returns the difference, or zero if `other` is larger.
    #[must_use]
    pub const fn saturating_sub(self, other: Self) -> Self {
        Self(self.0.saturating_sub(other.0))
    }

    /// Returns the difference as a signed number: negative if `other` is larger.
    #[must_use]
    pub fn less(self, other: Self) -> i64 {
        // A report from elsewhere may have any number. Two numbers of at least 0 differ by at most i64::MAX.
        let signed = |bytes: Self| i64::try_from(bytes.0).unwrap_or(i64::MAX);
        signed(self) - signed(other)
    }
}

impl Bytes {
    /// Returns the number in decimal units, for limits with such units: `512 B`, `300 MB`, `5.88 GB`.
    #[must_use]
    pub fn decimal(self) -> String {
        let units = [(1_000_000_000, "GB"), (1_000_000, "MB"), (1_000, "kB")];
        match units.into_iter().find(|(unit, _)| self.0 >= *unit) {
            Some((unit, name)) => self.in_unit(unit, name, false),
            None => format!("{} B", self.0),
        }
    }

    /// Returns the number in a unit, rounded half up to hundredths. Integer arithmetic is exact, so rounding has no
    /// errors of floating-point numbers.
    fn in_unit(self, unit: u64, name: &str, keeps_decimals: bool) -> String {
        // `u64::MAX` times 100 needs more than 64 bits. The crate `bytesize` goes through floats instead.
        // See docs/design/budget-yaml.md.
        let hundredths = (u128::from(self.0) * 100 + u128::from(unit) / 2) / u128::from(unit);
        let (whole, part) = (hundredths / 100, hundredths % 100);
        match (part, keeps_decimals) {
            // `16 MiB`, not `16.00 MiB`: that is how people write sizes.
            (0, false) => format!("{whole} {name}"),
            _ => format!("{whole}.{part:02} {name}"),
        }
    }
}

impl Add for Bytes {
    type Output = Self;
    fn add(self, other: Self) -> Self {
        Self(self.0 + other.0)
    }
}

impl AddAssign for Bytes {
    fn add_assign(&mut self, other: Self) {
        self.0 += other.0;
    }
}

impl Sub for Bytes {
    type Output = Self;
    fn sub(self, other: Self) -> Self {
        Self(self.0 - other.0)
    }
}

impl Sum for Bytes {
    fn sum<I: Iterator<Item = Self>>(iter: I) -> Self {
        iter.fold(Self(0), Add::add)
    }
}

impl fmt::Display for Bytes {
    /// Writes at most two decimals: `512 B`, `16 MiB`, `5.88 GiB`. With `{:#}`, a KiB, MiB or GiB value always has two.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        // `pad` and not `write!`, so that a width such as `{:>10}` applies to number and unit together.
        let (unit, name) = match *self {
            b if b >= Self::GIB => (Self::GIB, "GiB"),
            b if b >= Self::MIB => (Self::MIB, "MiB"),
            b if b >= Self::KIB => (Self::KIB, "KiB"),
            b => return f.pad(&format!("{} B", b.0)),
        };
        f.pad(&self.in_unit(unit.0, name, f.alternate()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes_read_as_people_write_them() {
        assert_eq!(Bytes(0).to_string(), "0 B");
        assert_eq!(Bytes(512).to_string(), "512 B");
        assert_eq!(Bytes(1024).to_string(), "1 KiB");
        assert_eq!(Bytes(6_313_648_640).to_string(), "5.88 GiB");
        assert_eq!(format!("{:#}", Bytes::GIB), "1.00 GiB");
        assert_eq!(format!("{:>10}", Bytes::MIB), "     1 MiB");
    }

    #[test]
    fn a_size_is_also_told_in_decimal_units() {
        let shown = |bytes| Bytes(bytes).decimal();
        assert_eq!(
            [0, 999, 1000, 300_000_000, 304_087_040].map(shown),
            ["0 B", "999 B", "1 kB", "300 MB", "304.09 MB"].map(str::to_owned)
        );
        assert_eq!(shown(5_880_000_000), "5.88 GB");
    }
}
