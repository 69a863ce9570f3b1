//! Loose pieces: no tensor has them, and no sum has shown yet that they are gone.
//!
//! A long window can leave a million of them, and each sample asks which of them are gone. So the time of a question
//! depends on its answer, not on the number of pieces. The answers equal those of `oracle.rs`, which looks at every
//! piece each time.

use std::collections::{BTreeMap, BTreeSet};

/// The slot of a piece that has none.
const NOWHERE: usize = usize::MAX;

/// The place of a piece in the order in which pieces go.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum FreeOrder {
    /// A tensor had the piece and was freed before this window. These pieces go first, in their own order.
    Before,
    /// A tensor had the piece and was freed in this window. The number is the place among these pieces.
    Freed(usize),
    /// No tensor ever had the piece. These pieces go last.
    Never,
}

/// The loose pieces, by their turn and by their size.
#[derive(Debug)]
pub(super) struct Loose {
    /// The number of pieces in the trace. There are three times as many slots: one for each turn of each piece.
    pieces: usize,
    /// The slot of each piece.
    slots: Vec<usize>,
    /// The piece at each place of [`FreeOrder::Freed`].
    freed: Vec<usize>,
    /// The slots that have a piece.
    taken: BTreeSet<usize>,
    /// The bytes in each slot.
    sums: Sums,
    /// The pieces that tensors had.
    had: SlotsBySize,
    /// The pieces that no tensor had.
    others: SlotsBySize,
}

impl Loose {
    /// Creates the structure for a trace with this many pieces.
    pub(super) fn new(pieces: usize) -> Self {
        Self {
            pieces,
            slots: vec![NOWHERE; pieces],
            freed: Vec::new(),
            taken: BTreeSet::new(),
            sums: Sums::new(3 * pieces),
            had: SlotsBySize::default(),
            others: SlotsBySize::default(),
        }
    }

    /// Returns the bytes of all loose pieces.
    pub(super) const fn bytes(&self) -> u64 {
        self.had.bytes + self.others.bytes
    }

    /// Returns the pieces whose tensors were freed before this window, and their bytes.
    pub(super) fn freed_before(&self) -> (Vec<usize>, u64) {
        let slots = self.taken.range(..self.pieces);
        (
            slots.map(|slot| self.piece(*slot)).collect(),
            self.sums.up_to(self.pieces),
        )
    }

    /// Begins a window. `freed` has the pieces whose tensors are freed in it, in that order.
    pub(super) fn begin(&mut self, freed: Vec<usize>) {
        self.freed = freed;
    }

    /// Ends the window: for the next one, its freed pieces were freed before.
    pub(super) fn end(&mut self, bytes: impl Fn(usize) -> u64) {
        // These slots are needed for the next window's pieces.
        let (from, to) = (self.pieces, 2 * self.pieces);
        let freed: Vec<usize> = self.taken.range(from..to).copied().collect();
        for slot in freed {
            let piece = self.piece(slot);
            self.insert(piece, bytes(piece), FreeOrder::Before);
        }
        self.freed.clear();
    }

    /// Adds a piece, or gives it another turn.
    pub(super) fn insert(&mut self, piece: usize, bytes: u64, turn: FreeOrder) {
        self.remove(piece, bytes);
        // Three ranges of slots, so that the order of the slots is the order in which pieces go.
        let slot = match turn {
            FreeOrder::Before => piece,
            FreeOrder::Freed(place) => self.pieces + place,
            FreeOrder::Never => 2 * self.pieces + piece,
        };
        self.slots[piece] = slot;
        self.taken.insert(slot);
        self.sums.add(slot, bytes);
        self.sizes(slot).insert(slot, bytes);
    }

    /// Removes a piece, if it is loose.
    pub(super) fn remove(&mut self, piece: usize, bytes: u64) {
        let slot = std::mem::replace(&mut self.slots[piece], NOWHERE);
        if slot == NOWHERE {
            return;
        }
        self.taken.remove(&slot);
        self.sums.subtract(slot, bytes);
        self.sizes(slot).remove(slot, bytes);
    }

    fn sizes(&mut self, slot: usize) -> &mut SlotsBySize {
        if slot < 2 * self.pieces {
            &mut self.had
        } else {
            &mut self.others
        }
    }

    fn piece(&self, slot: usize) -> usize {
        match slot {
            slot if slot < self.pieces => slot,
            slot if slot < 2 * self.pieces => self.freed[slot - self.pieces],
            slot => slot - 2 * self.pieces,
        }
    }

