//! The lines that a change edits, without those that cannot change what a model needs: comments, imports, moved lines.

use std::collections::{BTreeMap, BTreeSet, HashMap, HashSet, VecDeque};

/// The edited lines of a change, by file relative to the workspace root.
#[derive(Debug, Default, Clone, PartialEq, Eq)]
pub struct SourceChanges {
    files: BTreeMap<String, ChangedFile>,
    /// Where lines before the change are with it, if only single lines are known.
    known: BTreeMap<(String, u32), (String, u32)>,
    /// The lines before the change whose text it does not have, if only single lines are known.
    gone: BTreeSet<(String, u32)>,
}

/// The edited lines of one file.
#[derive(Debug, Default, Clone, PartialEq, Eq)]
struct ChangedFile {
    /// The file's path before the change; empty for a new file.
    before: String,
    /// Whether the change deletes the file. It then has its older name.
    is_deleted: bool,
    /// The hunks, in the order of lines.
    hunks: Vec<Hunk>,
    /// The new and changed lines, by their number with the change.
    edited: BTreeMap<u32, EditedLine>,
    /// The lines beside removed ones.
    removed: BTreeSet<u32>,
}

/// A new or changed line.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct EditedLine {
    /// The text with the change.
    pub(super) text: String,
    /// The text before the change; `None` for a new line.
    pub(super) before: Option<String>,
}

/// Lines that were replaced by others.
#[derive(Debug, Default, Clone, PartialEq, Eq)]
struct Hunk {
    /// The first line before the change, and the number of lines. Without lines, it is the line before the hunk.
    before: (u32, u32),
    /// The same with the change.
    after: (u32, u32),
    removed: Vec<String>,
    added: Vec<String>,
}

impl SourceChanges {
    /// Parses what `git diff --unified=0` prints, and adds the files that git does not track yet, each with its text.
    ///
    /// Lines that are not part of a text file's diff are ignored.
    #[must_use]
    pub fn parse(diff: &str, untracked: Vec<(String, String)>) -> Self {
        let mut files: BTreeMap<String, ChangedFile> = BTreeMap::new();
        let mut before = String::new();
        let mut current: Option<String> = None;
        // The numbers of lines that the current hunk still has, so that a removed line `-- a/x` is not a file name.
        let mut left = (0, 0);
        for line in diff.lines() {
            if left != (0, 0) {
                let hunk = current
                    .as_ref()
                    .and_then(|file| files.get_mut(file))
                    .and_then(|file| file.hunks.last_mut());
                match line.as_bytes().first() {
                    Some(b'-') if left.0 > 0 => {
                        left.0 -= 1;
                        hunk.into_iter()
                            .for_each(|hunk| hunk.removed.push(line[1..].to_owned()));
                    }
                    Some(b'+') if left.1 > 0 => {
                        left.1 -= 1;
                        hunk.into_iter().for_each(|hunk| hunk.added.push(line[1..].to_owned()));
                    }
                    // `\ No newline at end of file`
                    Some(b'\\') => {}
                    // Not a line of the hunk, so the hunk's header was wrong.
                    _ => left = (0, 0),
                }
                if left != (0, 0) || line.starts_with(['-', '+', '\\']) {
                    continue;
                }
            }
            // A file that only has another name has no other lines than these two.
            if let Some(name) = line.strip_prefix("rename from ") {
                before = name.to_owned();
            } else if let Some(name) = line.strip_prefix("rename to ") {
                files.entry(name.to_owned()).or_default().before = std::mem::take(&mut before);
            } else if let Some(name) = line.strip_prefix("--- ") {
                before = file_name(name, "a/").unwrap_or_default();
            } else if let Some(name) = line.strip_prefix("+++ ") {
                // A deleted file has no new name, but its lines may be in another file now.
                let new = file_name(name, "b/");
                let is_deleted = new.is_none() && name.trim_end() == "/dev/null";
                current = match is_deleted {
                    true => Some(before.clone()).filter(|before| !before.is_empty()),
                    false => new,
                };
                if let Some(name) = &current {
                    let file = files.entry(name.clone()).or_default();
                    file.before = std::mem::take(&mut before);
                    file.is_deleted = is_deleted;
                }
            } else if let (Some(hunk), Some(file)) = (Hunk::parse(line), &current) {
                left = (hunk.before.1, hunk.after.1);
                files.entry(file.clone()).or_default().hunks.push(hunk);
            }
        }
        for (file, text) in untracked {
            let added: Vec<String> = text.lines().map(str::to_owned).collect();
            let lines = u32::try_from(added.len()).unwrap_or(u32::MAX);
            files.entry(file).or_default().hunks.push(Hunk {
                before: (0, 0),
                after: (1, lines),
                removed: Vec::new(),
                added,
            });
        }
        Self::from_files(files)
    }

