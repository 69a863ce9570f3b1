//! Finds the limits that differ between two budget files.

use std::collections::{BTreeMap, BTreeSet};

use super::loosened::{self, LimitPath};
use super::source::Span;
use super::types::{Budgets, Defaults, GpuLimitsEntry, Limit, ModelBudget, ModelLimits};
use crate::report::{EditedLimit, Metric};
use crate::untrusted::Foreign;

/// The text of a limit and its position.
enum WrittenLimit {
    /// The text at this position.
    At(Span),
    /// A number whose name is at this position.
    Number(u64, Span),
    /// A model whose budget's name is at this position.
    Name(String, Span),
}

impl WrittenLimit {
    const fn span(&self) -> Span {
        match self {
            Self::At(span) | Self::Number(_, span) | Self::Name(_, span) => *span,
        }
    }
}

fn place_of(edit: &EditedLimit) -> LimitPath {
    let model = edit.model.as_ref().map(|model| model.raw().to_owned());
    (model, edit.limit.raw().to_owned())
}

impl Budgets {
    /// Returns every limit, input and GPU that differs from the earlier revision `before` of this file, sorted by name.
    ///
    /// A new model has no edits, except those that loosen what applied to it without a budget. `settles` says whether a
    /// model without `steps` runs steps until its memory settles; without a model, whether any does.
    #[must_use]
    pub fn edited(&self, before: &Self, file: &str, settles: &dyn Fn(Option<&str>) -> bool) -> Vec<EditedLimit> {
        let (old, new) = (before.limits(), self.limits());
        let loosened = loosened::loosened(before, self, settles);
        let (old_weights, new_weights) = (loosened::weights(before), loosened::weights(self));
        let is_new = |model: &Option<String>| {
            let is_there = |budget: &ModelBudget| Some(&budget.key) == model.as_ref();
            model.is_some() && !before.models.iter().any(is_there)
        };
        let places = old.keys().chain(new.keys().filter(|place| !old.contains_key(place)));
        let mut edited: Vec<EditedLimit> = places
            .filter(|(model, _)| !is_new(model))
            .filter_map(|place| {
                // The position of an input is that of its name, so its value is not the text at that position.
                let written = |of: &Self, limit: &WrittenLimit| match limit {
                    WrittenLimit::At(span) => of.source.slice(*span).trim().to_owned(),
                    WrittenLimit::Number(number, _) => number.to_string(),
                    WrittenLimit::Name(name, _) => name.clone(),
                };
                let was = old.get(place).map(|limit| written(before, limit));
                let is = new.get(place).map(|limit| written(self, limit));
                let line = new.get(place).map(|limit| self.position(limit.span()).line);
                let (model, limit) = place.clone();
                let weight = old_weights.get(place);
                // 2048 MiB instead of 2 GiB is not an edit. See docs/design/edits.md.
                let is_same = was.is_some() && is.is_some() && weight.is_some() && weight == new_weights.get(place);
                // All limits of a removed budget are gone, so each of these edits loosens.
                let is_gone = loosened.contains(&(place.0.clone(), loosened::BUDGET.to_owned()));
                let loosens = loosened.contains(place) || is_gone;
                (was != is && !is_same).then(|| EditedLimit {
                    loosens,
                    model: model.map(Foreign::from),
                    limit: limit.into(),
                    before: was.map(Foreign::from),
                    after: is.map(Foreign::from),
                    file: file.into(),
                    line,
                })
            })
            .collect();
        // Add edits that have no text in either file: removed budgets, and values that now have their default.
        let reported: BTreeSet<LimitPath> = edited.iter().map(place_of).collect();
        let loosening: BTreeSet<LimitPath> = edited.iter().filter(|edit| edit.loosens).map(place_of).collect();
        let is_reported = |place: &LimitPath| {
            let (model, path) = place;
            // A missing `warn` counts as `fail`, so one edit of `fail` can loosen both. Only a `fail` that
            // loosens hides its `warn`: a stricter one does not.
            let with_fail = path.strip_suffix(".warn").map(|path| format!("{path}.fail"));
            reported.contains(place)
                || with_fail.is_some_and(|fail| loosening.contains(&(model.clone(), fail)))
                // A value that a model inherits is reported once, for the defaults.
                || (model.is_some() && loosened.contains(&(None, path.clone())))
                || (path == loosened::BUDGET && reported.iter().any(|(other, _)| other == model))
        };
        let unreported = loosened.iter().filter(|place| !is_reported(place));
        edited.extend(unreported.map(|(model, path)| {
            EditedLimit {
                model: model.clone().map(Foreign::from),
                limit: path.clone().into(),
                before: Some(
                    if path == loosened::BUDGET {
                        "present"
                    } else {
                        "the default"
                    }
                    .into(),
                ),
                after: None,
                file: file.into(),
                line: None,
                loosens: true,
            }
        }));
        edited.sort_by(|one, other| (&one.model, &one.limit).cmp(&(&other.model, &other.limit)));
        edited
    }

