//! The memory of a model whose inputs have another size in each step, in each order of the sizes.

use std::collections::BTreeMap;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::peaks::{Metric, Peaks};
use crate::bytes::Bytes;
use crate::protocol::{ROUND_STEPS, SizeOrder, SizeRange};
use crate::untrusted::PlainName;

/// The sizes of a model's ranges, and the memory in each order of them.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct VaryingSizes {
    /// Each input that has another size in each step.
    pub inputs: BTreeMap<PlainName, SizeRange>,
    /// The memory in each order. It is only the order with the largest sizes in an explanation, and if that order is not
    /// complete.
    pub orders: Vec<OrderMemory>,
    /// The order that the run's `steps` are of, and its failure if it has one: usually `largest`.
    pub steps_of: SizeOrder,
    /// The reserved memory in bytes that varying sizes cost: the highest warm peak of the rising, falling and shuffled
    /// orders minus the peak with the largest sizes alone. Pages that batches of one size left do not fit those of
    /// another. Null if an order is not complete.
    pub fragmentation: Option<Bytes>,
}

/// The memory of a pass whose steps have the sizes in one order.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct OrderMemory {
    /// The order.
    pub order: SizeOrder,
    /// Whether all steps were run, without an error and without out of memory.
    pub is_complete: bool,
    /// The number of steps of the observed pass; 0 if nothing was observed.
    pub steps: u32,
    /// The peaks. With several GPUs, each value is from the GPU where it is highest.
    pub peaks: Peaks,
    /// The last step of the observed pass in which reserved memory grew, from 1. Null if nothing was observed.
    pub last_growth: Option<u32>,
    /// The least growth in live memory in bytes from a step to the step with the same size one round later, if all of
    /// them but one grew. Only for the rising and falling orders; otherwise null.
    pub leak_per_round: Option<Bytes>,
}

impl OrderMemory {
    /// Whether reserved memory still grew when the sizes were repeated, so that it may grow further.
    #[must_use]
    pub fn still_grows(&self) -> bool {
        let last_round = self.steps.saturating_sub(ROUND_STEPS).max(1);
        self.order.varies() && self.last_growth.is_some_and(|after| after > last_round)
    }
}

impl VaryingSizes {
    /// Returns the reserved memory in bytes that varying sizes cost. Returns `None` if an order is missing or not
    /// complete.
    pub(crate) fn fragmentation_of(orders: &[OrderMemory]) -> Option<Bytes> {
        if !orders.iter().all(|order| order.is_complete) {
            return None;
        }
        let reserved = |order: &OrderMemory| order.peaks.warm.get(Metric::Reserved);
        let alone = orders
            .iter()
            .find(|order| order.order == SizeOrder::Largest)
            .and_then(reserved)?;
        let varying = orders.iter().filter(|order| order.order.varies());
        let highest = varying.filter_map(reserved).max()?;
        Some(highest.saturating_sub(alone))
    }

    /// Returns the order with the highest reserved memory of a later launch; of equal ones, the first.
    #[must_use]
    pub fn highest(&self) -> Option<&OrderMemory> {
        let reserved = |order: &&OrderMemory| order.peaks.warm.reserved;
        self.orders.iter().rev().max_by_key(reserved)
    }
}
