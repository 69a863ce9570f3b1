//! What grows from epoch to epoch, in a training of several epochs.

use std::collections::{BTreeMap, BTreeSet};

use super::epochs::{EpochMemory, EpochPhase, MorePages};
use super::leaks::{self, ENOUGH_STEPS, Growing, GrowthInterval};
use super::peaks::Metric;
use super::types::Run;
use super::words::counted;
use crate::bytes::Bytes;
use crate::untrusted::Foreign;

/// The number of epochs that the check for growth from epoch to epoch needs.
pub const ENOUGH_EPOCHS: usize = 3;

/// Memory that ends higher with each epoch.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct GrowingEpochs {
    /// Live or reserved memory.
    pub metric: Metric,
    /// The part of each epoch at whose end the memory is compared.
    pub part: EpochPhase,
    /// The memory at these ends in bytes: live memory without padding.
    pub ends: Vec<Bytes>,
    /// The number of the first epoch that counts, from 1.
    pub first: usize,
    /// The growth in bytes from the end of that epoch to the end of the last.
    pub left: Bytes,
    /// The pages that make up this growth, the largest first; empty for live memory, and if they do not add up to it.
    pub pages: Vec<MorePages>,
    /// The part of that growth that belongs to streams that began in between.
    pub by_new_streams: Bytes,
    /// The number of those streams.
    pub new_streams: u32,
    /// The program's lines that passed the data loaders in whose parts they began.
    pub loaders: BTreeSet<Foreign>,
    /// Whether the growth can only go on. If not, memory may settle later.
    pub is_sure: bool,
}

impl GrowingEpochs {
    /// Describes the growth: `reserved memory grows by 20 MiB from epoch 2 to epoch 3`, and then the values.
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
            "{metric} memory grows by {} from epoch {} to epoch {epochs} (after each {}: {})",
            self.left,
            self.first,
            self.part.name(),
            ends.join(", ")
        );
        if !self.pages.is_empty() {
            text += &format!("; in pages: {}", pages_in_words(&self.pages));
        }
        if self.new_streams > 0 {
            text += &format!(
                "; pools of {} hold {} of it: every thread that uses the GPU gets pools, which stay after the thread ends",
                counted(self.new_streams.into(), "new stream"),
                self.by_new_streams,
            );
            let loaders: Vec<_> = self.loaders.iter().map(Foreign::to_string).collect();
            if !loaders.is_empty() {
                text += &format!(
                    " (these began while the training read the data of {})",
                    loaders.join(" and ")
                );
            }
        }
        if !self.is_sure {
            text += &format!("; memory may settle later: train for {} epochs to find out", epochs * 2);
        }
        text
    }
}

/// The number of page sizes that a sentence names.
const NAMED_SIZES: usize = 4;

/// Lists pages: `8 × 94.07 MiB, 8 × 23.50 MiB`.
fn pages_in_words(pages: &[MorePages]) -> String {
    let named = pages.iter().take(NAMED_SIZES);
    let mut named: Vec<_> = named.map(|pages| format!("{} × {}", pages.count, pages.size)).collect();
    if pages.len() > NAMED_SIZES {
        named.push(format!("and {} more sizes", pages.len() - NAMED_SIZES));
    }
    named.join(", ")
}

/// Adds up the pages of several parts, if they are as many bytes as the memory grew by.
fn pages_of(parts: &[EpochMemory], grown: Bytes) -> Vec<MorePages> {
    let mut counts = BTreeMap::new();
    for pages in parts.iter().flat_map(|part| &part.pages) {
        let count = counts.entry(pages.size).or_insert(0_i64);
        *count = count.saturating_add(pages.count);
    }
    let pages = counts.into_iter().rev().filter(|(_, count)| *count != 0);
    let pages: Vec<_> = pages.map(|(size, count)| MorePages { size, count }).collect();
    let bytes = pages.iter().fold(0_i128, |bytes, pages| {
        bytes.saturating_add(i128::from(pages.size.0).saturating_mul(pages.count.into()))
    });
    if bytes == i128::from(grown.0) {
        pages
    } else {
        Vec::new()
    }
}

impl Run {
    /// Returns the number of epochs; 0 if the model does not train for epochs.
    #[must_use]
    pub fn count_epochs(&self) -> usize {
        self.ends_of(EpochPhase::Training).len()
    }

    /// Returns the last part of this kind in each epoch.
    fn ends_of(&self, kind: EpochPhase) -> Vec<(usize, &EpochMemory)> {
        let parts = self.epochs.iter().enumerate().filter(|(_, part)| part.part == kind);
        let by_epoch: BTreeMap<u32, _> = parts.map(|(at, part)| (part.epoch, (at, part))).collect();
        by_epoch.into_values().collect()
    }