    /// Compares the texts of single lines, by file and line. A line is edited if the other side has no such text.
    #[must_use]
    pub fn from_texts<'a>(
        before: impl Iterator<Item = (&'a str, u32, &'a str)>,
        after: impl Iterator<Item = (&'a str, u32, &'a str)>,
    ) -> Self {
        // Several lines may have one text. They stay in their order.
        let mut known: BTreeMap<String, VecDeque<(String, u32)>> = BTreeMap::new();
        for (file, line, text) in before {
            known.entry(bare(text)).or_default().push_back((file.to_owned(), line));
        }
        let mut files: BTreeMap<String, ChangedFile> = BTreeMap::new();
        let mut places = BTreeMap::new();
        for (file, line, text) in after {
            if let Some(older) = known.get_mut(&bare(text)).and_then(VecDeque::pop_front) {
                places.insert(older, (file.to_owned(), line));
                continue;
            }
            if !is_idle(file, text) {
                let edited = EditedLine {
                    text: text.to_owned(),
                    before: None,
                };
                files.entry(file.to_owned()).or_default().edited.insert(line, edited);
            }
        }
        let gone = known.into_values().flatten().collect();
        Self {
            files,
            known: places,
            gone,
        }
    }

    fn from_files(mut files: BTreeMap<String, ChangedFile>) -> Self {
        // What was removed anywhere may have moved here. Each removed line explains one added line.
        let mut gone: HashMap<String, u32> = HashMap::new();
        let mut skeletons: HashMap<String, Vec<String>> = HashMap::new();
        for removed in files
            .values()
            .flat_map(|file| &file.hunks)
            .flat_map(|hunk| &hunk.removed)
        {
            *gone.entry(bare(removed)).or_default() += 1;
            skeletons.entry(skeleton(removed)).or_default().push(removed.clone());
        }
        // A line moved within its hunk rather than from another place, and within its file rather than from another.
        let mut moved: BTreeSet<(String, u32)> = BTreeSet::new();
        for (name, file) in &files {
            for hunk in &file.hunks {
                moved.extend(claimed(name, std::slice::from_ref(hunk), &moved, &mut gone));
            }
        }
        for (name, file) in &files {
            moved.extend(claimed(name, &file.hunks, &moved, &mut gone));
        }
        let mut whole = WholeChange {
            gone,
            moved,
            skeletons,
            comparisons: MOST_COMPARISONS,
        };
        for (name, file) in &mut files {
            for hunk in &file.hunks {
                hunk.read(name, &mut whole, &mut file.edited, &mut file.removed);
            }
        }
        Self {
            files,
            known: BTreeMap::new(),
            gone: BTreeSet::new(),
        }
    }

    /// Returns the edited line at a place; `None` if the change does not edit it.
    pub(super) fn at(&self, file: &str, line: u32) -> Option<&EditedLine> {
        self.files.get(file)?.edited.get(&line)
    }

    /// Whether lines were removed just before or after a line.
    pub(super) fn is_beside_removed(&self, file: &str, line: u32) -> bool {
        self.files.get(file).is_some_and(|file| file.removed.contains(&line))
    }

    /// Returns every edited line with its place, by file and line.
    pub(super) fn edited(&self) -> impl Iterator<Item = (&str, u32, &EditedLine)> {
        self.files.iter().flat_map(|(name, file)| {
            file.edited
                .iter()
                .map(move |(line, edited)| (name.as_str(), *line, edited))
        })
    }

    /// Returns the files that the change edits.
    pub(super) fn files(&self) -> impl Iterator<Item = &str> {
        self.files.keys().map(String::as_str)
    }

    /// Returns where a line of the older version is with the change; `None` if it was removed or replaced.
    pub(super) fn moved(&self, file: &str, line: u32) -> Option<(String, u32)> {
        if let Some(known) = self.known.get(&(file.to_owned(), line)) {
            return Some(known.clone());
        }
        if self.gone.contains(&(file.to_owned(), line)) {
            return None;
        }
        let mut found = self.files.iter().filter(|(_, changed)| changed.before == file);
        let Some((name, changed)) = found.next() else {
            // The change does not touch the file.
            return Some((file.to_owned(), line));
        };
        if changed.is_deleted {
            return None;
        }
        let mut shift = 0_i64;
        for hunk in &changed.hunks {
            let (first, count) = hunk.before;
            // A hunk without old lines stands after its line, so that line does not move.
            let begins = if count == 0 { first.saturating_add(1) } else { first };
            if line < begins {
                break;
            }
            if line < begins.saturating_add(count) {
                // A changed line stays comparable if its hunk replaces line by line, or if it has a newer text.
                let same = hunk.before.1 == hunk.after.1;
                let same = same.then(|| hunk.after.0.saturating_add(line - first));
                let same = same.or_else(|| hunk.newer(line - first, &changed.edited));
                return same.map(|line| (name.clone(), line));
            }
            shift += i64::from(hunk.after.1) - i64::from(count);
        }
        let line = u32::try_from(i64::from(line) + shift).ok()?;
        Some((name.clone(), line))
    }
}

