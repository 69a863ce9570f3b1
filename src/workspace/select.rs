//! Loads the workspace and selects the packages of a command.

use std::collections::{BTreeSet, HashMap, HashSet};
use std::path::PathBuf;
use std::process::Command;

use camino::{Utf8Path, Utf8PathBuf};
use cargo_metadata::{Metadata, MetadataCommand, Node, Package, PackageId};
use toml_edit::{DocumentMut, Item};

use super::WorkspaceError;
use super::metadata::{self, CachedOutputs};
use super::refusal::{CargoRefusal, quote};

/// The options that select packages and their features. They are the same as Cargo's.
#[derive(Debug, Clone, Default)]
pub struct Selection {
    /// `--manifest-path`.
    pub manifest_path: Option<Utf8PathBuf>,
    /// `-p`: each is `name` or `name@version`.
    pub packages: Vec<String>,
    /// `--workspace`.
    pub workspace: bool,
    /// `--exclude`.
    pub exclude: Vec<String>,
    /// `--features`, `--all-features` and `--no-default-features`, in Cargo's syntax.
    pub features: Vec<String>,
    /// `--locked`, `--offline`, `--frozen` and `--config K=V`, in Cargo's syntax.
    pub cargo_flags: Vec<String>,
    /// `--target`.
    pub target: Option<String>,
    /// Whether the workspace's `default-members` apply if nothing is selected.
    ///
    /// `check` must not use them, because a change of `default-members` could then remove a model from the check.
    pub default_members: bool,
}

impl Selection {
    /// Whether the options select every package of the workspace with at least its default features.
    ///
    /// Additional features do not matter, because they do not remove models.
    #[must_use]
    pub fn is_whole_workspace(&self) -> bool {
        let has_defaults = !self.features.iter().any(|option| option == "--no-default-features");
        self.packages.is_empty() && self.exclude.is_empty() && has_defaults
    }
}

/// The built-in profiles of Cargo.
const BUILT_IN: [&str; 4] = ["dev", "release", "test", "bench"];

fn parsed(manifest: &str) -> DocumentMut {
    manifest.parse().unwrap_or_default()
}

/// Returns the profiles of a manifest, by name.
fn profiles(manifest: &DocumentMut) -> Vec<(&str, &Item)> {
    let profiles = manifest.get("profile").and_then(Item::as_table_like);
    profiles.into_iter().flat_map(|profiles| profiles.iter()).collect()
}

/// Returns the package names in the profiles of a manifest, exactly as written.
fn profile_packages(manifest: &DocumentMut) -> BTreeSet<String> {
    let profiles = profiles(manifest).into_iter();
    let packages = profiles.filter_map(|(_, profile)| profile.get("package")?.as_table_like());
    packages
        .flat_map(|packages| packages.iter().map(|(name, _)| name.to_owned()))
        .collect()
}

/// Returns the spelling of a package in `named`, or `None` if `named` does not contain the package.
fn spelling(package: &Package, named: &BTreeSet<String>) -> Option<String> {
    let Package { name, version, .. } = package;
    let spellings = [
        name.to_string(),
        format!("{name}@{version}"),
        format!("{name}:{version}"),
    ];
    spellings.into_iter().find(|spelling| named.contains(spelling))
}

/// A workspace and its selected packages.
#[derive(Debug)]
pub struct Workspace {
    metadata: Metadata,
    /// What Cargo printed before about the same dependencies.
    pub(super) outputs: Option<CachedOutputs>,
    selected: Vec<PackageId>,
    whole: bool,
}

impl Workspace {
    /// Loads the workspace with the user's lock file, features and toolchain.
    ///
    /// # Errors
    /// If `cargo metadata` fails, or if the workspace does not contain a selected package.
    pub fn load(selection: &Selection) -> Result<Self, WorkspaceError> {
        let mut command = MetadataCommand::new();
        if let Some(path) = &selection.manifest_path {
            command.manifest_path(path);
        }
        let mut other = selection.cargo_flags.clone();
        other.extend(selection.features.iter().cloned());
        // Otherwise, Cargo reads the packages of all platforms. It would download those that no build here needs, and
        // fail with `--offline` right after a build. If the compiler does not run, Cargo reports it.
        let toolchain = toolchain().unwrap_or_default();
        let platform = selection.target.clone().or_else(|| host(&toolchain));
        other.extend(
            platform
                .into_iter()
                .flat_map(|platform| ["--filter-platform".to_owned(), platform]),
        );
        command.other_options(other);
        // Messages quote Cargo's errors, so they must not contain colors.
        command.env("CARGO_TERM_COLOR", "never");
        let (metadata, outputs) = metadata::read(&command, &toolchain).map_err(|error| unreadable(error, selection))?;
        let selected = select(&metadata, selection)?;
        let members = metadata.workspace_packages().len();
        let whole = selection.is_whole_workspace() && (selection.workspace || selected.len() == members);
        Ok(Self {
            metadata,
            outputs,
            selected,
            whole,
        })
    }

