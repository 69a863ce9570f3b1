//! The commands, as they run on the models of this repository.

use std::io::{BufRead, BufReader};
use std::path::Path;
use std::process::Command;

use serde_json::Value;

use crate::common;
use crate::common::{Folder, assert_exit, burn, said};

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
        // The feature `train` is off here: `burn/train` would bring some of these crates.
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
