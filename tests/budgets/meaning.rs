//! The meaning of valid files.

use std::time::Duration;

use cargo_vram::bytes::Bytes;
use cargo_vram::report::Metric;

use super::good;

/// The file in the documentation.
const FULL: &str = "\
version: 1
gpu: l4                              # the GPU that budgets are written for
defaults:                            # each key may stand in a model, too
  growth: { live: { fail: 5%, warn: 2%, ignore: 16 MiB } }   # against budgets.lock
  drift: { warn: 2%, fail: 5% }
  timeout: 10 min
gpu_profiles:
  lab-gpu: { like: l4, total: 20 GiB, sm_count: 40, compute_capability: 8.9, shared_memory_per_block_optin: 99 KiB, name: Lab GPU }
models:
  resnet18:
    inputs: { batch_size: 32 }
    live: 900 MiB                    # short for { fail: 900 MiB }
    reserved: { fail: 2 GiB, warn: 1.8 GiB }
    process: 2.5 GiB
    cold: { reserved: 6 GiB }
    gpus: { h200: { reserved: 4 GiB }, lab-gpu: { cold: { process: 3 GiB } } }
  resnet18-b128: { model: resnet18, inputs: { batch_size: 128 }, reserved: 5 GiB, timeout: 1 h }
  zoo/vgg16: { live: 7 GB, growth: { reserved: { warn: 1% } } }
";

#[test]
fn limits_are_read_with_their_places() {
    let budgets = good(FULL);
    let resnet = &budgets.models[0];
    let reserved = resnet.limits.warm.get(Metric::Reserved).unwrap();
    assert_eq!(reserved.fail.unwrap().value, Bytes(2 << 30));
    assert_eq!(reserved.warn.unwrap().value, Bytes(1_932_735_283));
    let place = budgets.position(reserved.warn.unwrap().span);
    assert_eq!((place.line, place.column), (13, 36));
    assert_eq!(
        resnet.limits.warm.live.as_ref().unwrap().fail.unwrap().value,
        Bytes(900 << 20)
    );
    assert_eq!(resnet.limits.warm.live.as_ref().unwrap().warn, None);
    assert_eq!(
        resnet.limits.cold.reserved.as_ref().unwrap().fail.unwrap().value,
        Bytes(6 << 30)
    );
    assert_eq!(
        resnet.input_values().into_iter().collect::<Vec<_>>(),
        [("batch_size".to_owned(), 32)]
    );
}

#[test]
fn a_gpu_has_its_own_limits_alone() {
    let budgets = good(FULL);
    let resnet = &budgets.models[0];
    let on = |gpu| resnet.limits_on(gpu, Some("l4"));
    assert!(on("l4").unwrap().warm.live.is_some());
    assert!(on("h200").unwrap().warm.live.is_none());
    assert!(on("h200").unwrap().cold.is_empty());
    assert!(on("lab-gpu").unwrap().cold.process.is_some());
    assert!(on("t4").is_none());
}

#[test]
fn limits_of_the_declared_gpu_may_stand_under_its_id_where_the_top_has_none() {
    let budgets = good("version: 1\ngpu: l4\nmodels: { a: { gpus: { l4: { live: 1 GiB } } } }\n");
    assert!(budgets.models[0].limits_on("l4", Some("l4")).is_some());
}

#[test]
fn a_model_has_every_budget_that_names_it() {
    let budgets = good(FULL);
    let names = |package, model| {
        budgets
            .for_model(package, model)
            .iter()
            .map(|budget| budget.name.value.clone())
            .collect::<Vec<_>>()
    };
    assert_eq!(names("any", "resnet18"), ["resnet18", "resnet18-b128"]);
    assert_eq!(names("zoo", "vgg16"), ["vgg16"]);
    assert_eq!(names("other", "vgg16"), [""; 0]);
    assert_eq!(budgets.models[0].report_name(), None);
    assert_eq!(budgets.models[1].report_name(), Some("resnet18-b128"));
    assert_eq!(budgets.models[2].report_name(), None);
}

#[test]
fn a_setting_of_a_model_replaces_the_default_whole() {
    let budgets = good(FULL);
    let [resnet, large, vgg] = [0, 1, 2].map(|index| &budgets.models[index].settings);
    assert_eq!(resnet.timeout.unwrap().value, Duration::from_secs(600));
    assert_eq!(large.timeout.unwrap().value, Duration::from_secs(3600));
    assert_eq!(vgg.timeout.unwrap().value, Duration::from_secs(600));
    let live = resnet.growth.as_ref().unwrap().get(Metric::Live).unwrap();
    assert_eq!(live.limit.fail.unwrap().value.parts_per_million(), 50_000);
    assert_eq!(live.ignore.unwrap().value, Bytes(16 << 20));
    assert_eq!(vgg.growth.as_ref().unwrap().get(Metric::Live), None);
    assert_eq!(
        vgg.growth
            .as_ref()
            .unwrap()
            .get(Metric::Reserved)
            .unwrap()
            .limit
            .warn
            .unwrap()
            .value
            .to_string(),
        "1%"
    );
    assert_eq!(vgg.drift.as_ref().unwrap().fail.unwrap().value.to_string(), "5%");
}

#[test]
fn a_profile_is_what_differs_from_a_built_in_gpu() {
    let budgets = good(FULL);
    let gpu = &budgets.gpu_profiles["lab-gpu"];
    assert_eq!(gpu.like.value, "l4");
    assert_eq!(gpu.total.unwrap().value, Bytes(20 << 30));
    assert_eq!(gpu.sm_count.unwrap().value, 40);
    assert_eq!(gpu.compute_capability.unwrap().value, (8, 9));
    assert_eq!(gpu.shared_memory_per_block_optin.unwrap().value, Bytes(99 << 10));
    assert_eq!(gpu.name.as_ref().unwrap().value, "Lab GPU");
    assert_eq!(gpu.context, None);
    let error = budgets.error_at(gpu.span, "gpu::too-small", "nothing is left".to_owned(), None);
    assert_eq!(error.problems()[0].to_string(), "budgets.yaml:8:3: nothing is left");
}

#[test]
fn a_file_may_be_quoted_commented_and_json() {
    assert_eq!(good("---\n'version': \"1\"\n# nothing more\n").models.len(), 0);
    let json = r#"{"version": 1, "gpu": "l4", "models": {"a": {"reserved": {"fail": "2 GiB"}}}}"#;
    assert_eq!(
        good(json).models[0]
            .limits
            .warm
            .reserved
            .as_ref()
            .unwrap()
            .fail
            .unwrap()
            .value,
        Bytes(2 << 30)
    );
}

#[test]
fn a_model_without_limits_is_no_mistake() {
    assert!(good("version: 1\nmodels: { a: {} }\n").models[0].limits.is_empty());
}
