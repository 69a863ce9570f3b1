//! Tests of recordings: what is recorded and read back, and what is refused.

use std::path::{Path, PathBuf};

use super::samples::*;
use super::*;
use crate::bytes::Bytes;
use crate::report::{Mode, Oom, Pass, Run, RunError, Tuning};

/// Records runs whose cold passes tuned the sample convolutions.
fn record_runs(dir: &Path, driver: &str, runs: &[Run]) -> Result<Recorded, RecordingError> {
    let cold = tempfile::tempdir().unwrap();
    autotune(cold.path(), &[(CONV, &[tuned(CONV_LINES, 0), tuned(CONV_LINES, 1)])]);
    let choices: Vec<_> = runs
        .iter()
        .map(|run| (RunIdentity::from_run(run), cold.path().to_owned()))
        .collect();
    record(dir, &report(runs.to_vec()), &choices, &gpu(driver))
}

fn recorded(runs: &[Run]) -> (tempfile::TempDir, PathBuf) {
    let dir = tempfile::tempdir().unwrap();
    let recorded = record_runs(dir.path(), "580.82.07", runs).unwrap();
    (dir, recorded.folder)
}

fn texts(folder: &Path) -> Vec<String> {
    ["report.json", "autotune.jsonl", "gpu.json"]
        .map(|file| std::fs::read_to_string(folder.join(file)).unwrap())
        .to_vec()
}

fn refusal_of(change: impl Fn(&mut Run)) -> RecordingRefusal {
    let dir = tempfile::tempdir().unwrap();
    let mut run = measured("resnet18", 32);
    change(&mut run);
    match record_runs(dir.path(), "580.82.07", &[run]) {
        Err(RecordingError::Refused { why, .. }) => {
            assert!(!dir.path().join("l4").exists(), "nothing is written");
            why
        }
        other => panic!("{other:?}"),
    }
}

#[test]
fn what_is_recorded_is_read_back() {
    let (dir, folder) = recorded(&[measured("resnet18", 32)]);
    assert_eq!(folder, dir.path().join("l4/580.82.07"));
    let recordings = Recordings::load(dir.path()).unwrap();
    let recording = recordings.for_gpu("l4").unwrap();
    assert_eq!((recording.gpu(), recording.driver()), ("l4", "580.82.07"));
    assert_eq!(recording.report().runs, [measured("resnet18", 32)]);
    assert_eq!(recording.report().expected, ["zoo/resnet18"]);
    assert_eq!(*recording.gpu_facts(), gpu("580.82.07"));
    assert!(recording.holds(&identity("resnet18", 32)));
    assert!(!recording.holds(&identity("resnet18", 64)));
    let facts: Vec<_> = recording
        .runs()
        .map(|facts| (facts.burn.as_str(), facts.commit.as_deref()))
        .collect();
    assert_eq!(facts, [("0.21.0", Some("abcd"))]);
    let entries = recording.of_module(CONV);
    assert_eq!(entries.len(), 2);
    for at in [0, 1] {
        let tuned = tuned(CONV_LINES, at);
        assert!(
            entries.iter().any(|entry| entry.tuned == tuned),
            "key, choice and every outcome as Burn wrote them"
        );
    }
    assert!(recording.of_module(REDUCE).is_empty());
    assert!(recordings.for_gpu("h200").is_none());
}

#[test]
fn the_files_are_the_same_to_the_byte_whatever_order_things_came_in() {
    let (one, other) = (measured("resnet18", 32), measured("vgg16", 16));
    let (_at_once_dir, at_once) = recorded(&[one.clone(), other.clone()]);
    let (_reversed_dir, reversed) = recorded(&[other.clone(), one.clone()]);
    let (dir, one_by_one) = recorded(std::slice::from_ref(&other));
    record_runs(dir.path(), "580.82.07", std::slice::from_ref(&one)).unwrap();
    assert_eq!(texts(&at_once), texts(&reversed));
    assert_eq!(texts(&at_once), texts(&one_by_one));
    record_runs(dir.path(), "580.82.07", &[one]).unwrap();
    assert_eq!(texts(&at_once), texts(&one_by_one), "recorded once more");
    let left: Vec<_> = std::fs::read_dir(&one_by_one).unwrap().collect();
    assert_eq!(left.len(), 3, "no unfinished file is left");
}

