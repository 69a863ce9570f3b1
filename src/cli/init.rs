//! `cargo vram init`: writes a first benchmark, its Cargo.toml entries, and a first budgets.yaml.

mod bench;
mod conditions;
mod manifest;
mod scan;
mod source;
mod undo;

use std::fmt::Write as _;

use camino::{Utf8Path, Utf8PathBuf};
use cargo_metadata::semver::Version;
use cargo_metadata::{Package, Target, TargetKind};
use clap::Args;
use miette::Diagnostic;
use thiserror::Error;

use self::bench::{Bench, Dialect, declared_models};
use self::manifest::CargoManifest;
use self::scan::SourceScan;
use self::source::DependencySource;
use self::undo::Undo;
use super::exit::Exit;
use super::interrupt::Catching;
use super::options::Packages;
use super::terminal;
use super::terminal::Progress;
use crate::cli::error::{CliError, ExitCoded};
use crate::names::quoted;
use crate::untrusted::named;
use crate::workspace::{
    self, BuiltFeatures, Selection, Workspace, WorkspaceError, adapter_feature, built_features, supported_burn,
    supported_by, supports_burn, update_of_prereleases,
};

/// Write a first benchmark, its Cargo.toml entries, and a first budgets.yaml
///
/// The benchmark declares a first model.
///
/// Existing files are not overwritten. If Cargo cannot resolve the result, all changes are undone.
#[derive(Debug, Args)]
#[command(after_long_help = "\
Examples:
  cargo vram init
  cargo vram init -p my-models --gpu a100-80gb
  cargo vram init --write-profile")]
pub(super) struct Init {
    /// Include the modules of the package's binary by path, if it has no library
    #[arg(long, help_heading = "Selection")]
    from_binary: bool,
    /// Write budgets for this GPU
    ///
    /// `cargo vram gpus` lists the ids.
    #[arg(long, value_name = "ID", default_value = "l4", help_heading = "GPU")]
    gpu: String,
    /// Also write a build profile for fast checks to the workspace's Cargo.toml
    #[arg(long, help_heading = "Output")]
    write_profile: bool,
    /// Use the crate cargo-vram from this folder
    ///
    /// By default, the command uses the source that this tool was built from, the registry, or its repository.
    #[arg(long, value_name = "FOLDER", help_heading = "Cargo")]
    path: Option<Utf8PathBuf>,
    #[command(flatten)]
    packages: Packages,
}

