//! The binaries that a workspace deploys, and the Burn that they are built with.

use std::process::Command;

use cargo_metadata::Package;

use super::{Selection, Workspace, WorkspaceError};
use crate::protocol::BurnFeatures;

/// The features of Burn that bring a backend for GPUs.
const GPU_BACKENDS: [&str; 6] = ["cuda", "rocm", "wgpu", "vulkan", "metal", "webgpu"];

/// A binary of the workspace that is built with Burn for a GPU.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct DeployedBinary {
    /// Its package.
    pub package: String,
    /// Its name.
    pub name: String,
    /// The features that its own build has, without what other packages and development dependencies add.
    pub features: BurnFeatures,
}

/// The binaries of all packages of the workspace that run Burn on a GPU, as `cargo build -p PACKAGE` builds each.
///
/// # Errors
/// Where Cargo cannot be started, or cannot resolve a package's dependencies.
pub fn deployed_binaries(workspace: &Workspace, selection: &Selection) -> Result<Vec<DeployedBinary>, WorkspaceError> {
    let mut all = Vec::new();
    for package in workspace.members() {
        let binaries: Vec<_> = package.targets.iter().filter(|target| target.is_bin()).collect();
        if binaries.is_empty() || workspace.versions_in_graph(package, "burn", None).is_empty() {
            continue;
        }
        let Some(features) = burn_features(workspace, selection, package)? else {
            continue;
        };
        all.extend(binaries.iter().map(|binary| DeployedBinary {
            package: package.name.to_string(),
            name: binary.name.clone(),
            features,
        }));
    }
    Ok(all)
}

/// The features of Burn in a package's own build; none where it does not run Burn on a GPU.
fn burn_features(
    workspace: &Workspace,
    selection: &Selection,
    package: &Package,
) -> Result<Option<BurnFeatures>, WorkspaceError> {
    let program = std::env::var("CARGO").unwrap_or_else(|_| "cargo".into());
    let mut command = Command::new(&program);
    command
        .args([
            "tree",
            "--edges",
            "normal",
            "--prefix",
            "none",
            "--format",
            "{p}\t{f}",
            "--package",
        ])
        .arg(&package.id.repr)
        .args(["--manifest-path", workspace.root().join("Cargo.toml").as_str()])
        .args(&selection.cargo_flags);
    if let Some(target) = &selection.target {
        command.args(["--target", target]);
    }
    let output = command
        .output()
        .map_err(|source| WorkspaceError::Program { program, source })?;
    if !output.status.success() {
        return Err(WorkspaceError::Metadata(
            String::from_utf8_lossy(&output.stderr).trim_end().to_owned(),
        ));
    }
    Ok(of_tree(&String::from_utf8_lossy(&output.stdout)))
}

/// What `cargo tree` printed, a package a line: its name and version, a tab, its features.
fn of_tree(printed: &str) -> Option<BurnFeatures> {
    let burn = printed.lines().filter(|line| line.starts_with("burn v"));
    let features: Vec<&str> = burn
        .filter_map(|line| line.split_once('\t'))
        // A package that was printed before ends in `(*)`.
        .flat_map(|(_, features)| features.trim_end_matches("(*)").trim().split(','))
        .collect();
    let has = |name: &str| features.contains(&name);
    GPU_BACKENDS.iter().any(|backend| has(backend)).then(|| BurnFeatures {
        fusion: has("fusion"),
        autotune: has("autotune"),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_features_of_burn_itself_count() {
        let printed = "app v0.1.0 (/work/app)\t\nburn v0.21.0\tautodiff,cuda,default,fusion,std\nburn-core v0.21.0\tautotune\nburn v0.21.0\tcuda,fusion (*)\n";
        let features = BurnFeatures {
            fusion: true,
            autotune: false,
        };
        assert_eq!(of_tree(printed), Some(features));
    }

    #[test]
    fn a_binary_without_a_backend_for_gpus_runs_nothing_there() {
        assert_eq!(of_tree("burn v0.21.0\tautotune,fusion,ndarray,std\n"), None);
        assert_eq!(of_tree("burn v0.21.0\t\n"), None);
        assert_eq!(of_tree(""), None);
    }
}
