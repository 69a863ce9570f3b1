//! Changes like those of pull requests: the result of the check and the comment.

use std::path::Path;

use cargo_vram::report::{Report, Rule, Status};

use crate::common;
use crate::common::repository::Repository;

/// The pairs in `fixtures/pairs` that share one workspace.
const PAIRS: [&str; 13] = [
    "below-ignored",
    "depthwise",
    "edited-limit",
    "f32-from-f16",
    "improvement",
    "larger-batch",
    "larger-input",
    "pooling",
    "retained-loss",
    "second-copy",
    "stateful-optimizer",
    "strides",
    "wider-layer",
];

/// A change with its own workspace: another version of a dependency.
const BUMP: &str = "dependency-bump";

/// Changes that people make to save memory.
const SAVING: [&str; 3] = ["depthwise", "pooling", "strides"];

/// Writes a report of one side of a pair.
fn estimate(repository: &Repository, pair: &str, side: &str) {
    let (_, selected) = place(pair);
    let estimate = common::vram(&["estimate", "--message-format", "json", "-o"])
        .arg(format!("{pair}-{side}.json"))
        .args(&selected)
        .current_dir(repository.folder.root())
        .output()
        .unwrap();
    assert!(estimate.status.success(), "{}", common::said(&estimate));
}

/// The folder of the pairs.
fn pairs() -> std::path::PathBuf {
    common::fixture("fixtures/pairs")
}

/// Copies one side of a pair to the package, whose name is the same before and after the change.
fn put(repository: &Repository, pair: &str, side: &str) {
    let from = pairs().join(pair).join(side);
    put_folder(repository, &from, &from, pair, side);
}

fn put_folder(repository: &Repository, root: &Path, folder: &Path, pair: &str, side: &str) {
    for entry in std::fs::read_dir(folder).unwrap() {
        let path = entry.unwrap().path();
        if path.is_dir() {
            put_folder(repository, root, &path, pair, side);
            continue;
        }
        let name = path.strip_prefix(root).unwrap().to_str().unwrap();
        let text = std::fs::read_to_string(&path).unwrap();
        let text = text
            .replace(&format!("-{side}\""), "\"")
            .replace(&format!("_{side}::"), "::")
            .replace("../../../..", common::root().to_str().unwrap());
        repository.folder.write(&format!("{pair}/{name}"), &text);
    }
}

/// Makes a repository with all pairs before their change: `main` has their accepted baselines, and a branch is checked
/// out.
fn before() -> Repository {
    let repository = Repository::new();
    let manifest = std::fs::read_to_string(pairs().join("Cargo.toml")).unwrap();
    let manifest = manifest
        .replace(
            "\"*/before\", \"*/after\"",
            &PAIRS.map(|pair| format!("{pair:?}")).join(", "),
        )
        .replace("\"../..\"", &format!("{:?}", common::root()));
    repository.folder.write("Cargo.toml", &manifest);
    std::fs::copy(pairs().join("Cargo.lock"), repository.folder.path("Cargo.lock")).unwrap();
    put(&repository, "layers", "");
    for pair in PAIRS.iter().chain([&BUMP]) {
        put(&repository, pair, "before");
    }
    // Build all packages at once.
    let list = common::vram(&["list"])
        .current_dir(repository.folder.root())
        .output()
        .unwrap();
    assert!(list.status.success(), "{}", String::from_utf8_lossy(&list.stderr));
    for pair in PAIRS.iter().chain([&BUMP]) {
        let (folder, selected) = place(pair);
        let bless = common::vram(&["bless"])
            .args(&selected)
            .current_dir(repository.folder.path(folder))
            .output()
            .unwrap();
        assert!(bless.status.success(), "{}", String::from_utf8_lossy(&bless.stderr));
    }
    for pair in SAVING {
        estimate(&repository, pair, "before");
    }
    repository.commit("before");
    repository.git(&["checkout", "--quiet", "-b", "change"]);
    repository
}

