use super::{Accepted, BaselineEntry, BaselineFile, BaselineKey, edits};
use crate::bytes::Bytes;
use crate::report::{BaselineFrom, ExpectedVerdict, Mode, Peak, Peaks, Report, Run, RunError, Status, sample};
use crate::untrusted::PlainName;

const PRINT: &str = "0123456789abcdef";

fn report(runs: Vec<Run>) -> Report {
    let mut report = sample::report(runs);
    report.tool.fingerprint = PRINT.into();
    report
}

fn run(model: &str, live: u64) -> Run {
    let mut run = sample::run(model, "l4");
    run.inputs = [("batch_size".into(), 32)].into();
    run.peaks.warm.live = Some(Bytes(live));
    run
}

fn accepted(runs: Vec<Run>) -> BaselineFile {
    let mut lock = BaselineFile::default();
    lock.accept(&report(runs), false);
    lock
}

fn parse(text: &str) -> Result<BaselineFile, String> {
    BaselineFile::parse(text.as_bytes(), "budgets.lock").map_err(|error| {
        let problems: Vec<_> = error.problems().iter().map(ToString::to_string).collect();
        problems.join("\n")
    })
}

#[test]
fn what_is_written_is_read_again_and_sorted() {
    let mut measured = run("vgg16", 7);
    measured.mode = Mode::Measure;
    measured.gpu.driver = "580.95".into();
    let mut odd = run("res\"net 18", 9);
    odd.budget = Some("[[baseline]]".into());
    odd.inputs = [("seq len".into(), u64::from(u32::MAX)), ("a.b".into(), 1)].into();
    let lock = accepted(vec![run("vgg16", 7), measured, odd, run("resnet18", 1_809_238_264)]);
    let text = lock.to_string();
    assert_eq!(parse(&text), Ok(lock.clone()));
    insta::assert_snapshot!(text);
    // The order of acceptance does not matter.
    assert_eq!(
        accepted(vec![run("b", 1), run("a", 2)]),
        accepted(vec![run("a", 2), run("b", 1)])
    );
}

/// Git merges the changes of both sides if they touch no common or neighbouring lines.
#[test]
fn two_branches_that_accept_figures_of_different_models_change_no_line_in_common() {
    let base = accepted(vec![run("a", 1), run("b", 1)]).to_string();
    let one = accepted(vec![run("a", 2), run("b", 1)]).to_string();
    let other = accepted(vec![run("a", 1), run("b", 3)]).to_string();
    let changed = |text: &str| -> Vec<usize> {
        let lines = base.lines().zip(text.lines()).enumerate();
        lines
            .filter(|(_, (before, after))| before != after)
            .map(|(at, _)| at)
            .collect()
    };
    let (one, other) = (changed(&one), changed(&other));
    assert_eq!((one.len(), other.len()), (1, 1));
    assert!(one[0].abs_diff(other[0]) > 3, "{one:?} {other:?}");
}

#[test]
fn mistakes_are_told_with_their_line() {
    let whole = accepted(vec![run("resnet18", 5)]).to_string();
    let wrong = |from: &str, to: &str| parse(&whole.replace(from, to)).unwrap_err();
    insta::assert_snapshot!(
        [
            wrong("[[baseline]]", "<<<<<<< HEAD\n[[baseline]]"),
            wrong("version = 1", "version = 2"),
            wrong("version = 1", ""),
            wrong("live = 5", "live = 5 MiB"),
            wrong("live = 5", "live = -5"),
            wrong("live = 5", "life = 5"),
            wrong("mode = \"estimate\"", "mode = \"guess\""),
            wrong("mode = \"estimate\"", "mode = \"measure\""),
            wrong("gpu = \"l4\"\n", ""),
            parse(&format!("{whole}{}", &whole[whole.find("[[").unwrap()..])).unwrap_err(),
            parse(&format!("{whole}x = {}", "[".repeat(100_000)))
                .unwrap_err()
                .chars()
                .take(200)
                .collect(),
        ]
        .join("\n\n")
    );
    assert!(parse("version = 1\n").unwrap().is_empty());
}

#[test]
fn a_run_is_compared_with_what_was_accepted_of_it_and_nothing_else() {
    let lock = accepted(vec![run("resnet18", 5)]);
    let compared = |change: &dyn Fn(&mut Report)| {
        let mut report = report(vec![run("resnet18", 6)]);
        change(&mut report);
        lock.compare(&mut report, BaselineFrom::Lock);
        let baseline = report.runs[0].baseline.clone();
        let skipped = report.skipped.first().map(|skipped| skipped.why.clone());
        (
            baseline.map(|baseline| (baseline.peaks.warm.live, baseline.differs)),
            skipped,
        )
    };
    assert_eq!(compared(&|_| ()), (Some((Some(Bytes(5)), Vec::new())), None));
    // Changed inputs, Burn and parameters are recorded as the likely cause.
    let other = compared(&|report| {
        report.runs[0].inputs = [("batch_size".into(), 64), ("seq".into(), 1)].into();
        report.runs[0].burn = "0.22.0".into();
    });
    let differs = ["batch_size 32 → 64", "seq none → 1", "burn 0.21.0 → 0.22.0"];
    assert_eq!(other.0.unwrap().1, differs);
    // Runs on another GPU, in another mode or with another estimator are not compared.
    let gpu = compared(&|report| report.runs[0].gpu.id = "h200".into());
    assert_eq!(gpu, (None, Some("the baseline has only an estimate for l4".into())));
    let mode = compared(&|report| report.runs[0].mode = Mode::Measure);
    assert_eq!(mode, (None, Some("the baseline has only an estimate for l4".into())));
    let estimator = compared(&|report| report.tool.fingerprint = "another".into());
    assert_eq!(
        estimator,
        (
            None,
            Some("the estimator changed since the baseline was accepted; run `cargo vram bless`".into())
        )
    );
    assert_eq!(compared(&|report| report.runs[0].model = "new".into()), (None, None));
}

