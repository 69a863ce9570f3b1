//! Behaviour that only Burn 0.22 has. The other tests run with both versions of Burn.

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};

use cargo_vram::explain::Explanation;
use cargo_vram::report::{EpochPhase, Report, Rule, Run, Status};

use crate::common;
use crate::common::burn_0_22::{ZOO, fixture};
use crate::common::gpu::{builtin, gpu_folder};
use crate::common::repository::Repository;
use crate::common::workspaces::{manifests, value_of, workspace_of, write_package, write_workspace};
use crate::growth;

/// Runs `check --estimate` in a workspace with these budgets.
fn check(workspace: &Path, budgets: &str, more: &[&str]) -> (Report, i32, String) {
    let (_folder, budgets) = common::budgets(budgets);
    let manifest = workspace.join("Cargo.toml");
    let manifest = manifest.to_str().unwrap();
    let arguments = [
        "check",
        "--estimate",
        "--manifest-path",
        manifest,
        "--budgets",
        &budgets,
    ];
    common::report(&[&arguments, more].concat())
}

/// Checks a model of the zoo on a GPU with `total` memory.
fn check_on(total: &str, model: &str) -> (Report, i32, String) {
    let budgets = format!(
        "version: 1\ngpu: small\ngpu_profiles:\n  small: {{ like: l4, total: {total} }}\nmodels:\n  {model}: {{ reserved: 20 GiB }}\n"
    );
    check(&common::root().join(ZOO), &budgets, &["-m", model])
}

fn only(report: &Report) -> &Run {
    let [run] = report.runs.as_slice() else {
        panic!("{} runs", report.runs.len());
    };
    run
}

/// The documentation of the upgrade has the values of both baselines.
#[test]
fn the_documented_values_of_both_burns_are_those_of_the_baselines() {
    let text = |path: &str| std::fs::read_to_string(common::root().join(path)).unwrap();
    let mib = |bytes: &str| {
        let bytes = bytes.parse::<u64>().unwrap();
        let hundredths = (bytes * 100 + (1 << 19)) >> 20;
        let (whole, part) = (hundredths / 100, hundredths % 100);
        match whole {
            1000.. => format!("{},{:03}.{part:02}", whole / 1000, whole % 1000),
            _ => format!("{whole}.{part:02}"),
        }
    };
    let baseline = |path: &str| -> BTreeMap<String, [String; 3]> {
        let lock = text(path);
        let entries = lock.split("[[baseline]]").skip(1);
        let of_zoo = entries.filter(|entry| value_of(entry, "package") == "zoo" && value_of(entry, "gpu") == "l4");
        let values =
            |entry: &str| ["warm.live", "warm.reserved", "cold.reserved"].map(|name| mib(value_of(entry, name)));
        of_zoo
            .map(|entry| (value_of(entry, "model").to_owned(), values(entry)))
            .collect()
    };
    let old = baseline("fixtures/zoo/budgets.lock");
    let new = baseline("fixtures/zoo-0_22/budgets.lock");
    let page = text("docs/upgrade-to-burn-0_22.md");
    let rows: Vec<_> = page
        .lines()
        .filter(|line| line.contains(" → ") && line.starts_with("| "))
        .collect();
    assert_eq!(rows.len(), new.len());
    for (model, new) in &new {
        let columns: Vec<_> = old[model]
            .iter()
            .zip(new)
            .map(|(old, new)| format!("{old} → {new}"))
            .collect();
        let row = format!("| {model} | {} |", columns.join(" | "));
        assert!(rows.contains(&row.as_str()), "{row}");
    }
}

const MODEL: &str = "\
use burn::nn::LinearConfig;
use burn::tensor::Tensor;
use burn::tensor::backend::Backend;
use cargo_vram::{Infer, Run};

cargo_vram::models!(layer);

fn layer<B: Backend>(run: &mut Run<B, Infer>) {
    run.model(|device| LinearConfig::new(256, 512).init(device))
        .batch(|device| Tensor::<B, 2>::zeros([128, 256], device))
        .infer(|model, batch| model.forward(batch));
}
";

/// Writes a workspace with a package for each version of Burn: `old` and `new`.
fn of_both_burns(folder: &Path) {
    let [old, new] = manifests();
    write_package(folder, "old", &old, MODEL);
    write_package(folder, "new", &new, &common::burn_0_22::translated(MODEL));
    write_workspace(folder, &["old", "new"]);
}

