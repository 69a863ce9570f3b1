//! Helpers of the end-to-end tests: the binary, its target folder and its report.
#![allow(dead_code, reason = "each test uses a part")]

pub(crate) mod burn_0_22;
#[cfg(target_os = "linux")]
pub(crate) mod gpu;
pub(crate) mod repository;
pub(crate) mod workspaces;

use std::fs::{self, File};
use std::path::{Path, PathBuf};
use std::process::{Command, Output};
use std::sync::{LazyLock, OnceLock};

use cargo_vram::report::{Report, Run};
use serde::{Deserialize, Serialize};

/// The folder of the project.
pub(crate) fn root() -> &'static Path {
    Path::new(env!("CARGO_MANIFEST_DIR"))
}

/// Whether these tests use models for Burn 0.22 instead of 0.21. `tests/burn-0_22` sets the variable.
pub(crate) fn is_burn_0_22() -> bool {
    std::env::var_os("VRAM_TEST_BURN").is_some_and(|burn| burn == "0.22")
}

/// The version of Burn in the tests, as `cargo vram` prints it.
pub(crate) fn burn() -> &'static str {
    if is_burn_0_22() { "0.22.1" } else { "0.21.0" }
}

/// The folder of the zoo's workspace.
pub(crate) fn workspace() -> PathBuf {
    if is_burn_0_22() {
        root().join(burn_0_22::ZOO)
    } else {
        root().join("fixtures/zoo")
    }
}

/// The folder of a fixture such as `fixtures/broken`, with models for the Burn version of these tests.
pub(crate) fn fixture(folder: &str) -> PathBuf {
    if is_burn_0_22() {
        burn_0_22::fixture(folder)
    } else {
        root().join(folder)
    }
}

/// The path of the manifest of a fixture's workspace.
pub(crate) fn manifest(fixture: &str) -> String {
    let path = self::fixture(fixture).join("Cargo.toml");
    path.into_os_string().into_string().unwrap()
}

/// The path of the manifest of the workspace with the packages `retained-loss-before` and `-after`.
pub(crate) fn retained_loss() -> &'static str {
    static MANIFEST: LazyLock<String> = LazyLock::new(|| manifest("fixtures/pairs"));
    &MANIFEST
}

/// Translates models for Burn 0.21 to the Burn version of these tests.
pub(crate) fn models(code: &str) -> String {
    if is_burn_0_22() {
        burn_0_22::translated(code)
    } else {
        code.to_owned()
    }
}

/// The target folder of this test itself. Commands build there too, so that Cargo builds Burn once.
pub(crate) fn target_folder() -> PathBuf {
    // …/target/debug/cargo-vram
    Path::new(env!("CARGO_BIN_EXE_cargo-vram"))
        .ancestors()
        .nth(2)
        .unwrap()
        .to_owned()
}

/// A value that one test makes and several tests use.
///
/// Nextest runs each test in its own process, and gives the whole run an id. The first process writes the value to a
/// file of that run, and the others read it. With `cargo test`, the tests share one process.
pub(crate) struct Once<T> {
    name: &'static str,
    make: fn(&Path) -> T,
    here: OnceLock<T>,
}

impl<T: Serialize + for<'a> Deserialize<'a>> Once<T> {
    /// `make` gets a folder for the files of the value.
    pub(crate) const fn new(name: &'static str, make: fn(&Path) -> T) -> Self {
        Self {
            name,
            make,
            here: OnceLock::new(),
        }
    }

    pub(crate) fn get(&self) -> &T {
        self.here.get_or_init(|| {
            // With `cargo test`, the process id stands for the run. An earlier run may have had the same id.
            let run = std::env::var("NEXTEST_RUN_ID");
            let is_shared = run.is_ok();
            let run = run.unwrap_or_else(|_| std::process::id().to_string());
            // The folder is not in the target folder, where Cargo and git would take a package for a part of this
            // project.
            let folder = std::env::temp_dir().join("cargo-vram-tests").join(run).join(self.name);
            if !is_shared {
                let _ = fs::remove_dir_all(&folder);
            }
            fs::create_dir_all(&folder).unwrap();
            let lock = File::create(folder.join("lock")).unwrap();
            lock.lock().unwrap();
            let file = folder.join("value.json");
            if let Ok(json) = fs::read(&file) {
                return serde_json::from_slice(&json).unwrap();
            }
            let value = (self.make)(&folder);
            fs::write(&file, serde_json::to_vec(&value).unwrap()).unwrap();
            value
        })
    }
}

/// The result of a command that writes a report.
#[derive(Serialize, Deserialize)]
pub(crate) struct Checked {
    pub(crate) report: Report,
    pub(crate) exit: i32,
    pub(crate) text: String,
}

impl Checked {
    pub(crate) fn new(arguments: &[&str]) -> Self {
        let (report, exit, text) = report(arguments);
        Self { report, exit, text }
    }
}

/// `cargo vram` in the folder of the zoo's workspace, called in the way that Cargo calls it.
pub(crate) fn vram(arguments: &[&str]) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_cargo-vram"));
    command
        .arg("vram")
        .args(arguments)
        .current_dir(workspace())
        .env("CARGO_TARGET_DIR", target_folder())
        .env("NO_COLOR", "1")
        .env_remove("CARGO_TERM_COLOR")
        .env_remove("RUST_BACKTRACE");
    without_test_variables(&mut command);
    command
}

/// Removes the variables that Cargo and nextest set for a test.
///
/// Build scripts depend on such variables. With other values, Cargo would build half of Burn again.
pub(crate) fn without_test_variables(command: &mut Command) {
    for (name, _) in std::env::vars_os() {
        let text = name.to_string_lossy();
        let is_of_the_test = ["CARGO_PKG_", "CARGO_MANIFEST_", "CARGO_BIN_EXE_", "NEXTEST"];
        if is_of_the_test.iter().any(|prefix| text.starts_with(prefix)) {
            command.env_remove(name);
        }
    }
}

