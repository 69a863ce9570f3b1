//! Reads from `cargo tree` and `cargo locate-project` what `cargo metadata` does not contain.

use std::collections::{BTreeMap, BTreeSet};
use std::process::{Command, Stdio};

use camino::Utf8PathBuf;
use cargo_metadata::Package;

use super::declared::has_models_to_build;
use super::select::{cargo_command, not_started, refused};
use super::{DeclaredTarget, Selection, Workspace, WorkspaceError};

/// The features of each crate in one build, by the crate's name.
pub(crate) type BuiltFeatures = BTreeMap<String, BTreeSet<String>>;

/// Returns the workspace's folder without resolving dependencies, so that Cargo downloads nothing and writes no
/// Cargo.lock.
///
/// # Errors
/// If Cargo cannot be started or finds no workspace.
pub(crate) fn workspace_root(selection: &Selection) -> Result<Utf8PathBuf, WorkspaceError> {
    let mut command = cargo_command();
    command.args(["locate-project", "--workspace", "--message-format", "plain"]);
    if let Some(path) = &selection.manifest_path {
        command.args(["--manifest-path", path.as_str()]);
    }
    let printed = run(command, selection)?;
    let manifest = Utf8PathBuf::from(printed.trim_end());
    Ok(manifest.parent().map(camino::Utf8Path::to_owned).unwrap_or_default())
}

/// Returns the features of each dependency in a build of only these packages.
///
/// Needed because `cargo metadata` returns the features of the whole workspace. `development` includes dev-dependencies
/// and the selected features: benchmarks need them, binaries do not.
///
/// # Errors
/// If Cargo cannot be started or fails.
pub(crate) fn built_features(
    workspace: &Workspace,
    selection: &Selection,
    packages: &[&Package],
    development: bool,
) -> Result<BuiltFeatures, WorkspaceError> {
    let printed = tree(workspace, selection, packages, development)?;
    Ok(read(&printed, |package| package.split(' ').next().unwrap_or(package)))
}

fn tree(
    workspace: &Workspace,
    selection: &Selection,
    packages: &[&Package],
    development: bool,
) -> Result<String, WorkspaceError> {
    let mut command = cargo_command();
    let edges = if development { "normal,dev" } else { "normal" };
    command.args(["tree", "--edges", edges, "--prefix", "none", "--format", "{p}|{f}"]);
    command.args(["--manifest-path", workspace.root().join("Cargo.toml").as_str()]);
    command.args(packages.iter().flat_map(|package| ["--package", &package.id.repr]));
    if development {
        command.args(&selection.features);
    }
    command.args(&selection.cargo_flags);
    command.args(selection.target.iter().flat_map(|target| ["--target", target]));
    match &workspace.outputs {
        Some(outputs) => outputs.of(command, |command| run(command, selection)),
        None => run(command, selection),
    }
}

/// The dependencies that a build of some packages compiles with other features than a build of all packages with
/// models.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Recompiled {
    /// The number of packages in the build.
    pub packages: usize,
    /// The number of packages in the workspace whose models can be built.
    pub of: usize,
    /// The names of the dependencies with other features.
    pub crates: Vec<String>,
}

/// Finds the dependencies that Cargo builds with other features for the selected packages than for all packages with
/// models.
///
/// Such dependencies exist because Cargo unifies features over the packages of one build. Returns `None` if there are
/// none.
///
/// # Errors
/// If Cargo cannot be started or fails.
pub fn recompiled(
    workspace: &Workspace,
    selection: &Selection,
    selected: &[DeclaredTarget],
) -> Result<Option<Recompiled>, WorkspaceError> {
    // Cheap checks first, because each `cargo tree` below takes 0.3 s.
    if workspace.packages().count() == workspace.members().count() {
        return Ok(None);
    }
    let builds = |package: &&Package| has_models_to_build(workspace, package);
    let all: Vec<&Package> = workspace.members().filter(builds).collect();
    let is_selected = |package: &&Package| selected.iter().any(|target| target.package_id == package.id.repr);
    let some: Vec<&Package> = all.iter().copied().filter(is_selected).collect();
    if some.is_empty() || some.len() == all.len() {
        return Ok(None);
    }
    let features = |packages: &[&Package]| -> Result<BuiltFeatures, WorkspaceError> {
        let printed = tree(workspace, selection, packages, true)?;
        // Two versions of a crate are two crates, so the key includes the version.
        Ok(read(&printed, |package| match package.match_indices(' ').nth(1) {
            Some((end, _)) => &package[..end],
            None => package,
        }))
    };
    let (of_all, of_some) = (features(&all)?, features(&some)?);
    let differs = |(name, features): &(String, _)| of_all.get(name).is_some_and(|all| all != features);
    let name = |(package, _): (String, _)| package.split(' ').next().unwrap_or_default().to_owned();
    let crates: Vec<String> = of_some.into_iter().filter(differs).map(name).collect();
    Ok((!crates.is_empty()).then_some(Recompiled {
        packages: some.len(),
        of: all.len(),
        crates,
    }))
}

/// Parses lines such as `burn v0.21.0|autodiff,std (*)`. `key` returns the name of a crate from the part before the
/// bar.
fn read(printed: &str, key: impl Fn(&str) -> &str) -> BuiltFeatures {
    let mut built = BuiltFeatures::new();
    for line in printed.lines() {
        // From the right: a package's path may contain a bar, and features do not.
        let Some((package, features)) = line.rsplit_once('|') else {
            continue;
        };
        let name = key(package);
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
            |package| package.split(' ').next().unwrap(),
        );
        let features = |name: &str| built[name].iter().map(String::as_str).collect::<Vec<_>>();
        assert_eq!(features("burn"), ["autodiff", "std"]);
        assert_eq!(features("burn-cuda"), ["fusion"]);
        assert!(features("app").is_empty() && features("serde").is_empty());
    }
}
