//! `fixtures/broken`: one folder per mistake. Each mistake gives one error with its code, its exit code and its help,
//! and does not hide the other models.

use std::sync::LazyLock;

use cargo_vram::report::{Problem, Report, Run, Status};

use crate::common;
use crate::common::{Checked, Once};

/// The manifest of the workspace, with models for the Burn version of these tests.
static MANIFEST: LazyLock<String> = LazyLock::new(|| common::manifest("fixtures/broken"));
/// A limit of host memory; the healthy model needs much less.
const HOST_MEMORY: &str = "512MiB";

/// Models that do not run to their end: package, model and error code.
const DYING: &[(&str, &str, &str)] = &[
    ("panics", "panics", "model-panicked"),
    ("aborts", "aborts", "model-aborted"),
    ("overflows-stack", "overflows_stack", "stack-overflow"),
    ("exits-early", "exits", "model-exited"),
    ("exits-early", "forgets_to_train", "model-exited"),
    ("never-ends", "never_ends", "timed-out"),
    ("writes-to-report", "adds_to_events", "events-damaged"),
    ("writes-to-report", "starts_events_anew", "events-damaged"),
    ("fills-host-memory", "fills_host_memory", "host-memory"),
];

/// Estimates the models of packages of `fixtures/broken`.
fn estimate(packages: &[&str], more: &[&str]) -> Checked {
    let mut arguments = vec!["estimate", "--manifest-path", &MANIFEST, "--gpu", "l4", "--steps", "2"];
    arguments.extend(packages.iter().flat_map(|package| ["-p", *package]));
    arguments.extend(more);
    Checked::new(&arguments)
}

/// One invocation with all mistakes that show while models are built or run.
static RUNNING: Once<Checked> = Once::new("broken", |_| {
    let folder = tempfile::tempdir().unwrap();
    let budgets = folder.path().join("budgets.yaml");
    std::fs::write(&budgets, "version: 1\nmodels:\n  never_ends: { timeout: 3 s }\n").unwrap();
    let mut packages: Vec<_> = DYING.iter().map(|(package, ..)| *package).collect();
    packages.dedup();
    packages.extend(["floods-stdout", "does-not-compile"]);
    let budgets = budgets.to_str().unwrap();
    estimate(&packages, &["--budgets", budgets, "--host-memory", HOST_MEMORY])
});

fn run<'a>(given: &'a Checked, package: &str, model: &str) -> &'a Run {
    let runs = &given.report.runs;
    runs.iter()
        .find(|run| run.package == package && run.model == model)
        .unwrap_or_else(|| panic!("no run of {package}/{model}\n{}", given.text))
}

#[track_caller]
fn assert_healthy(run: &Run) {
    assert_eq!(run.error, None, "{}/{}", run.package, run.model);
    assert_eq!(run.parameters.unwrap().count, 16 * 16 + 16);
    assert!(run.peaks.warm.live.unwrap() >= run.parameters.unwrap().bytes);
    assert!(run.peaks.warm.reserved.unwrap() >= run.peaks.warm.live.unwrap());
    assert!(run.peaks.cold.reserved.is_some());
    assert_eq!(run.steps.len(), 2);
}

/// Estimates a package whose models never run; returns its one problem, the exit code and the printed text.
#[track_caller]
fn problem(package: &str) -> (Problem, i32, String) {
    let given = estimate(&[package], &[]);
    assert_eq!(given.report.status, Status::Error);
    let [problem] = given.report.problems.as_slice() else {
        panic!("{}", given.text);
    };
    assert_eq!(problem.package, package);
    assert!(!problem.help.as_ref().unwrap().raw().is_empty());
    (problem.clone(), given.exit, errors(&given.text))
}

