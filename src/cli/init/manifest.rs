//! Edits a `Cargo.toml` without changing anything else in it.

use std::ops::Range;

use camino::Utf8Path;
use toml_edit::{Array, Document, InlineTable, Item, Table, Value};

use super::BENCH;
use super::error::InitError;
use super::source::DependencySource;

/// The packages that do the work of a pass on the host.
///
/// With only these optimized, a first check took 4.5 minutes; with every dependency optimized, it took 7.5 minutes.
const OPTIMIZED: [&str; 33] = [
    // Not `package."*"`, which also optimizes proc macros and build scripts. See docs/design/builds.md.
    "cargo-vram",
    "cargo-vram-generics-0_21",
    "burn-autodiff",
    "burn-backend",
    "burn-cubecl",
    "burn-cubecl-fusion",
    "burn-fusion",
    "burn-ir",
    "burn-std",
    "burn-tensor",
    "cubecl-common",
    "cubecl-core",
    "cubecl-cpp",
    "cubecl-cuda",
    "cubecl-environment",
    "cubecl-ir",
    "cubecl-llvm",
    "cubecl-opt",
    "cubecl-runtime",
    "cubecl-server",
    "cubecl-std",
    "cubecl-zspace",
    "cubek-attention",
    "cubek-convolution",
    "cubek-matmul",
    "cubek-quant",
    "cubek-random",
    "cubek-reduce",
    "cubek-std",
    "hashbrown",
    "pliron",
    "pliron-llvm",
    "slotmap",
];
/// The profile's entry for each of these packages.
const OPTIMIZATION: &str = "{ opt-level = 1 }";

/// The text of a manifest. Every edit only inserts text.
pub(super) struct CargoManifest {
    // Text, because edits must leave comments, order and line ends of the user's file alone.
    text: String,
}

impl CargoManifest {
    pub(super) fn parse(text: String) -> Result<Self, toml_edit::TomlError> {
        Document::parse(text.as_str())?;
        Ok(Self { text })
    }

    pub(super) fn text(&self) -> &str {
        &self.text
    }

    /// Whether the manifest declares a benchmark named `vram`.
    pub(super) fn has_bench(&self) -> bool {
        let document = self.document();
        let targets = document.get("bench").and_then(Item::as_array_of_tables);
        let is_it = |target: &Table| target.get("name").and_then(Item::as_str) == Some(BENCH);
        targets.into_iter().flatten().any(is_it)
    }

    /// Adds the benchmark's target.
    pub(super) fn add_bench(&mut self, path: &Utf8Path) -> Result<(), InitError> {
        if self
            .document()
            .get("bench")
            .is_some_and(|item| !item.is_array_of_tables())
        {
            return Err(InitError::Declared(
                path.to_owned(),
                "`bench` as an inline value, to which init cannot add a target",
            ));
        }
        if self.has_bench() {
            return Err(InitError::Declared(path.to_owned(), "a benchmark named `vram`"));
        }
        // `models!` writes the `main` of the benchmark. Cargo's harness would put its own there.
        self.append(&format!("[[bench]]\nname = \"{BENCH}\"\nharness = false\n"));
        Ok(())
    }

    /// Adds the development dependency on cargo-vram.
    pub(super) fn add_cargo_vram(
        &mut self,
        path: &Utf8Path,
        source: &DependencySource,
        adapter: &str,
        train: bool,
    ) -> Result<(), InitError> {
        if self.has_dependency("cargo-vram") {
            return Err(InitError::Declared(path.to_owned(), "a dependency on cargo-vram"));
        }
        let mut keys = source.keys(path);
        // The default feature `cli` would compile the whole command-line tool for the benchmark.
        keys.insert("default-features", false.into());
        let mut features = Array::from_iter([adapter]);
        if train {
            features.push("train");
        }
        keys.insert("features", Value::Array(features));
        self.add_dependency(path, &format!("cargo-vram = {keys}\n"))
    }

