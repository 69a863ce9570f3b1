//! Which Burn the runs were built with: a model without fusion or autotune needs another amount of memory.

use std::collections::BTreeMap;

use super::text::named;
use crate::report::Report;
use crate::report::words::with_features;

/// A line for each build, with the models that it is of where there are several. Older reports do not tell.
pub(super) fn builds(report: &Report) -> String {
    let mut builds: BTreeMap<String, Vec<String>> = BTreeMap::new();
    for run in report.runs.iter().filter(|run| run.features.is_some()) {
        let build = format!("Burn {}{}", named(&run.burn), with_features(run));
        let names = builds.entry(build).or_default();
        let name = named(run.name());
        if !names.contains(&name) {
            names.push(name);
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
            burn: "0.21.0".to_owned(),
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
