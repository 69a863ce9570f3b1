//! Ways around the gate that need no model: edited files, unjudged reports, names that match nothing, and results that
//! cannot be written. `fixtures/fooled` has the files.

use std::fs::File;
use std::path::{Path, PathBuf};
use std::process::{Output, Stdio};
use std::sync::{Mutex, MutexGuard, PoisonError};

use cargo_vram::report::{PlainName, Report, Rule, Status};

use crate::common;
use crate::common::repository::Repository;
use crate::common::{Folder, Once};

/// Two models that compile quickly.
const BENCH: &str = r"
use burn::backend::Cuda;
use burn::nn::LinearConfig;
use burn::tensor::Tensor;
use cargo_vram::{Infer, Run};

cargo_vram::models!(charted, other);

fn charted(run: &mut Run<Cuda, Infer>) {
    let batch_size = run.batch_size(512);
    run.model(|device| LinearConfig::new(256, 1024).init(device))
        .batch(move |device| Tensor::<Cuda, 2>::zeros([batch_size, 256], device))
        .infer(|model, batch| model.forward(batch));
}

fn other(run: &mut Run<Cuda, Infer>) {
    run.model(|device| LinearConfig::new(256, 512).init(device))
        .batch(|device| Tensor::<Cuda, 2>::zeros([128, 256], device))
        .infer(|model, batch| model.forward(batch));
}
";

/// The package of all these tests, built once. One test at a time uses it.
static PACKAGE: Once<PathBuf> = Once::new("gate", |folder| {
    let repository = Repository::in_folder(Folder::kept(folder.join("repository")));
    let from = common::fixture("fixtures/many");
    let manifest = std::fs::read_to_string(from.join("Cargo.toml")).unwrap();
    // The name must differ from those of other tests: in one target folder, Cargo confuses packages of the same name.
    let manifest = manifest.replace("name = \"many\"", "name = \"model\"");
    let manifest = manifest.replace("\"../..\"", &format!("{:?}", common::root()));
    repository.folder.write("model/Cargo.toml", &manifest);
    repository.folder.write("model/src/lib.rs", "");
    repository.folder.write("model/benches/vram.rs", &common::models(BENCH));
    std::fs::copy(from.join("Cargo.lock"), repository.folder.path("model/Cargo.lock")).unwrap();
    let archive = repository.folder.path("models.tar.zst");
    let model = repository.folder.path("model");
    let packed = common::vram(&["archive", "-o", archive.to_str().unwrap()])
        .current_dir(model)
        .output()
        .unwrap();
    assert!(packed.status.success(), "{}", common::said(&packed));
    folder.join("repository")
});
static ALONE: Mutex<()> = Mutex::new(());

/// The package without `budgets.yaml` and without commits of other tests.
struct Package {
    repository: Repository,
    folder: PathBuf,
    _alone: MutexGuard<'static, ()>,
}

impl Package {
    fn new() -> Self {
        let alone = ALONE.lock().unwrap_or_else(PoisonError::into_inner);
        let folder = Folder::kept(PACKAGE.get().clone());
        let _ = std::fs::remove_dir_all(folder.path(".git"));
        let repository = Repository::in_folder(folder);
        let folder = repository.folder.path("model");
        for file in ["budgets.yaml", "budgets.lock"] {
            let _ = std::fs::remove_file(folder.join(file));
        }
        Self {
            repository,
            folder,
            _alone: alone,
        }
    }

    fn write(&self, file: &str, text: &str) {
        self.repository.folder.write(&format!("model/{file}"), text);
    }

    fn run(&self, arguments: &[&str]) -> Output {
        common::vram(arguments).current_dir(&self.folder).output().unwrap()
    }

    fn exit(&self, arguments: &[&str]) -> (i32, String) {
        let output = self.run(arguments);
        (output.status.code().unwrap(), common::said(&output))
    }

    /// Runs a check against `main`.
    fn check(&self, more: &[&str]) -> (Report, i32, String) {
        let (report, exit, said) = Repository::check(&self.folder, "main", more);
        (report.unwrap_or_else(|| panic!("no report\n{said}")), exit, said)
    }
}

