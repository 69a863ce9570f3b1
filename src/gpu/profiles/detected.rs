//! The profile of a card that is here.

use super::{Profiles, is_id};
use crate::bytes::Bytes;
use crate::gpu::survey::SOURCE;
use crate::gpu::{Device, Profile, Provenance, Sourced};

/// Of each thread that a card can hold resident; see the head of `profiles.toml`.
const CONTEXT_PER_THREAD: u64 = 2 << 10;
/// The longest id.
const LONGEST_ID: usize = 32;

impl Profiles {
    /// What a card looks like to Burn, by its driver's own report. Context and loaded kernels, which no driver reports, are
    /// those of the card of that name or, where none has it, calculated and assumed.
    #[must_use]
    pub fn of_device(&self, device: &Device) -> Profile {
        let known = self.find_by_name(&device.name, device.total);
        Profile {
            id: known.map_or_else(|| self.free_id(&device.name), |known| known.id.clone()),
            name: device.name.clone(),
            like: known.and_then(|known| known.like.clone()),
            also_named: known.map(|known| known.also_named.clone()).unwrap_or_default(),
            total: reported(device.total),
            compute_capability: device.compute_capability,
            sm_count: reported(device.sm_count),
            l2_cache: reported(device.l2_cache),
            limits: device.limits.clone(),
            context: known.map_or_else(|| calculated_context(device), |known| known.context.clone()),
            modules: self.modules.clone(),
        }
    }

    /// What a context takes by calculation, as it is assumed of a card that nobody measured.
    #[must_use]
    pub fn calculated_context(device: &Device) -> Bytes {
        calculated_context(device).value
    }

    /// Whether the limits of a compute capability are in the data.
    #[must_use]
    pub fn knows(&self, compute_capability: (u32, u32)) -> bool {
        self.limits.contains_key(&compute_capability)
    }

    /// The card that a profile is most like: that of its name, else the nearest in compute capability and then in total
    /// memory. None where there are no cards.
    #[must_use]
    pub fn most_like(&self, profile: &Profile) -> Option<&Profile> {
        let by_name = self.find_by_name(&profile.name, profile.total.value);
        by_name.or_else(|| {
            self.iter().min_by_key(|other| {
                let (major, minor) = profile.compute_capability;
                let (other_major, other_minor) = other.compute_capability;
                (
                    major.abs_diff(other_major),
                    minor.abs_diff(other_minor),
                    profile.total.value.0.abs_diff(other.total.value.0),
                )
            })
        })
    }

    /// An id made of a name, that no other card has: `rtx-4060` of `NVIDIA GeForce RTX 4060`.
    #[must_use]
    pub fn free_id(&self, name: &str) -> String {
        let id = id_of(name);
        if self.find(&id).is_none() {
            return id;
        }
        // The one of that id is another card.
        let suffix = "-here";
        let room = LONGEST_ID - suffix.len();
        format!("{}{suffix}", id.get(..room).unwrap_or(&id).trim_end_matches('-'))
    }
}

fn reported<T>(value: T) -> Sourced<T> {
    Sourced::new(value, Provenance::Measured(SOURCE.to_owned()))
}

fn calculated_context(device: &Device) -> Sourced<Bytes> {
    let (sms, threads) = (device.sm_count, device.limits.max_threads_per_sm);
    Sourced::new(
        Bytes(u64::from(sms) * u64::from(threads) * CONTEXT_PER_THREAD),
        Provenance::Assumed(format!("2 KiB for each of {sms} × {threads} resident threads")),
    )
}