#[derive(Debug, Error, Diagnostic)]
pub(super) enum InitError {
    #[error("several packages are selected: {0}")]
    #[diagnostic(code(init::several), help("select one with `-p PACKAGE`"))]
    Several(String),
    #[error("{0} already exists")]
    #[diagnostic(
        code(init::exists),
        help("nothing was written; edit the file by hand, or move it away first")
    )]
    Exists(Utf8PathBuf),
    #[error("{0} already has {1}")]
    #[diagnostic(code(init::exists), help("nothing was written; edit the file by hand"))]
    Declared(Utf8PathBuf, &'static str),
    #[error("{package} has only a binary, which a benchmark cannot link")]
    #[diagnostic(code(init::binary_only))]
    BinaryOnly {
        package: String,
        #[help]
        ways: String,
    },
    #[error("the library of {package} is a {kind}, which a benchmark cannot link")]
    #[diagnostic(
        code(init::unlinkable),
        help(
            "let Cargo also build it as a Rust library: add `\"rlib\"` to `crate-type` in [lib]; for a proc-macro, \
             move the models to a separate package"
        )
    )]
    Unlinkable { package: String, kind: String },
    #[error("cannot write {path}")]
    #[diagnostic(
        code(init::unwritable),
        help(
            "nothing was written; check whether something else has this name, and whether you may write to the folder"
        )
    )]
    Unwritable { path: Utf8PathBuf, source: std::io::Error },
    #[error("cannot read {path}")]
    #[diagnostic(code(init::unreadable))]
    Unreadable { path: Utf8PathBuf, source: std::io::Error },
    #[error("{path} is not valid TOML")]
    #[diagnostic(code(init::not_toml))]
    NotToml {
        path: Utf8PathBuf,
        source: toml_edit::TomlError,
    },
    #[error("{0} does not depend on burn")]
    #[diagnostic(
        code(init::no_burn),
        help("run `cargo add burn@0.21 --features cuda,fusion,autotune,autodiff`")
    )]
    NoBurn(String),
    #[error("{package} uses Burn {burn}, which this version of cargo-vram does not support")]
    #[diagnostic(code(init::unsupported_burn))]
    UnsupportedBurn {
        package: String,
        burn: String,
        #[help]
        supported: String,
    },
    #[error("Cargo.lock pins Burn {burn}, a pre-release, which this version of cargo-vram does not support")]
    #[diagnostic(code(init::locked_prerelease))]
    LockedPrerelease {
        burn: String,
        #[help]
        command: String,
    },
    #[error("cannot find the source of the crate cargo-vram")]
    #[diagnostic(
        code(init::no_source),
        help(
            "nothing was written; the folder that this tool was built from is gone, and the tool names no repository: \
             check out the source of cargo-vram {version} and pass its folder with --path",
            version = env!("CARGO_PKG_VERSION")
        )
    )]
    NoSource,
    #[error("Cargo cannot resolve {package} with cargo-vram; all changes were undone\n{said}")]
    #[diagnostic(code(init::unresolved))]
    Unresolved {
        package: String,
        said: String,
        #[help]
        help: String,
    },
    #[error("cargo-vram cannot be used in {package}; all changes were undone\n{said}")]
    #[diagnostic(code(init::unusable))]
    Unusable {
        package: String,
        said: String,
        #[help]
        help: Option<String>,
    },
}

impl ExitCoded for InitError {
    fn exit(&self) -> Exit {
        match self {
            Self::Unwritable { .. } => Exit::Incomplete,
            Self::Several(..)
            | Self::Exists(..)
            | Self::Declared(..)
            | Self::BinaryOnly { .. }
            | Self::Unlinkable { .. }
            | Self::Unreadable { .. }
            | Self::NotToml { .. }
            | Self::NoBurn(..)
            | Self::UnsupportedBurn { .. }
            | Self::LockedPrerelease { .. }
            | Self::NoSource
            | Self::Unresolved { .. }
            | Self::Unusable { .. } => Exit::Unusable,
        }
    }
}

/// The name of the benchmark target and of its file.
const BENCH: &str = "vram";
/// The features of Burn that change how much GPU memory a model needs.
const JUDGED_FEATURES: [&str; 2] = ["fusion", "autotune"];
/// The crates that have these features: Burn itself, and its backends, in which some are on by default.
const BACKENDS: [&str; 5] = ["burn", "burn-cuda", "burn-wgpu", "burn-rocm", "burn-cpu"];
/// The maximum number of models that the closing message names.
const MOST_NAMED: usize = 8;

/// What to write for a package, and the facts for the closing message.
struct InitPlan<'a> {
    package: &'a Package,
    folder: &'a Utf8Path,
    scan: SourceScan,
    bench: Bench,
    source: DependencySource,
    /// Burn's version, or the package's requirement if Cargo resolved no version.
    burn: String,
    /// The feature of cargo-vram for this Burn version.
    adapter: String,
    trains: bool,
}