/// The model with 64 MiB of weights and a batch of 64 MiB.
fn large() -> String {
    MODEL
        .replace("new(256, 512)", "new(4096, 4096)")
        .replace("[128, 256]", "[4096, 4096]")
}

#[test]
#[ignore = "needs a build of Burn 0.22: tests/burn-0_22 runs it"]
fn an_upgrade_of_burn_is_no_growth_of_the_model() {
    let repository = Repository::new();
    let folder = repository.folder.root();
    let budgets = |limit: &str| format!("version: 1\ngpu: l4\nmodels:\n  layer: {{ reserved: {limit} }}\n");
    let [old, new] = manifests();
    write_package(folder, "upgraded", &old, &large());
    write_workspace(folder, &["upgraded"]);
    repository.folder.write("budgets.yaml", &budgets("4 GiB"));
    let vram = |arguments: &[&str]| common::vram(arguments).current_dir(folder).output().unwrap();
    let bless = vram(&["bless"]);
    assert!(bless.status.success(), "{}", common::said(&bless));
    let before = vram(&["estimate", "--message-format", "json", "-o", "before.json"]);
    assert!(before.status.success(), "{}", common::said(&before));
    repository.commit("with Burn 0.21");

    // Twice the batch: this grows by more than any allowed growth of an upgrade.
    let grown = common::burn_0_22::translated(&large()).replace("[4096, 4096]", "[8192, 4096]");
    write_package(folder, "upgraded", &new, &grown);
    // Cargo has removed Burn 0.22 from the first lock file.
    write_workspace(folder, &["upgraded"]);
    for more in [&[][..], &["--rebuild"]] {
        let (report, exit, said) = Repository::check(folder, "HEAD", more);
        let report = report.unwrap();
        assert_eq!((exit, report.status), (0, Status::Warn), "{said}");
        let grown = report.verdicts.iter().find(|verdict| verdict.rule == Rule::Growth);
        let message = &grown.unwrap().message;
        for words in [
            "Burn was upgraded from 0.21.0 to 0.22.",
            "this is only a warning because",
            "to accept the new value, run `cargo vram bless -m upgraded/layer`",
        ] {
            assert!(message.raw().contains(words), "{words}: {message}");
        }
    }
    let comment = vram(&["comment", "--dry-run", "--report", "report.json"]);
    let comment = String::from_utf8(comment.stdout).unwrap();
    assert!(comment.contains("Burn was upgraded from 0.21.0 to 0.22."), "{comment}");
    let diff = vram(&["diff", "before.json", "report.json"]);
    let told = String::from_utf8(diff.stdout.clone()).unwrap();
    assert_eq!(diff.status.code(), Some(0), "{}", common::said(&diff));
    for words in [
        "burn  0.21.0  →  0.22.",
        "growth between them is at most a warning",
        "compare an explanation of each version with `cargo vram diff`",
    ] {
        assert!(told.contains(words), "{words}: {told}");
    }

    // A limit holds for every version of Burn. The causes name the larger batch, and the upgrade beside it.
    let on_live = "version: 1\ngpu: l4\nmodels:\n  layer: { live: 200 MiB }\n";
    repository.folder.write("budgets.yaml", on_live);
    let (report, exit, said) = Repository::check(folder, "HEAD", &["--why"]);
    assert_eq!(exit, 100, "{said}");
    let report = report.unwrap();
    let [of] = report.growth.as_slice() else {
        panic!("{said}");
    };
    growth::assert_sums(of);
    assert!(
        of.notes
            .iter()
            .any(|note| note.raw().starts_with("Burn 0.21.0 → 0.22.")),
        "{said}"
    );
    let largest = of.largest().unwrap();
    assert_eq!(largest.what, "the batch is larger", "{said}");
    let place = largest.place.as_ref().unwrap();
    assert_eq!(place.file, "upgraded/benches/vram.rs", "{said}");
    let text = place.text.as_ref().unwrap().raw();
    assert!(place.edited && text.contains("[8192, 4096]"), "{said}");
    repository.folder.write("budgets.yaml", &budgets("4 GiB"));

    // After `bless`, as the message advises, the baseline is from Burn 0.22, and growth counts again.
    let bless = vram(&["bless", "-m", "upgraded/layer"]);
    assert!(bless.status.success(), "{}", common::said(&bless));
    repository.commit("with Burn 0.22");
    let (report, exit, said) = Repository::check(folder, "HEAD", &[]);
    assert_eq!((exit, report.unwrap().status), (0, Status::Pass), "{said}");
    write_package(
        folder,
        "upgraded",
        &new,
        &grown.replace("[8192, 4096]", "[16384, 4096]"),
    );
    let (_, exit, said) = Repository::check(folder, "HEAD", &[]);
    assert_eq!(exit, 100, "{said}");
}