/// Returns the added lines of some hunks of a file whose text the same hunks remove. Takes each from `gone`, which counts
/// the removed lines that explain no added line yet.
fn claimed(
    file: &str,
    hunks: &[Hunk],
    moved: &BTreeSet<(String, u32)>,
    gone: &mut HashMap<String, u32>,
) -> Vec<(String, u32)> {
    let mut own: HashMap<String, u32> = HashMap::new();
    for removed in hunks.iter().flat_map(|hunk| &hunk.removed) {
        *own.entry(bare(removed)).or_default() += 1;
    }
    let mut found = Vec::new();
    for (number, text) in hunks.iter().flat_map(|hunk| (hunk.after.0..).zip(&hunk.added)) {
        let place = (file.to_owned(), number);
        let text = bare(text);
        let is_new = !moved.contains(&place);
        let (Some(here), Some(left)) = (own.get_mut(&text), gone.get_mut(&text)) else {
            continue;
        };
        if is_new && *here > 0 && *left > 0 {
            *here -= 1;
            *left -= 1;
            found.push(place);
        }
    }
    found
}

impl Hunk {
    /// Parses `@@ -12,3 +12,4 @@`.
    fn parse(line: &str) -> Option<Self> {
        let mut words = line.strip_prefix("@@ ")?.split(' ');
        let range = |word: &str, sign: char| {
            let word = word.strip_prefix(sign)?;
            let (first, count) = word.split_once(',').unwrap_or((word, "1"));
            Some((first.parse().ok()?, count.parse().ok()?))
        };
        let (before, after) = (range(words.next()?, '-')?, range(words.next()?, '+')?);
        Some(Self {
            before,
            after,
            removed: Vec::new(),
            added: Vec::new(),
        })
    }

    /// Returns the new number of a removed line, given by its place in the hunk, whose text the change edits.
    fn newer(&self, removed: u32, edited: &BTreeMap<u32, EditedLine>) -> Option<u32> {
        let text = self.removed.get(removed as usize)?.trim();
        let lines = self.after.0..self.after.0.saturating_add(self.after.1);
        let mut lines = edited.range(lines);
        let (line, _) = lines.find(|(_, edited)| edited.before.as_deref() == Some(text))?;
        Some(*line)
    }

