//! The report as Markdown: a comment on a pull request, or the summary of a step.
//!
//! Everything in a report may be written by a stranger. What is not a number goes through `escape.rs`.

pub(in crate::report) mod accept;
pub(in crate::report) mod escape;
mod headline;
pub(in crate::report) mod page;
mod tables;

use std::collections::BTreeSet;
use std::fmt::Write;

use super::change::{Change, Told};
use super::words::{mode_name, moved, with_features};
use super::{Mode, Report, Rule, Run, Status, Verdict};
use escape::{code, commit, name, words};
use page::{Section, fit};

/// The longest comment that GitHub takes, in characters, less room for a hidden marker.
pub const COMMENT: usize = 65_536 - 512;
/// The longest summary of a step that GitHub takes, in bytes. What the command line writes could be a comment, too.
pub const SUMMARY: usize = 1 << 20;
const _: () = assert!(COMMENT < SUMMARY);

/// Lines of a longer message that are told.
const BRIEF: usize = 3;

/// How Markdown is written.
#[derive(Debug, Clone)]
pub struct Markdown<'a> {
    /// The most bytes that it may have.
    pub most: usize,
    /// Where the whole report can be had: a URL that the caller knows to be its own.
    pub artifact: Option<&'a str>,
}

impl Default for Markdown<'_> {
    fn default() -> Self {
        Self {
            most: COMMENT,
            artifact: None,
        }
    }
}

/// Draws a report as GitHub's Markdown.
#[must_use]
pub fn render(report: &Report, markdown: &Markdown<'_>) -> String {
    let told = Told::new(report);
    let sections = vec![
        Section::text(format!("### {}\n\n", headline::headline(&told))),
        edited(report),
        wrong(report),
        tables::judged(&told),
        improved(report),
        tables::new(&told),
        dependencies(report),
        accept::accept(&told),
        tables::unjudged(&told),
        tables::unchanged(&told),
        skipped(report),
        obtained(report, markdown),
    ];
    fit(sections, markdown.most)
}

/// What stands in the place of a report where a run wrote none.
#[must_use]
pub fn without_report(markdown: &Markdown<'_>) -> String {
    let link = markdown.artifact.filter(|url| is_plain_url(url));
    let run = link.map_or_else(|| "The last run".to_owned(), |url| format!("[The last run]({url})"));
    format!(
        "### ❔ No figures of the last commit\n\n{run} wrote no report. What stood here was of a commit before it.\n"
    )
}

/// A heading above items; nothing where there are none.
fn list(heading: &str, noun: &'static str, rank: u8, items: Vec<String>) -> Section {
    if items.is_empty() {
        return Section::default();
    }
    Section {
        head: format!("**{heading}**\n\n"),
        items,
        tail: "\n".to_owned(),
        noun,
        rank,
    }
}

/// Limits that the change itself edits, which a reader must not overlook.
fn edited(report: &Report) -> Section {
    let Some(base) = &report.base else {
        return Section::default();
    };
    let value = |value: &Option<String>| value.as_ref().map_or_else(|| "none".to_owned(), |value| code(value));
    let items = base.edited.iter().map(|edited| {
        let whose = edited
            .model
            .as_ref()
            .map_or_else(|| "defaults".to_owned(), |model| code(model));
        let place = match edited.line {
            Some(line) => format!("{}:{line}", edited.file),
            None => edited.file.clone(),
        };
        format!(
            "- {whose} {}: {} → {} ({})\n",
            code(&edited.limit),
            value(&edited.before),
            value(&edited.after),
            code(&place)
        )
    });
    list("✏️ This change edits limits", "limit", 1, items.collect())
}

/// Dependencies that are others now, which is a likely cause of what follows no edit. Burn's come first.
fn dependencies(report: &Report) -> Section {
    let changed = report.base.iter().flat_map(|base| &base.dependencies);
    let items: Vec<_> = changed
        .map(|changed| format!("- {} {}\n", name(&changed.name), words(&moved(changed))))
        .collect();
    if items.is_empty() {
        return Section::default();
    }
    let plural = if items.len() == 1 { "y" } else { "ies" };
    Section {
        head: format!(
            "<details><summary>{} dependenc{plural} changed in Cargo.lock</summary>\n\n",
            items.len()
        ),
        items,
        tail: "\n</details>\n\n".to_owned(),
        noun: "change",
        rank: 9,
    }
}

