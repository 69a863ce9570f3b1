//! The difference between two reports as Markdown.

use crate::bytes::Bytes;
use crate::render::diff::lists::{About, CauseList, MOST, lists};
use crate::render::diff::{on_upgrade, rows, summary, word};
use crate::render::markdown::escape::{code, name, words};
use crate::render::markdown::growth;
use crate::render::markdown::page::{Section, fit};
use crate::report::change::{change, metric_name, signed, signed_percent};
use crate::report::diff::{Cause, FigureDiff, ModelDiff, ReportDiff};
use crate::report::words::mode_name;
use crate::report::{Problem, Status};
use crate::untrusted::Foreign;

/// The most models for which causes are listed. Their headings are never left out for length.
const EXPLAINED: usize = 10;

/// Renders a difference as GitHub Markdown of at most `most` bytes. With `quiet`, only problems are listed.
#[must_use]
pub fn render(diff: &ReportDiff, most: usize, quiet: bool) -> String {
    let mark = match diff.status {
        Status::Pass => "✅",
        Status::Warn => "⚠️",
        Status::Fail | Status::Error => "❌",
    };
    let mut sections = vec![Section::from_text(format!("### {mark} {}\n\n", summary(diff)))];
    if let Some(upgrade) = on_upgrade(diff) {
        sections.push(Section::from_text(words(&upgrade) + "\n\n"));
    }
    let problem = |problem: &Problem| format!("- ❌ {}: {}\n", code(&problem.package), words(problem.message.raw()));
    if !diff.problems.is_empty() {
        sections.push(Section {
            items: diff.problems.iter().map(problem).collect(),
            tail: "\n".to_owned(),
            noun: "problem",
            rank: 1,
            ..Section::default()
        });
    }
    // Values have a smaller rank than their causes: what changed matters more than why.
    let figures: Vec<_> = diff
        .models
        .iter()
        .flat_map(|model| rows(model, quiet).map(move |figure| row(model, figure)))
        .collect();
    if !figures.is_empty() {
        sections.push(Section {
            head: "| model | GPU | mode | metric | before → after | change | |\n\
                   | --- | --- | --- | --- | --- | ---: | --- |\n"
                .to_owned(),
            items: figures,
            tail: "\n".to_owned(),
            noun: "value",
            rank: 1,
        });
    }
    if !diff.growth.is_empty() {
        sections.push(Section {
            items: diff.growth.iter().map(|of| growth::table(of, None)).collect(),
            noun: "explanation",
            rank: 2,
            ..Section::default()
        });
    }
    if !quiet {
        // The headings of these models cannot be left out, so their
        // number is limited before the page is fitted.
        let explained = diff.models.iter().filter(|model| !lists(model).is_empty());
        sections.extend(explained.clone().take(EXPLAINED).flat_map(explanation));
        let more = explained.count().saturating_sub(EXPLAINED);
        if more > 0 {
            sections.push(Section::from_text(format!(
                "… and {more} more; `--message-format json` lists everything that changed\n"
            )));
        }
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
    let word = name(word(model, figure).raw());
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

/// Makes the heading of a model and one table per list of what else changed.
fn explanation(model: &ModelDiff) -> Vec<Section> {
    let heading = format!(
        "#### {} ({}, {})\n\n",
        code(&format!("{}/{}", model.package, model.model)),
        name(&model.gpu),
        mode_name(model.mode)
    );
    let lists = lists(model);
    let tables = lists.iter().map(|list| {
        let shown = list.causes.iter().take(MOST);
        let more = list.left_out();
        Section {
            items: shown.map(|cause| cause_row(list, cause)).collect(),
            noun: "change",
            rank: 3,
            ..around(list, more)
        }
    });
    std::iter::once(Section::from_text(heading)).chain(tables).collect()
}

/// Makes the text above and below the rows of a list. The list of autotune choices is folded, because they are hardly
/// ever the reason.
fn around(list: &CauseList<'_>, more: usize) -> Section {
    let column = list.about.column();
    let is_memory = list.causes.iter().any(|cause| cause.bytes.is_some());
    let table = match is_memory {
        true => format!("| {column} | before | after | change |\n| --- | ---: | ---: | ---: |\n"),
        false => format!("| {column} | before | after |\n| --- | --- | --- |\n"),
    };
    let more = match more {
        0 => String::new(),
        more => format!("\n… and {more} more\n"),
    };
    let (head, tail) = match list.about {
        About::Autotune => {
            let count = list.causes.len();
            let plural = if count == 1 { "" } else { "s" };
            (
                format!("<details><summary>{count} change{plural} in autotune</summary>\n\n{table}"),
                format!("{more}\n</details>\n\n"),
            )
        }
        _ => (table, format!("{more}\n")),
    };
    Section {
        head,
        tail,
        ..Section::default()
    }
}

fn cause_row(list: &CauseList<'_>, cause: &Cause) -> String {
    let value = |value: &Option<Foreign>| {
        value
            .as_ref()
            .map_or_else(|| "–".to_owned(), |value| words(value.raw()))
    };
    let is_memory = list.causes.iter().any(|cause| cause.bytes.is_some());
    let by = match (is_memory, cause.bytes) {
        (false, _) => String::new(),
        (true, None) => " – |".to_owned(),
        (true, Some(bytes)) => format!(" {} |", change(bytes)),
    };
    format!(
        "| {} | {} | {} |{by}\n",
        name(cause.name.raw()),
        value(&cause.before),
        value(&cause.after)
    )
}