    /// Finds the pieces that are gone, if this many bytes (`excess`) are gone. The bytes that no piece accounted for so
    /// far (`unknown`) most likely still exist, so as many more bytes of pieces are gone. `near` is how far a sum may
    /// be off.
    pub(super) fn gone(&self, excess: u64, unknown: u64, near: u64, bytes: impl Fn(usize) -> u64) -> Vec<usize> {
        // A sum that fits to the byte comes first. Only if there is none may it be off by as much as Burn's
        // account is.
        let slots = [1, near]
            .into_iter()
            .flat_map(|near| [(excess + unknown, near), (excess, near)])
            .find_map(|(wanted, near)| self.in_order(wanted, near, &bytes))
            .unwrap_or_else(|| self.first_needed(excess));
        slots.into_iter().map(|slot| self.piece(slot)).collect()
    }

    /// Finds the first few pieces that tensors had, and some of the others, that together have `wanted` bytes. If there
    /// are none, any pieces that do.
    fn in_order(&self, wanted: u64, near: u64, bytes: impl Fn(usize) -> u64) -> Option<Vec<usize>> {
        // Bytes that all others together do not have can only be in pieces that tensors had.
        let too_few = wanted.checked_sub(self.others.bytes.saturating_add(near));
        let (mut end, mut sum) = too_few.map_or((0, 0), |too_few| self.sums.reach(too_few));
        let mut next = self.taken.range(end..).take_while(|slot| **slot < 2 * self.pieces);
        let first = |end: usize| self.taken.range(..end).copied();
        // The search begins at the shortest prefix that is long enough.
        let mut is_long_enough = too_few.is_none();
        loop {
            if is_long_enough {
                let Some(rest) = wanted.checked_sub(sum) else {
                    if sum < wanted + near {
                        return Some(first(end).collect());
                    }
                    break;
                };
                if let Some(more) = nearly(&[&self.others], rest, near) {
                    return Some(first(end).chain(more).collect());
                }
            }
            let Some(slot) = next.next() else { break };
            is_long_enough = true;
            sum += bytes(self.piece(*slot));
            end = slot + 1;
        }
        nearly(&[&self.had, &self.others], wanted, near)
    }

    /// Returns the first pieces in order that together have `excess` bytes, without those that are not needed for it.
    fn first_needed(&self, excess: u64) -> Vec<usize> {
        if self.bytes() < excess {
            return self.taken.iter().copied().collect();
        }
        // The longest prefix that is too small. The piece after it makes the sum large enough.
        let (end, _) = self.sums.reach(excess - 1);
        let last = self.taken.range(end..).next().map_or(end, |last| last + 1);
        let mut spare = self.sums.up_to(last) - excess;
        let mut needed = Vec::new();
        let mut from = 0;
        while from < last {
            // Skips a run of pieces that can be spared. The first piece after them is needed.
            let begun = self.sums.up_to(from);
            let (to, reached) = self.sums.reach(begun + spare);
            spare -= reached - begun;
            let slot = self.taken.range(to..).next().copied();
            needed.extend(slot);
            from = slot.map_or(last, |slot| slot + 1);
        }
        needed
    }
}

/// Finds pieces that together have nearly `wanted` bytes. It takes the largest pieces that fit first, and of one size
/// those that go first. Pieces in the first element of `all` go before those in the second.
fn nearly(all: &[&SlotsBySize], wanted: u64, near: u64) -> Option<Vec<usize>> {
    let of = |size: u64| all.iter().filter_map(move |sizes| sizes.slots.get(&size)).flatten();
    if let Some(one) = of(wanted).next() {
        return Some(vec![*one]);
    }
    if wanted < near {
        return Some(Vec::new());
    }
    if all.iter().map(|sizes| sizes.bytes).sum::<u64>().saturating_add(near) <= wanted {
        return None;
    }
    // Largest first: the best subset would take exponential time.
    let mut left = wanted;
    // The number of pieces that are taken of each size.
    let mut taken: Vec<(u64, usize)> = Vec::new();
    let mut below = u64::MAX;
    loop {
        // A piece that exceeds `left` by `near` or more does not fit.
        let limit = below.min(left.saturating_add(near));
        let size = all
            .iter()
            .filter_map(|sizes| sizes.slots.range(..limit).next_back().map(|(size, _)| *size))
            .max();
        let Some(size) = size else { break };
        below = size;
        let count = all
            .iter()
            .filter_map(|sizes| sizes.slots.get(&size))
            .map(BTreeSet::len)
            .sum();
        let fit = left
            .checked_div(size)
            .map_or(count, |fit| usize::try_from(fit).map_or(count, |fit| fit.min(count)));
        left -= size * fit as u64;
        let more = match fit < count && size - left < near {
            false => 0,
            // If nothing is left, each remaining piece alone is off by less than `near`.
            true if size < near => count - fit,
            true => 1,
        };
        if more > 0 {
            left = 0;
        }
        taken.push((size, fit + more));
    }
    let slots = || taken.iter().flat_map(|(size, count)| of(*size).take(*count).copied());
    (left < near).then(|| slots().collect())
}

