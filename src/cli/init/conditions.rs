//! Whether an item is compiled: its `#[cfg(…)]` attributes, evaluated as far as the package's features decide them.

use std::collections::BTreeSet;

use syn::punctuated::Punctuated;
use syn::{Attribute, Expr, ExprLit, Lit, Meta, Token};

/// What the conditions of an item come to.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Compiled {
    /// It is compiled, or nothing here can tell.
    Yes,
    /// It is compiled with this feature of the package only, which is off.
    WithFeature(String),
    /// It is not compiled in a benchmark.
    No,
}

impl Compiled {
    pub(super) fn new(attributes: &[Attribute], features: &BTreeSet<String>) -> Self {
        let conditions = attributes.iter().filter(|attribute| attribute.path().is_ident("cfg"));
        let parsed: Vec<Meta> = conditions.filter_map(|attribute| attribute.parse_args().ok()).collect();
        if parsed.iter().all(|condition| holds(condition, features) != Some(false)) {
            return Self::Yes;
        }
        // One feature more, among those that the conditions name.
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

/// Whether a condition holds; `None` where it depends on the target or on flags.
fn holds(condition: &Meta, features: &BTreeSet<String>) -> Option<bool> {
    match condition {
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

/// `any` (`true`) or `all` (`false`): one such part decides; else all of them must be known.
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

/// The name in `feature = "name"`.
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

    fn compiled(condition: &str, features: &[&str]) -> Compiled {
        let item: syn::ItemStruct = syn::parse_str(&format!("#[cfg({condition})] struct A;")).unwrap();
        let features = features.iter().map(|feature| (*feature).to_owned()).collect();
        Compiled::new(&item.attrs, &features)
    }

    #[test]
    fn features_decide_and_the_one_that_is_missing_is_named() {
        let with = |feature: &str| Compiled::WithFeature(feature.to_owned());
        assert_eq!(compiled("feature = \"train\"", &["train"]), Compiled::Yes);
        assert_eq!(compiled("feature = \"train\"", &["std"]), with("train"));
        assert_eq!(compiled("not(feature = \"train\")", &["train"]), Compiled::No);
        assert_eq!(compiled("all(feature = \"a\", feature = \"b\")", &["a"]), with("b"));
        assert_eq!(compiled("all(feature = \"a\", feature = \"b\")", &[]), Compiled::No);
        assert_eq!(compiled("any(feature = \"a\", feature = \"b\")", &["b"]), Compiled::Yes);
    }

    #[test]
    fn tests_are_never_compiled_and_what_is_not_known_counts_as_compiled() {
        assert_eq!(compiled("test", &[]), Compiled::No);
        assert_eq!(compiled("all(test, feature = \"a\")", &[]), Compiled::No);
        assert_eq!(compiled("not(test)", &[]), Compiled::Yes);
        assert_eq!(compiled("unix", &[]), Compiled::Yes);
        assert_eq!(compiled("any(test, target_arch = \"wasm32\")", &[]), Compiled::Yes);
    }
}
