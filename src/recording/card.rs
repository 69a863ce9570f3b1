//! `card.json`: what the driver said of the card, and what was measured beside the models.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use crate::report::{Library, Outside};

/// What is known of a measured card beside its runs.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct CardFacts {
    /// The id of its profile, which names its folder: `l4`.
    pub gpu: String,
    /// The version of the kernel driver, which names the folder in it: `580.82.07`.
    pub driver: String,
    /// What the driver reports of the card, each as it reports it: `name`, `total`, `sm_count`, …
    pub device: BTreeMap<String, String>,
    /// CUDA's driver library.
    pub libcuda: Library,
    /// The compiler of its kernels.
    pub libnvrtc: Library,
    /// What a process held before its first tensor, where it could be read.
    pub context: Option<Outside>,
    /// What loaded kernels took besides, where it could be read.
    pub modules: Option<Outside>,
}
