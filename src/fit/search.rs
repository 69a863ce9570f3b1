//! Chooses the value of an input to try next: larger values until one does not fit, then values between the two, until
//! they are neighbours.

use std::collections::BTreeMap;
use std::ops::RangeInclusive;

use crate::bytes::Bytes;

/// The result of one value.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum TriedValue {
    /// The model fits and needs this many bytes.
    Fits(Bytes),
    /// The model does not fit. If it ran without a memory limit, it needs this many bytes.
    Full(Option<Bytes>),
    /// The model cannot run with this value, on any GPU.
    Broken,
}

/// The values to search.
#[derive(Debug, Clone)]
pub struct Range {
    /// The smallest and the largest allowed value.
    pub values: RangeInclusive<u64>,
    /// Only positive multiples of this number are tried.
    pub multiple_of: u64,
    /// The value to begin with.
    pub start: u64,
    /// The bytes that the model may need.
    pub room: Bytes,
}

/// The search ends after this many values between the known ends that cannot run.
const BROKEN: usize = 8;

impl Range {
    /// Returns the smallest value to try.
    #[must_use]
    pub fn first(&self) -> u64 {
        self.values.start().div_ceil(self.multiple_of).max(1) * self.multiple_of
    }

    /// Returns the largest value to try.
    #[must_use]
    pub fn last(&self) -> u64 {
        self.values.end() / self.multiple_of * self.multiple_of
    }

    fn clamp(&self, value: u64) -> u64 {
        (value / self.multiple_of * self.multiple_of).clamp(self.first(), self.last())
    }

    /// Returns the values to try next, at most `at_once`; empty if the answer is known.
    #[must_use]
    pub fn next(&self, tried: &BTreeMap<u64, TriedValue>, at_once: usize) -> Vec<u64> {
        if self.first() > self.last() {
            return Vec::new();
        }
        let step = self.multiple_of;
        let fits = tried.iter().rev().find(|(_, of)| matches!(of, TriedValue::Fits(_)));
        let low = fits.map(|(value, _)| *value);
        // Reserved memory sometimes falls, so a smaller value may be full although a larger one fits.
        // See docs/design/fit.md.
        let above = |value: u64| low.is_none_or(|low| value > low);
        let full = tried
            .iter()
            .find(|(value, of)| matches!(of, TriedValue::Full(_)) && above(**value));
        let high = full.map(|(value, _)| *value);
        let foreseen = |wide: u64| {
            let guess = self.guess(tried);
            // The value next to the guess shows on which side of it to continue.
            guess
                .into_iter()
                .flat_map(move |guess| [guess, guess + (wide / 32).max(step)])
        };
        let candidates: Vec<u64> = match (low, high) {
            // Nothing is known except values that cannot run.
            (None, None) => {
                let start = self.clamp(self.start);
                // Two distant values show better how memory grows, and a value that is far too large fails at once.
                (0..11).map(|times| start.saturating_mul(1 << (3 * times))).collect()
            }
            // The guess, or the largest value that fits times 2, 4, 8, …
            (Some(low), None) => {
                let foreseen = foreseen(low).filter(|guess| *guess > low && *guess < low.saturating_mul(64));
                // Memory is reserved in leaps, so values above the guess may fit, too.
                let is_passed = self.guess(tried).is_some_and(|guess| guess <= low);
                let further = is_passed.then_some(low.saturating_add((low / 8).max(step)));
                let doubled = (1..32).map(|times| low.saturating_mul(1 << times));
                foreseen.chain(further).chain(doubled).collect()
            }
            (None, Some(high)) => {
                let halved = (1..64).map(|times| high >> times);
                foreseen(high).filter(|guess| *guess < high).chain(halved).collect()
            }
            (Some(low), Some(high)) => {
                let parts = u64::try_from(at_once).unwrap_or(1) + 1;
                let between = |part: u64| {
                    let width = u128::from(high - low) * u128::from(part) / u128::from(parts);
                    low + u64::try_from(width).unwrap_or(0)
                };
                // Memory is reserved in leaps, so the guess is only near the answer.
                let is_near = high - low <= (low / 8).max(8 * step) || tried.len() % 8 >= 6;
                let foreseen = foreseen(high - low).filter(|guess| !is_near && (low..high).contains(guess));
                let rest = (1..=BROKEN as u64).map(|times| between(1).saturating_sub(times * step));
                foreseen.chain((1..parts).map(between)).chain(rest).collect()
            }
        };
        let lowest = low.map_or_else(|| self.first(), |low| low + step);
        let highest = high.map_or_else(|| self.last(), |high| high.saturating_sub(step));
        if lowest > highest {
            return Vec::new();
        }
        // Each value takes whole passes, so do not try every value of a range that cannot run.
        let broken = tried
            .range(lowest..=highest)
            .filter(|(_, of)| **of == TriedValue::Broken);
        if broken.count() >= BROKEN {
            return Vec::new();
        }
        let mut next = Vec::new();
        // If all guesses were tried, the values next to them are as good.
        let beside = |value: u64| self.clamp(value).clamp(lowest, highest);
        // The neighbours of both known values come last, so the list is empty only if the answer is known.
        let ends = [lowest, highest];
        for value in candidates.into_iter().map(beside).chain(ends) {
            let value = value / step * step;
            if value >= lowest && !tried.contains_key(&value) && !next.contains(&value) {
                next.push(value);
            }
            if next.len() == at_once {
                break;
            }
        }
        next
    }

