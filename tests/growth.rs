//! `check --why`: the line that it names for changes like those of pull requests.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use cargo_vram::report::{GrowthExplanation, Report, SkippedCheck};

use crate::common;
use crate::common::repository::Repository;

/// The folder of the project before a change, and of the changes.
fn lines() -> PathBuf {
    common::fixture("fixtures/pairs").join("lines")
}

/// Returns the names of the changes, sorted.
fn changes() -> Vec<String> {
    let entries = std::fs::read_dir(lines().join("changes")).unwrap();
    let names = entries.map(|entry| entry.unwrap().file_name().into_string().unwrap());
    let mut names: Vec<_> = names.collect();
    names.sort();
    names
}

/// Copies the source files of a folder to the module of a change, and removes the files that its `lib.rs` no longer
/// declares. One package compiles Burn's code once for all changes.
fn put(repository: &Repository, folder: &Path, change: &str) {
    let module = module(change);
    for entry in walk(&folder.join("src")) {
        let name = entry.strip_prefix(folder.join("src")).unwrap().to_str().unwrap();
        let name = if name == "lib.rs" { "mod.rs" } else { name };
        let text = std::fs::read_to_string(&entry).unwrap();
        let text = text.replace("crate::", &format!("crate::{module}::"));
        repository.folder.write(&format!("lines/src/{module}/{name}"), &text);
    }
    let folder = repository.folder.path(&format!("lines/src/{module}"));
    let declared = std::fs::read_to_string(folder.join("mod.rs")).unwrap();
    for file in walk(&folder) {
        let name = file.file_stem().unwrap().to_str().unwrap();
        let is_module = file.extension().is_some_and(|extension| extension == "rs") && name != "mod";
        if is_module && !declared.contains(&format!("pub mod {name};")) {
            std::fs::remove_file(&file).unwrap();
        }
    }
}

fn module(change: &str) -> String {
    change.replace('-', "_")
}

/// Returns the file and the line that a change must be named by; `None` if it costs nothing.
fn expected(change: &str) -> Option<String> {
    let expected = std::fs::read_to_string(lines().join("changes").join(change).join("expect.txt")).unwrap();
    Some(expected.trim().to_owned()).filter(|expected| expected != "none")
}

fn walk(folder: &Path) -> Vec<PathBuf> {
    let mut files = Vec::new();
    for entry in std::fs::read_dir(folder).unwrap() {
        let path = entry.unwrap().path();
        match path.is_dir() {
            true => files.extend(walk(&path)),
            false => files.push(path),
        }
    }
    files
}

/// Makes a repository whose package has one module and one model per change, as they are before it, and checks a branch
/// out.
pub(crate) fn before(package: &str, changes: &[String]) -> Repository {
    let repository = Repository::new();
    let pairs = common::fixture("fixtures/pairs");
    let manifest = std::fs::read_to_string(pairs.join("Cargo.toml")).unwrap();
    let own = |line: &&str| !line.starts_with("layers = ") && !line.starts_with("exclude = ");
    let manifest: Vec<_> = manifest.lines().filter(own).collect();
    let manifest = manifest
        .join("\n")
        .replace("\"layers\", \"*/before\", \"*/after\"", "\"lines\"")
        .replace("\"../..\"", &format!("{:?}", common::root()));
    repository.folder.write("Cargo.toml", &manifest);
    std::fs::copy(pairs.join("Cargo.lock"), repository.folder.path("Cargo.lock")).unwrap();
    let read = |name: &str| std::fs::read_to_string(lines().join("before").join(name)).unwrap();
    let manifest = read("Cargo.toml").replace("lines-before", package);
    repository.folder.write("lines/Cargo.toml", &manifest);
    repository.folder.write("lines/build.rs", &read("build.rs"));
    let bench = read("benches/vram.rs");
    let (head, function) = bench.split_at(bench.find("fn text").unwrap());
    let modules: Vec<_> = changes.iter().map(|change| module(change)).collect();
    let functions = modules.iter().map(|module| {
        let of = format!("{}::{module}::", package.replace('-', "_"));
        function
            .replace("fn text", &format!("fn {module}"))
            .replace("lines_before::", &of)
    });
    let bench = head.replace("models!(text)", &format!("models!({})", modules.join(", ")));
    let bench = bench + &functions.collect::<Vec<_>>().join("\n");
    repository.folder.write("lines/benches/vram.rs", &bench);
    let declared = modules.iter().map(|module| format!("pub mod {module};\n"));
    repository
        .folder
        .write("lines/src/lib.rs", &declared.collect::<String>());
    let budgets = changes.iter().zip(&modules).map(|(change, module)| {
        // A change that costs nothing is over its budget on both sides. Otherwise no line of it would be looked for.
        let limit = match expected(change).is_none() {
            true => "live: 1 MiB",
            false => "reserved: 4 GiB",
        };
        format!("  {module}: {{ {limit} }}\n")
    });
    let budgets = format!("version: 1\ngpu: l4\nmodels:\n{}", budgets.collect::<String>());
    repository.folder.write("budgets.yaml", &budgets);
    for change in changes {
        put(&repository, &lines().join("before"), change);
        // Some changes need other code before them.
        let other = lines().join("changes").join(change).join("before");
        if other.exists() {
            put(&repository, &other, change);
        }
    }
    repository.commit("before");
    repository.git(&["checkout", "--quiet", "-b", "change"]);
    repository
}

