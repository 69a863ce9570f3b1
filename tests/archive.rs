//! Archives: unpacking gives the packed files, packing gives the same bytes each time, and models run on other
//! machines.

use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::process::Command;

use cargo_vram::archive;
use miette::Diagnostic;
use serde_json::{Value, json};

use crate::archive_support::{Entries, Small, model, sound, sound_tar, tiny, try_unpack};
use crate::common;

#[test]
fn what_is_packed_comes_out_again() {
    let (_folder, unpacked) = try_unpack(sound()).unwrap();
    let root = unpacked.root();
    assert_eq!(
        std::fs::read_to_string(unpacked.budgets().unwrap()).unwrap(),
        "version: 1\ngpu: l4\nmodels: {}\n"
    );
    assert_eq!(
        std::fs::read_to_string(unpacked.baseline().unwrap()).unwrap(),
        "version: 1\n"
    );
    assert_eq!(unpacked.manifest.budgets.as_deref(), Some("budgets.yaml"));
    assert_eq!(unpacked.manifest.commit.as_deref(), Some("0123456789abcdef"));
    assert_eq!(unpacked.manifest.dirty, Some(true));
    let built = unpacked.built();
    assert_eq!(built.len(), 1);
    assert_eq!(built[0].target.package, "small");
    assert_eq!(built[0].target.option, "--bench");
    assert_eq!(built[0].target.folder, root.join("crates/small"));
    assert_eq!(std::fs::read_dir(&built[0].target.folder).unwrap().count(), 0);
    assert_eq!(
        std::fs::read(&built[0].executable).unwrap(),
        std::fs::read(tiny()).unwrap()
    );
    let mode = std::fs::metadata(&built[0].executable).unwrap().permissions().mode();
    assert_eq!(mode & 0o777, 0o755);
    let names: Vec<_> = unpacked.manifest.targets[0]
        .models
        .iter()
        .map(|model| model.name.as_str())
        .collect();
    assert_eq!(names, ["alpha", "beta"]);
    let driver = &unpacked.driver;
    assert!(driver.survey.is_file());
    for link in ["libcuda.so", "libcuda.so.1", "libnvrtc.so", "libnvrtc.so.12"] {
        let target = std::fs::read_link(driver.folder.join(link)).unwrap();
        assert_eq!(target, Path::new("libcargo_vram_driver.so"));
    }
}

#[test]
fn the_same_files_give_the_same_bytes() {
    let small = Small::new(tiny());
    let first = small.archive();
    std::fs::set_permissions(small.path("budgets.yaml"), PermissionsExt::from_mode(0o600)).unwrap();
    let old = std::time::SystemTime::UNIX_EPOCH;
    let file = std::fs::File::options()
        .write(true)
        .open(small.path("budgets.yaml"))
        .unwrap();
    file.set_modified(old).unwrap();
    assert_eq!(small.archive(), first);
    assert_eq!(Small::new(tiny()).archive(), first, "in another folder");
    assert_eq!(
        zstd::zstd_safe::get_frame_content_size(&first).unwrap(),
        Some(sound_tar().len() as u64)
    );
}

#[test]
fn any_tar_can_read_it_and_the_manifest_is_the_first_entry() {
    let tar = sound_tar();
    let mut archive = tar::Archive::new(tar.as_slice());
    let paths: Vec<_> = archive
        .entries()
        .unwrap()
        .map(|entry| {
            let entry = entry.unwrap();
            let header = entry.header();
            assert_eq!(
                (header.mtime().unwrap(), header.uid().unwrap(), header.gid().unwrap()),
                (0, 0, 0)
            );
            let path = entry.path().unwrap().to_str().unwrap().to_owned();
            (path, header.mode().unwrap())
        })
        .collect();
    let expected = [
        ("manifest.json", 0o644),
        ("driver/libcargo_vram_driver.so", 0o755),
        ("driver/vram-survey", 0o755),
        ("models/0/vram", 0o755),
        ("workspace/budgets.lock", 0o644),
        ("workspace/budgets.yaml", 0o644),
    ];
    assert_eq!(paths, expected.map(|(path, mode)| (path.to_owned(), mode)));
}

#[test]
fn a_stripped_program_runs_and_still_names_its_functions() {
    let original = std::fs::read(model()).unwrap();
    let stripped = archive::strip(&original);
    assert!(
        stripped.len() < original.len() * 3 / 4,
        "{} of {}",
        stripped.len(),
        original.len()
    );
    let folder = tempfile::tempdir().unwrap();
    let program = folder.path().join("stripped");
    common::write_program(&program, &stripped);
    let output = Command::new(&program).env_remove("CARGO_VRAM_JOB").output().unwrap();
    assert!(output.status.success(), "{output:?}");
    let stack = String::from_utf8(output.stdout).unwrap();
    assert!(
        stack.contains("tune_benchmark") && stack.contains("model::main"),
        "{stack}"
    );
    assert!(!stack.contains("model.rs"), "line numbers were removed: {stack}");

    let sections = |data: &[u8]| -> Vec<String> {
        use object::{Object, ObjectSection};
        let file = object::File::parse(data).unwrap();
        let sections = file.sections().map(|section| section.name().unwrap().to_owned());
        sections.collect()
    };
    let (before, after) = (sections(&original), sections(&stripped));
    assert!(before.iter().any(|name| name == ".debug_info"), "{before:?}");
    assert!(
        !after
            .iter()
            .any(|name| name.starts_with(".debug_") && name != ".debug_gdb_scripts"),
        "{after:?}"
    );
    assert!(after.iter().any(|name| name == ".symtab") && after.iter().any(|name| name == ".strtab"));
    assert_eq!(archive::facts(&stripped), archive::facts(&original));
    assert_eq!(archive::strip(&stripped), stripped, "a stripped program stays as it is");
}

