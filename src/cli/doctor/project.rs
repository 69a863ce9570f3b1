//! The workspace, its models and its folders.

use std::collections::BTreeSet;
use std::path::Path;
use std::process::Command;

use cargo_metadata::{Metadata, MetadataCommand};

use super::Finding::{self, Fail, Pass, Warn};
use crate::bytes::Bytes;
use crate::cli::options::Packages;
use crate::cli::pipeline::Prepared;
use crate::workspace::{self, DeclaredTarget, Selection};

/// Less free disk than this is a warning: a debug build of Burn takes most of it.
const DISK_WARN: Bytes = Bytes(2 << 30);
/// With less than this nothing can be built.
const DISK_FAIL: Bytes = Bytes(200 << 20);

pub(super) fn findings(prepared: &Prepared, packages: &Packages) -> Vec<Finding> {
    let mut findings = vec![
        Pass(format!("workspace: {}", prepared.source.root())),
        match &prepared.budgets {
            Some(budgets) => Pass(format!("{}: {} budgets", prepared.budgets_name, budgets.models.len())),
            None => Warn(
                format!("{} does not exist", prepared.budgets_name),
                "`cargo vram init` writes a first one".to_owned(),
            ),
        },
    ];
    let Some(workspace) = prepared.source.workspace() else {
        return findings;
    };
    let (targets, problems) = workspace::declared_targets(workspace);
    let metadata = packages.selection().ok().and_then(|selection| metadata(&selection));
    for target in &targets {
        findings.push(burn(target, metadata.as_ref()));
    }
    if targets.is_empty() && problems.is_empty() {
        findings.push(Warn(
            "no models are declared".to_owned(),
            "`cargo vram init` declares one".to_owned(),
        ));
    }
    for problem in problems {
        findings.push(Fail(problem.message, problem.help.unwrap_or_default()));
    }
    let folders: BTreeSet<_> = targets.iter().map(|target| target.folder.as_std_path()).collect();
    findings.extend(folders.into_iter().map(autotune));
    findings.push(disk(workspace.target_directory().as_std_path()));
    findings
}

/// What Cargo would build, once more: the workspace keeps its own to itself.
fn metadata(selection: &Selection) -> Option<Metadata> {
    let mut command = MetadataCommand::new();
    if let Some(path) = &selection.manifest_path {
        command.manifest_path(path);
    }
    let options = [selection.cargo_flags.clone(), selection.features.clone()].concat();
    command.other_options(options).exec().ok()
}

fn burn(target: &DeclaredTarget, metadata: Option<&Metadata>) -> Finding {
    let what = format!("{}: target `{}`, Burn {}", target.package, target.name, target.burn);
    let Some(features) = metadata.and_then(|metadata| burn_features(metadata, &target.burn)) else {
        return Pass(what);
    };
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

/// The features of the Burn of a version, as the whole workspace is built.
fn burn_features(metadata: &Metadata, version: &str) -> Option<Vec<String>> {
    let burn = metadata
        .packages
        .iter()
        .find(|package| package.name.as_str() == "burn" && package.version.to_string() == version)?;
    let resolve = metadata.resolve.as_ref()?;
    let node = resolve.nodes.iter().find(|node| node.id == burn.id)?;
    Some(node.features.iter().map(ToString::to_string).collect())
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
