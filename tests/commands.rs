//! The commands as a new user runs them, in a new project.

use std::io::{BufRead, BufReader};
use std::path::Path;
use std::process::{Command, Output};

use serde_json::Value;

use crate::common;
use crate::common::{Folder, said};

/// A package with a library, a test and Burn. Its lock file is a copy of the zoo's workspace.
struct Project {
    folder: Folder,
}

const LIBRARY: &str = "#[test]\nfn it_works() {}\n";
/// A model in the style of the Burn book: a configuration makes it, and Burn's learner trains it.
const TRAINED: &str = r#"
use burn::config::Config;
use burn::module::Module;
use burn::nn::loss::CrossEntropyLossConfig;
use burn::nn::{Linear, LinearConfig};
use burn::tensor::backend::{AutodiffBackend, Backend};
use burn::tensor::{Int, Tensor};
use burn::train::{ClassificationOutput, TrainOutput, TrainStep};

#[derive(Module, Debug)]
pub struct Classifier<B: Backend> {
    hidden: Linear<B>,
    output: Linear<B>,
}

#[derive(Config, Debug)]
pub struct ClassifierConfig {
    classes: usize,
    #[config(default = 256)]
    hidden: usize,
}

impl ClassifierConfig {
    pub fn init<B: Backend>(&self, device: &B::Device) -> Classifier<B> {
        Classifier {
            hidden: LinearConfig::new(28 * 28, self.hidden).init(device),
            output: LinearConfig::new(self.hidden, self.classes).init(device),
        }
    }
}

#[derive(Clone, Debug)]
pub struct Digits<B: Backend> {
    pub images: Tensor<B, 3>,
    pub targets: Tensor<B, 1, Int>,
}

impl<B: AutodiffBackend> TrainStep for Classifier<B> {
    type Input = Digits<B>;
    type Output = ClassificationOutput<B>;

    fn step(&self, batch: Digits<B>) -> TrainOutput<ClassificationOutput<B>> {
        let hidden = burn::tensor::activation::relu(self.hidden.forward(batch.images.flatten::<2>(1, 2)));
        let logits = self.output.forward(hidden);
        let loss = CrossEntropyLossConfig::new().init(&logits.device());
        let loss = loss.forward(logits.clone(), batch.targets.clone());
        TrainOutput::new(self, loss.backward(), ClassificationOutput::new(loss, logits, batch.targets))
    }
}
"#;

/// The end of one of the zoo's manifests, starting at `from`: the line of Burn or the profile. A project with both
/// shares the zoo's build of Burn.
fn of_the_zoo(from: &str) -> String {
    let package = common::workspace().join(if common::is_burn_0_22() { "" } else { "fixtures/zoo" });
    let folder = if from.starts_with('[') {
        common::workspace()
    } else {
        package
    };
    let manifest = std::fs::read_to_string(folder.join("Cargo.toml")).unwrap();
    manifest[manifest.find(from).unwrap()..].to_owned()
}

fn dependency() -> String {
    of_the_zoo("burn = ").lines().next().unwrap().to_owned()
}

/// The version of Burn in these tests, as `cargo vram` prints it.
fn burn() -> &'static str {
    if common::is_burn_0_22() { "0.22.1" } else { "0.21.0" }
}

impl Project {
    fn new(source: &str, text: &str) -> Self {
        let folder = Folder::new();
        folder.write(source, text);
        folder.write(
            "Cargo.toml",
            &format!(
                "# A comment that stays.\n[package]\nname = \"new-comer\"\nversion = \"0.1.0\"\nedition = \"2024\"\n\n[dependencies]\n{} # and so does this one\n\n{}",
                dependency(),
                of_the_zoo("[profile.dev]")
            ),
        );
        // The profile and the versions are the zoo's, because another build of Burn takes minutes.
        std::fs::copy(common::workspace().join("Cargo.lock"), folder.path("Cargo.lock")).unwrap();
        Self { folder }
    }

    /// Makes a package with these files; the tests do not build it.
    fn of(files: &[(&str, &str)]) -> Self {
        let project = Self::new("src/lib.rs", "");
        for (name, text) in files {
            project.folder.write(name, text);
        }
        project
    }

    /// The content of every file, except Cargo's files and the target folder.
    fn files(&self) -> std::collections::BTreeMap<std::path::PathBuf, String> {
        let mut files = std::collections::BTreeMap::new();
        let mut folders = vec![self.folder.root().to_owned()];
        while let Some(folder) = folders.pop() {
            for entry in std::fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().path()) {
                if entry.is_dir() {
                    folders.push(entry);
                } else {
                    let text = std::fs::read_to_string(&entry).unwrap();
                    files.insert(entry, text);
                }
            }
        }
        files
    }

    /// Asserts that `init` fails, prints these sentences, and does not change a file.
    #[track_caller]
    fn assert_init_refuses(&self, arguments: &[&str], sentences: &[&str]) {
        let before = self.files();
        let output = self.vram(&[&["init"], arguments].concat());
        assert_exit(&output, 2);
        let said = unwrapped(&output);
        for sentence in sentences {
            assert!(said.contains(sentence), "{sentence}: {said}");
        }
        assert_eq!(self.files(), before);
    }

    fn vram(&self, arguments: &[&str]) -> Output {
        common::vram(arguments)
            .current_dir(self.folder.root())
            .output()
            .unwrap()
    }

    fn init(&self) -> Output {
        self.vram(&["init", "--path", common::root().to_str().unwrap()])
    }
}