    fn read(
        &self,
        file: &str,
        whole: &mut WholeChange,
        edited: &mut BTreeMap<u32, EditedLine>,
        removed: &mut BTreeSet<u32>,
    ) {
        let bytes = |lines: &[String]| lines.iter().map(String::len).sum::<usize>();
        let comparisons = bytes(&self.removed).saturating_mul(bytes(&self.added));
        let left = whole.comparisons.checked_sub(comparisons);
        whole.comparisons = left.unwrap_or(whole.comparisons);
        let here: HashSet<&str> = self.removed.iter().map(String::as_str).collect();
        for (number, text) in (self.after.0..).zip(&self.added) {
            if is_idle(file, text) || whole.moved.contains(&(file.to_owned(), number)) {
                continue;
            }
            if let Some(left) = whole.gone.get_mut(&bare(text)).filter(|left| **left > 0) {
                *left -= 1;
                continue;
            }
            let same_line = whole.same_line(text, &here);
            let older = same_line.or_else(|| left.and_then(|_| self.most_similar(text)));
            edited.insert(
                number,
                EditedLine {
                    text: text.trim().to_owned(),
                    before: older.map(|older| older.trim().to_owned()),
                },
            );
        }
        if self.after.1 == 0 && self.removed.iter().any(|text| !is_idle(file, text)) {
            removed.extend([self.after.0, self.after.0.saturating_add(1)]);
        }
    }

    /// Returns the removed line of this hunk that is most similar to an added one.
    fn most_similar(&self, text: &str) -> Option<&str> {
        let likeness = |removed: &str| {
            // Such long lines are generated.
            if removed.len().max(text.len()) > LONGEST {
                return None;
            }
            // A comparison without fractions, so that it has an order.
            let likeness = strsim::normalized_levenshtein(removed.trim(), text.trim());
            (likeness >= LIKE).then_some((likeness * 1000.0) as u32)
        };
        let removed = self.removed.iter().map(String::as_str);
        let similar = removed.filter_map(|removed| Some((likeness(removed)?, removed)));
        similar
            .max_by_key(|(likeness, _)| *likeness)
            .map(|(_, removed)| removed)
    }
}

/// What the hunks of a change share while they look for the older texts of their lines.
struct WholeChange {
    /// How many times each removed line, without blanks, explains no added line yet.
    gone: HashMap<String, u32>,
    /// The added lines that the change removes elsewhere.
    moved: BTreeSet<(String, u32)>,
    /// The removed lines by [`skeleton`].
    skeletons: HashMap<String, Vec<String>>,
    /// How many pairs of letters may still be compared.
    comparisons: usize,
}

impl WholeChange {
    /// Returns the removed line that differs from an added one only in its numbers. Prefers one of the same hunk, whose
    /// removed lines are `here`.
    fn same_line(&self, text: &str, here: &HashSet<&str>) -> Option<&str> {
        let all = self.skeletons.get(&skeleton(text))?;
        // A generated file may have many thousand such lines.
        let nearest = all.iter().take(MOST_ALIKE).find(|text| here.contains(text.as_str()));
        nearest.or(all.first()).map(String::as_str)
    }
}

/// The longest line in bytes that is compared letter by letter.
const LONGEST: usize = 400;

/// The most pairs of letters that are compared in a whole change: about a second.
const MOST_COMPARISONS: usize = 1_000_000_000;

/// The most removed lines with the same [`skeleton`] among which one of the same hunk is looked for.
const MOST_ALIKE: usize = 100;

/// How similar a removed line must be to count as the older text of an added one.
const LIKE: f64 = 0.5;

/// Returns a file's name without git's prefix; `None` for no file, and for a name that git had to escape.
fn file_name(name: &str, prefix: &str) -> Option<String> {
    // Git ends a name with a tab if it contains a blank.
    Some(name.trim_end_matches('\t').strip_prefix(prefix)?.to_owned())
}

/// Whether a line cannot change what a model needs: blank lines, comments, imports and brackets.
fn is_idle(file: &str, text: &str) -> bool {
    let code = code(file, text);
    let imports = [
        "use ",
        "pub use ",
        "pub(crate) use ",
        "mod ",
        "pub mod ",
        "#![",
        "#[doc",
        "extern crate ",
    ];
    !code.contains(|c: char| c.is_alphanumeric()) || imports.iter().any(|import| code.starts_with(import))
}

