//! Quotes foreign names in messages, and suggests similar known names.

/// The longest name that is compared with known names. A longer one is not a misspelling, and comparing it is slow.
const MAX_NAME: usize = 100;
/// The number of known names that are compared. Further ones are ignored.
const MAX_KNOWN: usize = 256;
/// The similarity above which a name is suggested: `reserved` for `resrved`, `l4` for `l40`, but not `reserved` for
/// `process`.
const SIMILAR: f64 = 0.8;
/// The minimum similarity of two names that differ by one typing mistake.
const ONE_MISTAKE: f64 = 0.85;

/// Quotes a name for a message: in backticks, cut, and with control characters escaped.
pub(crate) fn quoted(name: &str) -> String {
    // Cut before escaping: a cut through an escape such as `\u{1b}` would leave half of it.
    let short: String = name.chars().take(MAX_NAME).flat_map(char::escape_debug).collect();
    let more = if name.chars().nth(MAX_NAME).is_some() {
        "…"
    } else {
        ""
    };
    format!("`{short}{more}`")
}

/// Returns `did you mean …?` if known names are similar. Otherwise lists the known names if there are at most 16.
pub(crate) fn suggest<'a>(given: &str, known: impl IntoIterator<Item = &'a str>) -> Option<String> {
    let known = sorted(known);
    near(given, known.iter().copied()).or_else(|| {
        let all: Vec<String> = known.iter().map(|name| quoted(name)).collect();
        (1..=16)
            .contains(&all.len())
            .then(|| format!("use one of {}", all.join(", ")))
    })
}

/// Returns `did you mean …?` if known names are similar.
pub(crate) fn near<'a>(given: &str, known: impl IntoIterator<Item = &'a str>) -> Option<String> {
    let mut near = nearest(given, &sorted(known));
    match near.pop() {
        Some(last) if near.is_empty() => Some(format!("did you mean {last}?")),
        Some(last) => Some(format!("did you mean {} or {last}?", near.join(", "))),
        None => None,
    }
}

/// Lists all known names, after `did you mean …?` if some are similar.
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

/// Returns the most similar names, quoted: up to three that are equally similar.
fn nearest(given: &str, known: &[&str]) -> Vec<String> {
    if given.len() > MAX_NAME {
        return Vec::new();
    }
    // Case does not count: `L4` means `l4`.
    let wanted = given.to_lowercase();
    let similarities: Vec<f64> = known
        .iter()
        .map(|name| similarity(&wanted, &name.to_lowercase()))
        .collect();
    // The fold starts at `SIMILAR`, so `best` stays there if no name is similar enough.
    let best = similarities.iter().copied().fold(SIMILAR, f64::max);
    let as_near = known
        .iter()
        .zip(similarities)
        .filter(|(_, near)| *near >= best && best > SIMILAR);
    as_near.take(3).map(|(name, _)| quoted(name)).collect()
}

/// Returns the similarity of two names, from 0 (nothing in common) to 1 (equal).
///
/// The Jaro-Winkler similarity alone is too low for `l5` and `l4`, because half of these short names differs.
pub(crate) fn similarity(one: &str, other: &str) -> f64 {
    let alike = strsim::jaro_winkler(one, other);
    // One-letter names are always one mistake apart, but nobody who wrote `b` meant `a`.
    let has_several = |name: &str| name.chars().nth(1).is_some();
    // This distance counts a swap of two letters as one mistake (`4l`). Levenshtein's counts two.
    let is_one_mistake = has_several(one) && has_several(other) && strsim::osa_distance(one, other) == 1;
    if is_one_mistake { alike.max(ONE_MISTAKE) } else { alike }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_nearest_name_is_offered_and_a_far_one_is_not() {
        let gpus = ["a100-40gb", "a100-80gb", "l4", "h100-80gb"];
        assert_eq!(suggest("L4", gpus).as_deref(), Some("did you mean `l4`?"));
        assert_eq!(suggest("h100", gpus).as_deref(), Some("did you mean `h100-80gb`?"));
        assert_eq!(
            suggest("zzz", gpus).as_deref(),
            Some("use one of `a100-40gb`, `a100-80gb`, `h100-80gb`, `l4`")
        );
        assert_eq!(
            suggest("a100", gpus).as_deref(),
            Some("did you mean `a100-40gb` or `a100-80gb`?")
        );
        assert_eq!(suggest("zzz", []), None);
        // A short name with one mistake.
        assert_eq!(near("l5", gpus).as_deref(), Some("did you mean `l4`?"));
        assert_eq!(near("4l", gpus).as_deref(), Some("did you mean `l4`?"));
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