#[test]
#[ignore = "needs a build of Burn 0.22: tests/burn-0_22 runs it"]
fn a_workspace_with_both_burns_is_checked_in_one_command() {
    let folder = tempfile::tempdir().unwrap();
    of_both_burns(folder.path());
    let (report, exit, text) = check(
        folder.path(),
        "version: 1\ngpu: l4\nmodels:\n  old/layer: { reserved: 1 GiB }\n  new/layer: { reserved: 1 GiB }\n",
        &[],
    );
    assert_eq!((exit, report.status), (0, Status::Pass), "{text}");
    let burns = report.runs.iter().map(|run| (run.package.as_str(), run.burn.raw()));
    let burns: BTreeMap<_, _> = burns.collect();
    assert_eq!(burns["old"], "0.21.0");
    assert!(burns["new"].starts_with("0.22."), "{burns:?}");
    for line in ["Burn 0.21.0 with fusion and autotune: layer", "Burn 0.22."] {
        assert!(text.contains(line), "{text}");
    }
}

#[test]
#[ignore = "needs a build of Burn 0.22: tests/burn-0_22 runs it"]
fn the_adapter_of_another_burn_is_refused_before_anything_is_built() {
    for (package, own, other) in [("new", "burn-0_22", "burn-0_21"), ("old", "burn-0_21", "burn-0_22")] {
        let folder = tempfile::tempdir().unwrap();
        of_both_burns(folder.path());
        let manifest = folder.path().join(package).join("Cargo.toml");
        let text = std::fs::read_to_string(&manifest).unwrap();
        std::fs::write(&manifest, text.replace(own, other)).unwrap();
        let root = folder.path().join("Cargo.toml");
        let arguments = [
            "estimate",
            "--gpu",
            "l4",
            "-p",
            package,
            "--manifest-path",
            root.to_str().unwrap(),
        ];
        let (report, exit, text) = common::report(&arguments);
        assert_eq!(exit, 2, "{text}");
        assert_eq!(report.problems[0].code, "other-adapter", "{text}");
        for words in [
            format!("enables the cargo-vram feature `{other}`"),
            format!("enable the cargo-vram feature \"{own}\""),
        ] {
            assert!(text.contains(&words), "{words}\n{text}");
        }
    }
}

#[test]
#[ignore = "needs a build of Burn 0.22: tests/burn-0_22 runs it"]
fn list_and_doctor_name_the_burn() {
    let at_zoo = |command: &str| {
        let output = common::vram(&[command, "-p", "zoo"])
            .current_dir(common::root().join(ZOO))
            .output()
            .unwrap();
        assert_eq!(output.status.code(), Some(0), "{}", common::said(&output));
        common::said(&output)
    };
    assert!(at_zoo("list").contains("0.22."));
    let doctor = at_zoo("doctor");
    for line in [
        "target `vram`, Burn 0.22.",
        "libdevice: none (not needed for estimates)",
    ] {
        assert!(doctor.contains(line), "{doctor}");
    }
}

#[test]
#[ignore = "needs a build of Burn 0.22: tests/burn-0_22 runs it"]
fn fusion_cannot_be_switched_off_and_that_is_said() {
    // `--no-fusion` of `estimate` is a what-if: it would run beside the model as it is.
    let asked = [
        (&["estimate", "-m", "sequential_inference", "--no-fusion"][..], 2),
        (
            &["explain", "resnet18", "--features", "zoo/default,cargo-vram/no-fusion"],
            101,
        ),
    ];
    for (arguments, exit) in asked {
        let output = common::vram(&[arguments, &["-p", "zoo", "--gpu", "l4"]].concat())
            .current_dir(common::root().join(ZOO))
            .output()
            .unwrap();
        let said = common::said(&output);
        assert_eq!(output.status.code(), Some(exit), "{said}");
        assert!(said.contains("cannot switch fusion off"), "{said}");
        assert!(said.contains("Cargo feature `fusion`"), "{said}");
    }
}

