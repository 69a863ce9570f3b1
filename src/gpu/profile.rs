//! One card.

use serde::{Deserialize, Serialize};

use super::{GpuError, Provenance, Sourced, hex_digest};
use crate::bytes::Bytes;
use crate::report::Outside;

/// What all cards of a compute capability have in common.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Limits {
    /// The document that states these limits.
    pub source: String,
    /// The CUDA version to simulate, for driver and NVRTC: the newest that still supports the compute capability.
    pub cuda: (u32, u32),
    /// Threads in a warp.
    pub warp_size: u32,
    /// Threads in a block, at most.
    pub max_threads_per_block: u32,
    /// Threads resident on a multiprocessor, at most.
    pub max_threads_per_sm: u32,
    /// Extent of a block in x, y and z, at most.
    pub max_block_dim: [u32; 3],
    /// Extent of a grid in x, y and z, at most.
    pub max_grid_dim: [u32; 3],
    /// Shared memory of a block without opting in.
    pub shared_per_block: Bytes,
    /// Shared memory of a block that opts in to more.
    pub shared_per_block_optin: Bytes,
    /// Shared memory of a multiprocessor.
    pub shared_per_sm: Bytes,
    /// 32-bit registers of a block.
    pub registers_per_block: u32,
    /// 32-bit registers of a multiprocessor.
    pub registers_per_sm: u32,
}

/// What Burn's allocator rounds pages to.
const PAGE_ALIGNMENT: u64 = 512;

/// The most bytes that one tensor can have on a GPU with this much memory, however empty that is.
///
/// Burn 0.21's allocator takes a quarter of the total for its largest page, rounded down to 512 bytes, and places a tensor in one
/// page (cubecl-cuda 0.10, `runtime.rs`; cubecl-runtime 0.10, `memory_manage.rs`). It refuses a larger tensor without asking
/// the driver. Parameters can be larger, for these may get pages of their own.
#[must_use]
pub const fn largest_tensor(total: Bytes) -> Bytes {
    Bytes(total.0 / 4 / PAGE_ALIGNMENT * PAGE_ALIGNMENT)
}

/// What a card looks like to Burn.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Profile {
    /// Short and lower case: `l4`, `a100-80gb`.
    pub id: String,
    /// As the driver names it: `NVIDIA L4`.
    pub name: String,
    /// The card that a user's card was said to be like, where kernels for the one are kernels for the other: what autotune chose
    /// on that one serves where nothing is known of this one.
    pub like: Option<String>,
    /// What the driver calls other boards of the same configuration.
    pub also_named: Vec<String>,
    /// Total memory, as `cuDeviceTotalMem` returns it.
    pub total: Sourced<Bytes>,
    /// Compute capability, major and minor.
    pub compute_capability: (u32, u32),
    /// Multiprocessors.
    pub sm_count: Sourced<u32>,
    /// L2 cache.
    pub l2_cache: Sourced<Bytes>,
    /// What the compute capability sets.
    pub limits: Limits,
    /// What a process holds once its primary context exists and before its first allocation.
    pub context: Sourced<Bytes>,
    /// What loaded kernels take besides the context.
    pub modules: Sourced<Bytes>,
}

impl Profile {
    /// What is left for allocations: [`total`](Self::total) − [`context`](Self::context) − [`modules`](Self::modules).
    #[must_use]
    pub fn available(&self) -> Bytes {
        self.total
            .value
            .saturating_sub(self.context.value)
            .saturating_sub(self.modules.value)
    }

    /// The most bytes that one tensor can have on this GPU: see [`largest_tensor`].
    #[must_use]
    pub fn largest_tensor(&self) -> Bytes {
        largest_tensor(self.total.value)
    }

    /// The same card with what was measured on the card `on`. Where that is another one, it is assumed here, and goes before
    /// nothing but other assumptions.
    #[must_use]
    pub fn measured(mut self, on: &str, context: Option<&Outside>, modules: Option<&Outside>) -> Self {
        let here = on == self.id;
        let take = |known: &mut Sourced<Bytes>, outside: Option<&Outside>| {
            let Some(outside) = outside.filter(|_| here || known.provenance.is_assumed()) else {
                return;
            };
            let provenance = if here {
                Provenance::Measured(outside.source.clone())
            } else {
                Provenance::Assumed(format!("as on `{on}` (measured: {})", outside.source))
            };
            *known = Sourced::new(outside.bytes, provenance);
        };
        take(&mut self.context, context);
        take(&mut self.modules, modules);
        self
    }

    /// A sentence for each assumed figure that an estimate depends on.
    #[must_use]
    pub fn assumptions(&self) -> Vec<String> {
        let bytes = [
            ("total memory", &self.total),
            ("CUDA context", &self.context),
            ("allowance for loaded kernels", &self.modules),
            ("L2 cache", &self.l2_cache),
        ];
        let mut assumed: Vec<_> = bytes
            .into_iter()
            .filter(|(_, figure)| figure.provenance.is_assumed())
            .map(|(what, figure)| (what, figure.value.to_string(), figure.provenance.text()))
            .collect();
        if self.sm_count.provenance.is_assumed() {
            assumed.push((
                "number of SMs",
                self.sm_count.value.to_string(),
                self.sm_count.provenance.text(),
            ));
        }
        assumed
            .into_iter()
            .map(|(what, value, why)| format!("The {what} of `{}`, {value}, is assumed: {why}.", self.id))
            .collect()
    }

    /// The card as the virtual driver is told it. Bytes and counts are plain integers, the three extents are separated by
    /// commas, versions are written as the CUDA driver writes them: 13000 is 13.0, 12090 is 12.9.
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

    /// A hash over all that the virtual driver is told of this card, in lower-case hexadecimal.
    #[must_use]
    pub fn fingerprint(&self) -> String {
        let lines: String = self
            .driver_config()
            .iter()
            .map(|(key, value)| format!("{key}={value}\n"))
            .collect();
        hex_digest(&lines)
    }

    /// Refuses figures that no card can have.
    pub(super) fn check(&self) -> Result<(), GpuError> {
        let wrong = |key, given: String, expected: String| {
            Err(GpuError::Figure {
                id: self.id.clone(),
                key,
                given,
                expected,
            })
        };
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
        let Limits {
            shared_per_block: least,
            shared_per_sm: most,
            shared_per_block_optin: given,
            ..
        } = self.limits;
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
