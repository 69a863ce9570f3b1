//! Which piece of memory is there when, and which tensors have it.
//!
//! Burn tells when it hands out a piece, and by looks which tensors have one; when a piece is given back it does not tell.
//! But it tells what all of them add up to, at every sample: so a piece that no tensor has any more is gone as soon as
//! the sum says so.

use std::collections::HashMap;

use super::trace::{At, Happened, Trace};
use crate::protocol::{Held, Phase};

/// Pieces that are tried together when one alone does not explain what is missing.
const TRIED: usize = 64;

/// One look at Burn's allocator.
#[derive(Debug, Clone, Copy)]
pub(super) struct Sample {
    pub(super) time: u64,
    pub(super) live: u64,
    pub(super) kernel: Option<u32>,
    pub(super) at: At,
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
}

/// What is known while reading.
#[derive(Default)]
struct State {
    /// The newest piece of each number.
    pieces: HashMap<u64, usize>,
    /// Tensors that have memory.
    tensors: HashMap<u64, usize>,
    /// Pieces that are there, or may be: no tensor has them, and no sum said that they are gone.
    loose: Vec<usize>,
    /// Bytes of pieces that tensors have, born before this window.
    certain: u64,
    /// The first sample of this window.
    window: usize,
}

impl Memory {
    pub(super) fn of(trace: &Trace) -> Self {
        let mut memory = Self::default();
        let mut state = State::default();
        let mut at: At = (None, Phase::Context);
        for happened in &trace.happened {
            match happened {
                Happened::Reached(reached) => at = *reached,
                Happened::Sample { time, live, kernel } => memory.samples.push(Sample {
                    time: *time,
                    live: *live,
                    kernel: *kernel,
                    at,
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
                Happened::Look {
                    after,
                    steps,
                    came,
                    gone,
                } => {
                    memory.look(&mut state, (*after, *steps), came, gone);
                    memory.settle(&mut state);
                }
            }
        }
        memory.settle(&mut state);
        memory
    }

    /// Tensors got memory, or gave it back, in the window that ends now.
    fn look(&mut self, state: &mut State, (after, steps): (u64, u32), came: &[Held], gone: &[u64]) {
        let now = self.samples.len();
        let mut changed: Vec<usize> = Vec::new();
        for id in gone {
            let Some(tensor) = state.tensors.remove(id) else {
                continue;
            };
            let life = &mut self.tensors[tensor];
            life.died = Some(now);
            life.gone_after = Some(after);
            life.gone_steps = Some(steps);
            let piece = life.piece;
            self.pieces[piece].held -= 1;
            changed.push(piece);
        }
        for held in came {
            let Some(&piece) = state.pieces.get(&held.memory) else {
                continue;
            };
            let tensor = self.tensors.len();
            let before = self.pieces[piece].holders.last();
            let born = if before.is_some() { now } else { self.pieces[piece].born };
            self.tensors.push(Life {
                id: held.tensor,
                piece,
                born,
                died: None,
                gone_after: None,
                gone_steps: None,
                shares: before.and_then(|(_, holders)| holders.first().copied()),
            });
            state.tensors.insert(held.tensor, tensor);
            self.pieces[piece].held += 1;
            let first = self.pieces[piece].holders.is_empty();
            let from = if first { self.pieces[piece].born } else { now };
            let holders = &mut self.pieces[piece].holders;
            let alive = holders.last().map(|(_, holders)| holders.clone()).unwrap_or_default();
            let mut alive: Vec<usize> = alive
                .into_iter()
                .filter(|other| self.tensors[*other].died.is_none())
                .collect();
            alive.push(tensor);
            match holders.last_mut() {
                Some((at, same)) if *at == from => *same = alive,
                _ => holders.push((from, alive)),
            }
            changed.push(piece);
        }
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

    /// Finds out which loose pieces were gone at which sample of the window.
    fn settle(&mut self, state: &mut State) {
        let now = self.samples.len();
        // Pieces that tensors have, and that were born within the window, are not there before.
        let young: Vec<(usize, u64)> = (self.pieces.len().saturating_sub(4096)..self.pieces.len())
            .filter(|piece| self.pieces[*piece].born > state.window && self.pieces[*piece].held > 0)
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
                for piece in self.gone(&loose, excess) {
                    left -= self.pieces[piece].bytes;
                    self.pieces[piece].died = Some(sample);
                    state.loose.retain(|other| *other != piece);
                }
            }
            self.unknown.push(live.saturating_sub(certain + left));
        }
        state.window = now;
    }

    /// Which of these are gone, where so many bytes are.
    fn gone(&self, loose: &[usize], excess: u64) -> Vec<usize> {
        let bytes = |piece: usize| self.pieces[piece].bytes;
        if let Some(one) = loose.iter().find(|piece| bytes(**piece) == excess) {
            return vec![*one];
        }
        let tried = &loose[..loose.len().min(TRIED)];
        for (number, one) in tried.iter().enumerate() {
            let other = tried[number + 1..]
                .iter()
                .find(|other| bytes(*one) + bytes(**other) == excess);
            if let Some(other) = other {
                return vec![*one, *other];
            }
        }
        // The oldest first, as many as it takes; then those of them that need not be.
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
}