/// The feature of explanations. With it from the start, one build serves the check and the explanations.
const EXPLAIN: [&str; 2] = ["--features", "cargo-vram/explain"];

fn why(repository: &Repository, more: &[&str]) -> (Report, i32, String) {
    let arguments = [&["--why"], more].concat();
    let (report, exit, said) = Repository::check(repository.folder.root(), "main", &arguments);
    (report.unwrap_or_else(|| panic!("{said}")), exit, said)
}

/// Returns the models whose growth is not explained, with the reasons.
fn unexplained(report: &Report) -> Vec<(&str, &str)> {
    report
        .skipped
        .iter()
        .filter(|skipped| skipped.check == SkippedCheck::GrowthCauses)
        .map(|skipped| (skipped.model.as_ref().unwrap().raw(), skipped.why.raw()))
        .collect()
}

/// Checks that each view of a growth adds up to it.
pub(crate) fn assert_sums(of: &GrowthExplanation) {
    let outside = of.allocator.iter().map(|part| part.change).sum::<i64>() + of.unexplained;
    let sums = [
        of.causes.iter().map(|cause| cause.change).sum::<i64>(),
        of.categories.iter().map(|part| part.change).sum(),
        of.layers.iter().map(|part| part.change).sum(),
        of.lines.iter().map(|line| line.change).sum(),
    ];
    for sum in sums {
        assert_eq!(sum + outside, of.growth(), "{of:#?}");
    }
}

#[test]
fn each_change_is_named_by_its_line_among_changes_that_cost_nothing() {
    let changes = changes();
    let repository = before("lines", &changes);
    for change in &changes {
        put(&repository, &lines().join("changes").join(change), change);
    }
    repository.commit("change");
    let (report, exit, said) = why(&repository, &[&["--rebuild"], &EXPLAIN[..]].concat());
    assert_eq!(exit, 100, "{said}");
    let mut named = BTreeMap::new();
    for of in &report.growth {
        assert_sums(of);
        assert_eq!(of.unexplained, 0, "{}: {said}", of.model);
        let place = of.largest().and_then(|cause| cause.place.as_ref());
        let place = place.map(|place| format!("{}:{}", place.file, place.line));
        named.insert(of.model.to_string(), place.unwrap_or_default());
    }
    let wanted = changes.iter().filter_map(|change| {
        let module = module(change);
        let place = expected(change)?.replace("src/", &format!("lines/src/{module}/"));
        Some((module, place))
    });
    assert_eq!(named, wanted.collect(), "{said}");
    let nothing = ("lines/refactoring", "live memory did not grow since main");
    assert_eq!(unexplained(&report), [nothing], "{said}");
    // What people read: the terminal, and a comment with a link to the line at the commit.
    assert!(
        said.contains("why lines/batch_constant grew (l4, estimated): live memory"),
        "{said}"
    );
    assert!(
        said.contains("lines/src/batch_constant/settings.rs:4  pub const BATCH: usize = 64;"),
        "{said}"
    );
    let comment = common::vram(&[
        "comment",
        "--dry-run",
        "--report",
        "report.json",
        "--pr",
        "7",
        "--repo",
        "a/b",
    ])
    .current_dir(repository.folder.root())
    .output()
    .unwrap();
    let comment = String::from_utf8(comment.stdout).unwrap();
    let commit = report.commit.unwrap();
    let link = format!("](https://github.com/a/b/blob/{commit}/lines/src/batch_constant/settings.rs#L4)");
    assert!(comment.contains(&link), "{comment}");
    let first = comment.lines().find(|line| line.starts_with("### ")).unwrap();
    assert!(first.contains(": feed.hidden is larger, "), "{first}");
    // The printed command draws both versions, and without git the same files name the lines of the stack.
    let printed = said
        .lines()
        .find(|line| line.contains("report --compare") && line.contains("quadratic_attention"));
    let files: Vec<&str> = printed
        .unwrap()
        .split(' ')
        .filter(|word| word.ends_with(".json"))
        .collect();
    let page = common::vram(&["report", "--compare", files[0], files[1], "-o", "page.html"])
        .current_dir(repository.folder.root())
        .output()
        .unwrap();
    assert!(page.status.success(), "{}", common::said(&page));
    let diff = common::vram(&["diff", files[0], files[1], "--why"])
        .current_dir(repository.folder.root())
        .output()
        .unwrap();
    let text = String::from_utf8(diff.stdout).unwrap();
    assert!(text.contains("why lines/quadratic_attention grew"), "{text}");
    assert!(
        text.contains("lines/src/quadratic_attention/layers.rs:35 (not edited)  let first = "),
        "{text}"
    );
    let reports = common::vram(&["diff", "report.json", "report.json", "--why"])
        .current_dir(repository.folder.root())
        .output()
        .unwrap();
    assert_eq!(reports.status.code(), Some(2));
    assert!(common::said(&reports).contains("--why needs two explanations"));
}

