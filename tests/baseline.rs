//! `budgets.lock`, through the binary, with a real model.

use std::path::PathBuf;

use cargo_vram::report::{Rule, SkippedCheck, Status};

use crate::common;

/// A temporary folder with the budgets of one small model.
struct Gate {
    folder: tempfile::TempDir,
}

impl Gate {
    fn new(inputs: &str) -> Self {
        let gate = Self {
            folder: tempfile::tempdir().unwrap(),
        };
        gate.budget(inputs);
        gate
    }

    fn budget(&self, inputs: &str) {
        let text = format!("version: 1\ngpu: l4\nmodels:\n  charted: {{ {inputs} reserved: 4 GiB }}\n");
        std::fs::write(self.path("budgets.yaml"), text).unwrap();
    }

    fn path(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    fn arguments<'a>(&self, command: &'a str, more: &[&'a str], budgets: &'a str) -> Vec<&'a str> {
        let mut arguments = vec![
            command,
            "--manifest-path",
            common::retained_loss(),
            "-p",
            "retained-loss-before",
        ];
        arguments.extend(["--budgets", budgets]);
        arguments.extend(more);
        arguments
    }

    /// Runs a command; returns its output and its exit code.
    fn run(&self, command: &str, more: &[&str]) -> (String, Option<i32>) {
        let budgets = self.path("budgets.yaml");
        let output = common::output(&self.arguments(command, more, budgets.to_str().unwrap()));
        let said = String::from_utf8(output.stdout).unwrap() + &String::from_utf8(output.stderr).unwrap();
        (said, output.status.code())
    }

    /// Runs a check; returns the verdicts on growth, the skipped checks and the exit code.
    fn growth(&self, more: &[&str]) -> (Vec<(Status, String)>, Vec<String>, i32) {
        let budgets = self.path("budgets.yaml");
        let mut arguments = self.arguments("check", more, budgets.to_str().unwrap());
        arguments.push("--estimate");
        let (report, exit, _) = common::report(&arguments);
        let growth = report
            .verdicts
            .into_iter()
            .filter(|verdict| matches!(verdict.rule, Rule::Growth | Rule::Baseline));
        let skipped = report
            .skipped
            .into_iter()
            .filter(|skipped| skipped.check != SkippedCheck::Leaks);
        (
            growth
                .map(|verdict| (verdict.status, verdict.message.into_raw()))
                .collect(),
            skipped
                .map(|skipped| format!("{}: {}", skipped.what(), skipped.why))
                .collect(),
            exit,
        )
    }

    /// Replaces a line of `budgets.lock`.
    fn edit(&self, begins: &str, line: &str) {
        let lock = std::fs::read_to_string(self.path("budgets.lock")).unwrap();
        let edited = |old: &str| match old.starts_with(begins) {
            true => line.to_owned(),
            false => old.to_owned(),
        };
        let text: Vec<_> = lock.lines().map(edited).collect();
        assert!(lock.lines().any(|old| old.starts_with(begins)), "{lock}");
        std::fs::write(self.path("budgets.lock"), text.join("\n") + "\n").unwrap();
    }

    fn lock(&self) -> String {
        std::fs::read_to_string(self.path("budgets.lock")).unwrap()
    }
}

#[test]
fn an_accepted_value_over_its_limit_is_told() {
    let gate = Gate::new("live: 1 MiB,");
    let (said, exit) = gate.run("bless", &[]);
    assert_eq!(exit, Some(0), "{said}");
    let name = "retained-loss-before/charted (l4, estimated): accepted, but warm live memory is ";
    let line = said.lines().find(|line| line.starts_with(name));
    let line = line.unwrap_or_else(|| panic!("{said}"));
    assert!(
        line.contains(" over its limit of 1 MiB in ") && line.ends_with("budgets.yaml:4; the next check fails"),
        "{line}"
    );
    // Nothing changes the second time, but the check still fails.
    let (said, exit) = gate.run("bless", &["-q"]);
    assert_eq!((said.trim_end(), exit), (line, Some(0)));
    assert_eq!(gate.growth(&[]).2, 100);
}

