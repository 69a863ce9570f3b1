//! Finds edits of a budget file that loosen its limits.
//!
//! It compares effective values, not texts: a missing `warn` counts as `fail`, a missing `growth` as the built-in
//! default, and `2048 MiB` equals `2 GiB`.

use std::collections::{BTreeMap, BTreeSet};

use super::types::{Budgets, Defaults, GpuLimitsEntry, GrowthLimit, Limit, ModelLimits};
use crate::bytes::Bytes;
use crate::report::{LET_BE, Metric};

/// The key of a budget, or `None` for a key outside `models`, and the path of keys to a value.
pub(super) type LimitPath = (Option<String>, String);

/// The path that stands for a budget itself.
pub(super) const BUDGET: &str = "budget";
/// The fewest steps per pass if the file has no `steps`.
const FEWEST_STEPS: u128 = 3;
/// The number of steps that is not fewer than steps until memory settles. Most models settle earlier, and leaks are found.
const ENOUGH_STEPS: u128 = 10;

/// How strict a value is.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Weight {
    /// A maximum: a larger value is looser.
    Most(u128),
    /// A minimum: a smaller value is looser.
    Least(u128),
    /// A minimum number of steps; `None` if the file has none.
    Steps(Option<u128>),
    /// A value that decides what runs, or on which GPU: any other value is looser.
    Exactly(String),
}

impl Weight {
    /// Whether replacing `before` with `after` loosens the limit. `settles` says whether a model without `steps` runs
    /// steps until its memory settles.
    fn is_loosened_by(before: Option<&Self>, after: Option<&Self>, settles: bool) -> bool {
        match (before, after) {
            (Some(Self::Steps(None)), Some(Self::Steps(None))) => false,
            (Some(Self::Steps(before)), Some(Self::Steps(after))) => {
                let without = if settles { ENOUGH_STEPS } else { FEWEST_STEPS };
                after.unwrap_or(FEWEST_STEPS) < before.unwrap_or(without)
            }
            (Some(Self::Most(before)), Some(Self::Most(after))) => after > before,
            (Some(Self::Least(before)), Some(Self::Least(after))) => after < before,
            // A limit where there was none can only be stricter.
            (None, Some(Self::Most(_) | Self::Least(_))) | (None, None) => false,
            // A limit that is gone, or any change of what runs. See docs/design/edits.md.
            (before, after) => before != after,
        }
    }
}

/// Returns every path whose value is looser than before.
///
/// A new budget can loosen only what already applied to a model without a budget: allowed growth, drift, the number of
/// steps, and that the model does the same in every run.
pub(super) fn loosened(
    before: &Budgets,
    after: &Budgets,
    settles: &dyn Fn(Option<&str>) -> bool,
) -> BTreeSet<LimitPath> {
    let names =
        |budgets: &Budgets| -> BTreeSet<String> { budgets.models.iter().map(|budget| budget.key.clone()).collect() };
    let (old_names, new_names) = (names(before), names(after));
    let (old, new) = (weights(before), weights(after));
    let is_kept = |(model, path): &&LimitPath| match model {
        Some(model) => old_names.contains(model) && new_names.contains(model),
        // A profile that is new or gone has no counterpart. The key `gpu` shows whether another GPU is used.
        None => match path.strip_prefix("gpu_profiles.").and_then(|path| path.split_once('.')) {
            Some((id, _)) => before.gpu_profiles.contains_key(id) && after.gpu_profiles.contains_key(id),
            None => true,
        },
    };
    let places: BTreeSet<&LimitPath> = old.keys().chain(new.keys()).collect();
    let mut loosened: BTreeSet<LimitPath> = places
        .into_iter()
        .filter(is_kept)
        .filter(|place| Weight::is_loosened_by(old.get(*place), new.get(*place), settles(place.0.as_deref())))
        .cloned()
        .collect();
    let held = |path: &str| match path {
        "nondeterministic" | "control_flow" => Some(Weight::Most(0)),
        _ if path == "steps" || path.starts_with("growth.") || path.starts_with("drift") => {
            old.get(&(None, path.to_owned())).cloned()
        }
        _ => None,
    };
    for name in new_names.difference(&old_names) {
        let is_of_it = |(model, _): &&LimitPath| model.is_none() || model.as_ref() == Some(name);
        let paths: BTreeSet<&String> = old
            .keys()
            .chain(new.keys())
            .filter(is_of_it)
            .map(|(_, path)| path)
            .collect();
        let places = paths.into_iter().map(|path| (Some(name.clone()), path.clone()));
        loosened.extend(places.filter(|place| {
            let before = held(&place.1);
            before.is_some() && Weight::is_loosened_by(before.as_ref(), new.get(place), settles(Some(name)))
        }));
    }
    let gone = old_names.difference(&new_names);
    loosened.extend(gone.map(|name| (Some(name.clone()), BUDGET.to_owned())));
    loosened
}

