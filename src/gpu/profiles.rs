//! All known cards: the built-in ones and the user's.

mod detected;

use std::collections::BTreeMap;

use serde::Deserialize;

use super::{DATA, GpuError, Limits, Profile, Provenance, Sourced};
use crate::bytes::Bytes;

/// How near an id must be to be offered, from 0 (nothing in common) to 1 (equal).
const NEAR_ENOUGH: f64 = 0.75;

/// All known cards, by id.
#[derive(Debug, Clone)]
pub struct Profiles {
    by_id: BTreeMap<String, Profile>,
    limits: BTreeMap<(u32, u32), Limits>,
    /// What loaded kernels take, on every card.
    modules: Sourced<Bytes>,
}

/// What a user's card has that the card it is like has not. `gpu_profiles:` in `budgets.yaml`.
#[derive(Debug, Default, Clone, PartialEq, Eq)]
pub struct Overrides {
    /// Total memory, as the driver reports it.
    pub total: Option<Bytes>,
    /// As the driver names it.
    pub name: Option<String>,
    /// Multiprocessors.
    pub sm_count: Option<u32>,
    /// Compute capability, major and minor; brings its own limits.
    pub compute_capability: Option<(u32, u32)>,
    /// Shared memory of a block that opts in to more.
    pub shared_memory_per_block_optin: Option<Bytes>,
    /// What a process holds before its first allocation.
    pub context: Option<Bytes>,
}

/// The data file.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct File {
    modules: Sourced<Bytes>,
    compute_capability: BTreeMap<String, Limits>,
    gpu: BTreeMap<String, Card>,
}

