//! The rooms of `src/`, which are its top modules, and their allowed imports. The tests compare the imports in the code
//! with the plan below; `docs/design/rooms.md` has its drawing.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::Path;

use proc_macro2::{Delimiter, TokenStream, TokenTree};

use crate::common;

/// The rooms from the lowest floor to the highest. A room may import only rooms of lower floors.
const FLOORS: [&[&str]; 10] = [
    &["bytes", "folders", "names", "untrusted"],
    &["github", "protocol"],
    &["driver", "probe", "report"],
    &["fit", "gpu", "recording"],
    &["workspace"],
    &["budget", "run"],
    &["archive", "baseline", "explain"],
    &["growth"],
    &["render"],
    &["cli"],
];

/// Folders in which more than three files may import each other in a circle.
///
/// The driver is one state machine, which is compiled as its own crate. The adapter's observer and the observed tensors
/// belong together, as Burn's backend traits do.
const WHOLE: [&str; 2] = ["driver/source", "probe/burn_0_21"];

/// Type names that several files define, each with the reason.
const REPEATED: [(&str, &str); 25] = [
    ("DataParallel", "the same of two versions of Burn"),
    ("Downstream", "the same of two versions of Burn"),
    ("OtherStream", "the same of two versions of Burn"),
    ("ForkInPlace", "the same of two versions of Burn"),
    ("WorkerInput", "the same of two versions of Burn"),
    ("WorkerOutput", "the same of two versions of Burn"),
    ("OperationPath", "the same of two versions of Burn"),
    ("InF32", "the same of two versions of Burn"),
    ("InHalf", "the same of two versions of Burn"),
    ("IntoOptimizer", "the same of two versions of Burn"),
    ("Epochs", "the same of two versions of Burn"),
    ("EpochsFeature", "the same of two versions of Burn"),
    ("Training", "the same of two versions of Burn"),
    (
        "Library",
        "a library that the driver loaded; another name would change every baseline",
    ),
    (
        "Out",
        "the place of a C function's result; another name would change every baseline",
    ),
    (
        "Run",
        "the argument of a model, for each version of Burn, and its result in a report",
    ),
    ("Spans", "the same of two versions of Burn"),
    (
        "Step",
        "a step of a hand-written loop, for each version of Burn, and its result in a report",
    ),
    ("Steps", "the same of two versions of Burn"),
    ("TrainFeature", "the same of two versions of Burn"),
    ("Upstream", "the same of two versions of Burn"),
    ("WithBatch", "the same of two versions of Burn"),
    ("WithLoss", "the same of two versions of Burn"),
    ("WithModel", "the same of two versions of Burn"),
    ("Worker", "the same of two versions of Burn"),
];

/// A file of `src/`: its path in `src/` without the extension, such as `render/svg/fit`. For a `mod.rs`, the folder's
/// path.
type File = String;

/// The definitions and imports of a file.
#[derive(Default)]
struct Content {
    /// Names of its items, also private ones.
    items: BTreeSet<String>,
    /// Names of its types.
    types: Vec<String>,
    /// Absolute paths that it uses: `["report", "Run"]`.
    paths: BTreeSet<Vec<String>>,
    /// The names that its `use` items introduce, with their paths.
    names: BTreeMap<String, Vec<String>>,
    /// Paths that begin with such a name or with a child module: `["words", "percent"]`.
    relative: BTreeSet<[String; 2]>,
    /// Names that it re-exports, with their paths. `*` is a whole module.
    handed_on: Vec<(String, Vec<String>)>,
    /// Modules that exist only for tests.
    for_tests: Vec<String>,
}

struct House {
    files: BTreeMap<File, Content>,
}

