//! Finds out block by block which tensors come and go.
//!
//! Burn 0.22 runs many blocks of operations between two looks at its tensors, and reports which tensors each block
//! makes and frees. So each look is split: what is known about a block takes effect where the block ends.

use std::collections::{HashMap, HashSet};

use super::trace::Happened;
use crate::protocol::HeldTensor;

/// A block of operations: the tensors it makes and frees, and what happened in it.
struct Block {
    made: Vec<u64>,
    freed: Vec<u64>,
    events: Vec<Happened>,
}

/// Splits every look by block. `logical` has the bytes of each tensor's elements.
pub(super) fn by_block(happened: Vec<Happened>, logical: &HashMap<u64, u64>) -> Vec<Happened> {
    let mut told = BlockReader {
        logical,
        held: HashMap::new(),
        all: Vec::with_capacity(happened.len()),
    };
    let mut blocks: Vec<Block> = Vec::new();
    // See docs/design/burn-0_22-explanations.md.
    for event in happened {
        match event {
            Happened::Ran { made, freed } => blocks.push(Block {
                made,
                freed,
                events: Vec::new(),
            }),
            Happened::Look {
                steps,
                after,
                came,
                gone,
            } => told.look(std::mem::take(&mut blocks), (steps, after), came, gone),
            // By the protocol, everything up to the next `Ran` belongs to the block.
            event => match blocks.last_mut() {
                Some(block) => block.events.push(event),
                None => told.all.push(event),
            },
        }
    }
    // A run that died has blocks after its last look.
    for block in blocks {
        told.begin(&block);
        told.all.extend(block.events);
    }
    told.all
}

struct BlockReader<'a> {
    logical: &'a HashMap<u64, u64>,
    /// The piece of memory of each tensor that has one.
    held: HashMap<u64, u64>,
    all: Vec<Happened>,
}

impl BlockReader<'_> {
    fn begin(&mut self, block: &Block) {
        self.all.push(Happened::Ran {
            made: block.made.clone(),
            freed: block.freed.clone(),
        });
    }

    fn look(&mut self, mut blocks: Vec<Block>, when: (u32, u64), came: Vec<HeldTensor>, gone: Vec<u64>) {
        let pieces: HashMap<u64, u64> = came.iter().map(|held| (held.tensor, held.memory)).collect();
        told_late(&mut blocks, &pieces);
        let mut is_told = HashSet::new();
        for block in blocks {
            self.begin(&block);
            let held = self.made_in(&block, &pieces);
            // Fused tensors are freed, too, but never had memory.
            let freed: Vec<u64> = block
                .freed
                .iter()
                .copied()
                .filter(|id| self.held.contains_key(id))
                .collect();
            self.all.extend(block.events);
            is_told.extend(held.iter().map(|held| held.tensor).chain(freed.iter().copied()));
            self.tell(when, held, freed);
        }
        // What a block reported must not come or go again with the look. The rest takes effect at the look.
        let came = came
            .into_iter()
            .filter(|held| !is_told.contains(&held.tensor))
            .collect();
        let gone = gone.into_iter().filter(|id| !is_told.contains(id)).collect();
        self.tell(when, came, gone);
    }

    fn tell(&mut self, (steps, after): (u32, u64), came: Vec<HeldTensor>, gone: Vec<u64>) {
        self.held.extend(came.iter().map(|held| (held.tensor, held.memory)));
        for id in &gone {
            self.held.remove(id);
        }
        self.all.push(Happened::Look {
            steps,
            after,
            came,
            gone,
        });
    }

    /// Returns the tensors that a block makes, with their pieces of memory.
    ///
    /// A tensor that is gone by the next look gets the first piece of the block that no other tensor has and that its
    /// elements fill. If there is none, it gets the piece of a tensor of the same size that the block frees: it is
    /// written over that tensor, or is a view of it. A tensor that the block itself also frees has no memory, because
    /// it is fused.
    fn made_in(&self, block: &Block, pieces: &HashMap<u64, u64>) -> Vec<HeldTensor> {
        let freed: HashSet<u64> = block.freed.iter().copied().collect();
        let bytes = |id: &u64| self.logical.get(id).copied();
        let known: HashSet<u64> = block.made.iter().filter_map(|id| pieces.get(id).copied()).collect();
        // Pieces of tensors that still exist at the look are known, and must not be given to another tensor.
        let mut free: Vec<(u64, u64)> = block.events.iter().filter_map(allocated).collect();
        free.retain(|(piece, _)| !known.contains(piece));
        let mut to_inherit: Vec<u64> = block.freed.clone();
        let mut held = Vec::new();
        for tensor in block.made.iter().filter(|id| !freed.contains(*id)) {
            let memory = pieces.get(tensor).copied().or_else(|| {
                let logical = bytes(tensor)?;
                // Padding never doubles a row, as in `MemoryHistory::meanwhile`. Below 1024, small tensors
                // fit a unit of 512 bytes.
                let fits = |(_, bytes): &(u64, u64)| (logical..(logical * 2).max(1024)).contains(bytes);
                if let Some(at) = free.iter().position(fits) {
                    return Some(free.remove(at).0);
                }
                // `remove` below: each freed tensor can pass its memory on only once.
                let is_alike = |id: &u64| bytes(id) == Some(logical) && self.held.contains_key(id);
                let at = to_inherit.iter().position(is_alike)?;
                self.held.get(&to_inherit.remove(at)).copied()
            });
            held.extend(memory.map(|memory| HeldTensor {
                tensor: *tensor,
                memory,
            }));
        }
        held
    }
}

