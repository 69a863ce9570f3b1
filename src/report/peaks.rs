//! The highest values of a run: by pass, and by kind of memory. Also how they were obtained.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::bytes::Bytes;

/// A pass: one process that runs the model's steps once.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum Pass {
    /// The first run, with an empty autotune cache.
    Cold,
    /// The repeated run, which replays the autotune choices.
    Warm,
    /// The repeated run with live memory sampled at every launch. A measurement has a separate pass for it; in an
    /// estimate, it is the warm pass.
    Traced,
}

/// How the values of a run were obtained.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum Mode {
    /// Estimated on a virtual GPU.
    Estimate,
    /// Measured on a real GPU.
    Measure,
}

/// The highest values of each pass.
#[derive(Debug, Default, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Peaks {
    /// The warm pass, which replays the autotune choices. Growth rules and all limits outside `cold` apply to it.
    pub warm: Peak,
    /// The cold pass: the first launch, with an empty autotune cache.
    pub cold: Peak,
}

/// The highest values of one pass, in bytes. A value that was not obtained is null, never 0.
#[derive(Debug, Default, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Peak {
    /// Live memory: bytes of the tensors that exist, as Burn's allocator counts them (padding included).
    pub live: Option<Bytes>,
    /// Reserved memory: bytes that Burn's allocator holds from the CUDA driver.
    pub reserved: Option<Bytes>,
    /// Process memory: bytes that the GPU charges to the process. In an estimate, this is reserved memory, context and
    /// modules.
    pub process: Option<Bytes>,
}

impl Peaks {
    /// Returns the higher value of two GPUs, for each metric; `None` if one of them is unknown.
    #[must_use]
    pub fn fullest(self, other: Self) -> Self {
        // The unknown value of one GPU may be the higher one.
        let more = |one: Option<Bytes>, other: Option<Bytes>| Some(one?.max(other?));
        let peak = |one: Peak, other: Peak| Peak {
            live: more(one.live, other.live),
            reserved: more(one.reserved, other.reserved),
            process: more(one.process, other.process),
        };
        Self {
            warm: peak(self.warm, other.warm),
            cold: peak(self.cold, other.cold),
        }
    }

    /// Returns every value, in the order of output.
    #[must_use]
    pub fn figures(&self) -> Vec<(Pass, Metric, Option<Bytes>)> {
        let passes = [(Pass::Warm, &self.warm), (Pass::Cold, &self.cold)];
        let all = passes
            .into_iter()
            .flat_map(|(pass, peak)| Metric::ALL.map(|metric| (pass, metric, peak.get(metric))));
        all.collect()
    }

    /// Returns the first value that differs in `after`: its pass, its metric, and both values.
    #[must_use]
    pub fn first_other(&self, after: &Self) -> Option<(Pass, Metric, Option<Bytes>, Option<Bytes>)> {
        let pairs = self.figures().into_iter().zip(after.figures());
        let mut pairs = pairs.map(|((pass, metric, before), (.., after))| (pass, metric, before, after));
        pairs.find(|(.., before, after)| before != after)
    }
}

impl Peak {
    /// Returns the larger of two values, for each metric. If only one is known, that one.
    #[must_use]
    pub fn largest(self, other: Self) -> Self {
        Self {
            live: self.live.max(other.live),
            reserved: self.reserved.max(other.reserved),
            process: self.process.max(other.process),
        }
    }

    /// Returns the value of one metric.
    #[must_use]
    pub const fn get(&self, metric: Metric) -> Option<Bytes> {
        match metric {
            Metric::Live => self.live,
            Metric::Reserved => self.reserved,
            Metric::Process => self.process,
        }
    }
}

/// A value that a budget can limit.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum Metric {
    /// Live memory: bytes of the tensors that exist.
    Live,
    /// Reserved memory: bytes that Burn's allocator holds from the CUDA driver.
    Reserved,
    /// Process memory: bytes that the GPU charges to the process.
    Process,
}

impl Metric {
    /// All metrics, from the innermost to the outermost.
    pub const ALL: [Self; 3] = [Self::Live, Self::Reserved, Self::Process];

    /// Returns the name in files and in output.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Live => "live",
            Self::Reserved => "reserved",
            Self::Process => "process",
        }
    }
}