    /// Adds a development dependency on the package's Burn with more features, and returns whether that was possible.
    ///
    /// It is not possible if `[dependencies]` does not declare Burn, or if Burn is already a development dependency.
    pub(super) fn add_burn_features(
        &mut self,
        path: &Utf8Path,
        features: &[String],
        binaries: &str,
    ) -> Result<bool, InitError> {
        let declared = {
            let document = self.document();
            let dependencies = document.get("dependencies").and_then(Item::as_table_like);
            let mut all = dependencies.into_iter().flat_map(toml_edit::TableLike::iter);
            let found = all.find(|(name, item)| is_burn(name, item));
            found.map(|(name, item)| (name.to_owned(), same_source(item)))
        };
        let Some((name, mut keys)) = declared else {
            return Ok(false);
        };
        // A key that is there twice is not valid TOML.
        if self.has_dependency(&name) {
            return Ok(false);
        }
        // An inherited dependency takes `default-features` from the workspace. For others, `false` turns
        // nothing off: Cargo adds up the features of both tables.
        let is_inherited = keys.contains_key("workspace");
        if !is_inherited {
            keys.insert("default-features", false.into());
        }
        keys.insert("features", Value::Array(features.iter().map(String::as_str).collect()));
        let line = format!(
            "# The Burn features of {binaries}, so that cargo-vram runs the models as they are deployed. A development dependency\n\
             # turns them on for benchmarks and tests only, not for packages that depend on this one.\n\
             {name} = {keys}\n"
        );
        self.add_dependency(path, &line)?;
        Ok(true)
    }

    /// Adds the missing lines of the profile that makes checks fast, and returns them.
    ///
    /// `is_used` says whether the workspace is built with a package: Cargo warns about others. If the manifest already
    /// sets the optimization level of all packages, or of one of these, that level stays.
    pub(super) fn add_profile(&mut self, is_used: impl Fn(&str) -> bool) -> String {
        // `explain` needs line tables for source lines. Full debug information would make the build larger.
        let mut added = self.add_lines(&["profile", "dev"], &[("debug", "\"line-tables-only\"")]);
        let packages = ["profile", "dev", "package"];
        // Cargo refuses a package that a profile names twice. A name may contain a version: `hashbrown@0.15.0`.
        let named: Vec<String> = self
            .item(&packages)
            .and_then(|item| Some(item.as_table_like()?.iter().map(|(name, _)| name.to_owned()).collect()))
            .unwrap_or_default();
        let is_named = |name: &str| named.iter().any(|spec| spec.split(['@', ':']).next() == Some(name));
        let is_optimized = is_named("*") || self.item(&["profile", "dev", "opt-level"]).is_some();
        if !is_optimized {
            let names = OPTIMIZED.into_iter().filter(|name| is_used(name) && !is_named(name));
            let lines: Vec<_> = names.map(|name| (name, OPTIMIZATION)).collect();
            let more = self.add_lines(&packages, &lines);
            let gap = if added.is_empty() || more.is_empty() { "" } else { "\n" };
            added += &format!("{gap}{more}");
        }
        added
    }

    /// Adds the lines that a table lacks, and its header if needed, and returns them.
    fn add_lines(&mut self, table: &[&str], lines: &[(&str, &str)]) -> String {
        let is_missing = |(key, _): &&(&str, &str)| self.item(&[table, &[*key]].concat()).is_none();
        let missing = lines.iter().filter(is_missing);
        let text: String = missing.map(|(key, value)| format!("{key} = {value}\n")).collect();
        if text.is_empty() {
            return text;
        }
        let header = format!("[{}]\n", table.join("."));
        match self.end_of(table) {
            Some(end) => self.insert(end, &text),
            None if self.takes_header(table) => self.append(&format!("{header}{text}")),
            // The table is written inline or with dots, so no line can be added.
            None => return String::new(),
        }
        header + &text
    }

    /// Whether a header of this table can be appended.
    ///
    /// The table must have no header yet. Neither the table nor its parents may be written inline or with dots.
    fn takes_header(&self, table: &[&str]) -> bool {
        (1..=table.len()).all(|depth| match self.item(&table[..depth]) {
            None => true,
            Some(Item::Table(found)) => !found.is_dotted() && (depth < table.len() || found.is_implicit()),
            Some(_) => false,
        })
    }

