//! Temporary workspaces whose packages are for Burn 0.22, or for both versions of Burn.

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;

use super::burn_0_22::{ZOO, fixture};
use super::root;

/// Writes a package with a manifest and a model into a workspace.
pub(crate) fn write_package(workspace: &Path, name: &str, manifest: &str, model: &str) {
    let folder = workspace.join(name);
    for inner in ["src", "benches"] {
        std::fs::create_dir_all(folder.join(inner)).unwrap();
    }
    let package = manifest[..manifest.find("# Its own").or(manifest.find("[workspace]")).unwrap()]
        .replace("name = \"many\"", &format!("name = \"{name}\""))
        .replace("\"../..\"", &format!("{:?}", root()));
    std::fs::write(folder.join("Cargo.toml"), package).unwrap();
    std::fs::write(folder.join("src/lib.rs"), "").unwrap();
    std::fs::write(folder.join("benches/vram.rs"), model).unwrap();
}

/// Makes a workspace with one package for Burn 0.22, whose benchmark target declares models.
pub(crate) fn workspace_of(name: &str, models: &str) -> tempfile::TempDir {
    let folder = tempfile::tempdir().unwrap();
    let many = std::fs::read_to_string(fixture("fixtures/many").join("Cargo.toml")).unwrap();
    write_package(folder.path(), name, &many, models);
    let profile = &many[many.find("[profile.dev]").unwrap()..];
    let manifest = format!("[workspace]\nmembers = [\"{name}\"]\nresolver = \"3\"\n\n{profile}");
    std::fs::write(folder.path().join("Cargo.toml"), manifest).unwrap();
    let lock = root().join(ZOO).join("Cargo.lock");
    std::fs::copy(lock, folder.path().join("Cargo.lock")).unwrap();
    folder
}

/// The manifests of a package for Burn 0.21 and of a package for Burn 0.22.
pub(crate) fn manifests() -> [String; 2] {
    let old = root().join("fixtures/many");
    [old, fixture("fixtures/many")].map(|folder| std::fs::read_to_string(folder.join("Cargo.toml")).unwrap())
}

/// Writes the other files of a workspace, whose packages may be for either version of Burn.
pub(crate) fn write_workspace(folder: &Path, members: &[&str]) {
    // The zoo's profile names packages that both versions of Burn have with their version.
    let zoo = std::fs::read_to_string(root().join(ZOO).join("Cargo.toml")).unwrap();
    let profile = &zoo[zoo.find("[profile.dev]").unwrap()..];
    // Burn 0.21 and the library get the build options of other fixtures, so that Cargo does not compile them again.
    let [old, _] = manifests();
    let named = old
        .lines()
        .filter(|line| (line.contains("@0.") || line.starts_with("cargo-vram")) && line.contains("opt-level"));
    let others = profile.lines().filter(|line| !line.starts_with("cargo-vram"));
    let profile = others.chain(named).collect::<Vec<_>>().join("\n");
    let manifest = format!("[workspace]\nmembers = {members:?}\nresolver = \"3\"\n\n{profile}\n");
    std::fs::write(folder.join("Cargo.toml"), manifest).unwrap();
    let locks = ["fixtures/zoo", ZOO].map(|zoo| std::fs::read_to_string(root().join(zoo).join("Cargo.lock")).unwrap());
    std::fs::write(folder.join("Cargo.lock"), joined(&locks)).unwrap();
}

/// Joins lock files into one for a workspace with the packages of both. With other versions, Cargo would compile Burn
/// again.
fn joined(locks: &[String]) -> String {
    let mut joined: BTreeMap<String, BTreeSet<String>> = BTreeMap::new();
    for lock in locks {
        let mut versions: BTreeMap<&str, &str> = BTreeMap::new();
        let packages = || lock.split("[[package]]\n").skip(1);
        for package in packages() {
            versions.insert(value_of(package, "name"), value_of(package, "version"));
        }
        for package in packages() {
            let (head, dependencies) = package.split_once("dependencies = [\n").unwrap_or((package, ""));
            // A name stands alone if a lock file has one version of it. The joined file may have two.
            let dependencies = dependencies
                .lines()
                .filter_map(|line| line.trim().strip_prefix('"')?.strip_suffix("\","));
            let full = dependencies.map(|name| match versions.get(name) {
                Some(version) => format!("{name} {version}"),
                None => name.to_owned(),
            });
            joined.entry(head.trim_end().to_owned()).or_default().extend(full);
        }
    }
    let packages = joined.into_iter().map(|(head, dependencies)| {
        let lines: String = dependencies.iter().map(|name| format!(" \"{name}\",\n")).collect();
        format!("[[package]]\n{head}\ndependencies = [\n{lines}]\n")
    });
    "version = 4\n\n".to_owned() + &packages.collect::<Vec<_>>().join("\n")
}

/// The value of a field of an entry in a lock file.
pub(crate) fn value_of<'a>(entry: &'a str, field: &str) -> &'a str {
    let line = entry
        .lines()
        .find_map(|line| line.strip_prefix(field)?.strip_prefix(" = "));
    line.unwrap().trim_matches('"')
}