#[track_caller]
fn assert_exit(output: &Output, code: i32) {
    assert_eq!(output.status.code(), Some(code), "{}", said(output));
}

/// The output on one line, because messages are wrapped at the width of a terminal.
fn unwrapped(output: &Output) -> String {
    let said = said(output).replace(['│', '╰', '─', '▶'], " ");
    said.split_whitespace().collect::<Vec<_>>().join(" ")
}

#[test]
fn a_newcomers_first_check_passes_and_their_tests_still_do() {
    let project = Project::new("src/lib.rs", &format!("pub mod model;\n\n{LIBRARY}"));
    project.folder.write("src/model.rs", &common::models(TRAINED));
    let written = project.init();
    assert_exit(&written, 0);
    let told = unwrapped(&written);
    for sentence in [
        &format!("new-comer uses Burn {}, with `train`", burn()),
        "`Classifier` (src/model.rs): Module, TrainStep",
        "replace the sizes and the optimizer of `new_comer::model::Classifier`",
        "3. run `cargo vram check`",
        "compiles Burn",
    ] {
        assert!(told.contains(sentence), "{sentence}: {told}");
    }
    assert!(!told.contains("--write-profile"), "the profile is there: {told}");
    let bench = project.folder.read("benches/vram.rs");
    let backend = if common::is_burn_0_22() { "" } else { "::<B>" };
    assert!(
        bench.contains(&format!(
            "ClassifierConfig::new(/* classes */ 10).init{backend}(device)"
        )),
        "{bench}"
    );
    let manifest = project.folder.read("Cargo.toml");
    assert!(
        manifest.contains("# A comment that stays.") && manifest.contains("# and so does this one"),
        "{manifest}"
    );
    assert!(
        manifest.contains("[[bench]]\nname = \"vram\"\nharness = false"),
        "{manifest}"
    );
    let checked = project.vram(&["check", "--estimate"]);
    assert_exit(&checked, 0);
    assert!(
        said(&checked).contains("estimated on a virtual NVIDIA L4"),
        "{}",
        said(&checked)
    );
    // The model ran in this folder, but wrote nothing to the autotune cache of the user's own runs.
    assert!(!project.folder.path("target").exists());

    // A second check without changes does not start the compiler.
    let log = project.folder.path("compilers.log");
    let wrapper = project.folder.path("wrapper.sh");
    common::write_program(
        &wrapper,
        format!("#!/bin/sh\necho \"$@\" >> {}\nexec \"$@\"\n", log.display()),
    );
    let again = common::vram(&["check", "--estimate"])
        .current_dir(project.folder.root())
        .env("RUSTC_WRAPPER", &wrapper)
        .output()
        .unwrap();
    assert_exit(&again, 0);
    let compiled = std::fs::read_to_string(&log).unwrap_or_default();
    let crates: Vec<_> = compiled
        .lines()
        .filter(|line| line.contains("--crate-name") && !line.contains("--crate-name ___"))
        .collect();
    assert!(crates.is_empty(), "{crates:?}");

    // The examples for Burn 0.22 are doctests, in docs/burn-versions.md.
    if !common::is_burn_0_22() {
        the_examples_of_the_docs_run(&project);
    }

    // A second `init` does not overwrite a file.
    let bench = project.folder.read("benches/vram.rs");
    let refused = project.init();
    assert_exit(&refused, 2);
    assert!(said(&refused).contains("already exists"), "{}", said(&refused));
    assert_eq!(project.folder.read("benches/vram.rs"), bench);

    // The benchmark target does not break other commands of the package.
    // `cargo bench` runs with `--profile dev` because an optimized build of Burn takes long.
    for arguments in [
        &["test", "--all-targets"][..],
        &["nextest", "run", "--all-targets"],
        &["bench", "--profile", "dev"],
    ] {
        if arguments[0] == "nextest" && !nextest_is_here() {
            println!("skipped: cargo-nextest is not installed");
            continue;
        }
        let mut command = Command::new("cargo");
        command.args(arguments).current_dir(project.folder.root());
        command.env("CARGO_TARGET_DIR", common::target_folder());
        common::without_test_variables(&mut command);
        let output = command.output().unwrap();
        assert_exit(&output, 0);
    }
}

/// Runs the complete examples of the pages for Burn 0.21, in a project whose Burn has the feature `train`.
fn the_examples_of_the_docs_run(project: &Project) {
    let manifest = project.folder.read("Cargo.toml");
    let (mut with_examples, mut targets) = (manifest.clone(), Vec::new());
    for (page, name, count) in [
        ("README.md", "readme", 1),
        ("docs/getting-started.md", "started", 2),
        ("docs/several-gpus.md", "several", 1),
    ] {
        let text = std::fs::read_to_string(common::root().join(page)).unwrap();
        let examples = text.split("```rust\n").skip(1);
        let examples: Vec<&str> = examples.map(|rest| rest.split("```").next().unwrap()).collect();
        assert_eq!(examples.len(), count, "this test must run each example of {page}");
        for (number, code) in examples.iter().enumerate() {
            let target = format!("{name}_{number}");
            project.folder.write(&format!("benches/{target}.rs"), code);
            with_examples += &format!("\n[[bench]]\nname = \"{target}\"\nharness = false\n");
            targets.push(target);
        }
    }
    with_examples += &format!("\n[package.metadata.vram]\ntargets = {targets:?}\n");
    project.folder.write("Cargo.toml", &with_examples);
    let estimated = project.vram(&["estimate", "--gpu", "l4"]);
    assert_exit(&estimated, 0);
    for model in ["linear", "network", "network_inference", "classifier", "split"] {
        assert!(said(&estimated).contains(model), "{model}: {}", said(&estimated));
    }
    project.folder.write("Cargo.toml", &manifest);
    for target in targets {
        std::fs::remove_file(project.folder.path(&format!("benches/{target}.rs"))).unwrap();
    }
}

