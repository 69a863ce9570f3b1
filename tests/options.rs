//! Options of commands that no other test tries.

use std::process::Output;

use crate::common;

fn vram(arguments: &[&str]) -> Output {
    let output = common::vram(arguments).output().unwrap();
    assert_eq!(
        output.status.code(),
        Some(0),
        "{arguments:?}: {}",
        common::said(&output)
    );
    output
}

#[test]
fn the_origin_of_each_value_of_a_gpu_is_shown() {
    let plain = String::from_utf8(vram(&["gpus"]).stdout).unwrap();
    let sources = String::from_utf8(vram(&["gpus", "--sources"]).stdout).unwrap();
    assert!(sources.len() > plain.len() && sources.contains("assumed"), "{sources}");
}

#[test]
fn an_estimate_explanation_and_search_can_be_kept_in_files() {
    let folder = tempfile::tempdir().unwrap();
    let path = |name: &str| folder.path().join(name).to_str().unwrap().to_owned();
    let model = ["-p", "zoo", "--gpu", "l4"];

    let (report, keep) = (path("report.json"), path("kept"));
    let checked = [
        "check",
        "-m",
        "sequential_inference",
        "-p",
        "zoo",
        "--estimate",
        "--timeout",
        "5min",
        "--keep",
        &keep,
    ];
    vram(&[&checked[..], &["--message-format", "json", "-o", &report]].concat());
    assert!(std::fs::read_dir(&keep).unwrap().next().is_some());
    // Nothing changed, so there is nothing to print.
    let difference = vram(&["diff", &report, &report, "-q"]);
    assert!(difference.stdout.is_empty(), "{}", common::said(&difference));

    let phases = vram(&[&["explain", "sequential_inference", "--phases"], &model[..]].concat());
    assert!(common::said(&phases).contains("forward"), "{}", common::said(&phases));

    let (found, drawn) = (path("fit.json"), path("fit.svg"));
    let searched = [
        "fit",
        "sequential_inference",
        "--vary",
        "batch_size",
        "--range",
        "1..64",
        "--dtype",
        "f32,f16",
        "--svg",
        &drawn,
    ];
    vram(&[&searched[..], &["--message-format", "json", "-o", &found], &model[..]].concat());
    common::is_valid("fit", &std::fs::read_to_string(&found).unwrap());
    assert!(std::fs::read_to_string(&drawn).unwrap().starts_with("<svg"));
}
