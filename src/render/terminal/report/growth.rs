//! Why failed models grew: the causes with their lines, and the same growth by category, layer and line.

use unicode_width::UnicodeWidthStr;

use crate::render::terminal::text::BOLD;
use crate::report::change::{metric_name, signed, signed_bytes};
use crate::report::words::mode_name;
use crate::report::{GrowthExplanation, GrowthLine, GrowthPart, GrowthPlace};
use crate::untrusted::{Foreign, named};

/// The most causes that are shown.
const CAUSES: usize = 5;
/// The most layers and lines that are shown.
const PARTS: usize = 3;

/// Renders one block per explained value.
pub(in crate::render) fn growth(all: &[GrowthExplanation]) -> String {
    all.iter().map(block).collect()
}

fn block(of: &GrowthExplanation) -> String {
    let mut text = format!(
        "\n{BOLD}why {}/{} grew{BOLD:#} ({}, {}): {} memory {} → {} ({})\n",
        of.package,
        of.model,
        of.gpu,
        mode_name(of.mode),
        metric_name(of.pass, of.metric),
        of.before,
        of.after,
        signed(of.before, of.after)
    );
    let rows = of.rows(CAUSES).into_iter();
    let rows = rows.map(|row| {
        (
            signed_bytes(row.change),
            named(row.what.raw()),
            row.place.map_or_else(String::new, place),
        )
    });
    let rows: Vec<(String, String, String)> = rows.collect();
    let width = |column: fn(&(String, String, String)) -> &String| rows.iter().map(|row| column(row).width()).max();
    let (bytes, what) = (width(|row| &row.0).unwrap_or(0), width(|row| &row.1).unwrap_or(0));
    for (change, cause, line) in &rows {
        let change = format!("{}{change}", " ".repeat(bytes - change.width()));
        let cause = format!("{cause}{}", " ".repeat(what - cause.width()));
        text.push_str(format!("  {change}  {cause}  {line}").trim_end());
        text.push('\n');
    }
    let categories: Vec<_> = of.categories.iter().map(|one| (part(one), one.change)).collect();
    let layers: Vec<_> = of.layers.iter().map(|one| (layer(one), one.change)).collect();
    let line = |line: &GrowthLine| format!("{} {}", at(line.place.as_ref()), signed_bytes(line.change));
    let lines: Vec<_> = of.lines.iter().map(|one| (line(one), one.change)).collect();
    text.push_str(&list("by category", &categories, categories.len()));
    text.push_str(&list("by layer", &layers, PARTS));
    text.push_str(&list("by line", &lines, PARTS));
    let notes: Vec<_> = of.notes.iter().map(|note| (named(note.raw()), 0)).collect();
    text.push_str(&list("also changed", &notes, notes.len()));
    for limit in &of.limits {
        text.push_str(&format!("  note: {}\n", named(limit.raw())));
    }
    text
}

fn part(part: &GrowthPart) -> String {
    format!("{} {}", named(part.name.raw()), signed_bytes(part.change))
}

fn layer(part: &GrowthPart) -> String {
    format!(
        "{} {} ({})",
        named(part.name.raw()),
        signed_bytes(part.change),
        part.state().word()
    )
}

/// Lists the first items, and sums the changes of the others up.
fn list(heading: &str, items: &[(String, i64)], most: usize) -> String {
    if items.is_empty() {
        return String::new();
    }
    let rest = items.get(most..).unwrap_or_default();
    let sum = rest.iter().map(|(_, change)| *change).fold(0, i64::saturating_add);
    let more = match rest.len() {
        0 => String::new(),
        more => format!(", and {more} more {}", signed_bytes(sum)),
    };
    let shown: Vec<_> = items.iter().take(most).map(|(item, _)| item.as_str()).collect();
    format!("  {heading}: {}{more}\n", shown.join(", "))
}

fn at(place: Option<&GrowthPlace>) -> String {
    place.map_or_else(
        || "no line".to_owned(),
        |place| format!("{}:{}", named(place.file.raw()), place.line),
    )
}

/// Formats a place: `src/model.rs:41  hidden: LinearConfig::new(1024, 6144),`.
fn place(place: &GrowthPlace) -> String {
    let text = place
        .text
        .as_ref()
        .map(Foreign::raw)
        .map_or_else(String::new, |text| format!("  {}", named(text)));
    format!("{}{}{text}", at(Some(place)), place.remark())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::report::{GrowthCause, sample};

    #[test]
    fn causes_have_their_lines_and_everything_adds_up() {
        insta::assert_snapshot!(anstream::adapter::strip_str(&growth(&[sample::growth()])).to_string());
    }

    #[test]
    fn further_causes_are_counted_and_foreign_text_is_harmless() {
        let mut of = sample::growth();
        of.causes = vec![of.causes[0].clone(); 7];
        of.causes.push(GrowthCause {
            what: "\u{1b}[2J::error::x".into(),
            change: 1,
            place: None,
        });
        let text = growth(&[of.clone()]);
        assert!(text.contains("3 more causes"), "{text}");
        // The largest changes are shown, in either direction, and a single cause is never hidden behind a count.
        of.causes[7].change = -(100 << 20);
        let text = anstream::adapter::strip_str(&growth(&[of.clone()])).to_string();
        assert!(text.contains("\u{fffd}[2J::error::x"), "{text}");
        of.causes.truncate(6);
        assert!(!growth(&[of]).contains("more cause"));
    }
}