fn fooled(file: &str) -> String {
    std::fs::read_to_string(common::root().join("fixtures/fooled").join(file)).unwrap()
}

/// The names of the files in a folder of `fixtures/fooled`, without their extensions.
fn variants(folder: &str) -> Vec<String> {
    let entries = std::fs::read_dir(common::root().join("fixtures/fooled").join(folder)).unwrap();
    let names = entries.map(|entry| entry.unwrap().path().file_stem().unwrap().to_str().unwrap().to_owned());
    let mut names: Vec<String> = names.filter(|name| name != "before").collect();
    names.sort();
    names
}

#[test]
fn edits_are_told_where_the_base_describes_its_own_gpus() {
    let package = Package::new();
    package.write("budgets.yaml", &fooled("own-profiles/before.yaml"));
    package.repository.commit("the gate");
    for (name, limit) in [
        ("raised", "reserved.fail"),
        ("only-warns", "reserved.fail"),
        ("larger-gpu", "gpu_profiles.lab.total"),
    ] {
        package.write("budgets.yaml", &fooled(&format!("own-profiles/{name}.yaml")));
        let (report, exit, said) = package.check(&[]);
        assert_eq!(exit, 0, "{said}");
        let edited = report.base.unwrap().edited;
        assert!(
            edited.iter().any(|edit| edit.limit == limit && edit.loosens),
            "{name}\n{said}"
        );
        assert!(!said.contains("skipped: edits of limits"), "{said}");
        let (_, exit, said) = package.check(&["--deny-edits"]);
        assert_eq!(exit, 100, "{name}\n{said}");
    }
}

#[test]
fn a_change_that_loosens_its_own_limits_fails() {
    let package = Package::new();
    package.write("budgets.yaml", &fooled("own-limits/before.yaml"));
    package.repository.commit("the gate");
    let variants = variants("own-limits");
    assert!(variants.len() > 15);
    for name in variants {
        package.write("budgets.yaml", &fooled(&format!("own-limits/{name}.yaml")));
        let (report, exit, said) = package.check(&["--deny-edits"]);
        let denied = report.verdicts.iter().filter(|verdict| verdict.rule == Rule::Edit);
        let is_allowed = name.starts_with("allowed-");
        assert_eq!(
            (exit, denied.count() == 0),
            (if is_allowed { 0 } else { 100 }, is_allowed),
            "{name}\n{said}"
        );
    }
    // Without `--deny-edits`, the change passes, as if somebody approved it.
    package.write("budgets.yaml", &fooled("own-limits/raised.yaml"));
    let (_, exit, said) = package.check(&[]);
    assert_eq!(exit, 0, "{said}");
    // Other paths of the same file do not matter.
    for path in ["../model/budgets.yaml", "./budgets.yaml"] {
        assert_eq!(package.check(&["--deny-edits", "--budgets", path]).1, 100, "{path}");
    }
    std::os::unix::fs::symlink("model", package.repository.folder.path("link")).unwrap();
    assert_eq!(
        package.check(&["--deny-edits", "--budgets", "../link/budgets.yaml"]).1,
        100
    );
    std::fs::remove_file(package.repository.folder.path("link")).unwrap();
    // A file outside the repository cannot be compared with the base.
    let elsewhere = tempfile::tempdir().unwrap();
    let copy = elsewhere.path().join("budgets.yaml");
    std::fs::copy(package.folder.join("budgets.yaml"), &copy).unwrap();
    let (_, exit, said) = Repository::check(
        &package.folder,
        "main",
        &["--deny-edits", "--budgets", copy.to_str().unwrap()],
    );
    assert!(
        exit != 0 && said.contains("outside of the repository"),
        "{exit}\n{said}"
    );
    // If the base's file has a mistake, `--deny-edits` fails.
    package.write("budgets.yaml", "version: 1\ngpu: l4\nmodels: [\n");
    package.repository.commit("a mistake");
    package.write("budgets.yaml", &fooled("own-limits/raised.yaml"));
    let (_, exit, said) = package.check(&["--deny-edits"]);
    assert_eq!(exit, 100, "{said}");
    assert_eq!(package.exit(&["check", "--estimate", "--deny-edits"]).0, 2);
}

