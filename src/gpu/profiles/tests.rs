//! Tests of the built-in GPUs and of users' GPUs.

use super::*;
use crate::report::{Obtained, ProcessOverhead};

fn builtin() -> Profiles {
    Profiles::builtin().unwrap()
}

fn with(id: &str, like: &str, overrides: Overrides) -> Result<Profile, GpuError> {
    let mut profiles = builtin();
    profiles.add_like(id, like, overrides)?;
    Ok(profiles.find(id).unwrap().clone())
}

#[test]
fn the_promised_gpus_are_built_in() {
    let profiles = builtin();
    let ids: Vec<_> = profiles.ids().collect();
    assert_eq!(
        ids.join(" "),
        "a100-40gb a100-80gb a10g b200 gtx-1650 h100-80gb h200 l4 l40s p100 rtx-3060 rtx-3090 rtx-4090 rtx-5060-ti rtx-5080 rtx-5090 \
         rtx-a6000 t4 v100 v100-32gb"
    );
}

#[test]
fn a_t4_does_not_report_sixteen_gib() {
    let t4 = builtin().find("t4").unwrap().clone();
    assert_eq!(t4.total.value, Bytes(15_637_086_208));
    assert!(t4.total.value < Bytes(16 * Bytes::GIB.0));
}

#[test]
fn no_gpu_reports_the_memory_it_is_sold_with() {
    let sold = [
        ("p100", 16),
        ("rtx-4090", 24),
        ("l4", 24),
        ("l40s", 48),
        ("a100-80gb", 80),
        ("h100-80gb", 80),
        ("b200", 180),
    ];
    for (id, gib) in sold {
        assert!(builtin().find(id).unwrap().total.value < Bytes(gib << 30), "{id}");
    }
}

#[test]
fn every_profile_names_a_source_for_every_figure() {
    for profile in builtin().iter() {
        let Profile {
            total,
            sm_count,
            l2_cache,
            context,
            modules,
            limits,
            ..
        } = profile;
        for provenance in [
            &total.provenance,
            &sm_count.provenance,
            &l2_cache.provenance,
            &context.provenance,
            &modules.provenance,
        ] {
            assert!(provenance.source.len() > 10, "{}: {provenance}", profile.id);
            assert!(
                !provenance.source.ends_with('.'),
                "{}: a source is a part of a sentence, so it has no full stop: {provenance}",
                profile.id
            );
        }
        assert!(!limits.source.is_empty(), "{}", profile.id);
        assert!(!total.provenance.is_assumed(), "{}: no total is assumed", profile.id);
    }
}

#[test]
fn ids_are_short_and_lower_case() {
    for id in builtin().ids() {
        assert!(is_id(id) && id.len() <= 11, "{id}");
    }
    for bad in [
        "",
        "L4",
        "lab GPU",
        "lab/GPU",
        "-l4",
        "l4-",
        "210",
        "é",
        &"x".repeat(33),
    ] {
        assert!(!is_id(bad), "{bad}");
        assert!(
            matches!(with(bad, "l4", Overrides::default()), Err(GpuError::Id { .. })),
            "{bad}"
        );
    }
}

#[test]
fn contexts_are_the_published_ones() {
    // In MiB: the total memory of an idle GPU minus its free memory.
    for (id, mib) in [
        ("l4", 194),
        ("rtx-4090", 412),
        ("v100", 303),
        ("rtx-3060", 113),
        ("rtx-5060-ti", 137),
        ("gtx-1650", 56),
        ("t4", 105),
        ("rtx-3090", 265),
        ("rtx-5090", 521),
        ("h100-80gb", 527),
    ] {
        let context = builtin().find(id).unwrap().context.clone();
        assert_eq!(context.value, Bytes(mib << 20), "{id}");
        assert!(context.provenance.obtained == Obtained::Measured, "{id}");
    }
    // Nobody published the contexts of these GPUs.
    for id in ["rtx-5080", "rtx-a6000", "l40s", "a10g", "b200"] {
        assert!(builtin().find(id).unwrap().context.provenance.is_assumed(), "{id}");
    }
}