/// The folder in which a pair's commands run, and the options that select it.
fn place(pair: &str) -> (&str, Vec<String>) {
    if pair == BUMP {
        return (pair, Vec::new());
    }
    let of_pair = [
        "-p".to_owned(),
        pair.to_owned(),
        "--budgets".to_owned(),
        format!("{pair}/budgets.yaml"),
    ];
    (".", of_pair.into())
}

/// Checks a change against its base; returns the report, the exit code and the comment.
fn check(repository: &Repository, pair: &str) -> (Report, i32, String) {
    let (folder, mut more) = place(pair);
    if pair == "retained-loss" {
        more.extend(["--steps".to_owned(), "10".to_owned()]);
    }
    let folder = repository.folder.path(folder);
    let more: Vec<_> = more.iter().map(String::as_str).collect();
    let (report, exit, said) = Repository::check(&folder, "main", &more);
    let comment = common::vram(&["comment", "--dry-run", "--report", "report.json"])
        .current_dir(&folder)
        .output()
        .unwrap();
    assert!(comment.status.success(), "{}", String::from_utf8_lossy(&comment.stderr));
    let report = report.unwrap_or_else(|| panic!("{said}"));
    // Replace the text that differs from run to run.
    let commit = report.commit.as_ref().unwrap().raw();
    let comment = String::from_utf8(comment.stdout).unwrap();
    let comment = (7..=commit.len())
        .rev()
        .fold(comment, |comment, length| comment.replace(&commit[..length], "COMMIT"));
    (report, exit, comment)
}

fn snapshot(name: &str, text: &str) {
    let mut settings = insta::Settings::clone_current();
    settings.set_prepend_module_to_snapshot(false);
    let of_burn = if common::is_burn_0_22() { "pairs-0_22" } else { "pairs" };
    settings.set_snapshot_path(format!("snapshots/{of_burn}"));
    settings.bind(|| insta::assert_snapshot!(name, text));
}

#[test]
fn every_change_gets_its_verdict_and_its_comment() {
    let repository = before();
    for pair in PAIRS.iter().chain([&BUMP]) {
        put(&repository, pair, "after");
    }
    let list = common::vram(&["list"])
        .current_dir(repository.folder.root())
        .output()
        .unwrap();
    assert!(list.status.success(), "{}", String::from_utf8_lossy(&list.stderr));
    let mut ended = Vec::new();
    for pair in PAIRS.iter().chain([&BUMP]) {
        let (report, exit, comment) = check(&repository, pair);
        let of = |rule: Rule| report.verdicts.iter().filter(move |verdict| verdict.rule == rule);
        let growth = of(Rule::Growth).map(|verdict| verdict.status).max();
        let leak = of(Rule::Leak).map(|verdict| verdict.status).max();
        ended.push((*pair, exit, growth, leak.filter(|status| *status != Status::Pass)));
        snapshot(pair, &comment);
    }
    for pair in SAVING {
        estimate(&repository, pair, "after");
        let [before, after] = ["before", "after"].map(|side| format!("{pair}-{side}.json"));
        let diff = common::vram(&["diff", &before, &after])
            .current_dir(repository.folder.root())
            .output()
            .unwrap();
        assert!(diff.status.success(), "{}", common::said(&diff));
        snapshot(&format!("{pair}-diff"), &String::from_utf8(diff.stdout).unwrap());
    }
    let (pass, fail) = (Some(Status::Pass), Some(Status::Fail));
    assert_eq!(
        ended,
        [
            ("below-ignored", 0, pass, None),
            ("depthwise", 0, pass, None),
            ("edited-limit", 0, pass, None),
            ("f32-from-f16", 100, fail, None),
            ("improvement", 0, pass, None),
            ("larger-batch", 100, fail, None),
            ("larger-input", 100, fail, None),
            ("pooling", 0, pass, None),
            ("retained-loss", 100, fail, fail),
            ("second-copy", 100, fail, None),
            ("stateful-optimizer", 100, fail, None),
            ("strides", 0, pass, None),
            ("wider-layer", 100, fail, None),
            (BUMP, 100, fail, None),
        ]
    );
}