#[test]
fn a_base_that_has_no_limits_there_allows_none() {
    let package = Package::new();
    package.repository.commit("nothing yet");
    package.write("budgets.yaml", &fooled("own-limits/before.yaml"));
    let (_, exit, said) = package.check(&["--deny-edits"]);
    assert_eq!(exit, 100, "{said}");
    assert!(said.contains("there is no budgets.yaml at main"), "{said}");
    assert_eq!(package.check(&[]).1, 0);
    // The base has the limits of a moved folder at another path.
    package.repository.commit("the gate");
    package.write("budgets.yaml", &fooled("own-limits/raised.yaml"));
    let (from, to) = (&package.folder, package.repository.folder.path("moved"));
    std::fs::rename(from, &to).unwrap();
    std::os::unix::fs::symlink("moved", from).unwrap();
    let (_, exit, said) = Repository::check(from, "main", &["--deny-edits"]);
    std::fs::remove_file(from).unwrap();
    std::fs::rename(&to, from).unwrap();
    assert_eq!(exit, 100, "{said}");
}

#[test]
fn a_tag_is_not_taken_for_the_branch_of_its_name() {
    let package = Package::new();
    package.write("budgets.yaml", &fooled("own-limits/before.yaml"));
    package.repository.commit("the gate");
    package.repository.git(&["checkout", "--quiet", "-b", "change"]);
    package.write("budgets.yaml", &fooled("own-limits/raised.yaml"));
    package.repository.commit("more for all");
    assert_eq!(package.check(&["--deny-edits"]).1, 100);
    package.repository.git(&["tag", "main", "HEAD"]);
    let (exit, said) = package.exit(&["check", "--estimate", "--base", "main", "--deny-edits"]);
    assert_eq!(exit, 2, "{said}");
    assert!(
        said.contains("`main` names several tags or branches, with different commits"),
        "{said}"
    );
    assert_eq!(
        package
            .exit(&["check", "--estimate", "--base", "refs/heads/main", "--deny-edits"])
            .0,
        100
    );
}

#[test]
fn a_model_under_another_name_is_not_compared_with_nothing() {
    let package = Package::new();
    let budgets = "version: 1\ngpu: l4\nmodels:\n  charted: { live: 1 GiB }\n  other: { live: 1 GiB }\n";
    package.write("budgets.yaml", budgets);
    assert_eq!(package.exit(&["bless"]).0, 0);
    // A baseline from a time when the package had another name.
    let lock = std::fs::read_to_string(package.folder.join("budgets.lock")).unwrap();
    package.write(
        "budgets.lock",
        &lock.replace("package = \"model\"", "package = \"modelled\""),
    );
    package.repository.commit("the gate");
    let (_, exit, said) = package.check(&["--deny-edits"]);
    assert_eq!(exit, 100, "{said}");
    assert!(said.contains("growth of modelled/charted"), "{said}");
    // A budget whose model does not exist is an error, for every selection of models.
    package.write("budgets.yaml", &budgets.replace("other:", "another:"));
    for more in [&[][..], &["--all-features"], &["-m", "*"], &["-m", "charted"]] {
        let (exit, said) = package.exit(&[&["check", "--estimate"], more].concat());
        assert_eq!(exit, 2, "{more:?}\n{said}");
    }
}

#[test]
fn an_archive_has_the_baseline_beside_its_budgets() {
    let package = Package::new();
    let budgets = "version: 1\ngpu: l4\nmodels:\n  charted: { live: 1 GiB }\n  other: { live: 1 GiB }\n";
    package.write("limits.yaml", budgets);
    let file = ["--budgets", "limits.yaml"];
    assert_eq!(package.exit(&[&["bless"], &file[..]].concat()).0, 0);
    let archive = package.folder.join("limited.tar.zst");
    let path = archive.to_str().unwrap();
    let (exit, said) = package.exit(&[&["archive", "-o", path], &file[..]].concat());
    assert_eq!(exit, 0, "{said}");
    let (exit, said) = package.exit(&["check", "--estimate", "--require-baseline", "--archive-file", path]);
    for left in ["limits.yaml", "limits.lock", "limited.tar.zst"] {
        std::fs::remove_file(package.folder.join(left)).unwrap();
    }
    assert_eq!(exit, 0, "{said}");
}