#[test]
fn of_two_contexts_that_counts_which_belongs_to_the_total() {
    let profiles = builtin();
    let rtx_4090 = profiles.find("rtx-4090").unwrap();
    assert_eq!(rtx_4090.context.readings, Some((Bytes(392 << 20), Bytes(412 << 20))));
    // With CUDA 13.0, a published log shows 23668 MiB free, rounded down to MiB.
    let free = rtx_4090.total.value - rtx_4090.context.value;
    assert_eq!(free.0 >> 20, 23_668);
    let v100 = profiles.find("v100").unwrap();
    assert_eq!(v100.context.readings, Some((Bytes(303 << 20), Bytes(319 << 20))));
    assert_eq!((v100.total.value - v100.context.value).0 >> 20, 15_841);
}

#[test]
fn one_tensor_is_at_most_a_quarter_of_the_gpu() {
    // tracel-ai/burn#4005: an L4 refuses 10,909,384,704 bytes while it is empty.
    let l4 = builtin().find("l4").unwrap().clone();
    assert_eq!(l4.largest_tensor(), Bytes(5_914_755_072));
    // tracel-ai/cubecl#1401 lists the page sizes of an RTX 4090. They follow from the largest one.
    assert_eq!(crate::gpu::largest_tensor(Bytes(25_227_100_160)), Bytes(6_306_775_040));
    assert_eq!(crate::gpu::largest_tensor(Bytes(4 * 512 + 511)), Bytes(512));
}

#[test]
fn a_calculated_context_is_two_kib_a_resident_thread() {
    let mut calculated = 0;
    for profile in builtin()
        .iter()
        .filter(|p| p.context.provenance.source.starts_with("2 KiB for each of"))
    {
        let threads = u64::from(profile.sm_count.value) * u64::from(profile.limits.max_threads_per_sm);
        assert_eq!(profile.context.value, Bytes(threads * 2048), "{}", profile.id);
        calculated += 1;
    }
    assert!(calculated > 0);
}

#[test]
fn what_is_available_leaves_out_context_and_modules() {
    for profile in builtin().iter() {
        assert_eq!(
            profile.available() + profile.context.value + profile.modules.value,
            profile.total.value,
            "{}",
            profile.id
        );
    }
    let t4 = builtin().find("t4").unwrap().available();
    assert_eq!(t4, Bytes(15_637_086_208 - (105 << 20) - (32 << 20)));
}

#[test]
fn assumed_figures_are_told_and_measured_ones_are_not() {
    let profiles = builtin();
    let a10g = profiles.find("a10g").unwrap().assumptions();
    assert_eq!(a10g.len(), 2, "{a10g:?}");
    assert!(
        a10g[0]
            .to_string()
            .starts_with("the CUDA context of `a10g` is assumed to be 240 MiB: 2 KiB for each of"),
        "{a10g:?}"
    );
    assert!(
        a10g[1]
            .to_string()
            .starts_with("the allowance for loaded kernels of `a10g` is assumed to be 32 MiB: "),
        "{a10g:?}"
    );
    assert_eq!(profiles.find("l4").unwrap().assumptions().len(), 1);
    assert_eq!(profiles.find("h100-80gb").unwrap().assumptions().len(), 1);
}

#[test]
fn old_gpus_get_a_cuda_that_still_knows_them() {
    let version = |id: &str| {
        let config = builtin().find(id).unwrap().driver_config();
        config.into_iter().find(|(key, _)| *key == "driver_version").unwrap().1
    };
    assert_eq!(
        (
            version("p100").as_str(),
            version("v100").as_str(),
            version("t4").as_str()
        ),
        ("12090", "12090", "13000")
    );
}

#[test]
fn the_driver_is_told_all_it_asks_for_on_single_lines() {
    let config = builtin().find("l4").unwrap().driver_config();
    let keys: Vec<_> = config.iter().map(|(key, _)| *key).collect();
    assert_eq!(
        keys.join(" "),
        "name total available cc_major cc_minor sm_count warp_size max_threads_per_block max_threads_per_sm max_block_dim \
         max_grid_dim shared_per_block shared_per_block_optin shared_per_sm registers_per_block registers_per_sm l2_cache \
         driver_version nvrtc_version"
    );
    assert!(config.contains(&("max_block_dim", "1024,1024,64".to_owned())));
    assert!(
        config
            .iter()
            .all(|(_, value)| !value.is_empty() && !value.contains(['\n', '=']))
    );
}