#[test]
fn a_damaged_program_is_read_and_stripped_without_a_panic() {
    let mut program = std::fs::read(model()).unwrap();
    let length = program.len();
    // Change one byte at a time in the header, the table of segments and the end of the table of sections.
    for at in (0..512).chain(length - 512..length) {
        for mask in [0xff, 0x80] {
            program[at] ^= mask;
            let _ = archive::facts(&program);
            let _ = archive::strip(&program);
            program[at] ^= mask;
        }
    }
    for end in (0..length).step_by(length / 50) {
        let _ = archive::facts(&program[..end]);
        let _ = archive::strip(&program[..end]);
    }
}

#[test]
fn the_glibc_that_programs_need_is_told() {
    let facts = archive::facts(&std::fs::read(model()).unwrap()).unwrap();
    let needed = facts.needed.unwrap();
    assert!(needed >= "2.2".parse().unwrap(), "{needed}");
    let file = tempfile::NamedTempFile::new().unwrap();
    let packed = Small::new(model()).pack(file.path()).unwrap();
    assert_eq!(packed.manifest.glibc, Some(needed));
    assert_eq!(packed.manifest.target, facts.target);
}

#[test]
fn what_cannot_be_packed_is_told_and_no_file_is_left() {
    let folder = tempfile::tempdir().unwrap();
    let to = folder.path().join("x.tar.zst");
    let code = |small: &Small| small.pack(&to).unwrap_err().code().unwrap().to_string();
    let mut small = Small::new(tiny());
    small.models.clear();
    assert_eq!(code(&small), "archive::no_models");
    let small = Small::new(tiny());
    std::fs::write(small.path("lib/vram-survey"), "#!/bin/sh\n").unwrap();
    assert_eq!(code(&small), "archive::not_a_program");
    let mut other = std::fs::read(tiny()).unwrap();
    // Byte 18 of the header is the machine: 183 is aarch64, 62 is x86-64.
    other[18] = if other[18] == 62 { 183 } else { 62 };
    std::fs::write(small.path("lib/vram-survey"), other).unwrap();
    assert_eq!(code(&small), "archive::two_targets");
    std::fs::remove_file(small.path("lib/vram-survey")).unwrap();
    assert_eq!(code(&small), "archive::io");
    assert_eq!(std::fs::read_dir(folder.path()).unwrap().count(), 0);
}

/// Runs `cargo vram` as on a machine without Rust, in an empty folder.
fn elsewhere(folder: &Path, arguments: &[&str]) -> (i32, String) {
    let here = tempfile::tempdir().unwrap();
    let output = common::vram(arguments)
        .current_dir(here.path())
        .env_clear()
        .env("PATH", "/nonexistent")
        .env("NO_COLOR", "1")
        .env("TMPDIR", folder)
        .output()
        .unwrap();
    let text = String::from_utf8(output.stdout).unwrap() + &String::from_utf8(output.stderr).unwrap();
    (output.status.code().unwrap(), text)
}

/// Runs `cargo vram ARGUMENTS --archive-file` with these bytes, and asserts that it leaves no temporary files.
fn run_archive(bytes: &[u8], arguments: &[&str]) -> (i32, String) {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("given.tar.zst");
    std::fs::write(&file, bytes).unwrap();
    let temporary = folder.path().join("tmp");
    std::fs::create_dir(&temporary).unwrap();
    let mut all = arguments.to_vec();
    all.extend(["--archive-file", file.to_str().unwrap()]);
    let outcome = elsewhere(&temporary, &all);
    assert_eq!(std::fs::read_dir(&temporary).unwrap().count(), 0, "{}", outcome.1);
    outcome
}

#[test]
fn an_unusable_archive_is_exit_code_2_with_its_reason() {
    let mut other = Entries::sound();
    other.manifest(|manifest| manifest["tool"] = json!("0.0.1"));
    let cut = &sound()[..sound().len() / 2];
    for (bytes, code, sentence) in [
        (cut, "archive::cut_short", "it is incomplete"),
        (b"", "archive::empty", "it is empty"),
        (b"text", "archive::not_zstd", "it is not a zstd file"),
        (&other.bytes(), "archive::tool", "cargo-vram 0.0.1 made it, but this is"),
    ] {
        for command in ["estimate", "check"] {
            let (exit, text) = run_archive(bytes, &[command, "--gpu", "l4"]);
            assert_eq!(exit, 2, "{text}");
            assert!(
                text.contains(code) && text.contains(sentence) && text.contains("help:"),
                "{text}"
            );
        }
    }
    let (exit, text) = elsewhere(Path::new("/tmp"), &["estimate", "--archive-file", "nowhere.tar.zst"]);
    assert_eq!(exit, 2, "{text}");
    assert!(text.contains("nowhere.tar.zst cannot be used"), "{text}");
}

