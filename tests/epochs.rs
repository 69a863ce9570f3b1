//! `fixtures/epochs`: trainings of several epochs that the program runs itself, with Burn's data loaders and learner.

use std::collections::BTreeSet;
use std::process::Command;

use cargo_vram::bytes::Bytes;
use cargo_vram::explain::{Explanation, MemoryHolders};
use cargo_vram::report::{EpochMemory, EpochPhase, ErrorCode, Metric, PlainName, Report, Rule, Run, Status};

use crate::common;

const BUDGETS: &str = "\
version: 1
gpu: rtx-4090
models:
  images_of_four_workers: { reserved: 8 GiB, inputs: { items: 512 } }
  images_without_workers: { reserved: 8 GiB, inputs: { items: 512 } }
  images_of_own_loaders: { reserved: 8 GiB, inputs: { items: 512 } }
  own_loaders_by_hand: { reserved: 8 GiB }
  own_loaders_and_logger: { reserved: 8 GiB }
  own_loaders_stop_early: { reserved: 8 GiB }
  own_loaders_twice: { reserved: 8 GiB }
  own_loaders_unread_items: { reserved: 8 GiB }
  keeps_losses: { reserved: 8 GiB }
  stops_early: { reserved: 8 GiB }
  no_data: { reserved: 8 GiB }
  worker_panics: { reserved: 8 GiB }
  exits: { reserved: 8 GiB }
  wants_a_network: { reserved: 8 GiB }
  fewer_items_than_a_batch: { reserved: 8 GiB }
  prints: { reserved: 8 GiB }
  peeks: { reserved: 8 GiB }
  breaks_off: { reserved: 8 GiB }
  breaks_off_the_second_loader: { reserved: 8 GiB }
  breaks_off_the_validation: { reserved: 8 GiB }
  never_validates: { reserved: 8 GiB }
  every_pass_differs: { reserved: 8 GiB }
  only_reads: { reserved: 8 GiB }
  two_at_once: { reserved: 8 GiB }
  total_of_losses: { reserved: 8 GiB }
  total_of_numbers: { reserved: 8 GiB }
  outputs_of_a_metric: { reserved: 8 GiB }
  gradients_of_all_steps: { reserved: 8 GiB }
  a_copy_of_each_epoch: { reserved: 8 GiB }
  the_best_copy: { reserved: 8 GiB }
  losses_beside_the_best_copy: { reserved: 8 GiB }
  validated_with_autodiff: { reserved: 8 GiB }
  validated: { reserved: 8 GiB }
";

fn check(models: &[&str]) -> (Report, i32, String) {
    check_with(models, |_| {})
}

/// Checks models of the package. `with` changes the command.
fn check_with(models: &[&str], with: impl FnOnce(&mut Command)) -> (Report, i32, String) {
    let (_folder, file) = common::budgets(BUDGETS);
    let manifest = common::manifest("fixtures/epochs");
    let selected = models.iter().flat_map(|model| ["-m", model]);
    let arguments = ["check", "--estimate", "--manifest-path", &manifest, "--budgets", &file];
    let arguments: Vec<&str> = arguments.into_iter().chain(selected).collect();
    common::report_of(&arguments, with)
}

/// Estimates a model of the package. `with` changes the command.
fn estimate(model: &str, more: &[&str], with: impl FnOnce(&mut Command)) -> (Run, i32, String) {
    let manifest = common::manifest("fixtures/epochs");
    let arguments = [
        "estimate",
        "--manifest-path",
        &manifest,
        "--gpu",
        "rtx-4090",
        "-m",
        model,
    ];
    let (mut report, exit, text) = common::report_of(&[&arguments[..], more].concat(), with);
    assert_eq!(report.runs.len(), 1, "{text}");
    (report.runs.remove(0), exit, text)
}

/// The parts of the epochs in which the model is trained or evaluated.
fn parts<'a>(report: &'a Report, model: &str) -> Vec<&'a EpochMemory> {
    let all = common::run(report, model).epochs.iter();
    all.filter(|part| part.part != EpochPhase::Between).collect()
}