    /// Returns the folder of the workspace's `Cargo.toml`.
    #[must_use]
    pub fn root(&self) -> &Utf8Path {
        &self.metadata.workspace_root
    }

    /// Returns Cargo's target folder.
    #[must_use]
    pub fn target_directory(&self) -> &Utf8Path {
        &self.metadata.target_directory
    }

    /// Iterates over the selected packages.
    pub fn packages(&self) -> impl Iterator<Item = &Package> {
        self.selected.iter().map(|id| &self.metadata[id])
    }

    /// Iterates over all packages of the workspace, selected or not.
    pub fn members(&self) -> impl Iterator<Item = &Package> {
        self.metadata.workspace_packages().into_iter()
    }

    /// Whether a package of this name is in the workspace or in its dependencies.
    pub(crate) fn has_package(&self, name: &str) -> bool {
        self.metadata
            .packages
            .iter()
            .any(|package| package.name.as_str() == name)
    }

    /// Whether the selection includes the whole workspace.
    #[must_use]
    pub fn is_whole(&self) -> bool {
        self.whole
    }

    /// Returns the package specs for a profile of all members and path dependencies in a folder.
    ///
    /// If a profile in the root manifest names a package already, uses the same spelling, because Cargo refuses two
    /// spellings of one package. Otherwise, uses the package id.
    #[must_use]
    pub fn local_specs(&self, folder: &Utf8Path) -> BTreeSet<String> {
        let named = profile_packages(&self.root_manifest());
        let packages = self.metadata.packages.iter();
        let local = packages.filter(|package| package.source.is_none() && package.manifest_path.starts_with(folder));
        local
            .map(|package| spelling(package, &named).unwrap_or_else(|| package.id.repr.clone()))
            .collect()
    }

    /// Returns the package spec of cargo-vram for a profile, or `None` if the profile does not exist.
    ///
    /// Uses the spelling of the root manifest if it names cargo-vram already, otherwise the name.
    pub(super) fn spec_of_this_crate(&self, profile: &str) -> Option<String> {
        let manifest = self.root_manifest();
        let is_there = BUILT_IN.contains(&profile) || profiles(&manifest).iter().any(|(name, _)| *name == profile);
        let own = env!("CARGO_PKG_NAME");
        let package = self
            .metadata
            .packages
            .iter()
            .find(|package| package.name.as_str() == own);
        // Cargo refuses two spellings of one package, so use the one that is there.
        // See docs/design/builds.md.
        let written = package.and_then(|package| spelling(package, &profile_packages(&manifest)));
        is_there.then(|| written.unwrap_or_else(|| own.to_owned()))
    }

    fn root_manifest(&self) -> DocumentMut {
        parsed(&std::fs::read_to_string(self.root().join("Cargo.toml")).unwrap_or_default())
    }

    /// Returns the names of members and path dependencies that are not in a folder.
    ///
    /// Leaves out those that only others of them depend on: they come with these.
    #[must_use]
    pub fn outside(&self, folder: &Utf8Path) -> Vec<String> {
        let is_outside = |package: &&Package| package.source.is_none() && !package.manifest_path.starts_with(folder);
        let outside: Vec<&Package> = self.metadata.packages.iter().filter(is_outside).collect();
        let ids: HashSet<&PackageId> = outside.iter().map(|package| &package.id).collect();
        let nodes = self.metadata.resolve.iter().flat_map(|resolve| &resolve.nodes);
        let others = nodes.filter(|node| !ids.contains(&node.id));
        let mut needed: HashSet<&PackageId> = others.flat_map(|node| &node.dependencies).collect();
        needed.extend(&self.metadata.workspace_members);
        let named = outside.iter().filter(|package| needed.contains(&package.id));
        named.map(|package| package.name.to_string()).collect()
    }

    /// Returns the features of a version of a package in a build of the whole workspace.
    #[must_use]
    pub fn features(&self, name: &str, version: &str) -> Option<Vec<String>> {
        let is_it = |package: &&Package| package.name.as_str() == name && package.version.to_string() == version;
        let package = self.metadata.packages.iter().find(is_it)?;
        let resolve = self.metadata.resolve.as_ref()?;
        let node = resolve.nodes.iter().find(|node| node.id == package.id)?;
        Some(node.features.iter().map(ToString::to_string).collect())
    }

