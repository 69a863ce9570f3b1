use crate::budget::Budgets;
use crate::budget::judge::tests::lines;
use crate::budget::judge::{judge, judge_since};
use crate::bytes::Bytes;
use crate::report::sample::run;
use crate::report::{Baseline, BaselineFrom, Peak, Peaks, Rule, Verdict};

const MIB: u64 = 1 << 20;

const FILE: &str = "\
version: 1
gpu: l4
defaults: { growth: { live: { fail: 5%, warn: 2%, ignore: 16 MiB } } }
models:
  a: { reserved: 2 GiB }
  b: { reserved: 2 GiB, growth: { reserved: { fail: 0.5% }, process: { warn: 1%, ignore: 1 MiB } } }
";
const SILENT: &str = "version: 1\ngpu: l4\nmodels: { a: { reserved: 2 GiB } }\n";

/// Returns the verdicts on growth from `before` to 800 MiB live, 1,024 MiB reserved and 1,500 MiB process memory.
fn grown(file: &str, model: &str, before: [u64; 3], differs: &[&str]) -> Vec<Verdict> {
    grown_from(run(model, "l4").burn.raw(), file, model, before, differs)
}

/// Same as [`grown`], with a baseline of another Burn version.
fn grown_from(burn: &str, file: &str, model: &str, before: [u64; 3], differs: &[&str]) -> Vec<Verdict> {
    let [live, reserved, process] = before.map(|bytes| Some(Bytes(bytes)));
    let warm = Peak {
        live,
        reserved,
        process,
    };
    let mut run = run(model, "l4");
    run.baseline = Some(Baseline {
        from: BaselineFrom::Lock,
        burn: burn.to_owned().into(),
        inputs: run.inputs.clone(),
        parameters: None,
        peaks: Peaks { warm, cold: warm },
        differs: differs.iter().map(|text| text.to_string().into()).collect(),
    });
    let budgets = Budgets::parse(file.as_bytes(), "budgets.yaml", &["l4"]).unwrap();
    let mut verdicts = judge(&[run], &budgets, "budgets.yaml");
    verdicts.retain(|verdict| verdict.rule == Rule::Growth);
    verdicts
}

#[test]
fn an_upgrade_of_burn_is_no_growth_of_the_model_and_a_patch_may_be() {
    let burn = run("a", "l4").burn;
    let since = |burn: &str| {
        lines(grown_from(
            burn,
            FILE,
            "a",
            [700 * MIB, 1, 1],
            &[&format!("burn {burn} → now")],
        ))
    };
    let upgraded = format!(
        "3:37 Growth Warn a: warm live memory grew 100 MiB (14.29 %) since budgets.lock, from 700 MiB to 800 MiB; \
         this is only a warning because Burn was upgraded from 0.1.7 to {burn}; to accept the new value, run \
         `cargo vram bless -m p/a`; likely cause: burn 0.1.7 → now"
    );
    assert_eq!(since("0.1.7"), [upgraded]);
    let patch = burn.raw().rsplit_once('.').unwrap().0.to_owned() + ".99";
    let [patched] = since(&patch).try_into().unwrap();
    assert!(patched.starts_with("3:37 Growth Fail a: "), "{patched}");
    // A smaller value, or allowed growth, passes as without an upgrade.
    let shrunk = lines(grown_from("0.1.7", FILE, "a", [900 * MIB, 1, 1], &[]));
    assert!(shrunk[0].starts_with("3:37 Growth Pass a: "), "{shrunk:?}");
}

fn live(before: u64) -> Vec<String> {
    lines(grown(FILE, "a", [before, 1, 1], &[]))
}

