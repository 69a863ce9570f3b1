//! How a run was measured: the parts of a run that an estimate lacks.

use std::fmt;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::bytes::Bytes;
use crate::untrusted::Foreign;

/// How a run was measured.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Measurement {
    /// The UUID of the GPU: `GPU-…` or `MIG-…`.
    pub uuid: Foreign,
    /// The CUDA driver library that ran the model.
    pub libcuda: LoadedLibrary,
    /// The NVRTC library that compiled the kernels.
    pub libnvrtc: LoadedLibrary,
    /// The number of the host's CPU cores that the model's process could use. It may decide which parameters end up in
    /// Burn's persistent pool.
    pub cores: u32,
    /// The result of a kernel, which proves that there is a GPU.
    pub proof: Proof,
    /// How `process` was read; null if it could not be read.
    pub process: Option<ProcessSource>,
    /// The bytes that the GPU held before the model's process began, for other processes and the driver; null if
    /// unknown.
    pub idle: Option<Bytes>,
    /// Other processes on the GPU, before or during the passes.
    pub others: Vec<OtherProcess>,
    /// The total memory in bytes that the GPU was limited to; null if it was not limited.
    pub limit: Option<Bytes>,
    /// Where the autotune choices come from.
    pub tuning: Tuning,
    /// The smallest and largest values of repeated measurements; null if there was only one.
    pub spread: Option<Spread>,
}

/// A library that a measurement used.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct LoadedLibrary {
    /// The path of the file, with symbolic links resolved.
    pub path: Foreign,
    /// The version that the library reports, such as `13.0`; empty if unknown.
    pub version: Foreign,
}

/// A number that only a program that runs kernels can compute.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Proof {
    /// The number that the kernel was given.
    pub seed: u64,
    /// The number that the host computed from it.
    pub expected: u64,
    /// The number that the kernel computed from it.
    pub computed: u64,
}

/// How the memory charged to the process was read. It is polled, so peaks between two readings are missed.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct ProcessSource {
    /// What the values cover.
    pub of: ProcessOf,
    /// The intended time between two readings, in microseconds.
    pub interval_us: u64,
    /// The longest time between two readings of the warm pass, in microseconds.
    pub longest_gap_us: u64,
    /// The number of readings in the warm pass.
    pub looks: u64,
}

/// What a value of `process` covers.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum ProcessOf {
    /// The model's process, as NVML accounts for it.
    Process,
    /// The whole GPU, without the memory it held before, because NVML shows no processes here.
    Device,
}

/// Another process on the GPU.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct OtherProcess {
    /// The id of the process.
    pub pid: u32,
    /// The name of the process; null if it cannot be read.
    pub name: Option<Foreign>,
    /// The bytes that the process holds on the GPU; null if the driver does not report them.
    pub bytes: Option<Bytes>,
}

impl fmt::Display for OtherProcess {
    /// Writes `python (pid 4711, 2 GiB)`.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let name = self
            .name
            .as_ref()
            .map_or_else(|| "a process".to_owned(), Foreign::to_string);
        match self.bytes {
            Some(bytes) => write!(f, "{name} (pid {}, {bytes})", self.pid),
            None => write!(f, "{name} (pid {})", self.pid),
        }
    }
}

/// Where the autotune choices come from.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum Tuning {
    /// Autotune timed the candidates in the cold pass. Another measurement may choose other kernels.
    Free,
    /// The choices of a recording were replayed.
    Replayed,
}

/// The smallest and largest values of several runs of one model.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Spread {
    /// The number of runs.
    pub repeats: u32,
    /// The values of the warm pass.
    pub warm: SpreadPeak,
    /// The values of the cold pass.
    pub cold: SpreadPeak,
}

/// The smallest and the largest value of each metric, in bytes; null if a run lacks the value.
#[derive(Debug, Default, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct SpreadPeak {
    /// Live memory: bytes of the tensors that exist.
    pub live: Option<[Bytes; 2]>,
    /// Reserved memory: bytes that Burn's allocator holds from the CUDA driver.
    pub reserved: Option<[Bytes; 2]>,
    /// Process memory: bytes that the GPU charges to the process.
    pub process: Option<[Bytes; 2]>,
}