    /// Returns every version of `name` in the dependencies of a package, including dev-dependencies.
    ///
    /// Ignores versions that only the dependency `without` needs.
    #[must_use]
    pub fn versions_in_graph(
        &self,
        package: &Package,
        name: &str,
        without: Option<&str>,
    ) -> Vec<cargo_metadata::semver::Version> {
        let graph = self.graph(package, without).into_iter();
        let mut versions: Vec<_> = graph
            .filter(|(found, _)| found.name.as_str() == name)
            .map(|(found, _)| found.version.clone())
            .collect();
        versions.sort();
        versions
    }

    /// Returns a package and all its dependencies, including dev-dependencies, the package itself first.
    ///
    /// Ignores packages that only the dependency `without` needs.
    pub(super) fn graph(&self, package: &Package, without: Option<&str>) -> Vec<(&Package, &Node)> {
        let Some(resolve) = &self.metadata.resolve else {
            return Vec::new();
        };
        // Cargo's metadata has lists of packages and nodes. Use maps, because this looks up hundreds of packages.
        let packages: HashMap<_, _> = self.metadata.packages.iter().map(|found| (&found.id, found)).collect();
        let nodes: HashMap<_, _> = resolve.nodes.iter().map(|node| (&node.id, node)).collect();
        let mut seen = HashSet::new();
        let mut to_visit = vec![&package.id];
        let mut graph = Vec::new();
        while let Some(id) = to_visit.pop() {
            let found = packages[id];
            if !seen.insert(id) || without == Some(found.name.as_str()) {
                continue;
            }
            if let Some(node) = nodes.get(id) {
                graph.push((found, *node));
                to_visit.extend(node.deps.iter().map(|dep| &dep.pkg));
            }
        }
        graph
    }
}

fn select(metadata: &Metadata, selection: &Selection) -> Result<Vec<PackageId>, WorkspaceError> {
    let members = metadata.workspace_packages();
    let named = |spec: &String| -> Result<&Package, WorkspaceError> {
        let (name, version) = spec
            .split_once('@')
            .map_or((spec.as_str(), None), |(n, v)| (n, Some(v)));
        members
            .iter()
            .find(|p| p.name.as_str() == name && version.is_none_or(|v| p.version.to_string() == v))
            .copied()
            .ok_or_else(|| {
                let nearest = members
                    .iter()
                    .map(|p| p.name.as_str())
                    .max_by(|a, b| strsim::jaro(a, name).total_cmp(&strsim::jaro(b, name)))
                    .map(|nearest| format!("did you mean `{nearest}`?"));
                WorkspaceError::UnknownPackage(spec.clone(), nearest)
            })
    };
    let excluded: Vec<_> = selection
        .exclude
        .iter()
        .map(|spec| named(spec).map(|p| p.id.clone()))
        .collect::<Result<_, _>>()?;
    let mut chosen: Vec<_> = if selection.packages.is_empty() {
        let defaults = metadata
            .workspace_default_members
            .is_available()
            .then(|| metadata.workspace_default_packages());
        match defaults {
            Some(defaults)
                if !selection.workspace && selection.exclude.is_empty() && !is_virtual_root(metadata, &defaults) =>
            {
                // In a member's folder, select that member, as Cargo does. At the root, Cargo selects the
                // `default-members` or only the root package. A check of these would miss models, so select the whole
                // workspace there.
                match current_member(metadata, selection) {
                    Some(member) => vec![member],
                    None if selection.default_members && has_default_members(metadata) => {
                        defaults.iter().map(|p| p.id.clone()).collect()
                    }
                    None => members.iter().map(|p| p.id.clone()).collect(),
                }
            }
            _ => members.iter().map(|p| p.id.clone()).collect(),
        }
    } else {
        selection
            .packages
            .iter()
            .map(|spec| named(spec).map(|p| p.id.clone()))
            .collect::<Result<_, _>>()?
    };
    chosen.retain(|id| !excluded.contains(id));
    Ok(chosen)
}

fn is_virtual_root(metadata: &Metadata, defaults: &[&Package]) -> bool {
    // At such a root, Cargo itself selects every member.
    metadata.root_package().is_none() && defaults.len() == metadata.workspace_packages().len()
}

/// Whether the workspace sets `default-members`.
///
/// Reads the manifest, because `cargo metadata` also lists default members if the manifest does not set them.
fn has_default_members(metadata: &Metadata) -> bool {
    let text = std::fs::read_to_string(metadata.workspace_root.join("Cargo.toml")).unwrap_or_default();
    let manifest = toml_edit::Document::parse(text);
    manifest.is_ok_and(|manifest| {
        let workspace = manifest.get("workspace").and_then(toml_edit::Item::as_table_like);
        workspace.is_some_and(|workspace| workspace.contains_key("default-members"))
    })
}

