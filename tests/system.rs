//! Faults of the system below the tool: system calls that fail, folders that are missing or read-only.
//!
//! Tests of results that cannot be written to a full disk are in `gate`.

use std::io::{BufRead, BufReader};
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};
use std::time::Duration;

use cargo_vram::report::{Report, Status};

use crate::common;
use crate::common::Once;

/// A folder with the budgets and the report of a model that is over its limit.
pub(crate) static FAILED: Once<PathBuf> = Once::new("system", |folder| {
    let budgets = "version: 1\ngpu: l4\nmodels:\n  m000: { live: 1 KiB }\n";
    std::fs::write(folder.join("budgets.yaml"), budgets).unwrap();
    let checked = check(folder, "report.json").output().unwrap();
    assert_eq!(checked.status.code(), Some(100), "{}", common::said(&checked));
    folder.to_owned()
});

/// A check of one small model that is over its limit. The report is written into `folder`.
fn check(folder: &Path, report: &str) -> Command {
    let manifest = common::fixture("fixtures/many").join("Cargo.toml");
    let mut command = common::vram(&[
        "check",
        "--estimate",
        "-m",
        "m000",
        "--message-format",
        "json",
        "-o",
        report,
    ]);
    command.arg("--manifest-path").arg(manifest);
    command.arg("--budgets").arg(folder.join("budgets.yaml"));
    command.current_dir(folder);
    command
}

/// A merge of the failed report alone, which must fail as the report did.
fn merge(folder: &Path, more: &[&str]) -> Command {
    let mut command = common::vram(&["merge", "report.json"]);
    command.args(more).current_dir(folder);
    command
}

/// Runs a command with strace, and returns its output and what strace logged.
fn logged(options: &[&str], command: &Command) -> (Output, String) {
    let log = tempfile::NamedTempFile::new().unwrap();
    let mut strace = Command::new("timeout");
    strace
        .args(["-k", "5", "60", "strace", "-o"])
        .arg(log.path())
        .args(options);
    strace.arg(command.get_program()).args(command.get_args());
    strace.current_dir(command.get_current_dir().unwrap());
    for (name, value) in command.get_envs() {
        match value {
            Some(value) => strace.env(name, value),
            None => strace.env_remove(name),
        };
    }
    let output = strace.output().unwrap();
    let said = common::said(&output);
    assert_ne!(
        output.status.code(),
        Some(124),
        "{options:?}: no end within 60 s: {said}"
    );
    assert!(
        !said.contains("strace: ") && !said.contains("timeout: "),
        "strace cannot trace here; `tests/run tests` installs it, and a container needs the capability SYS_PTRACE: {said}"
    );
    (output, std::fs::read_to_string(log.path()).unwrap())
}

/// Runs a command with strace, and returns its output and the number of calls that strace let fail.
fn traced(options: &[&str], command: &Command) -> (Output, usize) {
    let (output, log) = logged(options, command);
    (output, log.matches("(INJECTED)").count())
}

/// Returns how often a program that does nothing makes this call: mostly before `main`, where a failure ends any program.
fn calls_of_nothing(call: &str) -> usize {
    let mut nothing = common::vram(&["--version"]);
    nothing.current_dir(common::root());
    let (output, log) = logged(&["-e", &format!("trace={call}")], &nothing);
    assert!(output.status.success(), "{}", common::said(&output));
    log.lines().filter(|line| line.contains('(')).count()
}

/// System calls that fail, with their error and the fewest calls that a merge makes. Not every system has both calls that
/// start a thread.
const FAULTS: [(&str, &str, usize); 7] = [
    ("write", "ENOSPC", 1),
    ("write", "EPIPE", 1),
    ("openat", "EMFILE", 5),
    ("openat", "EACCES", 5),
    ("mmap", "ENOMEM", 10),
    ("?clone,?clone3", "EAGAIN", 1),
    ("read", "EIO", 5),
];