impl House {
    fn new() -> Self {
        let root = common::root().join("src");
        let mut files = BTreeMap::new();
        let mut folders = vec![root.clone()];
        while let Some(folder) = folders.pop() {
            for entry in fs::read_dir(folder).unwrap() {
                let path = entry.unwrap().path();
                if path.is_dir() {
                    folders.push(path);
                } else if path.extension().is_some_and(|extension| extension == "rs") {
                    let name = name_of(path.strip_prefix(&root).unwrap());
                    let tokens: TokenStream = fs::read_to_string(&path).unwrap().parse().unwrap();
                    let module: Vec<_> = segments(&name);
                    let mut content = Content::default();
                    read(tokens, &module, true, &mut content);
                    // This folder is another crate, so its paths begin at another root.
                    if name.starts_with("driver/source") {
                        content.paths.clear();
                        content.handed_on.clear();
                        content.relative.clear();
                    }
                    files.insert(name, content);
                }
            }
        }
        let tests: Vec<String> = files
            .iter()
            .flat_map(|(file, content)| content.for_tests.iter().map(move |module| join(file, module)))
            .collect();
        files.retain(|file, _| {
            !tests
                .iter()
                .any(|test| file == test || file.starts_with(&format!("{test}/")))
        });
        Self { files }
    }

    /// Finds the file of a path, also through re-exported names.
    fn resolve(&self, path: &[String], depth: usize) -> Option<&File> {
        let (length, file) = (0..=path.len())
            .rev()
            .find_map(|length| Some((length, self.files.get_key_value(&path[..length].join("/"))?)))?;
        let (file, content) = file;
        let Some(name) = path.get(length) else {
            return Some(file);
        };
        if content.items.contains(name) || depth == 0 {
            return Some(file);
        }
        for (handed, from) in &content.handed_on {
            if handed == name {
                return self.resolve(from, depth - 1);
            }
            if handed == "*" {
                let mut from = from.clone();
                from.push(name.clone());
                let found = self.resolve(&from, depth - 1)?;
                if self.files[found].items.contains(name) {
                    return Some(found);
                }
            }
        }
        Some(file)
    }

    /// The imported files of each file.
    fn imports(&self) -> BTreeMap<&File, BTreeSet<&File>> {
        let imports = |(file, content): (&'_ File, &Content)| {
            let relative = content.relative.iter().map(|[first, next]| {
                let mut path = match content.names.get(first) {
                    Some(path) => path.clone(),
                    None => [segments(file), vec![first.clone()]].concat(),
                };
                path.push(next.clone());
                path
            });
            // An imported module counts only if the file uses something of it.
            let is_name = |path: &&Vec<String>| !self.files.contains_key(&path.join("/"));
            let paths = content.paths.iter().filter(is_name).cloned().chain(relative);
            let found = paths.filter_map(|path| self.resolve(&path, 8));
            let found: BTreeSet<&File> = found.filter(|found| *found != file).collect();
            (self.files.get_key_value(file).unwrap().0, found)
        };
        self.files.iter().map(imports).collect()
    }
}

/// `render/svg/fit.rs` is `render/svg/fit`, and `render/mod.rs` is `render`.
fn name_of(path: &Path) -> File {
    let path = path.with_extension("");
    let name = path.to_str().unwrap();
    match name {
        "lib" => String::new(),
        name => name.strip_suffix("/mod").unwrap_or(name).to_owned(),
    }
}

fn segments(file: &str) -> Vec<String> {
    file.split('/')
        .filter(|part| !part.is_empty())
        .map(str::to_owned)
        .collect()
}

fn join(file: &str, module: &str) -> String {
    format!("{file}/{module}").trim_start_matches('/').to_owned()
}

/// The room of a file.
fn room(file: &str) -> &str {
    file.split('/').next().unwrap()
}