impl Init {
    pub(super) fn run(&self) -> Result<Exit, CliError> {
        let selection = Selection {
            // As Cargo chooses without `-p`. Only here: a check of the default members would miss models.
            default_members: true,
            ..self.packages.selection()?
        };
        let root = workspace::workspace_root(&selection)?;
        let lock = root.join("Cargo.lock");
        // Reading the workspace may already write Cargo.lock.
        let mut undo = Undo::default();
        undo.remember(&lock).map_err(|source| unwritable(&lock, source))?;
        let workspace = Workspace::load(&selection)?;
        let package = self.package(&workspace)?;
        // A misspelled GPU must fail before anything is written.
        crate::gpu::Profiles::builtin()?.get(&self.gpu)?;
        let folder = package.manifest_path.parent().unwrap_or(&root);
        let mut manifest = read_manifest(&package.manifest_path)?;
        // The project is set up already, and only the profile is new.
        if self.write_profile && manifest.has_bench() {
            let added = write_profile(&root, &workspace, &mut undo)?;
            resolve(&selection, package)?;
            if !terminal::is_quiet() {
                terminal::remark(&match added.as_str() {
                    "" => format!(
                        "{} already has the build profile, or has no place for it",
                        root.join("Cargo.toml")
                    ),
                    added => format!("wrote {}\n{}", root.join("Cargo.toml"), indented(added)),
                });
            }
            undo.keep();
            return Ok(Exit::Success);
        }
        let bench = folder.join("benches").join(format!("{BENCH}.rs"));
        let budgets = root.join("budgets.yaml");
        // `exists` follows links, and would overlook a broken one.
        let is_there = |path: &Utf8Path| path.symlink_metadata().is_ok();
        let models = match is_there(&budgets) {
            true => Vec::new(),
            false => declared_models(&std::fs::read_to_string(&bench).unwrap_or_default()),
        };
        if !models.is_empty() {
            // Only budgets.yaml is missing, so the rest of the project does not matter.
            require_burn(&workspace, package, &lock)?;
            undo.put(&budgets, &first_budgets(&self.gpu, &models))
                .map_err(|source| unwritable(&budgets, source))?;
            undo.keep();
            if !terminal::is_quiet() {
                terminal::remark(&format!(
                    "wrote {}\n{} already exists; the limits are examples: replace them",
                    named(budgets.as_str()),
                    named(bench.as_str())
                ));
            }
            return Ok(Exit::Success);
        }
        // Everything is read before anything is written.
        let plan = self.plan(&workspace, &selection, package, folder, &lock)?;
        if is_there(&bench) {
            return Err(InitError::Exists(bench).into());
        }
        // The path may be a folder or a broken link.
        if is_there(&budgets) && !budgets.is_file() {
            return Err(InitError::Exists(budgets).into());
        }
        // From here on, a signal must not end the program before the changes are undone.
        let signals = Catching::new();
        let path = &package.manifest_path;
        manifest.add_cargo_vram(path, &plan.source, &plan.adapter, plan.trains)?;
        manifest.add_bench(path)?;
        let mut put = |path: &Utf8Path, text: &str| undo.put(path, text).map_err(|source| unwritable(path, source));
        put(path, manifest.text())?;
        put(&bench, &plan.bench.text)?;
        // Limits that somebody chose are worth more than the examples.
        let has_budgets = budgets.exists();
        if !has_budgets {
            put(
                &budgets,
                &first_budgets(&self.gpu, std::slice::from_ref(&plan.bench.model)),
            )?;
        }
        // Only Cargo knows whether the result resolves. If it does not, dropping `undo` restores every file.
        let progress = Progress::spinner("resolving dependencies");
        let resolved = resolve(&selection, package);
        signals.check()?;
        let mut resolved = resolved?;
        // A benchmark is built without the workspace's binaries, and so without the Burn features that only
        // they enable. The models would not run as they are deployed.
        let deployed = deployed_features(&resolved, &selection, package)?;
        let mut notes: Vec<String> = deployed.note.into_iter().collect();
        let (features, binaries) = (deployed.missing, deployed.binaries);
        if !features.is_empty() {
            if manifest.add_burn_features(path, &features, &binaries)? {
                put(path, manifest.text())?;
                resolved = resolve(&selection, package)?;
                notes.push(format!(
                    "{binaries} enables Burn's {}, so the benchmark does, too, with a development dependency",
                    features.join(" and ")
                ));
            } else {
                notes.push(format!(
                    "{binaries} enables Burn's {}, but the benchmark does not: add these features to burn in \
                     [dev-dependencies]",
                    features.join(" and ")
                ));
            }
        }
        drop(progress);
        let mut offer = None;
        if self.write_profile {
            write_profile(&root, &resolved, &mut undo)?;
            resolve(&selection, package)?;
        } else {
            let missing = read_manifest(&root.join("Cargo.toml"))?.add_profile(|name| resolved.has_package(name));
            offer = Some(missing).filter(|missing| !missing.is_empty());
        }
        signals.check()?;
        // Nothing can fail any more, so the changes stay.
        let mut changed = undo.keep();
        changed.sort_by_key(|path| *path == lock);
        if !terminal::is_quiet() {
            for path in changed {
                terminal::remark(&format!("wrote {}", named(path.as_str())));
            }
            terminal::remark(&plan.closing(&notes, offer.as_deref(), &root, has_budgets));
        }
        Ok(Exit::Success)
    }