/// Moves pieces that were only reported by the look: each existed from the beginning of the block that made its tensor.
fn told_late(blocks: &mut [Block], pieces: &HashMap<u64, u64>) {
    let Some(last) = blocks.last_mut() else { return };
    let is_sample = |event: &Happened| matches!(event, Happened::Sample { .. });
    // No sample follows these pieces in the window, so any of its blocks may have asked for them.
    let mut seen = last.events.iter().rposition(is_sample).map_or(0, |at| at + 1);
    let late: Vec<Happened> = last.events.split_off(seen);
    let maker = |piece: u64, blocks: &[Block]| {
        let is_of = |block: &Block| block.made.iter().any(|id| pieces.get(id) == Some(&piece));
        blocks.iter().position(is_of)
    };
    // Each piece is put at the front of its block, so going backwards keeps their order.
    for event in late.into_iter().rev() {
        let of = allocated(&event).and_then(|(piece, _)| maker(piece, blocks));
        match of {
            Some(block) => {
                // The insertion moved the place at which pieces of nobody are put.
                seen += usize::from(block + 1 == blocks.len());
                blocks[block].events.insert(0, event);
            }
            None => {
                // Nothing shows which block asked for a piece of nobody, so it comes after what was seen.
                if let Some(last) = blocks.last_mut() {
                    last.events.insert(seen.min(last.events.len()), event);
                }
            }
        }
    }
}

fn allocated(event: &Happened) -> Option<(u64, u64)> {
    match event {
        Happened::Allocated { memory, bytes } => Some((*memory, *bytes)),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ran(made: &[u64], freed: &[u64]) -> Happened {
        Happened::Ran {
            made: made.to_vec(),
            freed: freed.to_vec(),
        }
    }

    fn piece(memory: u64, bytes: u64) -> Happened {
        Happened::Allocated { memory, bytes }
    }

    fn sample(live: u64) -> Happened {
        Happened::Sample {
            time: 0,
            live,
            kernel: None,
        }
    }

    fn look(came: &[(u64, u64)], gone: &[u64]) -> Happened {
        let held = |(tensor, memory): &(u64, u64)| HeldTensor {
            tensor: *tensor,
            memory: *memory,
        };
        Happened::Look {
            steps: 0,
            after: 9,
            came: came.iter().map(held).collect(),
            gone: gone.to_vec(),
        }
    }

    /// The tensors that came, each with its piece, and the tensors that went.
    type Change = (Vec<(u64, u64)>, Vec<u64>);

    /// Returns the changes from look to look.
    fn looks(happened: Vec<Happened>, logical: &[(u64, u64)]) -> Vec<Change> {
        let logical = logical.iter().copied().collect();
        let all = by_block(happened, &logical);
        let looks = all.into_iter().filter_map(|event| match event {
            Happened::Look { came, gone, .. } => {
                Some((came.iter().map(|held| (held.tensor, held.memory)).collect(), gone))
            }
            _ => None,
        });
        looks
            .filter(|(came, gone): &Change| !came.is_empty() || !gone.is_empty())
            .collect()
    }

    #[test]
    fn a_tensor_comes_with_its_block_and_goes_with_the_one_that_frees_it() {
        // Tensor 1 is made and freed between two looks; tensor 2 stays.
        let window = vec![
            ran(&[1], &[]),
            piece(10, 512),
            sample(512),
            ran(&[2], &[]),
            piece(11, 512),
            sample(1024),
            ran(&[], &[1]),
            sample(512),
            look(&[(2, 11)], &[]),
        ];
        let looks = looks(window, &[(1, 400), (2, 400)]);
        assert_eq!(
            looks,
            [(vec![(1, 10)], vec![]), (vec![(2, 11)], vec![]), (vec![], vec![1])]
        );
    }

    #[test]
    fn what_is_written_over_another_tensor_has_its_piece_and_what_is_fused_has_none() {
        let window = vec![
            ran(&[1], &[]),
            piece(10, 512),
            // Tensor 2 is only an intermediate value on the way to tensor 3.
            ran(&[2, 3], &[1, 2]),
            ran(&[4], &[3]),
            look(&[(4, 10)], &[]),
        ];
        let looks = looks(window, &[(1, 400), (2, 400), (3, 400), (4, 400)]);
        assert_eq!(
            looks,
            [
                (vec![(1, 10)], vec![]),
                (vec![(3, 10)], vec![1]),
                (vec![(4, 10)], vec![3])
            ]
        );
    }

    #[test]
    fn a_piece_of_nobodys_that_only_the_look_told_of_comes_after_what_was_seen() {
        let window = vec![
            ran(&[1], &[]),
            sample(512),
            piece(20, 64),
            piece(10, 512),
            look(&[(1, 10)], &[]),
        ];
        let all = by_block(window, &HashMap::from([(1, 512)]));
        let pieces: Vec<Option<u64>> = all
            .iter()
            .map(|event| allocated(event).map(|(piece, _)| piece))
            .collect();
        assert_eq!(pieces[..4], [None, Some(10), None, Some(20)], "{all:?}");
    }

    #[test]
    fn a_piece_that_only_the_look_told_of_was_there_when_its_block_began() {
        let window = vec![ran(&[1], &[]), sample(512), piece(10, 512), look(&[(1, 10)], &[])];
        let all = by_block(window, &HashMap::from([(1, 512)]));
        let order: Vec<bool> = all.iter().map(|event| allocated(event).is_some()).collect();
        assert_eq!(order[..3], [false, true, false], "{all:?}");
    }
}
