//! A difference as Markdown.

use super::human::summary;
use super::{Diff, FigureDiff, ModelDiff, State, TOLD, shown, told, word};
use crate::bytes::Bytes;
use crate::report::change::{metric_name, signed, signed_percent};
use crate::report::markdown::escape::{code, name, words};
use crate::report::markdown::page::{Section, fit};
use crate::report::words::mode_name;
use crate::report::{Problem, Status};

/// Draws a difference as GitHub's Markdown, in at most so many bytes.
#[must_use]
pub fn markdown(diff: &Diff, most: usize) -> String {
    let mark = match diff.status {
        Status::Pass => "✅",
        Status::Warn => "⚠️",
        Status::Fail | Status::Error => "❌",
    };
    let mut sections = vec![Section::text(format!("### {mark} {}\n\n", summary(diff)))];
    let problem = |problem: &Problem| format!("- ❌ {}: {}\n", code(&problem.package), words(&problem.message));
    if !diff.problems.is_empty() {
        sections.push(Section {
            items: diff.problems.iter().map(problem).collect(),
            tail: "\n".to_owned(),
            noun: "problem",
            rank: 1,
            ..Section::default()
        });
    }
    let rows: Vec<_> = diff
        .models
        .iter()
        .flat_map(|model| shown(model).map(move |figure| row(model, figure)))
        .collect();
    if !rows.is_empty() {
        sections.push(Section {
            head: "| model | card | mode | metric | before → after | change | |\n\
                   | --- | --- | --- | --- | --- | ---: | --- |\n"
                .to_owned(),
            items: rows,
            tail: "\n".to_owned(),
            noun: "figure",
            rank: 1,
        });
    }
    let changed = diff
        .models
        .iter()
        .filter(|model| model.state == State::Changed && !model.causes.is_empty());
    let causes: Vec<_> = changed.map(causes).collect();
    if !causes.is_empty() {
        sections.push(Section {
            head: "**What else changed**\n\n".to_owned(),
            items: causes,
            tail: "\n".to_owned(),
            noun: "model",
            rank: 2,
        });
    }
    fit(sections, most)
}

fn row(model: &ModelDiff, figure: &FigureDiff) -> String {
    let size = |bytes: Option<Bytes>| bytes.map_or_else(|| "–".to_owned(), |bytes| bytes.to_string());
    let by = figure.before.zip(figure.after).map_or_else(
        || "–".to_owned(),
        |(before, after)| {
            let percent = signed_percent(before, after).map_or_else(String::new, |percent| format!(" ({percent})"));
            signed(before, after) + &percent
        },
    );
    let word = name(word(model, figure));
    format!(
        "| {} | {} | {} | {} | {} → {} | {by} | {word} |\n",
        code(&format!("{}/{}", model.package, model.model)),
        name(&model.gpu),
        mode_name(model.mode),
        metric_name(figure.pass, figure.metric),
        size(figure.before),
        size(figure.after)
    )
}

fn causes(model: &ModelDiff) -> String {
    let mut told: Vec<_> = model.causes.iter().take(TOLD).map(|cause| told(cause, name)).collect();
    let more = model.causes.len().saturating_sub(TOLD);
    if more > 0 {
        told.push(format!("… and {more} more"));
    }
    format!(
        "- {} ({}, {}): {}\n",
        code(&format!("{}/{}", model.package, model.model)),
        name(&model.gpu),
        mode_name(model.mode),
        told.join(", ")
    )
}