    /// Returns the selected package or, of several, the only one that uses Burn.
    fn package<'a>(&self, workspace: &'a Workspace) -> Result<&'a Package, InitError> {
        let selected: Vec<_> = workspace.packages().collect();
        let uses_burn = |package: &&&Package| package.dependencies.iter().any(|dependency| dependency.name == "burn");
        let with_burn: Vec<_> = selected.iter().filter(uses_burn).copied().collect();
        match (selected.as_slice(), with_burn.as_slice()) {
            ([one], _) | (_, [one]) => Ok(one),
            (all, with_burn) => {
                let shown = if with_burn.is_empty() { all } else { with_burn };
                let names: Vec<_> = shown.iter().map(|package| package.name.as_str()).collect();
                Err(InitError::Several(names.join(", ")))
            }
        }
    }

    fn plan<'a>(
        &self,
        workspace: &Workspace,
        selection: &Selection,
        package: &'a Package,
        folder: &'a Utf8Path,
        lock: &Utf8Path,
    ) -> Result<InitPlan<'a>, CliError> {
        let library = library(package)?;
        let (burn, version) = require_burn(workspace, package, lock)?;
        let built = built_features(workspace, selection, &[package], true)?;
        let features = built.get(package.name.as_str()).cloned().unwrap_or_default();
        let program = package.targets.iter().find(|target| target.is_bin());
        let (scan, root, modules) = match (library, program) {
            (Some(library), _) => {
                let root = library.name.replace('-', "_");
                (
                    SourceScan::read(&library.src_path, features, false),
                    Some(root),
                    String::new(),
                )
            }
            (None, program) => {
                let main = program.map_or_else(|| folder.join("src/main.rs"), |program| program.src_path.clone());
                let scan = SourceScan::read(&main, features, true);
                if !self.from_binary || scan.files.is_empty() {
                    return Err(binary_only(package, folder, &main, &scan).into());
                }
                let modules = included(&scan, folder);
                (scan, None, modules)
            }
        };
        let dialect = Dialect::new((version.major, version.minor));
        let bench = Bench::new(&scan, dialect, root.as_deref(), &modules);
        // Burn's `train` brings the `TrainStep` that cargo-vram's own feature `train` needs.
        let uses_train = built.get("burn").is_some_and(|features| features.contains("train"));
        let source = DependencySource::find(
            self.path.as_deref(),
            Utf8Path::new(env!("CARGO_MANIFEST_DIR")),
            env!("CARGO_PKG_REPOSITORY"),
        );
        Ok(InitPlan {
            package,
            folder,
            trains: uses_train || bench.trains.is_some(),
            scan,
            bench,
            source: source.ok_or(InitError::NoSource)?,
            burn,
            adapter: adapter_feature(&version),
        })
    }
}

