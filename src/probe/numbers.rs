//! Hashes of numbers that this process gave out itself. The standard library's resist what an attacker chooses, and cost
//! accordingly where users may build this crate unoptimized.

use std::hash::{BuildHasherDefault, Hasher};

/// What number a number is multiplied with: odd, and its bits are spread. That of FxHash.
pub(super) const SPREAD: u64 = 0x517c_c1b7_2722_0a95;

/// For maps and sets of such numbers.
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
