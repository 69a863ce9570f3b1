//! Finds out the same as `memory.rs`, but looks at every loose piece at every sample. It is slow, and simple enough to
//! trust. Tests compare the fast version with it.

use std::collections::{HashMap, HashSet};

use super::{MemoryHistory, Piece, Sample, near};
use crate::explain::trace::{At, Happened, ReadTrace};
use crate::protocol::{HeldTensor, Phase};

/// Finds out memory over time.
pub(super) fn memory(trace: &ReadTrace) -> MemoryHistory {
    Oracle::from_trace(trace).0
}

/// The state while a trace is read.
struct OracleState<'a> {
    /// The bytes of each tensor's elements.
    logical: &'a HashMap<u64, u64>,
    /// The newest piece of each memory number.
    pieces: HashMap<u64, usize>,
    /// The tensors that have memory now.
    tensors: HashMap<u64, usize>,
    /// The loose pieces: no tensor has them, and no sum has shown that they are gone.
    loose: Vec<usize>,
    /// Bytes of pieces that tensors have.
    certain: u64,
    /// The first sample of this window. A window is the time between two looks.
    window: usize,
    /// The first piece of this window.
    first: usize,
    /// The tensors that fusion made and freed in this window.
    ran: Vec<(&'a [u64], &'a [u64])>,
    /// The number of operations before the last look.
    after: u64,
}

/// Memory over time, found by looking at every piece at every sample.
struct Oracle(MemoryHistory);