#[test]
fn a_worse_baseline_is_an_edit_however_it_came_to_be() {
    let package = Package::new();
    package.write(
        "budgets.yaml",
        "version: 1\ngpu: l4\nmodels:\n  charted: { live: 1 GiB }\n  other: { live: 1 GiB }\n",
    );
    let (exit, said) = package.exit(&["bless"]);
    assert_eq!(exit, 0, "{said}");
    package.repository.commit("the gate");
    assert_eq!(package.check(&["--deny-edits"]).1, 0);
    let lock = std::fs::read_to_string(package.folder.join("budgets.lock")).unwrap();
    let larger = |key: &str| -> String {
        let line = |line: &str| match line.strip_prefix(&format!("{key} = ")) {
            Some(bytes) => format!("{key} = {}\n", bytes.parse::<u64>().unwrap() + 1),
            None => format!("{line}\n"),
        };
        lock.lines().map(line).collect()
    };
    let estimator = lock.lines().find(|line| line.starts_with("estimator = ")).unwrap();
    for (worse, exit_code) in [
        (larger("warm.live"), 100),
        (larger("cold.reserved"), 100),
        (
            lock.split_inclusive("[[baseline]]")
                .take(2)
                .collect::<String>()
                .trim_end_matches("[[baseline]]")
                .to_owned(),
            100,
        ),
        (lock.replace("warm.live = ", "warm.live = 1 # "), 0),
        // A model whose growth would only warn, as after an upgrade of Burn.
        (lock.replacen("burn = \"0.", "burn = \"0.1", 1), 100),
        // A baseline that is not compared any more, so that no growth is judged.
        (lock.replacen(estimator, "estimator = \"another\"", 1), 100),
    ] {
        package.write("budgets.lock", &worse);
        let (_, exit, said) = package.check(&["--deny-edits"]);
        // A smaller baseline is allowed: the growth from it fails by itself or is ignored.
        assert_eq!(exit, exit_code, "{worse}\n{said}");
    }
    std::fs::remove_file(package.folder.join("budgets.lock")).unwrap();
    assert_eq!(package.check(&["--deny-edits"]).1, 100);
}

#[test]
fn parts_of_a_check_find_what_the_whole_check_finds_about_models_that_no_longer_exist() {
    let package = Package::new();
    package.write(
        "budgets.yaml",
        "version: 1\ngpu: l4\nmodels:\n  charted: { live: 1 GiB }\n  other: { live: 1 GiB }\n",
    );
    assert_eq!(package.exit(&["bless"]).0, 0);
    // Models that the package had before, on this GPU and on another one.
    let lock = std::fs::read_to_string(package.folder.join("budgets.lock")).unwrap();
    let paragraph = lock.split_inclusive("[[baseline]]\n").nth(1).unwrap();
    let paragraph = paragraph.trim_end_matches("[[baseline]]\n");
    let model = paragraph.lines().find(|line| line.starts_with("model = ")).unwrap();
    for gpu in ["l4", "t4"] {
        let gone = paragraph
            .replace(model, "model = \"gone\"")
            .replace("gpu = \"l4\"", &format!("gpu = \"{gpu}\""));
        assert!(
            gone.contains("\"gone\"") && gone.contains(&format!("\"{gpu}\"")),
            "{gone}"
        );
        package.write("budgets.lock", &format!("{}\n\n[[baseline]]\n{gone}", lock.trim_end()));
        package.repository.commit("an earlier model");
        for (option, rule) in [("--deny-edits", Rule::Edit), ("--exact", Rule::Baseline)] {
            let (report, exit, said) = package.check(&[option]);
            let failed = |report: &Report| {
                let failed = report.verdicts.iter().filter(|verdict| verdict.status == Status::Fail);
                failed.map(|verdict| verdict.rule).collect::<Vec<_>>()
            };
            assert_eq!((exit, failed(&report)), (100, vec![rule]), "{gpu} {option}\n{said}");
            let mut files = Vec::new();
            for number in 1..=2 {
                let part = format!("hash:{number}/2");
                let (report, _, _) = package.check(&[option, "--partition", &part]);
                let file = package.folder.join(format!("part-{number}.json"));
                std::fs::write(&file, serde_json::to_string(&report).unwrap()).unwrap();
                files.push(file);
            }
            let merged = package.folder.join("merged.json");
            let mut arguments = vec!["merge"];
            arguments.extend(files.iter().map(|file| file.to_str().unwrap()));
            arguments.extend(["--message-format", "json", "-o", merged.to_str().unwrap()]);
            let (exit, said) = package.exit(&arguments);
            assert_eq!(
                (exit, failed(&read(&merged))),
                (100, vec![rule]),
                "{gpu} {option}\n{said}"
            );
            files.push(merged);
            files.iter().for_each(|file| std::fs::remove_file(file).unwrap());
        }
    }
}