/// Runs `cargo vram` and returns its output.
pub(crate) fn output(arguments: &[&str]) -> Output {
    vram(arguments).output().unwrap()
}

/// The text that a command printed to stdout and stderr.
pub(crate) fn said(output: &Output) -> String {
    String::from_utf8_lossy(&output.stdout).into_owned() + &String::from_utf8_lossy(&output.stderr)
}

/// Asserts that a document matches the schema that `cargo vram schema` prints for its kind.
pub(crate) fn is_valid(kind: &str, document: &str) {
    let schema = output(&["schema", kind]);
    let schema = serde_json::from_slice(&schema.stdout).unwrap();
    let document = serde_json::from_str(document).unwrap();
    let validator = jsonschema::validator_for(&schema).unwrap();
    let errors: Vec<_> = validator
        .iter_errors(&document)
        .map(|error| error.to_string())
        .collect();
    assert!(errors.is_empty(), "{kind}: {errors:?}");
}

/// Makes a folder with a replacement of Cargo, for the variable `CARGO`.
///
/// It runs the script `builds` for `cargo build`, and the real Cargo for everything else. `REAL_CARGO` is the path of
/// the real Cargo.
#[cfg(unix)]
pub(crate) fn cargo_that(builds: &str) -> (tempfile::TempDir, String) {
    let folder = tempfile::tempdir().unwrap();
    let program = folder.path().join("cargo");
    let real = std::env::var("CARGO").unwrap_or_else(|_| "cargo".to_owned());
    let script =
        format!("#!/bin/sh\nREAL_CARGO='{real}'\n[ \"$1\" = build ] || exec \"$REAL_CARGO\" \"$@\"\n{builds}\n");
    write_program(&program, script);
    (folder, program.to_str().unwrap().to_owned())
}

/// Writes an executable file.
#[cfg(unix)]
pub(crate) fn write_program(path: &Path, content: impl AsRef<[u8]>) {
    use std::os::unix::fs::PermissionsExt;
    std::fs::write(path, content).unwrap();
    std::fs::set_permissions(path, std::fs::Permissions::from_mode(0o755)).unwrap();
}

/// The lines of stderr without progress, such as that a build waits for the build of another test.
pub(crate) fn unhindered(stderr: &[u8]) -> String {
    let doing = [
        "building models",
        "building the models",
        "estimating ",
        "measuring ",
        "explaining ",
        "trying ",
        "done: ",
    ];
    let is_progress = |line: &&str| doing.iter().any(|doing| line.starts_with(doing));
    let stderr = String::from_utf8_lossy(stderr);
    stderr.split_inclusive('\n').filter(|line| !is_progress(line)).collect()
}

/// Runs a command that writes a report; returns the report, the exit code and the printed text.
pub(crate) fn report(arguments: &[&str]) -> (Report, i32, String) {
    report_of(arguments, |_| {})
}

/// Does the same as [`report`], but lets `more` change the command before it runs.
pub(crate) fn report_of(arguments: &[&str], more: impl FnOnce(&mut Command)) -> (Report, i32, String) {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("report.json");
    let mut all = arguments.to_vec();
    all.extend(["--message-format", "json", "--output", file.to_str().unwrap()]);
    let mut command = vram(&all);
    more(&mut command);
    let output = command.output().unwrap();
    let text = String::from_utf8(output.stdout).unwrap() + &unhindered(&output.stderr);
    let json = std::fs::read_to_string(&file).unwrap_or_else(|error| panic!("no report was written: {error}\n{text}"));
    (
        serde_json::from_str(&json).unwrap(),
        output.status.code().unwrap(),
        text,
    )
}

/// The run of a model, or of a budget that has its own name.
pub(crate) fn run<'a>(report: &'a Report, name: &str) -> &'a Run {
    report
        .runs
        .iter()
        .find(|run| run.name() == name)
        .unwrap_or_else(|| panic!("the report has no run of {name}"))
}

/// Writes a `budgets.yaml`; returns its temporary folder and its path.
pub(crate) fn budgets(text: &str) -> (tempfile::TempDir, String) {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("budgets.yaml");
    std::fs::write(&path, text).unwrap();
    let path = path.to_str().unwrap().to_owned();
    (folder, path)
}

/// A folder for the files of a test, usually temporary.
pub(crate) struct Folder {
    root: PathBuf,
    _temporary: Option<tempfile::TempDir>,
}

impl Folder {
    pub(crate) fn new() -> Self {
        let temporary = tempfile::tempdir().unwrap();
        Self {
            root: temporary.path().to_owned(),
            _temporary: Some(temporary),
        }
    }

    /// Uses a folder that stays after the test.
    pub(crate) fn kept(root: PathBuf) -> Self {
        Self { root, _temporary: None }
    }

    /// The path of the folder.
    pub(crate) fn root(&self) -> &Path {
        &self.root
    }

    /// The path of a file in the folder, which may not exist.
    pub(crate) fn path(&self, name: &str) -> PathBuf {
        self.root().join(name)
    }

    /// Writes a file, and makes its folders.
    pub(crate) fn write(&self, name: &str, text: &str) {
        let path = self.path(name);
        std::fs::create_dir_all(path.parent().unwrap()).unwrap();
        std::fs::write(path, text).unwrap();
    }

    pub(crate) fn read(&self, name: &str) -> String {
        std::fs::read_to_string(self.path(name)).unwrap()
    }
}

#[track_caller]
pub(crate) fn assert_exit(output: &Output, code: i32) {
    assert_eq!(output.status.code(), Some(code), "{}", said(output));
}