impl InitPlan<'_> {
    /// Returns the closing message: what was found, and the next steps.
    fn closing(&self, notes: &[String], offer: Option<&str>, root: &Utf8Path, has_budgets: bool) -> String {
        let mut text = String::new();
        let train = if self.trains {
            ", with `train`, so the feature `train` of cargo-vram is on"
        } else {
            ""
        };
        let _ = writeln!(text, "\n{} uses Burn {}{train}", self.package.name, self.burn);
        if let DependencySource::Named(folder) | DependencySource::Built(folder) = &self.source {
            let _ = writeln!(
                text,
                "the crate cargo-vram comes from {folder}: everybody who builds the benchmarks needs this folder"
            );
        }
        for note in notes {
            let _ = writeln!(text, "{note}");
        }
        let (models, private): (Vec<_>, Vec<_>) = self
            .scan
            .models()
            .into_iter()
            .partition(|model| self.scan.path(model).is_some());
        if !models.is_empty() || !private.is_empty() {
            let _ = writeln!(text, "\nmodels in {}:", self.package.name);
        }
        for model in models.iter().take(MOST_NAMED) {
            let file = model.file.strip_prefix(self.folder).unwrap_or(&model.file);
            let traits = if self.scan.trains(model) {
                "Module, TrainStep"
            } else {
                "Module"
            };
            let _ = writeln!(text, "  {} ({}): {traits}", quoted(&model.name), named(file.as_str()));
        }
        if let Some(more) = models.len().checked_sub(MOST_NAMED).filter(|more| *more > 0) {
            let _ = writeln!(text, "  and {more} more");
        }
        if !private.is_empty() {
            let names: Vec<_> = private
                .iter()
                .take(MOST_NAMED)
                .map(|model| quoted(&model.name))
                .collect();
            let more = match private.len() - names.len() {
                0 => String::new(),
                more => format!(" and {more} more"),
            };
            let _ = writeln!(
                text,
                "  private: {}{more}; to use one in the benchmark, make it and its module `pub`",
                names.join(", ")
            );
        }
        for (model, feature) in &self.scan.hidden_train_steps {
            let _ = writeln!(
                text,
                "  {} implements `TrainStep` only with the feature {feature} of {package}. To train it in the \
                 benchmark, undo these changes and run `cargo vram init -p {package} --features {package}/{feature}`. \
                 Then pass the same option to `cargo vram check`.",
                quoted(model),
                package = self.package.name,
            );
        }
        let edit = match &self.bench.trains {
            Some(path) => format!(
                "in benches/vram.rs, replace the sizes and the optimizer of {} with those of your training",
                quoted(path)
            ),
            None => "in benches/vram.rs, replace `First` with your own model; if you rename `first`, rename it in budgets.yaml, \
                     too"
                .to_owned(),
        };
        let model = &self.bench.model;
        let limits = match has_budgets {
            false => format!(
                "in budgets.yaml, set the limits of {} to values that fit your GPU",
                quoted(model)
            ),
            true => format!(
                "in budgets.yaml, add limits under `models`, such as \
                 `{model}: {{ inputs: {{ batch_size: 32 }}, reserved: 8 GiB }}`"
            ),
        };
        let _ = writeln!(
            text,
            "\nnext steps:\n  1. {edit}\n  2. {limits}\n  3. run `cargo vram check`\n  4. run `cargo vram bless`, and commit \
             budgets.yaml and budgets.lock: later checks find growth"
        );
        text.push_str(
            "\nThe first check compiles Burn, which takes 4 to 8 minutes on two cores. Later checks compile only what \
             changed.\n",
        );
        if let Some(offer) = offer {
            let _ = writeln!(
                text,
                "These lines in {} keep the build small, and make every model run about three times as fast. \
                 `cargo vram init --write-profile` writes them:\n\n{}",
                root.join("Cargo.toml"),
                indented(offer)
            );
        }
        text.trim_end().to_owned()
    }
}

