//! What two explanations of a model tell of a difference: what is held at the peak for what, and by which layers.

use std::collections::BTreeMap;

use super::{Cause, CauseKind, Diff, key};
use crate::bytes::Bytes;
use crate::explain::{Explanation, Layer};
use crate::report::palette;

/// Adds to each model that both explain what its categories and layers tell.
pub fn explain(diff: &mut Diff, before: &[Explanation], after: &[Explanation]) {
    for model in &mut diff.models {
        let is_it = |each: &&Explanation| {
            let own = (
                model.package.as_str(),
                model.model.as_str(),
                model.gpu.as_str(),
                model.mode,
            );
            key(&each.run) == own
        };
        let (Some(before), Some(after)) = (before.iter().find(is_it), after.iter().find(is_it)) else {
            continue;
        };
        model
            .causes
            .extend(changes(CauseKind::Category, &categories(before), &categories(after)));
        model
            .causes
            .extend(changes(CauseKind::Layer, &layers(before), &layers(after)));
        super::order(&mut model.causes);
    }
}

/// What is held at the peak for what.
fn categories(explanation: &Explanation) -> BTreeMap<String, Bytes> {
    let held = explanation.peak.categories.iter();
    held.map(|held| (palette::category(held.category).label.to_owned(), held.bytes))
        .collect()
}

/// Each layer's parameters and feature map, by its path; one that is called several times has a row a call.
fn layers(explanation: &Explanation) -> BTreeMap<String, Bytes> {
    let mut layers = BTreeMap::new();
    for layer in &explanation.layers {
        let Layer { path, kind, .. } = layer;
        let name = format!("{path} ({kind})");
        let calls = (1_u32..).map(|call| match call {
            1 => name.clone(),
            call => format!("{name} #{call}"),
        });
        let free = calls.into_iter().find(|name| !layers.contains_key(name));
        layers.insert(
            free.unwrap_or(name),
            Bytes(layer.parameter_bytes.0.saturating_add(layer.feature_bytes.0)),
        );
    }
    layers
}

fn changes(kind: CauseKind, before: &BTreeMap<String, Bytes>, after: &BTreeMap<String, Bytes>) -> Vec<Cause> {
    let names: std::collections::BTreeSet<_> = before.keys().chain(after.keys()).collect();
    names
        .into_iter()
        .map(|name| super::memory(kind, name, before.get(name).copied(), after.get(name).copied()))
        .filter(|cause| cause.before != cause.after || cause.bytes != Some(0))
        .collect()
}
