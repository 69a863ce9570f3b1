//! What grows from epoch to epoch, in a training of several epochs.

use std::collections::BTreeMap;

use super::epochs::{EpochMemory, EpochPhase};
use super::types::{Metric, Run};
use super::words::counted;
use crate::bytes::Bytes;

/// The number of epochs that the check for growth from epoch to epoch needs.
pub const ENOUGH_EPOCHS: usize = 3;

/// Memory that ends higher with each epoch.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct GrowingEpochs {
    /// Live or reserved memory.
    pub metric: Metric,
    /// The memory at the end of each epoch in bytes: live memory without padding.
    pub ends: Vec<Bytes>,
    /// The growth in the last epoch in bytes.
    pub last: Bytes,
    /// The part of that growth that belongs to streams that are new in the last epoch.
    pub by_new_streams: Bytes,
    /// The number of those streams.
    pub new_streams: u32,
    /// Whether more epochs would show the same. If not, memory may settle later.
    pub is_sure: bool,
}

/// The number of streams that cubecl has, by default. A thread beyond this number shares the stream of another.
const MOST_STREAMS: u32 = 128;

impl GrowingEpochs {
    /// Describes the growth in one sentence, without a full stop.
    #[must_use]
    pub fn summary(&self) -> String {
        let metric = match self.metric {
            Metric::Live => "live",
            Metric::Reserved => "reserved",
            Metric::Process => "process",
        };
        let epochs = self.ends.len();
        let ends: Vec<_> = self.ends.iter().map(Bytes::to_string).collect();
        let mut text = format!(
            "{metric} memory grows by {} in epoch {epochs} (at the end of each epoch: {})",
            self.last,
            ends.join(", ")
        );
        if self.new_streams > 0 {
            text += &format!(
                "; {} of it is in pools of {}: each new thread that uses the GPU, such as a worker of a data loader, gets \
                 pools that stay until the program ends (at most {MOST_STREAMS} streams)",
                self.by_new_streams,
                counted(self.new_streams.into(), "new stream")
            );
        }
        if !self.is_sure {
            text += &format!(
                " (or it settles later: set `epochs: {}` in the inputs of its budget to find out)",
                epochs * 2
            );
        }
        text
    }
}

impl Run {
    /// Returns the number of epochs; 0 if the model does not train for epochs.
    #[must_use]
    pub fn count_epochs(&self) -> usize {
        self.epochs.last().map_or(0, |part| part.epoch as usize)
    }