/// Reads the tokens of a module. Only those at its top level define names.
fn read(tokens: TokenStream, module: &[String], top: bool, content: &mut Content) {
    let tokens: Vec<TokenTree> = tokens.into_iter().collect();
    let word = |at: usize| match tokens.get(at) {
        Some(TokenTree::Ident(ident)) => ident.to_string(),
        _ => String::new(),
    };
    let is_colons = |at: usize| {
        let is_colon = |at: usize| matches!(tokens.get(at), Some(TokenTree::Punct(punct)) if punct.as_char() == ':');
        is_colon(at) && is_colon(at + 1)
    };
    let mut at = 0;
    while at < tokens.len() {
        // Skip `#[cfg(test)]` and the item below it.
        if let (TokenTree::Punct(hash), Some(TokenTree::Group(attribute))) = (&tokens[at], tokens.get(at + 1))
            && hash.as_char() == '#'
            && attribute.stream().to_string().replace(' ', "") == "cfg(test)"
        {
            let ends = |token: &TokenTree| match token {
                TokenTree::Punct(punct) => punct.as_char() == ';',
                TokenTree::Group(group) => group.delimiter() == Delimiter::Brace,
                _ => false,
            };
            let end = (at + 2..tokens.len()).find(|at| ends(&tokens[*at])).unwrap_or(at);
            let module = (at..end).find(|at| word(*at) == "mod").map(|at| word(at + 1));
            content.for_tests.extend(module);
            at = end + 1;
            continue;
        }
        match word(at).as_str() {
            kind @ ("struct" | "enum" | "trait" | "type" | "union") if top && !word(at + 1).is_empty() => {
                content.items.insert(word(at + 1));
                if !(kind == "type" && is_colons(at)) {
                    content.types.push(word(at + 1));
                }
            }
            "fn" | "const" | "static" | "mod" if top && !word(at + 1).is_empty() => {
                content.items.insert(word(at + 1));
            }
            "use" => {
                let end = (at..tokens.len())
                    .find(|at| matches!(&tokens[*at], TokenTree::Punct(punct) if punct.as_char() == ';'));
                let end = end.unwrap_or(tokens.len());
                let is_handed_on = at > 0
                    && (word(at - 1) == "pub"
                        || matches!(&tokens[at - 1], TokenTree::Group(group) if group.delimiter() == Delimiter::Parenthesis));
                for (path, name) in expanded(&tokens[at + 1..end], module) {
                    content.names.insert(name.clone(), path.clone());
                    if is_handed_on {
                        let mut from = path.clone();
                        if name != "*" {
                            content.handed_on.push((name, path));
                            continue;
                        }
                        from.retain(|part| part != "*");
                        content.handed_on.push((name, from));
                    } else {
                        content.paths.insert(path);
                    }
                }
                at = end;
            }
            // Ignore `pub(in crate::render)`.
            "crate" | "super" | "self" if is_colons(at + 1) && (at == 0 || word(at - 1) != "in") => {
                let mut path = vec![word(at)];
                while is_colons(at + 1) && !word(at + 3).is_empty() {
                    path.push(word(at + 3));
                    at += 3;
                }
                content.paths.extend(absolute(&path, module));
            }
            // A child of this module: `rows::folded(…)`.
            child if !child.is_empty() && is_colons(at + 1) && !is_colons(at.wrapping_sub(2)) => {
                content.relative.insert([child.to_owned(), word(at + 3)]);
            }
            _ => {}
        }
        if let Some(TokenTree::Group(group)) = tokens.get(at) {
            read(group.stream(), module, false, content);
        }
        at += 1;
    }
}

