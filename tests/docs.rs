//! The documentation: its size, its links, and its commands.

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};

use pulldown_cmark::{CodeBlockKind, Event, Options, Parser, Tag, TagEnd};

use crate::common;

/// Files at the root of the repository that belong to the documentation. The rest is `docs/`.
const AT_ROOT: [&str; 5] = [
    "README.md",
    "DESIGN.md",
    "CHANGELOG.md",
    "CONTRIBUTING.md",
    "SECURITY.md",
];

/// Returns every page by its path below the repository's root.
fn pages() -> BTreeMap<PathBuf, String> {
    let root = common::root();
    let mut files: Vec<PathBuf> = AT_ROOT.iter().map(PathBuf::from).collect();
    for folder in ["docs", "docs/design"] {
        let entries = std::fs::read_dir(root.join(folder)).unwrap();
        let names = entries.map(|entry| Path::new(folder).join(entry.unwrap().file_name()));
        files.extend(names.filter(|name| name.extension().is_some_and(|extension| extension == "md")));
    }
    let text = |file: &PathBuf| std::fs::read_to_string(root.join(file)).unwrap();
    files.iter().map(|file| (file.clone(), text(file))).collect()
}

fn events(text: &str) -> Parser<'_> {
    Parser::new_ext(text, Options::ENABLE_TABLES)
}

/// Returns the ids that GitHub and mdBook give to a page's headings.
fn headings(text: &str) -> BTreeSet<String> {
    let (mut ids, mut heading) = (BTreeSet::new(), None::<String>);
    for event in events(text) {
        match event {
            Event::Start(Tag::Heading { .. }) => heading = Some(String::new()),
            Event::End(TagEnd::Heading(_)) => {
                let title = heading.take().unwrap_or_default().to_lowercase();
                let kept = title.chars().filter(|c| c.is_alphanumeric() || " -_".contains(*c));
                ids.insert(kept.map(|c| if c == ' ' { '-' } else { c }).collect());
            }
            Event::Text(text) | Event::Code(text) => {
                if let Some(heading) = &mut heading {
                    heading.push_str(&text);
                }
            }
            _ => {}
        }
    }
    ids
}

/// Returns the targets of a page's links and pictures.
fn links(text: &str) -> Vec<String> {
    let target = |event| match event {
        Event::Start(Tag::Link { dest_url, .. } | Tag::Image { dest_url, .. }) => Some(dest_url.to_string()),
        _ => None,
    };
    events(text).filter_map(target).collect()
}

#[test]
fn the_front_pages_stay_short() {
    let pages = pages();
    let size = |name: &str| {
        let text = &pages[Path::new(name)];
        (text.lines().count(), text.split_whitespace().count())
    };
    let (lines, words) = size("README.md");
    assert!(lines <= 120 && words <= 900, "README.md: {lines} lines, {words} words");
    let (lines, _) = size("DESIGN.md");
    assert!(lines <= 250, "DESIGN.md: {lines} lines");
}

#[test]
fn every_link_leads_to_a_file_and_a_heading_that_exist() {
    let pages = pages();
    let mut dead = Vec::new();
    for (page, text) in &pages {
        for link in links(text) {
            if link.contains("://") || link.starts_with("mailto:") {
                continue;
            }
            let (file, heading) = link
                .split_once('#')
                .map_or((link.as_str(), None), |(file, id)| (file, Some(id)));
            let target = match file {
                "" => page.clone(),
                file => normalized(&page.parent().unwrap().join(file)),
            };
            let has_heading = |id: &str| pages.get(&target).is_none_or(|text| headings(text).contains(id));
            if !common::root().join(&target).exists() || !heading.is_none_or(has_heading) {
                dead.push(format!("{}: {link}", page.display()));
            }
        }
    }
    assert!(dead.is_empty(), "dead links:\n{}", dead.join("\n"));
}

/// Resolves `..` without asking the file system.
fn normalized(path: &Path) -> PathBuf {
    let mut parts = PathBuf::new();
    for part in path.components() {
        match part {
            std::path::Component::ParentDir => drop(parts.pop()),
            std::path::Component::CurDir => {}
            part => parts.push(part),
        }
    }
    parts
}

