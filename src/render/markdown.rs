//! The report as Markdown: for a comment on a pull request or the summary of a workflow step.
//!
//! Strangers may write any part of a report. Everything that is not a number goes through `escape.rs`.

mod accept;
pub mod diff;
pub(in crate::render) mod escape;
pub(in crate::render) mod growth;
mod headline;
pub(in crate::render) mod page;
mod sequences;
mod tables;

use std::collections::{BTreeSet, HashSet};
use std::fmt::Write;

use crate::report::change::{ChangeSummary, key_of_run, key_of_verdict};
use crate::report::words::{mode_name, moved, with_features};
use crate::report::{Mode, Report, Rule, Status, Verdict};
use crate::untrusted::Foreign;
use escape::{code, commit, name, words};
use page::{Section, fit};

/// The longest comment that GitHub accepts, in characters, minus room for a hidden marker.
pub const COMMENT: usize = 65_536 - 512;
/// The longest step summary that GitHub accepts, in bytes. [`COMMENT`] is smaller, so text for a comment fits a
/// summary, too.
pub const SUMMARY: usize = 1 << 20;
const _: () = assert!(COMMENT < SUMMARY);

/// The most lines that are shown of a longer message.
const BRIEF: usize = 3;

/// The settings for writing Markdown.
#[derive(Debug, Clone)]
pub struct Markdown<'a> {
    /// The most bytes that the text may have.
    pub most: usize,
    /// The URL of the full report. The caller must know that the URL is its own.
    pub artifact: Option<&'a str>,
    /// The URL of the repository's files, such as `https://github.com/owner/name/blob`. Lines are linked to it at the
    /// report's commit.
    pub files: Option<&'a str>,
}

impl Default for Markdown<'_> {
    fn default() -> Self {
        Self {
            most: COMMENT,
            artifact: None,
            files: None,
        }
    }
}

/// Renders a report as GitHub Markdown.
#[must_use]
pub fn render(report: &Report, markdown: &Markdown<'_>) -> String {
    // `comment --on-change-only` asks the same `ChangeSummary` whether there is news, so it is silent exactly
    // if this page says nothing. See docs/design/comments.md.
    let told = ChangeSummary::new(report);
    // In the order that a reviewer needs them: verdicts are open, and what explains them is folded below. The
    // rank of a section is independent of its place, and says what a page that is too long loses first.
    let sections = vec![
        Section::from_text(format!("### {}\n\n", headline::headline(&told))),
        edited(report),
        wrong(report),
        tables::judged(&told),
        growth::growth(report, markdown),
        improved(report),
        tables::new(&told),
        dependencies(report),
        accept::accept(&told),
        sequences::sequences(report),
        tables::unjudged(&told),
        tables::unchanged(&told),
        skipped(report),
        obtained(report, markdown),
    ];
    fit(sections, markdown.most)
}

/// Renders the text that replaces a report if a run wrote none.
#[must_use]
pub fn without_report(markdown: &Markdown<'_>) -> String {
    let link = markdown.artifact.filter(|url| is_plain_url(url));
    let run = link.map_or_else(|| "The last run".to_owned(), |url| format!("[The last run]({url})"));
    format!(
        "### ❔ No results for the last commit\n\n\
         {run} wrote no report. The previous results here were for an earlier commit.\n"
    )
}

/// Makes a section of a heading and items. The section is empty if there are no items.
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

/// Lists the limits that the change itself edits. They come first, because a reader must not overlook them.
fn edited(report: &Report) -> Section {
    let Some(base) = &report.base else {
        return Section::default();
    };
    let value = |value: &Option<Foreign>| {
        value
            .as_ref()
            .map_or_else(|| "none".to_owned(), |value| code(value.raw()))
    };
    let items = base.edited.iter().map(|edited| {
        let whose = edited
            .model
            .as_ref()
            .map_or_else(|| "defaults".to_owned(), |model| code(model.raw()));
        let place = match edited.line {
            Some(line) => format!("{}:{line}", edited.file),
            None => edited.file.raw().to_owned(),
        };
        format!(
            "- {whose} {}: {} → {} ({})\n",
            code(edited.limit.raw()),
            value(&edited.before),
            value(&edited.after),
            code(&place)
        )
    });
    list("✏️ This change edits limits", "limit", 1, items.collect())
}