fn unwritable(path: &Utf8Path, source: std::io::Error) -> InitError {
    InitError::Unwritable {
        path: path.to_owned(),
        source,
    }
}

fn indented(text: &str) -> String {
    let line = |line: &str| {
        if line.is_empty() {
            "\n".to_owned()
        } else {
            format!("    {line}\n")
        }
    };
    text.lines().map(line).collect::<String>().trim_end().to_owned()
}

fn read_manifest(path: &Utf8Path) -> Result<CargoManifest, CliError> {
    let text = std::fs::read_to_string(path).map_err(|source| InitError::Unreadable {
        path: path.to_owned(),
        source,
    })?;
    Ok(CargoManifest::parse(text).map_err(|source| InitError::NotToml {
        path: path.to_owned(),
        source,
    })?)
}

/// Writes the missing lines of the build profile, and returns them.
fn write_profile(root: &Utf8Path, workspace: &Workspace, undo: &mut Undo) -> Result<String, CliError> {
    let path = root.join("Cargo.toml");
    let mut manifest = read_manifest(&path)?;
    let added = manifest.add_profile(|name| workspace.has_package(name));
    undo.put(&path, manifest.text())
        .map_err(|source| unwritable(&path, source))?;
    Ok(added)
}

/// Returns the library that a benchmark can link, or `None` if the package has no library.
///
/// # Errors
///
/// The package has only a library of another kind, such as a proc-macro.
fn library(package: &Package) -> Result<Option<&Target>, InitError> {
    const RUST: [TargetKind; 3] = [TargetKind::Lib, TargetKind::RLib, TargetKind::DyLib];
    const LIBRARIES: [TargetKind; 3] = [TargetKind::CDyLib, TargetKind::StaticLib, TargetKind::ProcMacro];
    let with = |kinds: &[TargetKind]| {
        let is_of = |target: &&Target| target.kind.iter().any(|kind| kinds.contains(kind));
        package.targets.iter().find(is_of)
    };
    match (with(&RUST), with(&LIBRARIES)) {
        (Some(library), _) => Ok(Some(library)),
        (None, None) => Ok(None),
        (None, Some(other)) => Err(InitError::Unlinkable {
            package: package.name.to_string(),
            kind: other
                .kind
                .iter()
                .map(ToString::to_string)
                .collect::<Vec<_>>()
                .join(", "),
        }),
    }
}

/// Returns the lines with which the benchmark includes the modules of a program.
fn included(scan: &SourceScan, folder: &Utf8Path) -> String {
    let from = folder.join("benches");
    let mut text = String::new();
    for (name, file) in &scan.files {
        // rustc resolves `#[path]` from the folder of the benchmark.
        // A relative path is valid on other machines, too.
        let path = pathdiff::diff_utf8_paths(file, &from).unwrap_or_else(|| file.clone());
        let _ = writeln!(
            text,
            "#[allow(dead_code, unused_imports)]\n#[path = {:?}]\nmod {name};",
            path.as_str()
        );
    }
    text + "\n"
}