#[test]
#[ignore = "needs a build of Burn 0.22: tests/burn-0_22 runs it"]
fn what_ifs_and_explanations_run_the_build_that_is_there() {
    // Other tests build into the same folder at the same time, so this test looks at the calls of Cargo.
    let (folder, cargo) =
        common::cargo_that("echo \"$@\" >> \"$(dirname \"$0\")/builds\"\nexec \"$REAL_CARGO\" \"$@\"");
    let run = |arguments: &[&str]| {
        let options = ["-p", "zoo", "--gpu", "l4", "--steps", "2"];
        let output = common::vram(&[arguments, &options].concat())
            .current_dir(common::root().join(ZOO))
            .env("CARGO", &cargo)
            .output()
            .unwrap();
        let said = common::said(&output);
        assert_eq!(output.status.code(), Some(0), "{said}");
        said
    };
    run(&["estimate", "-m", "sequential_inference"]);
    let said = run(&["explain", "sequential_inference"]);
    assert!(said.contains("At the peak of live"), "{said}");
    run(&["estimate", "-m", "sequential_inference", "--dtype", "f16"]);
    let builds = std::fs::read_to_string(folder.path().join("builds")).unwrap();
    let builds: Vec<_> = builds.lines().collect();
    assert_eq!(builds.len(), 3, "{builds:?}");
    assert!(builds.iter().all(|build| *build == builds[0]), "{builds:?}");
}

#[test]
#[ignore = "needs a build of Burn 0.22: tests/burn-0_22 runs it"]
fn what_nobody_reads_is_out_of_memory_and_what_burn_gets_over_is_counted() {
    // This training loop never reads a value, so Burn goes on after a refused allocation and raises no error.
    let folder = workspace_of("unread", UPLOADS);
    // A run that is out of memory leaves no compiled kernels for the next run, so one that fits compiles them first.
    let (_, exit, text) = check(folder.path(), UPLOADED, &[]);
    assert_eq!(exit, 0, "{text}");
    let budgets = "version: 1\ngpu: small\ngpu_profiles:\n  small: { like: l4, total: 400 MiB }\nmodels:\n  \
                   uploads: { reserved: 20 GiB, inputs: { batch_size: 4096 } }\n";
    let (report, exit, text) = check(folder.path(), budgets, &["--steps", "2"]);
    assert_eq!((exit, report.status), (100, Status::Fail), "{text}");
    let run = only(&report);
    assert_eq!((run.recovered_refusals, &run.error), (0, &None));
    let oom = run.oom.as_ref().unwrap();
    assert!(oom.requested.unwrap() > oom.available, "{oom:?}");
    assert!(
        text.contains("out of memory: unread/uploads on small in step 0, forward"),
        "{text}"
    );

    // With any amount of memory, the training either fits or does not. If it fits after a refusal, it has recovered.
    // The largest GPU comes first, again because of the kernels.
    let mut recovered = 0;
    for total in ["1150 MiB", "800 MiB"] {
        let (report, exit, text) = check_on(total, "sequential");
        let run = only(&report);
        assert_eq!(run.error, None, "{total}: {text}");
        assert_eq!(exit, if run.oom.is_some() { 100 } else { 0 }, "{total}: {text}");
        assert!(run.oom.is_none() || run.recovered_refusals == 0);
        assert_eq!(
            text.contains("Burn freed memory and got"),
            run.recovered_refusals > 0,
            "{text}"
        );
        recovered += run.recovered_refusals;
    }
    eprintln!("recovered: {recovered}");
}

/// A model with a large upload, and a large allocation that no kernel writes to. No operation makes a tensor as large.
const SUM: &str = "\
use burn::nn::LinearConfig;
use burn::tensor::{Tensor, TensorData};
use cargo_vram::Infer;
use cargo_vram::burn_0_22::Run;

cargo_vram::models!(sum, empty);

