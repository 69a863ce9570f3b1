//! [`VaryingInput`]: an input that has another size in each step, such as a sequence length. All versions of Burn share
//! it.

use std::collections::BTreeSet;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::sync::{Arc, Mutex, PoisonError};

use super::events;
use crate::protocol::{ROUND_STEPS, SizeOrder, SizeRange};

/// The most different sizes that a range may have, and the most items of its iterator. An iterator without an end must
/// not run forever.
const MOST_SIZES: usize = 1 << 16;
const MOST_ITEMS: usize = 1 << 28;

/// The step that the pass is at, plus 1; 0 before the first step.
static AT: AtomicU64 = AtomicU64::new(0);

/// Records that a step began.
pub(super) fn begin(step: u32) {
    AT.store(u64::from(step) + 1, Relaxed);
}

/// The steps in which the model asked for the size of an input.
#[derive(Debug, Default)]
struct StepsAsked {
    /// The last of them, plus 1; 0 if there is none.
    last: AtomicU64,
    count: AtomicU64,
}

/// The inputs of all ranges.
static RANGES: Mutex<Vec<(String, Arc<StepsAsked>)>> = Mutex::new(Vec::new());

/// Ends the process if a completed step did not ask for the size of a range: it had another size than the report would
/// say.
pub(super) fn finish(steps: u32) {
    for (name, asked) in RANGES.lock().unwrap_or_else(PoisonError::into_inner).iter() {
        let count = asked.count.load(Relaxed);
        if count < u64::from(steps) {
            events::impossible(format!(
                "only {count} of {steps} steps asked for the size of the range `{name}`: call `size` in each step, \
                 where it makes its inputs"
            ));
        }
    }
}

/// An input that has another size in each step. `Run::range` makes it.
#[derive(Debug, Clone)]
pub struct VaryingInput {
    name: String,
    order: SizeOrder,
    /// The sizes of one round, in rising order.
    sizes: Vec<usize>,
    asked: Arc<StepsAsked>,
}

impl VaryingInput {
    /// Creates an input that always has this size.
    pub(super) fn fixed(name: &str, size: usize) -> Self {
        Self {
            name: name.to_owned(),
            order: SizeOrder::Largest,
            sizes: vec![size],
            asked: Arc::default(),
        }
    }

    /// Creates an input from all of its sizes, and returns it with the range for the report. Ends the process if there
    /// are no sizes, or too many.
    pub(super) fn new(name: &str, sizes: impl IntoIterator<Item = usize>, order: SizeOrder) -> (Self, SizeRange) {
        let mut all = BTreeSet::new();
        for (at, size) in sizes.into_iter().enumerate() {
            all.insert(size);
            // An error, because the sizes that are left out could be the largest.
            if all.len() > MOST_SIZES || at >= MOST_ITEMS {
                events::impossible(format!(
                    "the range of `{name}` has more than {MOST_SIZES} sizes: declare fewer, for example with `step_by`"
                ));
            }
        }
        let all: Vec<usize> = all.into_iter().collect();
        let (Some(smallest), Some(largest)) = (all.first(), all.last()) else {
            events::impossible(format!("the range of `{name}` has no sizes"));
        };
        let sizes = chosen(&all);
        let distinct: BTreeSet<&usize> = sizes.iter().collect();
        let range = SizeRange {
            smallest: *smallest as u64,
            largest: *largest as u64,
            declared: all.len() as u64,
            tried: distinct.len() as u64,
        };
        let input = Self {
            name: name.to_owned(),
            order,
            sizes,
            asked: Arc::default(),
        };
        (input, range)
    }

    /// Returns the size in the current step.
    ///
    /// Call it in every step, where the step makes its inputs: in the function given to `batch`, or within a
    /// hand-written step, on the thread that runs the steps. The run fails if a step does not call it, and if no step
    /// has begun.
    #[must_use]
    pub fn size(&self) -> usize {
        let at = AT.load(Relaxed);
        let Some(step) = at.checked_sub(1) else {
            events::impossible(format!(
                "`size` of the range `{}` was called before the first step: call it within a step, or call `largest`",
                self.name
            ));
        };
        if self.asked.last.swap(at, Relaxed) != at {
            self.asked.count.fetch_add(1, Relaxed);
        }
        self.at(step)
    }