#[test]
fn a_users_gpu_inherits_what_it_does_not_override() {
    let overrides = Overrides {
        total: Some(Bytes(20 << 30)),
        ..Overrides::default()
    };
    let gpu = with("lab-gpu", "l4", overrides).unwrap();
    let l4 = builtin().find("l4").unwrap().clone();
    assert_eq!(gpu.total.value, Bytes(20 << 30));
    assert!(!gpu.total.provenance.is_assumed());
    assert_eq!(
        (&gpu.name, &gpu.limits, gpu.sm_count.value),
        (&l4.name, &l4.limits, l4.sm_count.value)
    );
    assert_eq!(gpu.context.value, l4.context.value);
    assert!(
        gpu.context
            .provenance
            .source
            .starts_with("as on `l4` (measured: total 22563 MiB less 22369 MiB"),
        "{}",
        gpu.context.provenance
    );
}

#[test]
fn what_a_users_gpu_inherits_is_assumed_even_where_it_was_measured() {
    let gpu = with(
        "lab-gpu",
        "h100-80gb",
        Overrides {
            sm_count: Some(114),
            ..Overrides::default()
        },
    )
    .unwrap();
    let told = gpu.assumptions();
    assert_eq!(told.len(), 4, "{told:?}");
    assert!(
        told[0]
            .to_string()
            .starts_with("the total memory of `lab-gpu` is assumed to be 79.18 GiB: as on `h100-80gb` (measured:"),
        "{told:?}"
    );
}

#[test]
fn what_was_measured_on_another_gpu_goes_before_assumptions_and_nothing_else() {
    let seen = ProcessOverhead {
        bytes: Bytes(300 << 20),
        obtained: Obtained::Measured,
        source: "NVML".into(),
    };
    let edge = |overrides| with("edge", "h200", overrides).unwrap();
    let like = |gpu: Profile| gpu.measured("h200", Some(&seen), Some(&seen));
    let gpu = like(edge(Overrides {
        total: Some(Bytes(8 << 30)),
        ..Overrides::default()
    }));
    assert_eq!(gpu.available(), Bytes((8 << 30) - (600 << 20)));
    for figure in [&gpu.context, &gpu.modules] {
        assert_eq!(figure.provenance.to_string(), "assumed: as on `h200` (measured: NVML)");
    }
    let stated = like(edge(Overrides {
        context: Some(Bytes(1 << 20)),
        ..Overrides::default()
    }));
    assert_eq!(stated.context.value, Bytes(1 << 20), "a stated value stays");
    let known = Profiles::builtin().unwrap().get("h200").unwrap().clone();
    let known = known.measured("h200", Some(&seen), None);
    assert_eq!(known.context.provenance, Provenance::from_measurement("NVML"));
}

#[test]
fn a_gpu_is_served_by_what_was_recorded_on_the_one_it_is_like_unless_its_kernels_are_others() {
    let like = |overrides| with("edge", "h200", overrides).unwrap().like;
    assert_eq!(like(Overrides::default()).as_deref(), Some("h200"));
    let other = Overrides {
        compute_capability: Some((8, 9)),
        shared_memory_per_block_optin: Some(Bytes(99 << 10)),
        ..Overrides::default()
    };
    assert_eq!(like(other), None);
    assert_eq!(Profiles::builtin().unwrap().get("h200").unwrap().like, None);
}

#[test]
fn a_compute_capability_brings_its_limits() {
    let gpu = with(
        "lab-gpu",
        "l4",
        Overrides {
            compute_capability: Some((9, 0)),
            ..Overrides::default()
        },
    )
    .unwrap();
    assert_eq!(gpu.limits.shared_per_block_optin, Bytes(227 << 10));
    let unknown = with(
        "lab-gpu",
        "l4",
        Overrides {
            compute_capability: Some((8, 5)),
            ..Overrides::default()
        },
    );
    let Err(GpuError::ComputeCapability { known, .. }) = unknown else {
        panic!("{unknown:?}")
    };
    assert_eq!(known, "6.0, 7.0, 7.5, 8.0, 8.6, 8.9, 9.0, 10.0, 12.0");
}