/// Returns the member whose manifest is selected or in whose folder the command runs, unless that is the root.
fn current_member(metadata: &Metadata, selection: &Selection) -> Option<PackageId> {
    let manifest = match &selection.manifest_path {
        // Compare canonical paths, because a link in the current folder's path is not in Cargo's.
        Some(path) => path.canonicalize_utf8().ok()?,
        None => {
            let here = Utf8PathBuf::from_path_buf(std::env::current_dir().ok()?).ok()?;
            here.ancestors()
                .map(|folder| folder.join("Cargo.toml"))
                .find(|path| path.exists())?
                .canonicalize_utf8()
                .ok()?
        }
    };
    let root = metadata.workspace_root.join("Cargo.toml").canonicalize_utf8().ok()?;
    if manifest == root {
        return None;
    }
    metadata
        .workspace_packages()
        .iter()
        .find(|p| p.manifest_path.canonicalize_utf8().is_ok_and(|path| path == manifest))
        .map(|p| p.id.clone())
}

/// Converts an error of `cargo metadata`. Distinguishes a program that cannot start from a workspace that cannot be
/// read.
fn unreadable(error: cargo_metadata::Error, selection: &Selection) -> WorkspaceError {
    match error {
        cargo_metadata::Error::Io(source) => not_started(source),
        cargo_metadata::Error::CargoMetadata { stderr } => refused(&stderr, selection),
        error => refused(&error.to_string(), selection),
    }
}

/// Returns the program to run as Cargo.
pub(super) fn cargo() -> String {
    std::env::var("CARGO").unwrap_or_else(|_| "cargo".into())
}

/// Returns the compiler that Cargo would use.
#[must_use]
pub fn rustc() -> PathBuf {
    std::env::var_os("RUSTC").unwrap_or_else(|| "rustc".into()).into()
}

/// Returns what `rustc -vV` prints, or `None` if the compiler does not run.
fn toolchain() -> Option<String> {
    let output = Command::new(rustc()).arg("-vV").output().ok()?;
    String::from_utf8(output.stdout).ok()
}

/// Returns the target for which the compiler builds by default.
fn host(toolchain: &str) -> Option<String> {
    let host = toolchain.lines().find_map(|line| line.strip_prefix("host: "))?;
    Some(host.to_owned())
}

/// Returns a command that runs Cargo, without the environment variables that Cargo sets for a package.
///
/// `cargo run` and `cargo test` set such variables. Some build scripts depend on them, for example that of `ring`.
/// Cargo would then build half of the dependencies again, and again on the next call without these variables.
pub(super) fn cargo_command() -> Command {
    let mut command = Command::new(cargo());
    let of_a_package = |name: &str| {
        name.starts_with("CARGO_PKG_")
            || matches!(
                name,
                "CARGO_MANIFEST_DIR"
                    | "CARGO_MANIFEST_PATH"
                    | "CARGO_BIN_NAME"
                    | "CARGO_CRATE_NAME"
                    | "CARGO_PRIMARY_PACKAGE"
                    | "OUT_DIR"
            )
    };
    for (name, _) in std::env::vars_os() {
        if name.to_str().is_some_and(of_a_package) {
            command.env_remove(name);
        }
    }
    command
}

/// Returns the error that Cargo cannot start.
pub(super) fn not_started(source: std::io::Error) -> WorkspaceError {
    WorkspaceError::Program {
        program: cargo(),
        source,
    }
}

/// Returns the error for a Cargo command that failed and printed `stderr`.
pub(super) fn refused(stderr: &str, selection: &Selection) -> WorkspaceError {
    let said = quote(stderr);
    // If Cargo cannot start the compiler, it says: "could not execute process `rustc -vV` (never executed)".
    let compiler = said
        .split_once("could not execute process `")
        .and_then(|(_, rest)| rest.split([' ', '`']).next().map(str::to_owned));
    if let Some(program) = compiler {
        return WorkspaceError::Program {
            program,
            source: std::io::Error::other(said),
        };
    }
    // The file system shows this cause, so it needs no guess from Cargo's text.
    let missing = selection.manifest_path.as_ref().is_some_and(|path| !path.is_file());
    let refusal = if missing {
        CargoRefusal::NoManifest
    } else {
        CargoRefusal::parse(stderr)
    };
    WorkspaceError::Metadata {
        help: refusal.help(selection),
        may_need_network: refusal.may_need_network(),
        said,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn packages_are_found_in_every_profile_however_it_is_written() {
        let manifest = "[profile.dev.package]\na = { opt-level = 1 }\n[profile.dev.package.\"b@1.0.0\"]\nopt-level = 2\n\
                        [profile.release]\npackage = { c = { debug = 1 } }\n[profile.bench]\ndebug = true\n";
        let named = profile_packages(&parsed(manifest));
        assert_eq!(
            named.iter().map(String::as_str).collect::<Vec<_>>(),
            ["a", "b@1.0.0", "c"]
        );
        for nothing in ["", "[profile"] {
            assert!(profile_packages(&parsed(nothing)).is_empty());
        }
    }
}