#[test]
fn what_needs_a_workspace_is_not_taken_with_an_archive() {
    for option in [
        &["--release"][..],
        &["--target", "aarch64-unknown-linux-gnu"],
        &["--features", "x"],
        &["--workspace"],
        &["--exclude", "x"],
        &["--manifest-path", "Cargo.toml"],
        &["--locked"],
    ] {
        let (exit, text) = run_archive(sound(), &[&["estimate"], option].concat());
        assert_eq!(exit, 2, "{text}");
        assert!(text.contains("cannot be used with"), "{text}");
    }
    let (exit, text) = run_archive(sound(), &["estimate", "-p", "smal", "--gpu", "l4"]);
    assert_eq!(exit, 2, "{text}");
    assert!(
        text.contains("no package `smal`") && text.contains("select one of its packages: small"),
        "{text}"
    );
}

#[test]
fn the_programs_of_an_archive_are_asked_for_their_models_and_run() {
    let small = Small::new(model());
    // The program lists its models but does not run them: the tool reports this for each model.
    let (exit, text) = run_archive(&small.archive(), &["estimate", "-p", "small", "--gpu", "l4"]);
    assert_eq!(exit, 101, "{text}");
    assert!(text.contains("alpha") && text.contains("beta"), "{text}");
    let (exit, text) = run_archive(&small.archive(), &["estimate", "-m", "gamma", "--gpu", "l4"]);
    assert_eq!(exit, 2, "{text}");
    assert!(text.contains("the models are: alpha, beta"), "{text}");
    let mut small = Small::new(model());
    small.models = vec!["alpha", "gamma"];
    let (exit, text) = run_archive(&small.archive(), &["estimate", "--gpu", "l4"]);
    assert_eq!(exit, 2, "{text}");
    assert!(text.contains("archive::models"), "{text}");
}

#[test]
fn a_check_of_an_archive_without_budgets_says_what_to_do() {
    let mut entries = Entries::sound();
    entries.0.retain(|entry| entry.path() != "workspace/budgets.yaml");
    entries.manifest(|manifest| {
        manifest["budgets"] = Value::Null;
        let files = manifest["files"].as_array_mut().unwrap();
        files.retain(|file| file["path"] != "workspace/budgets.yaml");
    });
    let (exit, text) = run_archive(&entries.bytes(), &["check", "--estimate"]);
    assert_eq!(exit, 2, "{text}");
    assert!(
        text.contains("given.tar.zst contains no budgets") && text.contains("--budgets"),
        "{text}"
    );
}

#[test]
fn the_zoo_runs_from_an_archive_as_it_does_where_it_was_built() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("zoo.tar.zst");
    let path = file.to_str().unwrap();
    let packed = common::output(&["archive", "-p", "zoo", "-o", path]);
    let said = String::from_utf8_lossy(&packed.stdout) + String::from_utf8_lossy(&packed.stderr);
    assert_eq!(packed.status.code(), Some(0), "{said}");
    assert!(
        said.contains("zoo (vram): ") && said.contains("vgg16_inference") && said.contains("glibc 2."),
        "{said}"
    );
    let size = std::fs::metadata(&file).unwrap().len();
    let most = if common::is_burn_0_22() { 50_000_000 } else { 25_000_000 };
    assert!(size < most, "{size} bytes");

    let models = [
        "--gpu",
        "l4",
        "-m",
        "vgg16",
        "-m",
        "sequential*",
        "--message-format",
        "json",
        "-o",
    ];
    let report = |name: &str| folder.path().join(name).to_str().unwrap().to_owned();
    let (direct, archived) = (report("direct.json"), report("archived.json"));
    let mut arguments = vec!["estimate", "-p", "zoo"];
    arguments.extend(models.iter().chain([&direct.as_str()]));
    assert_eq!(common::output(&arguments).status.code(), Some(0));
    let mut arguments = vec!["estimate", "--archive-file", path];
    arguments.extend(models.iter().chain([&archived.as_str()]));
    let (exit, text) = elsewhere(folder.path(), &arguments);
    assert_eq!(exit, 0, "{text}");
    let without_seconds = |path: &str| {
        let text = std::fs::read_to_string(path).unwrap();
        let lines = text
            .lines()
            .filter(|line| !line.trim_start().starts_with("\"seconds\":"));
        lines.map(|line| format!("{line}\n")).collect::<String>()
    };
    assert_eq!(without_seconds(&archived), without_seconds(&direct));
}