#[test]
fn the_book_lists_every_page_of_docs() {
    let pages = pages();
    let listed: BTreeSet<PathBuf> = links(&pages[Path::new("docs/SUMMARY.md")])
        .iter()
        .map(|link| Path::new("docs").join(link))
        .collect();
    let there: BTreeSet<PathBuf> = pages
        .into_keys()
        .filter(|page| page.starts_with("docs") && !page.ends_with("SUMMARY.md"))
        .collect();
    assert_eq!(listed, there);
}

/// A command of a page: the page, and what stands behind `cargo vram`.
type DocCommand = (PathBuf, Vec<String>);

/// Returns the commands of all pages. In `console` blocks they stand behind a `$`.
fn commands() -> Vec<DocCommand> {
    let mut commands = Vec::new();
    for (page, text) in pages() {
        let mut is_console = false;
        for event in events(&text) {
            match event {
                Event::Start(Tag::CodeBlock(CodeBlockKind::Fenced(kind))) => is_console = &*kind == "console",
                Event::End(TagEnd::CodeBlock) => is_console = false,
                Event::Text(block) if is_console => {
                    let lines = block.lines().filter_map(|line| line.strip_prefix("$ "));
                    commands.extend(lines.filter_map(arguments).map(|command| (page.clone(), command)));
                }
                _ => {}
            }
        }
    }
    commands
}

/// Returns the arguments of `cargo vram` in a shell's line, if it runs that.
fn arguments(line: &str) -> Option<Vec<String>> {
    let words = shlex::split(line).unwrap_or_else(|| panic!("unbalanced quotes: {line}"));
    let start = match words.iter().position(|word| word.ends_with("cargo-vram")) {
        Some(program) => program + 2,
        None => words.windows(2).position(|pair| pair == ["cargo", "vram"])? + 2,
    };
    let ends = |word: &String| ["|", "<", ">", "2>", "&&", ";"].contains(&word.as_str());
    Some(
        words
            .get(start..)?
            .iter()
            .take_while(|word| !ends(word))
            .cloned()
            .collect(),
    )
}

#[test]
fn every_command_of_the_docs_is_one_that_the_program_takes() {
    let commands = commands();
    assert!(commands.len() > 40, "{}", commands.len());
    let mut refused = Vec::new();
    for (page, command) in commands {
        // Arguments are read in their order: a mistake in front of `--help` is found before it.
        let arguments: Vec<&str> = command.iter().map(String::as_str).chain(["--help"]).collect();
        let output = common::vram(&arguments).output().unwrap();
        if output.status.code() != Some(0) {
            refused.push(format!("{}: {command:?}\n{}", page.display(), common::said(&output)));
        }
    }
    assert!(refused.is_empty(), "{}", refused.join("\n"));
}

#[test]
fn every_option_of_the_docs_is_tried_by_a_test_with_its_command() {
    let tests = rust_files(&common::root().join("tests"));
    let own = rust_files(&common::root().join("src/cli"));
    let texts: Vec<String> = tests
        .iter()
        .chain(&own)
        .map(|file| std::fs::read_to_string(file).unwrap())
        .collect();
    let mut untried = BTreeSet::new();
    for (page, command) in commands() {
        let Some((name, rest)) = command.split_first() else {
            continue;
        };
        let options = rest.iter().filter(|word| word.starts_with('-'));
        for option in options.map(|option| option.split('=').next().unwrap()) {
            // A file in which the command and the option are both strings of a test, or of a clap test.
            let tries = |text: &&String| text.contains(&format!("\"{name}\"")) && text.contains(&format!("\"{option}"));
            if !texts.iter().any(|text| tries(&text)) {
                untried.insert(format!("{}: {name} {option}", page.display()));
            }
        }
    }
    assert!(untried.is_empty(), "{untried:#?}");
}

fn rust_files(folder: &Path) -> Vec<PathBuf> {
    let mut files = Vec::new();
    for entry in std::fs::read_dir(folder).unwrap() {
        let path = entry.unwrap().path();
        if path.is_dir() {
            files.extend(rust_files(&path));
        } else if path.extension().is_some_and(|extension| extension == "rs") && !path.ends_with("docs.rs") {
            files.push(path);
        }
    }
    files
}
