//! A hash over the code that generates a program's kernels. Programs with the same hash have the same kernels with the
//! same names.

use std::collections::{BTreeMap, BTreeSet, HashSet};

use cargo_metadata::{Artifact, Node, Package, PackageId};

use super::declared::{CUDA_RUNTIME, NVRTC_FEATURE};
use super::{DeclaredTarget, Workspace};
use crate::gpu::hex_digest;

/// The crates of the kernel language. Every crate with kernels depends on one of them.
const LANGUAGE: [&str; 2] = ["cubecl", "cubecl-core"];
/// The prefixes of the names of crates that compile kernels.
const COMPILERS: [&str; 2] = ["cubecl", "pliron"];

/// How the packages of a build were compiled.
#[derive(Debug, Default)]
pub(super) struct KernelCrates {
    /// The features and the debug assertions of each package, by package id.
    how: BTreeMap<String, BTreeSet<String>>,
    /// Whether cubecl's feature for NVRTC is enabled.
    pub(super) chooses_nvrtc: bool,
}

impl KernelCrates {
    /// Adds a crate that Cargo reports. Cargo also reports crates that were compiled before.
    pub(super) fn add(&mut self, artifact: &Artifact) {
        let how = format!("{:?} {}", artifact.features, artifact.profile.debug_assertions);
        // A set, because Cargo may compile one package twice: for build scripts and for the target.
        let package = self.how.entry(artifact.package_id.repr.clone()).or_default();
        package.insert(how);
        let is_runtime = artifact.target.name == CUDA_RUNTIME.replace('-', "_");
        self.chooses_nvrtc |= is_runtime && artifact.features.iter().any(|feature| feature == NVRTC_FEATURE);
    }
}

impl Workspace {
    /// Computes a hash over the crates that generate a target's kernels: their versions, sources and how they were
    /// compiled.
    ///
    /// Returns `None` if a package of the workspace or another path dependency may contain kernels, because its code
    /// changes without a new version.
    pub(super) fn kernel_code(&self, target: &DeclaredTarget, compiled: &KernelCrates) -> Option<String> {
        let package = self.packages().find(|package| package.id.repr == target.package_id)?;
        // Leave out this crate: it has no kernels and does not re-export the kernel language.
        let graph = self.graph(package, Some(env!("CARGO_PKG_NAME")));
        let is_language = |package: &Package| LANGUAGE.contains(&package.name.as_str());
        let language = ids(graph.iter().filter(|(package, _)| is_language(package)));
        let has_kernels = |package: &Package, node: &Node| {
            let compiles = COMPILERS.iter().any(|name| package.name.starts_with(name));
            (compiles || depends_on(node, &language)) && !is_burn_alone(package, node)
        };
        let with_kernels = ids(graph.iter().filter(|(package, node)| has_kernels(package, node)));
        // A crate may also write kernels with the kernel language that another crate re-exports.
        let may_have_kernels = |(package, node): &&(&Package, &Node)| {
            with_kernels.contains(&package.id) || depends_on(node, &with_kernels) && !is_burn_alone(package, node)
        };
        let mut code = BTreeMap::new();
        for (package, _) in graph.iter().filter(may_have_kernels) {
            // For a git dependency, the id contains the branch and the source contains the commit. A path dependency
            // has no source: then there is no hash.
            let source = package.source.as_ref()?;
            let id = &package.id.repr;
            code.insert(id, (&source.repr, compiled.how.get(id)));
        }
        // A changed model keeps this hash, so it compiles only its new kernels.
        // See docs/design/kernel-cache.md.
        Some(hex_digest(&format!("{code:#?}")))
    }
}

/// Whether a package is Burn without the feature that re-exports cubecl.
///
/// Needed because Cargo lists the dependency on cubecl even if the feature is off.
fn is_burn_alone(package: &Package, node: &Node) -> bool {
    package.name.as_str() == "burn" && !node.features.iter().any(|feature| feature.as_str() == "cubecl")
}

fn ids<'a>(of: impl Iterator<Item = &'a (&'a Package, &'a Node)>) -> HashSet<&'a PackageId> {
    of.map(|(package, _)| &package.id).collect()
}

fn depends_on(node: &Node, any: &HashSet<&PackageId>) -> bool {
    node.deps.iter().any(|dependency| any.contains(&dependency.pkg))
}
