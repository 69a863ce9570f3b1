//! Which targets of a package declare models, and whether they can be run at all.

use cargo_metadata::semver::{Version, VersionReq};
use cargo_metadata::{Node, Package, Target, TargetKind};
use serde::{Deserialize, Serialize};

use super::Workspace;
use crate::report::{ErrorCode, Problem};

/// The name of the benchmark target that is looked for where a package does not say otherwise.
const DEFAULT_TARGET: &str = "vram";
/// Burn's versions that models can be run with, as `major.minor`.
const SUPPORTED_BURN: &[(u64, u64)] = &[(0, 21), (0, 22)];

/// The package that compiles kernels for CUDA.
pub(super) const CUDA_RUNTIME: &str = "cubecl-cuda";
/// The feature with which it compiles them with NVRTC, as before it had LLVM.
pub(super) const NVRTC_FEATURE: &str = "cpp";

/// Whether there is an adapter for a Burn. A pre-release is another Burn than the release it comes before.
pub(crate) fn supports_burn(version: &Version) -> bool {
    version.pre.is_empty() && SUPPORTED_BURN.contains(&(version.major, version.minor))
}

/// The feature of cargo-vram that has the adapter for a Burn: `burn-0_21`.
pub(crate) fn adapter_feature(burn: &Version) -> String {
    format!("burn-{}_{}", burn.major, burn.minor)
}

/// The newest Burn that there is an adapter for and that a requirement takes, as its `major.minor.0`.
pub(crate) fn supported_by(requirement: &VersionReq) -> Option<Version> {
    // No minor version of Burn had as many patches.
    let takes =
        |&&(major, minor): &&(u64, u64)| (0..100).any(|patch| requirement.matches(&Version::new(major, minor, patch)));
    let (major, minor) = SUPPORTED_BURN.iter().rev().find(takes)?;
    Some(Version::new(*major, *minor, 0))
}

/// The Burn versions that there is an adapter for, newest last: `0.21 and 0.22`.
pub(crate) fn supported_burn() -> String {
    let versions: Vec<_> = SUPPORTED_BURN
        .iter()
        .map(|(major, minor)| format!("{major}.{minor}"))
        .collect();
    versions.join(" and ")
}

/// What compiles the kernels of a target's Burn.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum KernelCompiler {
    /// NVIDIA's runtime compiler.
    Nvrtc,
    /// LLVM, which links CUDA's libdevice.
    Llvm,
}

/// A target that declares models.
#[derive(Debug, Clone)]
pub struct DeclaredTarget {
    /// The package's name.
    pub package: String,
    /// The package's id, as Cargo writes it.
    pub package_id: String,
    /// The package's folder: the working directory of its models.
    pub folder: camino::Utf8PathBuf,
    /// The target's name.
    pub name: String,
    /// What Cargo's option for such a target is called: `--bench`, `--example`, `--test`, `--bin`.
    pub option: &'static str,
    /// Burn's version.
    pub burn: String,
}

impl DeclaredTarget {
    /// What compiles its kernels. Since Burn 0.22 this is LLVM, unless cubecl is built with the feature that chooses NVRTC.
    #[must_use]
    pub fn kernel_compiler(&self, chooses_nvrtc: bool) -> KernelCompiler {
        match self.is_at_least(0, 22) && !chooses_nvrtc {
            true => KernelCompiler::Llvm,
            false => KernelCompiler::Nvrtc,
        }
    }

    /// The same, as far as the features of the whole workspace say. A build of some packages may have fewer.
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

    /// Whether its Burn keeps shapes and scalars of launches on the GPU for later ones.
    #[must_use]
    pub fn caches_launches(&self) -> bool {
        self.is_at_least(0, 22)
    }

    /// Whether its Burn frees memory where an allocation is refused, and tries once more: what fits is then known only where memory ends.
    #[must_use]
    pub fn retries_allocations(&self) -> bool {
        self.is_at_least(0, 22)
    }

    /// Whether its Burn tells which line asked for an operation only where the model runs on the thread of fusion.
    #[must_use]
    pub fn tells_lines_inside(&self) -> bool {
        self.is_at_least(0, 22)
    }

    /// Whether what its models tell, and what they may be run as instead, is a part of every build.
    #[must_use]
    pub fn explains_in_every_build(&self) -> bool {
        self.is_at_least(0, 22)
    }

    fn is_at_least(&self, major: u64, minor: u64) -> bool {
        Version::parse(&self.burn).is_ok_and(|burn| (burn.major, burn.minor) >= (major, minor))
    }
}

/// The targets of the selected packages that declare models, and those that cannot be used.
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

/// Whether a package declares models that can be built: nothing is compiled for one that is refused before.
pub(super) fn has_models_to_build(workspace: &Workspace, package: &Package) -> bool {
    package_targets(workspace, package).is_ok_and(|targets| !targets.is_empty())
}

/// Whether a package says that it declares models, whether or not they can be used.
fn declares_models(package: &Package) -> bool {
    let has_bench = |target: &Target| target.name == DEFAULT_TARGET && target.is_bench();
    package.metadata.get("vram").is_some() || package.targets.iter().any(has_bench)
}

