//! The folded tables of trainings of several epochs and of models whose sizes vary.

use super::escape::{name, words};
use super::page::Section;
use crate::render::sequences::{RunTable, tables};
use crate::report::Report;
use crate::report::words::mode_name;

/// Makes a section with one folded table per run that has one.
pub(super) fn sequences(report: &Report) -> Section {
    Section {
        items: tables(&report.runs).iter().map(table).collect(),
        noun: "table",
        rank: 7,
        ..Section::default()
    }
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
