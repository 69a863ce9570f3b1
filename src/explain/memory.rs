//! Which piece of memory is there when, and which tensors have it.
//!
//! Burn tells when it hands out a piece, which tensors have one by looks, and in which order fusion makes and frees
//! tensors. When a piece is given back it does not tell. But it tells what all of them add up to, at every sample: so a
//! piece that no tensor has any more is gone as soon as the sum says so.

use std::collections::{HashMap, HashSet};

use super::trace::{At, Happened, Trace};
use crate::protocol::{Held, Phase};

/// How far a sum may be off, at so many live bytes: Burn's account of each piece of its persistent pool is off by less than
/// 512 bytes.
fn near(live: u64) -> u64 {
    (live >> 14).clamp(2 << 10, 64 << 10)
}

/// One look at Burn's allocator.
#[derive(Debug, Clone, Copy)]
pub(super) struct Sample {
    pub(super) time: u64,
    pub(super) live: u64,
    pub(super) kernel: Option<u32>,
    pub(super) at: At,
    /// So many operations were with fusion before it, at least.
    pub(super) after: u64,
}

/// A piece of memory.
#[derive(Debug)]
pub(super) struct Piece {
    /// Its size, rounding included.
    pub(super) bytes: u64,
    /// The first sample that sees it.
    pub(super) born: usize,
    /// The first sample that sees it no more.
    pub(super) died: Option<usize>,
    /// Which tensors have it, from which sample on; never none once there was one.
    pub(super) holders: Vec<(usize, Vec<usize>)>,
    /// How many tensors have it now.
    held: usize,
}

/// A tensor that has memory.
#[derive(Debug)]
pub(super) struct Life {
    /// Burn's number of it.
    pub(super) id: u64,
    /// Its piece.
    pub(super) piece: usize,
    /// The first sample that sees it.
    pub(super) born: usize,
    /// The first sample that sees it no more.
    pub(super) died: Option<usize>,
    /// After how many operations it was seen to be gone.
    pub(super) gone_after: Option<u64>,
    /// After how many steps.
    pub(super) gone_steps: Option<u32>,
    /// Another tensor had the piece before, or has it, too.
    pub(super) shares: Option<usize>,
}

/// Memory over time.
#[derive(Debug, Default)]
pub(super) struct Memory {
    pub(super) samples: Vec<Sample>,
    pub(super) pieces: Vec<Piece>,
    pub(super) tensors: Vec<Life>,
    /// Bytes at each sample that no piece accounts for.
    pub(super) unknown: Vec<u64>,
    /// Bytes at each sample that pieces are more than Burn's account of them.
    pub(super) over: Vec<u64>,
}

/// What is known while reading.
struct State<'a> {
    /// The elements' bytes of every tensor.
    logical: &'a HashMap<u64, u64>,
    /// The newest piece of each number.
    pieces: HashMap<u64, usize>,
    /// Tensors that have memory.
    tensors: HashMap<u64, usize>,
    /// Pieces that are there, or may be: no tensor has them, and no sum said that they are gone.
    loose: Vec<usize>,
    /// Bytes of pieces that tensors have.
    certain: u64,
    /// The first sample of this window, which is the time between two looks.
    window: usize,
    /// The first piece of this window.
    first: usize,
    /// What fusion made and freed in this window.
    ran: Vec<(&'a [u64], &'a [u64])>,
    /// After how many operations the last look was.
    after: u64,
}

impl Memory {
    pub(super) fn of(trace: &Trace) -> Self {
        let mut memory = Self::default();
        let made = trace.operations.iter().flat_map(|operation| &operation.outputs);
        let logical = made.chain(&trace.inner).map(|made| (made.id, made.bytes)).collect();
        let mut state = State {
            logical: &logical,
            pieces: HashMap::new(),
            tensors: HashMap::new(),
            loose: Vec::new(),
            certain: 0,
            window: 0,
            first: 0,
            ran: Vec::new(),
            after: 0,
        };
        let mut at: At = (None, Phase::Context);
        for happened in &trace.happened {
            match happened {
                Happened::Reached(reached) => at = *reached,
                Happened::Sample { time, live, kernel } => memory.samples.push(Sample {
                    time: *time,
                    live: *live,
                    kernel: *kernel,
                    at,
                    after: state.after,
                }),
                Happened::Allocated { memory: number, bytes } => {
                    let piece = memory.pieces.len();
                    memory.pieces.push(Piece {
                        bytes: bytes.next_multiple_of(trace.alignment.max(1)),
                        born: memory.samples.len(),
                        died: None,
                        holders: Vec::new(),
                        held: 0,
                    });
                    state.pieces.insert(*number, piece);
                    state.loose.push(piece);
                }
                Happened::Ran { made, freed } => state.ran.push((made, freed)),
                Happened::Look {
                    after,
                    steps,
                    came,
                    gone,
                } => {
                    memory.look(&mut state, (*after, *steps), came, gone);
                    memory.settle(&mut state);
                    state.after = *after;
                }
            }
        }
        // Nobody looked at the end of a run that died: what was to be freed may be gone.
        let freed: Vec<u64> = state.ran.iter().flat_map(|(_, freed)| freed.iter().copied()).collect();
        let last = (state.after, u32::MAX);
        memory.look(&mut state, last, &[], &freed);
        memory.settle(&mut state);
        memory
    }