/// Returns the code of a line: without comment and without blanks around it.
fn code<'a>(file: &str, text: &'a str) -> &'a str {
    let is_rust = file.ends_with(".rs");
    let sign = if is_rust { "//" } else { "#" };
    let mut quoted = false;
    for (at, c) in text.char_indices() {
        match c {
            '"' => quoted = !quoted,
            _ if !quoted && text[at..].starts_with(sign) => return text[..at].trim(),
            _ => {}
        }
    }
    text.trim()
}

/// Returns a line without blanks, to recognise it after a change of indentation.
fn bare(text: &str) -> String {
    text.split_whitespace().collect()
}

/// Returns a line with a sign for each number, to recognise it with other numbers.
fn skeleton(text: &str) -> String {
    let mut skeleton = String::new();
    let mut in_number = false;
    let mut in_word = false;
    for c in text.chars().filter(|c| !c.is_whitespace()) {
        let digit = c.is_ascii_digit() || (in_number && matches!(c, '_' | '.'));
        if digit && !in_word {
            if !in_number {
                skeleton.push('#');
            }
            in_number = true;
            continue;
        }
        in_number = false;
        in_word = c.is_alphanumeric() || c == '_';
        skeleton.push(c);
    }
    skeleton
}

/// Returns the numbers of a line, in order: `1_024` is 1024. The digits of a name do not count.
fn numbers(text: &str) -> Vec<u64> {
    let is_word = |c: char| c.is_alphanumeric() || c == '_';
    let words = text.split(|c: char| !is_word(c)).filter(|word| !word.is_empty());
    let number = |word: &str| {
        let digits: String = word.chars().filter(|c| *c != '_').collect();
        // `64usize` is a number with its type.
        let digits = digits
            .trim_end_matches("usize")
            .trim_end_matches("u64")
            .trim_end_matches("u32");
        digits.parse().ok()
    };
    words.filter_map(number).collect()
}

impl EditedLine {
    /// Returns the numbers that differ from the older text, as pairs; empty if the line has other numbers in number.
    pub(super) fn changed_numbers(&self) -> Vec<(u64, u64)> {
        let before = numbers(self.before.as_deref().unwrap_or_default());
        let after = numbers(&self.text);
        if before.len() != after.len() {
            return Vec::new();
        }
        let pairs = before.into_iter().zip(after);
        pairs.filter(|(before, after)| before != after).collect()
    }

    /// Returns the numbers of the new text.
    pub(super) fn numbers(&self) -> Vec<u64> {
        numbers(&self.text)
    }

    /// Whether the line contains a word, as a whole identifier.
    pub(super) fn mentions(&self, word: &str) -> bool {
        words(&self.text).any(|own| own == word)
    }

    /// Whether the line makes a layer or an optimizer.
    pub(super) fn makes(&self) -> bool {
        let makers = ["Config::new", "::new(", ".init("];
        makers.iter().any(|maker| self.text.contains(maker))
    }

    /// Returns the words that only the new text has.
    pub(super) fn new_words(&self) -> impl Iterator<Item = &str> {
        let before: Vec<&str> = self.before.iter().flat_map(|text| words(text)).collect();
        words(&self.text).filter(move |word| !before.contains(word))
    }
}

/// Returns the identifiers of a line.
pub(super) fn words(text: &str) -> impl Iterator<Item = &str> {
    text.split(|c: char| !c.is_alphanumeric() && c != '_')
        .filter(|word| word.starts_with(|c: char| c.is_alphabetic() || c == '_'))
}

#[cfg(test)]
mod tests {
    use super::*;