/// A card in the data file.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Card {
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
    /// The cards that come with this program.
    ///
    /// # Errors
    /// [`GpuError::BuiltIn`] where the embedded data is wrong, which a test rules out.
    pub fn builtin() -> Result<Self, GpuError> {
        Self::parse(DATA)
    }

    fn parse(data: &str) -> Result<Self, GpuError> {
        let file: File = toml_edit::de::from_str(data).map_err(|e| GpuError::BuiltIn(e.to_string()))?;
        let limits = file
            .compute_capability
            .into_iter()
            .map(|(version, limits)| Ok((parse_version(&version)?, limits)))
            .collect::<Result<BTreeMap<_, _>, GpuError>>()?;
        let mut profiles = Self {
            by_id: BTreeMap::new(),
            limits,
            modules: file.modules,
        };
        for (id, card) in file.gpu {
            profiles.insert(Profile {
                limits: profiles.limits_of(card.compute_capability)?,
                modules: profiles.modules.clone(),
                id,
                name: card.name,
                like: None,
                also_named: card.also_named,
                total: card.total,
                compute_capability: card.compute_capability,
                sm_count: card.sm_count,
                l2_cache: card.l2_cache,
                context: card.context,
            })?;
        }
        Ok(profiles)
    }

    /// All ids, sorted.
    pub fn ids(&self) -> impl Iterator<Item = &str> {
        self.by_id.keys().map(String::as_str)
    }

    /// All cards, sorted by id.
    pub fn iter(&self) -> impl Iterator<Item = &Profile> {
        self.by_id.values()
    }

    /// The card of this id.
    #[must_use]
    pub fn find(&self, id: &str) -> Option<&Profile> {
        self.by_id.get(id)
    }

    /// The card of this id, or an error that offers the nearest one.
    ///
    /// # Errors
    /// [`GpuError::Unknown`].
    pub fn get(&self, id: &str) -> Result<&Profile, GpuError> {
        self.find(id).ok_or_else(|| GpuError::Unknown {
            id: id.to_owned(),
            help: self.nearest(id).map_or_else(
                || "`cargo vram gpus` lists all; `gpu_profiles:` in budgets.yaml adds one".to_owned(),
                |near| format!("did you mean `{near}`? `cargo vram gpus` lists all"),
            ),
        })
    }

    /// The card that the driver calls `name`. Where several do, the one whose total memory is nearest.
    #[must_use]
    pub fn find_by_name(&self, name: &str, total: Bytes) -> Option<&Profile> {
        self.iter()
            .filter(|profile| profile.name == name || profile.also_named.iter().any(|other| other == name))
            .min_by_key(|profile| profile.total.value.0.abs_diff(total.0))
    }

    /// The id that was most likely meant by one that does not exist, if any is near.
    #[must_use]
    pub fn nearest(&self, id: &str) -> Option<&str> {
        let id = id.trim().to_ascii_lowercase();
        let part = |known: &&str| id.len() > 1 && known.contains(id.as_str());
        self.ids().find(part).or_else(|| {
            self.ids()
                .map(|known| (crate::names::similarity(&id, known), known))
                .filter(|(score, _)| *score >= NEAR_ENOUGH)
                .max_by(|(a, _), (b, _)| a.total_cmp(b))
                .map(|(_, known)| known)
        })
    }

    /// Adds a user's card: the card `like`, with `overrides`. What is inherited is assumed from then on, for it was read on
    /// another card.
    ///
    /// # Errors
    /// An id that is taken or malformed, an unknown `like` or compute capability, and figures that no card can have.
    pub fn add_like(&mut self, id: &str, like: &str, overrides: Overrides) -> Result<(), GpuError> {
        let like = self.get(like)?;
        let compute_capability = overrides.compute_capability.unwrap_or(like.compute_capability);
        let mut limits = match overrides.compute_capability {
            Some(version) => self.limits_of(version)?,
            None => like.limits.clone(),
        };
        if let Some(shared) = overrides.shared_memory_per_block_optin {
            limits.shared_per_block_optin = shared;
        }
        let profile = Profile {
            id: id.to_owned(),
            name: overrides.name.unwrap_or_else(|| like.name.clone()),
            // What was tuned for another architecture is tuned for other kernels.
            like: Some(like.id.clone()).filter(|_| compute_capability == like.compute_capability),
            // A measured card is looked up by name, and a name belongs to the card that is sold under it.
            also_named: Vec::new(),
            total: stated_or_inherited(overrides.total, &like.total, &like.id),
            compute_capability,
            sm_count: stated_or_inherited(overrides.sm_count, &like.sm_count, &like.id),
            l2_cache: stated_or_inherited(None, &like.l2_cache, &like.id),
            limits,
            context: stated_or_inherited(overrides.context, &like.context, &like.id),
            modules: like.modules.clone(),
        };
        self.insert(profile)
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

    fn limits_of(&self, version: (u32, u32)) -> Result<Limits, GpuError> {
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

/// Short, lower case, and safe on a command line and in a file name.
fn is_id(id: &str) -> bool {
    let plain = |c: char| c.is_ascii_lowercase() || c.is_ascii_digit() || c == '-';
    (1..=32).contains(&id.len()) && id.chars().all(plain) && !id.starts_with('-') && !id.ends_with('-')
}

/// `8.6` as (8, 6).
fn parse_version(text: &str) -> Result<(u32, u32), GpuError> {
    text.split_once('.')
        .and_then(|(major, minor)| Some((major.parse().ok()?, minor.parse().ok()?)))
        .ok_or_else(|| GpuError::BuiltIn(format!("`{text}` is no compute capability")))
}

/// The user's figure or, failing that, another card's, which is no more than an assumption here.
fn stated_or_inherited<T: Clone>(stated: Option<T>, inherited: &Sourced<T>, from: &str) -> Sourced<T> {
    match stated {
        Some(value) => Sourced::new(value, Provenance::Documented("gpu_profiles in budgets.yaml".to_owned())),
        None => Sourced::new(
            inherited.value.clone(),
            Provenance::Assumed(format!("as on `{from}` ({})", inherited.provenance)),
        ),
    }
}

#[cfg(test)]
mod tests;