fn nextest_is_here() -> bool {
    let version = Command::new("cargo").args(["nextest", "--version"]).output();
    version.is_ok_and(|output| output.status.success())
}

#[test]
fn a_package_with_only_a_binary_is_told_both_ways_and_can_take_the_smaller() {
    let project = Project::new("src/main.rs", "fn main() {}\n");
    project.assert_init_refuses(
        &[],
        &[
            "move the model from src/main.rs into src/lib.rs",
            "1. small change: move the model from src/main.rs into its own file",
        ],
    );
    project
        .folder
        .write("src/main.rs", "mod model;\nmod deep;\nfn main() {}\n");
    project.folder.write("src/model.rs", &common::models(TRAINED));
    project.folder.write("src/deep/mod.rs", "use crate::model as _;\n");
    project.assert_init_refuses(
        &[],
        &[
            "1. small change: run `cargo vram init --from-binary`",
            "src/model.rs, src/",
        ],
    );
    assert_exit(&project.vram(&["init", "--from-binary"]), 0);
    let bench = project.folder.read("benches/vram.rs");
    assert!(bench.contains("#[path = \"../src/model.rs\"]\nmod model;"), "{bench}");
    assert!(bench.contains("model::ClassifierConfig::new("), "{bench}");
}

#[test]
fn a_library_that_cargo_can_link_is_one() {
    let with = |types: &str| {
        let project = Project::new("src/lib.rs", LIBRARY);
        let manifest = project.folder.read("Cargo.toml");
        let manifest = manifest.replace(
            "[dependencies]",
            &format!("[lib]\ncrate-type = [{types}]\n\n[dependencies]"),
        );
        project.folder.write("Cargo.toml", &manifest);
        project
    };
    assert_exit(&with("\"cdylib\", \"rlib\"").vram(&["init"]), 0);
    with("\"cdylib\"").assert_init_refuses(&[], &["the library of new-comer is a cdylib", "add `\"rlib\"`"]);
}

/// Makes a workspace with a library that leaves the backend to its users, and an application that chooses one.
fn library_and_application(more: &str) -> Project {
    let package = |name: &str, rest: &str| {
        format!("[package]\nname = \"{name}\"\nversion = \"0.1.0\"\nedition = \"2024\"\n\n[dependencies]\n{rest}")
    };
    let burn = |features: &str| {
        format!("burn = {{ version = \"0.21\", default-features = false, features = [{features}] }}\n")
    };
    let library = package("nets", &burn("\"std\", \"autodiff\""));
    let application = burn("\"std\", \"cuda\", \"fusion\", \"autotune\"") + "nets = { path = \"../nets\" }\n";
    let project = Project::of(&[
        (
            "Cargo.toml",
            &format!("[workspace]\nresolver = \"3\"\nmembers = [\"app\", \"nets\"]\n{more}"),
        ),
        ("nets/Cargo.toml", &library),
        ("nets/src/lib.rs", LIBRARY),
        ("app/Cargo.toml", &package("app", &application)),
        ("app/src/main.rs", "fn main() {}\n"),
    ]);
    std::fs::remove_dir_all(project.folder.path("src")).unwrap();
    project
}

#[test]
fn a_benchmark_takes_over_the_burn_features_of_the_workspaces_binaries() {
    let project = library_and_application("");
    let written = project.vram(&["init", "-p", "nets"]);
    assert_exit(&written, 0);
    let told = unwrapped(&written);
    assert!(told.contains("`app` enables Burn's fusion and autotune"), "{told}");
    assert!(
        told.contains("[profile.dev.package] cargo-vram = { opt-level = 1 }"),
        "{told}"
    );
    let manifest = project.folder.read("nets/Cargo.toml");
    assert!(
        manifest
            .contains("burn = { version = \"0.21\", default-features = false, features = [\"fusion\", \"autotune\"] }"),
        "{manifest}"
    );
    // `init` writes the lines of the profile only with `--write-profile`.
    let root = project.folder.read("Cargo.toml");
    assert!(!root.contains("[profile"), "{root}");
    assert_exit(&project.vram(&["init", "-p", "nets", "--write-profile"]), 0);
    let root = project.folder.read("Cargo.toml");
    assert!(
        root.contains("[profile.dev]\ndebug = \"line-tables-only\"\n")
            && root.contains("burn-fusion = { opt-level = 1 }\n"),
        "{root}"
    );
}

#[test]
fn default_members_decide_which_package_is_meant() {
    let both = library_and_application("");
    both.assert_init_refuses(&[], &["several packages are selected: app, nets"]);
    assert_exit(
        &library_and_application("default-members = [\"nets\"]\n").vram(&["init"]),
        0,
    );
}

