//! Models over several cards: a layer here and a layer there, or the whole on each.
#![cfg(feature = "cli")]
#![expect(clippy::unwrap_used, reason = "a test that cannot go on has failed")]

mod common;

use std::sync::{LazyLock, OnceLock};

use cargo_vram::bytes::Bytes;
use cargo_vram::report::{ErrorCode, OnCard, Phase, Report, Status};
use common::run;

struct Checked {
    report: Report,
    exit: i32,
    text: String,
}

fn checked() -> &'static Checked {
    static CHECKED: OnceLock<Checked> = OnceLock::new();
    CHECKED.get_or_init(|| {
        // Of Burn 0.22 there are no baselines: its models are translated ones.
        let arguments = match common::is_burn_0_22() {
            true => selected("estimate", &["--gpu", "l4"]),
            false => selected("check", &["--estimate", "--exact", "--require-baseline"]),
        };
        let (report, exit, text) = common::report(&arguments);
        Checked { report, exit, text }
    })
}

/// A command for the models of fixtures/cards.
fn selected<'a>(command: &'a str, more: &[&'a str]) -> Vec<&'a str> {
    static MANIFEST: LazyLock<String> = LazyLock::new(|| common::manifest("fixtures/cards"));
    let package = match common::is_burn_0_22() {
        true => ["--manifest-path", &MANIFEST],
        false => ["-p", "cards"],
    };
    [&[command][..], &package, more].concat()
}

/// A file with these budgets, for an L4.
fn budgets(models: &str) -> (tempfile::TempDir, String) {
    common::budgets(&format!("version: 1\ngpu: l4\nmodels:\n{models}"))
}

/// Checks the model that is split by layer against a file.
fn split(file: &str) -> Vec<&str> {
    selected("check", &["-m", "transformer_split", "--estimate", "--budgets", file])
}

/// What is live on a card when a step is over.
fn left(card: &OnCard, step: u32) -> u64 {
    let step = card.steps.iter().find(|known| known.step == step).unwrap();
    let last = step.phases.iter().find(|phase| phase.phase == Phase::Optimizer);
    last.unwrap().live_end.0
}

/// Each GPU would be handed the model in half precision.
#[test]
fn mixed_precision_is_refused_where_every_gpu_has_the_whole_model() {
    let mixed = [
        "--gpu",
        "l4",
        "--dtype",
        "mixed-f16",
        "-m",
        "resnet18_data_parallel",
        "--set",
        "batch_size=2",
    ];
    let (report, exit, text) = common::report(&selected("estimate", &mixed));
    assert_eq!(exit, 101, "{text}");
    let mixed = report.runs.iter().find(|run| !run.what_if.is_none()).unwrap();
    assert_eq!(mixed.error.as_ref().unwrap().code, ErrorCode::Impossible, "{text}");
}

#[test]
fn each_card_has_its_own_peaks_and_the_fullest_stands_for_the_run() {
    let Checked { report, exit, text } = checked();
    assert_eq!((*exit, report.runs.len()), (0, 2), "{text}");
    for run in &report.runs {
        assert_eq!(run.inputs["cards"], 2);
        let numbers: Vec<_> = run.cards.iter().map(|card| card.card).collect();
        assert_eq!(numbers, [0, 1]);
        let outside = run.gpu.total_bytes.0 - run.gpu.available_bytes.0;
        for card in &run.cards {
            let warm = card.peaks.warm;
            assert!(warm.live.unwrap() > Bytes(0) && warm.live <= warm.reserved, "{warm:?}");
            assert_eq!(warm.process.unwrap().0, warm.reserved.unwrap().0 + outside);
        }
        let most = |of: fn(&OnCard) -> Option<Bytes>| run.cards.iter().map(of).max().unwrap();
        assert_eq!(run.peaks.warm.live, most(|card| card.peaks.warm.live));
        assert_eq!(run.peaks.warm.reserved, most(|card| card.peaks.warm.reserved));
        assert_eq!(run.peaks.cold.reserved, most(|card| card.peaks.cold.reserved));
        let says = |word: &str| run.assumptions.iter().any(|line| line.contains(word));
        assert!(says("NCCL"), "{:?}", run.assumptions);
        for card in ["card 0", "card 1"] {
            assert!(text.contains(&format!("{} {card}", run.full_name())), "{text}");
        }
    }
}

#[test]
fn parts_add_up_to_the_whole() {
    let run = run(&checked().report, "transformer_split");
    // Parameters and the two states of AdamW: what a step leaves, wherever it is.
    let whole = 3 * run.parameters.unwrap().bytes.0;
    let left: u64 = run.cards.iter().map(|card| left(card, 1)).sum();
    let beside = left - whole;
    // Where a step ends is good to what fusion still holds back: here what went from card to card last, 8 × 256 × 256 floats
    // there, and as many back.
    assert!(
        beside < 2 * 8 * 256 * 256 * 4,
        "{beside} bytes beside parameters and state"
    );
}

#[test]
fn the_first_card_alone_has_the_optimizer() {
    let run = run(&checked().report, "resnet18_data_parallel");
    let whole = 3 * run.parameters.unwrap().bytes.0;
    let [first, second] = run.cards.as_slice() else {
        panic!("{} cards", run.cards.len());
    };
    for step in 1..3 {
        assert!(left(first, step).abs_diff(whole) < 1 << 20, "{}", left(first, step));
        assert!(left(second, step) < 1 << 20, "{}", left(second, step));
    }
    // While it goes forward and backward, each has all that one card alone would have, its states apart.
    let (first, second) = (first.peaks.warm.live.unwrap(), second.peaks.warm.live.unwrap());
    assert!(first > second && second.0 > first.0 / 10 * 9, "{first} {second}");
}

#[test]
fn two_runs_agree_in_every_byte() {
    let again = selected("estimate", &["--gpu", "l4", "--jobs", "1"]);
    let (again, exit, text) = common::report(&again);
    assert_eq!(exit, 0, "{text}");
    for run in &again.runs {
        let first = common::run(&checked().report, &run.model);
        assert_eq!(first.cards, run.cards, "{}", run.model);
        assert_eq!(first.peaks, run.peaks);
    }
}

#[test]
fn what_an_update_leaves_is_there_however_few_steps_are_asked_for() {
    let cards_after = |steps: &str| {
        let model = selected(
            "estimate",
            &["-m", "transformer_split", "--gpu", "l4", "--steps", steps],
        );
        let (mut report, exit, text) = common::report(&model);
        assert_eq!(exit, 0, "{text}");
        report.runs.remove(0).cards
    };
    // The card without the loss runs its update a step late.
    assert_eq!(cards_after("3"), cards_after("2"));
}

#[test]
fn a_card_over_its_limits_fails_by_its_number() {
    let models = "  transformer_split:\n    cards:\n      0: { reserved: 1 GiB }\n      1: { live: 16 MiB, cold: { reserved: 32 MiB } }\n      7: { live: 1 GiB }\n";
    let (_folder, file) = budgets(models);
    let (report, exit, text) = common::report(&split(&file));
    assert_eq!(exit, 101, "{text}");
    let told: Vec<_> = report
        .verdicts
        .iter()
        .map(|verdict| (verdict.card, verdict.status, verdict.line))
        .collect();
    let expected = [
        (Some(0), Status::Pass, Some(6)),
        (Some(1), Status::Fail, Some(7)),
        (Some(1), Status::Fail, Some(7)),
        (Some(7), Status::Error, Some(8)),
    ];
    assert_eq!(told, expected, "{text}");
    assert!(text.contains("live of card 1"), "{text}");
    assert!(
        text.contains("there is no card 7: the model is over 2, numbered from 0"),
        "{text}"
    );
    // A row a card has its own limit, or the card's memory.
    let row = |card: &str| {
        let name = format!("cards/transformer_split {card}");
        let row = text.lines().find(|line| line.trim().starts_with(&name));
        row.unwrap_or_else(|| panic!("{text}")).to_owned()
    };
    let available = report.runs[0].gpu.available_bytes;
    assert!(row("card 0").contains(" 1 GiB "), "{text}");
    assert!(row("card 1").contains(&format!("card {available}")), "{text}");
}

#[test]
fn a_model_may_be_over_more_cards_than_it_says() {
    let model = selected("estimate", &["-m", "transformer_split", "--gpu", "l4"]);
    let (report, exit, text) = common::report(&[&model[..], &["--set", "cards=4"]].concat());
    assert_eq!((exit, report.runs[0].cards.len()), (0, 4), "{text}");
    let (report, exit, text) = common::report(&[&model[..], &["--set", "cards=17"]].concat());
    assert_eq!(exit, 101, "{text}");
    assert_eq!(report.runs[0].error.as_ref().unwrap().code, "too-few-cards");
    let (report, _, text) = common::report(&[&model[..], &["--set", "cards=0"]].concat());
    assert_eq!(report.runs[0].error.as_ref().unwrap().code, "impossible", "{text}");
}

#[test]
fn a_card_without_limits_is_a_warning_and_a_row_is_of_the_card_that_fails() {
    let models = "  transformer_split: { cards: { 0: { live: 16 MiB } } }\n";
    let (_folder, file) = budgets(models);
    let (report, exit, text) = common::report(&split(&file));
    assert_eq!(exit, 100, "{text}");
    let told: Vec<_> = report
        .verdicts
        .iter()
        .map(|verdict| (verdict.card, verdict.status))
        .collect();
    assert_eq!(told, [(Some(0), Status::Fail), (Some(1), Status::Warn)], "{text}");
    assert!(text.contains("card 1 of `transformer_split` has no limits"), "{text}");
    let live = report.runs[0].cards[0].peaks.warm.live.unwrap();
    let comment = common::said(&common::output(
        &[&split(&file)[..], &["--message-format", "markdown"]].concat(),
    ));
    assert!(
        comment.contains(&format!("live of card 0, {live} of 16 MiB")),
        "{comment}"
    );
}

/// Burn's own, over NCCL. It takes a Burn of its own, so all is asked of one build.
#[test]
fn distributed_workers_have_an_optimizer_each_and_agree_in_every_byte() {
    if common::is_burn_0_22() {
        // There is no `.ddp` for Burn 0.22 yet.
        return;
    }
    let estimate = |more: &[&str]| {
        let features = ["--features", "distributed,cargo-vram/distributed"];
        let model = ["estimate", "-p", "cards", "-m", "resnet18_ddp", "--gpu", "l4"];
        let (report, exit, text) = common::report(&[&model[..], &features, more].concat());
        (report.runs, exit, text)
    };
    let one = || {
        let (mut runs, exit, text) = estimate(&[]);
        assert_eq!((exit, runs.len()), (0, 1), "{text}");
        runs.remove(0)
    };
    let run = one();
    let [first, second] = run.cards.as_slice() else {
        panic!("{} cards", run.cards.len());
    };
    let parameters = run.parameters.unwrap().bytes.0;
    for step in 1..3 {
        // Parameters and the two states of Adam. The first card has the model that the others were forked from, too, and
        // what made it, all the time: Burn's learner keeps it.
        assert!(
            left(second, step).abs_diff(3 * parameters) < 4 << 20,
            "{}",
            left(second, step)
        );
        let kept = left(first, step) - left(second, step);
        assert!((parameters..parameters * 3 / 2).contains(&kept), "{kept}");
    }
    // While they go backward, each has a gradient of every parameter, and one more copy of the one that is reduced.
    let both = common::run(&checked().report, "resnet18_data_parallel");
    let live = |card: &OnCard| card.peaks.warm.live.unwrap().0;
    assert!(
        live(second) > live(&both.cards[1]) + 2 * parameters,
        "{} {}",
        live(second),
        live(&both.cards[1])
    );
    // Statistics of a `BatchNorm` are everybody's, and which card they are on is a matter of the order of a hash map.
    let again = one();
    assert_eq!((&run.cards, run.peaks), (&again.cards, again.peaks));
    // Where one worker has no room, the others do not wait for it.
    let (runs, _, text) = estimate(&["--set", "batch_size=512"]);
    assert!(text.contains("out of memory"), "{text}");
    assert!(runs[0].oom.is_some() && runs[0].seconds < 120.0, "{:?}", runs[0]);
    let (runs, _, text) = estimate(&["--set", "cards=1"]);
    assert!(runs[0].error.is_some() && text.contains("two cards or more"), "{text}");
    // Burn's own reason.
    let (runs, _, text) = estimate(&["--accumulate", "2"]);
    assert!(runs[0].error.is_none() && runs[1].error.is_some(), "{text}");
    assert!(text.contains("the first part of a batch"), "{text}");
}