/// burn#4792: with Burn 0.21, each epoch starts new threads, and each thread has pools of its own.
#[test]
fn new_threads_of_data_loaders_grow_with_each_epoch_and_fail_the_check() {
    let (report, exit, text) = check(&["images_of_four_workers", "images_without_workers"]);
    assert_eq!(exit, 100, "{text}");

    let grown = parts(&report, "images_of_four_workers");
    let order: Vec<_> = grown.iter().map(|part| (part.epoch, part.part, part.steps)).collect();
    let epoch = |number| [(number, EpochPhase::Training, 4), (number, EpochPhase::Validation, 4)];
    assert_eq!(order, [epoch(1), epoch(2), epoch(3)].concat(), "{text}");
    // One stream of the thread that trains, and one per worker and iteration.
    let streams: Vec<_> = grown.iter().map(|part| (part.streams, part.new_streams)).collect();
    assert_eq!(streams, [(5, 5), (9, 4), (13, 4), (17, 4), (21, 4), (25, 4)], "{text}");
    // After the first part, reserved memory grows by exactly what the new streams hold.
    for pair in grown.windows(2) {
        let rise = pair[1].reserved_end.saturating_sub(pair[0].reserved_end);
        assert_eq!(rise, pair[1].new_streams_reserved, "{text}");
        assert!(rise > Bytes(100 << 20), "{text}");
    }
    // The pages of all parts, and of the times between them, are the reserved memory.
    let mut reserved = 0;
    for part in &common::run(&report, "images_of_four_workers").epochs {
        let pages = part.pages.iter();
        reserved += pages.map(|pages| pages.size.0 as i64 * pages.count).sum::<i64>();
        assert_eq!(reserved, part.reserved_end.0 as i64, "{text}");
    }
    // The driver's count is that of the run.
    let run = common::run(&report, "images_of_four_workers");
    assert_eq!(
        run.peaks.warm.reserved,
        grown.last().map(|part| part.reserved_peak),
        "{text}"
    );

    let leaks: Vec<_> = report
        .verdicts
        .iter()
        .filter(|verdict| verdict.rule == Rule::Leak)
        .collect();
    let [leak] = leaks[..] else { panic!("{text}") };
    assert_eq!(
        (leak.model.as_str(), leak.metric, leak.status),
        ("images_of_four_workers", Some(Metric::Reserved), Status::Fail)
    );
    let message = leak.message.raw();
    assert!(message.contains("pools of 8 new streams hold"), "{text}");
    // A page of each of two pools per stream.
    assert!(message.contains("; in pages: 8 × 94.07 MiB, 8 × 23.52 MiB; "), "{text}");
    assert!(
        message.contains("(these began while the training read the data of benches/vram.rs:"),
        "{text}"
    );

    // The same training with batches made by its own thread: nothing grows.
    let steady = parts(&report, "images_without_workers");
    assert_eq!(steady.len(), 6, "{text}");
    assert!(steady.iter().all(|part| part.streams == 1), "{text}");
    assert!(
        steady
            .windows(2)
            .all(|pair| pair[0].reserved_end == pair[1].reserved_end),
        "{text}"
    );
    assert!(text.contains("epoch 3, validation"), "{text}");
}

/// A project's own function makes its data loaders. Only the log of Burn's learner tells of the epochs.
#[test]
fn a_training_that_makes_its_own_data_loaders_is_seen_by_the_log_of_the_learner() {
    let (report, exit, text) = check(&["images_of_own_loaders", "images_of_four_workers"]);
    assert_eq!(exit, 100, "{text}");
    let [own, passed] = ["images_of_own_loaders", "images_of_four_workers"].map(|model| parts(&report, model));
    let order: Vec<_> = own.iter().map(|part| (part.epoch, part.part, part.steps)).collect();
    // The learner does not log the steps of a validation.
    let epoch = |number| [(number, EpochPhase::Training, 4), (number, EpochPhase::Validation, 1)];
    assert_eq!(order, [epoch(1), epoch(2), epoch(3)].concat(), "{text}");
    // The training parts are those of the same training whose data loaders the tool sees.
    for (own, passed) in own.iter().zip(&passed) {
        assert_eq!(
            (own.streams, own.new_streams, own.new_streams_reserved),
            (passed.streams, passed.new_streams, passed.new_streams_reserved),
            "{text}"
        );
        if own.part == EpochPhase::Training {
            assert_eq!(
                (own.live_peak, own.reserved_peak, own.reserved_end),
                (passed.live_peak, passed.reserved_peak, passed.reserved_end),
                "{text}"
            );
        }
    }
    let run = common::run(&report, "images_of_own_loaders");
    let codes: Vec<_> = run.assumptions.iter().map(|assumption| assumption.code()).collect();
    assert!(codes.contains(&"validation-unseen"), "{codes:?}");
    let leaks = report.verdicts.iter().filter(|verdict| verdict.rule == Rule::Leak);
    let leaks: Vec<_> = leaks
        .map(|leak| (leak.model.as_str(), leak.metric, leak.status))
        .collect();
    let grows = |model| (model, Some(Metric::Reserved), Status::Fail);
    assert_eq!(
        leaks,
        [grows("images_of_four_workers"), grows("images_of_own_loaders")],
        "{text}"
    );
}