fn sum(run: &mut Run<Infer>) {
    let rows = run.batch_size(1024);
    run.model(|device| LinearConfig::new(1, 1).init(device))
        .batch(move |device| Tensor::<2>::from_data(TensorData::zeros::<f32, _>([rows, 1024]), device))
        .infer(|_, batch| batch.sum());
}

fn empty(run: &mut Run<Infer>) {
    let rows = run.batch_size(1024);
    run.model(|device| LinearConfig::new(1, 1).init(device))
        .batch(move |device| Tensor::<2>::empty([rows, 1024], device))
        .infer(|_, batch| batch.sum());
}
";

#[test]
#[ignore = "needs a build of Burn 0.22: tests/burn-0_22 runs it"]
fn what_is_larger_than_any_tensor_of_burns_is_out_of_memory() {
    let folder = workspace_of("summed", SUM);
    let on_one_gib = |rows: u32| {
        let budgets = format!(
            "version: 1\ngpu: small\ngpu_profiles:\n  small: {{ like: l4, total: 1 GiB }}\nmodels:\n  sum: {{ reserved: 20 GiB, \
             inputs: {{ batch_size: {rows} }} }}\n  empty: {{ reserved: 20 GiB, inputs: {{ batch_size: {rows} }} }}\n"
        );
        check(folder.path(), &budgets, &[])
    };
    // A tensor may take a quarter of the GPU: 256 MiB are 65,536 rows.
    let (report, exit, text) = on_one_gib(65_536);
    assert_eq!(exit, 0, "{text}");
    for run in &report.runs {
        assert!(run.peaks.warm.live.unwrap().0 >= 256 << 20, "{text}");
    }
    let (report, exit, text) = on_one_gib(65_537);
    assert_eq!((exit, report.runs.len()), (100, 2), "{text}");
    for run in &report.runs {
        let oom = run.oom.as_ref().unwrap_or_else(|| panic!("{text}"));
        assert_eq!(oom.requested.unwrap().0, 65_537 * 4096, "{text}");
        assert_eq!(oom.tensor.as_ref().unwrap().largest.0, 256 << 20, "{text}");
    }
}

/// A budget for [`UPLOADS`].
const UPLOADED: &str = "version: 1\ngpu: l4\nmodels:\n  uploads: { reserved: 2 GiB }\n";

/// A hand-written loop that makes its batches and masks on the main thread, and reads no value before a step ends.
const UPLOADS: &str = "\
use burn::nn::LinearConfig;
use burn::optim::{AdamConfig, GradientsParams};
use burn::tensor::{Tensor, TensorData};
use cargo_vram::Phase;
use cargo_vram::burn_0_22::Run;

cargo_vram::models!(uploads);

fn uploads(run: &mut Run) {
    let rows = run.batch_size(128);
    let device = run.device();
    let steps = run.steps();
    let mut model = LinearConfig::new(512, 768).init(&device);
    let mut optimizer = AdamConfig::new().init();
    for step in steps {
        step.phase(Phase::Batch);
        let images = TensorData::zeros::<f32, _>([rows, 512]);
        let images = Tensor::<2>::from_data(images, &device);
        step.phase(Phase::Forward);
        let mut hidden = model.forward(images);
        for _ in 0..12 {
            let mask = Tensor::<2>::from_data(TensorData::ones::<f32, _>([rows, 768]), &device);
            hidden = burn::tensor::activation::gelu(hidden * mask);
        }
        let loss = hidden.powf_scalar(2.0).mean();
        step.phase(Phase::Backward);
        let gradients = GradientsParams::from_grads(loss.backward(), &model);
        step.phase(Phase::Optimizer);
        model = optimizer.step(1e-3, model, gradients);
    }
}
";

