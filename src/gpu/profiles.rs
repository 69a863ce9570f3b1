//! [`Profiles`]: all GPU profiles, built-in ones and the user's.

mod detected;

use std::collections::{BTreeMap, BTreeSet};

use serde::Deserialize;

use super::{DATA, GpuError, GpuLimits, Profile, Provenance, Sourced};
use crate::bytes::Bytes;

/// The lowest similarity at which an id is suggested, from 0 (nothing in common) to 1 (equal).
const NEAR_ENOUGH: f64 = 0.75;

/// All GPU profiles, by id: built-in ones and the user's.
#[derive(Debug, Clone)]
pub struct Profiles {
    by_id: BTreeMap<String, Profile>,
    /// The ids of the user's own GPUs.
    own: BTreeSet<String>,
    /// The id of the GPU that the limits are for.
    preferred: Option<String>,
    limits: BTreeMap<(u32, u32), GpuLimits>,
    /// Memory of loaded kernels, the same for every GPU.
    modules: Sourced<Bytes>,
}

/// The values in which a user's GPU differs from the GPU in `like:`, from `gpu_profiles:` in `budgets.yaml`.
#[derive(Debug, Default, Clone, PartialEq, Eq)]
pub struct Overrides {
    /// Total memory, as `cuDeviceTotalMem` returns it.
    pub total: Option<Bytes>,
    /// The driver's name of the GPU.
    pub name: Option<String>,
    /// Number of multiprocessors.
    pub sm_count: Option<u32>,
    /// Compute capability: major and minor version. It determines the limits.
    pub compute_capability: Option<(u32, u32)>,
    /// Shared memory per block if the kernel opts in to more.
    pub shared_memory_per_block_optin: Option<Bytes>,
    /// Memory of the CUDA context: what a process holds before its first allocation.
    pub context: Option<Bytes>,
}

/// The content of `profiles.toml`.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct ProfilesFile {
    modules: Sourced<Bytes>,
    compute_capability: BTreeMap<String, GpuLimits>,
    gpu: BTreeMap<String, ProfileEntry>,
}

/// A GPU in `profiles.toml`.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct ProfileEntry {
    name: String,
    #[serde(default)]
    also_named: Vec<String>,
    compute_capability: (u32, u32),
    total: Sourced<Bytes>,
    sm_count: Sourced<u32>,
    l2_cache: Sourced<Bytes>,
    context: Sourced<Bytes>,
}

impl Profiles {
    /// Reads the profiles of the built-in GPUs.
    ///
    /// # Errors
    /// [`GpuError::BuiltIn`] if the embedded data is wrong. Tests make sure that it is not.
    pub fn builtin() -> Result<Self, GpuError> {
        Self::parse(DATA)
    }

    fn parse(data: &str) -> Result<Self, GpuError> {
        let file: ProfilesFile = toml_edit::de::from_str(data).map_err(|e| GpuError::BuiltIn(e.to_string()))?;
        let limits = file
            .compute_capability
            .into_iter()
            .map(|(version, limits)| Ok((parse_version(&version)?, limits)))
            .collect::<Result<BTreeMap<_, _>, GpuError>>()?;
        let mut profiles = Self {
            by_id: BTreeMap::new(),
            own: BTreeSet::new(),
            preferred: None,
            limits,
            modules: file.modules,
        };
        for (id, gpu) in file.gpu {
            profiles.insert(Profile {
                limits: profiles.limits_of(gpu.compute_capability)?,
                modules: profiles.modules.clone(),
                id,
                name: gpu.name,
                like: None,
                also_named: gpu.also_named,
                total: gpu.total,
                compute_capability: gpu.compute_capability,
                sm_count: gpu.sm_count,
                l2_cache: gpu.l2_cache,
                context: gpu.context,
            })?;
        }
        Ok(profiles)
    }

    /// The ids of all GPUs, sorted.
    pub fn ids(&self) -> impl Iterator<Item = &str> {
        self.by_id.keys().map(String::as_str)
    }

    /// All GPUs, sorted by id.
    pub fn iter(&self) -> impl Iterator<Item = &Profile> {
        self.by_id.values()
    }

    /// The GPU with this id, if it exists.
    #[must_use]
    pub fn find(&self, id: &str) -> Option<&Profile> {
        self.by_id.get(id)
    }

    /// The GPU with this id.
    ///
    /// # Errors
    /// [`GpuError::Unknown`] if no GPU has this id; its help suggests the nearest id.
    pub fn get(&self, id: &str) -> Result<&Profile, GpuError> {
        self.find(id).ok_or_else(|| GpuError::Unknown {
            id: id.to_owned(),
            help: self.nearest(id).map_or_else(
                || "run `cargo vram gpus` to list all GPUs, or add one to `gpu_profiles:` in budgets.yaml".to_owned(),
                |near| format!("did you mean `{near}`? run `cargo vram gpus` to list all GPUs"),
            ),
        })
    }

