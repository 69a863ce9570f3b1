//! Feeds random bytes to one parser of foreign bytes, which the variable `VRAM_FUZZ` selects.
//!
//! A parser must return, without a panic. What it accepts is rendered in all formats, and no output may contain a control
//! character or a workflow command. `tests/fuzz/run` builds and runs this.
#![no_main]

use std::cell::LazyCell;
use std::sync::LazyLock;

use camino::{Utf8Path, Utf8PathBuf};
use cargo_vram::baseline::BaselineFile;
use cargo_vram::budget::Budgets;
use cargo_vram::explain::Explanation;
use cargo_vram::github::{Environment, Where};
use cargo_vram::recording::Recordings;
use cargo_vram::render::{self, ShownExplanation};
use cargo_vram::report::Report;
use cargo_vram::run::{TracedCase, record::Record};
use libfuzzer_sys::fuzz_target;

/// The parser of this process.
static PARSER: LazyLock<fn(&[u8])> = LazyLock::new(|| {
    let name = std::env::var("VRAM_FUZZ").expect("VRAM_FUZZ names a parser");
    let parsers: [(&str, fn(&[u8])); 9] = [
        ("archive", archive),
        ("budgets", budgets),
        ("events", events),
        ("explanation", explanation),
        ("github-event", github_event),
        ("lock", lock),
        ("record", record),
        ("recording", recording),
        ("report", report),
    ];
    let found = parsers.into_iter().find(|(each, _)| *each == name);
    found.unwrap_or_else(|| panic!("there is no parser {name}")).1
});

fuzz_target!(|bytes: &[u8]| PARSER(bytes));

thread_local! {
    /// A folder for parsers that read files. `tests/fuzz/run` lets it be in memory.
    static FOLDER: LazyCell<(tempfile::TempDir, Utf8PathBuf)> = LazyCell::new(|| {
        let folder = tempfile::tempdir().expect("a temporary folder can be made");
        let path = Utf8PathBuf::from_path_buf(folder.path().to_owned()).expect("its path is UTF-8");
        (folder, path)
    });
}

/// Writes the bytes into a file, and calls `read` with its path.
fn with_file<R>(name: &str, bytes: &[u8], read: impl FnOnce(&Utf8Path) -> R) -> R {
    FOLDER.with(|folder| {
        let path = folder.1.join(name);
        std::fs::create_dir_all(path.parent().expect("the path has a folder")).expect("the folder can be made");
        std::fs::write(&path, bytes).expect("the file can be written");
        read(&path)
    })
}

/// Splits an input for a parser of several files. The separator is a line that none of them can have.
fn parts<const N: usize>(bytes: &[u8]) -> [&[u8]; N] {
    const SEPARATOR: &[u8] = b"\n=====\n";
    let mut rest = bytes;
    std::array::from_fn(|_| {
        let end = rest.windows(SEPARATOR.len()).position(|part| part == SEPARATOR);
        let part = &rest[..end.unwrap_or(rest.len())];
        rest = end.map_or(&[][..], |end| &rest[end + SEPARATOR.len()..]);
        part
    })
}

/// The formats of the tool's output, which allow different characters.
#[derive(Clone, Copy, PartialEq)]
enum Format {
    /// A terminal, with colours.
    Terminal,
    /// A file that no terminal and no CI service reads.
    File,
    /// Workflow commands of GitHub.
    Commands,
}

/// Fails if a text contains a control character, or a workflow command that is not one of ours.
fn assert_harmless(text: &str, format: Format) {
    let mut rest = text;
    while let Some(at) = rest.find(|c: char| c.is_control() && c != '\n' && c != '\t') {
        let after = &rest[at..];
        let is_color = after.strip_prefix("\u{1b}[").and_then(|color| {
            let end = color.find(|c: char| !c.is_ascii_digit() && c != ';')?;
            color[end..].strip_prefix('m')
        });
        match is_color {
            Some(after) if format == Format::Terminal => rest = after,
            _ => panic!("a control character: {:?}", &after[..after.len().min(40)]),
        }
    }
    if format == Format::File {
        return;
    }
    for line in text.lines() {
        let line = line.trim_start();
        let ours = format == Format::Commands
            && ["error", "warning", "notice"]
                .iter()
                .any(|level| line.starts_with(&format!("::{level} ")));
        assert!(!line.contains("##["), "a command: {line}");
        assert!(
            !line.starts_with("::") || line.starts_with(":::") || ours,
            "a command: {line}"
        );
    }
}