#[test]
fn both_the_percentage_and_the_bytes_must_be_passed() {
    let now = 800 * MIB;
    // 2 % of 784 MiB is less than `ignore`, so exactly 16 MiB are allowed.
    assert_eq!(
        live(now - 16 * MIB),
        [
            "3:37 Growth Pass a: warm live memory grew 16 MiB (2.04 %) since budgets.lock, from 784 MiB to 800 MiB; allowed: 2 % or 16 MiB, whichever is more"
        ]
    );
    assert_eq!(
        live(now - 16 * MIB - 1),
        [
            "3:37 Growth Warn a: warm live memory grew 16 MiB (2.04 %) since budgets.lock, from 784 MiB to 800 MiB; allowed without a warning: 2 % or 16 MiB, whichever is more"
        ]
    );
    assert_eq!(
        live(700 * MIB),
        [
            "3:37 Growth Fail a: warm live memory grew 100 MiB (14.29 %) since budgets.lock, from 700 MiB to 800 MiB; allowed: 5 % or 16 MiB, whichever is more"
        ]
    );
    assert_eq!(
        live(now),
        ["3:37 Growth Pass a: warm live memory is 800 MiB, unchanged since budgets.lock"]
    );
    assert_eq!(live(0).len(), 1);
}

#[test]
fn an_improvement_is_told_and_never_fails() {
    let verdicts = grown(FILE, "a", [1000 * MIB, 1, 1], &[]);
    assert!(verdicts[0].is_improvement());
    assert_eq!(
        lines(verdicts),
        ["3:37 Growth Pass a: warm live memory shrank 200 MiB (20 %) since budgets.lock, from 1000 MiB to 800 MiB"]
    );
    let little = grown(FILE, "a", [810 * MIB, 1, 1], &[]);
    assert!(!little[0].is_improvement());
    assert!(!grown(FILE, "a", [700 * MIB, 1, 1], &[])[0].is_improvement());
}

#[test]
fn a_model_says_which_figures_are_judged_and_how() {
    assert_eq!(
        lines(grown(
            FILE,
            "b",
            [1, 1000 * MIB, 1490 * MIB],
            &["batch_size 16 → 32", "burn 0.20.0 → 0.21.0"]
        )),
        [
            "6:53 Growth Fail b: warm reserved memory grew 24 MiB (2.40 %) since budgets.lock, from 1000 MiB to 1 GiB; allowed: 0.5 %; likely cause: batch_size 16 → 32, burn 0.20.0 → 0.21.0",
            "6:78 Growth Pass b: warm process memory grew 10 MiB (0.67 %) since budgets.lock, from 1.46 GiB to 1.46 GiB; allowed: 1 % or 1 MiB, whichever is more; likely cause: batch_size 16 → 32, burn 0.20.0 → 0.21.0",
        ]
    );
}

#[test]
fn live_is_judged_where_the_file_says_nothing() {
    let verdicts = grown(SILENT, "a", [700 * MIB, 1, 1], &[]);
    assert_eq!(verdicts[0].limit, Some(Bytes(735 * MIB)));
    assert_eq!(verdicts[0].line, None);
    assert_eq!(
        lines(verdicts),
        [
            "Growth Fail a: warm live memory grew 100 MiB (14.29 %) since budgets.lock, from 700 MiB to 800 MiB; allowed: 5 % or 16 MiB, whichever is more"
        ]
    );
}

#[test]
fn the_revision_that_was_built_is_named_and_growth_is_allowed_as_it_is_written() {
    let mut run = run("a", "l4");
    let mut before = run.peaks;
    before.warm.live = Some(Bytes(700 * MIB));
    run.baseline = Some(Baseline {
        from: BaselineFrom::Rebuilt,
        burn: run.burn.clone(),
        inputs: run.inputs.clone(),
        parameters: None,
        peaks: before,
        differs: Vec::new(),
    });
    let file = FILE.replace("ignore: 16 MiB", "ignore: 20MB");
    let budgets = Budgets::parse(file.as_bytes(), "budgets.yaml", &["l4"]).unwrap();
    let mut verdicts = judge_since(&[run], &budgets, "budgets.yaml", Some("origin/main"));
    verdicts.retain(|verdict| verdict.rule == Rule::Growth);
    assert_eq!(
        lines(verdicts),
        [
            "3:37 Growth Fail a: warm live memory grew 100 MiB (14.29 %) since origin/main, from 700 MiB to 800 MiB; allowed: 5 % or 20 MB, whichever is more"
        ]
    );
}