#[test]
#[ignore = "needs a build of Burn 0.22: tests/burn-0_22 runs it"]
fn uploads_from_the_programs_own_thread_allocate_in_one_order_under_load() {
    let folder = workspace_of("uploading", UPLOADS);
    let estimate = || {
        let (report, exit, text) = check(folder.path(), UPLOADED, &[]);
        assert_eq!(exit, 0, "{text}");
        let mut run = serde_json::to_value(only(&report)).unwrap();
        run["seconds"].take();
        for time in run["pass_seconds"].as_array_mut().unwrap() {
            time["seconds"].take();
        }
        run
    };
    let quiet = estimate();
    let done = AtomicBool::new(false);
    std::thread::scope(|scope| {
        // As many busy loops as there are cores.
        for _ in 0..std::thread::available_parallelism().unwrap().get() {
            scope.spawn(|| {
                while !done.load(Ordering::Relaxed) {
                    std::hint::black_box((0..1_000_000_u64).sum::<u64>());
                }
            });
        }
        // Three passes, of which two must agree by themselves.
        let loaded = std::panic::catch_unwind(estimate);
        done.store(true, Ordering::Relaxed);
        assert_eq!(quiet, loaded.unwrap());
    });
}

#[test]
#[ignore = "needs a build of Burn 0.22: tests/burn-0_22 runs it"]
fn kernels_stay_known_when_a_model_changes_unless_it_may_have_kernels_of_its_own() {
    let model = common::burn_0_22::translated(MODEL);
    let folder = workspace_of("edited", &model);
    let package = folder.path().join("edited");
    // Burn's log of the kernels that it compiles.
    let log = package.join("compiled.log");
    let logged = "[compilation.logger]\nlevel = \"basic\"\nfile = \"compiled.log\"\n";
    std::fs::write(package.join("cubecl.toml"), logged).unwrap();
    let compiled = || {
        let _ = std::fs::remove_file(&log);
        let budgets = "version: 1\ngpu: l4\nmodels:\n  layer: { reserved: 1 GiB }\n";
        let (report, exit, text) = check(folder.path(), budgets, &[]);
        assert_eq!(exit, 0, "{text}");
        let lines = std::fs::read_to_string(&log).unwrap_or_default().lines().count();
        (lines, only(&report).peaks)
    };
    let (_, before) = compiled();
    let edited = model.replace("infer(|model, batch| model", "infer(|model, batch: Tensor<2>| model");
    assert_ne!(edited, model);
    std::fs::write(package.join("benches/vram.rs"), edited).unwrap();
    assert_eq!(compiled(), (0, before));

    let manifest = package.join("Cargo.toml");
    let text = std::fs::read_to_string(&manifest).unwrap();
    let own = "[dependencies]\ncubecl = { version = \"0.11\", default-features = false }\n";
    std::fs::write(manifest, text.replacen("[dependencies]\n", own, 1)).unwrap();
    let (lines, after) = compiled();
    assert_eq!(after, before);
    assert!(lines > 0, "the run used the kernels of another program");
}

#[test]
#[ignore = "needs a build of Burn 0.22: tests/burn-0_22 runs it"]
fn without_libdevice_or_with_a_damaged_one_a_measurement_says_so() {
    let gpu = gpu_folder(&(builtin("l4") + "module_each=65536\n"));
    let measured = || {
        let model = ["measure", "-p", "zoo", "-m", "transformer_inference"];
        let (report, exit, text) = common::report_of(&model, |command| {
            gpu.apply(command);
            command.current_dir(common::root().join(ZOO));
        });
        assert_eq!(exit, 101, "{text}");
        only(&report).error.clone().unwrap()
    };
    let libdevice = gpu.toolkit().join("nvvm/libdevice/libdevice.10.bc");
    std::fs::write(&libdevice, "no bitcode").unwrap();
    let damaged = measured();
    assert!(damaged.message.raw().contains("libdevice"), "{damaged:?}");
    std::fs::remove_file(&libdevice).unwrap();
    let missing = measured();
    assert_eq!(missing.code, "no-libdevice");
    assert!(
        missing.message.raw().contains(libdevice.to_str().unwrap()),
        "{missing:?}"
    );
    assert!(missing.help.unwrap().raw().contains("CUDA_PATH"));
}

