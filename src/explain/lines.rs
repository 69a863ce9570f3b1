//! What came and went while each line of the user's code ran.

use std::collections::HashMap;

use super::calls::{Call, Calls};
use super::categories::Origin;
use super::memory::Memory;
use super::trace::{At, Trace};
use super::types::{Line, Source};
use crate::bytes::Bytes;

/// One line that ran: from its first operation to its last.
struct Ran {
    source: Source,
    callers: Vec<Source>,
    at: At,
    came: Vec<usize>,
    went: Vec<usize>,
}

/// The lines in the order in which they ran. A tensor counts where it was asked for, though fusion may make it later, and
/// goes where it was first seen to be gone.
pub(super) fn lines(
    trace: &Trace,
    memory: &Memory,
    origins: &HashMap<u64, Origin<'_>>,
    calls: &mut Calls<'_>,
) -> Vec<Line> {
    let mut ran: Vec<Ran> = Vec::new();
    // Which line each operation is of.
    let mut of: Vec<Option<usize>> = Vec::with_capacity(trace.operations.len());
    for operation in &trace.operations {
        let Call { source, callers, .. } = calls.of(operation);
        let same =
            |last: &Ran| Some(&last.source) == source.as_ref() && last.callers == callers && last.at == operation.at;
        if let Some(source) = source.clone().filter(|_| !ran.last().is_some_and(same)) {
            ran.push(Ran {
                source,
                callers,
                at: operation.at,
                came: Vec::new(),
                went: Vec::new(),
            });
        }
        of.push(ran.len().checked_sub(1));
    }
    let line = |number: u64| {
        let index = usize::try_from(number).ok()?.checked_sub(1)?;
        of.get(index.min(of.len().checked_sub(1)?)).copied().flatten()
    };
    for (index, tensor) in memory.tensors.iter().enumerate() {
        // What is written over another tensor, or is one seen otherwise, neither comes nor goes.
        if tensor.shares.is_some() {
            continue;
        }
        let born = origins.get(&tensor.id).and_then(|origin| line(origin.number));
        if let Some(born) = born {
            ran[born].came.push(index);
        }
        // The piece goes with the last tensor that has it.
        let last = memory.pieces[tensor.piece]
            .holders
            .last()
            .and_then(|(_, holders)| holders.last());
        let gone = last.and_then(|last| memory.tensors[*last].gone_after).and_then(line);
        if let Some(gone) = gone.filter(|_| born.is_some()) {
            ran[gone].went.push(index);
        }
    }
    let bytes = |tensors: &[usize]| -> u64 {
        let pieces = tensors.iter().map(|tensor| memory.tensors[*tensor].piece);
        pieces.map(|piece| memory.pieces[piece].bytes).sum()
    };
    let mut live = 0_u64;
    let numbers = |tensors: Vec<usize>| tensors.into_iter().filter_map(|one| u32::try_from(one).ok()).collect();
    ran.into_iter()
        .map(|ran| {
            let (came, went) = (bytes(&ran.came), bytes(&ran.went));
            live = (live + came).saturating_sub(went);
            Line {
                source: ran.source,
                callers: ran.callers,
                step: ran.at.0,
                phase: ran.at.1,
                live: Bytes(live),
                change: Bytes(came).less(Bytes(went)),
                came: numbers(ran.came),
                went: numbers(ran.went),
            }
        })
        .collect()
}