/// The paths of a `use` item, each with the name that it introduces.
fn expanded(tokens: &[TokenTree], module: &[String]) -> Vec<(Vec<String>, String)> {
    fn walk(tokens: &[TokenTree], before: &[String], found: &mut Vec<(Vec<String>, String)>) {
        let is_comma = |token: &TokenTree| matches!(token, TokenTree::Punct(punct) if punct.as_char() == ',');
        for one in tokens.split(is_comma).filter(|one| !one.is_empty()) {
            let mut path = before.to_vec();
            let mut name = None;
            for (at, token) in one.iter().enumerate() {
                match token {
                    TokenTree::Ident(ident) if ident == "as" => {
                        name = one.get(at + 1).map(ToString::to_string);
                        break;
                    }
                    TokenTree::Ident(ident) if ident == "self" && !path.is_empty() => {}
                    TokenTree::Ident(ident) => path.push(ident.to_string()),
                    TokenTree::Punct(punct) if punct.as_char() == '*' => path.push("*".to_owned()),
                    TokenTree::Group(group) => {
                        let inner: Vec<_> = group.stream().into_iter().collect();
                        walk(&inner, &path, found);
                        path.clear();
                    }
                    _ => {}
                }
            }
            if let Some(last) = path.last() {
                let name = name.unwrap_or_else(|| last.clone());
                found.push((path, name));
            }
        }
    }
    let mut found = Vec::new();
    walk(tokens, &[], &mut found);
    let absolute = |(path, name): (Vec<String>, String)| {
        let absolute = match absolute(&path, module) {
            Some(path) => path,
            // The path begins with a child of this module or with another crate.
            None => [module, &path].concat(),
        };
        (absolute, name)
    };
    found.into_iter().map(absolute).collect()
}

/// `super::words` of `render::svg` is `render::words`.
fn absolute(path: &[String], module: &[String]) -> Option<Vec<String>> {
    match path.first()?.as_str() {
        "crate" => Some(path[1..].to_vec()),
        "self" => Some([module, &path[1..]].concat()),
        "super" => {
            let up = path.iter().take_while(|part| *part == "super").count();
            let left = module.len().saturating_sub(up);
            Some([&module[..left], &path[up..]].concat())
        }
        _ => None,
    }
}

/// The sets of files that import each other in a circle, each once.
fn circles<'a>(imports: &BTreeMap<&'a File, BTreeSet<&'a File>>) -> Vec<BTreeSet<&'a File>> {
    let reached = |from: &'a File| {
        let mut reached = BTreeSet::new();
        let mut next: Vec<&File> = vec![from];
        while let Some(file) = next.pop() {
            for import in imports.get(file).into_iter().flatten() {
                if reached.insert(*import) {
                    next.push(import);
                }
            }
        }
        reached
    };
    let all: BTreeMap<&File, BTreeSet<&File>> = imports.keys().map(|file| (*file, reached(file))).collect();
    let mut circles: Vec<BTreeSet<&File>> = Vec::new();
    for (file, reached) in &all {
        let circle: BTreeSet<&File> = reached
            .iter()
            .copied()
            .filter(|other| all[other].contains(file))
            .collect();
        if circle.len() > 1 && !circles.contains(&circle) {
            circles.push(circle);
        }
    }
    circles
}

fn floor(room: &str) -> usize {
    let floor = FLOORS.iter().position(|rooms| rooms.contains(&room));
    floor.unwrap_or_else(|| panic!("room `{room}` is not on a floor: add it to FLOORS in tests/rooms.rs"))
}

/// The imported rooms of each room.
fn between_rooms(house: &House) -> BTreeMap<&str, BTreeSet<&str>> {
    let mut between: BTreeMap<&str, BTreeSet<&str>> = BTreeMap::new();
    for (file, imports) in house.imports() {
        if file.is_empty() || file == "main" {
            continue;
        }
        let from = room(file);
        let to = imports.into_iter().filter(|to| !to.is_empty()).map(|to| room(to));
        between.entry(from).or_default().extend(to.filter(|to| *to != from));
    }
    between
}

#[test]
fn no_room_imports_one_of_its_floor_or_above() {
    let house = House::new();
    for (from, rooms) in between_rooms(&house) {
        for to in rooms {
            assert!(floor(to) < floor(from), "{from}/ imports {to}/");
        }
    }
}