#[test]
fn no_system_call_that_fails_lets_a_failed_report_pass() {
    let folder = FAILED.get().as_path();
    for more in [&[][..], &["--message-format", "json", "-o", "merged.json"]] {
        let command = merge(folder, more);
        let (output, _) = traced(&["-f", "-e", "trace=none"], &command);
        assert_eq!(output.status.code(), Some(100), "{}", common::said(&output));
        for (call, error, fewest) in FAULTS {
            let mut failed = 0;
            for number in 1.. {
                let inject = format!("inject={call}:error={error}:when={number}");
                let trace = format!("trace={call}");
                let (output, injected) = traced(&["-f", "-e", &trace, "-e", &inject], &command);
                if injected == 0 {
                    break;
                }
                failed += 1;
                let said = common::said(&output);
                assert!(
                    !output.status.success(),
                    "{call} number {number} failed with {error}: {said}"
                );
            }
            assert!(failed >= fewest, "{failed} calls of {call} were made");
        }
    }
}

/// Lets calls fail, each time one in every process of the tool, of Cargo and of the model. `numbers` counts from the first
/// call that the tool makes itself. The model is over its limit, so the check must not pass.
fn no_fault_lets_the_check_pass(faults: &[(&str, &str, usize)], numbers: &[usize]) {
    let folder = FAILED.get().as_path();
    let mut command = check(folder, "faulty.json");
    // A model that waits for a thread that could not be started.
    command.args(["--timeout", "20s"]);
    for (call, error, _) in faults {
        let before = calls_of_nothing(call);
        for number in numbers {
            let inject = format!("inject={call}:error={error}:when={}", before + number);
            let trace = format!("trace={call}");
            let (output, injected) = traced(&["-f", "-e", &trace, "-e", &inject], &command);
            let said = common::said(&output);
            if injected == 0 {
                assert!(*number > 1, "no process made {number} calls of {call}: {said}");
                break;
            }
            // The shell's code for a program that could not be loaded.
            assert_ne!(output.status.code(), Some(127), "{call} number {number}: {said}");
            assert!(
                !output.status.success() && !said.is_empty(),
                "{call} number {number} failed with {error}: {said}"
            );
        }
    }
}

#[test]
fn no_system_call_that_fails_lets_a_check_pass() {
    // Not all, because each traced check takes ten seconds.
    no_fault_lets_the_check_pass(&[("openat", "EMFILE", 5), ("read", "EIO", 5)], &[1]);
}

#[test]
#[ignore = "takes a quarter of an hour: run by hand when the tool runs models or reads their results in another way"]
fn no_system_call_that_fails_anywhere_lets_a_check_pass() {
    no_fault_lets_the_check_pass(&FAULTS, &[1, 2, 3, 5, 8, 13, 21, 34, 55, 89]);
}

#[test]
fn a_read_only_target_folder_is_named() {
    let folder = FAILED.get().as_path();
    let command = check(folder, "read-only.json");
    let (output, injected) = traced(
        &[
            "-e",
            "trace=?mkdir,?mkdirat",
            "-e",
            "inject=?mkdir,?mkdirat:error=EROFS:when=1+",
        ],
        &command,
    );
    let said = common::said(&output);
    assert!(injected > 0, "{said}");
    assert_eq!(output.status.code(), Some(101), "{said}");
    let place = common::target_folder().join("vram");
    assert!(said.contains(place.to_str().unwrap()), "{said}");
    assert!(said.contains("Read-only file system"), "{said}");
    assert!(said.contains("that you may read and write it"), "{said}");
}

#[test]
fn the_help_for_a_failed_model_begins_with_a_full_disk() {
    let manifest = common::manifest("fixtures/broken");
    let mut command = common::vram(&["estimate", "--manifest-path", &manifest, "-p", "panics", "--gpu", "l4"]);
    let full = "the disk of ";
    // Without strace first, because Cargo may have to build the model.
    let said = common::said(&command.output().unwrap());
    assert!(said.contains("panicked") && !said.contains(full), "{said}");
    // Fields of `struct statfs` with 8 bytes each: type, block size, blocks, free blocks, blocks that are free for
    // users, files, free files, id, length of names, and size of fragments, in which blocks are counted.
    let statfs = |blocks: u64, free: u64| {
        let fields = [0x0102_1994, 4096, blocks, free, free, 9, 9, 0, 255, 4096];
        let bytes = fields.into_iter().flat_map(u64::to_ne_bytes);
        bytes.map(|byte| format!("{byte:02x}")).collect::<String>()
    };
    // A disk is full with less than 1 MiB. Without blocks, its size is unknown.
    for (blocks, free, is_full) in [(1000, 256, false), (1000, 255, true), (1000, 0, true), (0, 0, false)] {
        let inject = format!("inject=statfs:poke_exit=@arg2={}", statfs(blocks, free));
        let options = ["-f", "--seccomp-bpf", "-e", "trace=statfs", "-e", &inject];
        let (output, log) = logged(&options, &command);
        let said = common::said(&output);
        assert!(log.contains("(INJECTED"), "{log}");
        assert_eq!(output.status.code(), Some(101), "{said}");
        assert!(said.contains("panicked"), "{said}");
        assert_eq!(said.contains(full), is_full, "{blocks} blocks, {free} free: {said}");
    }
}