fn package_targets(workspace: &Workspace, package: &Package) -> Result<Vec<DeclaredTarget>, Problem> {
    if !declares_models(package) {
        return Ok(Vec::new());
    }
    let problem = |code, message, help: &str| Problem {
        package: package.name.to_string(),
        target: None,
        code,
        message,
        help: Some(help.to_owned()),
    };
    // Without it a target would be built for minutes, and then not compile.
    if workspace
        .versions_in_graph(package, env!("CARGO_PKG_NAME"), None)
        .is_empty()
    {
        return Err(problem(
            ErrorCode::Manifest,
            format!("{} declares models, and does not depend on cargo-vram", package.name),
            "add cargo-vram to its [dev-dependencies], with `default-features = false` and the feature for its Burn, such as \"burn-0_21\"",
        ));
    }
    let names: Vec<String> = match package.metadata.get("vram") {
        Some(table) => match table.get("targets").map(|value| serde_json::from_value(value.clone())) {
            Some(Ok(names)) => names,
            Some(Err(error)) => {
                return Err(problem(
                    ErrorCode::Manifest,
                    format!("[package.metadata.vram] targets: {error}"),
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
                    "[package.metadata.vram] names the target `{name}`, which {} does not have",
                    package.name
                ),
                "name a bench, example, test or bin target of this package",
            ));
        };
        if option == "--bench" || option == "--test" {
            require_no_harness(package, option, &target.name).map_err(|line| {
                problem(
                    ErrorCode::Harness,
                    format!("{line}: the target `{name}` has no `harness = false`, so Cargo's own test harness replaces the `main` of `models!`"),
                    &format!("add `harness = false` below `name = \"{name}\"`"),
                )
            })?;
        }
        targets.push((target.name.clone(), option));
    }
    let burn = burn(workspace, package).map_err(|(code, message, help)| problem(code, message, &help))?;
    Ok(targets
        .into_iter()
        .map(|(name, option)| DeclaredTarget {
            package: package.name.to_string(),
            package_id: package.id.repr.clone(),
            folder: package
                .manifest_path
                .parent()
                .map(camino::Utf8Path::to_owned)
                .unwrap_or_default(),
            name,
            option,
            burn: burn.to_string(),
        })
        .collect())
}

/// The Burn of a package; or the code, message and help of why it is not one that models can be run with. What cargo-vram's own
/// features bring says nothing of the Burn that the models are written for: in a workspace with both, it brings both.
fn burn(workspace: &Workspace, package: &Package) -> Result<Version, (ErrorCode, String, String)> {
    let name = &package.name;
    let mut own = workspace.versions_in_graph(package, "burn", Some(env!("CARGO_PKG_NAME")));
    if own.is_empty() {
        own = workspace.versions_in_graph(package, "burn", None);
    }
    match own.as_slice() {
        [] => Err((
            ErrorCode::UnsupportedBurn,
            format!("{name} is not built with Burn"),
            "depend on burn 0.21, and on cargo-vram with `default-features = false, features = [\"burn-0_21\"]`"
                .to_owned(),
        )),
        [one] if !supports_burn(one) => Err((
            ErrorCode::UnsupportedBurn,
            format!("{name} is built with Burn {one}, for which this version of cargo-vram has no adapter"),
            format!(
                "use burn {}, or a cargo-vram that supports your Burn",
                supported_burn().replace(" and ", " or ")
            ),
        )),
        [one] => match other_adapter(package, one) {
            None => Ok(one.clone()),
            Some(other) => Err((
                ErrorCode::OtherAdapter,
                format!(
                    "{name} is built with Burn {one}, and with the feature `{other}` of cargo-vram, which is for another Burn"
                ),
                format!(
                    "write the feature \"{}\" for cargo-vram in {}",
                    adapter_feature(one),
                    package.manifest_path
                ),
            )),
        },
        several => {
            let list: Vec<_> = several.iter().map(ToString::to_string).collect();
            Err((
                ErrorCode::TwoBurns,
                format!("{name} is built with more than one Burn: {}", list.join(" and ")),
                "make all dependencies agree on one Burn (`cargo tree -i burn@VERSION` shows who wants which); the feature of cargo-vram must be that of your Burn".to_owned(),
            ))
        }
    }
}

/// An adapter that a package asks for, where it does not ask for that of its own Burn. `None` where it names none: then a feature
/// of its own may.
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

/// What Cargo's option for targets of a kind is called.
pub(super) fn option(kind: &TargetKind) -> Option<&'static str> {
    match kind {
        TargetKind::Bench => Some("--bench"),
        TargetKind::Example => Some("--example"),
        TargetKind::Test => Some("--test"),
        TargetKind::Bin => Some("--bin"),
        _ => None,
    }
}

/// Cargo does not tell of `harness`, so the manifest is read. Fails with where it should have stood.
fn require_no_harness(package: &Package, option: &str, name: &str) -> Result<(), String> {
    let Ok(text) = std::fs::read_to_string(&package.manifest_path) else {
        return Ok(());
    };
    let Ok(manifest) = toml_edit::Document::parse(text.as_str()) else {
        return Ok(());
    };
    let targets = manifest.get(option.trim_start_matches('-'));
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
