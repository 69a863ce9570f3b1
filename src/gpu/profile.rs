//! [`Profile`]: the description of one GPU.

use serde::{Deserialize, Serialize};

use super::{GpuError, Provenance, Sourced, hex_digest};
use crate::bytes::Bytes;
use crate::report::{Assumption, GpuQuantity, ProcessOverhead};

/// The limits that all GPUs of a compute capability have in common.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct GpuLimits {
    /// The document that states these limits.
    pub source: String,
    /// The CUDA version that a virtual GPU simulates for driver and NVRTC: the newest that supports the compute
    /// capability. For a real GPU, the older one of driver and NVRTC.
    pub cuda: (u32, u32),
    /// Threads per warp.
    pub warp_size: u32,
    /// Maximum number of threads per block.
    pub max_threads_per_block: u32,
    /// Maximum number of resident threads per multiprocessor.
    pub max_threads_per_sm: u32,
    /// Maximum extent of a block in x, y and z, in threads.
    pub max_block_dim: [u32; 3],
    /// Maximum extent of a grid in x, y and z, in blocks.
    pub max_grid_dim: [u32; 3],
    /// Shared memory per block by default.
    pub shared_per_block: Bytes,
    /// Shared memory per block if the kernel opts in to more.
    pub shared_per_block_optin: Bytes,
    /// Shared memory per multiprocessor.
    pub shared_per_sm: Bytes,
    /// 32-bit registers per block.
    pub registers_per_block: u32,
    /// 32-bit registers per multiprocessor.
    pub registers_per_sm: u32,
}

/// The alignment of page sizes in Burn's allocator, in bytes.
const PAGE_ALIGNMENT: u64 = 512;

/// The maximum size of one tensor in bytes, on a GPU with `total` memory, even if that is empty.
///
/// Burn 0.21's allocator places a tensor in one page. Its largest page is a quarter of the total memory, rounded down
/// to a multiple of 512 bytes (cubecl-cuda 0.10, `runtime.rs`; cubecl-runtime 0.10, `memory_manage.rs`). It refuses a
/// larger tensor without asking the driver. A parameter can be larger because it may get a page of its own.
#[must_use]
pub const fn largest_tensor(total: Bytes) -> Bytes {
    Bytes(total.0 / 4 / PAGE_ALIGNMENT * PAGE_ALIGNMENT)
}

/// The GPU profile: the values that a GPU shows to a CUDA program such as Burn.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Profile {
    /// The id, short and lower case: `l4`, `a100-80gb`.
    pub id: String,
    /// The driver's name of the GPU: `NVIDIA L4`.
    pub name: String,
    /// For a user's GPU, the id of the GPU in `like:`, if both have the same compute capability and thus the same
    /// kernels.
    ///
    /// Estimates use the autotune choices that were recorded on that GPU if there is no recording of this one.
    pub like: Option<String>,
    /// The driver's names of other boards of the same configuration.
    pub also_named: Vec<String>,
    /// Total memory, as `cuDeviceTotalMem` returns it.
    pub total: Sourced<Bytes>,
    /// Compute capability: major and minor version.
    pub compute_capability: (u32, u32),
    /// Number of multiprocessors.
    pub sm_count: Sourced<u32>,
    /// Size of the L2 cache.
    pub l2_cache: Sourced<Bytes>,
    /// The limits of the compute capability.
    pub limits: GpuLimits,
    /// Memory of the CUDA context: what a process holds after it made its primary context and before its first
    /// allocation.
    pub context: Sourced<Bytes>,
    /// Memory of loaded kernels, in addition to the context.
    pub modules: Sourced<Bytes>,
}

impl Profile {
    /// Memory that is left for allocations: [`total`](Self::total) − [`context`](Self::context) −
    /// [`modules`](Self::modules).
    #[must_use]
    pub fn available(&self) -> Bytes {
        self.total
            .value
            .saturating_sub(self.context.value)
            .saturating_sub(self.modules.value)
    }

    /// The maximum size of one tensor on this GPU; see [`largest_tensor`].
    #[must_use]
    pub fn largest_tensor(&self) -> Bytes {
        largest_tensor(self.total.value)
    }

    /// Returns this profile with the context and the loaded kernels that were measured on the GPU with the id `on`.
    ///
    /// If `on` is another GPU, its values are assumptions here, and replace only other assumptions.
    #[must_use]
    pub fn measured(mut self, on: &str, context: Option<&ProcessOverhead>, modules: Option<&ProcessOverhead>) -> Self {
        let here = on == self.id;
        let take = |known: &mut Sourced<Bytes>, outside: Option<&ProcessOverhead>| {
            // A published value of this GPU is better than a measured one of another.
            let Some(outside) = outside.filter(|_| here || known.provenance.is_assumed()) else {
                return;
            };
            let provenance = if here {
                Provenance::from_measurement(outside.source.raw())
            } else {
                Provenance::from_assumption(format!("as on `{on}` (measured: {})", outside.source))
            };
            *known = Sourced::new(outside.bytes, provenance);
        };
        take(&mut self.context, context);
        take(&mut self.modules, modules);
        self
    }

