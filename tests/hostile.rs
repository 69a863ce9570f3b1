//! Text of reports that others wrote: no string of a report may control a terminal or a CI service.

use std::path::Path;
use std::process::Command;
use std::sync::LazyLock;

use serde_json::{Value, json};

use crate::archive_support::Entries;
use crate::common;

/// Control characters, a change of the direction of text, and workflow commands on lines of their own.
const HOSTILE: &str = "\u{1b}[2J\u{1b}[1m::error::gone##\u{1b}[0m[error]\n\u{1b}[1m::error::gone\u{202e}\u{ad}\u{3164}\u{200b}\u{61c}\u{2028}\u{feff}\u{e0041}\n::error::gone\r##[error]x\u{9b}31m\n  ::add-mask::y";

/// A report with a failed check, a model that ended with an error, and a package that could not be built.
static REPORT: LazyLock<Value> = LazyLock::new(|| {
    let text = std::fs::read_to_string(crate::system::FAILED.get().join("report.json")).unwrap();
    let mut report: Value = serde_json::from_str(&text).unwrap();
    let mut dead = report["runs"][0].clone();
    dead["model"] = json!("dead");
    dead["error"] = json!({ "code": "model-panicked", "message": "it panicked", "help": "look there" });
    report["runs"].as_array_mut().unwrap().push(dead);
    report["expected"].as_array_mut().unwrap().push(json!("many/dead"));
    // A run with budgets has a verdict, or `merge` refuses the report.
    for list in ["verdicts", "expected_verdicts"] {
        let mut verdict = report[list][0].clone();
        verdict["model"] = json!("dead");
        report[list].as_array_mut().unwrap().push(verdict);
    }
    report["problems"] = json!([{
        "package": "unbuilt", "target": "vram", "code": "build-failed", "message": "it does not compile", "help": "fix it",
    }]);
    report
});

/// Returns the JSON pointers of all strings in a document.
fn strings(value: &Value, at: &str, found: &mut Vec<String>) {
    match value {
        Value::Object(fields) => {
            let escaped = |name: &str| name.replace('~', "~0").replace('/', "~1");
            fields
                .iter()
                .for_each(|(name, value)| strings(value, &format!("{at}/{}", escaped(name)), found));
        }
        Value::Array(values) => {
            values
                .iter()
                .enumerate()
                .for_each(|(index, value)| strings(value, &format!("{at}/{index}"), found));
        }
        Value::String(_) => found.push(at.to_owned()),
        _ => {}
    }
}

/// The format of a command's output, which decides what is harmful.
#[derive(Clone, Copy, PartialEq)]
enum Format {
    Text,
    /// Separates `@` and `#` from a name by a space without width.
    Markdown,
    /// Workflow commands of GitHub, which are annotations.
    Commands,
}

/// Whether a character is not seen but changes how others are shown, or hides text.
fn is_unseen(c: char, format: Format) -> bool {
    match c {
        '\u{200b}' => format != Format::Markdown,
        _ => matches!(
            c,
            '\u{ad}' | '\u{3164}' | '\u{61c}' | '\u{200c}'..='\u{200f}' | '\u{2028}'..='\u{202e}' | '\u{2060}'..='\u{206f}' | '\u{feff}'
                | '\u{fff9}'..='\u{fffb}' | '\u{e0000}'..='\u{e007f}'
        ),
    }
}

/// Whether GitHub would take a line for a command that is not one of our annotations.
fn is_command(line: &str, format: Format) -> bool {
    let line = line.trim_start();
    let ours = ["error", "warning", "notice"].iter().any(|level| {
        ["title=", "file="]
            .iter()
            .any(|key| line.starts_with(&format!("::{level} {key}")))
    });
    line.contains("##[") || (line.starts_with("::") && !(ours && format == Format::Commands))
}

/// Returns what is wrong with a text that a command printed.
fn harm(text: &str, format: Format) -> Option<String> {
    let is_harmful = |c: &char| (c.is_control() && *c != '\n' && *c != '\t') || is_unseen(*c, format);
    if let Some(c) = text.chars().find(is_harmful) {
        return Some(format!("it has the character {c:?}"));
    }
    let line = text.lines().find(|line| is_command(line, format))?;
    Some(format!("this line is a command: {line}"))
}

