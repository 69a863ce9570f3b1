//! The commands as a newcomer meets them, in a project of their own.
#![cfg(feature = "cli")]
#![expect(clippy::unwrap_used, reason = "a test that cannot go on has failed")]

mod common;

use std::path::Path;
use std::process::{Command, Output};

use common::{Folder, said};
use serde_json::Value;

/// A package with a library, a test and Burn, which takes its versions from the project's own lock file.
struct Project {
    folder: Folder,
}

const LIBRARY: &str = "#[test]\nfn it_works() {}\n";
const DEPENDENCY: &str = r#"burn = { version = "0.21", default-features = false, features = ["std", "cuda", "fusion", "autotune", "autodiff", "train"] }"#;

impl Project {
    fn new(source: &str, text: &str) -> Self {
        let folder = Folder::new();
        folder.write(source, text);
        folder.write(
            "Cargo.toml",
            &format!("# A comment that stays.\n[package]\nname = \"new-comer\"\nversion = \"0.1.0\"\nedition = \"2024\"\n\n[dependencies]\n{DEPENDENCY} # and so does this one\n\n[profile.dev]\ndebug = \"line-tables-only\"\n\n[profile.dev.package.\"*\"]\nopt-level = 1\n\n[profile.dev.package.burn-flex]\nopt-level = 0\n"),
        );
        // With the profile and the versions of the zoo: another Burn takes minutes to build.
        std::fs::copy(common::root().join("Cargo.lock"), folder.path("Cargo.lock")).unwrap();
        Self { folder }
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

#[test]
fn a_newcomers_first_check_passes_and_their_tests_still_do() {
    let project = Project::new("src/lib.rs", LIBRARY);
    assert_exit(&project.init(), 0);
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
    // The model ran in this folder, and left nothing in the cache of autotune that its owner's own runs use.
    assert!(!project.folder.path("target").exists());

    // A second check with nothing changed starts no compiler.
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

    // Nothing of it was written over.
    let bench = project.folder.read("benches/vram.rs");
    let refused = project.init();
    assert_exit(&refused, 2);
    assert!(said(&refused).contains("is there already"), "{}", said(&refused));
    assert_eq!(project.folder.read("benches/vram.rs"), bench);

    // The benchmark is no hindrance to the tests of the package.
    // (`cargo bench --profile dev`: an optimized Burn is not built for this.)
    for arguments in [
        &["test", "--all-targets"][..],
        &["nextest", "run", "--all-targets"],
        &["bench", "--profile", "dev"],
    ] {
        if arguments[0] == "nextest" && !nextest_is_here() {
            println!("cargo-nextest is not here: not tried");
            continue;
        }
        let output = Command::new("cargo")
            .args(arguments)
            .current_dir(project.folder.root())
            .env("CARGO_TARGET_DIR", common::target_folder())
            .output()
            .unwrap();
        assert_exit(&output, 0);
    }
}

fn nextest_is_here() -> bool {
    let version = Command::new("cargo").args(["nextest", "--version"]).output();
    version.is_ok_and(|output| output.status.success())
}

#[test]
fn a_package_with_only_a_binary_is_told_what_to_move() {
    let project = Project::new("src/main.rs", "fn main() {}\n");
    let refused = project.init();
    assert_exit(&refused, 2);
    let said = said(&refused);
    assert!(
        said.contains("move the model from src/main.rs into src/lib.rs"),
        "{said}"
    );
    assert!(!project.folder.path("benches").exists());
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
    assert_eq!(models[0]["burn"], "0.21.0");
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
    assert!(!validator.is_valid(&document), "the schema says something");
}

#[test]
fn cards_are_listed_with_what_is_assumed_of_them() {
    let output = common::output(&["gpus", "--message-format", "json"]);
    assert_exit(&output, 0);
    let cards: Value = serde_json::from_slice(&output.stdout).unwrap();
    let card = |id: &str| {
        cards
            .as_array()
            .unwrap()
            .iter()
            .find(|card| card["id"] == id)
            .unwrap()
            .clone()
    };
    for id in [
        "p100",
        "v100",
        "t4",
        "rtx-3090",
        "rtx-4090",
        "rtx-5090",
        "a10g",
        "l4",
        "l40s",
        "a100-40gb",
        "a100-80gb",
        "h100-80gb",
        "h200",
        "b200",
    ] {
        assert!(!card(id)["total_bytes"]["source"].as_str().unwrap().is_empty());
    }
    assert!(
        card("t4")["total_bytes"]["value"].as_u64().unwrap() < 15 << 30,
        "a T4 does not report 16 GiB"
    );
}

#[test]
fn a_model_can_be_estimated_on_a_card_of_every_compute_capability() {
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
        (&["check", "--set", "batch_size=1"], "a budget is for its own inputs"),
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
    let budgets = "version: 1\ngpu: l4\nmodels:\n  zoo/resnet18: { reserved: 20 GiB, gpus: { t4: { live: 1 MB } } }\n";
    let (_folder, file) = common::budgets(budgets);
    let gpus = [
        "-p",
        "zoo",
        "-m",
        "resnet18",
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
    assert_eq!(limited("l4"), (cargo_vram::report::Status::Pass, "20 GiB".to_owned()));
    assert_eq!(limited("t4"), (cargo_vram::report::Status::Fail, "1 MB".to_owned()));
    assert!(text.contains("over budget: zoo/resnet18 on t4: warm live"), "{text}");
    assert!(text.contains("cargo vram explain zoo/resnet18"), "{text}");

    let (report, exit, text) = common::report(&[&["estimate", "--set", "batch_size=2", "--infer"], &gpus[..]].concat());
    let ran = report.runs.iter().map(|run| (run.gpu.id.as_str(), run.label.is_some()));
    let wanted = [("l4", false), ("l4", true), ("t4", false), ("t4", true)];
    assert_eq!((ran.collect::<Vec<_>>(), exit), (wanted.to_vec(), 0), "{text}");
    assert!(report.runs.iter().all(|run| run.inputs["batch_size"] == 2));

    // One is explained at a time.
    let output = common::output(&["explain", "zoo/resnet18", "--gpu", "l4,t4"]);
    assert_exit(&output, 2);
    assert!(said(&output).contains("this command takes one"), "{}", said(&output));
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
    assert!(error.help.as_ref().unwrap().contains("height"));
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
    assert_exit(&common::output(&denied), 100);
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
    let models = tree(&["--features", "burn-0_21"]);
    assert!(has(&models, "burn"));
    for tool in [
        "clap",
        "miette",
        "indicatif",
        "cargo_metadata",
        "toml_edit",
        "comfy-table",
    ] {
        assert!(!has(&models, tool), "{tool}");
    }
    let neither = tree(&[]);
    assert!(neither.lines().count() < 20, "{neither}");
}

#[test]
fn the_doctor_says_what_is_here() {
    let output = common::output(&["doctor", "-p", "zoo"]);
    assert_exit(&output, 0);
    let said = said(&output);
    for line in ["pass  rustc", "pass  virtual driver", "Burn 0.21.0", "budgets.yaml"] {
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
