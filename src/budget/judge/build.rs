//! Whether the models that are judged are built as the workspace's own binaries are.

use crate::protocol::BurnFeatures;
use crate::report::{Rule, Run, Status, Verdict};
use crate::workspace::DeployedBinary;

/// A warning for each run of a model whose Burn has other features than a binary that is built with the model's package.
///
/// A model without fusion and autotune needs another amount of memory than the program that has both. One warning names one
/// binary: of the run's own package where one differs, else the first that does.
#[must_use]
pub fn judge_build(runs: &[Run], deployed: &[DeployedBinary]) -> Vec<Verdict> {
    let verdict = |run: &Run| {
        let features = run.features.filter(|_| run.what_if.is_none())?;
        let differs = |binary: &&DeployedBinary| binary.packages.contains(&run.package) && binary.features != features;
        let own = deployed
            .iter()
            .filter(differs)
            .find(|binary| binary.package == run.package);
        let binary = own.or_else(|| deployed.iter().find(differs))?;
        let message = format!(
            "this model runs Burn {features}, the binary `{}` of {} {}: {}",
            binary.name,
            binary.package,
            binary.features,
            remedy(features, binary)
        );
        Some(Verdict::of(run, Rule::Build, Status::Warn, message))
    };
    runs.iter().filter_map(verdict).collect()
}

/// How both become the same.
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
        return "the program that you deploy needs another amount of memory. Switch on the same features of Burn there, or \
                leave them out of the development dependencies"
            .to_owned();
    }
    format!(
        "add `burn = {{ version = \"…\", features = [{}] }}` to [dev-dependencies], with the version that you have",
        missing.join(", ")
    )
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::report::sample;

    /// A binary of a package, which is built with that of the model where it `uses` it.
    fn binary(package: &str, uses: bool, fusion: bool, autotune: bool) -> DeployedBinary {
        let own = uses.then(|| sample::run("network", "l4").package);
        DeployedBinary {
            package: package.to_owned(),
            name: "train".to_owned(),
            features: BurnFeatures { fusion, autotune },
            packages: own.into_iter().chain([package.to_owned()]).collect(),
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
            "this model runs Burn without fusion and autotune, the binary `train` of app with fusion and autotune: add \
             `burn = { version = \"…\", features = [\"fusion\", \"autotune\"] }` to [dev-dependencies], with the version \
             that you have"
        );
    }

    #[test]
    fn every_binary_that_is_built_with_the_model_counts_and_no_other() {
        let old = binary("old", true, false, false);
        let app = binary("app", true, true, true);
        assert_eq!(judge_build(&[run(true, true)], std::slice::from_ref(&app)), []);
        let verdicts = judge_build(&[run(true, true)], &[old, app.clone()]);
        assert!(verdicts[0].message.contains("of old without"), "{verdicts:?}");
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