/// What the run says of passes that differ by the program's threads.
fn threads_differ(run: &Run, text: &str) -> String {
    let mut assumptions = run.assumptions.iter();
    let differs = assumptions.find(|assumption| assumption.code() == "threads-differ");
    differs.unwrap_or_else(|| panic!("{text}")).to_string()
}

/// Threads of a program may change its work from pass to pass. Without them, another cause must be found.
#[test]
fn an_estimate_whose_passes_differ_says_so_if_threads_are_the_cause_and_fails_otherwise() {
    let marked = |model: &str| {
        let folder = tempfile::tempdir().unwrap();
        estimate(model, &[], |command| {
            command.env("EPOCHS_MARKER", folder.path().join("marker"));
        })
    };
    let (run, exit, text) = marked("later_passes_differ");
    assert_eq!((exit, run.error.is_none()), (0, true), "{text}");
    let differs = threads_differ(&run, &text);
    assert!(differs.contains("two runs can have other values"), "{differs}");
    let (run, exit, text) = marked("later_passes_differ_without_workers");
    assert_eq!(
        (exit, run.error.unwrap().code),
        (101, ErrorCode::Nondeterministic),
        "{text}"
    );
}

#[test]
fn growth_in_either_order_of_the_threads_fails_and_both_peaks_are_reported() {
    let folder = tempfile::tempdir().unwrap();
    let (report, exit, text) = check_with(&["every_pass_differs"], |command| {
        command.env("EPOCHS_MARKER", folder.path().join("marker"));
    });
    assert_eq!(exit, 100, "{text}");
    // Reserved memory grows in each pass, by the worker's pools. Live memory grows in one of the two.
    let leaks = report.verdicts.iter().filter(|verdict| verdict.rule == Rule::Leak);
    let leaks: Vec<_> = leaks.map(|leak| leak.metric).collect();
    assert_eq!(leaks, [Some(Metric::Live), Some(Metric::Reserved)], "{text}");
    let run = common::run(&report, "every_pass_differs");
    let differs = threads_differ(run, &text);
    assert!(differs.contains("live memory peaked at "), "{differs}");
    assert!(
        differs.contains(&format!("and at {}", run.peaks.warm.live.unwrap())),
        "{differs}"
    );
}

#[test]
fn two_runs_of_a_learner_with_workers_agree_in_every_byte() {
    let run = || {
        let shorter = ["--epochs", "2", "--items", "256"];
        let (run, exit, text) = estimate("images_of_four_workers", &shorter, |_| {});
        assert_eq!(exit, 0, "{text}");
        assert_eq!(
            run.inputs,
            [("epochs", 2), ("items", 256)]
                .map(|(name, value)| (PlainName::parse(name).unwrap(), value))
                .into(),
            "{text}"
        );
        (run.peaks, run.epochs, run.steps)
    };
    assert_eq!(run(), run());
}

#[test]
fn a_tensor_that_each_epoch_keeps_is_a_leak() {
    let (report, exit, text) = check(&["keeps_losses"]);
    assert_eq!(exit, 100, "{text}");
    let ends: Vec<_> = parts(&report, "keeps_losses")
        .iter()
        .map(|part| part.in_use_end.0)
        .collect();
    let rises: Vec<_> = ends.windows(2).map(|pair| pair[1] - pair[0]).collect();
    // One loss per epoch, of the allocator's smallest size.
    assert_eq!(rises, [512, 512], "{text}");
    assert!(
        text.contains("live memory grows by 512 B from epoch 2 to epoch 3"),
        "{text}"
    );
}

