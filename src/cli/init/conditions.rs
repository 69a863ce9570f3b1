//! Decides whether an item is compiled, by evaluating its `#[cfg(…)]` attributes for the package's features.

use std::collections::BTreeSet;

use syn::punctuated::Punctuated;
use syn::{Attribute, Expr, ExprLit, Lit, Meta, Token};

/// Whether an item is compiled in the benchmark.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum CompiledCode {
    /// It is compiled, or its conditions depend on more than features.
    Yes,
    /// It is compiled only with this feature of the package, which is off.
    WithFeature(String),
    /// It is not compiled.
    No,
}

impl CompiledCode {
    pub(super) fn new(attributes: &[Attribute], features: &BTreeSet<String>) -> Self {
        let conditions = attributes.iter().filter(|attribute| attribute.path().is_ident("cfg"));
        let parsed: Vec<Meta> = conditions.filter_map(|attribute| attribute.parse_args().ok()).collect();
        // What the target or a flag decides counts as compiled:
        // to miss a model is worse than to offer one too many.
        if parsed.iter().all(|condition| holds(condition, features) != Some(false)) {
            return Self::Yes;
        }
        // Try each feature that the conditions name as one additional feature.
        let mut named = BTreeSet::new();
        parsed
            .iter()
            .for_each(|condition| named_features(condition, &mut named));
        let decides = |feature: &String| {
            let more: BTreeSet<String> = features.iter().chain([feature]).cloned().collect();
            parsed.iter().all(|condition| holds(condition, &more) != Some(false))
        };
        named.into_iter().find(decides).map_or(Self::No, Self::WithFeature)
    }
}

/// Whether a condition holds; `None` if it depends on the target or on flags.
fn holds(condition: &Meta, features: &BTreeSet<String>) -> Option<bool> {
    match condition {
        // A benchmark links the library, which Cargo then builds without `test`.
        Meta::Path(path) if path.is_ident("test") => Some(false),
        Meta::Path(_) => None,
        Meta::NameValue(_) => feature(condition).map(|feature| features.contains(&feature)),
        Meta::List(list) => {
            let parts: Vec<_> = parts(list).iter().map(|part| holds(part, features)).collect();
            if list.path.is_ident("not") {
                parts.first().copied().flatten().map(|holds| !holds)
            } else if list.path.is_ident("all") {
                decided(&parts, false)
            } else if list.path.is_ident("any") {
                decided(&parts, true)
            } else {
                None
            }
        }
    }
}

/// Evaluates `any` (`by` is `true`) or `all` (`false`).
///
/// One part with the value `by` decides. Otherwise all parts must be known.
fn decided(parts: &[Option<bool>], by: bool) -> Option<bool> {
    if parts.contains(&Some(by)) {
        Some(by)
    } else {
        (!parts.contains(&None)).then_some(!by)
    }
}

fn named_features(condition: &Meta, named: &mut BTreeSet<String>) {
    named.extend(feature(condition));
    if let Meta::List(list) = condition {
        parts(list).iter().for_each(|part| named_features(part, named));
    }
}

fn parts(list: &syn::MetaList) -> Vec<Meta> {
    let parts = list.parse_args_with(Punctuated::<Meta, Token![,]>::parse_terminated);
    parts.map(|parts| parts.into_iter().collect()).unwrap_or_default()
}

/// Returns the name in `feature = "name"`.
fn feature(condition: &Meta) -> Option<String> {
    match condition {
        Meta::NameValue(pair) if pair.path.is_ident("feature") => match &pair.value {
            Expr::Lit(ExprLit {
                lit: Lit::Str(name), ..
            }) => Some(name.value()),
            _ => None,
        },
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn compiled(condition: &str, features: &[&str]) -> CompiledCode {
        let item: syn::ItemStruct = syn::parse_str(&format!("#[cfg({condition})] struct A;")).unwrap();
        let features = features.iter().map(|feature| (*feature).to_owned()).collect();
        CompiledCode::new(&item.attrs, &features)
    }

    #[test]
    fn features_decide_and_the_one_that_is_missing_is_named() {
        let with = |feature: &str| CompiledCode::WithFeature(feature.to_owned());
        assert_eq!(compiled("feature = \"train\"", &["train"]), CompiledCode::Yes);
        assert_eq!(compiled("feature = \"train\"", &["std"]), with("train"));
        assert_eq!(compiled("not(feature = \"train\")", &["train"]), CompiledCode::No);
        assert_eq!(compiled("all(feature = \"a\", feature = \"b\")", &["a"]), with("b"));
        assert_eq!(compiled("all(feature = \"a\", feature = \"b\")", &[]), CompiledCode::No);
        assert_eq!(
            compiled("any(feature = \"a\", feature = \"b\")", &["b"]),
            CompiledCode::Yes
        );
    }

    #[test]
    fn tests_are_never_compiled_and_what_is_not_known_counts_as_compiled() {
        assert_eq!(compiled("test", &[]), CompiledCode::No);
        assert_eq!(compiled("all(test, feature = \"a\")", &[]), CompiledCode::No);
        assert_eq!(compiled("not(test)", &[]), CompiledCode::Yes);
        assert_eq!(compiled("unix", &[]), CompiledCode::Yes);
        assert_eq!(compiled("any(test, target_arch = \"wasm32\")", &[]), CompiledCode::Yes);
    }
}