#[test]
fn nothing_but_main_imports_the_command_line() {
    let house = House::new();
    for (file, imports) in house.imports() {
        let is_allowed = file.is_empty() || file == "main" || room(file) == "cli";
        let cli = imports.iter().find(|import| room(import) == "cli");
        assert!(is_allowed || cli.is_none(), "{file} imports {cli:?}");
    }
}

#[test]
fn no_circle_has_more_than_three_files() {
    let house = House::new();
    let imports = house.imports();
    let circles = circles(&imports);
    assert!(
        !circles.is_empty(),
        "found no circle of imports: does this test still read imports?"
    );
    let is_whole = |circle: &BTreeSet<&File>| {
        let is_in = |folder: &&str| circle.iter().all(|file| file.starts_with(*folder));
        WHOLE.iter().any(is_in)
    };
    let large: Vec<_> = circles
        .into_iter()
        .filter(|circle| circle.len() > 3 && !is_whole(circle))
        .collect();
    assert!(large.is_empty(), "{large:#?}");
}

#[test]
fn a_type_name_is_used_once() {
    let house = House::new();
    let mut places: BTreeMap<&str, BTreeSet<&str>> = BTreeMap::new();
    for (file, content) in &house.files {
        for name in &content.types {
            places.entry(name).or_default().insert(file);
        }
    }
    assert!(places.len() > 300, "{}", places.len());
    places.retain(|_, files| files.len() > 1);
    let allowed: BTreeSet<&str> = REPEATED.iter().map(|(name, _)| *name).collect();
    let found: BTreeSet<&str> = places.keys().copied().collect();
    assert!(REPEATED.len() <= 25);
    assert_eq!(found, allowed, "{places:#?}");
}

/// The drawing in `docs/design/rooms.md`.
fn drawing(house: &House) -> String {
    let mut text = "```mermaid\nflowchart TD\n".to_owned();
    for rooms in FLOORS.iter().rev() {
        text += &format!("    {}\n", rooms.join("; "));
    }
    let between = between_rooms(house);
    let reaches = |from: &str, to: &str| {
        let mut next: Vec<&str> = vec![from];
        while let Some(room) = next.pop() {
            for import in between.get(room).into_iter().flatten() {
                if *import == to {
                    return true;
                }
                next.push(import);
            }
        }
        false
    };
    for (from, rooms) in &between {
        for to in rooms {
            if !rooms.iter().any(|other| reaches(other, to)) {
                text += &format!("    {from} --> {to}\n");
            }
        }
    }
    text + "```\n"
}

#[test]
fn the_drawing_is_that_of_the_code() {
    let path = common::root().join("docs/design/rooms.md");
    let text = fs::read_to_string(&path).unwrap();
    let (begin, end) = (text.find("```mermaid").unwrap(), text.rfind("```\n").unwrap() + 4);
    let drawing = drawing(&House::new());
    if text[begin..end] != drawing {
        if std::env::var_os("INSTA_UPDATE").is_some_and(|update| update == "always") {
            fs::write(&path, [&text[..begin], &drawing, &text[end..]].concat()).unwrap();
        } else {
            panic!("docs/design/rooms.md is old: run this test with INSTA_UPDATE=always. It should be:\n{drawing}");
        }
    }
}

/// `Cargo.toml` switches the discovery of tests off, so a file that `main.rs` does not list would never run.
#[test]
fn every_file_of_tests_is_a_module_of_main() {
    let main = fs::read_to_string(common::root().join("tests/main.rs")).unwrap();
    for entry in fs::read_dir(common::root().join("tests")).unwrap() {
        let path = entry.unwrap().path();
        let name = path.file_stem().unwrap().to_str().unwrap();
        let is_module = path.extension().is_some_and(|extension| extension == "rs") || path.join("mod.rs").exists();
        let is_named = name == "main" || main.lines().any(|line| line == format!("mod {name};"));
        assert!(!is_module || is_named, "tests/main.rs lacks `mod {name};`");
    }
}
