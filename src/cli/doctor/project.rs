//! Checks the workspace with its models and folders, or the archive.

use std::collections::BTreeSet;
use std::path::Path;
use std::process::Command;

use super::finding::Finding::{self, Fail, Pass, Warn};
use super::finding::{DoctorCheck, help, said};
use crate::bytes::Bytes;
use crate::cli::archive::made_of;
use crate::cli::session;
use crate::cli::session::source::{ArchiveSource, ModelSource};
use crate::workspace::{self, DeclaredTarget, KernelCompiler, Workspace};

/// With less free disk space than this, doctor warns: a debug build of Burn takes most of it.
const DISK_WARN: Bytes = Bytes(2 << 30);
/// With less free disk space than this, the check fails: nothing can be built.
const DISK_FAIL: Bytes = Bytes(200 << 20);

pub(super) fn checks(source: &ModelSource) -> Vec<DoctorCheck> {
    let what = match source {
        ModelSource::Workspace(_) => Pass(format!("workspace: {}", source.root())).of("workspace"),
        ModelSource::Archive(brought) => archive(brought).of("archive"),
    };
    let mut checks = vec![what, budgets(source).of("budgets")];
    if let ModelSource::Workspace(here) = source {
        checks.extend(models(here.workspace()));
    }
    checks
}

/// Whether a model needs libdevice to compile its kernels.
pub(super) fn needs_libdevice(source: &ModelSource) -> bool {
    match source {
        ModelSource::Workspace(here) => {
            let (targets, _) = workspace::declared_targets(here.workspace());
            let needs =
                // `doctor` builds nothing, so the compiler is guessed from features.
                |target: &DeclaredTarget| target.likely_kernel_compiler(here.workspace()) == KernelCompiler::Llvm;
            targets.iter().any(needs)
        }
        ModelSource::Archive(brought) => {
            let models = brought.listed();
            models
                .iter()
                .any(|model| model.built.kernel_compiler == KernelCompiler::Llvm)
        }
    }
}

fn archive(brought: &ArchiveSource) -> Finding {
    let models = brought.listed();
    let names: Vec<_> = models.iter().map(|model| model.name.as_str()).collect();
    Pass(format!(
        "archive: {}, {}, with {}",
        brought.file(),
        made_of(brought.manifest()),
        names.join(", ")
    ))
}

fn budgets(source: &ModelSource) -> Finding {
    let written = match session::written(source, None) {
        Ok(written) => written,
        Err(error) => return Fail(said(error.diagnostic()), help(error.diagnostic())),
    };
    match (&written.budgets, source) {
        (Some(budgets), _) => Pass(match budgets.models.len() {
            1 => format!("{}: 1 budget", written.name),
            number => format!("{}: {number} budgets", written.name),
        }),
        (None, ModelSource::Workspace(_)) => Warn(
            format!("{} does not exist", written.name),
            "run `cargo vram init` to write one".to_owned(),
        ),
        (None, ModelSource::Archive(_)) => Warn(
            "the archive contains no budgets".to_owned(),
            "name a budgets file with `check --budgets`, or write budgets.yaml before you run `cargo vram archive`"
                .to_owned(),
        ),
    }
}

/// Checks the declared models, and the folders in which they are built and run.
fn models(workspace: &Workspace) -> Vec<DoctorCheck> {
    let (targets, problems) = workspace::declared_targets(workspace);
    let mut checks: Vec<_> = targets
        .iter()
        .map(|target| burn(target, workspace).of("models"))
        .collect();
    if targets.is_empty() && problems.is_empty() {
        let fix = "run `cargo vram init` to declare one".to_owned();
        checks.push(Warn("no models are declared".to_owned(), fix).of("models"));
    }
    for problem in problems {
        let (message, help) = problem.into_raw();
        checks.push(Fail(message, help.unwrap_or_default()).of("models"));
    }
    let folders: BTreeSet<_> = targets.iter().map(|target| target.folder.as_std_path()).collect();
    checks.extend(folders.into_iter().map(|folder| autotune(folder).of("autotune")));
    checks.push(disk(workspace.target_directory().as_std_path()).of("disk"));
    checks
}

fn burn(target: &DeclaredTarget, workspace: &Workspace) -> Finding {
    let what = format!("{}: target `{}`, Burn {}", target.package, target.name, target.burn);
    // Burn's default features turn these on in the backend's crate.
    let features: Vec<_> = ["burn", "burn-cuda"]
        .into_iter()
        .filter_map(|name| workspace.features(name, target.burn.raw()))
        .flatten()
        .collect();
    if features.is_empty() {
        return Pass(what);
    }
    let state = |feature: &str| {
        if features.iter().any(|it| it == feature) {
            "on"
        } else {
            "off"
        }
    };
    Pass(format!(
        "{what}, fusion {}, autotune {}",
        state("fusion"),
        state("autotune")
    ))
}

