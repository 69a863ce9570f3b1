//! The folded tables of trainings of several epochs and of models whose sizes vary.

use super::escape::{name, words};
use super::page::Section;
use crate::render::sequences::{RunTable, tables};
use crate::report::Report;
use crate::report::words::{counted, mode_name};

/// The most tables that a page has. A table is longer than a line, and must not replace the lines of other sections.
const TABLES: usize = 5;

/// Makes a section with one folded table per run that has one.
pub(super) fn sequences(report: &Report) -> Section {
    let tables = tables(&report.runs);
    let mut text: String = tables.iter().take(TABLES).map(table).collect();
    if let more @ 1.. = tables.len().saturating_sub(TABLES) {
        text += &format!("… and {} more in the report\n\n", counted(more as u64, "table"));
    }
    Section::from_text(text)
}

fn table(of: &RunTable<'_>) -> String {
    let about = match of.about.as_str() {
        "" => "memory per epoch".to_owned(),
        about => format!("sizes vary: {about}"),
    };
    let run = of.run;
    let mut text = format!(
        "<details><summary>{} on {} ({}): {}</summary>\n\n| | {} |\n| --- |{}\n",
        name(run.name()),
        name(&run.gpu.id),
        mode_name(run.mode),
        words(&about),
        of.columns.join(" | "),
        " ---: |".repeat(of.columns.len()),
    );
    for row in &of.rows {
        text += &format!("| {} |\n", row.join(" | "));
    }
    text + "\n</details>\n\n"
}