/// The mistakes of `fixtures/epochs/src/mistakes.rs` that keep tensors: the model, and the line that keeps them.
const KEEPING: [(&str, &str); 5] = [
    ("total_of_losses", "totals.push(total);"),
    ("outputs_of_a_metric", "self.0.push(output);"),
    (
        "gradients_of_all_steps",
        "history.extend(trainer.network.hidden.weight.grad(&gradients));",
    ),
    ("a_copy_of_each_epoch", "copies.push(trainer.network.clone());"),
    // The copy of the best network is as large as a mistake, and is none.
    ("losses_beside_the_best_copy", "losses.push(loss);"),
];

/// Explains a model of the package. Returns the page of the explanation, too.
fn explain(model: &str) -> (Explanation, String) {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("explanation.json");
    let manifest = common::manifest("fixtures/epochs");
    let arguments = ["explain", model, "--manifest-path", &manifest, "--gpu", "rtx-4090"];
    let mut command = common::vram(&[&arguments[..], &["--message-format", "json", "-o"]].concat());
    let output = command.arg(&file).output().unwrap();
    assert!(output.status.success(), "{}", common::said(&output));
    let page = folder.path().join("page.html");
    let report = common::vram(&["report", "-q"])
        .arg(&file)
        .arg("-o")
        .arg(&page)
        .output()
        .unwrap();
    assert!(report.status.success(), "{}", common::said(&report));
    (
        serde_json::from_slice(&std::fs::read(&file).unwrap()).unwrap(),
        std::fs::read_to_string(&page).unwrap(),
    )
}

#[test]
fn each_mistake_is_found_and_explained_by_its_line_and_the_same_loop_without_it_passes() {
    let steady = [
        "total_of_numbers",
        "the_best_copy",
        "validated_with_autodiff",
        "validated",
    ];
    let models: Vec<&str> = KEEPING.iter().map(|(model, _)| *model).chain(steady).collect();
    let (report, exit, text) = check(&models);
    assert_eq!(exit, 100, "{text}");
    let of = |model: &str, rule: Rule| {
        let mut verdicts = report.verdicts.iter();
        verdicts.find(|verdict| verdict.model == model && verdict.rule == rule)
    };
    for (model, line) in KEEPING {
        let leak = of(model, Rule::Leak).unwrap_or_else(|| panic!("{model}: {text}"));
        assert_eq!((leak.status, leak.metric), (Status::Fail, Some(Metric::Live)), "{text}");
        let (explanation, page) = explain(model);
        // As JSON in a script: `&` is escaped.
        assert!(page.contains(line.split('&').next().unwrap()), "{model}");
        let leak = explanation.leak.found().unwrap_or_else(|| panic!("{model}: no leak"));
        let lines: BTreeSet<_> = leak.keepers.iter().map(|keeper| keeper.text.raw()).collect();
        assert_eq!(lines, [line].into(), "{model}");
        // Also tensors that share the memory of another, which no longer exists for the program.
        let tensors: Vec<_> = leak
            .tensors
            .iter()
            .map(|index| &explanation.tensors[*index as usize])
            .collect();
        let holders = MemoryHolders::new(&explanation.tensors);
        assert_eq!(holders.held_by(&tensors), leak.growing.left, "{model}");
        let kept: u64 = leak.keepers.iter().map(|keeper| keeper.tensors.len() as u64).sum();
        assert_eq!(kept, leak.tensors.len() as u64, "{model}");
    }
    for model in steady {
        assert!(of(model, Rule::Leak).is_none(), "{model}: {text}");
    }

    // A validation on the backend of the training is no leak, but each of its steps holds more.
    let [tracked, inner] = ["validated_with_autodiff", "validated"].map(|model| common::run(&report, model));
    let remarks = |run: &Run| -> Vec<String> {
        let all = run
            .assumptions
            .iter()
            .filter(|line| line.code() == "validation-tracked");
        all.map(ToString::to_string).collect()
    };
    let bench = std::fs::read_to_string(common::fixture("fixtures/epochs").join("benches/vram.rs")).unwrap();
    let is_loader = |line: &str| line.contains("training.validation(images::loader::<B>(");
    let line = bench.lines().position(is_loader).unwrap() + 1;
    let [remark] = remarks(tracked).try_into().unwrap();
    assert!(remark.contains(&format!("benches/vram.rs:{line} ")), "{remark}");
    assert_eq!(remarks(inner), Vec::<String>::new());
    let validation = |run: &Run| {
        let parts = run.epochs.iter().filter(|part| part.part == EpochPhase::Validation);
        parts.map(|part| part.live_peak).max().unwrap()
    };
    assert!(validation(tracked) > validation(inner), "{text}");
}

