//! Whether the models that are judged are built as the workspace's own binaries are.

use crate::protocol::BurnFeatures;
use crate::report::{Rule, Run, Status, Verdict};
use crate::workspace::DeployedBinary;

/// A warning for each run of a model whose Burn has other features than that of every binary which is deployed.
///
/// A model without fusion and autotune needs another amount of memory than the program that has both. One warning names one
/// binary: of the run's own package where there is one, else the first.
#[must_use]
pub fn judge_build(runs: &[Run], deployed: &[DeployedBinary]) -> Vec<Verdict> {
    let verdict = |run: &Run| {
        let features = run.features.filter(|_| run.what_if.is_none())?;
        if deployed.iter().any(|binary| binary.features == features) {
            return None;
        }
        let own = deployed.iter().find(|binary| binary.package == run.package);
        let binary = own.or(deployed.first())?;
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

    fn binary(package: &str, fusion: bool, autotune: bool) -> DeployedBinary {
        DeployedBinary {
            package: package.to_owned(),
            name: "train".to_owned(),
            features: BurnFeatures { fusion, autotune },
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
        let verdicts = judge_build(&[run(false, false)], &[binary("app", true, true)]);
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
    fn a_build_that_one_binary_has_is_none() {
        let deployed = [binary("old", false, false), binary("app", true, true)];
        assert_eq!(judge_build(&[run(true, true), run(false, false)], &deployed), []);
        assert_eq!(judge_build(&[run(true, false)], &deployed).len(), 1);
    }

    #[test]
    fn where_nothing_is_deployed_or_known_there_is_nothing_to_differ_from() {
        assert_eq!(judge_build(&[run(false, false)], &[]), []);
        let unknown = Run {
            features: None,
            ..run(false, false)
        };
        assert_eq!(judge_build(&[unknown], &[binary("app", true, true)]), []);
    }
}