#[test]
fn a_project_whose_budgets_or_dependency_are_missing_is_completed_or_says_so() {
    let project = Project::new("src/lib.rs", LIBRARY);
    assert_exit(&project.init(), 0);
    let whole = project.files();
    let budgets = project.folder.path("budgets.yaml");
    std::fs::remove_file(&budgets).unwrap();
    let output = project.init();
    assert_exit(&output, 0);
    assert!(
        unwrapped(&output).contains("already exists; the limits are examples"),
        "{}",
        said(&output)
    );
    assert_eq!(project.files(), whole);
    // A benchmark that declares no model belongs to the user.
    project.folder.write("benches/vram.rs", "fn main() {}\n");
    std::fs::remove_file(&budgets).unwrap();
    project.assert_init_refuses(&[], &["benches/vram.rs already exists"]);

    let manifest = project.folder.read("Cargo.toml");
    let without: Vec<_> = manifest
        .lines()
        .filter(|line| !line.starts_with("cargo-vram = "))
        .collect();
    project.folder.write("Cargo.toml", &without.join("\n"));
    let output = project.vram(&["list"]);
    assert_exit(&output, 2);
    assert!(
        unwrapped(&output).contains("new-comer declares models but does not depend on cargo-vram"),
        "{}",
        said(&output)
    );
}

#[test]
fn a_burn_that_is_not_supported_is_refused_before_anything_is_written() {
    let with = |burn: &str| {
        let project = Project::new("src/lib.rs", LIBRARY);
        let manifest = project.folder.read("Cargo.toml").replace(&dependency(), burn);
        project.folder.write("Cargo.toml", &manifest);
        std::fs::remove_file(project.folder.path("Cargo.lock")).unwrap();
        project
    };
    let optional = "burn = { version = \"0.20\", default-features = false, optional = true }";
    for (burn, version) in [
        ("burn = { version = \"=0.20.1\", default-features = false }", "0.20.1"),
        (
            "burn = { version = \"=0.23.0-pre.1\", default-features = false }",
            "0.23.0-pre.1",
        ),
        (optional, "^0.20"),
    ] {
        let sentence = format!("new-comer uses Burn {version}, which this version of cargo-vram does not support");
        with(burn).assert_init_refuses(&[], &[&sentence, "supports Burn 0.21 and 0.22"]);
    }
}

#[test]
fn a_locked_prerelease_of_burn_comes_with_the_command_that_moves_it() {
    let pinned =
        |version: &str| format!("burn = {{ version = \"{version}\", default-features = false, features = [\"std\"] }}");
    let project = Project::new("src/lib.rs", LIBRARY);
    let manifest = project.folder.read("Cargo.toml");
    let cargo = |arguments: &str| {
        let output = Command::new("cargo")
            .args(arguments.split(' ').skip(1))
            .current_dir(project.folder.root())
            .output()
            .unwrap();
        assert_exit(&output, 0);
    };
    // An old pre-release of Burn.
    project
        .folder
        .write("Cargo.toml", &manifest.replace(&dependency(), &pinned("=0.21.0-pre.3")));
    std::fs::remove_file(project.folder.path("Cargo.lock")).unwrap();
    cargo("cargo generate-lockfile");
    project
        .folder
        .write("Cargo.toml", &manifest.replace(&dependency(), &pinned("0.21.0-pre.3")));
    project.assert_init_refuses(
        &[],
        &["Cargo.lock pins Burn 0.21.0-pre.3", "cargo update -p burn -p burn-"],
    );

    let told = unwrapped(&project.vram(&["init"]));
    // A shell joins lines that end with a backslash, so join them here.
    let command = told.split("again ").nth(1).unwrap().replace("\\ ", "");
    assert!(command.starts_with("cargo update -p burn -p burn-"), "{command}");
    cargo(&command);
    assert_exit(&project.vram(&["init"]), 0);
}

#[test]
fn a_project_that_cargo_cannot_resolve_with_cargo_vram_is_left_as_it_was() {
    let project = Project::new("src/lib.rs", LIBRARY);
    let nowhere = project.folder.path("nowhere");
    project.assert_init_refuses(
        &["--path", nowhere.to_str().unwrap()],
        &[
            "all changes were undone",
            "failed to read",
            "check out the missing path dependency",
        ],
    );
    // The lock file stays as it was too: if there was none, and if it must not change.
    std::fs::remove_file(project.folder.path("Cargo.lock")).unwrap();
    project.assert_init_refuses(&["--path", nowhere.to_str().unwrap()], &["all changes were undone"]);
    let fetched = Command::new("cargo")
        .args(["generate-lockfile", "--offline"])
        .current_dir(project.folder.root())
        .output()
        .unwrap();
    assert_exit(&fetched, 0);
    project.assert_init_refuses(
        &["--locked"],
        &["because --locked was passed", "run the command once without --locked"],
    );
}

