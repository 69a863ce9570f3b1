//! Compares the Burn features of the models with those of the workspace's binaries.

use crate::protocol::BurnFeatures;
use crate::report::{Rule, Run, Status, Verdict};
use crate::workspace::DeployedBinary;

/// Returns a warning per run whose Burn has other features than a binary that is built with the model's package.
///
/// The features matter because a model without fusion and autotune needs another amount of memory. Each warning names
/// one binary that differs: preferably one of the run's package, otherwise the first.
#[must_use]
pub fn judge_build(runs: &[Run], deployed: &[DeployedBinary]) -> Vec<Verdict> {
    let verdict = |run: &Run| {
        // A what-if differs from the binaries on purpose. See docs/design/what-if.md.
        let features = run.features.filter(|_| run.what_if.is_none())?;
        let differs =
            |binary: &&DeployedBinary| binary.packages.contains(run.package.as_str()) && binary.features != features;
        let own = deployed
            .iter()
            .filter(differs)
            .find(|binary| binary.package == run.package);
        let binary = own.or_else(|| deployed.iter().find(differs))?;
        let message = format!(
            "this model uses Burn {features}, but the binary `{}` of package {} uses Burn {}; {}",
            binary.name,
            binary.package,
            binary.features,
            remedy(features, binary)
        );
        Some(run.verdict(Rule::Build, Status::Warn, message))
    };
    runs.iter().filter_map(verdict).collect()
}

/// Returns how to give both the same features.
fn remedy(own: BurnFeatures, binary: &DeployedBinary) -> String {
    let lacks = |own: bool, theirs: bool, name: &str| (theirs && !own).then(|| format!("\"{name}\""));
    let missing: Vec<_> = [
        lacks(own.fusion, binary.features.fusion, "fusion"),
        lacks(own.autotune, binary.features.autotune, "autotune"),
    ]
    .into_iter()
    .flatten()
    .collect();
    if missing.is_empty() {
        return "the binary needs another amount of memory, so enable the same Burn features for it, or remove them \
                from `[dev-dependencies]`"
            .to_owned();
    }
    format!(
        "add `burn = {{ version = \"…\", features = [{}] }}` to `[dev-dependencies]`, with your Burn version",
        missing.join(", ")
    )
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::report::sample;
    use crate::untrusted::PlainName;

    /// Makes a binary of a package. The binary is built with the model's package if it `uses` it.
    fn binary(package: &str, uses: bool, fusion: bool, autotune: bool) -> DeployedBinary {
        let own = uses.then(|| sample::run("network", "l4").package);
        DeployedBinary {
            package: package.into(),
            name: "train".to_owned(),
            features: BurnFeatures { fusion, autotune },
            packages: own
                .iter()
                .map(PlainName::as_str)
                .chain([package])
                .map(str::to_owned)
                .collect(),
        }
    }

    fn run(fusion: bool, autotune: bool) -> Run {
        Run {
            features: Some(BurnFeatures { fusion, autotune }),
            ..sample::run("network", "l4")
        }
    }

    #[test]
    fn a_build_that_no_binary_has_is_a_warning_that_says_what_is_missing() {
        let verdicts = judge_build(&[run(false, false)], &[binary("app", true, true, true)]);
        let [verdict] = verdicts.as_slice() else {
            panic!("{verdicts:?}")
        };
        assert_eq!((verdict.rule, verdict.status), (Rule::Build, Status::Warn));
        assert_eq!(
            verdict.message,
            "this model uses Burn without fusion and autotune, but the binary `train` of package app uses Burn with \
             fusion and autotune; add `burn = { version = \"…\", features = [\"fusion\", \"autotune\"] }` to \
             `[dev-dependencies]`, with your Burn version"
        );
    }

    #[test]
    fn every_binary_that_is_built_with_the_model_counts_and_no_other() {
        let old = binary("old", true, false, false);
        let app = binary("app", true, true, true);
        assert_eq!(judge_build(&[run(true, true)], std::slice::from_ref(&app)), []);
        let verdicts = judge_build(&[run(true, true)], &[old, app.clone()]);
        assert!(
            verdicts[0].message.raw().contains("of package old uses Burn without"),
            "{verdicts:?}"
        );
        let unrelated = binary("viewer", false, false, false);
        assert_eq!(judge_build(&[run(true, true)], &[unrelated, app]), []);
    }

    #[test]
    fn where_nothing_is_deployed_or_known_there_is_nothing_to_differ_from() {
        assert_eq!(judge_build(&[run(false, false)], &[]), []);
        let unknown = Run {
            features: None,
            ..run(false, false)
        };
        assert_eq!(judge_build(&[unknown], &[binary("app", true, true, true)]), []);
    }
}