fn budgets(bytes: &[u8]) {
    let _ = Budgets::parse(bytes, "budgets.yaml", &["l4", "h100-80gb"]);
}

fn lock(bytes: &[u8]) {
    if let Ok(lock) = BaselineFile::parse(bytes, "budgets.lock") {
        let text = lock.to_string();
        let again = BaselineFile::parse(text.as_bytes(), "budgets.lock").expect("a written file can be read");
        assert_eq!(again.to_string(), text);
    }
}

fn report(bytes: &[u8]) {
    let Ok(report) = with_file("report.json", bytes, Report::read) else {
        return;
    };
    let style = render::terminal::report::ReportStyle::default();
    assert_harmless(&render::terminal::report::render(&report, &style), Format::Terminal);
    let page = render::markdown::render(&report, &render::markdown::Markdown::default());
    assert_harmless(&page, Format::Terminal);
    assert_harmless(&render::github::render(&report, ""), Format::Commands);
    if let Ok(text) = render::junit::render(&report) {
        assert_harmless(&text, Format::File);
        assert!(!text.contains(['\u{fffe}', '\u{ffff}']), "XML has no such character");
    }
}

fn explanation(bytes: &[u8]) {
    let Ok(explanation) = serde_json::from_slice::<Explanation>(bytes) else {
        return;
    };
    if explanation.check().is_err() {
        return;
    }
    let view = render::terminal::explanation::View {
        layers: true,
        phases: true,
        tensors: Some(12),
        lines: true,
        leak: true,
        savings: true,
        verbose: true,
        ..Default::default()
    };
    let style = render::terminal::explanation::TerminalStyle {
        width: Some(100),
        ..Default::default()
    };
    for view in [Default::default(), view] {
        let text = render::terminal::explanation::render(&explanation, &view, &style);
        assert_harmless(&text, Format::Terminal);
    }
    let shown = [ShownExplanation::new(&explanation)];
    assert_harmless(&render::svg::svg(&shown), Format::File);
    assert!(!render::perfetto::trace(&shown, true).is_empty());
}

/// Reads the events and the driver's record of a traced pass and of a cold pass.
fn events(bytes: &[u8]) {
    let [events, record, cold, trace] = parts(bytes);
    let write = |name: &str, bytes: &[u8]| with_file(&format!("case-0/0/{name}"), bytes, |_| ());
    write("traced/events.jsonl", events);
    write("traced/driver.log", record);
    write("traced/trace.jsonl", trace);
    write("cold/events.jsonl", cold);
    write("cold/driver.log", record);
    let _ = FOLDER.with(|folder| TracedCase::read(folder.1.as_std_path(), 0));
}

fn record(bytes: &[u8]) {
    let record = Record::parse(&String::from_utf8_lossy(bytes));
    let _ = (record.peak(0), record.last_refusal());
}

/// Takes a tar file, and compresses it: a changed byte of a compressed file would only break its checksum.
fn archive(bytes: &[u8]) {
    let bytes = &zstd::encode_all(bytes, 1).expect("bytes can be compressed");
    let into = tempfile::tempdir_in(FOLDER.with(|folder| folder.1.clone())).expect("a temporary folder can be made");
    let path = Utf8Path::from_path(into.path()).expect("its path is UTF-8");
    let _ = with_file("a.tar.zst", bytes, |file| {
        cargo_vram::archive::unpack(file.as_std_path(), path)
    });
}

fn recording(bytes: &[u8]) {
    let [gpu, report, choices] = parts(bytes);
    let write = |name: &str, bytes: &[u8]| with_file(&format!("recordings/l4/580.00.00/{name}"), bytes, |_| ());
    write("gpu.json", gpu);
    write("report.json", report);
    write("autotune.jsonl", choices);
    let _ = FOLDER.with(|folder| Recordings::load(folder.1.join("recordings").as_std_path()));
}

fn github_event(bytes: &[u8]) {
    for name in ["pull_request", "workflow_run"] {
        let _ = with_file("event.json", bytes, |path| {
            Where::from_event(&Environment {
                name: Some(name.to_owned()),
                path: Some(path.to_owned()),
                repository: Some("owner/name".to_owned()),
            })
        });
    }
}