#[test]
fn what_cargo_refuses_is_quoted_with_a_help_that_fits() {
    let package = "[package]\nname = \"refused\"\nversion = \"0.1.0\"\nedition = \"2024\"\n";
    let refused = |more: &str, arguments: &[&str]| {
        let folder = Folder::new();
        folder.write("Cargo.toml", &format!("{package}{more}"));
        folder.write("src/lib.rs", "");
        let arguments = [&["list"], arguments].concat();
        let output = common::vram(&arguments).current_dir(folder.root()).output().unwrap();
        assert_exit(&output, 2);
        unwrapped(&output)
    };
    let missing = "[dependencies]\nnowhere = { path = \"nowhere\" }\n";
    for (more, arguments, quote, help) in [
        (
            "oops\n",
            &[][..],
            "key with no value",
            "correct the manifest at the place that Cargo shows",
        ),
        (missing, &[], "failed to read", "correct its path"),
        (
            "",
            &["--locked"],
            "because --locked was passed",
            "once without --locked",
        ),
        (
            "",
            &["--features", "nope"],
            "does not contain this feature",
            "`[features]`",
        ),
        (
            "",
            &["--config", "nope"],
            "--config argument `nope`",
            "correct --config",
        ),
        (
            "",
            &["--manifest-path", "no/Cargo.toml"],
            "`no/Cargo.toml` does not exist",
            "--manifest-path",
        ),
        (
            "[dependencies]\nno-such-crate-of-cargo-vram = \"1\"\n",
            &["--offline"],
            "no matching package named",
            "leave out --offline",
        ),
    ] {
        let said = refused(more, arguments);
        assert!(said.contains(quote) && said.contains(help), "{said}");
        assert_eq!(
            said.contains("run the command in a Cargo workspace"),
            help == "--manifest-path",
            "{said}"
        );
    }
}

#[test]
fn one_command_fills_in_where_the_project_is_published() {
    const COMMIT: &str = "0123456789abcdef0123456789abcdef01234567";
    let folder = Folder::new();
    let workflow = ".github/workflows/vram.yml";
    for name in ["Cargo.toml", "README.md", "docs/github.md", "docs/gitlab.md", workflow] {
        let text = std::fs::read_to_string(common::root().join(name)).unwrap();
        folder.write(name, &text);
    }
    let script = std::fs::read(common::root().join(".github/publish")).unwrap();
    common::write_program(&folder.path(".github/publish"), script);
    let publish = |arguments: &[&str]| {
        let mut command = Command::new(folder.path(".github/publish"));
        command.args(arguments).output().unwrap()
    };
    for (arguments, owner) in [
        (
            &["--commit", COMMIT, "https://github.com/somebody/cargo-vram.git"][..],
            "somebody",
        ),
        // The repository moved. Without an address, the one in Cargo.toml is used again.
        (&["--commit", COMMIT, "https://github.com/others/cargo-vram"], "others"),
        (&["--commit", COMMIT], "others"),
    ] {
        assert_exit(&publish(arguments), 0);
        let address = format!("https://github.com/{owner}/cargo-vram");
        let manifest: toml_edit::DocumentMut = folder.read("Cargo.toml").parse().unwrap();
        assert_eq!(manifest["package"]["repository"].as_str(), Some(address.as_str()));
        let action = format!("{owner}/cargo-vram/.github/actions/vram@{COMMIT}");
        assert!(folder.read(workflow).contains(&action));
        let [readme, github, gitlab] = ["README.md", "docs/github.md", "docs/gitlab.md"].map(|page| folder.read(page));
        for page in [&readme, &github] {
            assert!(page.contains(&format!("uses: {action}")), "{page}");
        }
        assert!(gitlab.contains(&format!("VRAM: {address}.git")), "{gitlab}");
        assert!(gitlab.contains(&format!("VRAM_COMMIT: {COMMIT}")), "{gitlab}");
        for page in [readme, github, gitlab] {
            assert!(
                !page.contains("OWNER/cargo-vram") && !page.contains("@COMMIT"),
                "{page}"
            );
        }
    }
    // The script does not replace `@OWNER`: users put their own name there.
    assert!(folder.read("docs/github.md").contains("@OWNER/gpu-budgets"));
    for wrong in [&["--commit", "main"][..], &["--commit", COMMIT, "somewhere"]] {
        assert_exit(&publish(wrong), 2);
    }
}

#[test]
fn a_package_without_burn_is_told_to_add_it() {
    let project = Project::new("src/lib.rs", LIBRARY);
    project.folder.write(
        "Cargo.toml",
        "[package]\nname = \"new-comer\"\nversion = \"0.1.0\"\nedition = \"2024\"\n",
    );
    let refused = project.init();
    assert_exit(&refused, 2);
    assert!(said(&refused).contains("cargo add burn@0.21"), "{}", said(&refused));
}

#[test]
fn a_check_without_budgets_says_how_to_get_some() {
    let project = Project::new("src/lib.rs", LIBRARY);
    let output = project.vram(&["check", "--estimate"]);
    assert_exit(&output, 2);
    assert!(said(&output).contains("cargo vram init"), "{}", said(&output));
}

#[test]
fn a_workspace_without_models_says_how_to_declare_one() {
    let project = Project::new("src/lib.rs", LIBRARY);
    let output = project.vram(&["list"]);
    assert_exit(&output, 2);
    assert!(
        said(&output).contains("no model is declared in the package new-comer"),
        "{}",
        said(&output)
    );
}

#[test]
fn the_models_are_listed_with_their_tasks() {
    let output = common::output(&["list", "-p", "zoo", "--message-format", "json"]);
    assert_exit(&output, 0);
    let models: Value = serde_json::from_slice(&output.stdout).unwrap();
    let tasks: Vec<_> = models
        .as_array()
        .unwrap()
        .iter()
        .map(|model| (model["model"].as_str().unwrap(), model["task"].as_str().unwrap()))
        .collect();
    assert!(tasks.contains(&("vgg16", "train")));
    assert!(tasks.contains(&("vgg16_inference", "infer")));
    assert_eq!(models[0]["burn"], burn());
}

