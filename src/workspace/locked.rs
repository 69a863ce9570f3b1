//! Reads the versions of dependencies from Cargo.lock.

use std::collections::{BTreeMap, BTreeSet};

use serde::Deserialize;

use crate::report::ChangedDependency;

#[derive(Deserialize)]
struct CargoLock {
    #[serde(default)]
    package: Vec<Package>,
}

#[derive(Deserialize)]
struct Package {
    name: String,
    version: String,
    /// The source; `None` for path dependencies and packages of the workspace.
    source: Option<String>,
}

/// Returns the dependencies that two lock files pin differently, Burn's crates first. Leaves out packages of the
/// workspace.
///
/// Returns an empty list if one of the lock files cannot be parsed.
#[must_use]
pub fn changed_dependencies(before: &str, after: &str) -> Vec<ChangedDependency> {
    // A lock file with a merge conflict must not stop a comparison: the list only explains its result.
    let (Some(before), Some(after)) = (pinned(before), pinned(after)) else {
        return Vec::new();
    };
    let mut names: Vec<_> = before.keys().chain(after.keys()).collect();
    names.sort_by_key(|name| (!is_of_burn(name), *name));
    names.dedup();
    let only = |of: &BTreeMap<String, BTreeSet<String>>, other: &BTreeMap<String, BTreeSet<String>>, name: &String| {
        let here = of.get(name).cloned().unwrap_or_default();
        let there = other.get(name).cloned().unwrap_or_default();
        here.difference(&there).cloned().collect::<Vec<_>>()
    };
    names
        .into_iter()
        .map(|name| ChangedDependency {
            name: name.clone().into(),
            before: only(&before, &after, name).into_iter().map(Into::into).collect(),
            after: only(&after, &before, name).into_iter().map(Into::into).collect(),
        })
        .filter(|changed| !changed.before.is_empty() || !changed.after.is_empty())
        .collect()
}

/// Returns the command that updates Burn from a locked pre-release to its release, or `None` if no pre-release is
/// locked.
///
/// The crates of one version of Burn pin each other, so `cargo update -p burn` alone cannot update any of them. The
/// command names all of them.
pub(crate) fn update_of_prereleases(lock: &str) -> Option<String> {
    let lock: CargoLock = toml_edit::de::from_str(lock).ok()?;
    let is_prerelease = |package: &&Package| {
        let version = cargo_metadata::semver::Version::parse(&package.version);
        let of_burn = is_of_burn(&package.name) || ["cubek", "tracel-"].iter().any(|of| package.name.starts_with(of));
        of_burn && package.source.is_some() && version.is_ok_and(|version| !version.pre.is_empty())
    };
    let is_ambiguous = |name: &str| lock.package.iter().filter(|other| other.name == name).count() > 1;
    let names: Vec<_> = lock.package.iter().filter(is_prerelease).collect();
    if !names.iter().any(|package| package.name.starts_with("burn")) {
        return None;
    }
    // Cargo refuses a name that two locked packages have.
    let spec = |package: &&Package| match is_ambiguous(&package.name) {
        true => format!(" -p {}@{}", package.name, package.version),
        false => format!(" -p {}", package.name),
    };
    Some(format!("cargo update{}", names.iter().map(spec).collect::<String>()))
}

/// Whether a crate belongs to Burn or to its CUDA backend. The list of changes shows these first.
fn is_of_burn(name: &str) -> bool {
    ["burn", "cubecl", "cudarc"].iter().any(|of| name.starts_with(of))
}

