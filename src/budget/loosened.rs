//! Which edits of a file of budgets let through what the file before did not.
//!
//! Values are compared, as they hold in the end: a warning limit that is left out is the failing one, a growth that is left out
//! is the default, and `2048 MiB` is `2 GiB`.

use std::collections::{BTreeMap, BTreeSet};

use super::types::{Budgets, CardLimits, Defaults, GrowthLimit, Limit, Limits};
use crate::bytes::Bytes;
use crate::report::{LET_BE, Metric};

/// The key of a budget, or none for what stands at the file's top; and the path of keys to a value.
pub(super) type Place = (Option<String>, String);

/// The key under which a budget itself is found.
pub(super) const BUDGET: &str = "budget";
/// Steps where nobody wrote any.
const STEPS: u128 = 3;

/// What a value allows.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Weight {
    /// More of it is looser.
    Most(u128),
    /// Less of it is looser.
    Least(u128),
    /// Any other is looser: it decides what is run, or on what.
    Exactly(String),
}

impl Weight {
    /// Whether another value in its place lets more through.
    fn is_loosened_by(before: Option<&Self>, after: Option<&Self>) -> bool {
        match (before, after) {
            (Some(Self::Most(before)), Some(Self::Most(after))) => after > before,
            (Some(Self::Least(before)), Some(Self::Least(after))) => after < before,
            (None, Some(Self::Most(_) | Self::Least(_))) | (None, None) => false,
            (before, after) => before != after,
        }
    }
}

/// Every place that lets more through than before. What is new loosens nothing but what already held for a model without a
/// budget: how much it may grow, by how many steps leaks are judged, and that it does the same in every run.
pub(super) fn loosened(before: &Budgets, after: &Budgets) -> BTreeSet<Place> {
    let names =
        |budgets: &Budgets| -> BTreeSet<String> { budgets.models.iter().map(|budget| budget.key.clone()).collect() };
    let (old_names, new_names) = (names(before), names(after));
    let (old, new) = (weights(before), weights(after));
    let is_kept = |(model, path): &&Place| match model {
        Some(model) => old_names.contains(model) && new_names.contains(model),
        None => match path.strip_prefix("gpu_profiles.").and_then(|path| path.split_once('.')) {
            Some((id, _)) => before.gpu_profiles.contains_key(id) && after.gpu_profiles.contains_key(id),
            None => true,
        },
    };
    let places: BTreeSet<&Place> = old.keys().chain(new.keys()).collect();
    let mut loosened: BTreeSet<Place> = places
        .into_iter()
        .filter(is_kept)
        .filter(|place| Weight::is_loosened_by(old.get(*place), new.get(*place)))
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
        let is_of_it = |(model, _): &&Place| model.is_none() || model.as_ref() == Some(name);
        let paths: BTreeSet<&String> = old
            .keys()
            .chain(new.keys())
            .filter(is_of_it)
            .map(|(_, path)| path)
            .collect();
        let places = paths.into_iter().map(|path| (Some(name.clone()), path.clone()));
        loosened.extend(places.filter(|place| {
            let before = held(&place.1);
            before.is_some() && Weight::is_loosened_by(before.as_ref(), new.get(place))
        }));
    }
    let gone = old_names.difference(&new_names);
    loosened.extend(gone.map(|name| (Some(name.clone()), BUDGET.to_owned())));
    loosened
}

/// What each place of a file allows.
pub(super) fn weights(of: &Budgets) -> BTreeMap<Place, Weight> {
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
        // Without its own it is that of the GPU it is like, and which of the two is larger is not in the file.
        let like = || Weight::Exactly("that of the GPU it is like".to_owned());
        let total = profile.total.as_ref();
        let total = total.map_or_else(like, |total| Weight::Most(total.value.0.into()));
        put("total", Some(total));
        let context = profile.context.as_ref();
        let context = context.map_or_else(like, |context| Weight::Least(context.value.0.into()));
        put("context", Some(context));
        put(
            "sm_count",
            exactly(profile.sm_count.as_ref().map(|count| count.value.to_string())),
        );
        let capability = profile.compute_capability.as_ref();
        put(
            "compute_capability",
            exactly(capability.map(|capability| format!("{:?}", capability.value))),
        );
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
        let allowed = |is_allowed: bool| Weight::Most(u128::from(is_allowed));
        put(
            "nondeterministic".to_owned(),
            allowed(budget.nondeterministic.is_some()),
        );
        put("control_flow".to_owned(), allowed(budget.data_dependent.is_some()));
        card(&mut all, &name, "", &budget.limits);
        for (gpu, limits) in &budget.gpus {
            card(&mut all, &name, &format!("gpus.{gpu}."), limits);
        }
        for (number, limits) in &budget.cards {
            card(&mut all, &name, &format!("cards.{number}."), &limits.value);
        }
        settings(&mut all, name.as_ref(), &budget.settings);
    }
    all
}

fn card(all: &mut BTreeMap<Place, Weight>, model: &Option<String>, prefix: &str, limits: &CardLimits) {
    let mut pass = |prefix: &str, limits: &Limits| {
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

fn settings(all: &mut BTreeMap<Place, Weight>, model: Option<&String>, of: &Defaults) {
    let place = |path: &str| (model.cloned(), path.to_owned());
    let steps = of.steps.map_or(STEPS, |steps| steps.value.into());
    all.insert(place("steps"), Weight::Least(steps));
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
    all: &mut BTreeMap<Place, Weight>,
    model: Option<&String>,
    path: &str,
    limit: &Limit<T>,
    weigh: impl Fn(T) -> u128,
) {
    let fail = limit.fail.map(|fail| weigh(fail.value));
    // What fails is warned of, too.
    let warn = limit.warn.map(|warn| weigh(warn.value)).or(fail);
    for (key, value) in [("fail", fail), ("warn", warn)] {
        all.extend(value.map(|value| ((model.cloned(), format!("{path}.{key}")), Weight::Most(value))));
    }
}
