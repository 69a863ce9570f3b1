//! Finds out when each piece of memory exists, and which tensors have it.
//!
//! Burn reports when it hands out a piece. Looks show which tensors have one, and fusion reports the order in which it
//! makes and frees tensors. Nobody reports when a piece is given back. But every sample has the sum of all pieces: a
//! piece that no tensor has any more is gone as soon as the sum shows it.
//!
//! The time is proportional to the trace (times a logarithm), however many pieces are loose at once.

mod loose;
#[cfg(test)]
mod oracle;

use std::collections::{HashMap, HashSet};

use self::loose::{FirstFit, FreeOrder, Loose};
use super::trace::{At, Happened, ReadTrace};
use crate::protocol::{HeldTensor, Phase};

/// Returns how far a sum may be off at this many live bytes. Burn's account of each piece in its persistent pool is off
/// by less than 512 bytes.
fn near(live: u64) -> u64 {
    (live >> 14).clamp(2 << 10, 64 << 10)
}

/// The number of steps for a tensor that nobody saw go.
const NEVER: u32 = u32::MAX;

/// One sample of Burn's allocator.
#[derive(Debug, PartialEq, Clone, Copy)]
pub(super) struct Sample {
    pub(super) time: u64,
    pub(super) live: u64,
    pub(super) kernel: Option<u32>,
    pub(super) at: At,
    /// At least this many operations had reached fusion before the sample.
    pub(super) after: u64,
}

/// A piece of memory.
#[derive(Debug, PartialEq)]
pub(super) struct Piece {
    /// The size in bytes, rounding included.
    pub(super) bytes: u64,
    /// The first sample that sees the piece.
    pub(super) born: usize,
    /// The first sample that no longer sees the piece.
    pub(super) died: Option<usize>,
    /// The tensors that have the piece, each list with the first sample that it holds for. Once a tensor had the piece,
    /// no list is empty.
    pub(super) holders: Vec<(usize, Vec<usize>)>,
    /// The number of tensors that have the piece now.
    held: usize,
}

/// A tensor that has or had memory.
#[derive(Debug, PartialEq)]
pub(super) struct Life {
    /// Burn's number of the tensor.
    pub(super) id: u64,
    /// The piece of the tensor, as an index.
    pub(super) piece: usize,
    /// The first sample that sees the tensor.
    pub(super) born: usize,
    /// The first sample that no longer sees the tensor.
    pub(super) died: Option<usize>,
    /// The number of operations after which the tensor was seen to be gone.
    pub(super) gone_after: Option<u64>,
    /// The number of steps after which the tensor was seen to be gone.
    pub(super) gone_steps: Option<u32>,
    /// A tensor that held the piece before or still shares it, as an index.
    pub(super) shares: Option<usize>,
    /// Whether no other tensor had the piece any more when this one got it.
    pub(super) takes_over: bool,
}

/// Memory over time.
#[derive(Debug, Default, PartialEq)]
pub(super) struct MemoryHistory {
    pub(super) samples: Vec<Sample>,
    pub(super) pieces: Vec<Piece>,
    pub(super) tensors: Vec<Life>,
    /// Bytes at each sample that no piece accounts for.
    pub(super) unknown: Vec<u64>,
    /// Bytes at each sample by which the pieces exceed Burn's account.
    pub(super) over: Vec<u64>,
    /// Whether it is known block by block which tensors come and go.
    pub(super) blocks: bool,
}

/// The state while a trace is read.
struct MemoryReader<'a> {
    /// The bytes of each tensor's elements.
    logical: &'a HashMap<u64, u64>,
    /// The newest piece of each memory number.
    pieces: HashMap<u64, usize>,
    /// The tensors that have memory now.
    tensors: HashMap<u64, usize>,
    /// All lives of each tensor number that ever had memory.
    lives: HashMap<u64, Vec<usize>>,
    /// Whether each piece is loose: no tensor holds the piece, and no sum has shown that it is gone.
    is_loose: Vec<bool>,
    /// The loose pieces from before this window. While the window is settled, those that came in it are added.
    loose: Loose,
    /// Pieces whose tensors came or went in this window.
    changed: Vec<usize>,
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
    /// Whether each look is about a single block of operations.
    blocks: bool,
}

