//! What-ifs, through the binary, with a small model that trains with plain SGD.

use cargo_vram::report::{ErrorCode, Report, Run};

use crate::common;

const PACKAGE: &str = "retained-loss-before";
const BUDGETS: &str = "version: 1\ngpu: l4\nmodels:\n  charted: { reserved: 1 GiB }\n";

/// Estimates the model as it is and with what-ifs.
fn estimate(arguments: &[&str]) -> (Report, i32, String) {
    let (_folder, budgets) = common::budgets(BUDGETS);
    let mut all = vec!["estimate", "--manifest-path", common::retained_loss(), "-p", PACKAGE];
    all.extend(["--budgets", &budgets]);
    all.extend(arguments);
    common::report(&all)
}

fn named<'a>(report: &'a Report, what_if: &str) -> &'a Run {
    let runs = report.runs.iter();
    let mut found = runs.filter(|run| run.what_if.to_string() == what_if);
    found.next().unwrap_or_else(|| panic!("there is no run of {what_if:?}"))
}

fn live(run: &Run) -> u64 {
    run.peaks.warm.live.unwrap().0
}

#[test]
fn another_optimizer_keeps_what_it_keeps_and_the_same_has_no_effect() {
    let (report, exit, said) = estimate(&["--optimizer", "sgd,sgd-momentum,adam,adamw"]);
    assert_eq!((exit, report.runs.len()), (0, 5), "{said}");
    let own = named(&report, "");
    assert_eq!(own.label, None);
    let sgd = named(&report, "sgd");
    assert_eq!(sgd.name(), "charted [sgd]");
    // The model trains with SGD anyway, so this what-if changes nothing.
    assert_eq!(sgd.peaks, own.peaks);
    let parameters = own.parameters.unwrap().bytes.0;
    for (what_if, values) in [("sgd-momentum", 1), ("adam", 2), ("adamw", 2)] {
        let more = live(named(&report, what_if)) - live(sgd);
        // The size of each tensor is rounded up to a multiple of 512 bytes.
        let rounded = values * parameters..=values * (parameters + 64 * 512);
        assert!(rounded.contains(&more), "{what_if} keeps {more} of {parameters}");
    }
    let (_folder, budgets) = common::budgets(BUDGETS);
    let shown = common::vram(&[
        "estimate",
        "--manifest-path",
        common::retained_loss(),
        "-p",
        PACKAGE,
        "--budgets",
        &budgets,
        "--optimizer",
        "sgd,adam",
    ]);
    let said = common::said(&{ shown }.output().unwrap());
    let line = |what_if: &str| {
        let mut lines = said
            .lines()
            .filter(|line| line.contains(what_if) && !line.starts_with("done: "));
        lines.next_back().unwrap_or_default().to_owned()
    };
    assert!(line("[sgd]").contains("no effect"), "{said}");
    assert!(line("[adam]").contains('+'), "{said}");
    let without_effect: Vec<_> = said.lines().filter(|line| line.contains("changed no value")).collect();
    assert_eq!(
        without_effect,
        [format!("`--optimizer sgd` changed no value of {PACKAGE}/charted")]
    );
}

#[test]
fn values_make_a_matrix_in_which_each_is_what_it_says() {
    let (report, exit, said) = estimate(&["--dtype", "f32,f16", "--accumulate", "2,4"]);
    assert_eq!((exit, report.runs.len()), (0, 5), "{said}");
    let told: Vec<_> = report.runs.iter().map(|run| run.what_if.to_string()).collect();
    assert_eq!(
        told,
        [
            "",
            "f32, accumulate 2",
            "f32, accumulate 4",
            "f16, accumulate 2",
            "f16, accumulate 4"
        ]
    );
    let halves = |whole: &str, half: &str| {
        let (whole, half) = (live(named(&report, whole)), live(named(&report, half)));
        assert!(half < whole, "{half} of {whole}");
    };
    halves("f32, accumulate 2", "f16, accumulate 2");
    halves("f32, accumulate 4", "f16, accumulate 4");
    let bytes = |what_if: &str| named(&report, what_if).parameters.unwrap().bytes.0;
    assert_eq!(bytes("f16, accumulate 2") * 2, bytes("f32, accumulate 2"));
    // A part of the batch takes as much as the smaller batch; the sum of gradients comes on top.
    assert_eq!(report.runs[1].inputs["batch_size"], 512);
    let (smaller, ..) = estimate(&["--set", "batch_size=256"]);
    assert!(live(named(&report, "f32, accumulate 2")) >= live(&smaller.runs[0]));
    // Without a backward phase, there are no gradients to add up.
    let (forward, ..) = estimate(&["--infer"]);
    assert!(live(named(&forward, "infer")) < live(named(&forward, "")));
}