#[test]
fn a_model_that_the_base_lacks_or_that_did_not_grow_is_listed_with_the_reason() {
    let name = "larger-embedding".to_owned();
    // Another package than in the test above, because Cargo would take both for one.
    let repository = before("unchanged", std::slice::from_ref(&name));
    // A second model, and a limit that both models were over before.
    let bench = repository.folder.path("lines/benches/vram.rs");
    let text = std::fs::read_to_string(&bench).unwrap();
    let (head, function) = text.split_at(text.find("fn larger_embedding").unwrap());
    let again = function.replace("fn larger_embedding", "fn again");
    let head = head.replace("models!(larger_embedding)", "models!(larger_embedding, again)");
    std::fs::write(&bench, format!("{head}{function}\n{again}")).unwrap();
    repository.folder.write(
        "budgets.yaml",
        "version: 1\ngpu: l4\nmodels:\n  larger_embedding: { live: 1 MiB }\n  again: { live: 1 MiB }\n",
    );
    let did_not_grow = ("unchanged/larger_embedding", "live memory did not grow since main");
    let (report, exit, said) = why(&repository, &[&["--rebuild"], &EXPLAIN[..]].concat());
    assert_eq!((exit, report.growth.len()), (100, 0), "{said}");
    assert_eq!(
        unexplained(&report),
        [did_not_grow, ("unchanged/again", "main has no value to compare with")]
    );

    // Without the base's models and without a budgets.lock, the explanation of the base shows its value.
    let (report, exit, said) = why(&repository, &EXPLAIN);
    assert_eq!((exit, report.growth.len()), (100, 0), "{said}");
    let lacks = ("unchanged/again", "at main, there is no such model");
    let mut skipped = unexplained(&report);
    skipped.sort_unstable();
    assert_eq!(skipped, [lacks, did_not_grow], "{said}");

    // With a budgets.lock that is out of date, the explanations still show both values.
    let bless = common::vram(&[&["bless"], &EXPLAIN[..]].concat())
        .current_dir(repository.folder.root())
        .output()
        .unwrap();
    assert!(bless.status.success(), "{}", common::said(&bless));
    let lock = repository.folder.path("budgets.lock");
    let text = std::fs::read_to_string(&lock).unwrap();
    assert!(text.contains("warm.live = "), "{text}");
    std::fs::write(&lock, text.replace("warm.live = ", "warm.live = 1")).unwrap();
    repository.commit("a lock");
    repository.git(&["branch", "--quiet", "--force", "main"]);
    put(&repository, &lines().join("changes").join(&name), &name);
    let (report, exit, said) = why(&repository, &EXPLAIN);
    assert_eq!(exit, 100, "{said}");
    assert_eq!((unexplained(&report), report.growth.len()), (vec![], 2), "{said}");
    for of in &report.growth {
        assert_sums(of);
        assert_eq!((of.unexplained, of.limits.len()), (0, 0), "{said}");
        let place = of.largest().and_then(|cause| cause.place.as_ref()).unwrap();
        assert!(
            place.edited && place.file == "lines/src/larger_embedding/settings.rs",
            "{said}"
        );
    }
}

/// Writes a dependency outside of the repository, as a package of a registry is.
fn sizes(folder: &Path, version: &str, hidden: u32) {
    std::fs::create_dir_all(folder.join("src")).unwrap();
    let manifest = format!("[package]\nname = \"sizes\"\nversion = \"{version}\"\nedition = \"2024\"\n");
    std::fs::write(folder.join("Cargo.toml"), manifest).unwrap();
    let source = format!("pub fn hidden() -> usize {{\n    {hidden}\n}}\n");
    std::fs::write(folder.join("src/lib.rs"), source).unwrap();
}

