//! What a command leaves behind: no process and no folder, whether it ends by itself, by a signal or by SIGKILL.

use std::collections::BTreeSet;
use std::os::unix::process::{CommandExt, ExitStatusExt};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::sync::LazyLock;
use std::time::{Duration, Instant};

use cargo_vram::report::Assumption;
use cargo_vram::run::processes;

use crate::common;
use crate::common::Once;

/// The manifest of the workspace, with models for the Burn version of these tests.
static MANIFEST: LazyLock<String> = LazyLock::new(|| common::manifest("fixtures/broken"));

/// An archive of the models that never end. With it, a command writes only into the folder for temporary files.
static ARCHIVE: Once<PathBuf> = Once::new("leftovers-archive", |folder| {
    let archive = folder.join("never-ends.tar.zst");
    let arguments = ["archive", "--manifest-path", &MANIFEST, "-p", "never-ends", "-o"];
    let output = common::output(&[&arguments[..], &[archive.to_str().unwrap()]].concat());
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    archive
});

/// A command whose folder for temporary files is `folder`.
fn command(arguments: &[&str], folder: &Path) -> Command {
    let mut command = common::vram(arguments);
    command
        .env("TMPDIR", folder)
        .stdout(Stdio::null())
        .stderr(Stdio::null());
    command
}

/// The arguments of an estimate of some models of the archive.
fn estimated<'a>(models: &[&'a str]) -> Vec<&'a str> {
    let archive = ARCHIVE.get().to_str().unwrap();
    let mut arguments = vec!["estimate", "--archive-file", archive, "--gpu", "l4", "--steps", "2"];
    arguments.extend(models.iter().flat_map(|model| ["-m", *model]));
    arguments
}

fn estimate(models: &[&str], folder: &Path) -> Command {
    command(&estimated(models), folder)
}

/// Waits for at most a minute until something is so.
#[track_caller]
fn wait_until(what: &str, is_so: impl Fn() -> bool) {
    let began = Instant::now();
    while !is_so() {
        assert!(
            began.elapsed() < Duration::from_secs(60),
            "waited for a minute until {what}"
        );
        std::thread::sleep(Duration::from_millis(20));
    }
}

/// Waits until the model and the helper that it starts run.
fn wait_for_helper(folder: &Path) {
    let name = |id: &u32| std::fs::read_to_string(format!("/proc/{id}/comm")).unwrap_or_default();
    wait_until("a model started its helper and its orphan", || {
        let found = processes::of_models_in(folder);
        found.iter().any(|id| name(id) == "sleep\n") && orphans(folder).iter().any(|id| name(id) == "sleep\n")
    });
}

/// The running processes of a model that left its group, its parent and its environment.
fn orphans(folder: &Path) -> BTreeSet<u32> {
    let found = processes::of_models_in(folder);
    working_in(folder).difference(&found).copied().collect()
}

fn send(signal: &str, child: &Child) {
    let sent = Command::new("kill")
        .args([signal, &child.id().to_string()])
        .status()
        .unwrap();
    assert!(sent.success());
}

/// Waits for a command for at most ten seconds.
#[track_caller]
fn end(mut child: Child) -> ExitStatus {
    let began = Instant::now();
    loop {
        if let Some(status) = child.try_wait().unwrap() {
            return status;
        }
        if began.elapsed() > Duration::from_secs(10) {
            let _ = child.kill();
            panic!("the command still runs ten seconds after the signal");
        }
        std::thread::sleep(Duration::from_millis(20));
    }
}

/// The names of what is in a folder.
fn entries(folder: &Path) -> BTreeSet<String> {
    let entries = std::fs::read_dir(folder).unwrap();
    entries
        .map(|entry| entry.unwrap().file_name().into_string().unwrap())
        .collect()
}

/// The running processes that have their working folder in a folder, as all processes of a model from an archive.
fn working_in(folder: &Path) -> BTreeSet<u32> {
    let ids = std::fs::read_dir("/proc").unwrap().flatten();
    ids.filter_map(|entry| entry.file_name().to_str()?.parse().ok())
        .filter(|id| std::fs::read_link(format!("/proc/{id}/cwd")).is_ok_and(|at| at.starts_with(folder)))
        .collect()
}

#[track_caller]
fn assert_nothing_left(folder: &Path) {
    assert_eq!(processes::of_models_in(folder), BTreeSet::new());
    assert_eq!(working_in(folder), BTreeSet::new());
    assert_eq!(entries(folder), BTreeSet::new());
}

#[test]
fn a_signal_ends_the_models_and_their_helpers_and_removes_what_was_unpacked() {
    for (signal, code) in [("-INT", 130), ("-TERM", 143), ("-HUP", 129)] {
        let folder = tempfile::tempdir().unwrap();
        let child = estimate(&["never_ends"], folder.path()).spawn().unwrap();
        wait_for_helper(folder.path());
        send(signal, &child);
        assert_eq!(end(child).code(), Some(code), "{signal}");
        assert_nothing_left(folder.path());
    }
}

#[test]
fn a_second_signal_leaves_nothing_either() {
    let folder = tempfile::tempdir().unwrap();
    let child = estimate(&["never_ends"], folder.path()).spawn().unwrap();
    wait_for_helper(folder.path());
    send("-INT", &child);
    // While the helper, which ignores SIGTERM, has its time to end.
    std::thread::sleep(Duration::from_millis(300));
    send("-INT", &child);
    assert_eq!(end(child).code(), Some(130));
    assert_nothing_left(folder.path());
}

