//! Why failed models grew: a table of causes, each linked to its line.

use super::Markdown;
use super::escape::{code, name, words};
use super::page::Section;
use crate::report::change::{metric_name, signed, signed_bytes};
use crate::report::words::mode_name;
use crate::report::{GrowthExplanation, GrowthPart, GrowthPlace, Report};
use crate::untrusted::Foreign;

/// The most causes that are shown of a value.
const CAUSES: usize = 5;
/// The most categories, layers and lines that are shown of a value.
const PARTS: usize = 5;

/// Makes a section with one table per explained value.
pub(super) fn growth(report: &Report, markdown: &Markdown<'_>) -> Section {
    let folder = report.base.as_ref().map_or("", |base| base.folder.raw());
    let links = markdown
        .files
        .zip(report.commit.as_ref().map(Foreign::raw))
        .map(|(files, commit)| SourceLinks { files, commit, folder });
    let tables = report.growth.iter().map(|of| table(of, links.as_ref()));
    Section {
        head: String::new(),
        items: tables.collect(),
        tail: String::new(),
        noun: "explanation",
        rank: 4,
    }
}

/// Where the lines of a report can be read.
pub(in crate::render) struct SourceLinks<'a> {
    /// The URL of the repository's files.
    pub(in crate::render) files: &'a str,
    /// The commit of the report.
    pub(in crate::render) commit: &'a str,
    /// The folder of the workspace within the repository.
    pub(in crate::render) folder: &'a str,
}

impl SourceLinks<'_> {
    /// Returns the URL of a line; `None` if a part of it could lead elsewhere.
    fn url(&self, place: &GrowthPlace) -> Option<String> {
        let path = format!("{}{}", self.folder, place.file);
        // Only harmless characters, and no `..`: the report may be from anybody.
        let plain = |c: char| c.is_ascii_alphanumeric() || "-_./+".contains(c);
        let is_path = path.len() <= 500
            && path.chars().all(plain)
            && path
                .split('/')
                .all(|part| !part.is_empty() && part != ".." && part != ".");
        let is_commit =
            matches!(self.commit.len(), 40 | 64) && self.commit.bytes().all(|byte| byte.is_ascii_hexdigit());
        (is_path && is_commit).then(|| format!("{}/{}/{path}#L{}", self.files, self.commit, place.line))
    }
}

/// Renders the causes of one value's growth.
pub(in crate::render) fn table(of: &GrowthExplanation, links: Option<&SourceLinks<'_>>) -> String {
    let mut text = format!(
        "**Why {} grew** ({}, {}): {} {} → {} ({})\n\n| change | cause | line |\n| ---: | --- | --- |\n",
        code(&format!("{}/{}", of.package, of.model)),
        name(&of.gpu),
        mode_name(of.mode),
        metric_name(of.pass, of.metric),
        of.before,
        of.after,
        signed(of.before, of.after)
    );
    for row in of.rows(CAUSES) {
        let line = row.place.map_or_else(|| "–".to_owned(), |place| line(place, links));
        text.push_str(&format!(
            "| {} | {} | {line} |\n",
            signed_bytes(row.change),
            words(row.what.raw())
        ));
    }
    text.push_str("\n<details><summary>The same growth by category, layer and line</summary>\n\n");
    let parts = |parts: &[GrowthPart], has_state: bool| -> Vec<ListItem> {
        let part = |part: &GrowthPart| match has_state {
            true => format!(
                "{} {} ({})",
                code(part.name.raw()),
                signed_bytes(part.change),
                part.state().word()
            ),
            false => format!("{} {}", words(part.name.raw()), signed_bytes(part.change)),
        };
        parts.iter().map(|each| (part(each), each.change)).collect()
    };
    let lines = of.lines.iter().map(|grown| {
        let place = grown.place.as_ref();
        let place = place.map_or_else(|| "no line".to_owned(), |place| link(place, links));
        (format!("{place} {}", signed_bytes(grown.change)), grown.change)
    });
    let lines: Vec<_> = lines.collect();
    text.push_str(&list("Categories", &parts(&of.categories, false)));
    text.push_str(&list("Layers", &parts(&of.layers, true)));
    text.push_str(&list("Lines", &lines));
    let notes: Vec<_> = of.notes.iter().map(|note| (words(note.raw()), 0)).collect();
    text.push_str(&list("Also changed", &notes));
    let limits: Vec<_> = of.limits.iter().map(|limit| (words(limit.raw()), 0)).collect();
    text.push_str(&list("Note", &limits));
    text.push_str("\n</details>\n\n");
    text
}