#[test]
fn the_report_is_what_its_schema_says() {
    let schema = common::output(&["schema"]);
    assert_exit(&schema, 0);
    let schema: Value = serde_json::from_slice(&schema.stdout).unwrap();
    let (report, exit, text) = common::report(&["estimate", "-p", "zoo", "-m", "sequential_inference", "--gpu", "t4"]);
    assert_eq!(exit, 0, "{text}");
    let validator = jsonschema::validator_for(&schema).unwrap();
    let mut document = serde_json::to_value(&report).unwrap();
    assert!(validator.is_valid(&document));
    document["runs"][0]["peaks"]["warm"]["reserved"] = "much".into();
    assert!(!validator.is_valid(&document), "the schema accepts a text as bytes");
}

#[test]
fn gpus_are_listed_with_what_is_assumed_of_them() {
    let output = common::output(&["gpus", "--message-format", "json"]);
    assert_exit(&output, 0);
    let gpus: Value = serde_json::from_slice(&output.stdout).unwrap();
    let gpu = |id: &str| {
        gpus.as_array()
            .unwrap()
            .iter()
            .find(|gpu| gpu["id"] == id)
            .unwrap()
            .clone()
    };
    for id in [
        "p100",
        "v100",
        "t4",
        "gtx-1650",
        "rtx-3060",
        "rtx-3090",
        "rtx-4090",
        "rtx-5060-ti",
        "rtx-5080",
        "rtx-5090",
        "rtx-a6000",
        "a10g",
        "l4",
        "l40s",
        "a100-40gb",
        "a100-80gb",
        "h100-80gb",
        "h200",
        "b200",
    ] {
        assert!(!gpu(id)["total_bytes"]["source"].as_str().unwrap().is_empty());
    }
    assert!(
        gpu("t4")["total_bytes"]["value"].as_u64().unwrap() < 15 << 30,
        "a T4 does not report 16 GiB"
    );
}

#[test]
fn a_model_can_be_estimated_on_a_gpu_of_every_compute_capability() {
    for gpu in [
        "p100",
        "v100",
        "t4",
        "a100-40gb",
        "a10g",
        "l4",
        "h100-80gb",
        "b200",
        "rtx-5090",
    ] {
        let (report, exit, text) =
            common::report(&["estimate", "-p", "zoo", "-m", "sequential_inference", "--gpu", gpu]);
        assert_eq!(exit, 0, "{gpu}: {text}");
        assert!(report.runs[0].peaks.warm.reserved.is_some(), "{gpu}: {text}");
    }
}

#[test]
fn every_command_has_help_with_examples() {
    for command in [
        "init", "list", "estimate", "measure", "check", "archive", "gpus", "schema",
    ] {
        let output = common::output(&[command, "--help"]);
        assert_exit(&output, 0);
        assert!(said(&output).contains("Example"), "{command}");
    }
    assert!(said(&common::output(&["check", "--help"])).contains("101  could not complete"));
}

#[test]
fn a_mistyped_command_line_is_exit_code_2_with_a_hint() {
    for (arguments, hint) in [
        (&["chekc"][..], "check"),
        (&["estimate", "-p", "zoo", "--gpu", "a100-80"], "a100-80gb"),
        (&["estimate", "-p", "zou", "--gpu", "l4"], "zoo"),
        (&["estimate", "-p", "zoo", "--gpu", "l4", "-m", "resnet81"], "resnet18"),
        (
            &["estimate", "-p", "zoo", "--gpu", "l4", "--set", "batch_size"],
            "batch_size=64",
        ),
        (&["estimate", "--partition", "1/4"], "hash:1/4"),
        (&["estimate", "--steps", "1"], "2"),
        (&["check", "--set", "batch_size=1"], "each budget has its own inputs"),
        (&["check", "--bless"], "run `cargo vram bless`"),
        (&["estimate", "-p", "zoo", "--gpu", "l5"], "did you mean `l4`?"),
        (&["check", "--estimate", "--gpu", "t4,l5"], "did you mean `l4`?"),
        (&["check", "--budgets", "nowhere.yaml"], "nowhere.yaml"),
    ] {
        let output = common::output(arguments);
        assert_exit(&output, 2);
        assert!(said(&output).contains(hint), "{arguments:?}: {}", said(&output));
    }
}