#[test]
fn what_a_killed_command_left_is_removed_by_the_next_one() {
    let folder = tempfile::tempdir().unwrap();
    let mut child = estimate(&["never_ends"], folder.path()).spawn().unwrap();
    wait_for_helper(folder.path());
    child.kill().unwrap();
    assert_eq!(child.wait().unwrap().signal(), Some(9));
    assert!(!entries(folder.path()).is_empty());
    let archive = ARCHIVE.get();
    let next = command(&["list", "--archive-file", archive.to_str().unwrap()], folder.path()).status();
    assert!(next.unwrap().success());
    // Nobody can find it: the command that adopted it was killed.
    for orphan in orphans(folder.path()) {
        let _ = Command::new("kill").args(["-KILL", &orphan.to_string()]).status();
    }
    wait_until("the orphan ended", || working_in(folder.path()).is_empty());
    assert_nothing_left(folder.path());
}

#[test]
fn a_command_never_removes_what_another_one_uses() {
    let folder = tempfile::tempdir().unwrap();
    let child = estimate(&["never_ends"], folder.path()).spawn().unwrap();
    wait_for_helper(folder.path());
    let (used, running) = (entries(folder.path()), processes::of_models_in(folder.path()));
    let archive = ARCHIVE.get();
    let other = command(&["list", "--archive-file", archive.to_str().unwrap()], folder.path()).status();
    assert!(other.unwrap().success());
    assert_eq!(entries(folder.path()), used);
    assert_eq!(processes::of_models_in(folder.path()), running);
    send("-TERM", &child);
    assert_eq!(end(child).code(), Some(143));
}

#[test]
fn a_time_limit_ends_the_processes_of_the_model_too() {
    let folder = tempfile::tempdir().unwrap();
    let child = estimate(&["never_ends"], folder.path())
        .args(["--timeout", "15s"])
        .spawn()
        .unwrap();
    wait_for_helper(folder.path());
    assert_eq!(child.wait_with_output().unwrap().status.code(), Some(101));
    assert_nothing_left(folder.path());
}

#[test]
fn a_process_that_outlives_its_model_is_told_and_ended() {
    let folder = tempfile::tempdir().unwrap();
    let leaving = ["leaves_a_process", "leaves_an_orphan", "leaves_a_child_of_a_thread"];
    let mut arguments = estimated(&leaving);
    // Two models may end at the same time.
    arguments.extend(["-m", "healthy", "--jobs", "2"]);
    let (report, exit, text) = common::report_of(&arguments, |command| {
        command.env("TMPDIR", folder.path());
    });
    assert_eq!(exit, 0, "{text}");
    for run in &report.runs {
        let is_left = |assumption: &Assumption| assumption.code() == Assumption::ProcessesLeft.code();
        let is_told = run.assumptions.iter().any(is_left);
        assert_eq!(is_told, run.model != "healthy", "{:?}", run.assumptions);
    }
    for model in leaving {
        let line = format!("never-ends/{model}: {}", Assumption::ProcessesLeft);
        assert!(text.contains(&line), "{text}");
    }
    assert_nothing_left(folder.path());
}

#[test]
fn a_signal_before_any_model_runs_ends_what_the_command_waits_for() {
    let folder = tempfile::tempdir().unwrap();
    let (cargo, started) = (folder.path().join("cargo"), folder.path().join("started"));
    let script = format!(
        "#!/bin/sh\necho $$ > {}\nwhile :; do sleep 0.1; done\n",
        started.display()
    );
    std::fs::write(&cargo, script).unwrap();
    let executable = std::os::unix::fs::PermissionsExt::from_mode(0o755);
    std::fs::set_permissions(&cargo, executable).unwrap();
    let mut list = command(&["list", "--manifest-path", &MANIFEST], folder.path());
    // Without the answer of an earlier command, which would start no Cargo.
    let target = folder.path().join("target");
    let child = list
        .env("CARGO", &cargo)
        .env("CARGO_TARGET_DIR", &target)
        .spawn()
        .unwrap();
    wait_until("Cargo was started", || {
        std::fs::read_to_string(&started).is_ok_and(|id| id.ends_with('\n'))
    });
    let id = std::fs::read_to_string(&started).unwrap();
    send("-TERM", &child);
    assert_eq!(end(child).code(), Some(143));
    // Its parent may have ended before it could collect it.
    let state = std::fs::read_to_string(format!("/proc/{}/stat", id.trim())).unwrap_or_default();
    assert!(state.is_empty() || state.contains(") Z "), "{state}");
}

#[test]
fn a_signal_that_was_ignored_from_the_start_stays_ignored() {
    let folder = tempfile::tempdir().unwrap();
    let estimate = estimate(&["never_ends"], folder.path());
    // As `nohup` does.
    let mut shell = Command::new("sh");
    shell
        .args(["-c", "trap '' HUP; exec \"$0\" \"$@\""])
        .arg(estimate.get_program())
        .args(estimate.get_args());
    for (name, value) in estimate.get_envs() {
        match value {
            Some(value) => shell.env(name, value),
            None => shell.env_remove(name),
        };
    }
    shell.current_dir(estimate.get_current_dir().unwrap());
    shell.stdout(Stdio::null()).stderr(Stdio::null()).process_group(0);
    let child = shell.spawn().unwrap();
    wait_for_helper(folder.path());
    let running = processes::of_models_in(folder.path());
    send("-HUP", &child);
    // Longer than a stopped model has until SIGKILL.
    std::thread::sleep(Duration::from_secs(3));
    assert_eq!(processes::of_models_in(folder.path()), running);
    send("-TERM", &child);
    assert_eq!(end(child).code(), Some(143));
    assert_nothing_left(folder.path());
}
