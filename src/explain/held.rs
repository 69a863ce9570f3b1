//! The memory that tensors hold together, although some of them share it.

use std::collections::BTreeMap;

use super::types::TensorLife;
use crate::bytes::Bytes;

/// Knows for each tensor of an explanation which tensor has its memory.
#[derive(Debug)]
pub struct MemoryHolders<'a> {
    tensors: &'a [TensorLife],
    /// The index of the tensor that has the memory, for each tensor.
    holders: Vec<usize>,
}

impl<'a> MemoryHolders<'a> {
    /// Follows each tensor to the one whose memory it shares. Takes each step once, because the tensors may be from a
    /// hostile file with long chains.
    #[must_use]
    pub fn new(tensors: &'a [TensorLife]) -> Self {
        let mut holders: Vec<Option<usize>> = vec![None; tensors.len()];
        for first in 0..tensors.len() {
            let mut path = Vec::new();
            let mut at = first;
            let holder = loop {
                if let Some(known) = holders[at] {
                    break known;
                }
                // A circle of tensors ends here.
                holders[at] = Some(at);
                path.push(at);
                match shared(&tensors[at]) {
                    Some(next) if next < tensors.len() => at = next,
                    _ => break at,
                }
            };
            for passed in path {
                holders[passed] = Some(holder);
            }
        }
        Self {
            tensors,
            holders: holders.into_iter().flatten().collect(),
        }
    }

    /// Returns the memory that these tensors hold together. A tensor that shares the memory of another one holds it, too,
    /// and memory that several of them share counts once.
    #[must_use]
    pub fn held_by(&self, tensors: &[&TensorLife]) -> Bytes {
        let holder = |tensor: &TensorLife| {
            let holder = shared(tensor).and_then(|shared| self.tensors.get(*self.holders.get(shared)?));
            let holder = holder.unwrap_or(tensor);
            (holder.id, holder.bytes)
        };
        let held: BTreeMap<u64, Bytes> = tensors.iter().map(|tensor| holder(tensor)).collect();
        held.into_values().sum()
    }
}

/// Returns the index of the tensor whose memory a tensor shares, if it has none of its own.
fn shared(tensor: &TensorLife) -> Option<usize> {
    tensor
        .shares
        .filter(|_| tensor.bytes == Bytes(0))
        .map(|shared| shared as usize)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::explain::sample;

    /// Returns tensors with these bytes, which share the memory of the tensor with this index.
    fn tensors(given: &[(u64, Option<u32>)]) -> Vec<TensorLife> {
        let some = sample::resnet(1, 0).tensors.remove(0);
        let tensor = |(id, (bytes, shares)): (usize, &(u64, Option<u32>))| TensorLife {
            id: id as u64,
            bytes: Bytes(*bytes),
            shares: *shares,
            ..some.clone()
        };
        given.iter().enumerate().map(tensor).collect()
    }

    fn held(given: &[(u64, Option<u32>)], indices: &[usize]) -> u64 {
        let tensors = tensors(given);
        let wanted: Vec<_> = indices.iter().map(|index| &tensors[*index]).collect();
        MemoryHolders::new(&tensors).held_by(&wanted).0
    }

    #[test]
    fn memory_that_tensors_share_counts_once() {
        let given = [(8, None), (0, Some(0)), (0, Some(1)), (5, None), (3, Some(0))];
        assert_eq!(held(&given, &[2]), 8);
        assert_eq!(held(&given, &[0, 1, 2]), 8);
        assert_eq!(held(&given, &[1, 3]), 13);
        // A tensor with memory of its own holds that.
        assert_eq!(held(&given, &[4, 0]), 11);
    }

    #[test]
    fn circles_and_long_chains_of_a_file_end() {
        assert_eq!(
            held(&[(0, Some(1)), (0, Some(0)), (0, Some(2)), (0, Some(9))], &[0, 1, 2, 3]),
            0
        );
        let mut chain: Vec<_> = (1..100_001).map(|next| (0, Some(next))).collect();
        chain.push((7, None));
        let all: Vec<_> = (0..chain.len()).collect();
        assert_eq!(held(&chain, &all), 7);
    }
}
