//! The memory that came and went while each line of the user's code ran.

use std::collections::HashMap;

use super::calls::{Calls, TracedCall};
use super::categories::CategoryOrigin;
use super::memory::MemoryHistory;
use super::trace::{At, ReadTrace};
use super::types::{SourceLineMemory, SourceLocation};
use crate::bytes::Bytes;

/// One execution of a line, from its first operation to its last.
struct ExecutedLine {
    source: SourceLocation,
    callers: Vec<SourceLocation>,
    at: At,
    came: Vec<usize>,
    went: Vec<usize>,
}

/// Returns the lines in the order in which they ran. A tensor comes with the line that asked for it, even if fusion
/// makes it later. It goes with the line where it was first seen to be gone.
pub(super) fn lines(
    trace: &ReadTrace,
    memory: &MemoryHistory,
    origins: &HashMap<u64, CategoryOrigin<'_>>,
    calls: &mut Calls<'_>,
) -> Vec<SourceLineMemory> {
    let mut ran: Vec<ExecutedLine> = Vec::new();
    // The line of each operation, as an index into `ran`.
    let mut of: Vec<Option<usize>> = Vec::with_capacity(trace.operations.len());
    for operation in &trace.operations {
        let TracedCall { source, callers, .. } = calls.of(operation);
        // The same line in another phase, or called from elsewhere, is another execution.
        let same = |last: &ExecutedLine| {
            Some(&last.source) == source.as_ref() && last.callers == callers && last.at == operation.at
        };
        if let Some(source) = source.clone().filter(|_| !ran.last().is_some_and(same)) {
            ran.push(ExecutedLine {
                source,
                callers,
                at: operation.at,
                came: Vec::new(),
                went: Vec::new(),
            });
        }
        // An operation without a line counts for the line before it, so that no memory is lost.
        of.push(ran.len().checked_sub(1));
    }
    let line = |number: u64| {
        let index = usize::try_from(number).ok()?.checked_sub(1)?;
        // A damaged trace may have fewer operations than the probe counted.
        of.get(index.min(of.len().checked_sub(1)?)).copied().flatten()
    };
    for (index, tensor) in memory.tensors.iter().enumerate() {
        // A tensor that is written over another one, or is a view of it, neither comes nor goes.
        if tensor.shares.is_some() {
            continue;
        }
        let born = origins.get(&tensor.id).and_then(|origin| line(origin.number));
        if let Some(born) = born {
            ran[born].came.push(index);
        }
        // A piece of memory goes with the last tensor that holds the piece.
        let last = memory.pieces[tensor.piece]
            .holders
            .last()
            .and_then(|(_, holders)| holders.last());
        let gone = last.and_then(|last| memory.tensors[*last].gone_after).and_then(line);
        // A tensor that came with no line must not go with one, or `live` would be too small.
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
            SourceLineMemory {
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