    /// Tensors got memory, or gave it back, in the window that ends now.
    fn look(&mut self, state: &mut State<'_>, when: (u64, u32), came: &[Held], gone: &[u64]) {
        let mut changed: Vec<usize> = Vec::new();
        let came_now: HashSet<u64> = came.iter().map(|held| held.tensor).collect();
        for held in came {
            let Some(&piece) = state.pieces.get(&held.memory) else {
                continue;
            };
            let tensor = self.hold(piece, held.tensor);
            state.tensors.insert(held.tensor, tensor);
            changed.push(piece);
        }
        for id in gone {
            let Some(tensor) = state.tensors.remove(id) else {
                continue;
            };
            changed.push(self.release(tensor, when));
        }
        self.meanwhile(state, when, &came_now);
        changed.sort_unstable();
        changed.dedup();
        for piece in changed {
            let is_loose = state.loose.contains(&piece);
            let (held, bytes) = (self.pieces[piece].held > 0, self.pieces[piece].bytes);
            let was_gone = self.pieces[piece].died.is_some();
            if held && (is_loose || was_gone) {
                state.loose.retain(|other| *other != piece);
                state.certain += bytes;
                self.pieces[piece].died = None;
            } else if !held && !is_loose && !was_gone {
                state.loose.push(piece);
                state.certain -= bytes;
            }
        }
    }

    /// A tensor has a piece from now on.
    fn hold(&mut self, piece: usize, id: u64) -> usize {
        let now = self.samples.len();
        let tensor = self.tensors.len();
        let before = self.pieces[piece].holders.last();
        let from = if before.is_some() { now } else { self.pieces[piece].born };
        let shares = before.and_then(|(_, holders)| holders.first().copied());
        let others = before.map(|(_, holders)| holders.clone()).unwrap_or_default();
        let mut holders: Vec<usize> = others
            .into_iter()
            .filter(|other| self.tensors[*other].died.is_none())
            .collect();
        holders.push(tensor);
        self.tensors.push(Life {
            id,
            piece,
            born: from,
            died: None,
            gone_after: None,
            gone_steps: None,
            shares,
        });
        let piece = &mut self.pieces[piece];
        piece.held += 1;
        match piece.holders.last_mut() {
            Some((at, same)) if *at == from => *same = holders,
            _ => piece.holders.push((from, holders)),
        }
        tensor
    }

    /// A tensor has its piece no more.
    fn release(&mut self, tensor: usize, (after, steps): (u64, u32)) -> usize {
        let now = self.samples.len();
        let life = &mut self.tensors[tensor];
        life.died = Some(now);
        life.gone_after = Some(after);
        life.gone_steps = Some(steps);
        self.pieces[life.piece].held -= 1;
        life.piece
    }

    /// Tensors that were made and freed between two looks: each has the first piece of the window that no other tensor has and
    /// that its elements fill.
    fn meanwhile(&mut self, state: &mut State<'_>, when: (u64, u32), came: &HashSet<u64>) {
        let mut free: Vec<usize> = (state.first..self.pieces.len())
            .filter(|piece| self.pieces[*piece].holders.is_empty())
            .collect();
        let made: Vec<u64> = state.ran.iter().flat_map(|(made, _)| made.iter().copied()).collect();
        for id in made {
            if came.contains(&id) || state.tensors.contains_key(&id) {
                continue;
            }
            let Some(&logical) = state.logical.get(&id) else {
                continue;
            };
            let fills = |piece: &usize| {
                let bytes = self.pieces[*piece].bytes;
                // Rows are rounded up to a power of two of bytes at most: never to twice as much.
                bytes >= logical && bytes < (logical * 2).max(1024)
            };
            // Both come in order: the first that fits.
            let Some(place) = free.iter().position(fills) else {
                continue;
            };
            let piece = free.remove(place);
            let tensor = self.hold(piece, id);
            self.release(tensor, when);
        }
    }