/// Checks the folder where Burn stores the autotune choices of the user's own runs.
///
/// It is `target/autotune` beside the nearest `Cargo.toml`, unless a configuration file names another one.
fn autotune(package: &Path) -> Finding {
    // The names that cubecl and Burn look for.
    let names = ["cubecl.toml", "CubeCL.toml", "burn.toml", "Burn.toml"];
    let configured = package
        .ancestors()
        .flat_map(|folder| names.map(|name| folder.join(name)))
        .find(|path| path.is_file());
    if let Some(file) = configured {
        return Pass(format!(
            "autotune of your own runs: in the folder that {} sets; cargo vram uses its own folders",
            file.display()
        ));
    }
    let folder = package.join("target/autotune");
    let there = if folder.is_dir() { "" } else { " (does not exist yet)" };
    let what = format!("autotune of your own runs: {}{there}", folder.display());
    if is_writable(&folder) {
        Pass(format!("{what}; cargo vram uses its own folders"))
    } else {
        Warn(
            format!("{what}, not writable; cargo vram uses its own folders"),
            "make it writable, or name another folder in cubecl.toml; otherwise Burn repeats autotune in each run"
                .to_owned(),
        )
    }
}

/// Whether a file can be created in a folder, or in its nearest existing parent. Leaves no file behind.
fn is_writable(folder: &Path) -> bool {
    let there = folder.ancestors().find(|folder| folder.exists());
    there.is_some_and(|there| tempfile::tempfile_in(there).is_ok())
}

fn disk(target_folder: &Path) -> Finding {
    let there = target_folder.ancestors().find(|folder| folder.exists());
    // The standard library cannot ask for free space. `-P`
    // keeps one line per file system, however long its name.
    let output = there.and_then(|folder| Command::new("df").arg("-Pk").arg(folder).output().ok());
    let printed = output.map(|output| String::from_utf8_lossy(&output.stdout).into_owned());
    match printed.as_deref().and_then(available) {
        Some(free) => room(free, target_folder),
        None => Warn(
            format!("disk: the free space for {} is unknown", target_folder.display()),
            "run `df` to see why: it printed no free space".to_owned(),
        ),
    }
}

/// Reads the free space from the fourth column of `df -Pk`, in KiB.
fn available(printed: &str) -> Option<Bytes> {
    let line = printed.lines().nth(1)?;
    // The first column may contain blanks. The next four do not, and the fifth column ends in `%`.
    let words: Vec<_> = line.split_whitespace().collect();
    let percent = words.iter().position(|word| word.ends_with('%'))?;
    let kib: u64 = words.get(percent.checked_sub(1)?)?.parse().ok()?;
    Some(Bytes(kib.checked_mul(1024)?))
}

fn room(free: Bytes, target_folder: &Path) -> Finding {
    let what = format!("disk: {free:#} free for {}", target_folder.display());
    let fix = || "run `cargo clean`, or set CARGO_TARGET_DIR to a folder on another disk".to_owned();
    if free < DISK_FAIL {
        Fail(what, fix())
    } else if free < DISK_WARN {
        Warn(what, fix())
    } else {
        Pass(what)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_free_is_read_whatever_the_file_system_is_called() {
        let printed = "Filesystem     1024-blocks     Used Available Capacity Mounted on\n/dev/vda         263174212 20000000  75000000      22% /\n";
        assert_eq!(available(printed), Some(Bytes(75_000_000 << 10)));
        let blanks =
            "Filesystem 1024-blocks Used Available Capacity Mounted on\n//host/a share 100 40 60 40% /mnt/a share\n";
        assert_eq!(available(blanks), Some(Bytes(60 << 10)));
        for damaged in ["", "Filesystem\n", "Filesystem\n/dev/vda 1 2\n", "h\n22%\n"] {
            assert_eq!(available(damaged), None, "{damaged}");
        }
    }

    #[test]
    fn a_full_disk_fails_and_a_narrow_one_warns() {
        let status = |free| match room(Bytes(free), Path::new("/target")) {
            Pass(_) => "pass",
            Warn(..) => "warn",
            Fail(..) => "fail",
        };
        assert_eq!(status(3 << 30), "pass");
        assert_eq!(status((2 << 30) - 1), "warn");
        assert_eq!(status((200 << 20) - 1), "fail");
    }

    #[test]
    fn a_folder_that_cannot_be_made_is_not_writable() {
        let folder = tempfile::tempdir().unwrap();
        assert!(is_writable(&folder.path().join("target/autotune")));
        assert_eq!(std::fs::read_dir(folder.path()).unwrap().count(), 0, "nothing stays");
        assert!(!is_writable(Path::new("/proc/self/target")));
    }
}