#[test]
fn several_gpus_are_estimated_and_judged_each_by_its_own_limits() {
    let budgets =
        "version: 1\ngpu: l4\nmodels:\n  zoo/sequential: { reserved: 20 GiB, gpus: { t4: { live: 1 MB } } }\n";
    let (_folder, file) = common::budgets(budgets);
    let gpus = [
        "-p",
        "zoo",
        "-m",
        "sequential",
        "--budgets",
        &file,
        "--gpu",
        "l4,t4",
        "--gpu",
        "l4",
    ];
    let (report, exit, text) = common::report(&[&["check", "--estimate"], &gpus[..]].concat());
    let ran: Vec<_> = report.runs.iter().map(|run| run.gpu.id.as_str()).collect();
    assert_eq!((ran, exit), (vec!["l4", "t4"], 100), "{text}");
    let expected: Vec<_> = report.expected_verdicts.iter().map(|each| each.gpu.as_str()).collect();
    assert_eq!(expected, ["l4", "t4"]);
    let limited = |gpu: &str| {
        let own = report
            .verdicts
            .iter()
            .find(|verdict| verdict.gpu == gpu && verdict.limit.is_some());
        own.map(|verdict| (verdict.status, verdict.limit_written.clone().unwrap()))
            .unwrap()
    };
    assert_eq!(limited("l4"), (cargo_vram::report::Status::Pass, "20 GiB".into()));
    assert_eq!(limited("t4"), (cargo_vram::report::Status::Fail, "1 MB".into()));
    assert!(text.contains("over budget: zoo/sequential on t4: warm live"), "{text}");
    assert!(text.contains("cargo vram explain zoo/sequential"), "{text}");

    let (report, exit, text) = common::report(&[&["estimate", "--set", "batch_size=2", "--infer"], &gpus[..]].concat());
    let ran = report.runs.iter().map(|run| (run.gpu.id.as_str(), run.label.is_some()));
    let wanted = [("l4", false), ("l4", true), ("t4", false), ("t4", true)];
    assert_eq!((ran.collect::<Vec<_>>(), exit), (wanted.to_vec(), 0), "{text}");
    assert!(report.runs.iter().all(|run| run.inputs["batch_size"] == 2));

    // `explain` takes only one GPU.
    let output = common::output(&["explain", "zoo/sequential", "--gpu", "l4,t4"]);
    assert_exit(&output, 2);
    assert!(
        said(&output).contains("this command takes only one"),
        "{}",
        said(&output)
    );
}

#[test]
fn an_input_that_a_model_does_not_have_is_named() {
    let (report, exit, text) = common::report(&[
        "estimate",
        "-p",
        "zoo",
        "-m",
        "sequential",
        "--gpu",
        "l4",
        "--set",
        "image_size=64",
    ]);
    assert_eq!(exit, 2, "{text}");
    let error = report.runs[0].error.as_ref().unwrap();
    assert_eq!(error.code, "unknown-input");
    assert!(error.help.as_ref().unwrap().raw().contains("height"));
}

#[test]
fn an_input_in_a_budget_that_a_model_does_not_have_is_pointed_at() {
    let (_folder, file) = common::budgets(
        "version: 1\ngpu: l4\nmodels:\n  sequential:\n    inputs: { hight: 64 }\n    reserved: 1 GiB\n",
    );
    let output = common::output(&[
        "check",
        "--estimate",
        "-p",
        "zoo",
        "-m",
        "sequential",
        "--budgets",
        &file,
    ]);
    assert_exit(&output, 2);
    let said = said(&output);
    assert!(said.contains("budgets.yaml:5:15") && said.contains("height"), "{said}");
    // The place in the file is enough: the table does not report the same mistake again.
    assert_eq!(said.matches("has no input `hight`").count(), 1, "{said}");
}

#[test]
fn a_budget_that_is_exceeded_fails_and_points_at_its_line() {
    let (_folder, file) = common::budgets("version: 1\ngpu: l4\nmodels:\n  sequential:\n    live: 100 MiB\n");
    let output = common::output(&[
        "check",
        "--estimate",
        "-p",
        "zoo",
        "-m",
        "sequential",
        "--budgets",
        &file,
    ]);
    assert_exit(&output, 100);
    let said = said(&output);
    assert!(
        said.contains("over budget") && said.contains("budgets.yaml:5:11"),
        "{said}"
    );
}

#[test]
fn a_model_without_a_budget_is_a_warning_that_can_be_denied() {
    let (_folder, file) = common::budgets("version: 1\ngpu: l4\nmodels: {}\n");
    let arguments = [
        "check",
        "--estimate",
        "-p",
        "zoo",
        "-m",
        "sequential_inference",
        "--budgets",
        &file,
    ];
    assert_exit(&common::output(&arguments), 0);
    let mut denied = arguments.to_vec();
    denied.push("--deny-warnings");
    let output = common::output(&denied);
    assert_exit(&output, 100);
    assert!(
        said(&output).contains("failed: --deny-warnings turns warnings into failures"),
        "{}",
        said(&output)
    );
}

#[test]
fn nothing_is_coloured_and_no_progress_is_drawn_where_the_output_is_no_terminal() {
    let output = common::vram(&["estimate", "-p", "zoo", "-m", "sequential_inference", "--gpu", "l4"])
        .env_remove("NO_COLOR")
        .output()
        .unwrap();
    assert_exit(&output, 0);
    assert!(!said(&output).contains('\u{1b}'), "{}", said(&output));
    assert!(common::unhindered(&output.stderr).is_empty(), "{}", said(&output));
}

#[test]
fn what_is_being_done_is_told_in_lines_and_not_with_q() {
    let arguments = ["estimate", "-p", "zoo", "-m", "sequential_inference", "--gpu", "l4"];
    let output = common::output(&arguments);
    assert_exit(&output, 0);
    let told = String::from_utf8_lossy(&output.stderr).into_owned();
    assert!(told.starts_with("building models …\n"), "{told}");
    assert!(told.contains("\nestimating zoo/sequential_inference …\n"), "{told}");
    let quiet = common::output(&[&arguments[..], &["-q"]].concat());
    assert!(quiet.stderr.is_empty(), "{}", said(&quiet));
}