#[test]
fn what_has_no_baseline_and_what_is_out_of_date_can_be_made_to_fail() {
    let lock = accepted(vec![run("same", 5), run("changed", 5)]);
    let mut died = run("died", 1);
    died.error = Some(RunError {
        code: crate::report::ErrorCode::TimedOut,
        message: String::new().into(),
        help: None,
    });
    let mut report = report(vec![run("same", 5), run("changed", 6), run("new", 7), died]);
    lock.compare(&mut report, BaselineFrom::Lock);
    let told = |verdicts: Vec<crate::report::Verdict>| -> Vec<String> {
        assert!(verdicts.iter().all(|verdict| verdict.status == Status::Fail));
        verdicts
            .into_iter()
            .map(|verdict| format!("{}: {}", verdict.model, verdict.message))
            .collect()
    };
    assert_eq!(
        told(lock.missing(&report, "budgets.lock")),
        [
            "new: no baseline to compare with: budgets.lock has no entry for this run; to accept the current values, run `cargo vram bless -m p/new`"
        ]
    );
    assert_eq!(
        told(lock.inexact(&report, "budgets.lock", false)),
        [
            "changed: budgets.lock is out of date: live was 5 B and is now 6 B; to accept the current values, run `cargo vram bless -m p/changed`",
            "new: budgets.lock is out of date: this run is not in it; to accept the current values, run `cargo vram bless -m p/new`",
        ]
    );
}

#[test]
fn only_what_became_less_is_accepted_where_that_is_asked_for() {
    let base = accepted(vec![run("less", 5), run("more", 5), run("mixed", 5), run("same", 5)]);
    let mut mixed = run("mixed", 4);
    mixed.peaks.warm.reserved = Some(Bytes(i64::MAX as u64));
    let runs = vec![run("less", 4), run("more", 6), mixed, run("same", 5), run("new", 1)];
    let mut lock = base.clone();
    let told: Vec<_> = lock
        .accept(&report(runs), true)
        .into_iter()
        .map(|accepted| match accepted {
            Accepted::Written { key, before } => (key.model.to_string(), before.is_some()),
            Accepted::Same(key) => (format!("{} is the same", key.model), true),
            Accepted::Refused { key, why, is_wrong } => (format!("{}: {why}", key.model), is_wrong),
            Accepted::Removed(key) => (key.model.to_string(), false),
        })
        .collect();
    assert_eq!(
        told,
        [
            ("less".to_owned(), true),
            ("more: it is not an improvement".to_owned(), false),
            ("mixed: it is not an improvement".to_owned(), false),
            ("same is the same".to_owned(), true),
            ("new: the entry is new, so it is not an improvement".to_owned(), false),
        ]
    );
    let live = |lock: &BaselineFile, model: &str| {
        lock.get(&BaselineKey::from_run(&run(model, 0)))
            .map(|entry| entry.peaks.warm.live)
    };
    assert_eq!(live(&lock, "less"), Some(Some(Bytes(4))));
    assert_eq!(live(&lock, "more"), Some(Some(Bytes(5))));
    assert_eq!(live(&lock, "new"), None);
}

#[test]
fn what_is_gone_is_removed_on_every_gpu() {
    let mut elsewhere = run("gone", 1);
    elsewhere.gpu.id = "h200".into();
    let mut lock = accepted(vec![run("gone", 1), elsewhere, run("stays", 1)]);
    let gone = lock.remove_gone(|key| key.model == "stays");
    assert_eq!(gone.len(), 2);
    assert_eq!(lock.entries().count(), 1);
}