/// Slots by the size of their pieces.
#[derive(Debug, Default)]
struct SlotsBySize {
    slots: BTreeMap<u64, BTreeSet<usize>>,
    bytes: u64,
}

impl SlotsBySize {
    fn insert(&mut self, slot: usize, bytes: u64) {
        self.slots.entry(bytes).or_default().insert(slot);
        self.bytes += bytes;
    }

    fn remove(&mut self, slot: usize, bytes: u64) {
        if let Some(same) = self.slots.get_mut(&bytes) {
            same.remove(&slot);
            if same.is_empty() {
                self.slots.remove(&bytes);
            }
        }
        self.bytes -= bytes;
    }
}

/// Sums of the first few of a list of numbers: a Fenwick tree.
#[derive(Debug)]
struct Sums(Vec<u64>);

impl Sums {
    fn new(count: usize) -> Self {
        Self(vec![0; count + 1])
    }

    fn add(&mut self, at: usize, number: u64) {
        let mut node = at + 1;
        while node < self.0.len() {
            self.0[node] += number;
            node += node & node.wrapping_neg();
        }
    }

    fn subtract(&mut self, at: usize, number: u64) {
        let mut node = at + 1;
        while node < self.0.len() {
            self.0[node] -= number;
            node += node & node.wrapping_neg();
        }
    }

    /// Returns the sum of the first `count` numbers.
    fn up_to(&self, count: usize) -> u64 {
        let (mut node, mut sum) = (count, 0);
        while node > 0 {
            sum += self.0[node];
            node -= node & node.wrapping_neg();
        }
        sum
    }

    /// Returns the largest count of first numbers that add up to at most `limit`, and their sum.
    fn reach(&self, limit: u64) -> (usize, u64) {
        let (mut count, mut sum) = (0, 0);
        let mut width = self.0.len().next_power_of_two();
        while width > 0 {
            let more = count + width;
            if more < self.0.len() && sum + self.0[more] <= limit {
                count = more;
                sum += self.0[more];
            }
            width /= 2;
        }
        (count, sum)
    }
}

/// Finds, repeatedly, the first piece of a window whose size is within a range.
pub(super) struct FirstFit {
    /// The sizes in ascending order; pieces of one size are in ascending order.
    sizes: Vec<u64>,
    /// The smallest piece of each range, as a tree. The second half has the leaves.
    least: Vec<(usize, usize)>,
}

impl FirstFit {
    /// Creates the search from pieces, each with its size.
    pub(super) fn new(mut pieces: Vec<(u64, usize)>) -> Self {
        pieces.sort_unstable();
        let leaves = pieces.len().next_power_of_two();
        // `NOWHERE` is larger than any piece, so `min` passes over leaves that are taken.
        let mut least = vec![(NOWHERE, 0); 2 * leaves];
        for (leaf, (_, piece)) in pieces.iter().enumerate() {
            least[leaves + leaf] = (*piece, leaf);
        }
        for node in (1..leaves).rev() {
            least[node] = least[2 * node].min(least[2 * node + 1]);
        }
        Self {
            sizes: pieces.into_iter().map(|(size, _)| size).collect(),
            least,
        }
    }

    /// Takes the first piece with at least `from` and less than `to` bytes.
    pub(super) fn take(&mut self, from: u64, to: u64) -> Option<usize> {
        let leaves = self.least.len() / 2;
        let mut low = leaves + self.sizes.partition_point(|size| *size < from);
        let mut high = leaves + self.sizes.partition_point(|size| *size < to);
        let mut first = (NOWHERE, 0);
        while low < high {
            if low % 2 == 1 {
                first = first.min(self.least[low]);
                low += 1;
            }
            if high % 2 == 1 {
                high -= 1;
                first = first.min(self.least[high]);
            }
            (low, high) = (low / 2, high / 2);
        }
        let (piece, leaf) = first;
        if piece == NOWHERE {
            return None;
        }
        let mut node = leaves + leaf;
        self.least[node] = (NOWHERE, 0);
        while node > 1 {
            node /= 2;
            self.least[node] = self.least[2 * node].min(self.least[2 * node + 1]);
        }
        Some(piece)
    }
}
