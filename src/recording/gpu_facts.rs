//! `gpu.json`: the GPU as the driver reports it, and the measured memory of a process beside its models.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use crate::report::{LoadedLibrary, ProcessOverhead};

/// The facts about a measured GPU, apart from its runs.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct GpuFacts {
    /// The id of the GPU's profile, which is the name of the outer folder: `l4`.
    pub gpu: String,
    /// The version of the kernel driver, which is the name of the inner folder: `580.82.07`.
    pub driver: String,
    /// The attributes of the GPU exactly as the driver reports them: `name`, `total`, `sm_count`, …
    pub device: BTreeMap<String, String>,
    /// The CUDA driver library.
    pub libcuda: LoadedLibrary,
    /// NVRTC, the kernel compiler.
    pub libnvrtc: LoadedLibrary,
    /// The memory of a process before its first tensor, if it could be measured.
    pub context: Option<ProcessOverhead>,
    /// The additional memory for loaded kernels, if it could be measured.
    pub modules: Option<ProcessOverhead>,
}