#[test]
fn a_run_that_is_measured_anew_is_replaced_and_others_are_kept() {
    let (dir, _folder) = recorded(&[measured("resnet18", 32), measured("vgg16", 16)]);
    let mut again = measured("resnet18", 32);
    again.peaks.warm.reserved = Some(Bytes(21_000));
    let cold = tempfile::tempdir().unwrap();
    autotune(cold.path(), &[(REDUCE, &[tuned(REDUCE_LINES, 0)])]);
    let mut report = report(vec![again.clone(), measured("resnet18", 64)]);
    report.commit = Some("ef01".into());
    let choices = [32, 64].map(|batch| (identity("resnet18", batch), cold.path().to_owned()));
    let done = record(dir.path(), &report, &choices, &gpu("580.82.07")).unwrap();
    assert_eq!((done.added, done.replaced, done.choices), (1, 1, 2));
    let recordings = Recordings::load(dir.path()).unwrap();
    let recording = recordings.for_gpu("l4").unwrap();
    assert_eq!(
        recording.report().runs,
        [again, measured("resnet18", 64), measured("vgg16", 16)]
    );
    let runs_of = |module: &str| -> Vec<_> {
        recording
            .of_module(module)
            .iter()
            .map(|entry| entry.run.clone())
            .collect()
    };
    assert_eq!(runs_of(CONV), [identity("vgg16", 16), identity("vgg16", 16)]);
    assert_eq!(runs_of(REDUCE), [identity("resnet18", 32), identity("resnet18", 64)]);
    let commits: Vec<_> = recording.runs().map(|facts| facts.commit.as_deref().unwrap()).collect();
    assert_eq!(commits, ["ef01", "ef01", "abcd"], "each run keeps what made it");
}

#[test]
fn an_estimate_is_never_recorded() {
    assert_eq!(refusal_of(|run| run.mode = Mode::Estimate), RecordingRefusal::Estimate);
    let (dir, _folder) = recorded(&[measured("resnet18", 32)]);
    let mut estimate = measured("vgg16", 16);
    estimate.mode = Mode::Estimate;
    record_runs(dir.path(), "580.82.07", &[measured("resnet18", 64), estimate]).unwrap();
    let recordings = Recordings::load(dir.path()).unwrap();
    assert!(!recordings.for_gpu("l4").unwrap().holds(&identity("vgg16", 16)));
}

#[test]
fn only_a_whole_proven_measurement_of_the_whole_gpu_is_recorded() {
    let failed = |run: &mut Run| {
        run.error = Some(RunError {
            code: crate::report::ErrorCode::Panicked,
            message: String::new().into(),
            help: None,
        });
    };
    assert_eq!(
        refusal_of(failed),
        RecordingRefusal::Incomplete(crate::report::ErrorCode::Panicked)
    );
    assert_eq!(
        refusal_of(|run| run.measurement = None),
        RecordingRefusal::NoMeasurement
    );
    assert_eq!(
        refusal_of(|run| run.measurement.as_mut().unwrap().proof.computed = 0),
        RecordingRefusal::NoProof
    );
    assert_eq!(
        refusal_of(|run| run.gpu.id = "h200".into()),
        RecordingRefusal::OtherGpu("h200".into())
    );
    assert_eq!(
        refusal_of(|run| run.measurement.as_mut().unwrap().limit = Some(Bytes::GIB)),
        RecordingRefusal::Limited
    );
    assert_eq!(
        refusal_of(|run| run.measurement.as_mut().unwrap().tuning = Tuning::Replayed),
        RecordingRefusal::Replayed
    );
}

#[test]
fn what_is_refused_is_told_and_keeps_nothing_else_from_being_recorded() {
    let dir = tempfile::tempdir().unwrap();
    let mut unproven = measured("vgg16", 16);
    unproven.measurement.as_mut().unwrap().proof.computed = 0;
    let done = record_runs(dir.path(), "580.82.07", &[unproven, measured("resnet18", 32)]).unwrap();
    assert_eq!(done.refused, [(identity("vgg16", 16), RecordingRefusal::NoProof)]);
    assert_eq!(done.added, 1);
    let twice = [measured("resnet18", 32), measured("resnet18", 32)];
    let done = record_runs(dir.path(), "580.82.07", &twice).unwrap();
    assert_eq!(done.refused, [(identity("resnet18", 32), RecordingRefusal::Twice)]);
    let nothing = record(dir.path(), &report(Vec::new()), &[], &gpu("580.82.07"));
    assert!(matches!(nothing, Err(RecordingError::Nothing)));
    let no_choices = record(
        dir.path(),
        &report(vec![measured("resnet18", 32)]),
        &[],
        &gpu("580.82.07"),
    );
    assert!(matches!(
        no_choices,
        Err(RecordingError::Refused {
            why: RecordingRefusal::NoChoices,
            ..
        })
    ));
}

