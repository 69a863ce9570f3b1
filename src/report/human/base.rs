//! What a change is compared with, and what it edits besides sources.

use std::fmt::Write;

use super::state::on_gpu;
use super::text::{YELLOW, named, words};
use crate::report::change::{Told, signed_percent};
use crate::report::words::moved;
use crate::report::{Base, BaselineFrom, EditedLimit, Metric, Report, Run};

/// Dependencies, or models, that are told one by one.
const TOLD: usize = 5;

pub(super) fn base(report: &Report) -> String {
    let Some(base) = &report.base else {
        return String::new();
    };
    let commit = base.commit.get(..7).unwrap_or(&base.commit);
    let from = |run: &Run| run.baseline.as_ref().map(|baseline| baseline.from);
    let rebuilt = report.runs.iter().any(|run| from(run) == Some(BaselineFrom::Rebuilt));
    let how = if rebuilt { ", which was built and run, too" } else { "" };
    let mut text = format!("compared with {} ({}){how}\n", words(&base.revision), words(commit));
    text.push_str(&changes(report));
    for edited in &base.edited {
        let _ = writeln!(text, "{YELLOW}edited{YELLOW:#}: {}", limit(edited));
    }
    text.push_str(&dependencies(base));
    text.push('\n');
    text
}

/// What became of live since; what failed by it is told with the failures.
fn changes(report: &Report) -> String {
    let told = Told::new(report);
    let live = told
        .changed
        .iter()
        .filter(|change| change.metric == Metric::Live && change.distance() > 0);
    let lines = live.filter_map(|change| {
        let (before, after) = (change.before?, change.after?);
        let percent = signed_percent(before, after).map_or_else(String::new, |percent| format!(" ({percent})"));
        let name = named(&change.run.full_name()) + &on_gpu(report, &change.run.gpu.id);
        Some(format!("  {name}: live {before} → {after}{percent}\n"))
    });
    let lines: Vec<_> = lines.collect();
    let more = lines.len().saturating_sub(TOLD);
    let mut text: String = lines.into_iter().take(TOLD).collect();
    if more > 0 {
        let _ = writeln!(text, "  and {more} more");
    }
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
