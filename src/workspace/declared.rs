//! Finds the targets that declare models, and checks whether they can be built and run.

use cargo_metadata::semver::{Version, VersionReq};
use cargo_metadata::{Node, Package, Target, TargetKind};
use serde::{Deserialize, Serialize};

use super::Workspace;
use crate::report::{ErrorCode, Problem};
use crate::untrusted::{Foreign, PlainName};

/// The name of the benchmark target with models, unless `[package.metadata.vram]` names other targets.
const DEFAULT_TARGET: &str = "vram";
/// The supported versions of Burn: major and minor version.
const SUPPORTED_BURN: &[(u64, u64)] = &[(0, 21), (0, 22)];

/// The package that compiles kernels for CUDA.
pub(super) const CUDA_RUNTIME: &str = "cubecl-cuda";
/// The feature of [`CUDA_RUNTIME`] that makes it compile kernels with NVRTC instead of LLVM.
pub(super) const NVRTC_FEATURE: &str = "cpp";

/// Whether cargo-vram has an adapter for a version of Burn. Pre-releases are not supported.
pub(crate) fn supports_burn(version: &Version) -> bool {
    version.pre.is_empty() && SUPPORTED_BURN.contains(&(version.major, version.minor))
}

/// Returns the cargo-vram feature with the adapter for a version of Burn: `burn-0_21`.
pub(crate) fn adapter_feature(burn: &Version) -> String {
    format!("burn-{}_{}", burn.major, burn.minor)
}

/// Returns the newest supported version of Burn that a requirement allows, as `major.minor.0`.
pub(crate) fn supported_by(requirement: &VersionReq) -> Option<Version> {
    // No minor version of Burn had 100 patch versions so far.
    let takes =
        |&&(major, minor): &&(u64, u64)| (0..100).any(|patch| requirement.matches(&Version::new(major, minor, patch)));
    let (major, minor) = SUPPORTED_BURN.iter().rev().find(takes)?;
    Some(Version::new(*major, *minor, 0))
}

/// Lists the supported versions of Burn, newest last: `0.21 and 0.22`.
pub(crate) fn supported_burn() -> String {
    let versions: Vec<_> = SUPPORTED_BURN
        .iter()
        .map(|(major, minor)| format!("{major}.{minor}"))
        .collect();
    versions.join(" and ")
}

/// The compiler of a target's kernels.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum KernelCompiler {
    /// NVIDIA's runtime compiler.
    Nvrtc,
    /// LLVM, with CUDA's libdevice.
    Llvm,
}

/// A target that declares models.
#[derive(Debug, Clone)]
pub struct DeclaredTarget {
    /// The package's name.
    pub package: PlainName,
    /// The package's id in Cargo's format.
    pub package_id: String,
    /// The package's folder: the working directory of its models.
    pub folder: camino::Utf8PathBuf,
    /// The target's name.
    pub name: Foreign,
    /// Cargo's option for this kind of target: `--bench`, `--example`, `--test` or `--bin`.
    pub option: &'static str,
    /// The version of Burn.
    pub burn: Foreign,
}

impl DeclaredTarget {
    /// Returns the compiler of the target's kernels.
    ///
    /// Since Burn 0.22 this is LLVM, unless cubecl is built with the feature that chooses NVRTC.
    #[must_use]
    pub fn kernel_compiler(&self, chooses_nvrtc: bool) -> KernelCompiler {
        match self.is_at_least(0, 22) && !chooses_nvrtc {
            true => KernelCompiler::Llvm,
            false => KernelCompiler::Nvrtc,
        }
    }

    /// Returns the probable compiler of the target's kernels before the build.
    ///
    /// Uses the features of the whole workspace. A build of only some packages may have fewer features.
    #[must_use]
    pub fn likely_kernel_compiler(&self, workspace: &Workspace) -> KernelCompiler {
        let package = workspace.packages().find(|package| package.id.repr == self.package_id);
        let mut graph = package.into_iter().flat_map(|package| workspace.graph(package, None));
        let chooses_nvrtc = |(package, node): (&Package, &Node)| {
            let mut features = node.features.iter();
            package.name.as_str() == CUDA_RUNTIME && features.any(|feature| feature.as_str() == NVRTC_FEATURE)
        };
        self.kernel_compiler(graph.any(chooses_nvrtc))
    }

    /// Whether this version of Burn caches shapes and scalars of launches on the GPU for later launches.
    #[must_use]
    pub fn caches_launches(&self) -> bool {
        self.is_at_least(0, 22)
    }

    /// Whether this version of Burn frees memory after a refused allocation and tries again.
    ///
    /// If so, only a run with limited memory shows what fits.
    #[must_use]
    pub fn retries_allocations(&self) -> bool {
        self.is_at_least(0, 22)
    }