#[test]
fn a_key_cut_short_at_the_end_is_left_out_and_one_in_the_middle_is_an_error() {
    let dir = tempfile::tempdir().unwrap();
    let cold = tempfile::tempdir().unwrap();
    autotune(cold.path(), &[(CONV, &[tuned(CONV_LINES, 0)])]);
    let file = cold
        .path()
        .join(format!("autotune/0.10.0/device-0-0-cuda/{CONV}.json.log"));
    let whole = std::fs::read_to_string(&file).unwrap();
    let mut run = measured("resnet18", 32);
    run.oom = Some(Oom {
        pass: Pass::Cold,
        gpu_number: None,
        step: None,
        phase: None,
        kernel: None,
        requested: Some(Bytes(1)),
        function: None,
        reserved: Bytes(1),
        live: None,
        available: Bytes(0),
        tensor: None,
    });
    let choices = [(identity("resnet18", 32), cold.path().to_owned())];
    let report = report(vec![run]);
    std::fs::write(&file, format!("{whole}{}", &whole[..100])).unwrap();
    let done = record(dir.path(), &report, &choices, &gpu("580.82.07")).unwrap();
    assert_eq!(done.choices, 1);
    std::fs::write(&file, format!("{}\n{whole}", &whole[..100])).unwrap();
    let error = record(dir.path(), &report, &choices, &gpu("580.82.07")).unwrap_err();
    assert!(error.to_string().contains(&format!("{CONV}.json.log:1: ")), "{error}");
}

#[test]
fn of_several_drivers_the_newest_serves_by_number_and_each_can_be_asked_for() {
    let dir = tempfile::tempdir().unwrap();
    for driver in ["580.82.07", "99.1", "580.105.08"] {
        record_runs(dir.path(), driver, &[measured("resnet18", 32)]).unwrap();
    }
    let recordings = Recordings::load(dir.path()).unwrap();
    let drivers: Vec<_> = recordings.iter().map(Recording::driver).collect();
    assert_eq!(drivers, ["99.1", "580.82.07", "580.105.08"]);
    assert_eq!(recordings.for_gpu("l4").unwrap().driver(), "580.105.08");
    assert_eq!(recordings.for_driver("l4", "99.1").unwrap().driver(), "99.1");
    assert!(recordings.for_driver("l4", "1.0").is_none());
    assert!(recordings.for_driver("h200", "99.1").is_none());
}

#[test]
fn a_gpu_without_a_recording_is_served_by_that_of_the_gpu_it_is_like() {
    let (dir, _folder) = recorded(&[measured("resnet18", 32)]);
    let recordings = Recordings::load(dir.path()).unwrap();
    let gpu = |id, like| recordings.for_estimate(id, like).map(Recording::gpu);
    assert_eq!(gpu("edge", Some("l4")), Some("l4"));
    assert_eq!(gpu("edge", Some("h200")), None);
    assert_eq!(gpu("edge", None), None);
    assert_eq!(gpu("l4", Some("h200")), Some("l4"), "its own goes first");
}

#[test]
fn what_is_measured_is_served_by_the_recording_of_the_driver_that_is_here() {
    let dir = tempfile::tempdir().unwrap();
    for driver in ["535.1", "580.82.07"] {
        record_runs(dir.path(), driver, &[measured("resnet18", 32)]).unwrap();
    }
    let recordings = Recordings::load(dir.path()).unwrap();
    let first = |driver| recordings.for_measurement("l4", driver).next().unwrap().driver();
    assert_eq!(first("535.1"), "535.1");
    assert_eq!(first("550.1"), "580.82.07", "for another driver, the newest one");
    assert!(recordings.for_measurement("h200", "535.1").next().is_none());
}