    /// Returns the live and reserved memory that ends higher with each epoch but the first.
    ///
    /// With fewer than [`ENOUGH_EPOCHS`], returns only reserved memory that grows by pools of new threads.
    #[must_use]
    pub fn growing_epochs(&self) -> Vec<GrowingEpochs> {
        let live = self.growing(Metric::Live, |part| part.in_use_end);
        let reserved = self.growing(Metric::Reserved, |part| part.reserved_end);
        live.into_iter().chain(reserved).collect()
    }

    /// Returns live memory that grows from epoch to epoch, as leaks are described.
    #[must_use]
    pub fn leak_by_epoch(&self) -> Option<Growing> {
        let growing = self.growing(Metric::Live, |part| part.in_use_end)?;
        let epochs = growing.ends.len().saturating_sub(growing.first).max(1);
        Some(Growing {
            interval: GrowthInterval::Epoch,
            first_step: 0,
            gpu_number: None,
            per_step: Bytes(growing.left.0.div_ceil(epochs as u64).max(1)),
            left: growing.left,
            is_sure: growing.is_sure,
            steps: growing.ends,
        })
    }

    fn growing(&self, metric: Metric, of: fn(&EpochMemory) -> Bytes) -> Option<GrowingEpochs> {
        // The validation first, because it is the end of its epoch. A training may keep what its validation frees.
        let parts = [EpochPhase::Validation, EpochPhase::Training];
        parts.into_iter().find_map(|kind| self.growing_at(kind, metric, of))
    }

