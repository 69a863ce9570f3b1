//! The report as people read it: a table, what is wrong below it, a line that says it all and, where something failed,
//! what to do next.

mod base;
mod baseline;
mod builds;
pub(in crate::report) mod cells;
mod limits;
mod measurement;
mod next;
mod on_cards;
pub(in crate::report) mod problems;
mod state;
pub(in crate::report) mod table;
pub(crate) mod text;
mod what_if;

use super::{Report, Rule, Run, Skipped, Status, Verdict};
pub use problems::problem;
use state::State;
use text::{GREEN, RED, YELLOW, words};

/// How the report is shown.
#[derive(Debug, Clone, Default)]
pub struct Style {
    /// The first line: how the figures were obtained.
    pub headline: String,
    /// Columns of the terminal.
    pub width: usize,
    /// Whether text is broken into lines of that width, as tables are: not where a program may search in it.
    pub wraps: bool,
    /// Only what is wrong.
    pub quiet: bool,
    /// Also how it was measured, and what was assumed.
    pub verbose: bool,
    /// Whether the runs were judged.
    pub judged: bool,
}

/// Draws the report, with colours as escape sequences.
#[must_use]
pub fn render(report: &Report, style: &Style) -> String {
    // Tables are as wide as they are: they fit, or can be broken nowhere.
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
        text.push_str(&limits::limits(report));
        text.push_str(&prose(baseline::baseline(report)));
        text.push_str(&prose(measurement::spreads(report)));
        text.push_str(&prose(measurement::allocator(report)));
        text.push_str(&on_cards::on_cards(report, style.judged));
        text.push_str(&what_if::what_ifs(report, style.width));
    }
    text.push_str(&prose(problems::problems(report)));
    if !style.quiet {
        text.push_str(&prose(base::base(report)));
    }
    if style.verbose {
        text.push_str(&prose(measurement::details(report)));
    }
    if !style.quiet {
        text.push_str(&prose(summary(report, style)));
        text.push_str(&prose(next::steps(report)));
    }
    text
}

fn summary(report: &Report, style: &Style) -> String {
    let count = |wanted: State| {
        report
            .runs
            .iter()
            .filter(|run| State::of(report, run) == wanted)
            .count()
    };
    let runs = report.runs.len();
    let plural = if runs == 1 { "" } else { "s" };
    let mut parts = vec![match &report.partition {
        // There may be fewer models than parts.
        Some(part) if runs == 0 => format!("0 of {} models are in part {}", report.expected.len(), words(part)),
        _ => format!("{runs} run{plural}"),
    }];
    for state in State::ALL {
        let Some(words) = state.counted() else { continue };
        let mut number = count(state);
        if state == State::Failed(Rule::Edit) {
            number += edits_of_no_run(report);
        }
        let color = match state {
            State::Ok => GREEN,
            State::Warning => YELLOW,
            _ => RED,
        };
        if number > 0 {
            parts.push(format!("{color}{number} {words}{color:#}"));
        }
    }
    parts.extend(skipped(report));
    if !report.problems.is_empty() {
        parts.push(format!("{RED}{} not run{RED:#}", report.problems.len()));
    }
    if !style.verbose {
        let any = |of: fn(&Run) -> bool| report.runs.iter().any(of);
        match (
            any(|run| run.measurement.is_some()),
            any(|run| !run.assumptions.is_empty()),
        ) {
            (true, true) => parts.push("--verbose shows how it was measured and what is assumed".to_owned()),
            (true, false) => parts.push("--verbose shows how it was measured".to_owned()),
            (false, true) => parts.push("--verbose shows what is assumed".to_owned()),
            (false, false) => {}
        }
    }
    parts.join(" · ") + "\n"
}

/// How many limits were loosened that no run stands for, such as those of all models.
fn edits_of_no_run(report: &Report) -> usize {
    let is_of = |verdict: &Verdict, run: &Run| verdict.package == run.package && verdict.model == run.name();
    let edits = report
        .verdicts
        .iter()
        .filter(|verdict| verdict.rule == Rule::Edit && verdict.status >= Status::Fail);
    edits
        .filter(|verdict| !report.runs.iter().any(|run| is_of(verdict, run)))
        .count()
}

/// What was not judged, once for each reason.
fn skipped(report: &Report) -> Vec<String> {
    let mut reasons: Vec<(&str, &str, usize)> = Vec::new();
    // `growth of one` and `growth of another` are of one kind.
    let kind = |what: &str| what.rsplit_once(" of ").map_or("", |(kind, _)| kind).to_owned();
    for Skipped { what, why } in &report.skipped {
        match reasons
            .iter_mut()
            .find(|(of, known, _)| known == why && kind(of) == kind(what))
        {
            Some((.., more)) => *more += 1,
            None => reasons.push((what, why, 0)),
        }
    }
    let told = |(what, why, more): (&str, &str, usize)| match more {
        0 => format!("{} not judged: {}", words(what), words(why)),
        more => format!("{} and {more} more not judged: {}", words(what), words(why)),
    };
    reasons.into_iter().map(told).collect()
}

#[cfg(test)]
mod tests;