#[test]
fn a_users_recording_of_a_gpu_goes_before_all_others_of_it() {
    let (own, others) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    record_runs(own.path(), "535.1", &[measured("resnet18", 32)]).unwrap();
    record_runs(others.path(), "580.82.07", &[measured("resnet18", 32)]).unwrap();
    let load = |dir: &tempfile::TempDir| Recordings::load(dir.path()).unwrap();
    assert_eq!(load(&own).or(load(&others)).for_gpu("l4").unwrap().driver(), "535.1");
    assert_eq!(
        Recordings::default().or(load(&others)).for_gpu("l4").unwrap().driver(),
        "580.82.07"
    );
}

#[test]
fn another_recording_is_another_fingerprint() {
    let (one, _one_folder) = recorded(&[measured("resnet18", 32)]);
    let (other, _other_folder) = recorded(&[measured("resnet18", 64)]);
    let print = |dir: &tempfile::TempDir| Recordings::load(dir.path()).unwrap().fingerprint();
    assert_eq!(print(&one), print(&one));
    assert_ne!(print(&one), print(&other));
    assert_ne!(print(&one), Recordings::default().fingerprint());
}

#[test]
fn the_built_in_recordings_can_be_read_and_their_fingerprint_needs_no_reading() {
    let recordings = Recordings::builtin().unwrap();
    assert_eq!(recordings.fingerprint(), fingerprint());
}

#[test]
fn what_is_embedded_is_what_is_there() {
    let on_disk = Recordings::load(&Path::new(env!("CARGO_MANIFEST_DIR")).join("fixtures/recordings")).unwrap();
    let message = "touch src/recording/recordings.rs: it was compiled before a recording was added";
    assert_eq!(Recordings::builtin().unwrap(), on_disk, "{message}");
}

/// Changes one file of a recording and returns the error of loading it, which must have a place, a code and a help.
fn error_after(file: &str, change: impl Fn(&str) -> String) -> String {
    let (dir, folder) = recorded(&[measured("resnet18", 32)]);
    let path = folder.join(file);
    let text = std::fs::read_to_string(&path).unwrap();
    let changed = change(&text);
    assert_ne!(text, changed);
    std::fs::write(&path, changed).unwrap();
    let error = Recordings::load(dir.path()).unwrap_err();
    let text = error.to_string();
    let code = miette::Diagnostic::code(&error).unwrap().to_string();
    assert!(
        code.starts_with("recording::") && miette::Diagnostic::help(&error).is_some(),
        "{text}"
    );
    let merged = record_runs(dir.path(), "580.82.07", &[measured("vgg16", 16)]);
    assert_eq!(
        merged.unwrap_err().to_string(),
        text,
        "recording does not overwrite damaged files"
    );
    text.replace(dir.path().to_str().unwrap(), "")
}