    /// Whether a trace has source lines only if the model runs on the thread of fusion.
    #[must_use]
    pub fn tells_lines_inside(&self) -> bool {
        self.is_at_least(0, 22)
    }

    /// Whether every build supports explanations and what-if settings, without features of cargo-vram.
    #[must_use]
    pub fn explains_in_every_build(&self) -> bool {
        self.is_at_least(0, 22)
    }

    fn is_at_least(&self, major: u64, minor: u64) -> bool {
        // Callers ask for a property and never for a version. So for a further version of Burn, only the
        // predicates above need a look. See docs/design/rooms.md.
        Version::parse(self.burn.raw()).is_ok_and(|burn| (burn.major, burn.minor) >= (major, minor))
    }
}

/// Returns the targets of the selected packages that declare models, and the problems of packages that cannot be used.
#[must_use]
pub fn declared_targets(workspace: &Workspace) -> (Vec<DeclaredTarget>, Vec<Problem>) {
    let mut declared = Vec::new();
    let mut problems = Vec::new();
    for package in workspace.packages() {
        match package_targets(workspace, package) {
            Ok(targets) => declared.extend(targets),
            Err(problem) => problems.push(problem),
        }
    }
    (declared, problems)
}

/// Whether a package declares models and has no problem that prevents their build.
pub(super) fn has_models_to_build(workspace: &Workspace, package: &Package) -> bool {
    package_targets(workspace, package).is_ok_and(|targets| !targets.is_empty())
}

/// Whether a package declares models, usable or not.
fn declares_models(package: &Package) -> bool {
    let has_bench = |target: &Target| target.name == DEFAULT_TARGET && target.is_bench();
    package.metadata.get("vram").is_some() || package.targets.iter().any(has_bench)
}

fn package_targets(workspace: &Workspace, package: &Package) -> Result<Vec<DeclaredTarget>, Problem> {
    if !declares_models(package) {
        return Ok(Vec::new());
    }
    let problem = |code, message, help: &str| Problem {
        package: PlainName::escaped(&package.name),
        target: None,
        code,
        message,
        help: Some(help.to_owned().into()),
    };
    // Check the dependency before the build. Otherwise, the build would take minutes and then fail.
    if workspace
        .versions_in_graph(package, env!("CARGO_PKG_NAME"), None)
        .is_empty()
    {
        return Err(problem(
            ErrorCode::Manifest,
            format!("{} declares models but does not depend on cargo-vram", package.name).into(),
            "add cargo-vram to the package's [dev-dependencies], with `default-features = false` and the feature for \
             its version of Burn, such as \"burn-0_21\"",
        ));
    }
    let names: Vec<String> = match package.metadata.get("vram") {
        Some(table) => match table.get("targets").map(|value| serde_json::from_value(value.clone())) {
            Some(Ok(names)) => names,
            Some(Err(error)) => {
                return Err(problem(
                    ErrorCode::Manifest,
                    format!("invalid `targets` in [package.metadata.vram]: {error}").into(),
                    "write a list of target names: targets = [\"vram\"]",
                ));
            }
            None => vec![DEFAULT_TARGET.to_owned()],
        },
        None => vec![DEFAULT_TARGET.to_owned()],
    };
    let mut targets = Vec::new();
    for name in names {
        let found = package
            .targets
            .iter()
            .find_map(|t| Some((t, option(t.kind.first()?)?)).filter(|_| t.name == name));
        let Some((target, option)) = found else {
            return Err(problem(
                ErrorCode::Manifest,
                format!(
                    "[package.metadata.vram] names the target `{name}`, but {} has no bench, example, test or bin of \
                     this name",
                    package.name
                )
                .into(),
                "correct the name, or add the target to Cargo.toml",
            ));
        };
        if option == "--bench" || option == "--test" {
            // With Cargo's harness, the build succeeds and the program then answers nothing.
            require_no_harness(package, option, &target.name).map_err(|line| {
                problem(
                    ErrorCode::Harness,
                    format!("{line}: the target `{name}` has no `harness = false`, so Cargo's own test harness replaces the `main` of `models!`").into(),
                    &format!("add `harness = false` below `name = \"{name}\"`"),
                )
            })?;
        }
        targets.push((target.name.clone(), option));
    }
    let burn = burn(workspace, package).map_err(|(code, message, help)| problem(code, message.into(), &help))?;
    Ok(targets
        .into_iter()
        .map(|(name, option)| DeclaredTarget {
            package: PlainName::escaped(&package.name),
            package_id: package.id.repr.clone(),
            folder: package
                .manifest_path
                .parent()
                .map(camino::Utf8Path::to_owned)
                .unwrap_or_default(),
            name: name.into(),
            option,
            burn: burn.to_string().into(),
        })
        .collect())
}

