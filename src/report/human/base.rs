//! What a change is compared with, and what it edits besides sources.

use std::fmt::Write;

use super::text::{YELLOW, named, words};
use crate::report::words::moved;
use crate::report::{Base, EditedLimit, Report};

/// Dependencies that are told one by one.
const TOLD: usize = 5;

pub(super) fn base(report: &Report) -> String {
    let Some(base) = &report.base else {
        return String::new();
    };
    let commit = base.commit.get(..7).unwrap_or(&base.commit);
    let mut text = format!("compared with {} ({})\n", words(&base.revision), words(commit));
    for edited in &base.edited {
        let _ = writeln!(text, "{YELLOW}edited{YELLOW:#}: {}", limit(edited));
    }
    text.push_str(&dependencies(base));
    text.push('\n');
    text
}

fn limit(edited: &EditedLimit) -> String {
    let value = |value: &Option<String>| value.as_ref().map_or_else(|| "none".to_owned(), |value| words(value));
    let line = edited.line.map_or_else(String::new, |line| format!(":{line}"));
    format!(
        "{} {}: {} → {} ({}{line})",
        edited.model.as_deref().map_or_else(|| "defaults".to_owned(), named),
        words(&edited.limit),
        value(&edited.before),
        value(&edited.after),
        words(&edited.file)
    )
}

fn dependencies(base: &Base) -> String {
    if base.dependencies.is_empty() {
        return String::new();
    }
    let told = base
        .dependencies
        .iter()
        .take(TOLD)
        .map(|changed| words(&format!("{} {}", changed.name, moved(changed))));
    let mut told: Vec<_> = told.collect();
    let more = base.dependencies.len().saturating_sub(TOLD);
    if more > 0 {
        told.push(format!("{more} more"));
    }
    format!("dependencies that changed: {}\n", told.join(", "))
}
