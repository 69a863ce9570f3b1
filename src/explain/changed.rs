//! What a what-if changes, compared with the model as it is.

use std::collections::{BTreeMap, BTreeSet};

use super::{Category, Changed, Explanation};
use crate::bytes::Bytes;

/// Compares the bytes of each category at the peak of the model as it is and at the peak of a what-if.
#[must_use]
pub fn changed(origin: &Explanation, other: &Explanation) -> Vec<Changed> {
    let (before, after) = (held(origin), held(other));
    let categories: BTreeSet<_> = before.keys().chain(after.keys()).copied().collect();
    let of = |held: &BTreeMap<Category, Bytes>, category: Category| held.get(&category).copied().unwrap_or_default();
    let changed = |category| Changed {
        category,
        before: of(&before, category),
        after: of(&after, category),
    };
    categories.into_iter().map(changed).collect()
}

fn held(explanation: &Explanation) -> BTreeMap<Category, Bytes> {
    let held = explanation.peak.categories.iter();
    held.map(|held| (held.category, held.bytes)).collect()
}
