//! Tests that read the printed entries for `budgets.yaml` back.

use super::*;
use crate::budget::Budgets;
use crate::gpu::Overrides;

/// A GPU with the limits of a built-in GPU.
fn device(name: &str, like: &str, total: u64) -> SurveyedDevice {
    let profiles = Profiles::builtin().unwrap();
    let like = profiles.find(like).unwrap();
    SurveyedDevice {
        ordinal: 0,
        uuid: "GPU-6f3a0000-0000-0000-0000-000000000001".to_owned(),
        name: name.to_owned(),
        pci: None,
        total: Bytes(total),
        compute_capability: like.compute_capability,
        sm_count: like.sm_count.value,
        l2_cache: like.l2_cache.value,
        limits: like.limits.clone(),
        max_blocks_per_sm: 32,
        memory_bus_width: 192,
        clock_rate: None,
        memory_clock_rate: None,
    }
}

fn survey_of(devices: Vec<SurveyedDevice>) -> Survey {
    let library = |version: &str| LoadedLibrary {
        path: "/usr/lib/x.so".into(),
        version: version.into(),
    };
    Survey {
        driver_version: (13, 0),
        libcuda: library("13.0"),
        libnvrtc: Some(library("12.9")),
        libnvrtc_error: None,
        devices,
        proof: None,
        context: None,
    }
}

fn printed(devices: Vec<SurveyedDevice>) -> String {
    printed_with(devices, &Err("process 4711 uses the GPU".to_owned()))
}

/// Returns the printed text if the measurement of every GPU's context had this result.
fn printed_with(devices: Vec<SurveyedDevice>, context: &Result<Bytes, String>) -> String {
    let profiles = Profiles::builtin().unwrap();
    let survey = survey_of(devices);
    let contexts = vec![context.clone(); survey.devices.len()];
    yaml(&survey, &describe(&profiles, &survey, &contexts))
}

/// Returns all GPUs, including those that a text adds to `budgets.yaml`.
fn read_back(text: &str) -> Profiles {
    let mut profiles = Profiles::builtin().unwrap();
    let known: Vec<_> = profiles.ids().collect();
    let file = format!("version: 1\nmodels: {{}}\n{text}");
    let budgets =
        Budgets::parse(file.as_bytes(), "budgets.yaml", &known).unwrap_or_else(|error| panic!("{error:?}\n{text}"));
    for (id, entry) in &budgets.gpu_profiles {
        let overrides = Overrides {
            total: entry.total.as_ref().map(|it| it.value),
            name: entry.name.as_ref().map(|it| it.value.clone()),
            sm_count: entry.sm_count.as_ref().map(|it| it.value),
            compute_capability: entry.compute_capability.as_ref().map(|it| it.value),
            shared_memory_per_block_optin: entry.shared_memory_per_block_optin.as_ref().map(|it| it.value),
            context: entry.context.as_ref().map(|it| it.value),
        };
        profiles
            .add_like(id, &entry.like.value, overrides)
            .unwrap_or_else(|error| panic!("{error:?}\n{text}"));
    }
    profiles
}

/// Returns the virtual driver's settings for the keys that `budgets.yaml` has and detection writes.
fn told(profile: &Profile) -> Vec<(&'static str, String)> {
    let keys = [
        "name",
        "total",
        "cc_major",
        "cc_minor",
        "sm_count",
        "shared_per_block_optin",
    ];
    let mut told = profile.driver_config();
    told.retain(|(key, _)| keys.contains(key));
    assert_eq!(told.len(), keys.len());
    told
}

#[test]
fn a_gpu_of_ones_own_is_read_back_as_it_was_seen() {
    for (name, like, total) in [
        ("NVIDIA GeForce RTX 4060 Ti", "l4", 16_712_000_000),
        ("NVIDIA H200 NVL", "h200", 150_021_734_400),
        ("NVIDIA H200", "h200", 150_021_734_400),
        ("L4", "l4", 24 << 30),
        ("a \"quoted\" name: with # and \\ in it", "t4", 15 << 30),
    ] {
        let mut device = device(name, like, total);
        device.sm_count += 3;
        device.limits.shared_per_block_optin = Bytes(device.limits.shared_per_block_optin.0 - 1024);
        let text = printed(vec![device.clone()]);
        let profiles = read_back(&text);
        let seen = Profiles::builtin().unwrap().of_device(&device);
        let own = profiles
            .find_by_name(name, Bytes(total))
            .unwrap_or_else(|| panic!("{text}"));
        assert_eq!(told(own), told(&seen), "{text}");
        assert!(text.contains(&format!("`gpu: {}`", own.id)), "{text}");
    }
}