#[test]
fn what_was_accepted_is_what_a_check_compares_with() {
    let gate = Gate::new("");
    // Without an accepted baseline, nothing is compared. With `--require-baseline`, this fails.
    assert_eq!(gate.growth(&[]), (vec![], vec![], 0));
    let (verdicts, _, exit) = gate.growth(&["--require-baseline"]);
    let missing = "no baseline to compare with: budgets.lock has no entry for this run; to accept the current values, run `cargo vram bless -m retained-loss-before/charted`";
    assert!(verdicts[0].1.starts_with("no baseline to compare with"), "{verdicts:?}");
    assert!(
        verdicts[0].1.ends_with(missing.rsplit("; ").next().unwrap()),
        "{verdicts:?}"
    );
    assert_eq!((verdicts[0].0, exit), (Status::Fail, 100));

    assert_eq!(gate.run("bless", &["--check"]).1, Some(100));
    assert!(!gate.path("budgets.lock").exists());
    let (said, exit) = gate.run("bless", &[]);
    assert_eq!(exit, Some(0), "{said}");
    assert!(
        said.contains("retained-loss-before/charted (l4, estimated): new"),
        "{said}"
    );
    let lock = gate.lock();
    // A second `bless` does not change a byte.
    let (said, exit) = gate.run("bless", &["--check"]);
    assert_eq!((exit, gate.lock()), (Some(0), lock.clone()), "{said}");
    let (verdicts, _, exit) = gate.growth(&["--require-baseline", "--exact"]);
    assert_eq!(
        (verdicts.len(), verdicts[0].0, exit),
        (1, Status::Pass, 0),
        "{verdicts:?}"
    );
    assert!(verdicts[0].1.contains(", unchanged since "), "{verdicts:?}");
}

#[test]
fn growth_fails_and_an_improvement_is_shown() {
    let gate = Gate::new("inputs: { batch_size: 65536 },");
    assert_eq!(gate.run("bless", &[]).1, Some(0));
    let lock = gate.lock();
    let line = lock.lines().find(|line| line.starts_with("warm.live")).unwrap();
    let live: u64 = line.rsplit(' ').next().unwrap().parse().unwrap();
    assert!(live > 400 << 20, "{live}");
    gate.edit("warm.live", &format!("warm.live = {}", live / 2));
    let (said, exit) = gate.run("check", &["--estimate"]);
    assert_eq!(exit, Some(100), "{said}");
    assert!(
        said.contains("regressed: retained-loss-before/charted: warm live memory grew ")
            && said.contains(" (100 %) since "),
        "{said}"
    );
    gate.edit("warm.live", &format!("warm.live = {}", live * 2));
    let (said, exit) = gate.run("check", &["--estimate"]);
    assert_eq!(exit, Some(0), "{said}");
    assert!(
        said.contains("improved: retained-loss-before/charted: warm live memory shrank ")
            && said.contains(" (50 %) since "),
        "{said}"
    );
    // With `--only-improvements`, only the improvement is accepted.
    let (said, exit) = gate.run("bless", &["--only-improvements"]);
    assert_eq!((exit, gate.lock() == lock), (Some(0), true), "{said}");

    // A run with other inputs is compared too, and the message names the inputs.
    gate.budget("inputs: { batch_size: 131072 },");
    let (said, exit) = gate.run("check", &["--estimate"]);
    assert_eq!(exit, Some(100), "{said}");
    assert!(said.contains("likely cause: batch_size 65536 → 131072"), "{said}");

    // A baseline from another estimator is not compared, so there is no regression.
    gate.edit("estimator", "estimator = \"0000000000000000\"");
    let (verdicts, skipped, _) = gate.growth(&[]);
    assert_eq!(verdicts.len(), 0);
    assert!(skipped[0].contains("the estimator changed"), "{skipped:?}");
    let (verdicts, _, exit) = gate.growth(&["--exact"]);
    assert_eq!((verdicts[0].0, exit), (Status::Fail, 100));

    // A broken `budgets.lock` is an error; it is not taken for an empty one.
    gate.edit("version", "<<<<<<< HEAD");
    let (said, exit) = gate.run("check", &["--estimate"]);
    assert_eq!(exit, Some(2), "{said}");
    assert!(said.contains("budgets.lock:2:1") || said.contains(":2:1"), "{said}");
    assert!(said.contains("unresolved merge conflict"), "{said}");
}

#[test]
fn a_report_is_accepted_as_it_is() {
    let gate = Gate::new("");
    let report = gate.path("report.json");
    let report = report.to_str().unwrap();
    let (said, exit) = gate.run("check", &["--estimate", "--message-format", "json", "-o", report]);
    assert_eq!(exit, Some(0), "{said}");
    let (said, exit) = gate.run("bless", &["--report", report]);
    assert_eq!(exit, Some(0), "{said}");
    let accepted = gate.lock();
    std::fs::remove_file(gate.path("budgets.lock")).unwrap();
    assert_eq!(gate.run("bless", &[]).1, Some(0));
    assert_eq!(gate.lock(), accepted);
    // A model that the report lacks, and a file that is not a report.
    let (said, exit) = gate.run("bless", &["--report", report, "-m", "vgg16"]);
    assert_eq!(exit, Some(2), "{said}");
    std::fs::write(report, "{\"version\": 7}").unwrap();
    let (said, exit) = gate.run("bless", &["--report", report]);
    assert_eq!(exit, Some(2), "{said}");
    assert!(said.contains("has report version 7"), "{said}");
    std::fs::write(report, "{").unwrap();
    let (said, exit) = gate.run("bless", &["--report", report]);
    assert_eq!(exit, Some(2), "{said}");
    assert!(said.contains("is not a cargo-vram report"), "{said}");
}