/// Extracts the errors from the printed text, without the parts that differ from run to run.
fn errors(text: &str) -> String {
    let fixture = common::fixture("fixtures/broken");
    let text = text
        .replace(fixture.to_str().unwrap(), "[ROOT]/fixtures/broken")
        .replace(common::root().to_str().unwrap(), "[ROOT]");
    let from = text.find("error[").unwrap_or_else(|| panic!("no error in {text}"));
    let mut errors = String::new();
    for line in without_load(&text[from..]).lines() {
        match line.split_once("the model used ") {
            Some((before, used)) => {
                let (_, after) = used.split_once("MiB").unwrap();
                errors.push_str(&format!("{before}the model used [SIZE]{after}\n"));
            }
            None => errors.push_str(&format!("{line}\n")),
        }
    }
    errors
}

/// Replaces the message about a model that waited for CPU cores, which only other work on the machine causes.
fn without_load(text: &str) -> String {
    let Some((before, rest)) = text.split_once(": its threads waited ") else {
        return text.to_owned();
    };
    let (_, after) = rest
        .split_once("end other work on the machine, pass a lower --jobs, or ")
        .unwrap();
    format!(
        "{before}\n  help: {}",
        after.replacen(
            " in budgets.yaml",
            " in budgets.yaml, or look for a step that never ends",
            1
        )
    )
}

#[test]
fn every_way_to_die_has_its_own_error_and_exit_code_101() {
    assert_eq!(RUNNING.get().exit, 101, "{}", RUNNING.get().text);
    assert_eq!(RUNNING.get().report.status, Status::Error);
    for (package, model, code) in DYING {
        let run = run(RUNNING.get(), package, model);
        let error = run
            .error
            .as_ref()
            .unwrap_or_else(|| panic!("{package}/{model} has no error"));
        assert_eq!(error.code, *code, "{package}/{model}: {}", error.message);
        assert!(!error.help.as_ref().unwrap().raw().is_empty());
        assert_eq!(run.oom, None);
    }
}

#[test]
fn a_model_that_died_has_no_peaks() {
    for (package, model, _) in DYING {
        let peaks = &run(RUNNING.get(), package, model).peaks;
        for peak in [peaks.warm, peaks.cold] {
            assert_eq!((peak.live, peak.reserved, peak.process), (None, None, None), "{model}");
        }
    }
}

#[test]
fn the_model_beside_a_broken_one_is_reported_all_the_same() {
    for (package, ..) in DYING {
        assert_healthy(run(RUNNING.get(), package, "healthy"));
    }
}

#[test]
fn every_selected_model_is_in_the_report() {
    let runs = RUNNING
        .get()
        .report
        .runs
        .iter()
        .map(|run| format!("{}/{}", run.package, run.model));
    assert_eq!(RUNNING.get().report.expected, runs.collect::<Vec<_>>());
    // The dying models, the flood, the three models that leave a process, and the healthy model of each package that
    // compiles.
    assert_eq!(RUNNING.get().report.expected.len(), DYING.len() + 4 + 8);
}

#[test]
fn a_flood_on_standard_output_is_the_models_own_business() {
    let flood = run(RUNNING.get(), "floods-stdout", "floods_stdout");
    assert_healthy(flood);
    assert_eq!(flood.peaks, run(RUNNING.get(), "floods-stdout", "healthy").peaks);
    assert!(!RUNNING.get().text.contains("~~~"));
}

#[test]
fn a_benchmark_that_does_not_compile_is_shown_with_the_compilers_words_alone() {
    let [problem] = RUNNING.get().report.problems.as_slice() else {
        panic!("{}", RUNNING.get().text);
    };
    assert_eq!(
        (problem.package.as_str(), problem.code.as_str()),
        ("does-not-compile", "build-failed")
    );
    assert!(
        problem.message.raw().contains("does-not-compile/benches/vram.rs:10:11"),
        "{}",
        problem.message
    );
    assert!(problem.message.raw().contains("trian"), "{}", problem.message);
    assert!(!problem.message.raw().contains("Compiling"), "{}", problem.message);
    assert!(
        problem
            .help
            .as_ref()
            .unwrap()
            .raw()
            .contains("cargo build -p does-not-compile --bench vram")
    );
}