#[test]
fn what_cannot_be_is_said_and_a_what_if_is_never_accepted() {
    let (report, exit, said) = estimate(&["--accumulate", "3"]);
    assert_eq!(exit, 101);
    assert_eq!(
        named(&report, "accumulate 3").error.as_ref().unwrap().code,
        "impossible"
    );
    assert!(
        said.contains("a batch of 512 cannot be split into 3 equal parts"),
        "{said}"
    );
    // Mixed precision needs training, because only training keeps parameters in f32.
    let (report, exit, said) = estimate(&["--infer", "--dtype", "mixed-f16"]);
    let error = named(&report, "mixed-f16, infer").error.as_ref();
    assert_eq!((exit, error.unwrap().code.as_str()), (101, "impossible"), "{said}");
    assert!(
        said.contains("mixed precision works only in training with `.loss(…).train(…)`: not in inference"),
        "{said}"
    );
    let ended = |arguments: &[&str]| {
        let output = common::vram(arguments).output().unwrap();
        (output.status.code().unwrap(), common::said(&output))
    };
    let (code, said) = ended(&["estimate", "-p", PACKAGE, "--infer", "--optimizer", "sgd"]);
    assert!(code == 2 && said.contains("cannot be used with"), "{said}");
    // A report of what-ifs does not describe the models themselves, so `bless` refuses it.
    let (folder, budgets) = common::budgets(BUDGETS);
    let file = folder.path().join("report.json");
    let (report, ..) = estimate(&["--dtype", "f16"]);
    std::fs::write(&file, serde_json::to_string(&report).unwrap()).unwrap();
    let (code, said) = ended(&["bless", "--report", file.to_str().unwrap(), "--budgets", &budgets]);
    assert!(code != 0 && said.contains("the run is a what-if"), "{code} {said}");
    let lock = std::fs::read_to_string(folder.path().join("budgets.lock")).unwrap_or_default();
    assert!(!lock.contains("f16"), "{lock}");
}

/// In models with their own training loop, all tensors would be in half precision.
#[test]
fn mixed_precision_is_refused_by_every_other_loop() {
    let models = [
        "-m",
        "resnet18_train_step",
        "-m",
        "resnet18_free_form",
        "-m",
        "resnet18_inference",
    ];
    let estimate = [
        "estimate",
        "-p",
        "zoo",
        "--gpu",
        "l4",
        "--set",
        "batch_size=2",
        "--dtype",
        "mixed-f16",
    ];
    let (report, exit, said) = common::report(&[&estimate[..], &models].concat());
    assert_eq!(exit, 101, "{said}");
    let mixed = report.runs.iter().filter(|run| !run.what_if.is_none());
    let codes: Vec<_> = mixed.map(|run| run.error.as_ref().map(|error| &error.code)).collect();
    assert_eq!(codes, [Some(&ErrorCode::Impossible); 3], "{said}");
}

#[test]
fn what_is_chosen_when_models_are_built_takes_another_build_which_is_told() {
    if common::is_burn_0_22() {
        // With Burn 0.22, `--no-fusion` is an error, and checkpointing is chosen at run time, without another build.
        return;
    }
    let (report, exit, said) = estimate(&["--checkpointing", "--no-fusion"]);
    assert_eq!((exit, report.runs.len()), (0, 2), "{said}");
    assert!(
        said.contains("built the models once more for the what-ifs, in "),
        "{said}"
    );
    assert_ne!(
        named(&report, "checkpointing, no fusion").peaks,
        named(&report, "").peaks
    );
    // Models that the user built with these features are not taken for the models as they are.
    let by_hand = ["--features", "cargo-vram/checkpointing,cargo-vram/no-fusion"];
    let (report, exit, said) = estimate(&by_hand);
    assert_eq!(exit, 101, "{said}");
    let error = report.runs[0].error.as_ref().unwrap();
    assert!(
        error.message.raw().contains("built with other features of cargo-vram"),
        "{}",
        error.message
    );
}