    fn item(&self, path: &[&str]) -> Option<Item> {
        let document = self.document();
        path.iter()
            .try_fold(document.as_item(), |item, name| item.get(name))
            .cloned()
    }

    #[expect(
        clippy::manual_unwrap_or_default,
        reason = "only a document of static text has a default, so `unwrap_or_default` would require that of this text"
    )]
    fn document(&self) -> Document<&str> {
        // The text was parsed before, and only whole lines were added, so this cannot fail.
        match Document::parse(self.text.as_str()) {
            Ok(document) => document,
            Err(_) => Document::default(),
        }
    }

    fn has_dependency(&self, name: &str) -> bool {
        let document = self.document();
        let dependencies = document.get("dev-dependencies").and_then(Item::as_table_like);
        dependencies.is_some_and(|dependencies| dependencies.contains_key(name))
    }

    fn add_dependency(&mut self, path: &Utf8Path, line: &str) -> Result<(), InitError> {
        const TABLE: &[&str] = &["dev-dependencies"];
        let has_no_header = match self.document().get("dev-dependencies") {
            None => true,
            // With only `[dev-dependencies.insta]`, the table itself has no header yet.
            Some(Item::Table(table)) => table.is_implicit() && !table.is_dotted(),
            Some(_) => false,
        };
        match self.end_of(TABLE) {
            Some(end) => self.insert(end, line),
            None if has_no_header => self.append(&format!("[dev-dependencies]\n{line}")),
            None => {
                return Err(InitError::Declared(
                    path.to_owned(),
                    "`dev-dependencies` inline or with dots, to which init cannot add a line",
                ));
            }
        }
        Ok(())
    }

    /// Returns where a line can be added to a table: after its last key and the comments that belong to it.
    fn end_of(&self, table: &[&str]) -> Option<usize> {
        let document = self.document();
        let root: &Item = document.as_item();
        let found = table.iter().try_fold(root, |item, name| item.get(name))?;
        let table = found
            .as_table()
            .filter(|table| !table.is_implicit() && !table.is_dotted())?;
        let last = last_byte(table)?;
        let mut end = self.line_end(last.saturating_sub(1));
        // A comment before a blank line or the end of the file belongs to the table. A comment right above a header
        // belongs to that header.
        let mut after = end;
        while self.text[after..].trim_start_matches([' ', '\t']).starts_with('#') {
            after = self.line_end(after);
        }
        if self.text[after..]
            .trim_start_matches([' ', '\t', '\r'])
            .starts_with('\n')
            || self.text[after..].trim().is_empty()
        {
            end = after;
        }
        Some(end)
    }

    /// Returns the end of the line that contains a byte.
    fn line_end(&self, at: usize) -> usize {
        self.text[at..]
            .find('\n')
            .map_or(self.text.len(), |found| at + found + 1)
    }

    fn insert(&mut self, at: usize, lines: &str) {
        let is_at_line = at == 0 || self.text[..at].ends_with('\n');
        // A file must not have two kinds of line ends.
        let newline = if self.text.contains("\r\n") { "\r\n" } else { "\n" };
        let before = if is_at_line { "" } else { newline };
        self.text
            .insert_str(at, &format!("{before}{}", lines.replace('\n', newline)));
    }

    fn append(&mut self, table: &str) {
        let gap = match self.text.as_str() {
            "" => "",
            text if text.ends_with("\n\n") => "",
            text if text.ends_with('\n') => "\n",
            _ => "\n\n",
        };
        self.insert_at_end(&format!("{gap}{table}"));
    }

    fn insert_at_end(&mut self, lines: &str) {
        let newline = if self.text.contains("\r\n") { "\r\n" } else { "\n" };
        self.text += &lines.replace('\n', newline);
    }
}