fn assert_harmless(folder: &Path, at: &str, arguments: &[&str]) -> i32 {
    assert_command_harmless(common::vram(arguments).current_dir(folder), at, arguments)
}

fn assert_command_harmless(command: &mut Command, at: &str, arguments: &[&str]) -> i32 {
    let output = command.output().unwrap();
    let format = if arguments.contains(&"github") {
        Format::Commands
    } else if arguments.contains(&"markdown") || arguments[0] == "comment" {
        Format::Markdown
    } else {
        Format::Text
    };
    for bytes in [&output.stdout, &output.stderr] {
        let text = String::from_utf8(bytes.clone()).unwrap();
        if let Some(harm) = harm(&text, format) {
            panic!("{at}, {arguments:?}: {harm}\n{text:?}");
        }
        assert!(!text.contains("panicked at"), "{at}, {arguments:?}: {text}");
    }
    output.status.code().unwrap()
}

#[test]
fn no_string_of_a_report_controls_a_terminal_or_a_ci_service() {
    let folder = tempfile::tempdir().unwrap();
    let write = |name: &str, report: &Value| std::fs::write(folder.path().join(name), report.to_string()).unwrap();
    write("plain.json", &REPORT);
    // The plain report is one that the command can judge.
    assert_eq!(assert_harmless(folder.path(), "plain", &["merge", "plain.json"]), 101);
    let mut places = Vec::new();
    strings(&REPORT, "", &mut places);
    assert!(places.len() > 50, "{places:?}");
    let mut shown = 0;
    for at in &places {
        let old = REPORT.pointer(at).unwrap().as_str().unwrap();
        for text in [
            HOSTILE.to_owned(),
            format!("{old}{HOSTILE}"),
            "::error::gone".to_owned(),
        ] {
            let mut report = REPORT.clone();
            *report.pointer_mut(at).unwrap() = Value::String(text);
            write("hostile.json", &report);
            let merge = assert_harmless(folder.path(), at, &["merge", "--verbose", "hostile.json"]);
            assert_ne!(merge, 0, "{at}");
            // If a report cannot be read, every command says the same.
            if merge == 2 {
                continue;
            }
            shown += 1;
            for format in ["markdown", "github", "junit"] {
                assert_harmless(
                    folder.path(),
                    at,
                    &["merge", "--message-format", format, "hostile.json"],
                );
            }
            assert_harmless(folder.path(), at, &["diff", "plain.json", "hostile.json"]);
            let comment = [
                "comment",
                "--dry-run",
                "--report",
                "hostile.json",
                "--pr",
                "7",
                "--repo",
                "a/b",
            ];
            assert_harmless(folder.path(), at, &comment);
        }
    }
    assert!(shown > 50, "{shown}");
}

#[test]
fn no_string_of_an_explanation_controls_a_terminal_or_a_ci_service() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("plain.json");
    let file = file.to_str().unwrap();
    let explain = ["explain", "-m", "sequential_inference", "-p", "zoo", "--gpu", "l4"];
    let output = common::output(&[&explain[..], &["--message-format", "json", "-o", file]].concat());
    assert!(output.status.success(), "{}", common::said(&output));
    let plain: Value = serde_json::from_str(&std::fs::read_to_string(file).unwrap()).unwrap();
    let mut places = Vec::new();
    strings(&plain, "", &mut places);
    // One of each kind: the first tensor, kernel and stack stand for the others.
    places.retain(|at| at.split('/').all(|part| part.parse::<usize>().unwrap_or(0) == 0));
    assert!(places.len() > 20, "{places:?}");
    let mut shown = 0;
    for at in &places {
        let mut hostile = plain.clone();
        *hostile.pointer_mut(at).unwrap() = Value::String(HOSTILE.to_owned());
        std::fs::write(folder.path().join("hostile.json"), hostile.to_string()).unwrap();
        for [before, after] in [["plain.json", "hostile.json"], ["hostile.json", "plain.json"]] {
            let diff = assert_harmless(folder.path(), at, &["diff", before, after, "--why"]);
            shown += i32::from(diff == 0);
        }
        assert_harmless(folder.path(), at, &["report", "hostile.json", "-o", "page.html"]);
    }
    assert!(shown > 20, "{shown}");
}