/// Lists changed dependencies: a likely cause of growth that no source change explains. Burn's crates come first.
fn dependencies(report: &Report) -> Section {
    let changed = report.base.iter().flat_map(|base| &base.dependencies);
    let items: Vec<_> = changed
        .map(|changed| format!("- {} {}\n", name(changed.name.raw()), words(&moved(changed))))
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

/// Lists what failed or has a warning, each with its own message.
fn wrong(report: &Report) -> Section {
    let mut items = Vec::new();
    for problem in &report.problems {
        let whose = match &problem.target {
            Some(target) => format!("{}/{target}", problem.package),
            None => problem.package.to_string(),
        };
        items.push(item(
            "❌",
            &whose,
            None,
            &brief(problem.message.raw()),
            problem.help.as_ref().map(Foreign::raw),
        ));
    }
    for run in &report.runs {
        let on = Some((run.gpu.id.as_str(), run.mode));
        if let Some(error) = &run.error {
            items.push(item(
                "❌",
                &run.full_name(),
                on,
                error.message.raw(),
                error.help.as_ref().map(Foreign::raw),
            ));
        }
        if let Some(oom) = &run.oom {
            let facts = crate::render::refused::refusal(run, oom).join("; ");
            items.push(item(
                "💥",
                &run.full_name(),
                on,
                &format!("out of memory: {facts}"),
                super::refused::advice(run, oom).as_deref(),
            ));
        }
    }
    // A failed run and an out of memory are listed above with more details. Their verdicts would repeat them.
    let dead = report.runs.iter().filter(|run| run.error.is_some());
    let dead: HashSet<_> = dead.map(key_of_run).collect();
    let told = |verdict: &&Verdict| {
        let by_error = verdict.status == Status::Error && dead.contains(&key_of_verdict(verdict));
        verdict.status >= Status::Warn && verdict.rule != Rule::Oom && !by_error
    };
    let mut verdicts: Vec<_> = report.verdicts.iter().filter(told).collect();
    // The sort is stable: of equal statuses, the order of the report stays.
    verdicts.sort_by_key(|verdict| std::cmp::Reverse(verdict.status));
    for verdict in verdicts {
        let mark = if verdict.status == Status::Warn {
            "⚠️"
        } else {
            "❌"
        };
        let on = Some((verdict.gpu.as_str(), verdict.mode));
        items.push(item(mark, &identity(verdict), on, verdict.message.raw(), None));
    }
    list("Problems", "problem", 2, items)
}

/// Returns the first lines of a compiler's message: the error and its place. Its drawing of the code is useless on one
/// line.
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
        item("🎉", &identity(verdict), on, verdict.message.raw(), None)
    });
    list("Improved", "improvement", 4, items.collect())
}

fn skipped(report: &Report) -> Section {
    let items = report
        .skipped
        .iter()
        .map(|skipped| format!("- {}: {}\n", words(&skipped.what()), words(skipped.why.raw())));
    let items: Vec<_> = items.collect();
    if items.is_empty() {
        return Section::default();
    }
    Section {
        head: format!("<details><summary>Skipped ({})</summary>\n\n", items.len()),
        items,
        tail: "\n</details>\n\n".to_owned(),
        noun: "line",
        rank: 7,
    }
}

/// Lists how the values were obtained, folded: one line per GPU, mode and Burn, then the tool's version and the commit.
fn obtained(report: &Report, markdown: &Markdown<'_>) -> Section {
    // A set, so that the runs of a matrix share the lines that are equal for them.
    let mut lines = BTreeSet::new();
    for run in &report.runs {
        let how = match run.mode {
            Mode::Estimate => format!(
                "Estimated on a virtual {} ({})",
                words(run.gpu.name.raw()),
                run.gpu.total_bytes
            ),
            Mode::Measure => format!(
                "Measured on {}, driver {}",
                words(run.gpu.name.raw()),
                name(run.gpu.driver.raw())
            ),
        };
        // One `<sub>` per line: GitHub would draw the lines of a list within one `<sub>` on top of each other.
        lines.insert(format!(
            "- <sub>{how}, Burn {}{}</sub>\n",
            name(run.burn.raw()),
            with_features(run)
        ));
    }
    let mut tail = format!(
        "- <sub>{} {}",
        name(report.tool.name.raw()),
        name(report.tool.version.raw())
    );
    if let Some(id) = &report.commit {
        let dirty = if report.dirty == Some(true) {
            " with uncommitted changes"
        } else {
            ""
        };
        let _ = write!(tail, "; project at commit {}{dirty}", commit(id.raw()));
    }
    if let Some(base) = &report.base {
        let _ = write!(
            tail,
            ", compared with {} ({})",
            code(base.revision.raw()),
            commit(base.commit.raw())
        );
    }
    if let Some(partition) = &report.partition {
        let _ = write!(tail, ", partition {}", code(partition.raw()));
    }
    tail.push_str("</sub>\n\n</details>\n");
    if let Some(url) = markdown.artifact.filter(|url| is_plain_url(url)) {
        let _ = writeln!(tail, "\n[Full report]({url})");
    }
    if lines.is_empty() {
        lines.insert("- <sub>No model ran</sub>\n".to_owned());
    }
    Section {
        head: "<details><summary>How these values were obtained</summary>\n\n".to_owned(),
        items: lines.into_iter().collect(),
        tail,
        noun: "GPU",
        rank: 0,
    }
}

/// Whether a Markdown link can contain the URL without escapes.
fn is_plain_url(url: &str) -> bool {
    // A bracket or a blank would end the link, and the rest could begin another one.
    let plain = |c: char| c.is_ascii_alphanumeric() || "-._~:/?&=%#+".contains(c);
    url.starts_with("https://") && url.chars().all(plain)
}

fn identity(verdict: &Verdict) -> String {
    format!("{}/{}", verdict.package, verdict.model)
}

#[cfg(test)]
mod tests;
