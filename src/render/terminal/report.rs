//! The report on a terminal: a table, the problems, a summary line and, if something failed, the next steps.

mod base;
mod baseline;
mod builds;
pub(in crate::render) mod cells;
mod details;
pub(in crate::render) mod growth;
mod limits;
mod next;
mod on_gpus;
pub(in crate::render) mod problems;
mod sequences;
mod state;
mod style;
pub(in crate::render) mod table;
mod what_if;

use std::collections::HashSet;

use super::text::{self, GREEN, RED, YELLOW};
use crate::report::{Report, Rule, Run, Skipped, Status};
use crate::untrusted::{PlainName, words};
pub use problems::problem;
use state::{RunState, ShownReport};
pub use style::ReportStyle;

/// Renders the report, with colours as escape sequences.
#[must_use]
pub fn render(report: &Report, style: &ReportStyle) -> String {
    let report = &ShownReport::new(report);
    // Only text between the tables is wrapped: a table fits already, or it cannot be broken.
    let prose = |text: String| match style.wraps {
        true => text::wrap(&text, style.width),
        false => text,
    };
    let mut text = String::new();
    if !style.quiet && !report.runs.is_empty() {
        if !style.headline.is_empty() {
            text.push_str(&prose(words(&style.headline) + "\n"));
        }
        text.push_str(&prose(builds::builds(report)));
        if !text.is_empty() {
            text.push('\n');
        }
        text.push_str(&table::table(report, style));
        text.push('\n');
        text.push_str(&prose(table::note(report).to_owned()));
        text.push_str(&limits::limits(report));
        text.push_str(&prose(baseline::baseline(report)));
        text.push_str(&prose(details::spreads(report)));
        text.push_str(&prose(details::allocator(report)));
        text.push_str(&on_gpus::on_gpus(report, style.judged));
        text.push_str(&sequences::sequences(report));
        text.push_str(&what_if::what_ifs(report, style.width));
        text.push_str(&prose(what_if::notes(report)));
    }
    // Problems are printed in every mode: `--quiet` hides only what nobody needs to act on.
    text.push_str(&prose(problems::problems(report, style)));
    text.push_str(&prose(growth::growth(&report.growth)));
    if !style.quiet {
        text.push_str(&prose(base::base(report)));
    }
    if style.verbose {
        text.push_str(&prose(details::details(report)));
    }
    if !style.quiet {
        text.push_str(&prose(summary(report, style)));
        text.push_str(&prose(next::steps(report)));
    }
    text
}

fn summary(report: &ShownReport<'_>, style: &ReportStyle) -> String {
    let runs = report.runs.len();
    let plural = if runs == 1 { "" } else { "s" };
    let mut parts = vec![match &report.partition {
        // A partition may have more parts than there are models.
        Some(part) if runs == 0 => format!(
            "0 of {} models are in part {}",
            report.expected.len(),
            part.on_terminal()
        ),
        _ => format!("{runs} run{plural}"),
    }];
    // An edit of the defaults belongs to no run, but it fails the check, so it must be counted.
    for (state, number, words) in state::counts(report, (Rule::Edit, edits_of_no_run(report))) {
        let color = match state {
            RunState::Ok => GREEN,
            RunState::Warning => YELLOW,
            _ => RED,
        };
        parts.push(format!("{color}{number} {words}{color:#}"));
    }
    parts.extend(skipped(report));
    if !report.problems.is_empty() {
        parts.push(format!("{RED}{} could not run{RED:#}", report.problems.len()));
    }
    // An option is named only if it would show something.
    if !style.verbose {
        let any = |of: fn(&Run) -> bool| report.runs.iter().any(of);
        match (
            any(|run| run.measurement.is_some()),
            any(|run| !run.assumptions.is_empty()),
        ) {
            (true, true) => parts.push("--verbose shows measurement details and assumptions".to_owned()),
            (true, false) => parts.push("--verbose shows measurement details".to_owned()),
            (false, true) => parts.push("--verbose shows assumptions".to_owned()),
            (false, false) => {}
        }
    }
    parts.join(" · ") + "\n"
}

/// Counts the loosened limits that belong to no run of the report, such as the defaults.
fn edits_of_no_run(report: &ShownReport<'_>) -> usize {
    let edits = report
        .verdicts
        .iter()
        .filter(|verdict| verdict.rule == Rule::Edit && verdict.status >= Status::Fail);
    let runs: HashSet<(&PlainName, &PlainName)> = report.runs.iter().map(|run| (&run.package, run.name())).collect();
    edits
        .filter(|verdict| !runs.contains(&(&verdict.package, &verdict.model)))
        .count()
}

/// Lists what was skipped, one entry per reason.
fn skipped(report: &ShownReport<'_>) -> Vec<String> {
    let mut reasons: Vec<(&Skipped, usize)> = Vec::new();
    for skipped in &report.skipped {
        // The same check of several models, for one reason, shares an entry.
        let is_same = |known: &&mut (&Skipped, usize)| (known.0.check, &known.0.why) == (skipped.check, &skipped.why);
        match reasons.iter_mut().find(is_same) {
            Some((_, more)) => *more += 1,
            None => reasons.push((skipped, 0)),
        }
    }
    let line = |(skipped, more): (&Skipped, usize)| match more {
        0 => format!("skipped: {} ({})", words(&skipped.what()), skipped.why.on_terminal()),
        more => format!(
            "skipped: {} and {more} more ({})",
            words(&skipped.what()),
            skipped.why.on_terminal()
        ),
    };
    reasons.into_iter().map(line).collect()
}

#[cfg(test)]
mod tests;
