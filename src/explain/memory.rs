//! Which piece of memory is there when, and which tensors have it.
//!
//! Burn tells when it hands out a piece, which tensors have one by looks, and in which order fusion makes and frees
//! tensors. When a piece is given back it does not tell. But it tells what all of them add up to, at every sample: so a
//! piece that no tensor has any more is gone as soon as the sum says so.
//!
//! All of this takes time in proportion to the trace (times a logarithm), however many pieces are loose at once.

mod loose;
#[cfg(test)]
mod oracle;

use std::collections::{HashMap, HashSet};

use self::loose::{FirstFit, Loose, Turn};
use super::trace::{At, Happened, Trace};
use crate::protocol::{Held, Phase};

/// How far a sum may be off, at so many live bytes: Burn's account of each piece of its persistent pool is off by less than
/// 512 bytes.
fn near(live: u64) -> u64 {
    (live >> 14).clamp(2 << 10, 64 << 10)
}

/// After how many steps something was gone that nobody saw go.
const NEVER: u32 = u32::MAX;

/// One look at Burn's allocator.
#[derive(Debug, PartialEq, Clone, Copy)]
pub(super) struct Sample {
    pub(super) time: u64,
    pub(super) live: u64,
    pub(super) kernel: Option<u32>,
    pub(super) at: At,
    /// So many operations were with fusion before it, at least.
    pub(super) after: u64,
}

/// A piece of memory.
#[derive(Debug, PartialEq)]
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
#[derive(Debug, PartialEq)]
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
    /// No other tensor had the piece any more.
    pub(super) takes_over: bool,
}

/// Memory over time.
#[derive(Debug, Default, PartialEq)]
pub(super) struct Memory {
    pub(super) samples: Vec<Sample>,
    pub(super) pieces: Vec<Piece>,
    pub(super) tensors: Vec<Life>,
    /// Bytes at each sample that no piece accounts for.
    pub(super) unknown: Vec<u64>,
    /// Bytes at each sample that pieces are more than Burn's account of them.
    pub(super) over: Vec<u64>,
    /// Whether it is known block by block which tensors come and go.
    pub(super) blocks: bool,
}

/// What is known while reading.
struct State<'a> {
    /// The elements' bytes of every tensor.
    logical: &'a HashMap<u64, u64>,
    /// The newest piece of each number.
    pieces: HashMap<u64, usize>,
    /// Tensors that have memory.
    tensors: HashMap<u64, usize>,
    /// The tensors of each number that ever had memory.
    lives: HashMap<u64, Vec<usize>>,
    /// Which pieces are there, or may be: no tensor has them, and no sum said that they are gone.
    is_loose: Vec<bool>,
    /// Those of them that were there before this window, and in the course of it those that came since.
    loose: Loose,
    /// Pieces of which tensors came or went in this window.
    changed: Vec<usize>,
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
    /// Whether looks tell of single blocks of operations.
    blocks: bool,
}

