//! A new user's project: `init`, the first check, and what is missing in a project.

use std::process::{Command, Output};

use crate::common;
use crate::common::{Folder, assert_exit, burn, said};

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

/// The end of the zoo's manifest, starting at `from`: the line of Burn or the profile. A project with both
/// shares the zoo's build of Burn.
fn of_the_zoo(from: &str) -> String {
    let manifest = std::fs::read_to_string(common::workspace().join("Cargo.toml")).unwrap();
    manifest[manifest.find(from).unwrap()..].to_owned()
}

fn dependency() -> String {
    of_the_zoo("burn = ").lines().next().unwrap().to_owned()
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