/// Returns the error for a package that has only a binary. It describes two ways out, the smaller one first.
fn binary_only(package: &Package, folder: &Utf8Path, main: &Utf8Path, scan: &SourceScan) -> InitError {
    let short = |path: &Utf8Path| path.strip_prefix(folder).unwrap_or(path).to_string();
    let main_file = short(main);
    // A benchmark can include a file by path, but not the `main.rs` of a program with its `fn main`.
    let in_main = scan.models().iter().any(|model| model.file == main);
    let files: Vec<_> = scan.files.iter().map(|(_, file)| short(file)).collect();
    let is_ready = !scan.models().is_empty() && !in_main && scan.files_stand_alone();
    let include = if is_ready {
        format!(
            "run `cargo vram init --from-binary`: the benchmark includes {} by path, and your sources do not change",
            files.join(", ")
        )
    } else {
        format!(
            "move the model from {main_file} into its own file, such as src/model.rs, that uses nothing from \
             {main_file}; then run `cargo vram init --from-binary`"
        )
    };
    let name = package.name.replace('-', "_");
    let library = format!(
        "move the model from {main_file} into src/lib.rs (`pub mod model;`), and use it from {main_file} as \
         `{name}::model`; then run `cargo vram init`"
    );
    InitError::BinaryOnly {
        package: package.name.to_string(),
        ways: format!("nothing was written; choose one of two ways\n1. small change: {include}\n2. library: {library}"),
    }
}

/// Returns the package's Burn as text and as a version: the one that Cargo resolved. If Cargo resolved none, as for an
/// optional dependency, the requirement counts.
///
/// # Errors
///
/// The package does not depend on Burn, or cargo-vram does not support its version.
fn require_burn(workspace: &Workspace, package: &Package, lock: &Utf8Path) -> Result<(String, Version), InitError> {
    let mut declared = package
        .dependencies
        .iter()
        .filter(|dependency| dependency.name == "burn");
    let Some(dependency) = declared.next() else {
        return Err(InitError::NoBurn(package.name.to_string()));
    };
    let required = supported_by(&dependency.req);
    let unsupported = |burn: String| InitError::UnsupportedBurn {
        package: package.name.to_string(),
        burn,
        supported: format!(
            "nothing was written; this version of cargo-vram supports Burn {}",
            supported_burn()
        ),
    };
    // A Burn that only cargo-vram brings says nothing about the project.
    let versions = workspace.versions_in_graph(package, "burn", Some(env!("CARGO_PKG_NAME")));
    let Some(version) = versions
        .iter()
        // Of several versions, an unsupported one decides: the user must hear about it.
        .find(|version| !supports_burn(version))
        .or(versions.last())
    else {
        return match required {
            Some(version) => Ok((dependency.req.to_string(), version)),
            None => Err(unsupported(dependency.req.to_string())),
        };
    };
    if supports_burn(version) {
        return Ok((version.to_string(), version.clone()));
    }
    let text = std::fs::read_to_string(lock).unwrap_or_default();
    match update_of_prereleases(&text).filter(|_| !version.pre.is_empty()) {
        // The manifest allows a supported version, so moving the lock is enough.
        Some(command) if required.is_some() => Err(InitError::LockedPrerelease {
            burn: version.to_string(),
            command: format!(
                "nothing was written; run this command, and then `cargo vram init` again\n{}",
                in_lines(&command)
            ),
        }),
        _ => Err(unsupported(version.to_string())),
    }
}

/// Breaks a long command into lines that end with a backslash. A line that the terminal wraps could not be copied.
fn in_lines(command: &str) -> String {
    const WIDTH: usize = 80;
    let mut lines = vec![String::new()];
    for option in command.split(" -p ").enumerate() {
        let word = match option {
            (0, command) => command.to_owned(),
            (_, name) => format!(" -p {name}"),
        };
        if let Some(line) = lines.last_mut()
            && line.len() + word.len() <= WIDTH
        {
            line.push_str(&word);
        } else {
            lines.push(word);
        }
    }
    lines.join(" \\\n")
}