    /// Returns the live and reserved memory that ends higher with each epoch but the first.
    ///
    /// With fewer than [`ENOUGH_EPOCHS`], returns only reserved memory that grows by pools of new threads.
    #[must_use]
    pub fn growing_epochs(&self) -> Vec<GrowingEpochs> {
        let parts = self.epochs.iter().filter(|part| part.part != EpochPhase::Between);
        // The last part of each epoch.
        let ends: BTreeMap<u32, &EpochMemory> = parts.map(|part| (part.epoch, part)).collect();
        let new = self
            .epochs
            .iter()
            .filter(|part| Some(part.epoch) == ends.keys().next_back().copied());
        let (new_streams, by_new) = new.fold((0_u32, Bytes(0)), |(streams, bytes), part| {
            (
                streams.saturating_add(part.new_streams),
                bytes + part.new_streams_reserved,
            )
        });
        let growing = |metric: Metric, of: fn(&EpochMemory) -> Bytes| {
            let all: Vec<Bytes> = ends.values().map(|part| of(part)).collect();
            // The first epoch makes what stays, such as the optimizer's state and the pools of all sizes.
            let compared = if all.len() >= ENOUGH_EPOCHS {
                &all[1..]
            } else {
                &all[..]
            };
            let [.., before, after] = compared else { return None };
            if !compared.windows(2).all(|pair| pair[1] > pair[0]) {
                return None;
            }
            // After two epochs, memory may also settle; only pools of new threads are certain.
            if all.len() < ENOUGH_EPOCHS && (metric != Metric::Reserved || by_new == Bytes(0)) {
                return None;
            }
            let last = after.saturating_sub(*before);
            // Live memory is not attributed to streams, because tensors of old streams can take their place.
            let is_reserved = metric == Metric::Reserved;
            let by_new_streams = if is_reserved { by_new.min(last) } else { Bytes(0) };
            Some(GrowingEpochs {
                metric,
                last,
                by_new_streams,
                new_streams: if by_new_streams > Bytes(0) { new_streams } else { 0 },
                // Two rises in a row without the first epoch, or pools of threads that every epoch starts anew.
                is_sure: compared.len() >= ENOUGH_EPOCHS || by_new_streams > Bytes(0),
                ends: all,
            })
        };
        let live = growing(Metric::Live, |part| part.in_use_end);
        let reserved = growing(Metric::Reserved, |part| part.reserved_end);
        live.into_iter().chain(reserved).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::report::sample;

    /// Returns a run whose epochs end with this live and reserved memory. The last one has new streams with `by_new`.
    fn run(ends: &[(u64, u64)], by_new: u64) -> Run {
        let part = |(at, (live, reserved)): (usize, &(u64, u64))| {
            let is_last = at + 1 == ends.len() && by_new > 0;
            EpochMemory {
                epoch: u32::try_from(at + 1).unwrap(),
                part: EpochPhase::Training,
                first_step: 0,
                steps: 4,
                live_peak: Bytes(*live),
                in_use_end: Bytes(*live),
                reserved_peak: Bytes(*reserved),
                reserved_end: Bytes(*reserved),
                streams: 1,
                new_streams: u32::from(is_last) * 4,
                new_streams_reserved: Bytes(if is_last { by_new } else { 0 }),
            }
        };
        Run {
            epochs: ends.iter().enumerate().map(part).collect(),
            ..sample::run("a", "l4")
        }
    }

    fn grown(ends: &[(u64, u64)], by_new: u64) -> Vec<(Metric, u64, bool)> {
        let growing = run(ends, by_new).growing_epochs().into_iter();
        growing
            .map(|growing| (growing.metric, growing.last.0, growing.is_sure))
            .collect()
    }

    #[test]
    fn memory_that_each_epoch_but_the_first_ends_higher_with_grows() {
        assert_eq!(grown(&[(1, 10), (5, 20), (5, 20)], 0), []);
        // What the first epoch makes does not count, and neither does what settles or falls again.
        assert_eq!(grown(&[(1, 10), (5, 20), (5, 30), (6, 30)], 0), []);
        assert_eq!(grown(&[(9, 10), (5, 20), (6, 20)], 0), [(Metric::Live, 1, false)]);
        assert_eq!(
            grown(&[(9, 10), (5, 20), (6, 30), (8, 70)], 0),
            [(Metric::Live, 2, true), (Metric::Reserved, 40, true)]
        );
        assert_eq!(grown(&[], 0), []);
        assert_eq!(grown(&[(1, 1)], 0), []);
    }

    #[test]
    fn after_two_epochs_only_pools_of_new_threads_are_certain() {
        assert_eq!(grown(&[(1, 10), (5, 20)], 0), []);
        assert_eq!(grown(&[(1, 10), (5, 20)], 8), [(Metric::Reserved, 10, true)]);
        // New threads in the place of old memory are no growth.
        assert_eq!(grown(&[(1, 20), (5, 20)], 8), []);
    }

    #[test]
    fn the_sentence_names_the_epochs_and_the_streams() {
        let growing = run(&[(1, 10), (1, 20), (1, 30)], 8).growing_epochs();
        assert_eq!(
            growing[0].summary(),
            "reserved memory grows by 10 B in epoch 3 (at the end of each epoch: 10 B, 20 B, 30 B); 8 B of it is in pools \
             of 4 new streams: each new thread that uses the GPU, such as a worker of a data loader, gets pools that stay \
             until the program ends (at most 128 streams)"
        );
        let growing = run(&[(1, 10), (2, 10), (3, 10)], 0).growing_epochs();
        assert_eq!(
            growing[0].summary(),
            "live memory grows by 1 B in epoch 3 (at the end of each epoch: 1 B, 2 B, 3 B) (or it settles later: set \
             `epochs: 6` in the inputs of its budget to find out)"
        );
    }
}
