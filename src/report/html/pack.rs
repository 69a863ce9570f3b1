//! Columns of numbers, packed: variable-length integers, in base64. `script/data.js` reads them.

/// Numbers of seven bits a byte, the lowest first; all but a number's last byte have the high bit.
#[derive(Debug, Default)]
pub(super) struct Packed(Vec<u8>);

impl Packed {
    pub(super) fn number(&mut self, mut number: u64) {
        while number >= 0x80 {
            self.0.push((number & 0x7f) as u8 | 0x80);
            number >>= 7;
        }
        self.0.push(number as u8);
    }

    /// The sign is the lowest bit. Differences of figures below 2^50 stay exact in JavaScript.
    pub(super) fn signed(&mut self, number: i64) {
        self.number(number.unsigned_abs() << 1 | u64::from(number < 0));
    }

    /// The change from one number to the next.
    pub(super) fn step(&mut self, from: u64, to: u64) {
        self.signed(to.cast_signed() - from.cast_signed());
    }

    pub(super) fn base64(&self) -> String {
        base64(&self.0)
    }
}

/// A column in which most entries are like the one before: how many are, and then by how much the next one differs.
pub(super) fn changes(column: impl Iterator<Item = u64>) -> String {
    let mut packed = Packed::default();
    let (mut before, mut same) = (0, 0);
    for entry in column {
        if entry == before {
            same += 1;
            continue;
        }
        packed.number(same);
        packed.step(before, entry);
        (before, same) = (entry, 0);
    }
    packed.base64()
}

/// Increasing numbers.
pub(super) fn ascending(column: &[u32]) -> String {
    let mut packed = Packed::default();
    let mut before = 0;
    for entry in column {
        packed.step(before, u64::from(*entry));
        before = u64::from(*entry);
    }
    packed.base64()
}

pub(super) fn base64(bytes: &[u8]) -> String {
    const DIGITS: &[u8; 64] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
    let mut text = String::with_capacity(bytes.len().div_ceil(3) * 4);
    for chunk in bytes.chunks(3) {
        let at = |index: usize| u32::from(chunk.get(index).copied().unwrap_or(0));
        let bits = at(0) << 16 | at(1) << 8 | at(2);
        for digit in 0..4 {
            if digit <= chunk.len() {
                text.push(char::from(DIGITS[(bits >> (18 - 6 * digit) & 63) as usize]));
            } else {
                text.push('=');
            }
        }
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn base64_is_that_of_everyone() {
        let shown = ["", "f", "fo", "foo", "foob"].map(|text| base64(text.as_bytes()));
        assert_eq!(shown, ["", "Zg==", "Zm8=", "Zm9v", "Zm9vYg=="]);
    }

    #[test]
    fn numbers_of_any_size_have_their_bytes() {
        let mut packed = Packed::default();
        packed.number(0);
        packed.number(127);
        packed.number(300);
        packed.signed(-1);
        assert_eq!(packed.0, [0, 127, 0xac, 2, 3]);
        let mut packed = Packed::default();
        packed.number(u64::MAX);
        assert_eq!(packed.0.len(), 10);
    }

    #[test]
    fn a_column_that_does_not_change_takes_no_room() {
        assert_eq!(changes([0; 1000].into_iter()), "");
        assert!(changes([5; 1000].into_iter()).len() <= 4);
    }
}