/// Returns the versions of each dependency. The version of a git dependency includes its commit.
fn pinned(lock: &str) -> Option<BTreeMap<String, BTreeSet<String>>> {
    let lock: CargoLock = toml_edit::de::from_str(lock).ok()?;
    let mut pinned: BTreeMap<String, BTreeSet<String>> = BTreeMap::new();
    for package in lock.package {
        let Some(source) = package.source else { continue };
        // A git dependency may move to another commit and keep its version.
        let version = match source.strip_prefix("git+").and_then(|git| git.rsplit_once('#')) {
            Some((_, commit)) => format!("{} ({})", package.version, commit.get(..8).unwrap_or(commit)),
            None => package.version,
        };
        pinned.entry(package.name).or_default().insert(version);
    }
    Some(pinned)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::report::words::listed;

    fn lock(packages: &[(&str, &str, Option<&str>)]) -> String {
        let mut text = "version = 4\n".to_owned();
        for (name, version, source) in packages {
            text += &format!("\n[[package]]\nname = \"{name}\"\nversion = \"{version}\"\n");
            if let Some(source) = source {
                text += &format!("source = \"{source}\"\n");
            }
        }
        text
    }

    #[test]
    fn every_crate_of_a_locked_prerelease_is_named() {
        const REGISTRY: Option<&str> = Some("registry+https://github.com/rust-lang/crates.io-index");
        let text = lock(&[
            ("burn", "0.21.0-pre.3", REGISTRY),
            ("burn-core", "0.21.0-pre.3", REGISTRY),
            ("cubecl", "0.9.0", REGISTRY),
            ("cubecl", "0.10.0-pre.3", REGISTRY),
            ("cubek", "0.2.0-pre.3", REGISTRY),
            ("other", "1.0.0-rc.1", REGISTRY),
            ("burn-of-mine", "0.1.0-dev", None),
        ]);
        assert_eq!(
            update_of_prereleases(&text).as_deref(),
            Some("cargo update -p burn -p burn-core -p cubecl@0.10.0-pre.3 -p cubek")
        );
        assert_eq!(update_of_prereleases(&lock(&[("burn", "0.21.0", REGISTRY)])), None);
        assert_eq!(
            update_of_prereleases(&lock(&[("cubecl", "0.10.0-pre.3", REGISTRY)])),
            None
        );
    }

    #[test]
    fn dependencies_that_are_pinned_differently_are_told_once_each() {
        const REGISTRY: Option<&str> = Some("registry+https://github.com/rust-lang/crates.io-index");
        let before = lock(&[
            ("burn", "0.21.0", REGISTRY),
            ("gone", "1.0.0", REGISTRY),
            ("own", "0.1.0", None),
            ("same", "1.0.0", REGISTRY),
            ("two", "1.0.0", REGISTRY),
            ("two", "2.0.0", REGISTRY),
            (
                "of-git",
                "0.1.0",
                Some("git+https://example.org/x?branch=main#0123456789abcdef"),
            ),
        ]);
        let after = lock(&[
            ("burn", "0.22.0", REGISTRY),
            ("own", "0.2.0", None),
            ("same", "1.0.0", REGISTRY),
            ("two", "1.0.0", REGISTRY),
            ("two", "2.1.0", REGISTRY),
            ("came", "3.0.0", REGISTRY),
            (
                "of-git",
                "0.1.0",
                Some("git+https://example.org/x?branch=main#fedcba9876543210"),
            ),
        ]);
        let changed: Vec<_> = changed_dependencies(&before, &after)
            .into_iter()
            .map(|changed| {
                let [before, after] = [&changed.before, &changed.after].map(|versions| listed(versions));
                (changed.name, before, after)
            })
            .collect();
        let told: Vec<_> = changed
            .iter()
            .map(|(name, before, after)| (name.raw(), before.as_str(), after.as_str()))
            .collect();
        assert_eq!(
            told,
            [
                ("burn", "0.21.0", "0.22.0"),
                ("came", "", "3.0.0"),
                ("gone", "1.0.0", ""),
                ("of-git", "0.1.0 (01234567)", "0.1.0 (fedcba98)"),
                ("two", "2.0.0", "2.1.0"),
            ]
        );
        assert_eq!(changed_dependencies(&before, &before), []);
        assert_eq!(changed_dependencies(&before, "<<<<<<< HEAD"), []);
    }
}