#[test]
fn what_people_read_of_models_that_die_says_what_to_do() {
    let errors = errors(&RUNNING.get().text);
    // The errors of the compiler, which come before, differ between its versions.
    let (_, dying) = errors.split_once("shows them again\n").unwrap();
    insta::assert_snapshot!(dying.trim());
}

#[test]
fn a_model_that_never_ends_is_ended_after_the_time_that_it_is_given() {
    let given = estimate(&["never-ends"], &["-m", "never_ends", "--timeout", "3s"]);
    assert_eq!(given.exit, 101, "{}", given.text);
    let [run] = given.report.runs.as_slice() else {
        panic!("{}", given.text);
    };
    assert_eq!(run.error.as_ref().unwrap().code, "timed-out");
    // The time of one pass, not of three: after a timeout, the model does not run again.
    assert!((3.0..9.0).contains(&run.seconds), "{}", run.seconds);
}

#[test]
fn two_models_of_one_name_are_refused_and_the_third_one_is_reported() {
    let given = estimate(&["duplicate-model"], &[]);
    assert_eq!(given.exit, 2, "{}", given.text);
    assert_eq!(given.report.problems.len(), 1);
    assert_eq!(given.report.problems[0].code, "duplicate-model");
    assert_eq!(given.report.expected, ["duplicate-model/healthy"]);
    assert_healthy(run(&given, "duplicate-model", "healthy"));
    insta::assert_snapshot!(errors(&given.text));
}

#[test]
fn a_target_with_cargos_own_harness_is_refused_before_it_is_built() {
    let (problem, exit, text) = problem("no-harness");
    assert_eq!((problem.code.as_str(), exit), ("harness", 2));
    insta::assert_snapshot!(text);
    // No model is left to run, so there is no progress either.
    let manifest = MANIFEST.as_str();
    let output = common::output(&[
        "estimate",
        "--manifest-path",
        manifest,
        "--gpu",
        "l4",
        "-p",
        "no-harness",
    ]);
    let said = common::said(&output);
    assert!(!said.contains("estimating"), "{said}");
}

#[test]
fn a_burn_without_an_adapter_is_refused_before_it_is_built() {
    let (problem, exit, text) = problem("unsupported-burn");
    assert_eq!((problem.code.as_str(), exit), ("unsupported-burn", 2));
    insta::assert_snapshot!(text);
}

#[test]
fn a_build_that_nobody_called_wrong_is_not_said_to_be() {
    for (builds, message, help) in [
        (
            "echo 'error: something of its own' >&2; kill -KILL $$",
            "signal 9 ended the build of `vram` of aborts\nerror: something of its own",
            "or run `cargo build -p aborts --bench vram",
        ),
        // Cargo's message if the kernel killed a compiler because memory ran out.
        (
            "echo 'error: could not compile `tiny` (lib)' >&2; echo '  (signal: 9, SIGKILL: kill)' >&2; exit 101",
            "a signal ended a process in the build of `vram` of aborts\nerror: could not compile `tiny` (lib)\n  (signal: 9, SIGKILL: kill)",
            "if the machine ran out of memory",
        ),
        (
            "echo 'error: no space left' >&2; exit 101",
            "Cargo could not build `vram` of aborts\nerror: no space left",
            "shows the same",
        ),
    ] {
        let (_folder, cargo) = common::cargo_that(builds);
        let output = common::vram(&["estimate", "--manifest-path", &MANIFEST, "-p", "aborts", "--gpu", "l4"])
            .args(["--message-format", "json"])
            .env("CARGO", cargo)
            .output()
            .unwrap();
        assert_eq!(output.status.code(), Some(101), "{}", common::said(&output));
        let report: Report = serde_json::from_slice(&output.stdout).unwrap();
        let problem = &report.problems[0];
        assert_eq!(
            (problem.code.as_str(), problem.message.raw()),
            ("build-failed", message)
        );
        assert!(problem.help.as_ref().unwrap().raw().contains(help), "{problem:?}");
    }
}