    /// Checks at the end of the pass that every step asked for the size.
    pub(super) fn watch(&self) {
        let entry = (self.name.clone(), self.asked.clone());
        RANGES.lock().unwrap_or_else(PoisonError::into_inner).push(entry);
    }

    /// Returns the largest size of the range, for example for the number of position embeddings.
    #[must_use]
    pub fn largest(&self) -> usize {
        self.sizes.last().copied().unwrap_or_default()
    }

    fn at(&self, step: u64) -> usize {
        let count = self.sizes.len() as u64;
        let (round, place) = (step / count, step % count);
        let place = match self.order {
            SizeOrder::Smallest => 0,
            SizeOrder::Largest => count - 1,
            SizeOrder::Rising => place,
            SizeOrder::Falling => count - 1 - place,
            SizeOrder::Shuffled => shuffled(&self.name, round, count)[place as usize],
        };
        self.sizes[place as usize]
    }
}

/// Returns the sizes of one round: the smallest, the largest, and sizes at equal distances between them. If there are
/// fewer sizes than steps, sizes occur several times.
fn chosen(all: &[usize]) -> Vec<usize> {
    let (last, steps) = (all.len() - 1, ROUND_STEPS as usize - 1);
    (0..=steps)
        .map(|place| all[(place * last + steps / 2) / steps])
        .collect()
}

/// Returns the places of a round in a shuffled order. It depends only on the input's name and the round.
fn shuffled(name: &str, round: u64, count: u64) -> Vec<u64> {
    // FNV-1a and a linear congruential generator: the same in every build and with every version of a library.
    let mix = |hash: u64, byte: u8| (hash ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3);
    let mut state = name
        .bytes()
        .fold(0xcbf2_9ce4_8422_2325 ^ round.wrapping_mul(0x9e37_79b9), mix);
    let mut places: Vec<u64> = (0..count).collect();
    for last in (1..places.len()).rev() {
        state = state
            .wrapping_mul(6_364_136_223_846_793_005)
            .wrapping_add(1_442_695_040_888_963_407);
        // The high bits: the low ones of such a generator repeat early.
        places.swap(last, ((state >> 33) % (last as u64 + 1)) as usize);
    }
    places
}

#[cfg(test)]
mod tests {
    use super::*;

    fn round(sizes: impl IntoIterator<Item = usize>, order: SizeOrder) -> Vec<usize> {
        let (input, _) = VaryingInput::new("seq_len", sizes, order);
        (0..u64::from(ROUND_STEPS)).map(|step| input.at(step)).collect()
    }

    #[test]
    fn each_order_has_the_sizes_that_its_name_says() {
        let all = [16, 87, 158, 229, 299, 370, 441, 512];
        assert_eq!(round(16..=512, SizeOrder::Rising), all);
        assert_eq!(
            round(16..=512, SizeOrder::Falling),
            all.into_iter().rev().collect::<Vec<_>>()
        );
        assert_eq!(round(16..=512, SizeOrder::Smallest), [16; 8]);
        assert_eq!(round(16..=512, SizeOrder::Largest), [512; 8]);
        let mut shuffled = round(16..=512, SizeOrder::Shuffled);
        assert_ne!(shuffled, all);
        shuffled.sort_unstable();
        assert_eq!(shuffled, all);
    }

    #[test]
    fn few_sizes_repeat_within_a_round_and_both_ends_are_among_them() {
        assert_eq!(round([64], SizeOrder::Rising), [64; 8]);
        assert_eq!(round([32, 64], SizeOrder::Rising), [32, 32, 32, 32, 64, 64, 64, 64]);
        assert_eq!(
            round((224..=512).rev().step_by(144), SizeOrder::Rising).first(),
            Some(&224)
        );
        let (_, range) = VaryingInput::new("seq_len", 16..=512, SizeOrder::Rising);
        assert_eq!(
            (range.smallest, range.largest, range.declared, range.tried),
            (16, 512, 497, 8)
        );
    }

    #[test]
    fn each_round_and_each_name_is_shuffled_in_another_order() {
        let first = shuffled("height", 0, 8);
        assert_eq!(first, shuffled("height", 0, 8));
        assert_ne!(first, shuffled("height", 1, 8));
        assert_ne!(first, shuffled("width", 0, 8));
    }
}
