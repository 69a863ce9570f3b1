//! The binaries that a workspace deploys, and the features of Burn that they are built with.

use std::collections::BTreeSet;

use super::tree::{BuiltFeatures, built_features};
use super::{Selection, Workspace, WorkspaceError};
use crate::protocol::BurnFeatures;
use crate::untrusted::PlainName;

/// The features of Burn that enable a backend for GPUs.
const GPU_BACKENDS: [&str; 6] = ["cuda", "rocm", "wgpu", "vulkan", "metal", "webgpu"];

/// A binary of the workspace that is built with Burn for a GPU.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct DeployedBinary {
    /// The package of the binary.
    pub package: PlainName,
    /// The name of the binary.
    pub name: String,
    /// The features of Burn in the binary's own build, without those that other packages and dev-dependencies add.
    pub features: BurnFeatures,
    /// The packages in the binary's build, including its own package.
    pub packages: BTreeSet<String>,
}

/// Finds the binaries in the workspace that run Burn on a GPU, with the features of `cargo build -p PACKAGE`.
///
/// # Errors
/// If Cargo cannot be started, or cannot resolve a package's dependencies.
pub fn deployed_binaries(workspace: &Workspace, selection: &Selection) -> Result<Vec<DeployedBinary>, WorkspaceError> {
    let mut all = Vec::new();
    for package in workspace.members() {
        let binaries: Vec<_> = package.targets.iter().filter(|target| target.is_bin()).collect();
        // Each `cargo tree` takes 0.3 s, so ask it only about packages with Burn. See docs/design/builds.md.
        if binaries.is_empty() || workspace.versions_in_graph(package, "burn", None).is_empty() {
            continue;
        }
        // Dev-dependencies may switch on features that the deployed program lacks.
        let built = built_features(workspace, selection, &[package], false)?;
        let Some(features) = of_burn(&built) else {
            continue;
        };
        let mut packages: BTreeSet<String> = built.into_keys().collect();
        packages.insert(package.name.to_string());
        all.extend(binaries.iter().map(|binary| DeployedBinary {
            package: PlainName::escaped(&package.name),
            name: binary.name.clone(),
            features,
            packages: packages.clone(),
        }));
    }
    Ok(all)
}

/// Returns the features of Burn in a build, or `None` if the build has no backend for GPUs.
fn of_burn(built: &BuiltFeatures) -> Option<BurnFeatures> {
    let has = |krate: &str, feature: &str| built.get(krate).is_some_and(|features| features.contains(feature));
    // Burn's default features enable `fusion` and `autotune` in the crates of its backends.
    let backends = || built.keys().filter(|name| name.starts_with("burn"));
    let any = |feature: &str| backends().any(|krate| has(krate, feature));
    GPU_BACKENDS
        .iter()
        .any(|backend| has("burn", backend))
        .then(|| BurnFeatures {
            fusion: any("fusion"),
            autotune: any("autotune"),
        })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn built(crates: &[(&str, &[&str])]) -> BuiltFeatures {
        let features = |names: &[&str]| names.iter().map(|name| (*name).to_owned()).collect();
        crates
            .iter()
            .map(|(name, names)| ((*name).to_owned(), features(names)))
            .collect()
    }

    #[test]
    fn fusion_and_autotune_are_those_of_the_backend_crates_too() {
        let defaults = built(&[
            ("app", &[]),
            ("burn", &["autodiff", "cuda"]),
            ("burn-cuda", &["autotune", "fusion"]),
        ]);
        let both = BurnFeatures {
            fusion: true,
            autotune: true,
        };
        assert_eq!(of_burn(&defaults), Some(both));
        let bare = built(&[
            ("burn", &["cuda", "std"]),
            ("burn-cuda", &["std"]),
            ("other", &["fusion", "autotune"]),
        ]);
        let neither = BurnFeatures {
            fusion: false,
            autotune: false,
        };
        assert_eq!(of_burn(&bare), Some(neither));
    }

    #[test]
    fn a_binary_without_a_backend_for_gpus_runs_nothing_there() {
        assert_eq!(of_burn(&built(&[("burn", &["autotune", "fusion", "ndarray"])])), None);
        assert_eq!(of_burn(&built(&[])), None);
    }
}
