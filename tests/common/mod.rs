//! What the end-to-end tests have in common: the binary, its target folder, and its report.
#![allow(dead_code, reason = "each test uses a part")]

pub(crate) mod burn_0_22;
#[cfg(target_os = "linux")]
pub(crate) mod card;
pub(crate) mod repository;

use std::path::{Path, PathBuf};
use std::process::{Command, Output};
use std::sync::LazyLock;

use cargo_vram::report::{Report, Run};

/// The project's folder.
pub(crate) fn root() -> &'static Path {
    Path::new(env!("CARGO_MANIFEST_DIR"))
}

/// Whether the models of these tests are those for Burn 0.22 and not for 0.21: `tests/burn-0_22` says so.
pub(crate) fn is_burn_0_22() -> bool {
    std::env::var_os("VRAM_TEST_BURN").is_some_and(|burn| burn == "0.22")
}

/// The folder of the workspace that has the zoo.
pub(crate) fn workspace() -> PathBuf {
    if is_burn_0_22() {
        root().join(burn_0_22::ZOO)
    } else {
        root().to_owned()
    }
}

/// The folder of a fixture, `fixtures/broken`, with models for the Burn of these tests.
pub(crate) fn fixture(folder: &str) -> PathBuf {
    if is_burn_0_22() {
        burn_0_22::fixture(folder)
    } else {
        root().join(folder)
    }
}

/// The manifest of a fixture's workspace.
pub(crate) fn manifest(fixture: &str) -> String {
    let path = self::fixture(fixture).join("Cargo.toml");
    path.into_os_string().into_string().unwrap()
}

/// The manifest of the workspace that has the packages `retained-loss-before` and `-after`: for Burn 0.21 the root's, which has Burn
/// compiled.
pub(crate) fn retained_loss() -> &'static str {
    static MANIFEST: LazyLock<String> = LazyLock::new(|| {
        let manifest = match is_burn_0_22() {
            true => burn_0_22::workspace("fixtures/pairs/retained-loss"),
            false => root().join("Cargo.toml"),
        };
        manifest.into_os_string().into_string().unwrap()
    });
    &MANIFEST
}

/// Code of models for Burn 0.21, as it is for the Burn of these tests.
pub(crate) fn models(code: &str) -> String {
    if is_burn_0_22() {
        burn_0_22::translated(code)
    } else {
        code.to_owned()
    }
}

/// The target folder that this test itself was built into, so that Burn is built once.
pub(crate) fn target_folder() -> PathBuf {
    // …/target/debug/cargo-vram
    Path::new(env!("CARGO_BIN_EXE_cargo-vram"))
        .ancestors()
        .nth(2)
        .unwrap()
        .to_owned()
}

/// `cargo vram` in the folder of the zoo's workspace, as Cargo would call it.
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
    command
}

/// Runs it to its end.
pub(crate) fn output(arguments: &[&str]) -> Output {
    vram(arguments).output().unwrap()
}

/// What a command said, to whoever reads it.
pub(crate) fn said(output: &Output) -> String {
    String::from_utf8_lossy(&output.stdout).into_owned() + &String::from_utf8_lossy(&output.stderr)
}

/// Holds a document against the schema that the program prints for such documents.
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

/// Writes a file that can be run.
#[cfg(unix)]
pub(crate) fn write_program(path: &Path, content: impl AsRef<[u8]>) {
    use std::os::unix::fs::PermissionsExt;
    std::fs::write(path, content).unwrap();
    std::fs::set_permissions(path, std::fs::Permissions::from_mode(0o755)).unwrap();
}

/// What was said besides what is being done meanwhile, such as that a build waits for that of a test beside it.
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

/// Runs a command that writes a report, and reads the report. Also gives the exit code and what people were shown.
pub(crate) fn report(arguments: &[&str]) -> (Report, i32, String) {
    report_of(arguments, |_| {})
}

/// The same, with more said of the command.
pub(crate) fn report_of(arguments: &[&str], more: impl FnOnce(&mut Command)) -> (Report, i32, String) {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("report.json");
    let mut all = arguments.to_vec();
    all.extend(["--message-format", "json", "--output", file.to_str().unwrap()]);
    let mut command = vram(&all);
    more(&mut command);
    let output = command.output().unwrap();
    let text = String::from_utf8(output.stdout).unwrap() + &unhindered(&output.stderr);
    let json = std::fs::read_to_string(&file).unwrap_or_else(|error| panic!("no report: {error}\n{text}"));
    (
        serde_json::from_str(&json).unwrap(),
        output.status.code().unwrap(),
        text,
    )
}

/// The run of a model, or of a budget with another name.
pub(crate) fn run<'a>(report: &'a Report, name: &str) -> &'a Run {
    report
        .runs
        .iter()
        .find(|run| run.name() == name)
        .unwrap_or_else(|| panic!("no run of {name}"))
}

/// A budget file that is there as long as its folder is held, and its path.
pub(crate) fn budgets(text: &str) -> (tempfile::TempDir, String) {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("budgets.yaml");
    std::fs::write(&path, text).unwrap();
    let path = path.to_str().unwrap().to_owned();
    (folder, path)
}

/// A folder that is there as long as it is held, and whatever a test puts into it.
pub(crate) struct Folder(tempfile::TempDir);

impl Folder {
    pub(crate) fn new() -> Self {
        Self(tempfile::tempdir().unwrap())
    }

    /// Where it is.
    pub(crate) fn root(&self) -> &Path {
        self.0.path()
    }

    /// Where a file of this name is, or would be.
    pub(crate) fn path(&self, name: &str) -> PathBuf {
        self.root().join(name)
    }

    /// Writes a file, and makes the folders that it is in.
    pub(crate) fn write(&self, name: &str, text: &str) {
        let path = self.path(name);
        std::fs::create_dir_all(path.parent().unwrap()).unwrap();
        std::fs::write(path, text).unwrap();
    }

    pub(crate) fn read(&self, name: &str) -> String {
        std::fs::read_to_string(self.path(name)).unwrap()
    }
}
