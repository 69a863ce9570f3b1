//! What `cargo tree` and `cargo locate-project` tell that `cargo metadata` does not.

use std::collections::{BTreeMap, BTreeSet};
use std::process::{Command, Stdio};

use camino::Utf8PathBuf;
use cargo_metadata::Package;

use super::select::{cargo, not_started, refused};
use super::{Selection, Workspace, WorkspaceError};

/// The features of each crate in one build, by the crate's name.
pub(crate) type BuiltFeatures = BTreeMap<String, BTreeSet<String>>;

/// The workspace's folder, without resolving its dependencies: nothing is downloaded, and no Cargo.lock is written.
///
/// # Errors
/// Where Cargo finds no workspace.
pub(crate) fn workspace_root(selection: &Selection) -> Result<Utf8PathBuf, WorkspaceError> {
    let mut command = Command::new(cargo());
    command.args(["locate-project", "--workspace", "--message-format", "plain"]);
    if let Some(path) = &selection.manifest_path {
        command.args(["--manifest-path", path.as_str()]);
    }
    let printed = run(command, selection)?;
    let manifest = Utf8PathBuf::from(printed.trim_end());
    Ok(manifest.parent().map(camino::Utf8Path::to_owned).unwrap_or_default())
}

/// The features with which Cargo builds the dependencies of one package alone: `cargo metadata` gives those of the whole
/// workspace together. With those of development, as for its benchmarks, or without, as for its binaries.
///
/// # Errors
/// Where Cargo refuses.
pub(crate) fn built_features(
    workspace: &Workspace,
    selection: &Selection,
    package: &Package,
    development: bool,
) -> Result<BuiltFeatures, WorkspaceError> {
    let mut command = Command::new(cargo());
    let edges = if development { "normal,dev" } else { "normal" };
    command.args(["tree", "--edges", edges, "--prefix", "none", "--format", "{p}|{f}"]);
    command.args(["--manifest-path", workspace.root().join("Cargo.toml").as_str()]);
    command.args(["--package", &package.id.repr]);
    if development {
        command.args(&selection.features);
    }
    command.args(&selection.cargo_flags);
    command.args(selection.target.iter().flat_map(|target| ["--target", target]));
    Ok(read(&run(command, selection)?))
}

/// Lines such as `burn v0.21.0|autodiff,std (*)`.
fn read(printed: &str) -> BuiltFeatures {
    let mut built = BuiltFeatures::new();
    for line in printed.lines() {
        let Some((package, features)) = line.rsplit_once('|') else {
            continue;
        };
        let name = package.split(' ').next().unwrap_or(package);
        let features = features.trim_end_matches("(*)").trim();
        let features = features.split(',').filter(|feature| !feature.is_empty());
        built
            .entry(name.to_owned())
            .or_default()
            .extend(features.map(str::to_owned));
    }
    built
}

fn run(mut command: Command, selection: &Selection) -> Result<String, WorkspaceError> {
    command.env("CARGO_TERM_COLOR", "never").stdin(Stdio::null());
    let output = command.output().map_err(not_started)?;
    match output.status.success() {
        true => Ok(String::from_utf8_lossy(&output.stdout).into_owned()),
        false => Err(refused(&String::from_utf8_lossy(&output.stderr), selection)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_features_of_a_build_are_read() {
        let built = read(
            "app v0.1.0 (/a|b)|\nburn v0.21.0|autodiff,std\nburn-cuda v0.21.0|fusion (*)\nserde v1.0.0 (proc-macro)|\n",
        );
        let features = |name: &str| built[name].iter().map(String::as_str).collect::<Vec<_>>();
        assert_eq!(features("burn"), ["autodiff", "std"]);
        assert_eq!(features("burn-cuda"), ["fusion"]);
        assert!(features("app").is_empty() && features("serde").is_empty());
    }
}
