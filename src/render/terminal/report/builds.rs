//! The Burn version and features that the runs were built with. Fusion and autotune change the memory of a model.

use std::collections::{BTreeMap, HashSet};

use crate::report::Report;
use crate::report::words::with_features;
use crate::untrusted::named;

/// Renders one line per build, with its models if there are several builds. Older reports do not contain the features.
pub(super) fn builds(report: &Report) -> String {
    let mut builds: BTreeMap<String, Vec<String>> = BTreeMap::new();
    let mut listed = HashSet::new();
    for run in report.runs.iter().filter(|run| run.features.is_some()) {
        let build = format!("Burn {}{}", run.burn, with_features(run));
        let name = named(run.name());
        // A model has several runs, for example on several GPUs.
        if listed.insert((build.clone(), name.clone())) {
            builds.entry(build).or_default().push(name);
        }
    }
    let line = |(build, names): (&String, &Vec<String>)| match builds.len() {
        1 => format!("{build}\n"),
        _ => format!("{build}: {}\n", names.join(", ")),
    };
    builds.iter().map(line).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::protocol::BurnFeatures;
    use crate::report::{Run, sample};

    fn run(name: &str, fusion: bool) -> Run {
        let features = Some(BurnFeatures { fusion, autotune: true });
        Run {
            features,
            burn: "0.21.0".into(),
            ..sample::run(name, "l4")
        }
    }

    #[test]
    fn one_build_is_a_line_and_several_name_their_models() {
        let one = sample::report(vec![run("a", true), run("b", true)]);
        assert_eq!(builds(&one), "Burn 0.21.0 with fusion and autotune\n");
        let two = sample::report(vec![run("a", true), run("b", false), run("c", true)]);
        assert_eq!(
            builds(&two),
            "Burn 0.21.0 with fusion and autotune: a, c\nBurn 0.21.0 without fusion, with autotune: b\n"
        );
        assert_eq!(builds(&sample::report(vec![sample::run("old", "l4")])), "");
    }
}