    const DIFF: &str = "\
diff --git a/src/model.rs b/src/model.rs
index 1..2 100644
--- a/src/model.rs
+++ b/src/model.rs
@@ -1,2 +1,2 @@ use x;
-use burn::nn::Linear;
-// The old comment.
+use burn::nn::{Linear, Relu};
+// The new comment.
@@ -41 +41 @@ impl Model
-            fc1: LinearConfig::new(1024, 4096).init(device), // as before
+            fc1: LinearConfig::new(1_024, 6144).init(device),
@@ -50,2 +49,0 @@ impl Model
-        drop(cache);
-        // gone
@@ -60,0 +59,2 @@ impl Model
+        let copy = output.clone();
+-- a/src/model.rs
";

    #[test]
    fn edited_lines_have_their_number_and_their_older_text() {
        let changes = SourceChanges::parse(DIFF, Vec::new());
        let edited: Vec<_> = changes.edited().map(|(_, line, _)| line).collect();
        assert_eq!(edited, [41, 59, 60]);
        let line = changes.at("src/model.rs", 41).unwrap();
        assert_eq!(line.changed_numbers(), [(4096, 6144)]);
        assert!(changes.at("src/model.rs", 2).is_none(), "a comment costs nothing");
        assert!(changes.is_beside_removed("src/model.rs", 49) && changes.is_beside_removed("src/model.rs", 50));
        assert_eq!(changes.files().collect::<Vec<_>>(), ["src/model.rs"]);
    }

    #[test]
    fn older_lines_are_found_at_their_new_place() {
        let changes = SourceChanges::parse(DIFF, Vec::new());
        let moved = |line| changes.moved("src/model.rs", line).map(|(_, line)| line);
        assert_eq!(moved(40), Some(40));
        assert_eq!(moved(41), Some(41), "it was edited, but it is the same line");
        assert_eq!(moved(50), None);
        assert_eq!(moved(60), Some(58));
        assert_eq!(moved(61), Some(61));
        assert_eq!(changes.moved("src/other.rs", 7), Some(("src/other.rs".to_owned(), 7)));
    }

    #[test]
    fn a_line_that_only_moved_is_not_edited_and_one_with_another_number_is() {
        let diff = "\
--- a/src/model.rs
+++ b/src/model.rs
@@ -10,2 +9,0 @@
-        let head = LinearConfig::new(512, 1024);
-        let tail = LinearConfig::new(512, 10);
--- /dev/null
+++ b/src/head.rs
@@ -0,0 +1,3 @@
+pub fn head() {
+    let head = LinearConfig::new(512, 2048);
+    let tail = LinearConfig::new(512, 10);
";
        let changes = SourceChanges::parse(diff, Vec::new());
        let edited: Vec<_> = changes.edited().map(|(file, line, _)| (file, line)).collect();
        assert_eq!(edited, [("src/head.rs", 1), ("src/head.rs", 2)]);
        assert_eq!(changes.at("src/head.rs", 2).unwrap().changed_numbers(), [(1024, 2048)]);
    }

    #[test]
    fn the_digits_of_names_do_not_count() {
        assert_eq!(
            numbers("let conv2d = Conv2dConfig::new([3, 64], [7usize, 1_000]);"),
            [3, 64, 7, 1000]
        );
        assert_eq!(skeleton("fc1: new(1_024, 4096)"), "fc1:new(#,#)");
    }

    #[test]
    fn comments_are_left_out_but_not_signs_within_quotes() {
        assert_eq!(code("a.rs", "  x(\"http://y\"); // z"), "x(\"http://y\");");
        assert_eq!(code("a.yaml", "batch_size: 64 # more"), "batch_size: 64");
        assert!(is_idle("a.rs", "    }") && is_idle("a.rs", "pub use x::y;") && is_idle("a.toml", "# x"));
        assert!(!is_idle("a.toml", "batch = 64"));
    }

    #[test]
    fn without_git_a_text_that_the_other_side_lacks_is_edited() {
        let before = [("a.rs", 3, "x.forward(y)"), ("a.rs", 4, "old(1)")];
        let after = [("b.rs", 9, "x.forward( y )"), ("a.rs", 4, "new(1)")];
        let changes = SourceChanges::from_texts(before.into_iter(), after.into_iter());
        let edited: Vec<_> = changes.edited().map(|(file, line, _)| (file, line)).collect();
        assert_eq!(edited, [("a.rs", 4)]);
    }
}
