//! budgets.lock, through the binary, on a real model.
#![cfg(feature = "cli")]
#![expect(clippy::unwrap_used, reason = "a test that cannot go on has failed")]

mod common;

use std::path::PathBuf;

use cargo_vram::report::{Rule, Status};

/// Budgets of one small model, in a folder of their own.
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

    /// What a command says, and its exit code.
    fn run(&self, command: &str, more: &[&str]) -> (String, Option<i32>) {
        let budgets = self.path("budgets.yaml");
        let output = common::output(&self.arguments(command, more, budgets.to_str().unwrap()));
        let said = String::from_utf8(output.stdout).unwrap() + &String::from_utf8(output.stderr).unwrap();
        (said, output.status.code())
    }

    /// The verdict on growth, what was not judged, and the exit code of a check.
    fn growth(&self, more: &[&str]) -> (Vec<(Status, String)>, Vec<String>, i32) {
        let budgets = self.path("budgets.yaml");
        let mut arguments = self.arguments("check", more, budgets.to_str().unwrap());
        arguments.push("--estimate");
        let (report, exit, _) = common::report(&arguments);
        let growth = report
            .verdicts
            .into_iter()
            .filter(|verdict| matches!(verdict.rule, Rule::Growth | Rule::Baseline));
        let skipped = report.skipped.into_iter().filter(|skipped| skipped.what != "leaks");
        (
            growth.map(|verdict| (verdict.status, verdict.message)).collect(),
            skipped
                .map(|skipped| format!("{}: {}", skipped.what, skipped.why))
                .collect(),
            exit,
        )
    }

    /// Replaces a line of the lock.
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
fn what_was_accepted_is_what_a_check_compares_with() {
    let gate = Gate::new("");
    // Nothing was accepted: there is nothing to compare with, and that can be made to fail.
    assert_eq!(gate.growth(&[]), (vec![], vec![], 0));
    let (verdicts, _, exit) = gate.growth(&["--require-baseline"]);
    let missing = "no baseline to compare with: there is none in budgets.lock; `cargo vram bless -m retained-loss-before/charted` accepts what it needs now";
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
    // A second time nothing changes, to the byte.
    let (said, exit) = gate.run("bless", &["--check"]);
    assert_eq!((exit, gate.lock()), (Some(0), lock.clone()), "{said}");
    let (verdicts, _, exit) = gate.growth(&["--require-baseline", "--exact"]);
    assert_eq!(
        (verdicts.len(), verdicts[0].0, exit),
        (1, Status::Pass, 0),
        "{verdicts:?}"
    );
    assert!(verdicts[0].1.contains("is unchanged since "), "{verdicts:?}");
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
        said.contains("regressed: retained-loss-before/charted: warm live grew by 100 %"),
        "{said}"
    );
    gate.edit("warm.live", &format!("warm.live = {}", live * 2));
    let (said, exit) = gate.run("check", &["--estimate"]);
    assert_eq!(exit, Some(0), "{said}");
    assert!(
        said.contains("improved: retained-loss-before/charted: warm live shrank by 50 %"),
        "{said}"
    );
    // That alone is accepted where only improvements are to be.
    let (said, exit) = gate.run("bless", &["--only-improvements"]);
    assert_eq!((exit, gate.lock() == lock), (Some(0), true), "{said}");

    // With other inputs it is compared all the same, and they are named.
    gate.budget("inputs: { batch_size: 131072 },");
    let (said, exit) = gate.run("check", &["--estimate"]);
    assert_eq!(exit, Some(100), "{said}");
    assert!(said.contains("likely because of batch_size 65536 → 131072"), "{said}");

    // What another estimator found is never a regression.
    gate.edit("estimator", "estimator = \"0000000000000000\"");
    let (verdicts, skipped, _) = gate.growth(&[]);
    assert_eq!(verdicts.len(), 0);
    assert!(skipped[0].contains("the estimator changed"), "{skipped:?}");
    let (verdicts, _, exit) = gate.growth(&["--exact"]);
    assert_eq!((verdicts[0].0, exit), (Status::Fail, 100));

    // Nor is what is broken taken for nothing.
    gate.edit("version", "<<<<<<< HEAD");
    let (said, exit) = gate.run("check", &["--estimate"]);
    assert_eq!(exit, Some(2), "{said}");
    assert!(said.contains("budgets.lock:2:1") || said.contains(":2:1"), "{said}");
    assert!(said.contains("a merge left a conflict here"), "{said}");
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
    // A model that it has not, and a file that is none.
    let (said, exit) = gate.run("bless", &["--report", report, "-m", "vgg16"]);
    assert_eq!(exit, Some(2), "{said}");
    std::fs::write(report, "{\"version\": 7}").unwrap();
    let (said, exit) = gate.run("bless", &["--report", report]);
    assert_eq!(exit, Some(2), "{said}");
    assert!(said.contains("a report of version 7"), "{said}");
    std::fs::write(report, "{").unwrap();
    let (said, exit) = gate.run("bless", &["--report", report]);
    assert_eq!(exit, Some(2), "{said}");
    assert!(said.contains("is no report of cargo-vram"), "{said}");
}
