//! `check --base`, through the binary, in a new git repository with a real model.

use std::process::Command;

use cargo_vram::report::BaselineFrom;

use crate::common;
use crate::common::repository::Repository;

/// Budgets with a user's GPU, which the base has too.
const BUDGETS: &str = "version: 1\ngpu: lab\ngpu_profiles: { lab: { like: l4, total: 20 GiB } }\nmodels:\n  charted: { reserved: 4 GiB }\n";

/// A model that compiles quickly.
const BENCH: &str = r"
use burn::backend::Cuda;
use burn::nn::LinearConfig;
use burn::tensor::Tensor;
use cargo_vram::{Infer, Run};

cargo_vram::models!(charted);

fn charted(run: &mut Run<Cuda, Infer>) {
    let batch_size = run.batch_size(512);
    run.model(|device| LinearConfig::new(256, 1024).init(device))
        .batch(move |device| Tensor::<Cuda, 2>::zeros([batch_size, 256], device))
        .infer(|model, batch| model.forward(batch));
}
";

/// Makes a repository with a workspace in a subfolder, which has one model.
fn with_a_model() -> Repository {
    let repository = Repository::new();
    let from = common::fixture("fixtures/many");
    let manifest = std::fs::read_to_string(from.join("Cargo.toml")).unwrap();
    // The name must differ from those of other tests: in one target folder, Cargo confuses packages of the same name.
    let manifest = manifest.replace("name = \"many\"", "name = \"based\"");
    let manifest = manifest.replace("\"../..\"", &format!("{:?}", common::root()));
    repository.folder.write("model/Cargo.toml", &manifest);
    repository.folder.write("model/src/lib.rs", "");
    repository.folder.write("model/benches/vram.rs", &common::models(BENCH));
    std::fs::copy(from.join("Cargo.lock"), repository.folder.path("model/Cargo.lock")).unwrap();
    repository
}

