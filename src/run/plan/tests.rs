//! Tests of the plan, with keys that Burn wrote in estimates of the zoo. The recordings are hand-made.

use std::path::Path;

use super::choice::Choice;
use super::*;
use crate::recording::samples::*;
use crate::recording::{Recording, Recordings, RunIdentity, record};
use crate::report::Run;

const DEVICE: &str = "autotune/0.10.0/device-0-0-cuda";

/// The autotune files of a cold pass: module name and keys.
type Files<'a> = &'a [(&'a str, &'a [Tuned])];

/// Makes a recording in which each run has the choices in its files.
fn recording(runs: &[(Run, Files<'_>)]) -> Recording {
    let dir = tempfile::tempdir().unwrap();
    for (run, files) in runs {
        let cold = tempfile::tempdir().unwrap();
        autotune(cold.path(), files);
        let choices = [(RunIdentity::from_run(run), cold.path().to_owned())];
        record(dir.path(), &report(vec![run.clone()]), &choices, &gpu("580.82.07")).unwrap();
    }
    Recordings::load(dir.path()).unwrap().for_gpu("l4").unwrap().clone()
}

/// Returns ResNet-18's first convolution at batch 32. Candidates 0, 2, 3, 4 and 5 run, the others fail.
fn conv() -> Tuned {
    tuned(CONV_LINES, 0)
}

/// Returns the same convolution at batch 64.
fn conv_64() -> Tuned {
    tuned(CONV_LINES, 2)
}

/// Returns the convolution with a changed key.
fn conv_with(change: impl Fn(&mut serde_json::Value)) -> Tuned {
    let mut tuned = conv();
    change(&mut tuned.key["Conv"]);
    tuned
}

fn choice(here: &Tuned, recording: &Recording) -> Choice {
    let run = identity("resnet18", 32);
    choose(CONV, here, Some(Known { recording, run: &run }))
}

fn is(index: usize, basis: Basis) -> Choice {
    Choice { index, basis }
}

#[test]
fn a_recorded_choice_is_taken() {
    let recording = recording(&[(
        measured("resnet18", 32),
        &[(CONV, &[choosing(4, &conv()), choosing(3, &conv_64())])],
    )]);
    assert_eq!(choice(&conv(), &recording), is(4, Basis::Recorded));
    assert_eq!(choice(&conv_64(), &recording), is(3, Basis::Recorded));
}

#[test]
fn without_a_recording_burns_own_choice_is_assumed() {
    assert_eq!(choose(CONV, &conv(), None), is(0, Basis::Assumed));
    let other_module = recording(&[(measured("resnet18", 32), &[(REDUCE, &[tuned(REDUCE_LINES, 0)])])]);
    assert_eq!(choice(&conv(), &other_module), is(0, Basis::Assumed));
}

#[test]
fn a_recorded_choice_that_failed_here_gives_way_to_the_nearest() {
    let recording = recording(&[(
        measured("resnet18", 32),
        &[(CONV, &[choosing(4, &conv()), choosing(3, &conv_64())])],
    )]);
    let here = failing(&["simple_async_cmma"], &conv());
    assert_eq!(choice(&here, &recording), is(3, Basis::Nearest));
    let here = failing(&["simple_async_cmma", "simple_sync_mma"], &conv());
    assert_eq!(choice(&here, &recording), is(0, Basis::Assumed));
}

#[test]
fn a_recorded_choice_that_was_not_tried_here_is_taken() {
    // On the GPU, the group that Burn tries first failed. Here it ran, so Burn never tried the next group.
    let recording = recording(&[(measured("resnet18", 32), &[(CONV, &[choosing(4, &conv())])])]);
    let mut here = conv();
    here.outcomes.retain(|outcome| outcome["Ok"]["index"] != 4);
    here.outcomes
        .push(serde_json::json!({"Err": {"Skip": {"name": "simple_async_cmma"}}}));
    assert_eq!(choice(&here, &recording), is(4, Basis::Recorded));
    // For another key, it is unknown whether this candidate runs.
    here.key["Conv"]["batch_size"] = 64.into();
    assert_eq!(choice(&here, &recording), is(0, Basis::Assumed));
}

#[test]
fn the_nearest_key_decides_and_the_next_where_its_choice_failed_here() {
    let batch = |size: u64| conv_with(|key| key["batch_size"] = size.into());
    let recording = recording(&[(
        measured("resnet18", 32),
        &[(
            CONV,
            &[
                choosing(2, &batch(8)),
                choosing(3, &batch(64)),
                choosing(4, &batch(1024)),
            ],
        )],
    )]);
    assert_eq!(choice(&batch(128), &recording), is(3, Basis::Nearest));
    assert_eq!(choice(&batch(16), &recording), is(2, Basis::Nearest));
    assert_eq!(choice(&batch(4096), &recording), is(4, Basis::Nearest));
    let here = failing(&["simple_sync_mma"], &batch(128));
    assert_eq!(
        choice(&here, &recording),
        is(4, Basis::Nearest),
        "128 is 8 times less than 1024 and 16 times more than 8"
    );
}

#[test]
fn keys_that_differ_in_numbers_only_are_nearer_than_those_of_another_type() {
    let other_type = conv_with(|key| key["dtype"] = "F16".into());
    let far = conv_with(|key| key["batch_size"] = 4096.into());
    let recording = recording(&[(
        measured("vgg16", 16),
        &[(CONV, &[choosing(2, &other_type), choosing(5, &far)])],
    )]);
    assert_eq!(choice(&conv(), &recording), is(5, Basis::Nearest));
}

#[test]
fn a_tie_goes_to_the_first_text() {
    let batch = |size: u64| conv_with(|key| key["batch_size"] = size.into());
    let recording = recording(&[(
        measured("vgg16", 16),
        &[(CONV, &[choosing(2, &batch(64)), choosing(5, &batch(16))])],
    )]);
    assert_eq!(
        choice(&conv(), &recording),
        is(5, Basis::Nearest),
        "\"batch_size\":16 comes before \"batch_size\":64"
    );
}

#[test]
fn other_candidates_make_a_recorded_choice_worthless() {
    let mut recorded = choosing(4, &conv());
    recorded.checksum = "00000000000000000000000000000000".into();
    let recording = recording(&[(measured("resnet18", 32), &[(CONV, &[recorded])])]);
    assert_eq!(choice(&conv(), &recording), is(0, Basis::Assumed));
}

#[test]
fn a_candidate_that_failed_on_the_gpu_for_this_key_is_never_chosen_for_it() {
    // On the GPU, candidates 0 and 2 failed for this key, and 4 was chosen, which fails here.
    let on_gpu = choosing(4, &failing(&["conv_direct", "simple_sync_cmma"], &conv()));
    let here = failing(&["simple_async_cmma"], &conv());
    let alone = recording(&[(measured("resnet18", 32), &[(CONV, std::slice::from_ref(&on_gpu))])]);
    assert_eq!(
        choice(&here, &alone),
        is(3, Basis::Assumed),
        "neither 0 nor 2, although both ran here"
    );
    let near = conv_with(|key| key["batch_size"] = 64.into());
    let far = conv_with(|key| key["batch_size"] = 128.into());
    let with_near = recording(&[(
        measured("resnet18", 32),
        &[(CONV, &[on_gpu.clone(), choosing(2, &near), choosing(5, &far)])],
    )]);
    assert_eq!(choice(&here, &with_near), is(5, Basis::Nearest), "the nearest chose 2");
    // If a candidate ran for this key in another run, its failure may come from a full GPU.
    let ran_elsewhere = failing(&["simple_async_cmma"], &conv());
    let with_other = recording(&[
        (measured("resnet18", 32), &[(CONV, &[on_gpu])]),
        (measured("vgg16", 16), &[(CONV, &[choosing(2, &ran_elsewhere)])]),
    ]);
    assert_eq!(choice(&here, &with_other), is(2, Basis::Recorded));
}

#[test]
fn the_run_itself_goes_before_others_and_then_the_majority() {
    let chosen = [2, 3, 5].map(|index| [choosing(index, &conv())]);
    let others = [("a", 2), ("b", 3), ("c", 3)];
    let choices = |runs: &[(&str, usize)]| -> Recording {
        let files = |index: usize| chosen.iter().find(|tuned| tuned[0].fastest == index).unwrap();
        let files: Vec<_> = runs.iter().map(|(_, index)| [(CONV, &files(*index)[..])]).collect();
        let runs = runs.iter().map(|(model, _)| measured(model, 32));
        recording(
            &runs
                .zip(&files)
                .map(|(run, files)| (run, &files[..]))
                .collect::<Vec<_>>(),
        )
    };
    assert_eq!(choice(&conv(), &choices(&others)), is(3, Basis::Recorded));
    let with_own = [&others[..], &[("resnet18", 5)]].concat();
    assert_eq!(choice(&conv(), &choices(&with_own)), is(5, Basis::Recorded));
}

/// Returns the key text and the choice of each line in a plan's file.
fn planned(plan: &Path, module: &str) -> Vec<(String, usize)> {
    let text = std::fs::read_to_string(plan.join(DEVICE).join(format!("{module}.json.log"))).unwrap_or_default();
    assert!(
        text.is_empty() || text.ends_with('\n'),
        "Burn ignores a last line without its end"
    );
    let lines = text.lines().map(|line| Tuned::parse(line).unwrap());
    lines
        .map(|tuned| {
            assert!(tuned.outcomes.is_empty());
            (canonical(&tuned.key), tuned.fastest)
        })
        .collect()
}

#[test]
fn a_plan_has_every_key_of_the_cold_pass_and_counts_what_its_choices_rest_on() {
    let cold = tempfile::tempdir().unwrap();
    let all: Vec<_> = (0..4).map(|at| tuned(CONV_LINES, at)).collect();
    autotune(cold.path(), &[(CONV, &all), (REDUCE, &[tuned(REDUCE_LINES, 0)])]);
    let file = cold.path().join(DEVICE).join(format!("{REDUCE}.json.log"));
    let whole = std::fs::read_to_string(&file).unwrap();
    std::fs::write(&file, format!("{whole}{}", &whole[..200])).unwrap();
    let recording = recording(&[(
        measured("resnet18", 32),
        &[(CONV, &[choosing(4, &all[0]), choosing(3, &all[1])])],
    )]);
    let run = identity("resnet18", 32);
    let plan = |known| {
        let to = tempfile::tempdir().unwrap();
        let counts = write(cold.path(), &[to.path()], known).unwrap();
        (
            counts,
            planned(to.path(), CONV),
            planned(to.path(), REDUCE),
            count(to.path()),
        )
    };
    let (counts, conv, reduce, count) = plan(None);
    assert_eq!((counts.recorded, counts.nearest, counts.assumed, count), (0, 0, 5, 5));
    assert_eq!(conv.iter().map(|(_, index)| *index).collect::<Vec<_>>(), [0, 0, 0, 0]);
    assert_eq!(reduce.len(), 1, "an incomplete line is not a key");
    let known = Known {
        recording: &recording,
        run: &run,
    };
    let (counts, conv, _, count) = plan(Some(known));
    assert_eq!((counts.recorded, counts.nearest, counts.assumed, count), (2, 2, 1, 5));
    assert_eq!(conv.iter().map(|(_, index)| *index).collect::<Vec<_>>(), [4, 3, 4, 3]);
    assert_eq!(plan(Some(known)), plan(Some(known)), "the same every time");
}

#[test]
fn recorded_keys_that_the_cold_pass_did_not_meet_are_added_and_not_counted() {
    let cold = tempfile::tempdir().unwrap();
    autotune(cold.path(), &[(CONV, &[conv()])]);
    let mut other_candidates = conv();
    other_candidates.checksum = "00000000000000000000000000000000".into();
    let recording = recording(&[
        (
            measured("resnet18", 32),
            &[(CONV, &[choosing(4, &conv()), choosing(5, &conv_64())])],
        ),
        (
            measured("a", 1),
            &[(CONV, &[other_candidates]), (REDUCE, &[tuned(REDUCE_LINES, 1)])],
        ),
    ]);
    let run = identity("resnet18", 32);
    let to = tempfile::tempdir().unwrap();
    let counts = write(
        cold.path(),
        &[to.path()],
        Some(Known {
            recording: &recording,
            run: &run,
        }),
    )
    .unwrap();
    assert_eq!((counts.recorded, counts.nearest, counts.assumed), (1, 0, 0));
    let keys = [canonical(&conv().key), canonical(&conv_64().key)];
    let [met, added] = keys;
    assert_eq!(
        planned(to.path(), CONV),
        [(met, 4), (added, 5)],
        "each key once, because Burn looks up keys without their candidates"
    );
    let reduction = tuned(REDUCE_LINES, 1);
    assert_eq!(
        planned(to.path(), REDUCE),
        [(canonical(&reduction.key), reduction.fastest)]
    );
}

#[test]
fn a_cold_pass_that_tuned_nothing_has_an_empty_plan() {
    let to = tempfile::tempdir().unwrap();
    let counts = write(Path::new("/nonexistent"), &[&to.path().join("plan")], None).unwrap();
    assert_eq!(counts, Autotune::default());
    assert_eq!(count(&to.path().join("plan")), 0);
    assert!(to.path().join("plan").is_dir());
}

#[test]
fn cold_passes_agree_where_they_chose_the_same_for_what_both_met() {
    let of = |files: Files<'_>| {
        let cold = tempfile::tempdir().unwrap();
        autotune(cold.path(), files);
        cold
    };
    // The first candidate is the choice of the other pass. In this pass it had no memory.
    let first = conv().name_of(0).unwrap().to_owned();
    let refused = failing(&[first.as_str()], &conv());
    let one = of(&[(CONV, &[conv()]), (REDUCE, &[tuned(REDUCE_LINES, 0)])]);
    let agrees = |other: Files<'_>| {
        let other = of(other);
        let [there, back] =
            [(&one, &other), (&other, &one)].map(|(one, other)| agree(one.path(), other.path()).unwrap());
        assert_eq!(there, back);
        there
    };
    assert!(agrees(&[(CONV, &[conv(), conv_64()])]));
    assert!(agrees(&[]));
    assert!(!agrees(&[(CONV, &[refused, conv_64()])]));
}
