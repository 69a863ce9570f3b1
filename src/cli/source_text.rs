//! Reads the source text of the lines that an explanation names from the user's files.

use std::collections::{BTreeMap, BTreeSet};

use camino::{Utf8Component, Utf8Path};

use crate::explain::{Explanation, LineText, SourceLocation};

/// The maximum size of a source file. Nobody writes larger ones by hand.
const MOST_BYTES: u64 = 4 << 20;
/// The maximum number of characters that are kept of a line.
const MOST_CHARS: usize = 200;

/// Returns the text of the lines that an explanation names, sorted by file and line, without duplicates. Skips lines
/// whose file is outside the workspace or cannot be read.
pub(super) fn read(root: &Utf8Path, explanation: &Explanation) -> Vec<LineText> {
    let lines = explanation.lines.iter().map(|line| &line.source);
    read_lines(root, lines.chain(explanation.stacks.iter().flatten()))
}

fn read_lines<'a>(root: &Utf8Path, lines: impl Iterator<Item = &'a SourceLocation>) -> Vec<LineText> {
    let mut wanted: BTreeMap<&str, BTreeSet<u32>> = BTreeMap::new();
    for line in lines {
        wanted.entry(line.file.raw()).or_default().insert(line.line);
    }
    let mut texts = Vec::new();
    for (file, numbers) in wanted {
        let Some(content) = content(root, file) else { continue };
        for (text, number) in content.lines().zip(1..).filter(|(_, number)| numbers.contains(number)) {
            texts.push(LineText {
                file: file.into(),
                line: number,
                text: text.trim().chars().take(MOST_CHARS).collect::<String>().into(),
            });
        }
    }
    texts
}

/// Reads a file of the workspace. Returns `None` if `..` or a symbolic link leads out of the workspace.
pub(super) fn content(root: &Utf8Path, file: &str) -> Option<String> {
    let inside = |part| matches!(part, Utf8Component::Normal(_) | Utf8Component::CurDir);
    if !Utf8Path::new(file).components().all(inside) {
        return None;
    }
    let path = root.join(file).canonicalize_utf8().ok()?;
    let is_ours = path.starts_with(root.canonicalize_utf8().ok()?);
    let metadata = path.metadata().ok()?;
    if !is_ours || !metadata.is_file() || metadata.len() > MOST_BYTES {
        return None;
    }
    std::fs::read_to_string(path).ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn line(file: &str, line: u32) -> SourceLocation {
        SourceLocation {
            file: file.into(),
            line,
            function: "forward".into(),
        }
    }

    fn told(root: &Utf8Path, wanted: &[(&str, u32)]) -> Vec<String> {
        let lines: Vec<_> = wanted.iter().map(|(file, number)| line(file, *number)).collect();
        let texts = read_lines(root, lines.iter());
        texts
            .iter()
            .map(|text| format!("{}:{} {}", text.file, text.line, text.text))
            .collect()
    }

    #[test]
    fn each_line_is_read_once_and_without_its_indent() {
        let folder = tempfile::tempdir().unwrap();
        let root = Utf8Path::from_path(folder.path()).unwrap();
        std::fs::create_dir(root.join("src")).unwrap();
        let long = "x".repeat(1000);
        std::fs::write(root.join("src/b.rs"), format!("one\n\tlet two = 2;  \r\n{long}\n")).unwrap();
        std::fs::write(root.join("a.rs"), "first").unwrap();
        let wanted = [
            ("src/b.rs", 2),
            ("src/b.rs", 2),
            ("a.rs", 1),
            ("a.rs", 7),
            ("a.rs", 0),
            ("gone.rs", 1),
        ];
        assert_eq!(told(root, &wanted), ["a.rs:1 first", "src/b.rs:2 let two = 2;"]);
        assert_eq!(
            told(root, &[("src/b.rs", 3)])[0].len(),
            "src/b.rs:3 ".len() + MOST_CHARS
        );
    }

    #[test]
    #[cfg(unix)]
    fn nothing_outside_the_workspace_is_read() {
        let folder = tempfile::tempdir().unwrap();
        let outside = Utf8Path::from_path(folder.path()).unwrap();
        let root = outside.join("workspace");
        std::fs::create_dir(&root).unwrap();
        std::fs::write(outside.join("secret.rs"), "secret").unwrap();
        std::fs::write(root.join("own.rs"), "own").unwrap();
        std::os::unix::fs::symlink("../secret.rs", root.join("link.rs")).unwrap();
        std::os::unix::fs::symlink("own.rs", root.join("near.rs")).unwrap();
        let absolute = outside.join("secret.rs");
        for file in ["../secret.rs", "./../secret.rs", "link.rs", absolute.as_str(), ".", ""] {
            assert!(told(&root, &[(file, 1)]).is_empty(), "{file}");
        }
        assert_eq!(told(&root, &[("near.rs", 1)]), ["near.rs:1 own"]);
    }
}
