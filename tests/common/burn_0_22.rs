//! Translates fixtures for Burn 0.21 to fixtures for Burn 0.22, as its users would write them.
//!
//! Burn 0.22 has no backend parameter, and its `Run` has another path. A file that differs in more than that has a
//! replacement beside it, `NAME.0_22.rs`.

use std::fs;
use std::path::{Path, PathBuf};
use std::sync::LazyLock;

use regex::Regex;

use super::{root, target_folder};

/// The workspace whose build of Burn the other fixtures share.
pub(crate) const ZOO: &str = "fixtures/zoo-0_22";

/// The replacements in Rust code, in order.
static REPLACED: LazyLock<Vec<(Regex, &str)>> = LazyLock::new(|| {
    let pairs = [
        // An empty line stays, so that line numbers do not change.
        (r"use burn::(?:tensor::)?backend::[^;]*;", ""),
        (
            r"use cargo_vram::\{Infer, Run\};",
            "use cargo_vram::Infer;\nuse cargo_vram::burn_0_22::Run;",
        ),
        (
            r"use cargo_vram::(Run|\{Run, Step\});",
            "use cargo_vram::burn_0_22::$1;",
        ),
        (r"burn::module::AutodiffModule", "burn::module::Module"),
        (r"cargo_vram::Run<B>", "cargo_vram::burn_0_22::Run"),
        (r"<Autodiff<Cuda>>", ""),
        (r"<Cuda, ", "<"),
        (r"<B: (?:burn::tensor::backend::)?(?:AutodiffBackend|Backend)>", ""),
        // `B` as the only parameter of a type, and as its first.
        (r"(::)?<B(?:::InnerBackend)?>", ""),
        (r"<B(?:::InnerBackend)?, ", "<"),
        // In Burn 0.22, `into_scalar` itself names the type.
        (r"\.into_scalar\(\)\s*\.elem\(\)", ".into_scalar()"),
        (r"\.into_scalar\(\)\s*\.elem::", ".into_scalar::"),
        (r"\.push\((\w+)\.into_scalar\(\)\)", ".push($1.into_scalar::<f32>())"),
        (r"ElementConversion, ", ""),
        (r"\{Backend, ", "{"),
        (r"\bB::Device::default\(\)", "burn::tensor::Device::cuda(0).autodiff()"),
        (r"\bB::Device\b", "burn::tensor::Device"),
    ];
    pairs.map(|(pattern, with)| (Regex::new(pattern).unwrap(), with)).into()
});

/// Translates a fixture such as `fixtures/fooled` to Burn 0.22, and returns its folder.
pub(crate) fn fixture(folder: &str) -> PathBuf {
    let made = target_folder()
        .join("burn-0_22")
        .join(Path::new(folder).file_name().unwrap());
    copy(&root().join(folder), &made, true);
    let file = made.join("Cargo.lock");
    if !file.exists() {
        fs::write(file, lock("")).unwrap();
    }
    made
}

/// Translates code to Burn 0.22.
pub(crate) fn translated(code: &str) -> String {
    let mut code = code.to_owned();
    for (pattern, with) in REPLACED.iter() {
        code = pattern.replace_all(&code, *with).into_owned();
    }
    code
}

/// Translates a manifest to Burn 0.22, with its adapter and the zoo's build options. With `is_top`, it is the manifest
/// of the fixture's folder, which is a workspace.
fn manifest(text: &str, is_top: bool) -> String {
    let zoo = fs::read_to_string(root().join(ZOO).join("Cargo.toml")).unwrap();
    let burn = zoo.lines().find(|line| line.starts_with("burn = ")).unwrap();
    let profile = &zoo[zoo.find("[profile.dev]").unwrap()..];
    let own = text.find("[profile.dev]").map_or(text, |at| &text[..at]);
    // No package is in the zoo's workspace, which is for Burn 0.21.
    let own = own.lines().filter(|line| !line.starts_with("workspace = "));
    let lines = own.map(|line| match line {
        line if line.starts_with("burn = ") && line.contains("\"0.21\"") => burn.to_owned(),
        line => line
            .replace("burn-0_21", "burn-0_22")
            .replace("path = \"../zoo\"", &format!("path = {:?}", root().join(ZOO)))
            .replace("path = \"../../../..\"", &format!("path = {:?}", root()))
            .replace("path = \"../..\"", &format!("path = {:?}", root())),
    });
    let mut own: Vec<String> = lines.collect();
    let is_workspace = own.iter().any(|line| line.starts_with("[workspace]"));
    if is_top && !is_workspace {
        own.push("\n[workspace]\n".to_owned());
    }
    own.join("\n") + "\n" + if is_top || is_workspace { profile } else { "" }
}

/// The zoo's lock file, with those packages of another lock file that are not from a public registry.
fn lock(text: &str) -> String {
    let packages = text.split("[[package]]").skip(1);
    let own = packages.filter(|package| package.contains("https://registry.invalid/"));
    let zoo = fs::read_to_string(root().join(ZOO).join("Cargo.lock")).unwrap();
    own.fold(zoo, |lock, package| lock + "\n[[package]]" + package.trim_end() + "\n")
}

/// Copies and translates a folder. Writes a file only if its content changes, because Cargo rebuilds by modification
/// times.
fn copy(from: &Path, to: &Path, is_top: bool) {
    fs::create_dir_all(to).unwrap();
    for entry in fs::read_dir(from).unwrap().map(Result::unwrap) {
        let (path, name) = (entry.path(), entry.file_name().into_string().unwrap());
        let target = to.join(&name);
        // Somebody may have built the fixture by itself.
        if name == "target" {
            continue;
        }
        if entry.file_type().unwrap().is_dir() {
            copy(&path, &target, false);
        } else if !name.ends_with(".0_22.rs") && (name != "Cargo.lock" || !target.exists()) {
            // A replacement is read with the file that it replaces. An existing lock file stays, with Cargo's
            // additions.
            let own = path.with_extension("0_22.rs");
            let read = |path: &Path| fs::read_to_string(path).unwrap();
            let text = match name.as_str() {
                "Cargo.toml" => manifest(&read(&path), is_top),
                "Cargo.lock" => lock(&read(&path)),
                _ if name.ends_with(".rs") && own.exists() => read(&own),
                _ if name.ends_with(".rs") => translated(&read(&path)),
                _ => read(&path),
            };
            if fs::read_to_string(&target).ok().as_ref() != Some(&text) {
                fs::write(target, text).unwrap();
            }
        }
    }
}