    /// The GPU that the driver calls `name`. If several match, the one whose total memory is nearest to `total`; of those,
    /// the one that the limits are for, or else a built-in one.
    #[must_use]
    pub fn find_by_name(&self, name: &str, total: Bytes) -> Option<&Profile> {
        self.iter()
            .filter(|profile| profile.name == name || profile.also_named.iter().any(|other| other == name))
            // A user may add the same name with another size of memory, and totals vary a little in any case.
            .min_by_key(|profile| {
                let is_own = self.own.contains(&profile.id);
                let is_other = self.preferred.as_ref() != Some(&profile.id);
                (profile.total.value.0.abs_diff(total.0), is_other, is_own)
            })
    }

    /// Sets the GPU that the limits are for.
    pub fn prefer(&mut self, id: &str) {
        self.preferred = Some(id.to_owned());
    }

    /// The id that the user most likely meant by the unknown `id`, if one is similar enough.
    #[must_use]
    pub fn nearest(&self, id: &str) -> Option<&str> {
        let id = id.trim().to_ascii_lowercase();
        // A single letter is in nearly every id.
        let part = |known: &&str| id.len() > 1 && known.contains(id.as_str());
        self.ids().find(part).or_else(|| {
            self.ids()
                .map(|known| (crate::names::similarity(&id, known), known))
                .filter(|(score, _)| *score >= NEAR_ENOUGH)
                .max_by(|(a, _), (b, _)| a.total_cmp(b))
                .map(|(_, known)| known)
        })
    }

    /// Adds a user's GPU: the values of the GPU `like`, with `overrides` applied.
    ///
    /// Inherited values become assumptions because they were read from another GPU.
    ///
    /// # Errors
    /// If `id` is taken or not valid, if `like` or the compute capability is unknown, or if a value is one that no GPU
    /// can have.
    pub fn add_like(&mut self, id: &str, like: &str, overrides: Overrides) -> Result<(), GpuError> {
        let like = self.get(like)?;
        let compute_capability = overrides.compute_capability.unwrap_or(like.compute_capability);
        let mut limits = match overrides.compute_capability {
            Some(version) => self.limits_of(version)?,
            None => like.limits.clone(),
        };
        // After the capability, because that replaces all limits at once.
        if let Some(shared) = overrides.shared_memory_per_block_optin {
            limits.shared_per_block_optin = shared;
        }
        let profile = Profile {
            id: id.to_owned(),
            name: overrides.name.unwrap_or_else(|| like.name.clone()),
            // Recorded autotune choices apply only to the same compute capability: others have other kernels.
            like: Some(like.id.clone()).filter(|_| compute_capability == like.compute_capability),
            // A real GPU is looked up by its name, and these names belong to the built-in GPU.
            also_named: Vec::new(),
            total: stated_or_inherited(overrides.total, &like.total, &like.id),
            compute_capability,
            sm_count: stated_or_inherited(overrides.sm_count, &like.sm_count, &like.id),
            l2_cache: stated_or_inherited(None, &like.l2_cache, &like.id),
            limits,
            context: stated_or_inherited(overrides.context, &like.context, &like.id),
            modules: like.modules.clone(),
        };
        self.insert(profile)?;
        self.own.insert(id.to_owned());
        Ok(())
    }

    fn insert(&mut self, profile: Profile) -> Result<(), GpuError> {
        if !is_id(&profile.id) {
            return Err(GpuError::Id { id: profile.id });
        }
        if self.by_id.contains_key(&profile.id) {
            return Err(GpuError::Duplicate { id: profile.id });
        }
        profile.check()?;
        self.by_id.insert(profile.id.clone(), profile);
        Ok(())
    }

    fn limits_of(&self, version: (u32, u32)) -> Result<GpuLimits, GpuError> {
        self.limits.get(&version).cloned().ok_or_else(|| {
            let known: Vec<_> = self
                .limits
                .keys()
                .map(|(major, minor)| format!("{major}.{minor}"))
                .collect();
            GpuError::ComputeCapability {
                major: version.0,
                minor: version.1,
                known: known.join(", "),
            }
        })
    }
}

/// Whether the text is a valid id: short, lower case, and safe on a command line and in a file name.
///
/// A number is not an id because it has another meaning under a model's `gpus`: the place of one of several GPUs.
pub(crate) fn is_id(id: &str) -> bool {
    let plain = |c: char| c.is_ascii_lowercase() || c.is_ascii_digit() || c == '-';
    (1..=32).contains(&id.len())
        && id.chars().all(plain)
        && !id.starts_with('-')
        && !id.ends_with('-')
        && !id.bytes().all(|byte| byte.is_ascii_digit())
}

/// Parses `8.6` to `(8, 6)`.
fn parse_version(text: &str) -> Result<(u32, u32), GpuError> {
    text.split_once('.')
        .and_then(|(major, minor)| Some((major.parse().ok()?, minor.parse().ok()?)))
        .ok_or_else(|| GpuError::BuiltIn(format!("`{text}` is not a compute capability")))
}

/// The value that the user states, or else the inherited value as an assumption.
fn stated_or_inherited<T: Clone>(stated: Option<T>, inherited: &Sourced<T>, from: &str) -> Sourced<T> {
    match stated {
        Some(value) => Sourced::new(value, Provenance::from_document("gpu_profiles in budgets.yaml")),
        None => Sourced::new(
            inherited.value.clone(),
            Provenance::from_assumption(format!("as on `{from}` ({})", inherited.provenance)),
        ),
    }
}

#[cfg(test)]
mod tests;