#[test]
fn no_string_of_an_archive_controls_a_terminal_or_a_ci_service() {
    let folder = tempfile::tempdir().unwrap();
    let mut manifest = Value::Null;
    Entries::sound().manifest(|sound| manifest = sound.clone());
    let mut places = Vec::new();
    strings(&manifest, "", &mut places);
    let mut listed = 0;
    for at in &places {
        for text in [HOSTILE, "::error::gone", "\u{202e}##[error]gone"] {
            let mut entries = Entries::sound();
            entries.manifest(|manifest| *manifest.pointer_mut(at).unwrap() = json!(text));
            std::fs::write(folder.path().join("hostile.tar.zst"), entries.bytes()).unwrap();
            let exit = assert_harmless(folder.path(), at, &["list", "--archive-file", "hostile.tar.zst"]);
            listed += usize::from(exit == 0);
        }
    }
    assert!(listed > 0, "{places:?}");
}

/// Arguments and variables can be foreign, too: `merge *.json` with the names of downloaded files, or a branch.
#[test]
fn no_argument_and_no_variable_controls_a_terminal_or_a_ci_service() {
    let folder = tempfile::tempdir().unwrap();
    let hostile = &HOSTILE.replace('\0', "");
    let option = &format!("--{hostile}");
    let file = folder.path().join(HOSTILE.replace('/', ""));
    let file = file.to_str().unwrap();
    for arguments in [
        &["merge", option][..],
        &["merge", hostile],
        &[hostile],
        &["list", "--color", hostile],
        &["estimate", "--steps", hostile],
        &["estimate", "--gpu", hostile],
        &["estimate", "--set", hostile],
        &["check", "--base", hostile],
        &["comment", "--label", hostile],
        &["report", hostile],
        &["init", hostile],
    ] {
        let exit = assert_harmless(folder.path(), "arguments", arguments);
        assert!(exit == 2 || exit == 101, "{arguments:?}: {exit}");
    }
    let fuzzed = |name: &str| {
        common::fixture("tests/fuzz/corpus")
            .join(name)
            .to_str()
            .unwrap()
            .to_owned()
    };
    let drawn = [
        "report",
        &fuzzed("explanation/sequential"),
        "-o",
        &format!("{file}.html"),
    ];
    assert_eq!(assert_harmless(folder.path(), "report -o", &drawn), 0);
    let planned = ["comment", "--dry-run", "--report", &fuzzed("report/failed")];
    let mut command = common::vram(&planned);
    command
        .env("GITHUB_REPOSITORY", "a/b")
        .env("GITHUB_EVENT_NAME", "pull_request")
        .env("GITHUB_EVENT_PATH", file);
    assert_eq!(assert_command_harmless(&mut command, "event path", &planned), 0);
    let colored = ["list"];
    let mut command = common::vram(&colored);
    command.env("CARGO_TERM_COLOR", hostile);
    assert_eq!(assert_command_harmless(&mut command, "color", &colored), 2);
}

#[test]
fn a_line_of_a_budgets_file_is_shown_without_its_control_characters() {
    let text = "version: 1\ngpu: l4\nmodels:\n  a: { lives: 1 KiB } # \u{202e} ##[error]gone\n";
    let (folder, budgets) = common::budgets(text);
    let manifest = common::fixture("fixtures/many").join("Cargo.toml");
    let manifest = manifest.to_str().unwrap();
    let arguments = [
        "check",
        "--estimate",
        "--manifest-path",
        manifest,
        "--budgets",
        &budgets,
    ];
    let output = common::vram(&arguments).current_dir(folder.path()).output().unwrap();
    let said = common::said(&output);
    assert_eq!(output.status.code(), Some(2), "{said}");
    assert!(said.contains("lives"), "{said}");
    assert_eq!(harm(&said, Format::Text), None, "{said}");
}