fn id_of(name: &str) -> String {
    let lower = name.to_ascii_lowercase();
    let words = lower
        .split(|c: char| !c.is_ascii_alphanumeric())
        .filter(|word| !matches!(*word, "" | "nvidia" | "geforce"));
    let mut id = words.collect::<Vec<_>>().join("-");
    id.truncate(LONGEST_ID);
    let id = id.trim_end_matches('-');
    if is_id(id) { id } else { "card" }.to_owned()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::gpu::survey::tests::device;

    fn builtin() -> Profiles {
        Profiles::builtin().unwrap()
    }

    #[test]
    fn a_card_that_is_known_keeps_what_no_driver_reports() {
        let mut device = device();
        device.total = Bytes(150_021_734_400);
        device.limits.shared_per_sm = Bytes(300 << 10);
        let profiles = builtin();
        let known = profiles.find("h200").unwrap();
        let profile = profiles.of_device(&device);
        assert_eq!(profile.id, "h200");
        assert_eq!(
            (profile.context.clone(), profile.modules.clone()),
            (known.context.clone(), known.modules.clone())
        );
        assert_eq!(profile.total.value, device.total);
        assert_eq!(profile.total.provenance, Provenance::Measured(SOURCE.to_owned()));
        assert_eq!(profile.limits, device.limits);
        // The virtual driver is told the versions that are here, not the newest.
        let told = profile.driver_config();
        assert!(told.contains(&("nvrtc_version", "12.4".to_owned())), "{told:?}");
    }

    #[test]
    fn a_card_that_nobody_knows_is_made_of_its_report() {
        let mut device = device();
        device.name = "NVIDIA GeForce RTX 4060 Ti".to_owned();
        device.compute_capability = (8, 9);
        device.sm_count = 34;
        device.limits.max_threads_per_sm = 1536;
        device.total = Bytes(16_712_000_000);
        let profile = builtin().of_device(&device);
        assert_eq!(profile.id, "rtx-4060-ti");
        assert_eq!(profile.context.value, Bytes(34 * 1536 * 2048));
        let told = profile.assumptions().join("\n");
        assert!(
            told.contains("CUDA context of `rtx-4060-ti`, 102 MiB, is assumed"),
            "{told}"
        );
        assert!(!told.contains("total memory") && !told.contains("SMs,"), "{told}");
    }

    #[test]
    fn every_built_in_card_is_recognised_by_its_own_figures() {
        let profiles = builtin();
        for profile in profiles.iter() {
            let mut device = device();
            device.name.clone_from(&profile.name);
            device.total = profile.total.value;
            device.sm_count = profile.sm_count.value;
            device.compute_capability = profile.compute_capability;
            device.limits = profile.limits.clone();
            device.l2_cache = profile.l2_cache.value;
            let seen = profiles.of_device(&device);
            assert_eq!(seen.id, profile.id);
            assert_eq!(seen.fingerprint(), profile.fingerprint());
            assert_eq!(profiles.most_like(&seen).unwrap().id, profile.id);
        }
    }

    #[test]
    fn any_name_makes_an_id_that_can_be_used() {
        let profiles = builtin();
        for (name, id) in [
            ("NVIDIA A100-SXM4-40GB MIG 3g.20gb", "a100-sxm4-40gb-mig-3g-20gb"),
            ("NVIDIA GeForce GTX 1080", "gtx-1080"),
            ("Quadro RTX 6000", "quadro-rtx-6000"),
            ("", "card"),
            ("NVIDIA", "card"),
            ("日本 GPU", "gpu"),
            ("L4", "l4-here"),
            (
                "a very long name of a card that somebody made up",
                "a-very-long-name-of-a-card-that",
            ),
        ] {
            assert_eq!(profiles.free_id(name), id);
            assert!(is_id(id), "{id}");
        }
    }

    #[test]
    fn an_unknown_card_is_most_like_the_nearest_of_its_generation() {
        let profiles = builtin();
        let like = |capability, total| {
            let mut device = device();
            device.name = "Lab card".to_owned();
            device.compute_capability = capability;
            device.total = Bytes(total);
            profiles.most_like(&profiles.of_device(&device)).unwrap().id.clone()
        };
        assert_eq!(like((8, 9), 16 << 30), "l4");
        assert_eq!(like((8, 9), 48 << 30), "l40s");
        assert_eq!(like((8, 7), 32 << 30), "rtx-3090");
        assert_eq!(like((6, 1), 8 << 30), "p100");
        assert_eq!(like((12, 1), 96 << 30), "rtx-5090");
        assert!(profiles.knows((8, 9)) && !profiles.knows((8, 7)));
    }
}