#[test]
fn a_training_that_prints_and_one_with_fewer_items_than_a_batch_run_as_any_other() {
    let (report, exit, text) = check(&["fewer_items_than_a_batch", "prints"]);
    assert_eq!(exit, 0, "{text}");
    assert!(!text.contains("printed"), "{text}");
    let steps = |model: &str| -> Vec<u32> { parts(&report, model).iter().map(|part| part.steps).collect() };
    assert_eq!(steps("fewer_items_than_a_batch"), [1, 1, 1]);
    assert_eq!(steps("prints"), [2, 2, 2]);
    // A batch of 64 images needs less memory than one of 128.
    let peak = |model: &str| parts(&report, model).iter().map(|part| part.live_peak).max();
    assert!(peak("fewer_items_than_a_batch") < peak("prints"), "{text}");
}

#[test]
fn a_training_that_does_not_train_is_an_error() {
    let (report, exit, text) = check(&[
        "stops_early",
        "no_data",
        "worker_panics",
        "peeks",
        "breaks_off",
        "breaks_off_the_second_loader",
        "breaks_off_the_validation",
        "never_validates",
        "only_reads",
        "two_at_once",
        "exits",
        "wants_a_network",
        "own_loaders_by_hand",
        "own_loaders_and_logger",
        "own_loaders_stop_early",
        "own_loaders_twice",
        "own_loaders_unread_items",
    ]);
    assert_eq!(exit, 101, "{text}");
    let error = |model: &str| {
        let error = common::run(&report, model)
            .error
            .as_ref()
            .unwrap_or_else(|| panic!("{text}"));
        (error.code.as_str().to_owned(), error.message.raw().to_owned())
    };
    for (model, expected, part) in [
        ("stops_early", "model-exited", "trained for 1 of 2 epochs"),
        ("no_data", "model-exited", "trained on no batch"),
        ("peeks", "model-exited", "trained for 1 of 2 epochs"),
        ("breaks_off", "model-exited", "trained for 0 of 2 epochs"),
        (
            "breaks_off_the_second_loader",
            "model-exited",
            "trained for 0 of 2 epochs",
        ),
        (
            "breaks_off_the_validation",
            "model-exited",
            "the validation of epoch 1 stopped before its data ended (the data loader of benches/vram.rs:",
        ),
        (
            "never_validates",
            "model-exited",
            "never read the data loader of benches/vram.rs:",
        ),
        ("only_reads", "no-gpu-work", "step 0 of 4 launches no kernel"),
        ("two_at_once", "impossible", "two data loaders at once"),
        ("exits", "model-exited", "before it finished its steps"),
        ("wants_a_network", "model-panicked", "the server of the dataset"),
        ("own_loaders_by_hand", "model-exited", "trained on no batch"),
        ("own_loaders_and_logger", "impossible", "installed a logger before"),
        ("own_loaders_stop_early", "model-exited", "trained for 1 of 2 epochs"),
        ("own_loaders_twice", "impossible", "trains twice"),
        (
            "own_loaders_unread_items",
            "impossible",
            "nothing reads `training.items()`",
        ),
    ] {
        let (code, message) = error(model);
        assert_eq!(code, expected, "{model}: {message}");
        assert!(message.contains(part), "{model}: {message}");
    }
    let (code, message) = error("worker_panics");
    assert_eq!(code, "model-panicked");
    assert!(
        message.contains("cannot be read") && message.contains("dataloader-0"),
        "{message}"
    );
}