/// A text, and the bytes that it shows; 0 if it shows none.
type ListItem = (String, i64);

fn list(heading: &str, items: &[ListItem]) -> String {
    if items.is_empty() {
        return String::new();
    }
    let rest = items.get(PARTS..).unwrap_or_default();
    let more = match (rest.len(), rest.iter().map(|(_, change)| change).sum::<i64>()) {
        (0, _) => String::new(),
        (more, 0) => format!(", and {more} more"),
        (more, change) => format!(", and {more} more {}", signed_bytes(change)),
    };
    let shown: Vec<_> = items.iter().take(PARTS).map(|(text, _)| text.as_str()).collect();
    format!("- {heading}: {}{more}\n", shown.join(", "))
}

/// Formats a place with its text: a link, and the line as code.
fn line(place: &GrowthPlace, links: Option<&SourceLinks<'_>>) -> String {
    let text = place
        .text
        .as_ref()
        .map(Foreign::raw)
        .map_or_else(String::new, |text| format!("<br>{}", code(text)));
    format!("{}{}{text}", link(place, links), place.remark())
}

fn link(place: &GrowthPlace, links: Option<&SourceLinks<'_>>) -> String {
    let shown = format!("{}:{}", name(place.file.raw()), place.line);
    match links.and_then(|links| links.url(place)) {
        Some(url) => format!("[{shown}]({url})"),
        None => shown,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::report::sample;

    const FILES: &str = "https://github.com/owner/name/blob";

    fn links(commit: &str) -> SourceLinks<'_> {
        SourceLinks {
            files: FILES,
            commit,
            folder: "model/",
        }
    }

    #[test]
    fn each_cause_is_linked_to_its_line_at_the_commit() {
        let commit = "0123456789012345678901234567890123456789";
        insta::assert_snapshot!(table(&sample::growth(), Some(&links(commit))));
    }

    #[test]
    fn what_a_list_leaves_out_has_its_sum() {
        let items: Vec<ListItem> = (1..=7).map(|at| (format!("layer{at}"), at << 20)).collect();
        let shown = list("Layers", &items);
        assert!(shown.ends_with("layer5, and 2 more +13 MiB\n"), "{shown}");
        let notes: Vec<ListItem> = (1..=7).map(|at| (format!("note {at}"), 0)).collect();
        assert!(list("Note", &notes).ends_with("note 5, and 2 more\n"));
        assert!(!list("Layers", &items[..5]).contains("more"));
    }

    #[test]
    fn a_path_or_commit_that_leads_elsewhere_gets_no_link() {
        let commit = "0123456789012345678901234567890123456789";
        let place = |file: &str| GrowthPlace {
            file: file.into(),
            line: 3,
            text: None,
            edited: true,
        };
        assert_eq!(
            links(commit).url(&place("src/a.rs")).unwrap(),
            format!("{FILES}/{commit}/model/src/a.rs#L3")
        );
        for file in [
            "../a.rs", "/a.rs", "a.rs)(x", "a b.rs", "a//b.rs", "./a.rs", "é.rs", "a?x#y",
        ] {
            assert_eq!(links(commit).url(&place(file)), None, "{file}");
        }
        for commit in ["main", "0123456", "../../../../../../../../../../../../../x"] {
            assert_eq!(links(commit).url(&place("src/a.rs")), None, "{commit}");
        }
    }
}