/// Returns the end of a table's last value, or of its header if it has no values.
fn last_byte(table: &Table) -> Option<usize> {
    // Tables with headers of their own come later in the file. A line after them would belong to them.
    let of_item = |item: &Item| match item {
        Item::Value(value) => value.span(),
        Item::Table(inner) if inner.is_dotted() => last_byte(inner).map(|end| 0..end),
        _ => None,
    };
    let values = table
        .iter()
        .filter_map(|(_, item)| of_item(item))
        .map(|span: Range<usize>| span.end);
    values.chain(table.span().map(|span| span.start + 1)).max()
}

fn is_burn(name: &str, item: &Item) -> bool {
    match item.get("package").and_then(Item::as_str) {
        Some(package) => package == "burn",
        None => name == "burn",
    }
}

/// Returns the keys that say where a dependency comes from, without its features.
fn same_source(declared: &Item) -> InlineTable {
    let mut keys = InlineTable::new();
    if let Some(version) = declared.as_str() {
        keys.insert("version", version.into());
        return keys;
    }
    for key in [
        // Never the features: those of `[dependencies]` count here in any case.
        "workspace",
        "version",
        "git",
        "branch",
        "tag",
        "rev",
        "path",
        "registry",
        "package",
    ] {
        if let Some(mut value) = declared.get(key).and_then(Item::as_value).cloned() {
            value.decor_mut().clear();
            keys.insert(key, value);
        }
    }
    keys
}

#[cfg(test)]
mod tests {
    use super::*;

    fn edited(text: &str) -> String {
        let mut manifest = CargoManifest::parse(text.to_owned()).unwrap();
        let path = Utf8Path::new("/x/Cargo.toml");
        manifest
            .add_cargo_vram(path, &DependencySource::Registry, "burn-0_21", true)
            .unwrap();
        manifest.add_bench(path).unwrap();
        manifest.text().to_owned()
    }

    #[test]
    fn comments_stay_where_they_are() {
        let line = format!(
            "cargo-vram = {{ version = \"{}\", default-features = false, features = [\"burn-0_21\", \"train\"] }}\n",
            env!("CARGO_PKG_VERSION")
        );
        let bench = "[[bench]]\nname = \"vram\"\nharness = false\n";
        for (before, after) in [
            (
                "[dev-dependencies]\ninsta = \"1\" # why\n# other = \"2\"\n\n# about the lints\n[lints]\n",
                format!(
                    "[dev-dependencies]\ninsta = \"1\" # why\n# other = \"2\"\n{line}\n# about the lints\n[lints]\n\n{bench}"
                ),
            ),
            (
                "[dev-dependencies]\ninsta = \"1\"\n# the last words\n",
                format!("[dev-dependencies]\ninsta = \"1\"\n# the last words\n{line}\n{bench}"),
            ),
            (
                "[dev-dependencies]\ninsta = \"1\"\n# about the lints\n[lints]\n",
                format!("[dev-dependencies]\ninsta = \"1\"\n{line}# about the lints\n[lints]\n\n{bench}"),
            ),
            (
                "[dev-dependencies] # none yet\n\n[lints]\n",
                format!("[dev-dependencies] # none yet\n{line}\n[lints]\n\n{bench}"),
            ),
            (
                "[dev-dependencies.insta]\nversion = \"1\"\n# end",
                format!("[dev-dependencies.insta]\nversion = \"1\"\n# end\n\n[dev-dependencies]\n{line}\n{bench}"),
            ),
            (
                "[dev-dependencies]\ninsta = { version = \"1\", features = [\n  \"json\",\n] }",
                format!(
                    "[dev-dependencies]\ninsta = {{ version = \"1\", features = [\n  \"json\",\n] }}\n{line}\n{bench}"
                ),
            ),
            ("", format!("[dev-dependencies]\n{line}\n{bench}")),
            (
                "[dev-dependencies]\r\ninsta = \"1\"\r\n",
                format!("[dev-dependencies]\n{}{line}\n{bench}", "insta = \"1\"\n").replace('\n', "\r\n"),
            ),
        ] {
            assert_eq!(edited(before), after, "{before}");
            Document::parse(edited(before)).unwrap();
        }
    }