    /// The assumed values of this profile that an estimate depends on.
    #[must_use]
    pub fn assumptions(&self) -> Vec<Assumption> {
        let bytes = |known: &Sourced<Bytes>| (known.value.to_string(), known.provenance.clone());
        let values = [
            (GpuQuantity::TotalMemory, bytes(&self.total)),
            (GpuQuantity::Context, bytes(&self.context)),
            (GpuQuantity::LoadedKernels, bytes(&self.modules)),
            (GpuQuantity::L2Cache, bytes(&self.l2_cache)),
            (
                GpuQuantity::SmCount,
                (self.sm_count.value.to_string(), self.sm_count.provenance.clone()),
            ),
        ];
        let assumed = values
            .into_iter()
            .filter(|(_, (_, provenance))| provenance.is_assumed());
        assumed
            .map(|(quantity, (value, provenance))| Assumption::GpuValue {
                gpu: self.id.as_str().into(),
                quantity,
                value: value.into(),
                why: provenance.source.into(),
            })
            .collect()
    }

    /// The lines that describe this GPU in the virtual driver's configuration file, as keys and values.
    ///
    /// Bytes and counts are plain integers. Commas separate the three extents. `driver_version` is written as the CUDA
    /// driver writes it: 13000 is 13.0, 12090 is 12.9.
    #[must_use]
    pub fn driver_config(&self) -> Vec<(&'static str, String)> {
        let limits = &self.limits;
        let extents = |[x, y, z]: [u32; 3]| format!("{x},{y},{z}");
        let cuda = (limits.cuda.0 * 1000 + limits.cuda.1 * 10).to_string();
        vec![
            ("name", self.name.clone()),
            ("total", self.total.value.0.to_string()),
            ("available", self.available().0.to_string()),
            ("cc_major", self.compute_capability.0.to_string()),
            ("cc_minor", self.compute_capability.1.to_string()),
            ("sm_count", self.sm_count.value.to_string()),
            ("warp_size", limits.warp_size.to_string()),
            ("max_threads_per_block", limits.max_threads_per_block.to_string()),
            ("max_threads_per_sm", limits.max_threads_per_sm.to_string()),
            ("max_block_dim", extents(limits.max_block_dim)),
            ("max_grid_dim", extents(limits.max_grid_dim)),
            ("shared_per_block", limits.shared_per_block.0.to_string()),
            ("shared_per_block_optin", limits.shared_per_block_optin.0.to_string()),
            ("shared_per_sm", limits.shared_per_sm.0.to_string()),
            ("registers_per_block", limits.registers_per_block.to_string()),
            ("registers_per_sm", limits.registers_per_sm.to_string()),
            ("l2_cache", self.l2_cache.value.0.to_string()),
            ("driver_version", cuda),
            (
                "nvrtc_version",
                format!("{}.{}", self.limits.cuda.0, self.limits.cuda.1),
            ),
        ]
    }

    /// A hash of [`driver_config`](Self::driver_config), in lower-case hexadecimal.
    #[must_use]
    pub fn fingerprint(&self) -> String {
        // Only these lines decide an estimate. Sources and links do not.
        let lines: String = self
            .driver_config()
            .iter()
            .map(|(key, value)| format!("{key}={value}\n"))
            .collect();
        hex_digest(&lines)
    }

    /// Returns an error if a value is one that no GPU can have.
    pub(super) fn check(&self) -> Result<(), GpuError> {
        let wrong = |key, given: String, expected: String| {
            Err(GpuError::Figure {
                id: self.id.clone(),
                key,
                given,
                expected,
            })
        };
        // The name is one line in the driver's configuration file.
        if self.name.trim().is_empty() || self.name.contains(char::is_control) {
            return wrong(
                "name",
                format!("`{}`", self.name.escape_debug()),
                "one line of text".to_owned(),
            );
        }
        if self.sm_count.value == 0 {
            return wrong("sm_count", "0".to_owned(), "at least 1".to_owned());
        }
        let GpuLimits {
            shared_per_block: least,
            shared_per_sm: most,
            shared_per_block_optin: given,
            ..
        } = self.limits;
        // Burn refuses kernels by this value. With an impossible
        // one, an estimate would have kernels that no GPU runs.
        if given < least || given > most {
            return wrong(
                "shared_memory_per_block_optin",
                given.to_string(),
                format!("{least} to {most}"),
            );
        }
        let taken = Bytes(self.context.value.0.saturating_add(self.modules.value.0));
        if self.total.value <= taken {
            return Err(GpuError::TooSmall {
                id: self.id.clone(),
                total: self.total.value,
                taken,
            });
        }
        Ok(())
    }
}