#[test]
fn an_archive_brings_the_limits_that_it_is_compared_with() {
    let package = Package::new();
    package.write("budgets.yaml", &fooled("own-limits/before.yaml"));
    package.repository.commit("the gate");
    let archive = package.folder.join("based.tar.zst");
    let file = archive.to_str().unwrap();
    let exit = |name: &str, more: &[&str]| {
        package.write("budgets.yaml", &fooled(&format!("own-limits/{name}.yaml")));
        let (packed, said) = package.exit(&[&["archive", "-o", file], more].concat());
        assert_eq!(packed, 0, "{said}");
        let check = ["check", "--estimate", "--archive-file", file, "--deny-edits"];
        package.exit(&check)
    };
    let base = &["--base", "main"][..];
    let (code, said) = exit("raised", base);
    assert_eq!(code, 100, "{said}");
    assert!(said.contains("this change loosens a limit"), "{said}");
    assert_eq!(exit("no-model", base).0, 100);
    assert_eq!(exit("allowed-lower", base).0, 0);
    // Without a base, `--deny-edits` cannot compare, which is an error.
    let (code, said) = exit("raised", &[]);
    assert_eq!(code, 2, "{said}");
    std::fs::remove_file(archive).unwrap();
}

#[test]
fn a_baseline_without_values_is_none() {
    let package = Package::new();
    package.write(
        "budgets.yaml",
        "version: 1\ngpu: l4\nmodels:\n  charted: { live: 1 GiB }\n  other: { live: 1 GiB }\n",
    );
    assert_eq!(package.exit(&["bless"]).0, 0);
    let lock = std::fs::read_to_string(package.folder.join("budgets.lock")).unwrap();
    let check = ["check", "--estimate", "--require-baseline"];
    assert_eq!(package.exit(&check).0, 0);
    let without = |key: &str| -> String {
        let lines = lock.lines().filter(|line| !line.starts_with(key));
        lines.map(|line| format!("{line}\n")).collect()
    };
    for key in ["warm.live", "warm.reserved"] {
        package.write("budgets.lock", &without(key));
        let (exit, said) = package.exit(&check);
        assert_eq!(exit, 2, "{key}\n{said}");
        assert!(said.contains(&format!("has no `{key}`")), "{said}");
    }
    // A value may be missing in the baseline, but not if its growth has a limit.
    package.write("budgets.lock", &without("warm.process"));
    assert_eq!(package.exit(&check).0, 0);
    package.write(
        "budgets.yaml",
        "version: 1\ngpu: l4\ndefaults: { growth: { process: { fail: 5% } } }\nmodels:\n  charted: { live: 1 GiB }\n  other: { live: 1 GiB }\n",
    );
    let (exit, said) = package.exit(&check);
    assert_eq!(exit, 100, "{said}");
    assert!(said.contains("has no value for warm process memory"), "{said}");
}

#[test]
fn a_budget_has_no_other_models_name() {
    let package = Package::new();
    for name in variants("name-of-another") {
        package.write("budgets.yaml", &fooled(&format!("name-of-another/{name}.yaml")));
        for command in [&["check", "--estimate"][..], &["check", "--estimate", "-m", "charted"]] {
            let (exit, said) = package.exit(command);
            assert_eq!(exit, 2, "{name}\n{said}");
            assert!(said.contains("the name of another model"), "{said}");
        }
    }
}