    #[test]
    fn burns_features_come_with_the_same_burn() {
        for (declared, expected) in [
            (
                "burn = \"0.21\"",
                "burn = { version = \"0.21\", default-features = false, features = [\"fusion\"] }",
            ),
            (
                "burn.workspace = true",
                "burn = { workspace = true, features = [\"fusion\"] }",
            ),
            (
                "b = { package = \"burn\", git = \"https://example.org/burn\", rev = \"abc\", features = [\"std\"] }",
                "b = { git = \"https://example.org/burn\", rev = \"abc\", package = \"burn\", default-features = false, features = [\"fusion\"] }",
            ),
        ] {
            let mut manifest = CargoManifest::parse(format!("[dependencies]\n{declared}\n")).unwrap();
            let path = Utf8Path::new("/x/Cargo.toml");
            assert!(
                manifest
                    .add_burn_features(path, &["fusion".to_owned()], "`app`")
                    .unwrap()
            );
            let text = manifest.text().to_owned();
            assert!(text.ends_with(&format!("{expected}\n")), "{text}");
            assert!(text.contains("features of `app`"), "{text}");
        }
        let mut manifest = CargoManifest::parse("[dependencies]\nserde = \"1\"\n".to_owned()).unwrap();
        let added = manifest.add_burn_features(Utf8Path::new("/x/Cargo.toml"), &[], "");
        assert!(!added.unwrap());
    }

    #[test]
    fn the_profile_that_is_offered_names_packages_that_there_are() {
        let lock = include_str!("../../../Cargo.lock");
        for name in OPTIMIZED {
            assert!(lock.contains(&format!("name = \"{name}\"\n")), "{name}");
        }
        // This repository already optimizes every dependency, because its tests run thousands of passes on one build.
        let mut own = CargoManifest::parse(include_str!("../../../Cargo.toml").to_owned()).unwrap();
        assert_eq!(own.add_profile(|_| true), "");
    }

    #[test]
    fn a_profile_is_completed_and_never_contradicted() {
        let profile = |text: &str| {
            let mut manifest = CargoManifest::parse(text.to_owned()).unwrap();
            let added = manifest.add_profile(|name| ["burn-fusion", "cubecl-core"].contains(&name));
            (manifest.text().to_owned(), added)
        };
        let debug = "[profile.dev]\ndebug = \"line-tables-only\"\n";
        let both = "[profile.dev.package]\nburn-fusion = { opt-level = 1 }\ncubecl-core = { opt-level = 1 }\n";
        assert_eq!(profile("").1, format!("{debug}\n{both}"));
        // If the user sets the level of every dependency, that choice stays.
        let all = "[profile.dev.package.\"*\"]\nopt-level = 3\n";
        assert_eq!(profile(all), (format!("{all}\n{debug}"), debug.to_owned()));
        let one = "[profile.dev]\ndebug = 1\n\n[profile.dev.package.burn-fusion]\nopt-level = 2\n";
        let added = "[profile.dev.package]\ncubecl-core = { opt-level = 1 }\n";
        assert_eq!(profile(one), (format!("{one}\n{added}"), added.to_owned()));
        let inline = "[profile.dev]\ndebug = 1\npackage = { a = { opt-level = 2 } }\n";
        assert_eq!(profile(inline), (inline.to_owned(), String::new()));
        let inner = "[profile]\ndev = { debug = 1 }\n";
        assert_eq!(profile(inner), (inner.to_owned(), String::new()));
        let level = "[profile.dev]\nopt-level = 2\ndebug = 1\n";
        assert_eq!(profile(level), (level.to_owned(), String::new()));
        let version = "[profile.dev]\ndebug = 1\n[profile.dev.package]\n\"burn-fusion@0.21.0\" = { opt-level = 2 }\n";
        assert_eq!(profile(version).1, added);
        let dotted = "profile.dev.debug = 1\nprofile.dev.panic = \"abort\"\n";
        assert_eq!(profile(dotted), (dotted.to_owned(), String::new()));
        for text in [
            "",
            all,
            one,
            version,
            "[profile.dev]\r\ndebug = 1\r\n",
            "[profile.dev]\ndebug = 1",
        ] {
            profile(text).0.parse::<toml_edit::DocumentMut>().unwrap();
        }
    }
}