impl MemoryHistory {
    pub(super) fn from_trace(trace: &ReadTrace) -> Self {
        let mut memory = Self {
            blocks: trace.blocks,
            ..Self::default()
        };
        let logical = trace.logical();
        let is_piece = |happened: &&Happened| matches!(happened, Happened::Allocated { .. });
        let mut state = MemoryReader {
            logical: &logical,
            pieces: HashMap::new(),
            tensors: HashMap::new(),
            lives: HashMap::new(),
            is_loose: Vec::new(),
            loose: Loose::new(trace.happened.iter().filter(is_piece).count()),
            changed: Vec::new(),
            certain: 0,
            window: 0,
            first: 0,
            ran: Vec::new(),
            after: 0,
            blocks: trace.blocks,
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
                        // Burn reports the requested size, but its sum of live memory counts the rounded one.
                        bytes: bytes.next_multiple_of(trace.alignment.max(1)),
                        born: memory.samples.len(),
                        died: None,
                        holders: Vec::new(),
                        held: 0,
                    });
                    state.pieces.insert(*number, piece);
                    state.is_loose.push(true);
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
        let last = (state.after, NEVER);
        memory.look(&mut state, last, &[], &freed);
        memory.settle(&mut state);
        memory
    }

    /// Applies a look: tensors got memory, or gave it back, in the window that ends now.
    fn look(&mut self, state: &mut MemoryReader<'_>, when: (u64, u32), came: &[HeldTensor], gone: &[u64]) {
        let mut changed: Vec<usize> = Vec::new();
        let came_now: HashSet<u64> = came.iter().map(|held| held.tensor).collect();
        if state.blocks {
            // In a block, the tensors that go make room first: a tensor that is written over another one has its piece
            // alone.
            changed.extend(self.go(state, when, gone));
            changed.extend(self.come(state, came));
        } else {
            changed.extend(self.come(state, came));
            changed.extend(self.go(state, when, gone));
        }
        // A block has reported itself what it made and freed, except for the last block of a run that died.
        if !state.blocks || when.1 == NEVER {
            self.meanwhile(state, when, &came_now);
        }
        // One look can both give a piece to a tensor and take it from another.
        changed.sort_unstable();
        changed.dedup();
        for piece in &changed {
            let piece = *piece;
            let is_loose = state.is_loose[piece];
            let (held, bytes) = (self.pieces[piece].held > 0, self.pieces[piece].bytes);
            let was_gone = self.pieces[piece].died.is_some();
            if held && (is_loose || was_gone) {
                state.is_loose[piece] = false;
                state.loose.remove(piece, bytes);
                state.certain += bytes;
                // `settle` took this piece for gone. A tensor that has it proves that another one was gone.
                if let Some(died) = self.pieces[piece].died.take() {
                    self.was_there(bytes, died);
                }
            } else if !held && !is_loose && !was_gone {
                state.is_loose[piece] = true;
                state.certain -= bytes;
            }
        }
        state.changed.extend(changed);
    }

    /// Gives tensors their memory. Returns the pieces.
    fn come(&mut self, state: &mut MemoryReader<'_>, came: &[HeldTensor]) -> Vec<usize> {
        let mut changed = Vec::new();
        for held in came {
            // A damaged trace may lack the line of the piece.
            let Some(&piece) = state.pieces.get(&held.memory) else {
                continue;
            };
            let tensor = self.hold(piece, held.tensor);
            state.tensors.insert(held.tensor, tensor);
            state.lives.entry(held.tensor).or_default().push(tensor);
            changed.push(piece);
        }
        changed
    }

    /// Takes memory back from tensors. Returns the pieces.
    fn go(&mut self, state: &mut MemoryReader<'_>, when: (u64, u32), gone: &[u64]) -> Vec<usize> {
        let gone: Vec<usize> = gone.iter().filter_map(|id| state.tensors.remove(id)).collect();
        gone.into_iter().map(|tensor| self.release(tensor, when)).collect()
    }

    /// Corrects the samples from `from` on: a piece of this size existed, although it was taken to be gone.
    fn was_there(&mut self, bytes: u64, from: usize) {
        for (unknown, over) in self.unknown[from..].iter_mut().zip(&mut self.over[from..]) {
            let known = bytes.min(*unknown);
            *unknown -= known;
            *over += bytes - known;
        }
    }

    /// Gives a tensor a piece from now on. Returns the index of the tensor.
    fn hold(&mut self, piece: usize, id: u64) -> usize {
        let now = self.samples.len();
        let tensor = self.tensors.len();
        let before = self.pieces[piece].holders.last();
        // Looks come late: the piece's first tensor had it all along. Each later one has it only from this
        // look on.
        let from = if before.is_some() { now } else { self.pieces[piece].born };
        let shares = before.and_then(|(_, holders)| holders.first().copied());
        let others = before.map(|(_, holders)| holders.clone()).unwrap_or_default();
        let mut holders: Vec<usize> = others
            .into_iter()
            .filter(|other| self.tensors[*other].died.is_none())
            .collect();
        let takes_over = holders.is_empty();
        holders.push(tensor);
        self.tensors.push(Life {
            id,
            piece,
            born: from,
            died: None,
            gone_after: None,
            gone_steps: None,
            shares,
            takes_over,
        });
        let piece = &mut self.pieces[piece];
        piece.held += 1;
        match piece.holders.last_mut() {
            // No sample lies between these two changes.
            Some((at, same)) if *at == from => *same = holders,
            _ => piece.holders.push((from, holders)),
        }
        tensor
    }

    /// Takes the piece away from a tensor. Returns the index of the piece.
    fn release(&mut self, tensor: usize, (after, steps): (u64, u32)) -> usize {
        let now = self.samples.len();
        let life = &mut self.tensors[tensor];
        life.died = Some(now);
        life.gone_after = Some(after);
        life.gone_steps = Some(steps);
        self.pieces[life.piece].held -= 1;
        life.piece
    }

    /// Places tensors that were made and freed between two looks: each gets the first piece of the window that no other
    /// tensor has and that its elements fill.
    fn meanwhile(&mut self, state: &mut MemoryReader<'_>, when: (u64, u32), came: &HashSet<u64>) {
        let free = (state.first..self.pieces.len()).filter(|piece| self.pieces[*piece].holders.is_empty());
        let mut free = FirstFit::new(free.map(|piece| (self.pieces[piece].bytes, piece)).collect());
        let made: Vec<u64> = state.ran.iter().flat_map(|(made, _)| made.iter().copied()).collect();
        for id in made {
            // The look itself shows the pieces of these.
            if came.contains(&id) || state.tensors.contains_key(&id) {
                continue;
            }
            let Some(&logical) = state.logical.get(&id) else {
                continue;
            };
            // Rows are rounded up to a power of two of bytes at most, so never to twice their size. Tensors and pieces
            // come in order, so the first piece that fits is taken.
            let Some(piece) = free.take(logical, (logical * 2).max(1024)) else {
                continue;
            };
            let tensor = self.hold(piece, id);
            state.lives.entry(id).or_default().push(tensor);
            self.release(tensor, when);
        }
    }

    /// Finds out at which sample of the window each loose piece was gone.
    fn settle(&mut self, state: &mut MemoryReader<'_>) {
        let now = self.samples.len();
        // Each piece of this window exists from some sample on. They are in the order of that sample.
        let mut coming = self.order(state).into_iter().peekable();
        let (window, pieces) = (state.window, &mut self.pieces);
        // Pieces that tensors have, and that were born within the window, do not exist before that.
        let young = (state.first..pieces.len()).filter(|piece| pieces[*piece].held > 0);
        let young: Vec<(usize, u64)> = young.map(|piece| (pieces[piece].born, pieces[piece].bytes)).collect();
        let mut unborn: u64 = young.iter().map(|(_, bytes)| bytes).sum();
        let mut young = young.into_iter().peekable();
        for sample in window..now {
            let live = self.samples[sample].live;
            while let Some((_, bytes)) = young.next_if(|(born, _)| *born <= sample) {
                unborn -= bytes;
            }
            while let Some((piece, turn)) = coming.next_if(|(piece, _)| pieces[*piece].born <= sample) {
                state.loose.insert(piece, pieces[piece].bytes, turn);
            }
            let certain = state.certain - unborn;
            let mut left = state.loose.bytes();
            let mut excess = (certain + left).saturating_sub(live);
            let (freed, bytes) = match state.blocks && sample == window && excess > 0 {
                // The tensors of these pieces are known to be freed by now.
                true => state.loose.freed_before(),
                false => (Vec::new(), 0),
            };
            // Otherwise the sum shows that some of these pieces are still there, and the search below decides
            // which.
            if excess >= bytes {
                for piece in freed {
                    let bytes = pieces[piece].bytes;
                    left -= bytes;
                    excess -= bytes;
                    pieces[piece].died = Some(sample);
                    state.is_loose[piece] = false;
                    state.loose.remove(piece, bytes);
                }
            }
            if excess > 0 {
                let unknown = self.unknown.last().copied().unwrap_or(0);
                let bytes = |piece: usize| pieces[piece].bytes;
                for piece in state.loose.gone(excess, unknown, near(live), bytes) {
                    let bytes = pieces[piece].bytes;
                    left -= bytes;
                    pieces[piece].died = Some(sample);
                    state.is_loose[piece] = false;
                    state.loose.remove(piece, bytes);
                }
            }
            // Whatever remains is kept per sample, so that categories can always add up to exactly Burn's
            // sum.
            self.unknown.push(live.saturating_sub(certain + left));
            self.over.push((certain + left).saturating_sub(live));
        }
        // No sample of this window saw these pieces.
        for (piece, turn) in coming {
            state.loose.insert(piece, pieces[piece].bytes, turn);
        }
        state.loose.end(|piece| pieces[piece].bytes);
        state.window = now;
        state.first = pieces.len();
        state.ran.clear();
    }

    /// Sets the order in which the loose pieces go: first those that tensors had, in the order in which the tensors are
    /// freed, then all others. Returns the pieces of this window with their turns.
    fn order(&self, state: &mut MemoryReader<'_>) -> Vec<(usize, FreeOrder)> {
        let freed = state.ran.iter().flat_map(|(_, freed)| freed.iter());
        let places: HashMap<u64, usize> = freed.enumerate().map(|(place, id)| (*id, place)).collect();
        // All other pieces keep their turns.
        let mut moved = std::mem::take(&mut state.changed);
        // A tensor that is freed now may have had other pieces before, whose turns it also decides.
        let lives = places.keys().filter_map(|id| state.lives.get(id)).flatten();
        moved.extend(lives.map(|tensor| self.tensors[*tensor].piece));
        moved.retain(|piece| *piece < state.first);
        moved.sort_unstable();
        moved.dedup();
        moved.extend(state.first..self.pieces.len());
        moved.retain(|piece| state.is_loose[*piece]);
        let place = |piece: usize| {
            let (_, holders) = self.pieces[piece].holders.last()?;
            let places = holders.iter().map(|holder| places.get(&self.tensors[*holder].id));
            // A shared piece goes with the last of its tensors.
            places.map(|place| place.copied()).max().flatten()
        };
        let mut freed: Vec<(usize, usize)> = moved
            .iter()
            .filter_map(|piece| Some((place(*piece)?, *piece)))
            .collect();
        freed.sort_unstable();
        let freed: Vec<usize> = freed.into_iter().map(|(_, piece)| piece).collect();
        let turns: HashMap<usize, usize> = freed.iter().enumerate().map(|(turn, piece)| (*piece, turn)).collect();
        state.loose.begin(freed);
        let turn = |piece: usize| match turns.get(&piece) {
            Some(turn) => FreeOrder::Freed(*turn),
            None if self.pieces[piece].holders.is_empty() => FreeOrder::Never,
            None => FreeOrder::Before,
        };
        let young = moved.partition_point(|piece| *piece < state.first);
        for piece in &moved[..young] {
            state.loose.insert(*piece, self.pieces[*piece].bytes, turn(*piece));
        }
        moved[young..].iter().map(|piece| (*piece, turn(*piece))).collect()
    }
}

#[cfg(test)]
mod tests;