impl Oracle {
    fn from_trace(trace: &ReadTrace) -> Self {
        let mut memory = Self(MemoryHistory::default());
        let made = trace.operations.iter().flat_map(|operation| &operation.outputs);
        let logical = made.chain(&trace.inner).map(|made| (made.id, made.bytes)).collect();
        let mut state = OracleState {
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
                Happened::Sample { time, live, kernel } => memory.0.samples.push(Sample {
                    time: *time,
                    live: *live,
                    kernel: *kernel,
                    at,
                    after: state.after,
                }),
                Happened::Allocated { memory: number, bytes } => {
                    let piece = memory.0.pieces.len();
                    memory.0.pieces.push(Piece {
                        bytes: bytes.next_multiple_of(trace.alignment.max(1)),
                        born: memory.0.samples.len(),
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
        // A run that died has no last look. The tensors that were to be freed may be gone.
        let freed: Vec<u64> = state.ran.iter().flat_map(|(_, freed)| freed.iter().copied()).collect();
        let last = (state.after, u32::MAX);
        memory.look(&mut state, last, &[], &freed);
        memory.settle(&mut state);
        memory
    }

    /// Applies a look: tensors got memory, or gave it back, in the window that ends now.
    fn look(&mut self, state: &mut OracleState<'_>, when: (u64, u32), came: &[HeldTensor], gone: &[u64]) {
        let mut changed: Vec<usize> = Vec::new();
        let came_now: HashSet<u64> = came.iter().map(|held| held.tensor).collect();
        for held in came {
            let Some(&piece) = state.pieces.get(&held.memory) else {
                continue;
            };
            let tensor = self.0.hold(piece, held.tensor);
            state.tensors.insert(held.tensor, tensor);
            changed.push(piece);
        }
        for id in gone {
            let Some(tensor) = state.tensors.remove(id) else {
                continue;
            };
            changed.push(self.0.release(tensor, when));
        }
        self.meanwhile(state, when, &came_now);
        changed.sort_unstable();
        changed.dedup();
        for piece in changed {
            let is_loose = state.loose.contains(&piece);
            let (held, bytes) = (self.0.pieces[piece].held > 0, self.0.pieces[piece].bytes);
            let was_gone = self.0.pieces[piece].died.is_some();
            if held && (is_loose || was_gone) {
                state.loose.retain(|other| *other != piece);
                state.certain += bytes;
                if let Some(died) = self.0.pieces[piece].died.take() {
                    self.0.was_there(bytes, died);
                }
            } else if !held && !is_loose && !was_gone {
                state.loose.push(piece);
                state.certain -= bytes;
            }
        }
    }

    /// Places tensors that were made and freed between two looks: each gets the first piece of the window that no other
    /// tensor has and that its elements fill.
    fn meanwhile(&mut self, state: &mut OracleState<'_>, when: (u64, u32), came: &HashSet<u64>) {
        let mut free: Vec<usize> = (state.first..self.0.pieces.len())
            .filter(|piece| self.0.pieces[*piece].holders.is_empty())
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
                let bytes = self.0.pieces[*piece].bytes;
                // Rows are rounded up to a power of two of bytes at most, so never to twice their size.
                bytes >= logical && bytes < (logical * 2).max(1024)
            };
            // Tensors and pieces come in order, so the first piece that fits is taken.
            let Some(place) = free.iter().position(fills) else {
                continue;
            };
            let piece = free.remove(place);
            let tensor = self.0.hold(piece, id);
            self.0.release(tensor, when);
        }
    }

    /// Finds out at which sample of the window each loose piece was gone.
    fn settle(&mut self, state: &mut OracleState<'_>) {
        let now = self.0.samples.len();
        self.order(state);
        // Pieces that tensors have, and that were born within the window, do not exist before that.
        let young: Vec<(usize, u64)> = (state.first..self.0.pieces.len())
            .filter(|piece| self.0.pieces[*piece].held > 0)
            .map(|piece| (self.0.pieces[piece].born, self.0.pieces[piece].bytes))
            .collect();
        for sample in state.window..now {
            let live = self.0.samples[sample].live;
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
                .filter(|piece| self.0.pieces[*piece].born <= sample)
                .collect();
            let sum: u64 = loose.iter().map(|piece| self.0.pieces[*piece].bytes).sum();
            let excess = (certain + sum).saturating_sub(live);
            let mut left = sum;
            if excess > 0 {
                let gone: HashSet<usize> = self.gone(&loose, excess, near(live)).into_iter().collect();
                for piece in &gone {
                    left -= self.0.pieces[*piece].bytes;
                    self.0.pieces[*piece].died = Some(sample);
                }
                state.loose.retain(|piece| !gone.contains(piece));
            }
            self.0.unknown.push(live.saturating_sub(certain + left));
            self.0.over.push((certain + left).saturating_sub(live));
        }
        state.window = now;
        state.first = self.0.pieces.len();
        state.ran.clear();
    }

    /// Sorts the loose pieces: first those that tensors had, in the order in which the tensors are freed, then all
    /// others.
    fn order(&self, state: &mut OracleState<'_>) {
        let freed = state.ran.iter().flat_map(|(_, freed)| freed.iter());
        let places: HashMap<u64, usize> = freed.enumerate().map(|(place, id)| (*id, place)).collect();
        state.loose.sort_by_key(|piece| {
            let last = self.0.pieces[*piece].holders.last();
            let place = last.and_then(|(_, holders)| {
                let places = holders.iter().map(|holder| places.get(&self.0.tensors[*holder].id));
                places.map(|place| place.copied()).max().flatten()
            });
            // Pieces that were freed before this window go first.
            match (last, place) {
                (Some(_), None) => (0, 0, *piece),
                (Some(_), Some(place)) => (1, place, *piece),
                (None, _) => (2, 0, *piece),
            }
        });
    }

    /// Finds the pieces that are gone, if this many bytes are gone. The bytes that no piece accounted for so far most
    /// likely still exist, so as many more bytes of pieces are gone.
    fn gone(&self, loose: &[usize], excess: u64, near: u64) -> Vec<usize> {
        let unknown = self.0.unknown.last().copied().unwrap_or(0);
        for near in [1, near] {
            for wanted in [excess + unknown, excess] {
                if let Some(gone) = self.in_order(loose, wanted, near) {
                    return gone;
                }
            }
        }
        let bytes = |piece: usize| self.0.pieces[piece].bytes;
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

    /// Finds the first few pieces that tensors had, and some of the others, that together have `wanted` bytes. If there
    /// are none, any pieces that do.
    fn in_order(&self, loose: &[usize], wanted: u64, near: u64) -> Option<Vec<usize>> {
        let bytes = |piece: usize| self.0.pieces[piece].bytes;
        let tensors = loose.partition_point(|piece| !self.0.pieces[*piece].holders.is_empty());
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

    /// Finds pieces that together have nearly `wanted` bytes. It takes the largest pieces that fit first.
    fn nearly(&self, pieces: &[usize], wanted: u64, near: u64) -> Option<Vec<usize>> {
        let bytes = |piece: usize| self.0.pieces[piece].bytes;
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