impl Memory {
    pub(super) fn of(trace: &Trace) -> Self {
        let mut memory = Self {
            blocks: trace.blocks,
            ..Self::default()
        };
        let logical = trace.logical();
        let is_piece = |happened: &&Happened| matches!(happened, Happened::Allocated { .. });
        let mut state = State {
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
        // Nobody looked at the end of a run that died: what was to be freed may be gone.
        let freed: Vec<u64> = state.ran.iter().flat_map(|(_, freed)| freed.iter().copied()).collect();
        let last = (state.after, NEVER);
        memory.look(&mut state, last, &[], &freed);
        memory.settle(&mut state);
        memory
    }

    /// Tensors got memory, or gave it back, in the window that ends now.
    fn look(&mut self, state: &mut State<'_>, when: (u64, u32), came: &[Held], gone: &[u64]) {
        let mut changed: Vec<usize> = Vec::new();
        let came_now: HashSet<u64> = came.iter().map(|held| held.tensor).collect();
        if state.blocks {
            // Of a block, those that go make room: what is written over a tensor has its piece alone.
            changed.extend(self.go(state, when, gone));
            changed.extend(self.come(state, came));
        } else {
            changed.extend(self.come(state, came));
            changed.extend(self.go(state, when, gone));
        }
        // A block has told what it made and freed itself, but for the last one of a run that died.
        if !state.blocks || when.1 == NEVER {
            self.meanwhile(state, when, &came_now);
        }
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

    /// Tensors got memory: which pieces.
    fn come(&mut self, state: &mut State<'_>, came: &[Held]) -> Vec<usize> {
        let mut changed = Vec::new();
        for held in came {
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

    /// Tensors gave memory back: which pieces.
    fn go(&mut self, state: &mut State<'_>, when: (u64, u32), gone: &[u64]) -> Vec<usize> {
        let gone: Vec<usize> = gone.iter().filter_map(|id| state.tensors.remove(id)).collect();
        gone.into_iter().map(|tensor| self.release(tensor, when)).collect()
    }

    /// A piece of so many bytes was there all the time, which was taken to be gone from a sample on.
    fn was_there(&mut self, bytes: u64, from: usize) {
        for (unknown, over) in self.unknown[from..].iter_mut().zip(&mut self.over[from..]) {
            let known = bytes.min(*unknown);
            *unknown -= known;
            *over += bytes - known;
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
        let free = (state.first..self.pieces.len()).filter(|piece| self.pieces[*piece].holders.is_empty());
        let mut free = FirstFit::new(free.map(|piece| (self.pieces[piece].bytes, piece)).collect());
        let made: Vec<u64> = state.ran.iter().flat_map(|(made, _)| made.iter().copied()).collect();
        for id in made {
            if came.contains(&id) || state.tensors.contains_key(&id) {
                continue;
            }
            let Some(&logical) = state.logical.get(&id) else {
                continue;
            };
            // Rows are rounded up to a power of two of bytes at most: never to twice as much. Both come in order: the first
            // that fits.
            let Some(piece) = free.take(logical, (logical * 2).max(1024)) else {
                continue;
            };
            let tensor = self.hold(piece, id);
            state.lives.entry(id).or_default().push(tensor);
            self.release(tensor, when);
        }
    }

    /// Finds out which loose pieces were gone at which sample of the window.
    fn settle(&mut self, state: &mut State<'_>) {
        let now = self.samples.len();
        // Pieces of this window are there from a sample on; in the order in which they were born.
        let mut coming = self.order(state).into_iter().peekable();
        let (window, pieces) = (state.window, &mut self.pieces);
        // Pieces that tensors have, and that were born within the window, are not there before.
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
                // It is known that the tensors of these were freed by now.
                true => state.loose.freed_before(),
                false => (Vec::new(), 0),
            };
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
            self.unknown.push(live.saturating_sub(certain + left));
            self.over.push((certain + left).saturating_sub(live));
        }
        // No sample of this window saw them.
        for (piece, turn) in coming {
            state.loose.insert(piece, pieces[piece].bytes, turn);
        }
        state.loose.end(|piece| pieces[piece].bytes);
        state.window = now;
        state.first = pieces.len();
        state.ran.clear();
    }

    /// Tells the loose pieces in which order they go: first those that tensors had, in the order in which these are freed, then
    /// all others. Gives those of this window, with their turns.
    fn order(&self, state: &mut State<'_>) -> Vec<(usize, Turn)> {
        let freed = state.ran.iter().flat_map(|(_, freed)| freed.iter());
        let places: HashMap<u64, usize> = freed.enumerate().map(|(place, id)| (*id, place)).collect();
        // The others are where they were.
        let mut moved = std::mem::take(&mut state.changed);
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
            Some(turn) => Turn::Freed(*turn),
            None if self.pieces[piece].holders.is_empty() => Turn::Never,
            None => Turn::Before,
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