#[test]
fn an_empty_tmpdir_counts_as_unset() {
    let folder = tempfile::tempdir().unwrap();
    let archive = folder.path().join("archive.tar.zst");
    std::fs::write(&archive, crate::archive_support::Entries::sound().bytes()).unwrap();
    let mut command = common::vram(&["list", "--archive-file", archive.to_str().unwrap()]);
    let output = command.env("TMPDIR", "").output().unwrap();
    assert_eq!(output.status.code(), Some(0), "{}", common::said(&output));
}

#[test]
fn a_result_that_cannot_be_written_is_an_error() {
    let (read_only, full) = (std::fs::File::open("/dev/null"), std::fs::File::create("/dev/full"));
    for stdout in [read_only, full] {
        let mut command = common::vram(&["schema"]);
        let output = command.stdout(stdout.unwrap()).output().unwrap();
        let said = common::said(&output);
        assert_eq!(output.status.code(), Some(101), "{said}");
        assert!(said.contains("cannot write to standard output"), "{said}");
    }
}

#[test]
fn progress_says_that_another_command_builds_the_driver() {
    let folder = tempfile::tempdir().unwrap();
    let driver = folder.path().join("vram/driver");
    std::fs::create_dir_all(&driver).unwrap();
    let lock = std::fs::File::create(driver.join("lock")).unwrap();
    lock.lock().unwrap();
    let mut command = common::vram(&["gpus", "--here"]);
    let mut child = command
        .env("CARGO_TARGET_DIR", folder.path())
        .stdout(Stdio::null())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    let stderr = child.stderr.take().unwrap();
    let (send, said) = std::sync::mpsc::channel();
    std::thread::spawn(move || {
        let mut lines = BufReader::new(stderr).lines().map_while(Result::ok);
        let _ = send.send(lines.find(|line| line.contains("waiting")));
    });
    let line = said.recv_timeout(Duration::from_secs(60));
    child.kill().unwrap();
    child.wait().unwrap();
    let place = driver.display();
    let expected = format!("waiting for the virtual driver, which this or another command builds in {place} …");
    assert_eq!(line, Ok(Some(expected)));
}

#[test]
fn no_folder_for_temporary_files_and_no_home_folder_have_no_effect() {
    let folder = FAILED.get().as_path();
    let read = |name: &str| -> Report { serde_json::from_slice(&std::fs::read(folder.join(name)).unwrap()).unwrap() };
    let expected = read("report.json");
    let home = std::env::var("HOME").unwrap();
    let of_home = |variable: &str, name: &str| {
        std::env::var_os(variable).unwrap_or_else(|| Path::new(&home).join(name).into_os_string())
    };
    let mut command = check(folder, "homeless.json");
    command
        .env("TMPDIR", "/nonexistent/tmp")
        .env("CARGO_HOME", of_home("CARGO_HOME", ".cargo"))
        .env("RUSTUP_HOME", of_home("RUSTUP_HOME", ".rustup"))
        .env_remove("HOME");
    let output = command.output().unwrap();
    let said = common::said(&output);
    assert_eq!(output.status.code(), Some(100), "{said}");
    let report = read("homeless.json");
    assert_eq!(report.status, Status::Fail);
    assert_eq!(report.runs[0].peaks, expected.runs[0].peaks);
}