#[test]
fn a_constant_is_named_without_line_tables_and_a_dependency_that_grew_is_not_blamed_on_another_line() {
    let name = "larger-embedding".to_owned();
    let repository = before("untold", std::slice::from_ref(&name));
    let elsewhere = tempfile::tempdir().unwrap();
    sizes(&elsewhere.path().join("first"), "1.0.0", 1024);
    sizes(&elsewhere.path().join("second"), "1.1.0", 3072);
    let edit = |file: &str, old: &str, new: &str| {
        let path = repository.folder.path(file);
        let text = std::fs::read_to_string(&path).unwrap();
        assert!(text.contains(old), "{old} is not in {text}");
        std::fs::write(path, text.replace(old, new)).unwrap();
    };
    let dependency = |folder: &str| format!("sizes = {{ path = {:?} }}\n", elsewhere.path().join(folder));
    let burn = "burn.workspace = true\n";
    edit("lines/Cargo.toml", burn, &format!("{burn}{}", dependency("first")));
    edit("lines/src/larger_embedding/layers.rs", "1024", "sizes::hidden()");
    // A second model, whose batches a budget sizes.
    let bench = repository.folder.path("lines/benches/vram.rs");
    let text = std::fs::read_to_string(&bench).unwrap();
    let (head, function) = text.split_at(text.find("fn larger_embedding").unwrap());
    let sized = function
        .replace("fn larger_embedding", "fn sized")
        .replace(
            "State::<B>::new();",
            "State::<B>::new();\n    let batch = run.input(\"batch\", 8);",
        )
        .replace(
            ".batch(|device| data::batch::<B>(device))",
            ".batch(move |device| burn::tensor::Tensor::zeros([batch, 128], device))",
        );
    let head = head.replace("models!(larger_embedding)", "models!(larger_embedding, sized)");
    std::fs::write(&bench, format!("{head}{function}\n{sized}")).unwrap();
    let budgets = |batch: u32| {
        format!(
            "version: 1\ngpu: l4\nmodels:\n  larger_embedding: {{ reserved: 4 GiB }}\n  sized:\n    \
             inputs: {{ batch: {batch} }}\n    reserved: 4 GiB\n"
        )
    };
    repository.folder.write("budgets.yaml", &budgets(16));
    edit(
        "Cargo.toml",
        "[profile.dev.package]\n",
        "[profile.dev.package]\nuntold = { debug = false }\n",
    );
    repository.commit("without line tables");
    repository.git(&["branch", "--quiet", "--force", "main"]);
    edit("lines/Cargo.toml", &dependency("first"), &dependency("second"));
    edit("lines/src/larger_embedding/settings.rs", "16_000", "48_000");
    repository.folder.write("budgets.yaml", &budgets(64));
    // The models move to another benchmark.
    repository.git(&["mv", "lines/benches/vram.rs", "lines/benches/memory.rs"]);
    let other_bench = "[package.metadata.vram]\ntargets = [\"memory\"]\n\n[[bench]]\nname = \"memory\"";
    edit("lines/Cargo.toml", "[[bench]]\nname = \"vram\"", other_bench);
    repository.commit("a dependency, a constant, an input and a benchmark");
    let (report, exit, said) = why(&repository, &["--rebuild"]);
    assert_eq!((exit, report.growth.len()), (100, 2), "{said}");
    let [of, sized] = [&report.growth[0], &report.growth[1]];
    assert_sums(of);
    assert_sums(sized);
    assert_eq!(sized.model, "sized");
    assert!(sized.notes.contains(&"input batch 16 → 64".into()), "{said}");
    let place = |name: &str| {
        let cause = of.causes.iter().find(|cause| cause.what.raw().contains(name));
        let place = cause
            .unwrap_or_else(|| panic!("no cause is {name}: {said}"))
            .place
            .as_ref();
        place.map(|place| (format!("{}:{}", place.file, place.line), place.edited))
    };
    assert_eq!(
        place("embedding"),
        Some(("lines/src/larger_embedding/settings.rs:6".to_owned(), true)),
        "{said}"
    );
    assert_eq!(place("feed.hidden"), None, "{said}");
}

#[test]
fn the_option_needs_a_base() {
    let output = common::vram(&["check", "--why"]).output().unwrap();
    let said = common::said(&output);
    assert_eq!(output.status.code(), Some(2), "{said}");
    assert!(said.contains("--base"), "{said}");
}
