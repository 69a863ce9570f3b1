//! Compares the features of Burn that a benchmark has with those of the workspace's own binaries.

use cargo_metadata::{Package, Target};

use crate::cli::error::CliError;
use crate::names::quoted;
use crate::workspace::{BuiltFeatures, Selection, Workspace, built_features};

/// The features of Burn that change how much GPU memory a model needs.
const JUDGED_FEATURES: [&str; 2] = ["fusion", "autotune"];
/// The crates that have these features: Burn itself, and its backends, in which some are on by default.
const BACKENDS: [&str; 5] = ["burn", "burn-cuda", "burn-wgpu", "burn-rocm", "burn-cpu"];

/// The Burn features that the workspace's own binaries enable.
#[derive(Default)]
pub(super) struct DeployedFeatures {
    /// The features that the binaries have and the benchmark lacks.
    pub(super) missing: Vec<String>,
    /// The names of these binaries' packages, for messages.
    pub(super) binaries: String,
    /// A note for the user if the benchmark lacks features that no binary enables.
    pub(super) note: Option<String>,
}

/// Compares the benchmark's Burn features with those of the workspace's own binaries.
pub(super) fn deployed_features(
    workspace: &Workspace,
    selection: &Selection,
    package: &Package,
) -> Result<DeployedFeatures, CliError> {
    let bench = built_features(workspace, selection, &[package], true)?;
    // Models run on Burn's CUDA backend, whatever backend the binaries use.
    let lacks = |feature: &&str| !has_feature(&bench, "burn-cuda", feature);
    let missing: Vec<_> = JUDGED_FEATURES.into_iter().filter(lacks).collect();
    if missing.is_empty() {
        return Ok(DeployedFeatures::default());
    }
    let mut wanted: Vec<String> = Vec::new();
    let mut binaries: Vec<String> = Vec::new();
    for member in workspace
        .members()
        .filter(|member| member.targets.iter().any(Target::is_bin))
    {
        let built = built_features(workspace, selection, &[member], false)?;
        // A binary that does not use this package does not deploy its models.
        if !built.contains_key(package.name.as_str()) {
            continue;
        }
        let has = |feature: &&&str| BACKENDS.iter().any(|backend| has_feature(&built, backend, feature));
        let found: Vec<_> = missing
            .iter()
            .filter(has)
            .map(|feature| (*feature).to_owned())
            .collect();
        if !found.is_empty() {
            binaries.push(quoted(&member.name));
        }
        wanted.extend(found);
    }
    if wanted.is_empty() {
        let note = format!(
            "the benchmark runs without Burn's {}, because no binary of this workspace enables it; if a program that \
             you deploy enables it, add it to the features of burn in [dev-dependencies]",
            missing.join(" and ")
        );
        return Ok(DeployedFeatures {
            note: Some(note),
            ..DeployedFeatures::default()
        });
    }
    wanted.sort_by_key(|feature| JUDGED_FEATURES.iter().position(|known| known == feature));
    wanted.dedup();
    Ok(DeployedFeatures {
        missing: wanted,
        binaries: binaries.join(", "),
        note: None,
    })
}

fn has_feature(built: &BuiltFeatures, name: &str, feature: &str) -> bool {
    built.get(name).is_some_and(|features| features.contains(feature))
}