#[test]
fn figures_that_no_gpu_can_have_are_refused() {
    let too_small = Overrides {
        total: Some(Bytes(100 << 20)),
        ..Overrides::default()
    };
    assert!(matches!(
        with("lab-gpu", "l4", too_small),
        Err(GpuError::TooSmall { .. })
    ));
    let absurd = Overrides {
        context: Some(Bytes(u64::MAX)),
        ..Overrides::default()
    };
    assert!(matches!(with("lab-gpu", "l4", absurd), Err(GpuError::TooSmall { .. })));
    for (key, overrides) in [
        (
            "sm_count",
            Overrides {
                sm_count: Some(0),
                ..Overrides::default()
            },
        ),
        (
            "name",
            Overrides {
                name: Some("two\nlines".to_owned()),
                ..Overrides::default()
            },
        ),
        (
            "shared_memory_per_block_optin",
            Overrides {
                shared_memory_per_block_optin: Some(Bytes(1 << 20)),
                ..Overrides::default()
            },
        ),
        (
            "shared_memory_per_block_optin",
            Overrides {
                shared_memory_per_block_optin: Some(Bytes(1)),
                ..Overrides::default()
            },
        ),
    ] {
        let refused = with("lab-gpu", "l4", overrides);
        assert!(
            matches!(&refused, Err(GpuError::Figure { key: found, .. }) if *found == key),
            "{key}: {refused:?}"
        );
    }
}

#[test]
fn an_id_is_given_once() {
    assert!(matches!(
        with("t4", "l4", Overrides::default()),
        Err(GpuError::Duplicate { .. })
    ));
}

#[test]
fn an_unknown_gpu_suggests_the_nearest() {
    let profiles = builtin();
    let expected = [
        ("A100-80GB", "a100-80gb"),
        ("h100", "h100-80gb"),
        ("rtx4090", "rtx-4090"),
        ("5090", "rtx-5090"),
        ("a10", "a100-40gb"),
        ("l40", "l40s"),
    ];
    for (asked, meant) in expected {
        assert_eq!(profiles.nearest(asked), Some(meant), "{asked}");
    }
    assert_eq!(profiles.nearest("quadro"), None);
    let error = profiles.get("rtx4090").unwrap_err();
    let GpuError::Unknown { help, .. } = error else {
        panic!("{error:?}")
    };
    assert!(help.starts_with("did you mean `rtx-4090`?"), "{help}");
}

#[test]
fn a_real_gpu_is_found_by_the_drivers_name() {
    let profiles = builtin();
    let found = |name: &str, total: u64| profiles.find_by_name(name, Bytes(total)).map(|p| p.id.clone());
    assert_eq!(
        found("NVIDIA A100 80GB PCIe", 84_987_740_160).as_deref(),
        Some("a100-80gb")
    );
    assert_eq!(found("NVIDIA H200", 150_021_734_400).as_deref(), Some("h200"));
    assert_eq!(found("NVIDIA GeForce GTX 680", 2_097_152_000), None);
    // A user's GPU with the name and the total of a built-in one takes its place only if the limits are for it, whatever
    // the ids are.
    for id in ["a-gpu", "z-gpu"] {
        let mut profiles = builtin();
        let l4 = profiles.get("l4").unwrap().clone();
        profiles.add_like(id, "l4", Overrides::default()).unwrap();
        for (preferred, expected) in [("t4", "l4"), ("l4", "l4"), (id, id)] {
            profiles.prefer(preferred);
            let found = |total: u64| profiles.find_by_name(&l4.name, Bytes(total)).unwrap().id.clone();
            assert_eq!(found(l4.total.value.0), expected);
            assert_eq!(found(l4.total.value.0 - 1), expected);
        }
    }
}

#[test]
fn a_fingerprint_changes_with_the_gpu() {
    let gpu = with(
        "lab-gpu",
        "l4",
        Overrides {
            context: Some(Bytes(200 << 20)),
            ..Overrides::default()
        },
    )
    .unwrap();
    let l4 = builtin().find("l4").unwrap().fingerprint();
    assert_eq!(l4.len(), 64);
    assert_ne!(gpu.fingerprint(), l4);
    assert_eq!(crate::gpu::fingerprint().len(), 64);
}

#[test]
fn an_unknown_key_in_the_data_is_refused() {
    let data = DATA.replacen("warp_size = 32", "warp_size = 32\nwarps = 1", 1);
    let error = Profiles::parse(&data).unwrap_err();
    assert!(error.to_string().contains("warps"), "{error}");
}