#[test]
fn what_cargo_waits_for_is_told() {
    let waits = "[ \"$CARGO_TERM_COLOR\" = never ] && echo '    Blocking waiting for file lock on build directory' >&2; exit 101";
    let (_folder, cargo) = common::cargo_that(waits);
    // Many CI workflows set this variable.
    let output = common::vram(&["list", "--manifest-path", &MANIFEST, "-p", "aborts"])
        .envs([("CARGO", cargo.as_str()), ("CARGO_TERM_COLOR", "always")])
        .output()
        .unwrap();
    let told = "building models: waiting for file lock on build directory …";
    assert!(common::said(&output).contains(told), "{}", common::said(&output));
}

#[test]
fn two_burns_are_refused_before_they_are_built() {
    let (problem, exit, text) = problem("two-burns");
    assert_eq!((problem.code.as_str(), exit), ("two-burns", 2));
    // The message also names the Burn version of these tests, which may be 0.22.1.
    insta::assert_snapshot!(text.replace("and 0.22.1", "and 0.21.0"));
}

#[test]
fn a_probe_of_another_version_is_refused() {
    let (problem, exit, text) = problem("probe-version");
    assert_eq!((problem.code.as_str(), exit), ("probe-version", 2));
    let protocol = format!("(protocol {})", cargo_vram::protocol::PROTOCOL);
    let text = text.replace(&protocol, "(protocol [OURS])");
    insta::assert_snapshot!(text.replace(env!("CARGO_PKG_VERSION"), "[VERSION]"));
}

#[test]
fn a_package_without_a_model_is_told_how_to_get_one() {
    let output = common::output(&[
        "estimate",
        "--manifest-path",
        &MANIFEST,
        "-p",
        "no-model",
        "--gpu",
        "l4",
    ]);
    assert_eq!(output.status.code(), Some(2));
    insta::assert_snapshot!(String::from_utf8(output.stderr).unwrap());
}

#[test]
fn what_cannot_be_built_hides_nothing_of_the_packages_beside_it() {
    let refused = ["no-harness", "two-burns", "unsupported-burn", "probe-version"];
    let mut packages = refused.to_vec();
    packages.extend(["no-model", "floods-stdout"]);
    let given = estimate(&packages, &["-m", "healthy"]);
    assert_eq!(given.exit, 2, "{}", given.text);
    let mut problems: Vec<_> = given
        .report
        .problems
        .iter()
        .map(|problem| problem.package.as_str())
        .collect();
    problems.sort_unstable();
    let mut expected = refused.to_vec();
    expected.sort_unstable();
    assert_eq!(problems, expected);
    assert_healthy(run(&given, "floods-stdout", "healthy"));
}