#[test]
fn a_built_in_gpu_needs_no_entry() {
    for profile in Profiles::builtin().unwrap().iter() {
        let text = printed(vec![device(&profile.name, &profile.id, profile.total.value.0)]);
        assert!(text.contains(&format!("`gpu: {}` is enough", profile.id)), "{text}");
        assert!(!text.contains("gpu_profiles"), "{text}");
        read_back(&text);
    }
}

#[test]
fn a_context_that_nobody_measured_is_not_stated() {
    let mut gpu = device("Lab GPU", "l4", 20 << 30);
    gpu.sm_count = 30;
    let text = printed(vec![gpu]);
    assert!(
        text.contains("# the profile uses the context of `l4`, 194 MiB; the calculation (2 KiB for each of 30 × 1536"),
        "{text}"
    );
    assert!(
        text.contains("# the context was not measured: process 4711 uses the GPU"),
        "{text}"
    );
    assert!(!text.contains(" context: "), "{text}");
    let profiles = read_back(&text);
    assert!(
        profiles.find("lab-gpu").unwrap().context.provenance.is_assumed(),
        "{text}"
    );
}

#[test]
fn a_context_that_was_measured_here_is_stated_and_assumed_no_more() {
    let gpu = device("Lab GPU", "l4", 20 << 30);
    let text = printed_with(vec![gpu], &Ok(Bytes(201 << 20)));
    assert!(text.contains("    context: 210763776 B\n"), "{text}");
    assert!(
        !text.contains("not measured") && !text.contains("the calculation"),
        "{text}"
    );
    assert!(text.contains("may have up to 150 MiB more or less"), "{text}");
    let context = read_back(&text).find("lab-gpu").unwrap().context.clone();
    assert_eq!(context.value, Bytes(201 << 20));
    assert!(!context.provenance.is_assumed(), "{text}");
}

#[test]
fn a_built_in_gpu_whose_context_is_another_here_gets_an_entry() {
    let h200 = Profiles::builtin().unwrap().find("h200").unwrap().clone();
    let Bytes(published) = h200.context.value;
    let here = |context: u64| {
        let gpu = device(&h200.name, "h200", h200.total.value.0);
        printed_with(vec![gpu], &Ok(Bytes(context)))
    };
    // Published readings have a precision of 1 MiB, so a smaller difference does not count.
    let same = here(published + (1 << 20) - 1);
    assert!(same.contains("`gpu: h200` is enough"), "{same}");
    let other = here(published + (1 << 20));
    assert!(other.contains("`gpu: h200-here` with the entry below"), "{other}");
    let context = read_back(&other).find("h200-here").unwrap().context.value;
    assert_eq!(context, Bytes(published + (1 << 20)));
}

#[test]
fn a_generation_that_is_not_known_is_said_to_be_taken_for_another() {
    let mut orin = device("Orin", "rtx-3090", 32 << 30);
    orin.compute_capability = (8, 7);
    orin.limits.shared_per_block_optin = Bytes(166_912);
    orin.limits.shared_per_sm = Bytes(167_936);
    let text = printed(vec![orin]);
    assert!(
        text.contains("# compute capability 8.7 is unknown: `like: rtx-3090` sets it to 8.6"),
        "{text}"
    );
    assert!(text.contains("# a block can opt in to 163 KiB"), "{text}");
    assert_eq!(read_back(&text).find("orin").unwrap().compute_capability, (8, 6));
}

#[test]
fn gpus_of_a_kind_are_one_entry_and_gpus_of_two_kinds_two() {
    let mut devices = vec![device("Lab GPU", "l4", 20 << 30); 3];
    for (ordinal, device) in devices.iter_mut().enumerate() {
        device.ordinal = ordinal as u32;
    }
    let text = printed(devices.clone());
    assert_eq!(text.matches("like:").count(), 1, "{text}");
    devices[2].total = Bytes(21 << 30);
    let text = printed(devices);
    let profiles = read_back(&text);
    assert_eq!(profiles.find("lab-gpu").unwrap().total.value, Bytes(20 << 30));
    assert_eq!(profiles.find("lab-gpu-2").unwrap().total.value, Bytes(21 << 30));
}