#[test]
fn a_damaged_file_is_an_error_with_its_line() {
    let replace = |from: &'static str, to: &'static str| move |text: &str| text.replacen(from, to, 1);
    let lines = |text: &str, keep: &dyn Fn(usize) -> bool| -> String {
        let kept = text.lines().enumerate().filter(|(at, _)| keep(at + 1));
        kept.map(|(_, line)| format!("{line}\n")).collect()
    };
    type Change<'a> = &'a dyn Fn(&str) -> String;
    let cases: [(&str, Change<'_>, &str); 15] = [
        (
            "report.json",
            &|text| text.replace("\"cores\": 16,", ""),
            "missing field `cores`",
        ),
        (
            "autotune.jsonl",
            &replace("{\"version\":1}", "{\"version\":2}"),
            "autotune.jsonl:1: unsupported format version 2",
        ),
        (
            "autotune.jsonl",
            &|_| String::new(),
            "autotune.jsonl:1: the file is empty",
        ),
        (
            "autotune.jsonl",
            &|text| lines(text, &|at| at != 1),
            "autotune.jsonl:1: the first line must be the version",
        ),
        (
            "autotune.jsonl",
            &|text| lines(text, &|at| at != 2),
            "autotune.jsonl:2: there is no `run` line for zoo/resnet18",
        ),
        (
            "autotune.jsonl",
            &|text| lines(text, &|at| at != 3),
            "autotune.jsonl:3: this candidate does not belong to a key",
        ),
        (
            "autotune.jsonl",
            &|text| lines(text, &|at| at != 5),
            "autotune.jsonl:11: candidates missing for the last key: 1",
        ),
        (
            "autotune.jsonl",
            &|text| text[..text.len() - 30].to_owned(),
            "autotune.jsonl:20: ",
        ),
        (
            "autotune.jsonl",
            &replace("\"fastest\":0", "\"fastest\":9"),
            "autotune.jsonl:11: the chosen candidate 9 is not",
        ),
        (
            "autotune.jsonl",
            &replace(CONV, "../../etc/x"),
            "autotune.jsonl:3: `../../etc/x` is not a valid operation name",
        ),
        (
            "autotune.jsonl",
            &replace("{\"outcome\"", "{\"surprise\""),
            "autotune.jsonl:4: unknown variant",
        ),
        (
            "gpu.json",
            &replace("\"version\": 1", "\"version\": 7"),
            "gpu.json:1: unsupported format version 7",
        ),
        (
            "gpu.json",
            &replace("\"gpu\": \"l4\"", "\"gpu\": \"l40s\""),
            "gpu.json:1: this file is for GPU `l40s` and driver 580.82.07",
        ),
        ("report.json", &replace("\"peaks\"", "\"peeks\""), "report.json:"),
        (
            "report.json",
            &replace("\"version\": 2", "\"version\": \"1\""),
            "report.json:1: `version` is missing or not a number",
        ),
    ];
    for (file, change, expected) in cases {
        let error = error_after(file, change);
        assert!(error.contains(expected), "{error}\nexpected: {expected}");
    }
}

#[test]
fn a_report_whose_measurements_became_estimates_is_refused_when_read_too() {
    let error = error_after("report.json", |text| {
        text.replace("\"mode\": \"measure\"", "\"mode\": \"estimate\"")
    });
    assert!(
        error.contains("cannot use zoo/resnet18 batch_size=32 as a recording: it is an estimate"),
        "{error}"
    );
}

#[test]
fn every_file_cut_short_anywhere_is_an_error_or_whole_and_never_a_panic() {
    let (dir, folder) = recorded(&[measured("resnet18", 32)]);
    for file in ["report.json", "autotune.jsonl", "gpu.json"] {
        let path = folder.join(file);
        let bytes = std::fs::read(&path).unwrap();
        for length in 0..bytes.len() {
            std::fs::write(&path, &bytes[..length]).unwrap();
            let lost_the_end_of_its_last_line = length + 1 == bytes.len();
            assert!(
                Recordings::load(dir.path()).is_err() || lost_the_end_of_its_last_line,
                "{file} {length}"
            );
        }
        std::fs::write(&path, b"\xff\xfe{").unwrap();
        let error = Recordings::load(dir.path()).unwrap_err().to_string();
        assert!(error.contains(":1: this line is not valid UTF-8"), "{error}");
        std::fs::write(&path, "[".repeat(100_000)).unwrap();
        assert!(Recordings::load(dir.path()).is_err(), "deep nesting");
        std::fs::remove_file(&path).unwrap();
        std::fs::create_dir(&path).unwrap();
        assert!(Recordings::load(dir.path()).is_err(), "a folder in place of the file");
        std::fs::remove_dir(&path).unwrap();
        assert!(Recordings::load(dir.path()).is_err(), "no file");
        std::fs::write(&path, &bytes).unwrap();
    }
    Recordings::load(dir.path()).unwrap();
}

#[test]
fn folders_that_are_no_gpu_or_driver_are_errors_and_files_beside_them_are_not() {
    let (dir, _folder) = recorded(&[measured("resnet18", 32)]);
    std::fs::write(dir.path().join("README.md"), "text").unwrap();
    std::fs::create_dir(dir.path().join(".git")).unwrap();
    Recordings::load(dir.path()).unwrap();
    for wrong in ["l4/latest", "l4/580-1", "L4", "a GPU"] {
        std::fs::create_dir_all(dir.path().join(wrong)).unwrap();
        let error = Recordings::load(dir.path()).unwrap_err();
        assert!(matches!(error, RecordingError::Folder { .. }), "{error}");
        std::fs::remove_dir(dir.path().join(wrong)).unwrap();
    }
    let nowhere = Recordings::load(&dir.path().join("nowhere")).unwrap_err();
    assert!(matches!(nowhere, RecordingError::Io { .. }));
    for (gpu, driver) in [("..", "1.0"), ("l4", "../1"), ("", "1.0"), ("l4", "")] {
        let mut facts = super::samples::gpu(driver);
        facts.gpu = gpu.into();
        let outside = record(dir.path(), &report(vec![measured("resnet18", 32)]), &[], &facts);
        assert!(matches!(outside, Err(RecordingError::Folder { .. })), "{gpu}/{driver}");
    }
}