/// What failed, in its own words.
fn wrong(report: &Report) -> Section {
    let mut items = Vec::new();
    for problem in &report.problems {
        let whose = match &problem.target {
            Some(target) => format!("{}/{target}", problem.package),
            None => problem.package.clone(),
        };
        items.push(item(
            "❌",
            &whose,
            None,
            &brief(&problem.message),
            problem.help.as_deref(),
        ));
    }
    for run in &report.runs {
        let on = Some((run.gpu.id.as_str(), run.mode));
        if let Some(error) = &run.error {
            items.push(item("❌", &run.full_name(), on, &error.message, error.help.as_deref()));
        }
        if let Some(oom) = &run.oom {
            let facts = super::human::problems::refusal(run, oom).join("; ");
            items.push(item(
                "💥",
                &run.full_name(),
                on,
                &format!("out of memory: {facts}"),
                super::refused::advice(run, oom).as_deref(),
            ));
        }
    }
    let dead: BTreeSet<_> = report
        .runs
        .iter()
        .filter(|run| run.error.is_some())
        .map(Run::full_name)
        .collect();
    let told = |verdict: &&Verdict| {
        let by_error = verdict.status == Status::Error && dead.contains(&identity(verdict));
        verdict.status >= Status::Warn && verdict.rule != Rule::Oom && !by_error
    };
    let mut verdicts: Vec<_> = report.verdicts.iter().filter(told).collect();
    verdicts.sort_by_key(|verdict| std::cmp::Reverse(verdict.status));
    for verdict in verdicts {
        let mark = if verdict.status == Status::Warn {
            "⚠️"
        } else {
            "❌"
        };
        let on = Some((verdict.gpu.as_str(), verdict.mode));
        items.push(item(mark, &identity(verdict), on, &verdict.message, None));
    }
    list("What is wrong", "finding", 2, items)
}

/// The beginning of what a compiler said: what is wrong, and where. Its drawing of the code is of no use in one line.
fn brief(message: &str) -> String {
    let lines: Vec<_> = message.lines().map(str::trim).filter(|line| !line.is_empty()).collect();
    match lines.len() > BRIEF {
        true => format!("{} …", lines[..BRIEF].join(" ")),
        false => message.to_owned(),
    }
}

fn item(mark: &str, whose: &str, on: Option<(&str, Mode)>, message: &str, help: Option<&str>) -> String {
    let on = on.map_or_else(String::new, |(gpu, mode)| {
        format!(" ({}, {})", name(gpu), mode_name(mode))
    });
    let help = help.map_or_else(String::new, |help| format!(" – {}", words(help)));
    format!("- {mark} {}{on}: {}{help}\n", code(whose), words(message))
}

fn improved(report: &Report) -> Section {
    let improved = report.verdicts.iter().filter(|verdict| verdict.is_improvement());
    let items = improved.map(|verdict| {
        let on = Some((verdict.gpu.as_str(), verdict.mode));
        item("🎉", &identity(verdict), on, &verdict.message, None)
    });
    list("Improved", "improvement", 4, items.collect())
}

fn skipped(report: &Report) -> Section {
    let items = report
        .skipped
        .iter()
        .map(|skipped| format!("- {}: {}\n", words(&skipped.what), words(&skipped.why)));
    let items: Vec<_> = items.collect();
    if items.is_empty() {
        return Section::default();
    }
    Section {
        head: format!("<details><summary>Not judged ({})</summary>\n\n", items.len()),
        items,
        tail: "\n</details>\n\n".to_owned(),
        noun: "line",
        rank: 7,
    }
}

/// Where the figures are from, folded away: a line a card and mode, the versions, the commit.
fn obtained(report: &Report, markdown: &Markdown<'_>) -> Section {
    let mut lines = BTreeSet::new();
    for run in &report.runs {
        let how = match run.mode {
            Mode::Estimate => format!(
                "Estimated on a virtual {} ({})",
                words(&run.gpu.name),
                run.gpu.total_bytes
            ),
            Mode::Measure => format!("Measured on {}, driver {}", words(&run.gpu.name), name(&run.gpu.driver)),
        };
        // Around a list, the lines of `<sub>` would lie one upon the other.
        lines.insert(format!(
            "- <sub>{how}, Burn {}{}</sub>\n",
            name(&run.burn),
            with_features(run)
        ));
    }
    let mut tail = format!("- <sub>{} {}", name(&report.tool.name), name(&report.tool.version));
    if let Some(id) = &report.commit {
        let dirty = if report.dirty == Some(true) {
            " with changes on top"
        } else {
            ""
        };
        let _ = write!(tail, "; the project at commit {}{dirty}", commit(id));
    }
    if let Some(base) = &report.base {
        let _ = write!(
            tail,
            ", compared with {} ({})",
            code(&base.revision),
            commit(&base.commit)
        );
    }
    if let Some(partition) = &report.partition {
        let _ = write!(tail, ", partition {}", code(partition));
    }
    tail.push_str("</sub>\n\n</details>\n");
    if let Some(url) = markdown.artifact.filter(|url| is_plain_url(url)) {
        let _ = writeln!(tail, "\n[The whole report]({url})");
    }
    if lines.is_empty() {
        lines.insert("- <sub>No model was run</sub>\n".to_owned());
    }
    Section {
        head: "<details><summary>How these figures were obtained</summary>\n\n".to_owned(),
        items: lines.into_iter().collect(),
        tail,
        noun: "card",
        rank: 0,
    }
}

/// Whether a link can hold it as it is.
fn is_plain_url(url: &str) -> bool {
    let plain = |c: char| c.is_ascii_alphanumeric() || "-._~:/?&=%#+".contains(c);
    url.starts_with("https://") && url.chars().all(plain)
}

fn identity(verdict: &Verdict) -> String {
    format!("{}/{}", verdict.package, verdict.model)
}

#[cfg(test)]
mod tests;