/// Returns the strictness of each value in a file.
pub(super) fn weights(of: &Budgets) -> BTreeMap<LimitPath, Weight> {
    let mut all = BTreeMap::new();
    let gpu = of.gpu.as_ref().map_or_else(String::new, |gpu| gpu.value.clone());
    all.insert((None, "gpu".to_owned()), Weight::Exactly(gpu));
    settings(&mut all, None, &of.defaults);
    for (id, profile) in &of.gpu_profiles {
        let mut put = |key: &str, weight: Option<Weight>| {
            all.extend(weight.map(|weight| ((None, format!("gpu_profiles.{id}.{key}")), weight)));
        };
        let exactly = |text: Option<String>| text.map(Weight::Exactly);
        put("like", Some(Weight::Exactly(profile.like.value.clone())));
        // A missing value is that of the `like` GPU. The file does not show which of the two is larger, so any change
        // loosens.
        let like = || Weight::Exactly("the value of the `like` GPU".to_owned());
        let total = profile.total.as_ref();
        let total = total.map_or_else(like, |total| Weight::Most(total.value.0.into()));
        put("total", Some(total));
        let context = profile.context.as_ref();
        let context = context.map_or_else(like, |context| Weight::Least(context.value.0.into()));
        put("context", Some(context));
        // Nothing in the file shows whether more or less of these needs more memory, so any change counts.
        put(
            "sm_count",
            exactly(profile.sm_count.as_ref().map(|count| count.value.to_string())),
        );
        let capability = profile.compute_capability.as_ref();
        put(
            "compute_capability",
            exactly(capability.map(|capability| format!("{:?}", capability.value))),
        );
        // By its name, a real GPU gets the profile, and with it the limits.
        put("name", exactly(profile.name.as_ref().map(|name| name.value.clone())));
        let shared = profile.shared_memory_per_block_optin.as_ref();
        put(
            "shared_memory_per_block_optin",
            exactly(shared.map(|bytes| bytes.value.0.to_string())),
        );
    }
    for budget in &of.models {
        let name = Some(budget.key.clone());
        let mut put = |path: String, weight: Weight| all.insert((name.clone(), path), weight);
        put("model".to_owned(), Weight::Exactly(budget.target()));
        for (input, value) in &budget.inputs {
            put(format!("inputs.{input}"), Weight::Exactly(value.value.to_string()));
        }
        // A number instead of an exact value, so that taking a permission back is not loosening.
        let allowed = |is_allowed: bool| Weight::Most(u128::from(is_allowed));
        put(
            "nondeterministic".to_owned(),
            allowed(budget.nondeterministic.is_some()),
        );
        put("control_flow".to_owned(), allowed(budget.data_dependent.is_some()));
        of_gpu(&mut all, &name, "", &budget.limits);
        for (gpu, limits) in &budget.gpus {
            of_gpu(&mut all, &name, &format!("gpus.{gpu}."), limits);
        }
        for (number, limits) in &budget.numbered_gpus {
            of_gpu(&mut all, &name, &format!("gpus.{number}."), &limits.value);
        }
        settings(&mut all, name.as_ref(), &budget.settings);
    }
    all
}

fn of_gpu(all: &mut BTreeMap<LimitPath, Weight>, model: &Option<String>, prefix: &str, limits: &GpuLimitsEntry) {
    let mut pass = |prefix: &str, limits: &ModelLimits| {
        for metric in Metric::ALL {
            if let Some(limit) = limits.get(metric) {
                let path = format!("{prefix}{}", metric.name());
                both(all, model.as_ref(), &path, limit, |bytes| bytes.0.into());
            }
        }
    };
    pass(prefix, &limits.warm);
    pass(&format!("{prefix}cold."), &limits.cold);
}

fn settings(all: &mut BTreeMap<LimitPath, Weight>, model: Option<&String>, of: &Defaults) {
    let place = |path: &str| (model.cloned(), path.to_owned());
    // Fewer steps can hide a leak, and the default may be fewer than the file had.
    let steps = of.steps.map(|steps| steps.value.into());
    all.insert(place("steps"), Weight::Steps(steps));
    match &of.growth {
        Some(growth) => {
            for metric in Metric::ALL {
                let Some(GrowthLimit { limit, ignore }) = growth.get(metric) else {
                    continue;
                };
                let path = format!("growth.{}", metric.name());
                both(all, model, &path, limit, |percent| percent.parts_per_million().into());
                let ignore = ignore.map_or(Bytes(0), |ignore| ignore.value);
                all.insert(place(&format!("{path}.ignore")), Weight::Most(ignore.0.into()));
            }
        }
        None => {
            let percent = |percent: u64| Weight::Most(u128::from(percent) * 10_000);
            all.insert(place("growth.live.fail"), percent(LET_BE.fail));
            all.insert(place("growth.live.warn"), percent(LET_BE.warn));
            all.insert(place("growth.live.ignore"), Weight::Most(LET_BE.ignore.0.into()));
        }
    }
    if let Some(drift) = &of.drift {
        both(all, model, "drift", drift, |percent| percent.parts_per_million().into());
    }
}

fn both<T: Copy>(
    all: &mut BTreeMap<LimitPath, Weight>,
    model: Option<&String>,
    path: &str,
    limit: &Limit<T>,
    weigh: impl Fn(T) -> u128,
) {
    let fail = limit.fail.map(|fail| weigh(fail.value));
    // Without `warn`, values above `fail` are still reported, so `fail` counts as `warn`.
    let warn = limit.warn.map(|warn| weigh(warn.value)).or(fail);
    for (key, value) in [("fail", fail), ("warn", warn)] {
        all.extend(value.map(|value| ((model.cloned(), format!("{path}.{key}")), Weight::Most(value))));
    }
}