    /// Finds out which loose pieces were gone at which sample of the window.
    fn settle(&mut self, state: &mut State<'_>) {
        let now = self.samples.len();
        self.order(state);
        // Pieces that tensors have, and that were born within the window, are not there before.
        let young: Vec<(usize, u64)> = (state.first..self.pieces.len())
            .filter(|piece| self.pieces[*piece].held > 0)
            .map(|piece| (self.pieces[piece].born, self.pieces[piece].bytes))
            .collect();
        for sample in state.window..now {
            let live = self.samples[sample].live;
            let unborn: u64 = young
                .iter()
                .filter(|(born, _)| *born > sample)
                .map(|(_, bytes)| bytes)
                .sum();
            let certain = state.certain - unborn;
            let loose: Vec<usize> = state
                .loose
                .iter()
                .copied()
                .filter(|piece| self.pieces[*piece].born <= sample)
                .collect();
            let sum: u64 = loose.iter().map(|piece| self.pieces[*piece].bytes).sum();
            let excess = (certain + sum).saturating_sub(live);
            let mut left = sum;
            if excess > 0 {
                let gone: HashSet<usize> = self.gone(&loose, excess, near(live)).into_iter().collect();
                for piece in &gone {
                    left -= self.pieces[*piece].bytes;
                    self.pieces[*piece].died = Some(sample);
                }
                state.loose.retain(|piece| !gone.contains(piece));
            }
            self.unknown.push(live.saturating_sub(certain + left));
            self.over.push((certain + left).saturating_sub(live));
        }
        state.window = now;
        state.first = self.pieces.len();
        state.ran.clear();
    }

    /// Sorts the loose pieces: first those that tensors had, in the order in which these are freed, then all others.
    fn order(&self, state: &mut State<'_>) {
        let freed = state.ran.iter().flat_map(|(_, freed)| freed.iter());
        let places: HashMap<u64, usize> = freed.enumerate().map(|(place, id)| (*id, place)).collect();
        state.loose.sort_by_key(|piece| {
            let last = self.pieces[*piece].holders.last();
            let place = last.and_then(|(_, holders)| {
                let places = holders.iter().map(|holder| places.get(&self.tensors[*holder].id));
                places.map(|place| place.copied()).max().flatten()
            });
            // What was freed before this window goes first.
            match (last, place) {
                (Some(_), None) => (0, 0, *piece),
                (Some(_), Some(place)) => (1, place, *piece),
                (None, _) => (2, 0, *piece),
            }
        });
    }

    /// Which of these are gone, where so many bytes are. What no piece accounted for so far is there still, most likely, so
    /// that as much more is gone.
    fn gone(&self, loose: &[usize], excess: u64, near: u64) -> Vec<usize> {
        let unknown = self.unknown.last().copied().unwrap_or(0);
        for near in [1, near] {
            for wanted in [excess + unknown, excess] {
                if let Some(gone) = self.in_order(loose, wanted, near) {
                    return gone;
                }
            }
        }
        let bytes = |piece: usize| self.pieces[piece].bytes;
        let mut gone = Vec::new();
        let mut sum = 0;
        for piece in loose {
            if sum >= excess {
                break;
            }
            sum += bytes(*piece);
            gone.push(*piece);
        }
        gone.retain(|piece| {
            let needed = sum - bytes(*piece) < excess;
            if !needed {
                sum -= bytes(*piece);
            }
            needed
        });
        gone
    }

    /// The first few pieces that tensors had, and some of the others, that are so many bytes together; or whichever are.
    fn in_order(&self, loose: &[usize], wanted: u64, near: u64) -> Option<Vec<usize>> {
        let bytes = |piece: usize| self.pieces[piece].bytes;
        let tensors = loose.partition_point(|piece| !self.pieces[*piece].holders.is_empty());
        let (had, others) = loose.split_at(tensors);
        let mut sum = 0;
        for first in 0..=had.len() {
            if first > 0 {
                sum += bytes(had[first - 1]);
            }
            let Some(rest) = wanted.checked_sub(sum) else {
                if sum < wanted + near {
                    return Some(had[..first].to_vec());
                }
                break;
            };
            if let Some(more) = self.nearly(others, rest, near) {
                return Some(had[..first].iter().copied().chain(more).collect());
            }
        }
        self.nearly(loose, wanted, near)
    }

    /// Pieces that are so many bytes together, or nearly: the largest first that fit.
    fn nearly(&self, pieces: &[usize], wanted: u64, near: u64) -> Option<Vec<usize>> {
        let bytes = |piece: usize| self.pieces[piece].bytes;
        if let Some(one) = pieces.iter().find(|piece| bytes(**piece) == wanted) {
            return Some(vec![*one]);
        }
        if wanted < near {
            return Some(Vec::new());
        }
        let mut sorted = pieces.to_vec();
        sorted.sort_by_key(|piece| std::cmp::Reverse(bytes(*piece)));
        let mut left = wanted;
        let mut taken = Vec::new();
        for piece in sorted {
            if bytes(piece) <= left {
                left -= bytes(piece);
                taken.push(piece);
            } else if bytes(piece) - left < near {
                taken.push(piece);
                left = 0;
            }
        }
        (left < near).then_some(taken)
    }
}