#[test]
fn each_name_must_match_something_in_every_command() {
    let package = Package::new();
    package.write(
        "budgets.yaml",
        "version: 1\ngpu: l4\nmodels:\n  charted: { live: 1 GiB }\n  small: { model: other, live: 1 GiB }\n",
    );
    let report = package.folder.join("r.json");
    let report = report.to_str().unwrap();
    let written = package.exit(&["estimate", "--message-format", "json", "-o", report]);
    assert_eq!(written.0, 0, "{}", written.1);
    let archive = PACKAGE.get().join("models.tar.zst");
    let archive = archive.to_str().unwrap();
    for command in [
        &["check", "--estimate"][..],
        &["check", "--estimate", "--partition", "hash:1/2"],
        &["estimate"],
        &["bless"],
        &["bless", "--report", report],
        &["estimate", "--gpu", "l4", "--archive-file", archive],
    ] {
        let with = |names: &[&str]| {
            let names = names.iter().flat_map(|name| ["-m", *name]);
            package.exit(&[command, &names.collect::<Vec<_>>()].concat())
        };
        let (exit, said) = with(&["charted", "chrated"]);
        assert_eq!(exit, 2, "{command:?}\n{said}");
        assert!(said.contains("chrated"), "{command:?}\n{said}");
        let (exit, said) = with(&["nothing*", "charted"]);
        assert_eq!(exit, 2, "{command:?}\n{said}");
    }
    // The names of budgets and packages select models too.
    assert_eq!(
        package
            .exit(&["check", "--estimate", "-m", "small", "-m", "model/charted"])
            .0,
        0
    );
    for arguments in [
        &["-p", "model", "-p", "modle"][..],
        &["--workspace", "--exclude", "modle"],
    ] {
        assert_eq!(package.exit(&[&["check", "--estimate"], arguments].concat()).0, 2);
    }
}

#[test]
fn reports_that_have_nothing_in_common_are_not_alike() {
    let package = Package::new();
    let file = |name: &str| package.folder.join(name).to_str().unwrap().to_owned();
    let (l4, t4) = (file("l4.json"), file("t4.json"));
    for (gpu, file) in [("l4", &l4), ("t4", &t4)] {
        let (exit, said) = package.exit(&["estimate", "--gpu", gpu, "--message-format", "json", "-o", file]);
        assert_eq!(exit, 0, "{said}");
    }
    assert_eq!(package.exit(&["diff", &l4, &l4, "--fail"]).0, 0);
    let (exit, said) = package.exit(&["diff", &l4, &t4, "--fail"]);
    assert_eq!(exit, 101, "{said}");
    assert!(said.contains("nothing was compared"), "{said}");
    assert_eq!(package.exit(&["diff", &l4, &t4]).0, 0);
    let compared = file("diff.json");
    let (exit, said) = package.exit(&["diff", &l4, &t4, "--message-format", "json", "-o", &compared]);
    assert_eq!(exit, 0, "{said}");
    common::is_valid("diff", &std::fs::read_to_string(&compared).unwrap());
    std::fs::remove_file(compared).unwrap();
    for left in [l4, t4] {
        std::fs::remove_file(left).unwrap();
    }
}