proptest::proptest! {
    #[test]
    fn whatever_is_accepted_is_read_again(
        names in proptest::collection::vec(("\\PC{0,12}", "\\PC{0,12}", "[a-z0-9-]{1,6}"), 0..6),
        inputs in proptest::collection::btree_map("\\PC{0,8}", 0..=i64::MAX as u64, 0..3),
        figure in 0..=i64::MAX as u64,
    ) {
        let mut lock = BaselineFile::default();
        for (package, model, gpu) in names {
            let [package, model, gpu] = [package, model, gpu].map(|name| PlainName::escaped(&name));
            let key = BaselineKey { package, model, gpu, mode: Mode::Estimate };
            let peak = Peak { live: Some(Bytes(figure)), reserved: Some(Bytes(figure)), process: None };
            let entry = BaselineEntry {
                burn: "0.21.0".into(),
                rests_on: PRINT.into(),
                inputs: inputs.iter().map(|(name, value)| (PlainName::escaped(name), *value)).collect(),
                parameters: Some(figure),
                peaks: Peaks { warm: peak, cold: Peak::default() },
            };
            lock.insert(key, entry);
        }
        proptest::prop_assert_eq!(parse(&lock.to_string()), Ok(lock));
    }

    #[test]
    fn no_file_makes_the_reader_panic(text in "(\\PC|\n){0,200}") {
        let _ = parse(&text);
        let _ = parse(&format!("version = 1\n{text}"));
    }
}

#[test]
fn a_measurement_that_chose_its_own_kernels_is_compared_and_says_so() {
    let measured = |live| sample::measured(run("a", live));
    let lock = accepted(vec![measured(1000)]);
    let mut head = report(vec![measured(2000)]);
    lock.compare(&mut head, BaselineFrom::Lock);
    let baseline = head.runs[0].baseline.as_ref().unwrap();
    assert_eq!(baseline.differs, ["kernels that autotune chose in this measurement"]);
    assert_eq!(lock.missing(&head, "budgets.lock"), []);
}

#[test]
fn what_no_file_can_hold_is_not_accepted() {
    let run = Run {
        inputs: [("seed".into(), u64::MAX)].into(),
        ..run("odd", 1)
    };
    let mut lock = BaselineFile::default();
    let told = lock.accept(&report(vec![run]), false);
    assert!(
        matches!(told.as_slice(), [Accepted::Refused { is_wrong: true, .. }]),
        "{told:?}"
    );
    assert_eq!(lock, BaselineFile::default());
}

#[test]
fn a_measurement_with_limited_memory_is_not_accepted() {
    let mut run = sample::measured(run("a", 5));
    let mut lock = BaselineFile::default();
    assert!(matches!(
        lock.clone().accept(&report(vec![run.clone()]), false).as_slice(),
        [Accepted::Written { .. }]
    ));
    run.measurement.as_mut().unwrap().limit = Some(Bytes(1 << 30));
    assert!(matches!(
        lock.accept(&report(vec![run]), false).as_slice(),
        [Accepted::Refused { is_wrong: true, .. }]
    ));
}

#[test]
fn a_broken_link_is_not_a_missing_file() {
    let folder = tempfile::tempdir().unwrap();
    let path = camino::Utf8Path::from_path(folder.path()).unwrap().join("budgets.lock");
    assert_eq!(BaselineFile::load(&path, "budgets.lock").unwrap(), None);
    std::os::unix::fs::symlink("nowhere", &path).unwrap();
    assert!(BaselineFile::load(&path, "budgets.lock").is_err());
}

#[test]
fn a_figure_that_is_no_longer_known_is_no_improvement() {
    let mut lock = accepted(vec![run("a", 5)]);
    let mut lost = run("a", 4);
    lost.peaks.warm.process = None;
    assert!(matches!(
        lock.accept(&report(vec![lost]), true).as_slice(),
        [Accepted::Refused { .. }]
    ));
}

#[test]
fn an_entry_of_a_model_that_is_gone_is_out_of_date_where_everything_was_looked_at() {
    let lock = accepted(vec![run("here", 1), run("in-another-part", 1), run("gone", 1)]);
    let mut report = report(vec![run("here", 1)]);
    let expected = ["here", "in-another-part"].map(|model| ExpectedVerdict {
        package: "p".into(),
        model: model.into(),
        gpu: "l4".into(),
    });
    report.expected_verdicts = expected.into();
    assert_eq!(lock.inexact(&report, "budgets.lock", false), []);
    let told = lock.inexact(&report, "budgets.lock", true);
    assert_eq!((told.len(), told[0].model.as_str()), (1, "gone"));
}

#[test]
fn what_a_change_edits_of_the_baseline_by_hand_is_told() {
    let before = accepted(vec![
        run("same", 5),
        run("blessed", 5),
        run("raised", 5),
        run("taken-out", 5),
    ]);
    let own = accepted(vec![
        run("same", 5),
        run("blessed", 6),
        run("raised", 90),
        run("new", 1),
    ]);
    let report = report(vec![
        run("same", 5),
        run("blessed", 6),
        run("raised", 7),
        run("taken-out", 8),
    ]);
    let told: Vec<_> = edits(&before, &own, &report, "budgets.lock")
        .into_iter()
        .map(|edited| (edited.model.unwrap(), edited.limit, edited.before, edited.after))
        .collect();
    let text = |text: &str| Some(text.into());
    assert_eq!(
        told,
        [
            (
                "raised".into(),
                "baseline on l4, live".into(),
                text("5 B"),
                text("90 B")
            ),
            ("taken-out".into(), "baseline on l4".into(), text("5 B"), None),
        ]
    );
}