#[test]
fn a_branch_is_told_what_it_changes_since_it_parted() {
    let repository = with_a_model();
    let model = repository.folder.path("model");
    // An old revision without a benchmark.
    repository.git(&["commit", "--quiet", "--allow-empty", "--message", "nothing"]);
    repository.git(&["tag", "nothing"]);
    repository.folder.write("model/budgets.yaml", BUDGETS);
    let bless = common::vram(&["bless"]).current_dir(&model).output().unwrap();
    assert!(bless.status.success(), "{}", String::from_utf8_lossy(&bless.stderr));
    repository.commit("the gate");
    repository.git(&["branch", "topic"]);
    // Changes on `main` are not changes of the branch.
    repository
        .folder
        .write("model/budgets.yaml", &BUDGETS.replace("4 GiB", "3 GiB"));
    repository.commit("main goes on");
    repository.git(&["checkout", "--quiet", "topic"]);
    repository
        .folder
        .write("model/budgets.yaml", &BUDGETS.replace("4 GiB", "8 GiB"));
    let lock = std::fs::read_to_string(repository.folder.path("model/budgets.lock")).unwrap();
    let lower = |line: &str| match line.strip_prefix("warm.live = ") {
        Some(live) => format!("warm.live = {}", live.parse::<u64>().unwrap() + 512),
        None => line.to_owned(),
    };
    let moved: Vec<_> = lock.lines().map(lower).collect();
    repository
        .folder
        .write("model/budgets.lock", &(moved.join("\n") + "\n"));
    // Uncommitted changes count too.
    let (report, exit, said) = Repository::check(&model, "main", &[]);
    let report = report.unwrap();
    assert_eq!(exit, 0, "{said}");
    let base = report.base.unwrap();
    assert_eq!(base.revision, "main");
    let edited: Vec<_> = base
        .edited
        .iter()
        .map(|edited| {
            (
                edited.limit.raw(),
                edited.before.as_ref().map(cargo_vram::report::Foreign::raw),
                edited.after.as_ref().map(cargo_vram::report::Foreign::raw),
                edited.line,
            )
        })
        .collect();
    assert_eq!(edited[0], ("reserved.fail", Some("4 GiB"), Some("8 GiB"), Some(5)));
    // A baseline value that differs both from the base's and from the model's was edited by hand.
    assert_eq!((edited.len(), edited[1].0), (2, "baseline on lab, live"));
    assert_ne!(edited[1].1, edited[1].2);
    // The report shows the base's baseline, but the growth is judged with the branch's lock.
    let baseline = report.runs[0].baseline.as_ref().unwrap();
    assert_eq!(baseline.from, BaselineFrom::Base);
    assert_eq!(baseline.peaks.warm.live, report.runs[0].peaks.warm.live);
    let growth = report
        .verdicts
        .iter()
        .find(|verdict| verdict.baseline.is_some())
        .unwrap();
    assert_eq!(growth.baseline.unwrap().0, baseline.peaks.warm.live.unwrap().0 + 512);

    // If the base has no budgets, every model is new, and that is not an error.
    let (report, exit, said) = Repository::check(&model, "nothing", &[]);
    let report = report.unwrap();
    assert_eq!((exit, report.runs[0].baseline.is_none()), (0, true), "{said}");
    assert!(report.base.unwrap().edited.is_empty());

    for (revision, told) in [
        ("nowhere", "there is no revision `nowhere` in this repository"),
        ("--output=/tmp/x", "is not a valid revision"),
        ("", "is not a valid revision"),
    ] {
        let (report, exit, said) = Repository::check(&model, revision, &[]);
        assert_eq!((exit, report.is_none()), (2, true), "{said}");
        assert!(said.contains(told), "{said}");
    }

    // There is no remote, but a local branch with this name.
    let (_, exit, said) = Repository::check(&model, "origin/main", &[]);
    assert_eq!(exit, 2, "{said}");
    for told in [
        "did you mean `main`?",
        "this repository has no remote",
        "tags: `nothing`",
    ] {
        assert!(said.contains(told), "{told}: {said}");
    }

    // Deleting the baseline is reported too.
    std::fs::remove_file(repository.folder.path("model/budgets.lock")).unwrap();
    let (report, _, said) = Repository::check(&model, "main", &[]);
    let edited = report.unwrap().base.unwrap().edited;
    let taken_out = edited.iter().find(|edited| edited.limit == "baseline on lab").unwrap();
    assert!(taken_out.before.is_some() && taken_out.after.is_none(), "{said}");

    // With `--rebuild`, the base's models are built and run, instead of reading the base's files.
    let rebuilt = |base: &str| Repository::check(&model, base, &["--rebuild"]);
    repository.folder.write(
        "model/benches/vram.rs",
        &common::models(BENCH).replace("batch_size(512)", "batch_size(8192)"),
    );
    let (report, exit, said) = rebuilt("main");
    let report = report.unwrap();
    assert_eq!(exit, 100, "{said}");
    let baseline = report.runs[0].baseline.as_ref().unwrap();
    assert_eq!(
        (baseline.from, baseline.inputs["batch_size"]),
        (BaselineFrom::Rebuilt, 512)
    );
    assert!(said.contains("likely cause: batch_size 512 → 8192"), "{said}");
    // A GPU that only the branch describes changes nothing for the models.
    let profile = "gpu_profiles: { other: { like: t4 }, lab:";
    repository
        .folder
        .write("model/budgets.yaml", &BUDGETS.replace("gpu_profiles: { lab:", profile));
    let (_, exit, said) = rebuilt("main");
    assert_eq!(exit, 100, "{said}");
    repository.folder.write("model/budgets.yaml", BUDGETS);
    // A check without `--rebuild` never runs the base's program.
    let (report, _, said) = Repository::check(&model, "main", &[]);
    assert_eq!(report.unwrap().runs[0].inputs["batch_size"], 8192, "{said}");
    // A model that the base lacks is new. If the base cannot be built, the compiler's error is shown.
    let (report, exit, said) = rebuilt("nothing");
    assert_eq!((exit, report.unwrap().runs[0].baseline.is_none()), (0, true), "{said}");
    repository.folder.write(
        "model/benches/vram.rs",
        &common::models(BENCH).replace("fn charted", "fn chartered"),
    );
    repository.commit("broken");
    repository.git(&["branch", "broken"]);
    repository.folder.write("model/benches/vram.rs", &common::models(BENCH));
    let (report, exit, said) = rebuilt("broken");
    assert_eq!((exit, report.unwrap().problems.len()), (101, 1), "{said}");
    assert!(said.contains("at broken: `vram` of based does not compile"), "{said}");
    // If the machine may have kept the base's model from running, the check fails. A model that panics there is repaired
    // here.
    for (end, exit_code, told) in [
        (
            "loop { std::thread::sleep(std::time::Duration::from_secs(1)) }",
            101,
            "at broken: based/charted: ",
        ),
        (
            "panic!(\"a bug\")",
            0,
            "at broken, the run ended early (`model-panicked`)",
        ),
    ] {
        let bench =
            common::models(BENCH).replacen("let batch_size", &format!("if true {{ {end} }}\n    let batch_size"), 1);
        repository.folder.write("model/benches/vram.rs", &bench);
        repository.commit(end);
        repository.git(&["branch", "--force", "broken"]);
        repository.folder.write("model/benches/vram.rs", &common::models(BENCH));
        let (report, exit, said) = Repository::check(&model, "broken", &["--rebuild", "--timeout", "20s"]);
        let problems = report.unwrap().problems.len();
        assert_eq!((exit, problems), (exit_code, usize::from(exit_code == 101)), "{said}");
        assert!(said.contains(told), "{said}");
    }
    // A checkout at another path does not find a package outside the repository, nor a submodule that cannot be
    // fetched.
    let outside = tempfile::tempdir().unwrap();
    let lib = "[package]\nname = \"outside\"\nversion = \"0.0.0\"\nedition = \"2024\"\n[workspace]\n";
    std::fs::write(outside.path().join("Cargo.toml"), lib).unwrap();
    std::fs::create_dir(outside.path().join("src")).unwrap();
    std::fs::write(outside.path().join("src/lib.rs"), "").unwrap();
    let manifest = std::fs::read_to_string(repository.folder.path("model/Cargo.toml")).unwrap();
    let path = format!("../../{}", outside.path().file_name().unwrap().to_str().unwrap());
    let with = manifest.replace(
        "[dependencies]",
        &format!("[dependencies]\noutside = {{ path = {path:?} }}"),
    );
    repository.folder.write("model/Cargo.toml", &with);
    repository.commit("outside");
    let (_, exit, said) = rebuilt("HEAD");
    assert_eq!(exit, 2, "{said}");
    assert!(said.contains("by git or by an absolute path"), "{said}");
    repository.folder.write("model/Cargo.toml", &manifest);
    let other = Repository::new();
    other.git(&["commit", "--quiet", "--allow-empty", "--message", "nothing"]);
    let url = other.folder.root().to_str().unwrap();
    repository.git(&["submodule", "--quiet", "add", url, "part"]);
    repository.commit("submodule");
    let (_, exit, said) = rebuilt("HEAD");
    assert_eq!(exit, 2, "{said}");
    assert!(said.contains("cannot check out the submodules of the base"), "{said}");
    // Cargo takes the checkout for a part of the workspace that is around the target folder.
    if common::target_folder().starts_with(common::root()) {
        let alone = manifest.replace("[workspace]\nresolver = \"3\"\n", "");
        assert_ne!(alone, manifest);
        repository.folder.write("model/Cargo.toml", &alone);
        repository.git(&["rm", "--quiet", "--cached", "part"]);
        repository.git(&["rm", "--quiet", "-f", ".gitmodules"]);
        repository.commit("without a workspace");
        let (_, exit, said) = rebuilt("HEAD");
        assert_eq!(exit, 2, "{said}");
        // Without the line breaks of the terminal.
        let said = said.split_whitespace().collect::<Vec<_>>().join(" ");
        assert!(
            said.contains("within another Cargo workspace: set CARGO_TARGET_DIR"),
            "{said}"
        );
        assert!(!said.contains("by git or by an absolute path"), "{said}");
    }
    // No worktree stays.
    let worktrees = Command::new("git")
        .args(["worktree", "list"])
        .current_dir(&model)
        .output()
        .unwrap();
    assert_eq!(String::from_utf8(worktrees.stdout).unwrap().lines().count(), 1);

    // In a shallow clone, the error says how to fetch the rest.
    let clone = repository.folder.path("clone");
    let url = format!("file://{}", repository.folder.root().display());
    Repository::git_in(
        repository.folder.root(),
        &[
            "clone",
            "--quiet",
            "--depth",
            "1",
            "--no-single-branch",
            &url,
            clone.to_str().unwrap(),
        ],
    );
    let (_, exit, said) = Repository::check(&clone.join("model"), "origin/main", &[]);
    assert_eq!(exit, 2, "{said}");
    assert!(
        said.contains("no commit in common") && said.contains("fetch-depth: 0"),
        "{said}"
    );

    // Without a git repository, there is no base.
    std::fs::remove_dir_all(repository.folder.path("clone/.git")).unwrap();
    std::fs::remove_dir_all(repository.folder.path(".git")).unwrap();
    let (_, exit, said) = Repository::check(&model, "main", &[]);
    assert_eq!(exit, 2, "{said}");
    assert!(said.contains("--base needs a git checkout"), "{said}");
}