/// Compiles the probe's methods for features that are off, and a model that calls them; returns the compiler's errors.
///
/// Burn is replaced by the few items that these methods name, because Cargo would build Burn again for each set of
/// features.
fn compiled(features: &[&str], call: &str) -> String {
    const BURN: &str = "
        pub mod module { pub trait AutodiffModule<B> {} }
        pub mod tensor {
            pub struct Tensor<B, const D: usize>(std::marker::PhantomData<B>);
            pub mod backend { pub trait AutodiffBackend { type Device; } }
        }";
    const PROBE: &str = "
        pub mod probe {
            pub mod pass { pub enum Train {} }
            pub mod burn_0_21 {
                pub mod train {
                    use std::marker::PhantomData;
                    pub struct WithBatch<'a, B, Kind, M, X>(PhantomData<(&'a (), B, Kind, M, X)>);
                    pub struct WithLoss<'a, B, M, X, F>(PhantomData<(&'a (), B, M, X, F)>);
                    impl<B, M, X, F> WithLoss<'_, B, M, X, F> { pub fn train<O>(self, _: O) {} }
                }
                pub mod run { pub struct Run<B, Kind>(std::marker::PhantomData<(B, Kind)>); }
                mod without_feature;
            }
        }
        pub struct Adam;";
    let folder = tempfile::tempdir().unwrap();
    let file = |name: &str| folder.path().join(name);
    let source = "probe/burn_0_21/without_feature.rs";
    std::fs::create_dir_all(file("probe/burn_0_21")).unwrap();
    std::fs::copy(common::root().join("src").join(source), file(source)).unwrap();
    let rustc = |name: &str, text: &str, kind: &str| {
        std::fs::write(file(name), text).unwrap();
        let mut command = std::process::Command::new(std::env::var_os("RUSTC").unwrap_or_else(|| "rustc".into()));
        command
            .args([
                "--edition",
                "2024",
                "--crate-type",
                kind,
                "--emit",
                "metadata",
                "-L",
                ".",
            ])
            .current_dir(folder.path())
            .arg(name);
        for feature in features {
            command.args(["--cfg", &format!("feature=\"{feature}\"")]);
        }
        String::from_utf8(command.output().unwrap().stderr).unwrap()
    };
    assert_eq!(rustc("burn.rs", BURN, "lib"), "");
    assert_eq!(
        rustc("cargo_vram.rs", &format!("extern crate burn as burn21; {PROBE}"), "lib"),
        ""
    );
    let model = format!(
        "extern crate burn; extern crate cargo_vram;
        use burn::{{module::AutodiffModule, tensor::{{Tensor, backend::AutodiffBackend}}}};
        use cargo_vram::{{Adam, probe::{{pass::Train, burn_0_21::{{run::Run, train::{{WithBatch, WithLoss}}}}}}}};
        pub fn model<B: AutodiffBackend, M: AutodiffModule<B>, F: Fn(&M, u8) -> Tensor<B, 1>>(
            batch: WithBatch<'_, B, Train, M, u8>, loss: WithLoss<'_, B, M, u8, F>, gpus: Vec<B::Device>, run: &mut Run<B, Train>,
        ) {{ let _ = (&batch, &loss, &gpus, &run, Adam); {call} }}"
    );
    rustc("model.rs", &model, "lib")
}

#[test]
fn a_method_whose_feature_is_off_is_a_compiler_error_that_names_the_feature() {
    for (call, method, feature) in [
        ("batch.train_step(Adam);", ".train_step", "train"),
        ("run.epochs(2);", "run.epochs", "train"),
        ("loss.ddp(gpus, Adam).train(Adam);", ".ddp", "distributed"),
    ] {
        let errors = compiled(&[], call);
        let first = format!(
            "error[E0277]: `{method}(…)` needs the feature `{feature}` of cargo-vram: run `cargo add --dev cargo-vram --features \
             {feature}`"
        );
        assert_eq!(errors.lines().next(), Some(first.as_str()), "{errors}");
        let note = format!("features = [\"burn-0_21\", \"{feature}\"]");
        assert!(errors.contains(&note), "{errors}");
        // The rest of the call chain gives no second error.
        assert_eq!(errors.matches("error[").count(), 1, "{errors}");
        assert!(!errors.contains("warning"), "{errors}");
        // With the feature on, the method of this test is not compiled, and the real method is not part of this build.
        let errors = compiled(&[feature], call);
        assert!(errors.starts_with("error[E0599]: no method"), "{errors}");
    }
}

#[test]
fn a_model_for_several_gpus_is_told_which_feature_it_lacks() {
    if common::is_burn_0_22() {
        // Burn 0.22 has no `.ddp` yet.
        return;
    }
    let (problem, exit, _) = problem("without-distributed");
    assert_eq!((problem.code.as_str(), exit), ("build-failed", 101));
    let first = "`.ddp(…)` needs the feature `distributed` of cargo-vram: run `cargo add --dev cargo-vram --features distributed`";
    assert!(problem.message.raw().contains(first), "{}", problem.message);
    assert!(
        problem.message.raw().contains("without-distributed/benches/vram.rs:"),
        "{}",
        problem.message
    );
}
