//! What stands in one cell of the table.

use comfy_table::{Cell, Color};

use super::text::named;
use crate::bytes::Bytes;
use crate::report::Verdict;
use crate::report::words::percent;

/// Cells of the bar of used against allowed.
const BAR: u64 = 10;

pub(in crate::report) fn tinted(text: String, color: Option<Color>) -> Cell {
    let cell = Cell::new(text);
    match color {
        Some(color) => cell.fg(color),
        None => cell,
    }
}

pub(in crate::report) fn shown(bytes: Option<Bytes>) -> Cell {
    Cell::new(bytes.map_or_else(|| "–".to_owned(), |bytes| bytes.to_string()))
}

/// How far an estimate is off, in percent of what was measured: `+0.57 %` where it is too high.
pub(super) fn off(measured: Option<Bytes>, estimated: Option<Bytes>) -> String {
    let (Some(measured), Some(estimated)) = (measured, estimated) else {
        return "–".to_owned();
    };
    let sign = match estimated.cmp(&measured) {
        std::cmp::Ordering::Less => '−',
        std::cmp::Ordering::Equal => return "equal".to_owned(),
        std::cmp::Ordering::Greater => '+',
    };
    percent(Bytes(measured.0.abs_diff(estimated.0)), measured)
        .map_or_else(|| "–".to_owned(), |percent| format!("{sign}{percent}"))
}

/// What is allowed: a limit as its file writes it, or the card's memory where there is none.
pub(super) fn limited(verdict: Option<&Verdict>, card: Bytes) -> Cell {
    Cell::new(verdict.and_then(limit).unwrap_or_else(|| format!("card {card}")))
}

/// The limit of a verdict, as its file writes it.
pub(super) fn limit(verdict: &Verdict) -> Option<String> {
    let limit = verdict.limit?;
    Some(
        verdict
            .limit_written
            .as_deref()
            .map_or_else(|| limit.to_string(), named),
    )
}

/// Used against allowed: `████░░░░░░  42 %`. More than allowed fills it.
pub(in crate::report) fn bar(used: Bytes, allowed: Bytes) -> String {
    let cells = u128::from(used.0) * u128::from(BAR) / u128::from(allowed.0.max(1));
    // Full only where nothing is left, empty only where nothing is used.
    let full = cells.clamp(u128::from(used.0 > 0), u128::from(BAR));
    let full = usize::try_from(full).unwrap_or(0);
    let empty = usize::try_from(BAR).unwrap_or(0) - full;
    format!("{}{} {:>5}", "█".repeat(full), "░".repeat(empty), share(used, allowed))
}

/// Used of allowed in whole percent, rounded down.
pub(super) fn share(used: Bytes, allowed: Bytes) -> String {
    format!("{} %", u128::from(used.0) * 100 / u128::from(allowed.0.max(1)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_bar_is_full_only_where_nothing_is_left() {
        assert_eq!(bar(Bytes(0), Bytes(100)), "░░░░░░░░░░   0 %");
        assert_eq!(bar(Bytes(1), Bytes(1000)), "█░░░░░░░░░   0 %");
        assert_eq!(bar(Bytes(999), Bytes(1000)), "█████████░  99 %");
        assert_eq!(bar(Bytes(3000), Bytes(1000)), "██████████ 300 %");
    }

    #[test]
    fn a_difference_tells_which_way_and_never_hides_a_byte() {
        let shown = |measured, estimated| off(Some(Bytes(measured)), Some(Bytes(estimated)));
        assert_eq!(shown(1000, 1000), "equal");
        assert_eq!(shown(1000, 1005), "+0.50 %");
        assert_eq!(shown(1000, 990), "−1 %");
        assert_eq!(shown(1 << 40, (1 << 40) + 1), "+<0.01 %");
        assert_eq!(off(None, Some(Bytes(1))), "–");
        assert_eq!(shown(0, 1), "–");
    }
}