/// Burn 0.22 uses other operations for the same layers.
#[test]
#[ignore = "needs a build of Burn 0.22: tests/burn-0_22 runs it"]
fn a_model_has_the_same_layers_with_both_burns() {
    let layers = |folder: &Path| -> Vec<_> {
        let kept = tempfile::tempdir().unwrap();
        let file = kept.path().join("explanation.json");
        let explain = ["explain", "transformer_inference", "-p", "zoo", "--gpu", "l4"];
        let mut command = common::vram(&[&explain[..], &["--message-format", "json", "-o"]].concat());
        let output = command.arg(&file).current_dir(folder).output().unwrap();
        assert!(output.status.success(), "{}", common::said(&output));
        let explanation: Explanation = serde_json::from_slice(&std::fs::read(&file).unwrap()).unwrap();
        let layers = explanation.layers.into_iter();
        layers
            .map(|layer| {
                (
                    layer.path,
                    layer.kind,
                    layer.output,
                    layer.parameters,
                    layer.feature_bytes,
                )
            })
            .collect()
    };
    let [old, new] = ["fixtures/zoo", ZOO].map(|folder| layers(&common::root().join(folder)));
    assert_eq!(old, new);
}

#[test]
#[ignore = "needs a build of Burn 0.22: tests/burn-0_22 runs it"]
fn kernels_that_nvrtc_compiles_need_no_libdevice() {
    let gpu = gpu_folder(&(builtin("l4") + "module_each=65536\n"));
    std::fs::remove_file(gpu.toolkit().join("nvvm/libdevice/libdevice.10.bc")).unwrap();
    let folder = workspace_of("chosen", &common::burn_0_22::translated(MODEL));
    let doctor = || {
        let mut command = common::vram(&["doctor"]);
        gpu.apply(&mut command);
        let output = command.current_dir(folder.path()).output().unwrap();
        common::said(&output)
    };
    let said = doctor();
    assert!(
        said.contains("LLVM needs it to compile the kernels of Burn 0.22"),
        "{said}"
    );
    let manifest = folder.path().join("chosen/Cargo.toml");
    let text = std::fs::read_to_string(&manifest).unwrap();
    let chosen =
        "[dependencies]\ncubecl = { version = \"0.11\", default-features = false, features = [\"cuda-cpp\"] }\n";
    std::fs::write(manifest, text.replacen("[dependencies]\n", chosen, 1)).unwrap();
    let said = doctor();
    assert!(
        said.contains("no model needs it: NVRTC compiles their kernels"),
        "{said}"
    );
}

/// Below compute capability 7.0, Burn 0.22 uploads the scalars of each launch and keeps them on the GPU. Adam's scalars
/// change in each step.
#[test]
#[ignore = "needs a build of Burn 0.22: tests/burn-0_22 runs it"]
fn what_burn_keeps_for_later_launches_is_no_leak() {
    let folder = workspace_of("trained", ADAM);
    let budgets = "version: 1\ngpu: p100\nmodels:\n  layer: { reserved: 4 GiB }\n  leaking: { reserved: 4 GiB }\n";
    let (report, exit, text) = check(folder.path(), budgets, &["--steps", "8"]);
    assert_eq!(exit, 100, "{text}");
    let ends = |model: &str| -> Vec<u64> {
        let steps = &common::run(&report, model).steps;
        let ends = steps.iter().map(|step| step.phases.last().unwrap());
        ends.map(|phase| phase.in_use_end.unwrap().0).collect()
    };
    let layer = ends("layer");
    assert!(layer.windows(2).skip(1).all(|pair| pair[0] == pair[1]), "{layer:?}");
    // A loss is one float, but it takes an allocation of 512 bytes.
    let leaking = ends("leaking");
    let left = leaking.windows(2).skip(1).map(|pair| pair[1] - pair[0]);
    assert_eq!(left.collect::<Vec<_>>(), [512; 6], "{leaking:?}");
    let leaks: Vec<_> = report
        .verdicts
        .iter()
        .filter(|verdict| verdict.rule == Rule::Leak)
        .collect();
    let [leak] = leaks.as_slice() else { panic!("{text}") };
    assert_eq!((leak.model.as_str(), leak.status), ("leaking", Status::Fail));
    assert!(
        leak.message
            .raw()
            .contains("live memory grows on average by 512 B per step, 3 KiB over 6 steps"),
        "{}",
        leak.message
    );
}

const ADAM: &str = r#"use std::cell::RefCell;

use burn::nn::LinearConfig;
use burn::optim::AdamConfig;
use burn::tensor::Tensor;
use cargo_vram::burn_0_22::Run;

cargo_vram::models!(layer, leaking);

fn layer(run: &mut Run) {
    run.model(|device| LinearConfig::new(512, 512).init(device))
        .batch(|device| Tensor::<2>::zeros([8, 512], device))
        .loss(|model, batch| model.forward(batch).mean())
        .train(AdamConfig::new());
}