    /// Returns everything that can affect a verdict, with its position.
    fn limits(&self) -> BTreeMap<LimitPath, WrittenLimit> {
        let mut all = BTreeMap::new();
        if let Some(gpu) = &self.gpu {
            all.insert((None, "gpu".to_owned()), WrittenLimit::At(gpu.span));
        }
        settings(&mut all, None, &self.defaults, &Defaults::default());
        for (id, entry) in &self.gpu_profiles {
            let spans = [
                ("like", Some(entry.like.span)),
                ("total", entry.total.as_ref().map(|value| value.span)),
                ("sm_count", entry.sm_count.as_ref().map(|value| value.span)),
                (
                    "compute_capability",
                    entry.compute_capability.as_ref().map(|value| value.span),
                ),
                (
                    "shared_memory_per_block_optin",
                    entry.shared_memory_per_block_optin.as_ref().map(|value| value.span),
                ),
                ("context", entry.context.as_ref().map(|value| value.span)),
                ("name", entry.name.as_ref().map(|value| value.span)),
            ];
            for (key, span) in spans {
                let place = (None, format!("gpu_profiles.{id}.{key}"));
                all.extend(span.map(|span| (place, WrittenLimit::At(span))));
            }
        }
        for budget in &self.models {
            let name = &budget.key;
            // A budget can keep its name and get another model.
            if budget.target() != *name {
                let place = (Some(name.clone()), "model".to_owned());
                all.insert(place, WrittenLimit::Name(budget.target(), budget.name.span));
            }
            for (input, value) in &budget.inputs {
                let place = (Some(name.clone()), format!("inputs.{input}"));
                all.insert(place, WrittenLimit::Number(value.value, value.span));
            }
            of_gpu(&mut all, name, "", &budget.limits);
            for (gpu, limits) in &budget.gpus {
                of_gpu(&mut all, name, &format!("gpus.{gpu}."), limits);
            }
            for (number, limits) in &budget.numbered_gpus {
                of_gpu(&mut all, name, &format!("gpus.{number}."), &limits.value);
            }
            for (key, span) in [
                ("nondeterministic", budget.nondeterministic),
                ("control_flow", budget.data_dependent),
            ] {
                all.extend(span.map(|span| ((Some(name.clone()), key.to_owned()), WrittenLimit::At(span))));
            }
            settings(&mut all, Some(name), &budget.settings, &self.defaults);
        }
        all
    }
}

fn of_gpu(all: &mut BTreeMap<LimitPath, WrittenLimit>, model: &str, prefix: &str, limits: &GpuLimitsEntry) {
    let mut pass = |prefix: &str, limits: &ModelLimits| {
        for metric in Metric::ALL {
            let name = metric.name();
            if let Some(limit) = limits.get(metric) {
                both(all, Some(model), &format!("{prefix}{name}"), limit);
            }
        }
    };
    pass(prefix, &limits.warm);
    pass(&format!("{prefix}cold."), &limits.cold);
}

/// Adds growth, steps and drift. Skips values that a model inherits: they are added for the defaults.
fn settings(all: &mut BTreeMap<LimitPath, WrittenLimit>, model: Option<&str>, of: &Defaults, defaults: &Defaults) {
    if of.growth != defaults.growth {
        for metric in Metric::ALL {
            let name = metric.name();
            let Some(growth) = of.growth.as_ref().and_then(|growth| growth.get(metric)) else {
                continue;
            };
            both(all, model, &format!("growth.{name}"), &growth.limit);
            if let Some(ignore) = &growth.ignore {
                all.insert(
                    (model.map(str::to_owned), format!("growth.{name}.ignore")),
                    WrittenLimit::At(ignore.span),
                );
            }
        }
    }
    if of.steps != defaults.steps
        && let Some(steps) = &of.steps
    {
        all.insert(
            (model.map(str::to_owned), "steps".to_owned()),
            WrittenLimit::At(steps.span),
        );
    }
    if of.drift != defaults.drift
        && let Some(drift) = &of.drift
    {
        both(all, model, "drift", drift);
    }
}