/// Reports of a check that ran in parts, edited by hand.
#[test]
fn reports_that_nobody_judged_are_no_pass() {
    let package = Package::new();
    package.write(
        "budgets.yaml",
        "version: 1\ngpu: l4\nmodels:\n  charted: { live: 1 GiB }\n  other: { live: 1 GiB }\n",
    );
    let path = |number: u32| package.folder.join(format!("part-{number}.json"));
    let mut sizes = Vec::new();
    for number in 1..=4 {
        let (part, file) = (format!("hash:{number}/4"), path(number));
        let arguments = ["check", "--estimate", "--partition", &part, "--message-format", "json"];
        let (exit, said) = package.exit(&[&arguments[..], &["-o", file.to_str().unwrap()]].concat());
        assert_eq!(exit, 0, "{said}");
        let runs = read(&file).runs.len();
        // There are fewer models than parts, so a part can be empty.
        assert_eq!(
            said.contains(&format!("0 of 2 models are in part {part}")),
            runs == 0,
            "{said}"
        );
        sizes.push(runs);
    }
    assert_eq!(sizes.iter().sum::<usize>(), 2);
    let full = 1 + u32::try_from(sizes.iter().position(|runs| *runs > 0).unwrap()).unwrap();
    let merge = || {
        let files: Vec<String> = (1..=4)
            .map(|number| path(number).to_str().unwrap().to_owned())
            .collect();
        let mut arguments = vec!["merge"];
        arguments.extend(files.iter().map(String::as_str));
        package.exit(&arguments)
    };
    assert_eq!(merge().0, 0, "{}", merge().1);
    let whole = read(&path(full));
    let changed = |change: &dyn Fn(&mut Report)| {
        let mut report = whole.clone();
        change(&mut report);
        std::fs::write(path(full), serde_json::to_string(&report).unwrap()).unwrap();
        let came = merge();
        std::fs::write(path(full), serde_json::to_string(&whole).unwrap()).unwrap();
        came
    };
    type Trick<'a> = &'a dyn Fn(&mut Report);
    let tricks: [(i32, Trick<'_>); 8] = [
        (100, &|report| report.status = Status::Fail),
        (101, &|report| report.status = Status::Error),
        (101, &|report| report.verdicts.clear()),
        (101, &|report| {
            report.status = Status::Fail;
            report.verdicts.clear();
        }),
        (101, &|report| {
            report
                .verdicts
                .iter_mut()
                .for_each(|verdict| verdict.gpu = PlainName::parse("h200").unwrap())
        }),
        (100, &|report| {
            report.runs[0].oom = Some(serde_json::from_str(OUT_OF_MEMORY).unwrap());
        }),
        (2, &|report| report.command = None),
        (2, &|report| {
            report.command = Some(cargo_vram::report::WrittenBy::Estimate)
        }),
    ];
    for (number, (exit, trick)) in tricks.into_iter().enumerate() {
        let (came, said) = changed(trick);
        assert_eq!(came, exit, "trick {number}\n{said}");
    }
}

const OUT_OF_MEMORY: &str =
    r#"{"pass":"warm","step":1,"phase":"forward","kernel":null,"requested":1,"reserved":1,"available":0}"#;

fn read(path: &Path) -> Report {
    serde_json::from_str(&std::fs::read_to_string(path).unwrap()).unwrap()
}

#[test]
fn what_cannot_be_written_is_never_a_pass() {
    let package = Package::new();
    package.write(
        "budgets.yaml",
        "version: 1\ngpu: l4\nmodels:\n  charted: { live: 1 GiB }\n  other: { live: 1 GiB }\n",
    );
    let into = |arguments: &[&str], stdout: Stdio| {
        let output = common::vram(arguments)
            .current_dir(&package.folder)
            .stdout(stdout)
            .output()
            .unwrap();
        (output.status.code().unwrap(), common::said(&output))
    };
    let full = || Stdio::from(File::options().write(true).open("/dev/full").unwrap());
    for arguments in [
        &["check", "--estimate"][..],
        &["check", "--estimate", "--message-format", "json"],
        &["estimate", "--message-format", "markdown"],
        &["schema"],
        &["gpus"],
        &["list"],
        &["bless", "--check"],
        &["--help"],
        &["check", "--help"],
        &["--version"],
    ] {
        let (exit, said) = into(arguments, full());
        assert_eq!(exit, 101, "{arguments:?}\n{said}");
        assert!(said.contains("standard output"), "{arguments:?}\n{said}");
    }
    let (exit, said) = package.exit(&["check", "--estimate", "--message-format", "json", "-o", "/dev/full"]);
    assert_eq!(exit, 101, "{said}");
    assert!(said.contains("/dev/full"), "{said}");
    // If the reader of the output has gone, the exit code is still that of the check.
    let gone = || {
        let mut reader = std::process::Command::new("true")
            .stdin(Stdio::piped())
            .spawn()
            .unwrap();
        let pipe = reader.stdin.take().unwrap();
        reader.wait().unwrap();
        Stdio::from(pipe)
    };
    assert_eq!(into(&["check", "--estimate"], gone()).0, 0);
    package.write(
        "budgets.yaml",
        "version: 1\ngpu: l4\nmodels:\n  charted: { live: 1 KiB }\n  other: { live: 1 GiB }\n",
    );
    let (exit, said) = into(&["check", "--estimate"], gone());
    assert_eq!(exit, 100, "{said}");
    assert!(!said.contains("cannot write"), "{said}");
    // A remark that cannot be written does not change the exit code either.
    let mut command = common::vram(&["check", "--estimate"]);
    command
        .current_dir(&package.folder)
        .stdout(Stdio::null())
        .stderr(full());
    assert_eq!(command.status().unwrap().code(), Some(100));
}

#[test]
fn a_program_that_is_missing_is_named() {
    let package = Package::new();
    package.write(
        "budgets.yaml",
        "version: 1\ngpu: l4\nmodels:\n  charted: { live: 1 GiB }\n  other: { live: 1 GiB }\n",
    );
    let empty = tempfile::tempdir().unwrap();
    let said = |change: &dyn Fn(&mut std::process::Command)| {
        let mut command = common::vram(&["check", "--estimate"]);
        command
            .current_dir(&package.folder)
            .env_remove("CARGO")
            .env_remove("RUSTC");
        change(&mut command);
        let output = command.output().unwrap();
        (output.status.code().unwrap(), common::said(&output))
    };
    for (program, change) in [
        (
            "`cargo`",
            &(|command: &mut std::process::Command| {
                command.env("PATH", empty.path());
            }) as &dyn Fn(&mut std::process::Command),
        ),
        ("/nonexistent/cargo", &|command| {
            command.env("CARGO", "/nonexistent/cargo");
        }),
        ("/nonexistent/rustc", &|command| {
            command.env("RUSTC", "/nonexistent/rustc");
        }),
        ("/etc/hostname", &|command| {
            command.env("CARGO", "/etc/hostname");
        }),
    ] {
        let (exit, said) = said(change);
        assert_eq!(exit, 101, "{said}");
        assert!(said.contains(program), "{program}\n{said}");
        assert!(!said.contains("could not read this workspace"), "{said}");
    }
}

#[test]
fn init_writes_all_of_its_files_or_none() {
    let folder = common::Folder::new();
    let manifest = "[package]\nname = \"a\"\nversion = \"0.0.0\"\nedition = \"2024\"\n\n[dependencies]\nburn = { version = \"0.21\", default-features = false }\n";
    folder.write("Cargo.toml", manifest);
    folder.write("src/lib.rs", "");
    // The lock file of this workspace, so that Cargo needs no network.
    let lock = std::fs::read_to_string(common::root().join("Cargo.lock")).unwrap();
    folder.write("Cargo.lock", &lock);
    let init = || {
        let output = common::vram(&["init", "--offline", "--path", common::root().to_str().unwrap()])
            .current_dir(folder.root())
            .output()
            .unwrap();
        (output.status.code().unwrap(), common::said(&output))
    };
    let there = |name: &str| folder.path(name).symlink_metadata().is_ok();
    // A file with the name of the folder `benches`.
    folder.write("benches", "");
    let (exit, said) = init();
    assert_eq!(exit, 101, "{said}");
    assert_eq!(
        (folder.read("Cargo.toml"), there("budgets.yaml")),
        (manifest.to_owned(), false),
        "{said}"
    );
    std::fs::remove_file(folder.path("benches")).unwrap();
    // A folder with the name of a file, and a broken link.
    std::fs::create_dir(folder.path("budgets.yaml")).unwrap();
    let (exit, said) = init();
    assert_eq!(exit, 2, "{said}");
    assert_eq!(
        (folder.read("Cargo.toml"), there("benches")),
        (manifest.to_owned(), false),
        "{said}"
    );
    std::fs::remove_dir(folder.path("budgets.yaml")).unwrap();
    std::os::unix::fs::symlink("/nonexistent/folder/budgets.yaml", folder.path("budgets.yaml")).unwrap();
    let (exit, said) = init();
    assert_eq!(exit, 2, "{said}");
    assert_eq!(
        (folder.read("Cargo.toml"), there("benches")),
        (manifest.to_owned(), false),
        "{said}"
    );
    std::fs::remove_file(folder.path("budgets.yaml")).unwrap();
    let (exit, said) = init();
    assert_eq!(
        (exit, there("benches/vram.rs"), there("budgets.yaml")),
        (0, true, true),
        "{said}"
    );
}