#[test]
fn timings_say_where_the_time_went() {
    let arguments = [
        "estimate",
        "-p",
        "zoo",
        "-m",
        "sequential_inference",
        "--gpu",
        "l4",
        "--timings",
    ];
    let told = said(&common::output(&arguments));
    for part in [
        "reading the workspace",
        "building the models",
        "listing the models",
        "zoo/sequential_inference, cold pass",
        "zoo/sequential_inference, warm pass",
        "writing the output",
        "times (passes run in parallel",
    ] {
        assert!(told.contains(part), "{part}: {told}");
    }
}

#[test]
fn an_interrupted_estimate_keeps_what_is_finished_and_never_passes_as_a_whole_one() {
    let folder = tempfile::tempdir().unwrap();
    let report = folder.path().join("report.json");
    let report = report.to_str().unwrap();
    let models = ["sequential_inference", "sequential", "transformer"]
        .map(|model| ["-m", model])
        .concat();
    let arguments = [&["estimate", "-p", "zoo", "--gpu", "l4", "--jobs", "1"], &models[..]].concat();
    let mut child = common::vram(&[&arguments[..], &["--message-format", "json", "-o", report]].concat())
        .stderr(std::process::Stdio::piped())
        .stdout(std::process::Stdio::piped())
        .spawn()
        .unwrap();
    let mut lines = BufReader::new(child.stderr.take().unwrap()).lines().map(Result::unwrap);
    let first = lines.find(|line| line.starts_with("done: ")).unwrap();
    let stopped = Command::new("kill")
        .args(["-TERM", &child.id().to_string()])
        .status()
        .unwrap();
    assert!(stopped.success());
    let _rest: Vec<String> = lines.collect();
    let output = child.wait_with_output().unwrap();
    assert_exit(&output, 143);
    let json: Value = serde_json::from_str(&std::fs::read_to_string(report).unwrap()).unwrap();
    assert_eq!(
        (&json["status"], &json["problems"][0]["code"]),
        (&"error".into(), &"interrupted".into())
    );
    let runs = json["runs"].as_array().unwrap();
    assert!((1..3).contains(&runs.len()), "{json}");
    assert!(
        runs.iter().any(|run| first.contains(run["model"].as_str().unwrap())),
        "{first}"
    );
    assert!(
        said(&output).contains("SIGTERM stopped the command before it finished"),
        "{}",
        said(&output)
    );
    assert_exit(&common::output(&["merge", report]), 101);
    let (_budgets, budgets) = common::budgets("version: 1\n");
    let lock = Path::new(&budgets).with_extension("lock");
    assert_exit(
        &common::output(&["bless", "--report", report, "--budgets", &budgets]),
        101,
    );
    assert!(!lock.exists());
}

#[test]
fn the_command_line_tool_compiles_no_burn_and_the_models_no_command_line_tool() {
    let tree = |features: &[&str]| {
        let output = Command::new("cargo")
            .args([
                "tree",
                "-p",
                "cargo-vram",
                "-e",
                "normal",
                "--prefix",
                "none",
                "--no-default-features",
            ])
            .args(features)
            .current_dir(common::root())
            .output()
            .unwrap();
        assert_exit(&output, 0);
        String::from_utf8(output.stdout).unwrap()
    };
    let has = |tree: &str, name: &str| tree.lines().any(|line| line.split(' ').next() == Some(name));
    let cli = tree(&["--features", "cli"]);
    assert!(has(&cli, "clap") && !has(&cli, "burn") && !has(&cli, "cubecl") && !has(&cli, "cudarc"));
    // The other features work with both versions of Burn, and do not add Burn themselves.
    let others = "train,what-if,checkpointing,no-fusion,distributed,explain";
    assert!(!has(&tree(&["--features", others]), "burn"));
    for (adapter, burn, cubecl) in [("burn-0_21", " v0.21.", " v0.10."), ("burn-0_22", " v0.22.", " v0.11.")] {
        let models = tree(&["--features", &format!("{adapter},{others}")]);
        assert!(has(&models, "burn") && has(&models, "cubecl"), "{adapter}");
        for (name, version) in [("burn", burn), ("cubecl", cubecl)] {
            let foreign = models
                .lines()
                .find(|line| line.starts_with(name) && !line.contains(version));
            assert_eq!(foreign, None, "{adapter}");
        }
        // The feature `train` is off here because Burn's learner needs some of these crates.
        let models = tree(&["--features", adapter]);
        for tool in [
            "clap",
            "miette",
            "indicatif",
            "cargo_metadata",
            "toml_edit",
            "comfy-table",
        ] {
            // The dataset database of Burn 0.22 uses `miette` for its errors.
            let is_burns = adapter == "burn-0_22" && tool == "miette";
            assert!(is_burns || !has(&models, tool), "{adapter}: {tool}");
        }
    }
    let neither = tree(&[]);
    assert!(neither.lines().count() < 20, "{neither}");
}

#[test]
fn the_doctor_says_what_is_here() {
    let output = common::output(&["doctor", "-p", "zoo"]);
    assert_exit(&output, 0);
    let said = said(&output);
    for line in [
        "pass  rustc",
        "pass  virtual driver",
        &format!("Burn {}", burn()),
        "budgets.yaml",
    ] {
        assert!(said.contains(line), "{said}");
    }
}

#[test]
fn a_folder_that_is_no_workspace_is_named() {
    let folder = tempfile::tempdir().unwrap();
    let output = common::vram(&["list"])
        .current_dir::<&Path>(folder.path())
        .output()
        .unwrap();
    assert_exit(&output, 2);
    assert!(said(&output).contains("Cargo.toml"), "{}", said(&output));
}
