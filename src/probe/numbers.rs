//! A cheap hash for numbers that this process assigned itself. The standard library's hash also resists numbers that an
//! attacker chooses. That makes it slow if users build this crate unoptimized.

use std::hash::{BuildHasherDefault, Hasher};

/// The multiplier of FxHash: an odd number whose bits are spread.
pub(super) const SPREAD: u64 = 0x517c_c1b7_2722_0a95;

/// The hasher for maps and sets of such numbers.
pub(super) type Numbers = BuildHasherDefault<NumberHasher>;

#[derive(Default)]
pub(super) struct NumberHasher(u64);

impl Hasher for NumberHasher {
    fn write(&mut self, bytes: &[u8]) {
        for byte in bytes {
            self.write_u64(u64::from(*byte));
        }
    }

    fn write_u64(&mut self, number: u64) {
        self.0 = (self.0.rotate_left(5) ^ number).wrapping_mul(SPREAD);
    }

    fn finish(&self) -> u64 {
        self.0
    }
}