/// Resolves the edited workspace. Tries without the network first, so that Cargo keeps the versions that are already
/// downloaded.
///
/// # Errors
///
/// Cargo cannot resolve the workspace, or the models of the package could not run.
fn resolve(selection: &Selection, package: &Package) -> Result<Workspace, CliError> {
    let offline = "--offline".to_owned();
    let is_offline = selection.cargo_flags.contains(&offline);
    let mut here = selection.clone();
    here.cargo_flags.extend((!is_offline).then_some(offline));
    let loaded = match Workspace::load(&here) {
        Err(WorkspaceError::Metadata {
            may_need_network: true, ..
        }) if !is_offline => Workspace::load(selection),
        other => other,
    };
    let workspace = loaded.map_err(|error| match error {
        WorkspaceError::Metadata { said, help, .. } => CliError::from(InitError::Unresolved {
            package: package.name.to_string(),
            said,
            help,
        }),
        error => error.into(),
    })?;
    // Cargo also resolves what models cannot run with, such as two versions of Burn.
    let (_, problems) = workspace::declared_targets(&workspace);
    match problems
        .into_iter()
        .find(|problem| problem.package == package.name.as_str())
    {
        Some(problem) => {
            let package = problem.package.to_string();
            let (said, help) = problem.into_raw();
            Err(InitError::Unusable { package, said, help }.into())
        }
        None => Ok(workspace),
    }
}

/// The Burn features that the workspace's own binaries enable.
#[derive(Default)]
struct DeployedFeatures {
    /// The features that the binaries have and the benchmark lacks.
    missing: Vec<String>,
    /// The names of these binaries' packages, for messages.
    binaries: String,
    /// A note for the user if the benchmark lacks features that no binary enables.
    note: Option<String>,
}

/// Compares the benchmark's Burn features with those of the workspace's own binaries.
fn deployed_features(
    workspace: &Workspace,
    selection: &Selection,
    package: &Package,
) -> Result<DeployedFeatures, CliError> {
    let bench = built_features(workspace, selection, &[package], true)?;
    // Models run on Burn's CUDA backend, whatever backend the binaries use.
    let lacks = |feature: &&str| !has_feature(&bench, "burn-cuda", feature);
    let missing: Vec<_> = JUDGED_FEATURES.into_iter().filter(lacks).collect();
    if missing.is_empty() {
        return Ok(DeployedFeatures::default());
    }
    let mut wanted: Vec<String> = Vec::new();
    let mut binaries: Vec<String> = Vec::new();
    for member in workspace
        .members()
        .filter(|member| member.targets.iter().any(Target::is_bin))
    {
        let built = built_features(workspace, selection, &[member], false)?;
        // A binary that does not use this package does not deploy its models.
        if !built.contains_key(package.name.as_str()) {
            continue;
        }
        let has = |feature: &&&str| BACKENDS.iter().any(|backend| has_feature(&built, backend, feature));
        let found: Vec<_> = missing
            .iter()
            .filter(has)
            .map(|feature| (*feature).to_owned())
            .collect();
        if !found.is_empty() {
            binaries.push(quoted(&member.name));
        }
        wanted.extend(found);
    }
    if wanted.is_empty() {
        let note = format!(
            "the benchmark runs without Burn's {}, because no binary of this workspace enables it; if a program that \
             you deploy enables it, add it to the features of burn in [dev-dependencies]",
            missing.join(" and ")
        );
        return Ok(DeployedFeatures {
            note: Some(note),
            ..DeployedFeatures::default()
        });
    }
    wanted.sort_by_key(|feature| JUDGED_FEATURES.iter().position(|known| known == feature));
    wanted.dedup();
    Ok(DeployedFeatures {
        missing: wanted,
        binaries: binaries.join(", "),
        note: None,
    })
}

fn has_feature(built: &BuiltFeatures, name: &str, feature: &str) -> bool {
    built.get(name).is_some_and(|features| features.contains(feature))
}

fn first_budgets(gpu: &str, models: &[String]) -> String {
    let template = include_str!("init/budgets.yaml.template").replace("gpu: GPU", &format!("gpu: {gpu}"));
    let (head, budget) = template.split_at(template.find("  MODEL:").unwrap_or(template.len()));
    let budgets = models
        .iter()
        .map(|model| budget.replace("MODEL:", &format!("{model}:")));
    head.to_owned() + &budgets.collect::<String>()
}