    /// Guesses the largest value that fits. It assumes linear growth between two known values near the limit.
    fn guess(&self, tried: &BTreeMap<u64, TriedValue>) -> Option<u64> {
        let known: Vec<(u64, u64)> = tried
            .iter()
            .filter_map(|(value, of)| match of {
                TriedValue::Fits(needed) | TriedValue::Full(Some(needed)) => Some((*value, needed.0)),
                TriedValue::Full(None) | TriedValue::Broken => None,
            })
            .collect();
        let room = self.room.0;
        let above = known
            .iter()
            .position(|(_, needed)| *needed > room)
            .unwrap_or(known.len());
        // `near` is the last value that fits, or the first value if none does. `far` is the next value that needs
        // another amount.
        let &(near, at_near) = known.get(above.saturating_sub(1))?;
        let other = known[above.min(known.len())..]
            .iter()
            .chain(known[..above.saturating_sub(1)].iter().rev());
        // Two values within one page need the same, and show nothing about the model.
        let &(far, at_far) = other
            .clone()
            .find(|(value, needed)| *value != near && *needed != at_near)?;
        let ((low, less), (high, more)) = match near < far {
            true => ((near, at_near), (far, at_far)),
            false => ((far, at_far), (near, at_near)),
        };
        // A larger value may need less, and then there is no line to follow.
        let per = u128::from(more.checked_sub(less).filter(|more| *more > 0)?);
        let width = u128::from(high - low);
        let guess = match room.checked_sub(less) {
            Some(left) => u128::from(low) + u128::from(left) * width / per,
            None => u128::from(low).saturating_sub((u128::from(less - room) * width).div_ceil(per)),
        };
        Some(self.clamp(u64::try_from(guess).unwrap_or(u64::MAX)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn range(room: u64) -> Range {
        Range {
            values: 1..=1 << 20,
            multiple_of: 1,
            start: 32,
            room: Bytes(room),
        }
    }

    /// Runs a search. Returns the values of each round, and all results.
    fn search(
        range: &Range,
        at_once: usize,
        of: impl Fn(u64) -> TriedValue,
    ) -> (Vec<Vec<u64>>, BTreeMap<u64, TriedValue>) {
        let (mut rounds, mut tried) = (Vec::new(), BTreeMap::new());
        loop {
            let next = range.next(&tried, at_once);
            if next.is_empty() {
                return (rounds, tried);
            }
            assert!(next.len() <= at_once);
            for value in &next {
                assert!(
                    range.values.contains(value) && value % range.multiple_of == 0,
                    "{value}"
                );
                assert!(tried.insert(*value, of(*value)).is_none(), "{value} twice");
            }
            rounds.push(next);
            assert!(rounds.len() < 100, "{rounds:?}");
        }
    }

    fn largest(tried: &BTreeMap<u64, TriedValue>) -> Option<u64> {
        let fits = tried.iter().rev().find(|(_, of)| matches!(of, TriedValue::Fits(_)));
        fits.map(|(value, _)| *value)
    }

    /// Returns a GPU with this much room. If `tells` is set, the need of values that do not fit is known.
    fn gpu(room: u64, tells: bool, needs: impl Fn(u64) -> u64) -> impl Fn(u64) -> TriedValue {
        move |value| match Bytes(needs(value)) {
            needed if needed.0 <= room => TriedValue::Fits(needed),
            needed => TriedValue::Full(tells.then_some(needed)),
        }
    }

    #[test]
    fn what_grows_evenly_is_found_in_few_rounds() {
        for tells in [true, false] {
            let needs = |value| 500 + 97 * value;
            let (rounds, tried) = search(&range(22_000), 2, gpu(22_000, tells, needs));
            assert_eq!(largest(&tried), Some(221), "{rounds:?}");
            assert!(tried.contains_key(&222));
            assert!(rounds.len() <= 4, "{rounds:?}");
        }
    }

    #[test]
    fn what_is_reserved_in_leaps_is_found_in_few_rounds_too() {
        // A small ResNet on a GPU of 22 GiB: pages that grow with the requested size.
        let needs = |value: u64| 400 + (value * 82).next_multiple_of(1_250);
        let (rounds, tried) = search(&range(22_559), 2, gpu(22_559, true, needs));
        let largest = largest(&tried).unwrap();
        assert!(
            needs(largest) <= 22_559 && needs(largest + 1) > 22_559,
            "{largest} {rounds:?}"
        );
        assert!(rounds.len() <= 6, "{rounds:?}");
    }

    #[test]
    fn every_boundary_is_found_and_its_neighbour_tried() {
        // Growth by pages, as an allocator reserves, and growth that gets faster.
        let pages = |value: u64| (value * 97).next_multiple_of(1000);
        let leaps = |value: u64| value * value / 3 + 10;
        for room in (0..60_000).step_by(711) {
            for at_once in [1, 2, 3] {
                for needs in [&pages as &dyn Fn(u64) -> u64, &leaps] {
                    let (rounds, tried) = search(&range(room), at_once, gpu(room, true, needs));
                    let expected = (1..10_000).rev().find(|value| needs(*value) <= room);
                    assert_eq!(largest(&tried), expected, "{room} {at_once} {rounds:?}");
                    assert!(tried.contains_key(&(expected.unwrap_or(0) + 1)), "{rounds:?}");
                    assert!(rounds.len() <= 24, "{room} {at_once} {rounds:?}");
                }
            }
        }
    }

    #[test]
    fn it_ends_at_the_ends_of_the_range() {
        let of = |values| Range { values, ..range(1_000) };
        let (_, tried) = search(&of(1..=100), 2, |_| TriedValue::Fits(Bytes(1)));
        assert_eq!(largest(&tried), Some(100));
        let (_, tried) = search(&of(8..=100), 2, |_| TriedValue::Full(None));
        assert_eq!((largest(&tried), tried.contains_key(&8)), (None, true));
        // The range has no multiple.
        let none = Range {
            multiple_of: 4,
            ..of(5..=7)
        };
        assert_eq!(none.next(&BTreeMap::new(), 2), Vec::<u64>::new());
    }

    #[test]
    fn only_multiples_are_tried() {
        let range = Range {
            multiple_of: 32,
            ..range(22_000)
        };
        let (_, tried) = search(&range, 2, gpu(22_000, false, |value| 10 * value));
        assert_eq!(largest(&tried), Some(2176));
        assert!(tried.contains_key(&2208));
    }

    #[test]
    fn values_that_cannot_be_run_are_left_out() {
        let fits = gpu(10_000, true, |value| 97 * value);
        let odd = |value: u64| {
            if value % 2 == 1 {
                TriedValue::Broken
            } else {
                fits(value)
            }
        };
        let (rounds, tried) = search(&range(10_000), 2, odd);
        assert_eq!(largest(&tried), Some(102), "{rounds:?}");
        assert!(tried.contains_key(&103) && tried.contains_key(&104), "{rounds:?}");
        let (rounds, tried) = search(&range(10_000), 2, |_| TriedValue::Broken);
        assert_eq!(largest(&tried), None);
        assert!(rounds.len() <= BROKEN, "{rounds:?}");
    }
}
