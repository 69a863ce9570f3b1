//! Packed columns of numbers: variable-length integers in base64. `script/data.js` reads them.

/// Numbers with seven bits per byte, the lowest bits first. All bytes of a number except its last have the high bit
/// set.
#[derive(Debug, Default)]
pub(super) struct PackedColumn(Vec<u8>);

impl PackedColumn {
    pub(super) fn number(&mut self, mut number: u64) {
        while number >= 0x80 {
            self.0.push((number & 0x7f) as u8 | 0x80);
            number >>= 7;
        }
        self.0.push(number as u8);
    }

    /// Appends a number with its sign in the lowest bit. Differences of values below 2^50 stay exact in JavaScript.
    pub(super) fn signed(&mut self, number: i64) {
        // The sign is the lowest bit, so JavaScript only divides by two: its bit operations end at 32 bits.
        // The shift loses nothing, because `Explanation::check` refuses sizes of 1 PiB and more.
        self.number(number.unsigned_abs() << 1 | u64::from(number < 0));
    }

    /// Appends the change from one number to the next.
    pub(super) fn step(&mut self, from: u64, to: u64) {
        self.signed(to.cast_signed() - from.cast_signed());
    }

    pub(super) fn base64(&self) -> String {
        base64(&self.0)
    }
}

/// Packs a column in which most entries equal the entry before. For each change it stores how many entries were equal
/// before it, and the difference.
pub(super) fn changes(column: impl Iterator<Item = u64>) -> String {
    let mut packed = PackedColumn::default();
    // `before` starts at 0, so a column of zeros is empty. The last equal
    // entries are not stored either: the reader knows the length of the column.
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

/// Packs increasing numbers: each as the difference from the number before.
pub(super) fn ascending(column: &[u32]) -> String {
    let mut packed = PackedColumn::default();
    let mut before = 0;
    for entry in column {
        // With a sign that is never used, because `data.js` reads all steps with `signed`.
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
        let mut packed = PackedColumn::default();
        packed.number(0);
        packed.number(127);
        packed.number(300);
        packed.signed(-1);
        assert_eq!(packed.0, [0, 127, 0xac, 2, 3]);
        let mut packed = PackedColumn::default();
        packed.number(u64::MAX);
        assert_eq!(packed.0.len(), 10);
    }

    #[test]
    fn a_column_that_does_not_change_takes_no_room() {
        assert_eq!(changes([0; 1000].into_iter()), "");
        assert!(changes([5; 1000].into_iter()).len() <= 4);
    }
}
