//! The base that a change is compared with, and the limits and dependencies that the change edits.

use std::fmt::Write;

use super::state::{ShownReport, on_gpu};
use crate::render::terminal::text::YELLOW;
use crate::report::change::{ChangeSummary, signed_percent};
use crate::report::words::moved;
use crate::report::{Base, BaselineFrom, EditedLimit, Metric, Pass, Run};
use crate::untrusted::{Foreign, words};

/// The most models and the most dependencies that are listed.
const TOLD: usize = 5;

pub(super) fn base(report: &ShownReport<'_>) -> String {
    let Some(base) = &report.base else {
        return String::new();
    };
    let commit = base.commit.raw();
    let commit = commit.get(..7).unwrap_or(commit);
    let from = |run: &Run| run.baseline.as_ref().map(|baseline| baseline.from);
    // With `--rebuild`, growth is judged by the base's own models and not by a file. See docs/design/base.md.
    let rebuilt = report.runs.iter().any(|run| from(run) == Some(BaselineFrom::Rebuilt));
    let how = if rebuilt { ", which was also built and run" } else { "" };
    let mut text = format!(
        "compared with {} ({}){how}\n",
        base.revision.on_terminal(),
        words(commit)
    );
    let changes = changes(report, rebuilt);
    text.push_str(&changes);
    if !changes.is_empty() && !rebuilt {
        let _ = writeln!(
            text,
            "  not judged: a check judges growth since the accepted baseline; to judge growth since {}, add --rebuild",
            base.revision.on_terminal()
        );
    }
    for edited in &base.edited {
        let _ = writeln!(text, "{YELLOW}edited{YELLOW:#}: {}", limit(edited));
    }
    // A changed dependency is a likely cause of growth that no change of the source explains.
    text.push_str(&dependencies(base));
    text.push('\n');
    text
}

/// Lists the changes of warm live memory since the base, and those of reserved memory unless the text about the
/// baseline lists them. The problems list those that failed.
fn changes(report: &ShownReport<'_>, rebuilt: bool) -> String {
    let told = ChangeSummary::new(report);
    let is_listed = |metric: Metric| metric == Metric::Live || metric == Metric::Reserved && !rebuilt;
    let listed = told
        .changed
        .iter()
        .filter(|change| change.pass == Pass::Warm && is_listed(change.metric) && change.distance() > 0);
    let lines = listed.filter_map(|change| {
        let (before, after) = (change.before?, change.after?);
        let percent = signed_percent(before, after).map_or_else(String::new, |percent| format!(" ({percent})"));
        let name = change.run.full_name() + &on_gpu(report, &change.run.gpu.id);
        let metric = change.metric.name();
        Some(format!("  {name}: {metric} {before} → {after}{percent}\n"))
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
    let [before, after] = edited.raw_values().map(words);
    let line = edited.line.map_or_else(String::new, |line| format!(":{line}"));
    format!(
        "{} {}: {} → {} ({}{line})",
        edited
            .model
            .as_ref()
            .map_or_else(|| "defaults".to_owned(), Foreign::to_string),
        edited.limit.on_terminal(),
        before,
        after,
        edited.file.on_terminal()
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
    format!("changed dependencies: {}\n", told.join(", "))
}