/// Returns the version of Burn that a package uses, or the code, message and help of the problem with it.
///
/// Ignores a Burn that only cargo-vram depends on: in a workspace with both versions, cargo-vram depends on both.
fn burn(workspace: &Workspace, package: &Package) -> Result<Version, (ErrorCode, String, String)> {
    let name = &package.name;
    let mut own = workspace.versions_in_graph(package, "burn", Some(env!("CARGO_PKG_NAME")));
    if own.is_empty() {
        own = workspace.versions_in_graph(package, "burn", None);
    }
    match own.as_slice() {
        [] => Err((
            ErrorCode::UnsupportedBurn,
            format!("{name} does not depend on Burn"),
            "add burn 0.21 to its dependencies, and cargo-vram with `default-features = false, features = \
             [\"burn-0_21\"]`"
                .to_owned(),
        )),
        [one] if !supports_burn(one) => Err((
            ErrorCode::UnsupportedBurn,
            format!("{name} uses Burn {one}, which this version of cargo-vram does not support"),
            format!(
                "use Burn {}, or a version of cargo-vram that supports Burn {one}",
                supported_burn().replace(" and ", " or ")
            ),
        )),
        [one] => match other_adapter(package, one) {
            None => Ok(one.clone()),
            Some(other) => Err((
                ErrorCode::OtherAdapter,
                format!(
                    "{name} uses Burn {one}, but enables the cargo-vram feature `{other}`, which is for another \
                     version of Burn"
                ),
                format!(
                    "enable the cargo-vram feature \"{}\" instead, in {}",
                    adapter_feature(one),
                    package.manifest_path
                ),
            )),
        },
        several => {
            let list: Vec<_> = several.iter().map(ToString::to_string).collect();
            Err((
                ErrorCode::TwoBurns,
                format!("{name} uses more than one version of Burn: {}", list.join(" and ")),
                "make all dependencies use one version of Burn (`cargo tree -i burn@VERSION` shows which packages \
                 need it), and enable the cargo-vram feature for this version"
                    .to_owned(),
            ))
        }
    }
}

/// Returns an adapter feature that a package enables, if it does not enable the adapter for its own version of Burn.
///
/// Returns `None` if the package enables no adapter, because one of its own features may do so.
fn other_adapter(package: &Package, burn: &Version) -> Option<String> {
    let own = package
        .dependencies
        .iter()
        .filter(|dependency| dependency.name == env!("CARGO_PKG_NAME"));
    let adapters: Vec<&String> = own
        .flat_map(|dependency| &dependency.features)
        .filter(|feature| feature.starts_with("burn-"))
        .collect();
    let wanted = adapter_feature(burn);
    let is_there = adapters.iter().any(|adapter| **adapter == wanted);
    adapters.first().filter(|_| !is_there).map(|adapter| (*adapter).clone())
}

/// Returns Cargo's option for a kind of target.
pub(super) fn option(kind: &TargetKind) -> Option<&'static str> {
    match kind {
        TargetKind::Bench => Some("--bench"),
        TargetKind::Example => Some("--example"),
        TargetKind::Test => Some("--test"),
        TargetKind::Bin => Some("--bin"),
        _ => None,
    }
}

/// Checks that a target has `harness = false`. Reads the manifest, because `cargo metadata` does not contain `harness`.
///
/// The error is the place in the manifest where the target is.
fn require_no_harness(package: &Package, option: &str, name: &str) -> Result<(), String> {
    // Cargo has read this manifest already, so an error here is not the user's mistake.
    let Ok(text) = std::fs::read_to_string(&package.manifest_path) else {
        return Ok(());
    };
    let Ok(manifest) = toml_edit::Document::parse(text.as_str()) else {
        return Ok(());
    };
    let targets = manifest.get(option.trim_start_matches('-'));
    // TOML has two forms for the same targets: `[[bench]]` and `bench = [{ … }]`.
    let inline = targets.and_then(toml_edit::Item::as_array).into_iter().flatten();
    let off_inline = inline.filter_map(toml_edit::Value::as_inline_table).any(|table| {
        table.get("name").and_then(toml_edit::Value::as_str) == Some(name)
            && table.get("harness").and_then(toml_edit::Value::as_bool) == Some(false)
    });
    let table = targets
        .and_then(toml_edit::Item::as_array_of_tables)
        .into_iter()
        .flatten()
        .find(|table| table.get("name").and_then(|item| item.as_str()) == Some(name));
    let off = table
        .and_then(|table| table.get("harness"))
        .and_then(|item| item.as_bool())
        == Some(false);
    if off || off_inline {
        return Ok(());
    }
    let line = table
        .and_then(toml_edit::Table::span)
        .map(|span| text[..span.start].lines().count() + 1);
    let path = package.manifest_path.as_str();
    Err(line.map_or_else(|| path.to_owned(), |line| format!("{path}:{line}")))
}