    fn growing_at(&self, part: EpochPhase, metric: Metric, of: fn(&EpochMemory) -> Bytes) -> Option<GrowingEpochs> {
        let parts = self.ends_of(part);
        if parts.iter().any(|(_, part)| !part.is_end_seen) {
            return None;
        }
        let ends: Vec<Bytes> = parts.iter().map(|(_, part)| of(part)).collect();
        // The first epoch makes what stays, such as the optimizer's state and the pools of all sizes.
        let skipped = usize::from(ends.len() >= ENOUGH_EPOCHS);
        let (first, last) = (*parts.get(skipped)?, *parts.last()?);
        let new = self.epochs.get(first.0 + 1..=last.0).unwrap_or_default();
        let (new_streams, by_new) = new.iter().fold((0_u32, 0_u64), |(streams, bytes), part| {
            (
                streams.saturating_add(part.new_streams),
                bytes.saturating_add(part.new_streams_reserved.0),
            )
        });
        let compared = ends.get(skipped..)?;
        let rises = || compared.len() > 1 && compared.windows(2).all(|pair| pair[1] > pair[0]);
        // Live memory is not attributed to streams, because tensors of old streams can take their place.
        let is_by_threads = metric == Metric::Reserved && by_new > 0;
        let as_they_are = |is_sure| (compared.to_vec(), is_sure);
        let (grown, is_sure) = match ends.len() {
            // After two epochs, memory may also settle.
            ..ENOUGH_EPOCHS => (is_by_threads && rises()).then(|| as_they_are(false)),
            many if many >= ENOUGH_STEPS as usize => leaks::growing_ends(&ends),
            _ => rises().then(|| as_they_are(is_by_threads || compared.len() >= ENOUGH_EPOCHS)),
        }?;
        let left = grown.last()?.saturating_sub(*grown.first()?);
        let by_new_streams = if is_by_threads {
            Bytes(by_new).min(left)
        } else {
            Bytes(0)
        };
        Some(GrowingEpochs {
            metric,
            part,
            ends,
            first: skipped + 1,
            left,
            pages: match metric {
                Metric::Reserved => pages_of(new, left),
                Metric::Live | Metric::Process => Vec::new(),
            },
            by_new_streams,
            new_streams: if by_new_streams > Bytes(0) { new_streams } else { 0 },
            loaders: new
                .iter()
                .filter(|part| part.new_streams > 0)
                .filter_map(|part| part.loader.clone())
                .collect(),
            is_sure,
        })
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
                is_end_seen: true,
                live_peak: Bytes(*live),
                in_use_end: Bytes(*live),
                reserved_peak: Bytes(*reserved),
                reserved_end: Bytes(*reserved),
                pages: vec![
                    MorePages {
                        size: Bytes(5),
                        count: 3,
                    },
                    MorePages {
                        size: Bytes(1),
                        count: -5,
                    },
                ],
                streams: 1,
                new_streams: u32::from(is_last) * 4,
                new_streams_reserved: Bytes(if is_last { by_new } else { 0 }),
                loader: Some("benches/vram.rs:7".into()),
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
            .map(|growing| (growing.metric, growing.left.0, growing.is_sure))
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
            [(Metric::Live, 3, true), (Metric::Reserved, 50, true)]
        );
        // Growth in every second epoch, and growth that one fall would hide.
        assert_eq!(
            grown(&[(1, 9), (2, 9), (2, 9), (3, 9), (3, 9), (4, 9), (4, 9), (5, 9)], 0),
            [(Metric::Live, 3, true)]
        );
        assert_eq!(grown(&[], 0), []);
        assert_eq!(grown(&[(1, 1)], 0), []);
    }

    #[test]
    fn a_single_fall_does_not_hide_what_each_epoch_leaves() {
        let run = run(&[90, 100, 110, 120, 65, 75, 85, 95, 105].map(|live| (live, 9)), 0);
        let growing = run.growing_epochs();
        // Without the fall of 55: from 100 to 160.
        assert_eq!((growing[0].left, growing[0].is_sure), (Bytes(60), false), "{growing:?}");
        let leak = run.leak_by_epoch().unwrap();
        assert_eq!((leak.left, leak.interval), (Bytes(60), GrowthInterval::Epoch));
        assert!(leak.per_step > Bytes(1), "{leak:?}");
    }

    #[test]
    fn after_two_epochs_only_pools_of_new_threads_are_certain() {
        assert_eq!(grown(&[(1, 10), (5, 20)], 0), []);
        assert_eq!(grown(&[(1, 10), (5, 20)], 8), [(Metric::Reserved, 10, false)]);
        // New threads in the place of old memory are no growth.
        assert_eq!(grown(&[(1, 20), (5, 20)], 8), []);
    }

    #[test]
    fn the_sentence_names_the_epochs_and_the_streams() {
        let growing = run(&[(1, 10), (1, 20), (1, 30)], 8).growing_epochs();
        assert_eq!(
            growing[0].summary(),
            "reserved memory grows by 10 B from epoch 2 to epoch 3 (after each training: 10 B, 20 B, 30 B); in pages: \
             3 × 5 B, -5 × 1 B; pools of 4 new streams hold 8 B of it: every thread that uses the GPU gets pools, which \
             stay after the thread ends (these began while the training read the data of benches/vram.rs:7)"
        );
        let growing = run(&[(1, 10), (2, 10), (3, 10)], 0).growing_epochs();
        assert_eq!(
            growing[0].summary(),
            "live memory grows by 1 B from epoch 2 to epoch 3 (after each training: 1 B, 2 B, 3 B); memory may settle \
             later: train for 6 epochs to find out"
        );
    }

    #[test]
    fn what_a_training_keeps_is_found_although_its_validation_frees_it() {
        let training = run(&[(1, 1), (2, 1), (3, 1)], 0).epochs;
        let validation = training.iter().map(|part| EpochMemory {
            part: EpochPhase::Validation,
            in_use_end: Bytes(1),
            ..part.clone()
        });
        let both = training.iter().cloned().zip(validation);
        let run = Run {
            epochs: both.flat_map(|(training, validation)| [training, validation]).collect(),
            ..sample::run("a", "l4")
        };
        let growing = run.growing_epochs();
        assert_eq!(
            (growing.len(), growing[0].part, growing[0].left),
            (1, EpochPhase::Training, Bytes(1))
        );
    }

    #[test]
    fn validations_whose_end_is_not_seen_are_not_compared() {
        let training = run(&[(1, 1), (1, 1), (1, 1)], 0).epochs;
        let validation = |(at, part): (usize, &EpochMemory)| EpochMemory {
            part: EpochPhase::Validation,
            is_end_seen: false,
            reserved_end: Bytes(at as u64 + 1),
            ..part.clone()
        };
        let validations: Vec<_> = training.iter().enumerate().map(validation).collect();
        let both = training.into_iter().zip(validations);
        let mut run = Run {
            epochs: both.flat_map(|(training, validation)| [training, validation]).collect(),
            ..sample::run("a", "l4")
        };
        assert_eq!(run.growing_epochs(), []);
        for part in &mut run.epochs {
            part.is_end_seen = true;
        }
        assert_eq!(run.growing_epochs()[0].part, EpochPhase::Validation);
    }

    #[test]
    fn no_number_of_a_file_is_too_large() {
        let mut run = run(&[(1, u64::MAX), (2, u64::MAX), (u64::MAX, u64::MAX)], u64::MAX);
        for part in &mut run.epochs {
            part.epoch = part.epoch.wrapping_sub(3);
            part.new_streams = u32::MAX;
            part.new_streams_reserved = Bytes(u64::MAX);
        }
        assert_eq!(run.growing_epochs().len(), 1);
    }
}
