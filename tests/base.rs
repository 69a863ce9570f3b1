//! `check --base`, through the binary, in a git repository of its own with a real model.
#![cfg(feature = "cli")]
#![expect(clippy::unwrap_used, reason = "a test that cannot go on has failed")]

mod common;

use std::path::{Path, PathBuf};
use std::process::Command;

use cargo_vram::report::{BaselineFrom, Report};

/// A workspace in a folder of a repository, with the model of a pair.
struct Repository {
    folder: tempfile::TempDir,
}

const BUDGETS: &str = "version: 1\ngpu: l4\nmodels:\n  charted: { reserved: 4 GiB }\n";

impl Repository {
    fn new() -> Self {
        let repository = Self {
            folder: tempfile::tempdir().unwrap(),
        };
        let model = common::root().join("fixtures/pairs/retained-loss/before");
        let manifest = std::fs::read_to_string(model.join("Cargo.toml")).unwrap();
        let manifest = manifest.replace("../../../..", common::root().to_str().unwrap());
        let profile = "[profile.dev]\ndebug = \"line-tables-only\"\n\n[profile.dev.package.\"*\"]\nopt-level = 1\n";
        repository.write("model/Cargo.toml", &format!("{manifest}\n{profile}\n[workspace]\n"));
        for file in ["src/lib.rs", "benches/vram.rs"] {
            let text = std::fs::read_to_string(model.join(file)).unwrap();
            repository.write(&format!("model/{file}"), &text);
        }
        std::fs::copy(common::root().join("Cargo.lock"), repository.path("model/Cargo.lock")).unwrap();
        repository.git(&["init", "--quiet", "--initial-branch", "main"]);
        repository
    }

    fn path(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    fn write(&self, name: &str, text: &str) {
        let path = self.path(name);
        std::fs::create_dir_all(path.parent().unwrap()).unwrap();
        std::fs::write(path, text).unwrap();
    }

    fn git_in(folder: &Path, arguments: &[&str]) {
        let output = Command::new("git")
            .args([
                "-c",
                "user.name=a",
                "-c",
                "user.email=a@localhost",
                "-c",
                "protocol.file.allow=always",
            ])
            .args(arguments)
            .current_dir(folder)
            .output()
            .unwrap();
        assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    }

    fn git(&self, arguments: &[&str]) {
        Self::git_in(self.folder.path(), arguments);
    }

    fn commit(&self, message: &str) {
        self.git(&["add", "--all"]);
        self.git(&["commit", "--quiet", "--message", message]);
    }

    /// A check against a revision: its report, where there is one, its exit code, and what it said.
    fn check(folder: &Path, base: &str) -> (Option<Report>, i32, String) {
        let file = folder.join("report.json");
        let _ = std::fs::remove_file(&file);
        let base = format!("--base={base}");
        let output = common::vram(&[
            "check",
            "--estimate",
            &base,
            "--message-format",
            "json",
            "-o",
            "report.json",
        ])
        .current_dir(folder)
        .output()
        .unwrap();
        let said = String::from_utf8(output.stdout).unwrap() + &String::from_utf8(output.stderr).unwrap();
        let report = std::fs::read(&file)
            .ok()
            .map(|json| serde_json::from_slice(&json).unwrap());
        (report, output.status.code().unwrap(), said)
    }
}

#[test]
fn a_branch_is_told_what_it_changes_since_it_parted() {
    let repository = Repository::new();
    let model = repository.path("model");
    // Long ago there was no bench here.
    repository.git(&["commit", "--quiet", "--allow-empty", "--message", "nothing"]);
    repository.git(&["tag", "nothing"]);
    repository.write("model/budgets.yaml", BUDGETS);
    let bless = common::vram(&["bless"]).current_dir(&model).output().unwrap();
    assert!(bless.status.success(), "{}", String::from_utf8_lossy(&bless.stderr));
    repository.commit("the gate");
    repository.git(&["branch", "topic"]);
    // Main goes on, which is none of the branch's doing.
    repository.write("model/budgets.yaml", &BUDGETS.replace("4 GiB", "3 GiB"));
    repository.commit("main goes on");
    repository.git(&["checkout", "--quiet", "topic"]);
    repository.write("model/budgets.yaml", &BUDGETS.replace("4 GiB", "8 GiB"));
    let lock = std::fs::read_to_string(repository.path("model/budgets.lock")).unwrap();
    let lower = |line: &str| match line.strip_prefix("warm.live = ") {
        Some(live) => format!("warm.live = {}", live.parse::<u64>().unwrap() + 512),
        None => line.to_owned(),
    };
    let moved: Vec<_> = lock.lines().map(lower).collect();
    repository.write("model/budgets.lock", &(moved.join("\n") + "\n"));
    // Changes that are not committed count, too.
    let (report, exit, said) = Repository::check(&model, "main");
    let report = report.unwrap();
    assert_eq!(exit, 0, "{said}");
    let base = report.base.unwrap();
    assert_eq!(base.revision, "main");
    let edited: Vec<_> = base
        .edited
        .iter()
        .map(|edited| {
            (
                edited.limit.as_str(),
                edited.before.as_deref(),
                edited.after.as_deref(),
                edited.line,
            )
        })
        .collect();
    assert_eq!(edited, [("reserved.fail", Some("4 GiB"), Some("8 GiB"), Some(4))]);
    // Judged by the branch's own lock, and shown beside what the base's says.
    let baseline = report.runs[0].baseline.as_ref().unwrap();
    assert_eq!(baseline.from, BaselineFrom::Base);
    assert_eq!(baseline.peaks.warm.live, report.runs[0].peaks.warm.live);
    let growth = report
        .verdicts
        .iter()
        .find(|verdict| verdict.baseline.is_some())
        .unwrap();
    assert_eq!(growth.baseline.unwrap().0, baseline.peaks.warm.live.unwrap().0 + 512);

    // Where there was no gate yet, everything is new, and nothing is an error.
    let (report, exit, said) = Repository::check(&model, "nothing");
    let report = report.unwrap();
    assert_eq!((exit, report.runs[0].baseline.is_none()), (0, true), "{said}");
    assert!(report.base.unwrap().edited.is_empty());

    for (revision, told) in [
        ("nowhere", "there is no revision `nowhere` here"),
        ("--output=/tmp/x", "is no revision"),
        ("", "is no revision"),
    ] {
        let (report, exit, said) = Repository::check(&model, revision);
        assert_eq!((exit, report.is_none()), (2, true), "{said}");
        assert!(said.contains(told), "{said}");
    }

    // A clone that was cut short says how to get the rest.
    repository.commit("topic");
    let clone = repository.path("clone");
    let url = format!("file://{}", repository.folder.path().display());
    Repository::git_in(
        repository.folder.path(),
        &[
            "clone",
            "--quiet",
            "--depth",
            "1",
            "--no-single-branch",
            &url,
            clone.to_str().unwrap(),
        ],
    );
    let (_, exit, said) = Repository::check(&clone.join("model"), "origin/main");
    assert_eq!(exit, 2, "{said}");
    assert!(
        said.contains("no commit in common") && said.contains("fetch-depth: 0"),
        "{said}"
    );

    // Where there is no git there is no base.
    std::fs::remove_dir_all(repository.path("clone/.git")).unwrap();
    std::fs::remove_dir_all(repository.path(".git")).unwrap();
    let (_, exit, said) = Repository::check(&model, "main");
    assert_eq!(exit, 2, "{said}");
    assert!(said.contains("--base needs a git checkout"), "{said}");
}