fn both<T>(all: &mut BTreeMap<LimitPath, WrittenLimit>, model: Option<&str>, path: &str, limit: &Limit<T>) {
    for (name, value) in [("fail", &limit.fail), ("warn", &limit.warn)] {
        if let Some(value) = value {
            all.insert(
                (model.map(str::to_owned), format!("{path}.{name}")),
                WrittenLimit::At(value.span),
            );
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const BEFORE: &str = "\
version: 1
gpu: l4
defaults: { growth: { live: { fail: 5%, ignore: 16 MiB } }, drift: { fail: 5% } }
models:
  a: { live: 900 MiB, reserved: { fail: 2 GiB, warn: 1.5 GiB }, gpus: { h200: { cold: { reserved: 6 GiB } } } }
  b: { inputs: { batch_size: 32 }, reserved: 2 GiB, growth: { reserved: { warn: 1% } } }
  gone: { reserved: 1 GiB }
";

    /// Returns the limits of `BEFORE` that another file loosens.
    fn loosened(after: &str) -> Vec<String> {
        let parse = |text: &str| Budgets::parse(text.as_bytes(), "budgets.yaml", &["l4", "h200", "t4"]).unwrap();
        let edited = parse(after)
            .edited(&parse(BEFORE), "budgets.yaml", &|_| false)
            .into_iter();
        let loosens = edited.filter(|edit| edit.loosens);
        loosens
            .map(|edit| format!("{} {}", edit.model.unwrap_or_else(|| "defaults".into()), edit.limit))
            .collect()
    }

    #[test]
    fn what_lets_more_through_is_told_apart_from_what_does_not() {
        for (from, to, loosens) in [
            ("900 MiB", "901 MiB", &["a live.fail"][..]),
            ("900 MiB", "800 MiB", &[]),
            // The same size in another unit.
            ("reserved: 2 GiB, growth", "reserved: 2048 MiB, growth", &[]),
            ("fail: 2 GiB, warn: 1.5 GiB", "fail: 2 GiB", &["a reserved.warn"]),
            ("fail: 2 GiB, warn: 1.5 GiB", "warn: 1.5 GiB", &["a reserved.fail"]),
            ("fail: 2 GiB, warn: 1.5 GiB", "fail: 1.5 GiB", &[]),
            ("live: 900 MiB", "live: { warn: 900 MiB }", &["a live.fail"]),
            ("live: 900 MiB, ", "", &["a live.fail"]),
            (
                ", gpus: { h200: { cold: { reserved: 6 GiB } } }",
                "",
                &["a gpus.h200.cold.reserved.fail"],
            ),
            ("batch_size: 32", "batch_size: 16", &["b inputs.batch_size"]),
            ("inputs: { batch_size: 32 }, ", "", &["b inputs.batch_size"]),
            ("  gone: { reserved: 1 GiB }\n", "", &["gone reserved.fail"]),
            ("ignore: 16 MiB", "ignore: 17 MiB", &["defaults growth.live.ignore"]),
            ("fail: 5%, ignore", "fail: 6%, ignore", &["defaults growth.live.fail"]),
            ("growth: { live: { fail: 5%, ignore: 16 MiB } }, ", "", &[]),
            (
                "growth: { live: { fail: 5%, ignore: 16 MiB } }",
                "growth: { reserved: { fail: 5% } }",
                &["defaults growth.live.fail", "defaults growth.live.ignore"],
            ),
            ("drift: { fail: 5% }", "drift: { warn: 5% }", &["defaults drift.fail"]),
            (", drift: { fail: 5% }", "", &["defaults drift.fail"]),
            ("gpu: l4", "gpu: t4", &["defaults gpu"]),
            (
                "a: { live",
                "a: { nondeterministic: allowed, live",
                &["a nondeterministic"],
            ),
            (
                "a: { live",
                "a: { control_flow: data-dependent, live",
                &["a control_flow"],
            ),
            ("a: { live", "a: { steps: 2, live", &["a steps"]),
            ("a: { live", "a: { steps: 10, live", &[]),
            ("a: { live", "a: { timeout: 10 min, live", &[]),
            ("a: { live", "a: { model: b, live", &["a model"]),
            ("models:\n", "models:\n  new: { reserved: 90 GiB }\n", &[]),
        ] {
            let after = BEFORE.replacen(from, to, 1);
            assert_ne!(after, BEFORE, "{from}");
            assert_eq!(loosened(&after), loosens, "{from} → {to}");
        }
    }

    fn told(after: &str) -> Vec<String> {
        let parse = |text: &str| Budgets::parse(text.as_bytes(), "budgets.yaml", &["l4", "h200", "t4"]).unwrap();
        let edited = parse(after).edited(&parse(BEFORE), "budgets.yaml", &|_| false);
        let shown = |text: Option<Foreign>| text.unwrap_or_else(|| "none".into());
        let told = |edited: EditedLimit| {
            let model = edited.model.unwrap_or_else(|| "defaults".into());
            let line = edited.line.map_or_else(|| "-".to_owned(), |line| line.to_string());
            format!(
                "{line} {model} {}: {} → {}",
                edited.limit,
                shown(edited.before),
                shown(edited.after)
            )
        };
        edited.into_iter().map(told).collect()
    }

    #[test]
    fn nothing_is_edited_in_the_same_file_written_otherwise() {
        assert_eq!(told(BEFORE), [""; 0]);
        let otherwise = BEFORE.replace("live: 900 MiB", "live: { fail: 900 MiB }");
        assert_eq!(told(&format!("# A comment.\n{otherwise}")), [""; 0]);
    }

    #[test]
    fn models_of_one_name_in_two_packages_are_two() {
        let before = "version: 1\ngpu: l4\nmodels:\n  p/a: { live: 1 GiB }\n  q/a: { live: 9 GiB }\n";
        let parse = |text: &str| Budgets::parse(text.as_bytes(), "budgets.yaml", &["l4"]).unwrap();
        let edited = |from: &str, to: &str| -> Vec<String> {
            let after = before.replacen(from, to, 1);
            assert_ne!(after, before);
            let edited = parse(&after).edited(&parse(before), "budgets.yaml", &|_| false);
            let loosens = edited.into_iter().filter(|edit| edit.loosens);
            loosens
                .map(|edit| format!("{} {}", edit.model.unwrap(), edit.limit))
                .collect()
        };
        assert_eq!(edited("1 GiB", "2 GiB"), ["p/a live.fail"]);
        assert_eq!(edited("9 GiB", "10 GiB"), ["q/a live.fail"]);
        assert_eq!(edited("  p/a: { live: 1 GiB }\n", ""), ["p/a live.fail"]);
        assert_eq!(edited("1 GiB", "512 MiB"), [""; 0]);
    }

    #[test]
    fn a_new_budget_loosens_what_held_without_one() {
        for (new, loosens) in [
            ("reserved: 90 GiB", &[][..]),
            (
                "reserved: 1 GiB, steps: 20, growth: { live: { fail: 1%, warn: 1% } }",
                &[],
            ),
            ("reserved: 1 GiB, steps: 5", &["new steps"]),
            ("reserved: 1 GiB, nondeterministic: allowed", &["new nondeterministic"]),
            ("reserved: 1 GiB, control_flow: data-dependent", &["new control_flow"]),
            (
                "reserved: 1 GiB, growth: { live: { fail: 99%, ignore: 16 MiB } }",
                &["new growth.live.fail", "new growth.live.warn"],
            ),
        ] {
            let before = BEFORE.replace("defaults: {", "defaults: { steps: 10,");
            let after = before.replacen("models:\n", &format!("models:\n  new: {{ {new} }}\n"), 1);
            let parse = |text: &str| Budgets::parse(text.as_bytes(), "budgets.yaml", &["l4", "h200", "t4"]).unwrap();
            let edited = parse(&after)
                .edited(&parse(&before), "budgets.yaml", &|_| false)
                .into_iter();
            let found: Vec<String> = edited
                .filter(|edit| edit.loosens)
                .map(|edit| format!("{} {}", edit.model.unwrap(), edit.limit))
                .collect();
            assert_eq!(found, loosens, "{new}");
        }
    }

    #[test]
    fn a_stricter_failure_hides_no_looser_warning() {
        let before = "version: 1\ngpu: l4\nmodels:\n  a: { live: 1 GiB }\n";
        let after = before.replace(
            "models:",
            "defaults: { growth: { live: { fail: 4.9%, ignore: 16 MiB } } }\nmodels:",
        );
        let parse = |text: &str| Budgets::parse(text.as_bytes(), "budgets.yaml", &["l4"]).unwrap();
        let edited = parse(&after)
            .edited(&parse(before), "budgets.yaml", &|_| false)
            .into_iter();
        let loosens: Vec<_> = edited.filter(|edit| edit.loosens).map(|edit| edit.limit).collect();
        assert_eq!(loosens, ["growth.live.warn"]);
    }

    #[test]
    fn a_gpu_of_ones_own_is_no_larger_unasked() {
        let edited = |before: &str, after: &str| -> bool {
            let text = |profile: &str| {
                let text = format!(
                    "version: 1\ngpu: lab\ngpu_profiles: {{ lab: {{ like: l4{profile} }} }}\nmodels:\n  a: {{ live: 1 GiB }}\n"
                );
                Budgets::parse(text.as_bytes(), "budgets.yaml", &["l4"]).unwrap()
            };
            let edited = text(after).edited(&text(before), "budgets.yaml", &|_| false);
            edited.iter().any(|edit| edit.loosens)
        };
        for (before, after, loosens) in [
            ("", ", total: 40 GiB", true),
            (", total: 20 GiB", "", true),
            (", total: 20 GiB", ", total: 21 GiB", true),
            (", total: 20 GiB", ", total: 19 GiB", false),
            ("", ", context: 1 MiB", true),
            (", context: 500 MiB", "", true),
            (", context: 500 MiB", ", context: 400 MiB", true),
            (", context: 500 MiB", ", context: 600 MiB", false),
            ("", ", sm_count: 10", true),
            ("", ", name: NVIDIA L40", true),
            (", name: NVIDIA L40", "", true),
            (", name: NVIDIA L40", ", name: NVIDIA L40", false),
        ] {
            assert_eq!(edited(before, after), loosens, "{before:?} → {after:?}");
        }
    }

    #[test]
    fn steps_that_a_file_adds_or_removes_are_fewer_than_those_until_memory_settles() {
        let edited = |before: &str, after: &str, settles| -> bool {
            let file = |steps: &str| {
                let text = format!(
                    "version: 1\ngpu: l4\ndefaults: {{ drift: {{ fail: 5% }}{steps} }}\nmodels:\n  a: {{ live: 1 GiB }}\n"
                );
                Budgets::parse(text.as_bytes(), "budgets.yaml", &["l4"]).unwrap()
            };
            let edited = file(after).edited(&file(before), "budgets.yaml", &|_| settles);
            edited.iter().any(|edit| edit.loosens)
        };
        for (before, after, settles, loosens) in [
            ("", "", true, false),
            // Without `steps`, a model runs 3 to 20 steps if it settles, and otherwise 3.
            ("", ", steps: 3", true, true),
            ("", ", steps: 9", true, true),
            ("", ", steps: 10", true, false),
            (", steps: 4", "", true, true),
            (", steps: 3", "", true, false),
            (", steps: 10", ", steps: 9", true, true),
            (", steps: 9", ", steps: 10", true, false),
            ("", ", steps: 3", false, false),
            ("", ", steps: 2", false, true),
            (", steps: 4", "", false, true),
        ] {
            assert_eq!(
                edited(before, after, settles),
                loosens,
                "{before:?} → {after:?}, {settles}"
            );
        }
    }

    #[test]
    fn so_is_what_limits_are_judged_on() {
        let lab = "gpu_profiles: { lab: { like: l4, total: 20 GiB } }\n";
        let before = BEFORE.replace("defaults:", &format!("{lab}defaults:"));
        let after = before
            .replace("20 GiB", "40 GiB")
            .replace("  a: { live", "  a: { model: smaller, live");
        let parse = |text: &str| Budgets::parse(text.as_bytes(), "budgets.yaml", &["l4", "h200"]).unwrap();
        let edited = parse(&after).edited(&parse(&before), "budgets.yaml", &|_| false);
        let told: Vec<_> = edited
            .iter()
            .map(|edited| (edited.limit.raw(), edited.after.as_ref().map(Foreign::raw)))
            .collect();
        assert_eq!(
            told,
            [("gpu_profiles.lab.total", Some("40 GiB")), ("model", Some("smaller"))]
        );
    }

    #[test]
    fn each_limit_that_differs_is_told_as_the_files_have_it() {
        let after = BEFORE
            .replace("gpu: l4", "gpu: t4")
            .replace("fail: 5%, ignore: 16 MiB", "fail: 50%, ignore: 16 MiB")
            .replace("900 MiB", "0.9 GiB")
            .replace(", warn: 1.5 GiB", "")
            .replace("6 GiB", "8 GiB")
            .replace("batch_size: 32", "batch_size: 64")
            .replace("warn: 1%", "warn: 2%")
            .replace("  gone: { reserved: 1 GiB }\n", "  new: { reserved: 1 GiB }\n");
        assert_eq!(
            told(&after),
            [
                "2 defaults gpu: l4 → t4",
                "3 defaults growth.live.fail: 5% → 50%",
                "5 a gpus.h200.cold.reserved.fail: 6 GiB → 8 GiB",
                "5 a live.fail: 900 MiB → 0.9 GiB",
                "- a reserved.warn: 1.5 GiB → none",
                "6 b growth.reserved.warn: 1% → 2%",
                "6 b inputs.batch_size: 32 → 64",
                "- gone reserved.fail: 1 GiB → none",
            ]
        );
    }
}
