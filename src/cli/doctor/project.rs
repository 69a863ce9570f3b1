//! The workspace, its models and its folders; or the archive.

use std::collections::BTreeSet;
use std::path::Path;
use std::process::Command;

use super::Finding::{self, Fail, Pass, Warn};
use super::{Check, help, said};
use crate::bytes::Bytes;
use crate::cli::archive::made_of;
use crate::cli::pipeline;
use crate::cli::source::{Brought, Source};
use crate::workspace::{self, DeclaredTarget, KernelCompiler, Workspace};

/// Less free disk than this is a warning: a debug build of Burn takes most of it.
const DISK_WARN: Bytes = Bytes(2 << 30);
/// With less than this nothing can be built.
const DISK_FAIL: Bytes = Bytes(200 << 20);

pub(super) fn checks(source: &Source) -> Vec<Check> {
    let what = match source {
        Source::Workspace(_) => Pass(format!("workspace: {}", source.root())).of("workspace"),
        Source::Archive(brought) => archive(brought).of("archive"),
    };
    let mut checks = vec![what, budgets(source).of("budgets")];
    if let Source::Workspace(here) = source {
        checks.extend(models(here.workspace()));
    }
    checks
}

/// Whether one of the models needs libdevice to compile its kernels.
pub(super) fn needs_libdevice(source: &Source) -> bool {
    match source {
        Source::Workspace(here) => {
            let (targets, _) = workspace::declared_targets(here.workspace());
            let needs =
                |target: &DeclaredTarget| target.likely_kernel_compiler(here.workspace()) == KernelCompiler::Llvm;
            targets.iter().any(needs)
        }
        Source::Archive(brought) => {
            let models = brought.listed();
            models
                .iter()
                .any(|model| model.built.kernel_compiler == KernelCompiler::Llvm)
        }
    }
}

fn archive(brought: &Brought) -> Finding {
    let models = brought.listed();
    let names: Vec<_> = models.iter().map(|model| model.name.as_str()).collect();
    Pass(format!(
        "archive: {}, {}, with {}",
        brought.file(),
        made_of(brought.manifest()),
        names.join(", ")
    ))
}

fn budgets(source: &Source) -> Finding {
    let written = match pipeline::written(source, None) {
        Ok(written) => written,
        Err(error) => return Fail(said(&*error), help(&*error)),
    };
    match (&written.budgets, source) {
        (Some(budgets), _) => Pass(match budgets.models.len() {
            1 => format!("{}: 1 budget", written.name),
            number => format!("{}: {number} budgets", written.name),
        }),
        (None, Source::Workspace(_)) => Warn(
            format!("{} does not exist", written.name),
            "`cargo vram init` writes a first one".to_owned(),
        ),
        (None, Source::Archive(_)) => Warn(
            "the archive has no budgets".to_owned(),
            "write budgets.yaml before `cargo vram archive`, or name a file with `check --budgets`".to_owned(),
        ),
    }
}

/// The declared models, and the folders that they are built and run in.
fn models(workspace: &Workspace) -> Vec<Check> {
    let (targets, problems) = workspace::declared_targets(workspace);
    let mut checks: Vec<_> = targets
        .iter()
        .map(|target| burn(target, workspace).of("models"))
        .collect();
    if targets.is_empty() && problems.is_empty() {
        let fix = "`cargo vram init` declares one".to_owned();
        checks.push(Warn("no models are declared".to_owned(), fix).of("models"));
    }
    for problem in problems {
        checks.push(Fail(problem.message, problem.help.unwrap_or_default()).of("models"));
    }
    let folders: BTreeSet<_> = targets.iter().map(|target| target.folder.as_std_path()).collect();
    checks.extend(folders.into_iter().map(|folder| autotune(folder).of("autotune")));
    checks.push(disk(workspace.target_directory().as_std_path()).of("disk"));
    checks
}

fn burn(target: &DeclaredTarget, workspace: &Workspace) -> Finding {
    let what = format!("{}: target `{}`, Burn {}", target.package, target.name, target.burn);
    // Burn's defaults switch them on in the crate of the backend.
    let features: Vec<_> = ["burn", "burn-cuda"]
        .into_iter()
        .filter_map(|name| workspace.features(name, &target.burn))
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

/// The folder where Burn keeps what autotune chose, in the user's own runs: that of the nearest `Cargo.toml`, unless a
/// configuration file says otherwise.
fn autotune(package: &Path) -> Finding {
    let names = ["cubecl.toml", "CubeCL.toml", "burn.toml", "Burn.toml"];
    let configured = package
        .ancestors()
        .flat_map(|folder| names.map(|name| folder.join(name)))
        .find(|path| path.is_file());
    if let Some(file) = configured {
        return Pass(format!(
            "autotune of your own runs: as {} says; cargo vram has folders of its own",
            file.display()
        ));
    }
    let folder = package.join("target/autotune");
    let there = if folder.is_dir() { "" } else { ", not there yet" };
    let what = format!(
        "autotune of your own runs: {}{there}; cargo vram has folders of its own",
        folder.display()
    );
    if is_writable(&folder) {
        Pass(what)
    } else {
        Warn(
            format!("{what}. It cannot be written"),
            "Burn would choose anew in each run: make it writable, or name another folder in cubecl.toml".to_owned(),
        )
    }
}

/// Whether a file could be made in a folder, or in what there is of the way to it. Nothing stays.
fn is_writable(folder: &Path) -> bool {
    let there = folder.ancestors().find(|folder| folder.exists());
    there.is_some_and(|there| tempfile::tempfile_in(there).is_ok())
}

fn disk(target_folder: &Path) -> Finding {
    let there = target_folder.ancestors().find(|folder| folder.exists());
    let output = there.and_then(|folder| Command::new("df").arg("-Pk").arg(folder).output().ok());
    let printed = output.map(|output| String::from_utf8_lossy(&output.stdout).into_owned());
    match printed.as_deref().and_then(available) {
        Some(free) => room(free, target_folder),
        None => Warn(
            format!("disk: how much is free for {} is not known", target_folder.display()),
            "`df` did not tell".to_owned(),
        ),
    }
}

/// The fourth column of what `df -Pk` prints, in KiB.
fn available(printed: &str) -> Option<Bytes> {
    let line = printed.lines().nth(1)?;
    // The first column may have blanks in it, the four after it have none, and the fifth ends in `%`.
    let words: Vec<_> = line.split_whitespace().collect();
    let percent = words.iter().position(|word| word.ends_with('%'))?;
    let kib: u64 = words.get(percent.checked_sub(1)?)?.parse().ok()?;
    Some(Bytes(kib.checked_mul(1024)?))
}

fn room(free: Bytes, target_folder: &Path) -> Finding {
    let what = format!("disk: {free:#} are free for {}", target_folder.display());
    let fix = || "`cargo clean` frees some, or set CARGO_TARGET_DIR to a folder on another disk".to_owned();
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
