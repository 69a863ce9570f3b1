//! Names that are not ours, in sentences: quoted, and the nearest of those that are known.

/// What is longer is no misspelling, and comparing it would take long.
const MAX_NAME: usize = 100;
/// Among more names than these none is looked for.
const MAX_KNOWN: usize = 256;
/// Above this similarity a name is offered: `resrved` and `l40` are, `reserved` for `process` is not.
const SIMILAR: f64 = 0.8;
/// The least similarity of two names that one typing mistake turns into each other.
const ONE_MISTAKE: f64 = 0.85;

/// A name, fit for a message: in backticks, short, and unable to steer a terminal.
pub(crate) fn quoted(name: &str) -> String {
    let short: String = name.chars().take(MAX_NAME).flat_map(char::escape_debug).collect();
    let more = if name.chars().nth(MAX_NAME).is_some() {
        "…"
    } else {
        ""
    };
    format!("`{short}{more}`")
}

/// `did you mean …`, where known names come near; else what is known, where that is short enough to be read.
pub(crate) fn suggest<'a>(given: &str, known: impl IntoIterator<Item = &'a str>) -> Option<String> {
    let known = sorted(known);
    near(given, known.iter().copied()).or_else(|| {
        let all: Vec<String> = known.iter().map(|name| quoted(name)).collect();
        (1..=16)
            .contains(&all.len())
            .then(|| format!("expected one of {}", all.join(", ")))
    })
}

/// `did you mean …`, where known names come near.
pub(crate) fn near<'a>(given: &str, known: impl IntoIterator<Item = &'a str>) -> Option<String> {
    let mut near = nearest(given, &sorted(known));
    match near.pop() {
        Some(last) if near.is_empty() => Some(format!("did you mean {last}?")),
        Some(last) => Some(format!("did you mean {} or {last}?", near.join(", "))),
        None => None,
    }
}

/// `did you mean …?`, where known names come near, and all that are known.
pub(crate) fn listed(given: Option<&str>, what: &str, known: &[String]) -> String {
    let near = given.and_then(|given| near(given, known.iter().map(String::as_str)));
    let all = format!("{what} are: {}", known.join(", "));
    near.map_or_else(|| all.clone(), |near| format!("{near} {all}"))
}

fn sorted<'a>(known: impl IntoIterator<Item = &'a str>) -> Vec<&'a str> {
    let mut known: Vec<&str> = known
        .into_iter()
        .filter(|name| name.len() <= MAX_NAME)
        .take(MAX_KNOWN)
        .collect();
    known.sort_unstable();
    known.dedup();
    known
}

/// All that come equally near, quoted.
fn nearest(given: &str, known: &[&str]) -> Vec<String> {
    if given.len() > MAX_NAME {
        return Vec::new();
    }
    let wanted = given.to_lowercase();
    let similarities: Vec<f64> = known
        .iter()
        .map(|name| similarity(&wanted, &name.to_lowercase()))
        .collect();
    let best = similarities.iter().copied().fold(SIMILAR, f64::max);
    let as_near = known
        .iter()
        .zip(similarities)
        .filter(|(_, near)| *near >= best && best > SIMILAR);
    as_near.take(3).map(|(name, _)| quoted(name)).collect()
}

/// How alike two names are, from 0 (nothing in common) to 1 (equal).
///
/// Jaro-Winkler alone finds `l5` and `l4` unlike, since half of so short a name differs.
pub(crate) fn similarity(one: &str, other: &str) -> f64 {
    let alike = strsim::jaro_winkler(one, other);
    let has_several = |name: &str| name.chars().nth(1).is_some();
    let is_one_mistake = has_several(one) && has_several(other) && strsim::osa_distance(one, other) == 1;
    if is_one_mistake { alike.max(ONE_MISTAKE) } else { alike }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_nearest_name_is_offered_and_a_far_one_is_not() {
        let cards = ["a100-40gb", "a100-80gb", "l4", "h100-80gb"];
        assert_eq!(suggest("L4", cards).as_deref(), Some("did you mean `l4`?"));
        assert_eq!(suggest("h100", cards).as_deref(), Some("did you mean `h100-80gb`?"));
        assert_eq!(
            suggest("zzz", cards).as_deref(),
            Some("expected one of `a100-40gb`, `a100-80gb`, `h100-80gb`, `l4`")
        );
        assert_eq!(
            suggest("a100", cards).as_deref(),
            Some("did you mean `a100-40gb` or `a100-80gb`?")
        );
        assert_eq!(suggest("zzz", []), None);
        // One mistake in a short name.
        assert_eq!(near("l5", cards).as_deref(), Some("did you mean `l4`?"));
        assert_eq!(near("4l", cards).as_deref(), Some("did you mean `l4`?"));
        assert_eq!(near("b", ["a"]), None);
    }

    #[test]
    fn what_is_known_is_told_once() {
        let inputs = ["batch_size", "image_size"].map(str::to_owned);
        assert_eq!(
            listed(Some("batchsize"), "its inputs", &inputs),
            "did you mean `batch_size`? its inputs are: batch_size, image_size"
        );
        assert_eq!(
            listed(Some("zzz"), "its inputs", &inputs),
            "its inputs are: batch_size, image_size"
        );
    }

    #[test]
    fn a_name_cannot_steer_a_terminal() {
        assert_eq!(quoted("a\u{1b}[2Jb"), "`a\\u{1b}[2Jb`");
        assert_eq!(quoted(&"x".repeat(500)).chars().count(), 103);
    }
}
