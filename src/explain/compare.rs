//! Causes that two explanations of a model show: the bytes of categories at the peak, and the bytes of layers.

use std::collections::BTreeMap;

use crate::bytes::Bytes;
use crate::explain::{Explanation, Layer};
use crate::report::change::key_of_run;
use crate::report::diff::{Cause, CauseKind, ReportDiff};

/// Adds the causes from categories and layers to each model that has both explanations.
pub fn add_causes(diff: &mut ReportDiff, before: &[Explanation], after: &[Explanation]) {
    for model in &mut diff.models {
        let is_it =
            |each: &&Explanation| key_of_run(&each.run) == (&model.package, &model.model, &model.gpu, model.mode);
        let (Some(before), Some(after)) = (before.iter().find(is_it), after.iter().find(is_it)) else {
            continue;
        };
        model
            .causes
            .extend(changes(CauseKind::Category, &categories(before), &categories(after)));
        model
            .causes
            .extend(changes(CauseKind::Layer, &layers(before), &layers(after)));
        crate::report::diff::order(&mut model.causes);
    }
}

/// Returns the bytes of each category at the peak.
fn categories(explanation: &Explanation) -> BTreeMap<String, Bytes> {
    let held = explanation.peak.categories.iter();
    held.map(|held| (held.category.label().to_owned(), held.bytes))
        .collect()
}

/// Returns the bytes of each layer's parameters and feature map, by path. A layer that is called several times has one
/// entry per call.
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
        .map(|name| crate::report::diff::memory(kind, name, before.get(name).copied(), after.get(name).copied()))
        // The texts are rounded: a change of a few bytes shows only in `bytes`.
        .filter(|cause| cause.before != cause.after || cause.bytes != Some(0))
        .collect()
}
