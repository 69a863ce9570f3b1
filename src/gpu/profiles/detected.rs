//! The profile of a real GPU in this machine.

use super::{Profiles, is_id};
use crate::bytes::Bytes;
use crate::gpu::survey::SOURCE;
use crate::gpu::{Profile, Provenance, Sourced, SurveyedDevice};

/// Bytes of a calculated context, per thread that the GPU can hold resident; the top of `profiles.toml` has the rule.
const CONTEXT_PER_THREAD: u64 = 2 << 10;
/// The maximum length of an id.
const LONGEST_ID: usize = 32;

impl Profiles {
    /// Makes the profile of a real GPU from the report of its driver.
    ///
    /// No driver reports the size of the context. It comes from the built-in GPU with the same name; if there is none,
    /// it is calculated and marked as an assumption. The memory of loaded kernels is the same for every GPU.
    #[must_use]
    pub fn of_device(&self, device: &SurveyedDevice) -> Profile {
        let known = self.find_by_name(&device.name, device.total);
        Profile {
            id: known.map_or_else(|| self.free_id(&device.name), |known| known.id.clone()),
            name: device.name.clone(),
            like: known.and_then(|known| known.like.clone()),
            also_named: known.map(|known| known.also_named.clone()).unwrap_or_default(),
            // Never the built-in total: those of one GPU differ
            // by up to 150 MiB between machines and drivers.
            total: reported(device.total),
            compute_capability: device.compute_capability,
            sm_count: reported(device.sm_count),
            l2_cache: reported(device.l2_cache),
            limits: device.limits.clone(),
            context: known.map_or_else(|| calculated_context(device), |known| known.context.clone()),
            modules: self.modules.clone(),
        }
    }

    /// The calculated size of a context, which is assumed for a GPU that nobody measured.
    #[must_use]
    pub fn calculated_context(device: &SurveyedDevice) -> Bytes {
        calculated_context(device).value
    }

    /// Whether the built-in data has the limits of a compute capability.
    #[must_use]
    pub fn knows(&self, compute_capability: (u32, u32)) -> bool {
        self.limits.contains_key(&compute_capability)
    }

    /// The GPU that is most similar to `profile`; `None` if there are no GPUs.
    ///
    /// It is the one with the same name, or else the nearest by compute capability and then by total memory.
    #[must_use]
    pub fn most_like(&self, profile: &Profile) -> Option<&Profile> {
        // Without a known name, the capability comes first, because it decides which kernels there are.
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

    /// Makes an id from a driver's name of a GPU: `rtx-4060` from `NVIDIA GeForce RTX 4060`. If the id is taken, adds
    /// `-here`.
    #[must_use]
    pub fn free_id(&self, name: &str) -> String {
        let id = id_of(name);
        if self.find(&id).is_none() {
            return id;
        }
        // This id belongs to another GPU.
        let suffix = "-here";
        let room = LONGEST_ID - suffix.len();
        format!("{}{suffix}", id.get(..room).unwrap_or(&id).trim_end_matches('-'))
    }
}

fn reported<T>(value: T) -> Sourced<T> {
    Sourced::new(value, Provenance::from_measurement(SOURCE))
}

fn calculated_context(device: &SurveyedDevice) -> Sourced<Bytes> {
    let (sms, threads) = (device.sm_count, device.limits.max_threads_per_sm);
    Sourced::new(
        Bytes(u64::from(sms) * u64::from(threads) * CONTEXT_PER_THREAD),
        Provenance::from_assumption(format!("2 KiB for each of {sms} × {threads} resident threads")),
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
    match id {
        id if is_id(id) => id.to_owned(),
        // A bare number is not a valid id: `GeForce 210` becomes `gpu-210`.
        number if is_id(&format!("gpu-{number}")) => format!("gpu-{number}"),
        _ => "gpu".to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::gpu::survey::tests::device;

    fn builtin() -> Profiles {
        Profiles::builtin().unwrap()
    }

    #[test]
    fn a_gpu_that_is_known_keeps_what_no_driver_reports() {
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
        assert_eq!(profile.total.provenance, Provenance::from_measurement(SOURCE));
        assert_eq!(profile.limits, device.limits);
        // The virtual driver gets the CUDA version of this machine, not the newest.
        let told = profile.driver_config();
        assert!(told.contains(&("nvrtc_version", "12.4".to_owned())), "{told:?}");
    }

    #[test]
    fn a_gpu_that_nobody_knows_is_made_of_its_report() {
        let mut device = device();
        device.name = "NVIDIA GeForce RTX 4060 Ti".to_owned();
        device.compute_capability = (8, 9);
        device.sm_count = 34;
        device.limits.max_threads_per_sm = 1536;
        device.total = Bytes(16_712_000_000);
        let profile = builtin().of_device(&device);
        assert_eq!(profile.id, "rtx-4060-ti");
        assert_eq!(profile.context.value, Bytes(34 * 1536 * 2048));
        let told: Vec<_> = profile.assumptions().iter().map(ToString::to_string).collect();
        let told = told.join("\n");
        assert!(
            told.contains("the CUDA context of `rtx-4060-ti` is assumed to be 102 MiB"),
            "{told}"
        );
        assert!(!told.contains("total memory") && !told.contains("SMs,"), "{told}");
    }

    #[test]
    fn every_built_in_gpu_is_recognised_by_its_own_figures() {
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
            ("", "gpu"),
            ("NVIDIA", "gpu"),
            ("日本 GPU", "gpu"),
            ("L4", "l4-here"),
            ("NVIDIA GeForce 210", "gpu-210"),
            (
                "a very long name of a big GPU that somebody made up",
                "a-very-long-name-of-a-big-gpu-th",
            ),
        ] {
            assert_eq!(profiles.free_id(name), id);
            assert!(is_id(id), "{id}");
        }
    }

    #[test]
    fn an_unknown_gpu_is_most_like_the_nearest_of_its_generation() {
        let profiles = builtin();
        let like = |capability, total| {
            let mut device = device();
            device.name = "Lab GPU".to_owned();
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
