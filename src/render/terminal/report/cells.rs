//! The cells of the tables.

use comfy_table::{Cell, Color};

use crate::bytes::Bytes;
use crate::report::Verdict;
use crate::report::words::percent;
use crate::untrusted::{Foreign, named};

/// The width of a bar, in characters.
const BAR: u64 = 10;

pub(in crate::render) fn tinted(text: String, color: Option<Color>) -> Cell {
    let cell = Cell::new(text);
    match color {
        Some(color) => cell.fg(color),
        None => cell,
    }
}

pub(in crate::render) fn shown(bytes: Option<Bytes>) -> Cell {
    Cell::new(bytes.map_or_else(|| "–".to_owned(), |bytes| bytes.to_string()))
}

/// Formats the difference between an estimate and a measurement, in percent of the measurement: `+0.57 %` if the
/// estimate is too high.
pub(super) fn off(measured: Option<Bytes>, estimated: Option<Bytes>) -> String {
    let (Some(measured), Some(estimated)) = (measured, estimated) else {
        return "–".to_owned();
    };
    let sign = match estimated.cmp(&measured) {
        std::cmp::Ordering::Less => '−',
        std::cmp::Ordering::Equal => return "equal".to_owned(),
        std::cmp::Ordering::Greater => '+',
    };
    // In percent of the measurement, because that is the true value.
    percent(Bytes(measured.0.abs_diff(estimated.0)), measured)
        .map_or_else(|| "–".to_owned(), |percent| format!("{sign}{percent}"))
}

/// Makes the cell of the limit as its file writes it; without a limit, of the GPU's memory.
pub(super) fn limited(verdict: Option<&Verdict>, gpu: Bytes) -> Cell {
    Cell::new(verdict.and_then(limit).unwrap_or_else(|| format!("GPU {gpu}")))
}

/// Returns the limit of a verdict as its file writes it.
pub(super) fn limit(verdict: &Verdict) -> Option<String> {
    let limit = verdict.limit?;
    Some(
        verdict
            .limit_written
            .as_ref()
            .map(Foreign::raw)
            .map_or_else(|| limit.to_string(), named),
    )
}

/// Draws a bar of used against allowed memory: `████░░░░░░  42 %`. The bar is full if more is used than allowed.
pub(in crate::render) fn bar(used: Bytes, allowed: Bytes) -> String {
    let cells = u128::from(used.0) * u128::from(BAR) / u128::from(allowed.0.max(1));
    // The bar is full only if nothing is left, and empty only if nothing is used.
    let full = cells.clamp(u128::from(used.0 > 0), u128::from(BAR));
    let full = usize::try_from(full).unwrap_or(0);
    let empty = usize::try_from(BAR).unwrap_or(0) - full;
    format!("{}{} {:>5}", "█".repeat(full), "░".repeat(empty), share(used, allowed))
}

/// Formats the used share of the allowed memory in whole percent, rounded down.
pub(super) fn share(used: Bytes, allowed: Bytes) -> String {
    // Rounded down, so that 100 % means that nothing is left. At
    // least 1, because a report may have a limit of 0.
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