fn leaking(run: &mut Run) {
    let losses = RefCell::new(Vec::new());
    run.model(|device| LinearConfig::new(512, 512).init(device))
        .batch(|device| Tensor::<2>::zeros([8, 512], device))
        .loss(move |model, batch| {
            let loss = model.forward(batch).mean();
            losses.borrow_mut().push(loss.clone().inner());
            loss
        })
        .train(AdamConfig::new());
}
"#;

/// Burn 0.22 keeps the threads of a data loader, so no epoch gets new pools (burn#5073).
#[test]
#[ignore = "needs a build of Burn 0.22: tests/burn-0_22 runs it"]
fn a_learner_keeps_its_workers_and_a_loss_of_each_epoch_is_a_leak() {
    let budgets = "version: 1\ngpu: rtx-4090\nmodels:
  images_of_four_workers: { reserved: 8 GiB, inputs: { items: 512 } }
  keeps_losses: { reserved: 8 GiB }
  without_mistake: { reserved: 8 GiB }
  stops_early: { reserved: 8 GiB }
  dataset_fails: { reserved: 8 GiB }
  images_of_own_loaders: { reserved: 8 GiB, inputs: { items: 512 } }
  own_loaders_fail: { reserved: 8 GiB }
  own_validation_fails: { reserved: 8 GiB }
";
    // One model after the other: they have the same kernels, and models that run at once would all compile them.
    let budgeted = budgets
        .lines()
        .filter_map(|line| line.strip_prefix("  ")?.split_once(':'));
    let selected = budgeted.flat_map(|(model, _)| ["-m", model]);
    let options: Vec<&str> = ["--jobs", "1"].into_iter().chain(selected).collect();
    let (report, exit, text) = check(&fixture("fixtures/epochs"), budgets, &options);
    assert_eq!(exit, 101, "{text}");
    let learner = common::run(&report, "images_of_four_workers");
    let parts = learner.epochs.iter().filter(|part| part.part != EpochPhase::Between);
    let parts: Vec<_> = parts
        .map(|part| (part.epoch, part.part, part.steps, part.new_streams > 0))
        .collect();
    let of = |epoch| {
        let is_first = epoch == 1;
        [
            (epoch, EpochPhase::Training, 4, is_first),
            (epoch, EpochPhase::Validation, 4, is_first),
        ]
    };
    assert_eq!(parts, [of(1), of(2), of(3)].concat(), "{text}");
    let ends = learner.epochs.iter().rev().map(|part| part.reserved_end);
    let ends: BTreeSet<_> = ends.take(5).collect();
    assert_eq!(ends.len(), 1, "nothing grows after the first epoch: {text}");
    // The same training, seen by the log of the learner: only the trainings, because it logs no step of a validation. Each
    // step here ends after the next batch was taken, so live memory can differ by some tensors of metrics.
    let own = common::run(&report, "images_of_own_loaders");
    let trainings = |run: &Run| {
        let parts = run.epochs.iter().filter(|part| part.part == EpochPhase::Training);
        let parts = parts.map(|part| (part.epoch, part.steps, part.reserved_end));
        parts.collect::<Vec<_>>()
    };
    assert_eq!(trainings(own), trainings(learner), "{text}");
    let leaks = |model: &str| {
        let verdicts = report.verdicts.iter().filter(|verdict| verdict.model == model);
        verdicts.filter(|verdict| verdict.rule == Rule::Leak).count()
    };
    assert_eq!(
        [
            "images_of_four_workers",
            "images_of_own_loaders",
            "keeps_losses",
            "without_mistake"
        ]
        .map(leaks),
        [0, 0, 1, 0],
        "{text}"
    );
    let error = |model: &str| common::run(&report, model).error.as_ref().unwrap().message.to_string();
    assert!(error("stops_early").contains("1 of 2 epochs"), "{text}");
    assert!(error("dataset_fails").contains("cannot be read"), "{text}");
    for model in ["own_loaders_fail", "own_validation_fails"] {
        let message = error(model);
        assert!(
            message.starts_with("Burn's learner stopped because of an error: ") && message.contains("cannot be read"),
            "{text}"
        );
    }
}
