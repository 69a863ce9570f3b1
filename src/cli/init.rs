//! `cargo vram init`: a first benchmark, its Cargo.toml entries, and a first budgets.yaml.

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
use miette::{Diagnostic, IntoDiagnostic, WrapErr};
use thiserror::Error;

use self::bench::{Bench, Dialect, declared_models};
use self::manifest::Manifest;
use self::scan::Scan;
use self::source::Source;
use self::undo::Undo;
use super::exit::Exit;
use super::interrupt::Catching;
use super::options::{Loudness, Packages};
use super::terminal::Progress;
use super::{Stopped, terminal};
use crate::names::quoted;
use crate::report::human::text::named;
use crate::workspace::{
    self, BuiltFeatures, Selection, Workspace, WorkspaceError, adapter_feature, built_features, supported_burn,
    supported_by, supports_burn, update_of_prereleases,
};

/// Write a benchmark with a first model, its Cargo.toml entries, and a first budgets.yaml
///
/// Nothing that is there is overwritten. If Cargo cannot resolve the result, every file is as it was.
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  cargo vram init
  cargo vram init -p my-models --gpu a100-80gb
  cargo vram init --write-profile")]
pub(super) struct Init {
    /// The card that the budgets are for
    #[arg(long, value_name = "ID", default_value = "l4")]
    gpu: String,
    /// Take the cargo-vram crate from this folder [default: the folder that this tool was built from, or its repository]
    #[arg(long, value_name = "FOLDER")]
    path: Option<Utf8PathBuf>,
    /// Let the benchmark of a package without a library include the modules of its binary by their paths
    #[arg(long)]
    from_binary: bool,
    /// Also write the build profile with which checks are fast into the workspace's Cargo.toml
    #[arg(long)]
    write_profile: bool,
    #[command(flatten)]
    packages: Packages,
}

#[derive(Debug, Error, Diagnostic)]
pub(super) enum Refused {
    #[error("which package? {0} are selected")]
    #[diagnostic(code(init::several), help("pass -p PACKAGE"))]
    Several(String),
    #[error("{0} is there already")]
    #[diagnostic(
        code(init::exists),
        help("nothing was written; edit it by hand, or move it away first")
    )]
    Exists(Utf8PathBuf),
    #[error("{0} already has {1}")]
    #[diagnostic(code(init::exists), help("nothing was written; edit it by hand"))]
    Declared(Utf8PathBuf, &'static str),
    #[error("{package} has only a binary, and a benchmark cannot link a binary")]
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
            "let Cargo build it as a Rust library, too: add `\"rlib\"` to `crate-type` in [lib]; for a proc-macro, put the models into a package of their own"
        )
    )]
    Unlinkable { package: String, kind: String },
    #[error("{path} cannot be written")]
    #[diagnostic(
        code(init::unwritable),
        help(
            "nothing was written: see whether something else has that name, and whether the folder can be written to"
        )
    )]
    Unwritable { path: Utf8PathBuf, source: std::io::Error },
    #[error("{0} does not depend on burn")]
    #[diagnostic(
        code(init::no_burn),
        help("`cargo add burn@0.21 --features cuda,fusion,autotune,autodiff`")
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
    #[error("no source of the crate cargo-vram is known")]
    #[diagnostic(
        code(init::no_source),
        help(
            "nothing was written; this tool's own source folder is gone, and it names no repository: check out the source of cargo-vram {version} and pass its folder with --path",
            version = env!("CARGO_PKG_VERSION")
        )
    )]
    NoSource,
    #[error("Cargo cannot resolve {package} with cargo-vram; every file is as it was before\n{said}")]
    #[diagnostic(code(init::unresolved))]
    Unresolved {
        package: String,
        said: String,
        #[help]
        help: String,
    },
    #[error("cargo-vram cannot be used in {package}; every file is as it was before\n{said}")]
    #[diagnostic(code(init::unusable))]
    Unusable {
        package: String,
        said: String,
        #[help]
        help: Option<String>,
    },
}

/// The name and the path of the benchmark.
const BENCH: &str = "vram";
/// The features of Burn that change what is held on the GPU, and not only what can be used.
const JUDGED_FEATURES: [&str; 2] = ["fusion", "autotune"];
/// The crates that have these: Burn itself, and its backends by their own defaults.
const BACKENDS: [&str; 5] = ["burn", "burn-cuda", "burn-wgpu", "burn-rocm", "burn-cpu"];
/// So many models are named at the end.
const MOST_NAMED: usize = 8;

/// What is written for a package, and what is said of it.
struct Plan<'a> {
    package: &'a Package,
    folder: &'a Utf8Path,
    scan: Scan,
    bench: Bench,
    source: Source,
    /// Burn's version, or what the package requires where nothing was resolved.
    burn: String,
    /// The feature of cargo-vram for it.
    adapter: String,
    trains: bool,
}

impl Init {
    pub(super) fn run(&self, loudness: Loudness) -> Result<Exit, Stopped> {
        let selection = Selection {
            default_members: true,
            ..self.packages.selection().into_diagnostic()?
        };
        let root = workspace::workspace_root(&selection)?;
        let lock = root.join("Cargo.lock");
        // Reading the workspace may write Cargo.lock, too.
        let mut undo = Undo::default();
        undo.remember(&lock).map_err(|source| unwritable(&lock, source))?;
        let workspace = Workspace::load(&selection)?;
        let package = self.package(&workspace)?;
        crate::gpu::Profiles::builtin()?.get(&self.gpu)?;
        let folder = package.manifest_path.parent().unwrap_or(&root);
        let mut manifest = read_manifest(&package.manifest_path)?;
        if self.write_profile && manifest.has_bench() {
            let added = write_profile(&root, &workspace, &mut undo)?;
            resolve(&selection, package)?;
            if !loudness.quiet {
                terminal::remark(&match added.as_str() {
                    "" => format!(
                        "{} needs no line of the profile, or has no place for one",
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
        let is_there = |path: &Utf8Path| path.symlink_metadata().is_ok();
        let models = match is_there(&budgets) {
            true => Vec::new(),
            false => declared_models(&std::fs::read_to_string(&bench).unwrap_or_default()),
        };
        if !models.is_empty() {
            // Budgets alone are missing: nothing else of the project matters.
            require_burn(&workspace, package, &lock)?;
            undo.put(&budgets, &first_budgets(&self.gpu, &models))
                .map_err(|source| unwritable(&budgets, source))?;
            undo.keep();
            if !loudness.quiet {
                terminal::remark(&format!(
                    "wrote {}\n{} is there already; the limits are examples: replace them",
                    named(budgets.as_str()),
                    named(bench.as_str())
                ));
            }
            return Ok(Exit::Success);
        }
        // Everything is looked at before anything is written.
        let plan = self.plan(&workspace, &selection, package, folder, &lock)?;
        if is_there(&bench) {
            return Err(Refused::Exists(bench).into());
        }
        // A folder, or a link that leads nowhere.
        if is_there(&budgets) && !budgets.is_file() {
            return Err(Refused::Exists(budgets).into());
        }
        // Whoever stops it now is left with everything as it was.
        let signals = Catching::new();
        let path = &package.manifest_path;
        manifest.add_cargo_vram(path, &plan.source, &plan.adapter, plan.trains)?;
        manifest.add_bench(path)?;
        let mut put = |path: &Utf8Path, text: &str| undo.put(path, text).map_err(|source| unwritable(path, source));
        put(path, manifest.text())?;
        put(&bench, &plan.bench.text)?;
        let has_budgets = budgets.exists();
        if !has_budgets {
            put(
                &budgets,
                &first_budgets(&self.gpu, std::slice::from_ref(&plan.bench.model)),
            )?;
        }
        let progress = Progress::spinner(loudness, "resolving dependencies");
        let resolved = resolve(&selection, package);
        signals.check()?;
        let mut resolved = resolved?;
        let deployed = deployed_features(&resolved, &selection, package)?;
        let mut notes: Vec<String> = deployed.note.into_iter().collect();
        let (features, binaries) = (deployed.missing, deployed.binaries);
        if !features.is_empty() {
            if manifest.add_burn_features(path, &features, &binaries)? {
                put(path, manifest.text())?;
                resolved = resolve(&selection, package)?;
                notes.push(format!(
                    "{binaries} switches on Burn's {}: so does the benchmark, by a development dependency",
                    features.join(" and ")
                ));
            } else {
                notes.push(format!(
                    "{binaries} switches on Burn's {}, and the benchmark does not: add these features to burn in [dev-dependencies]",
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
        let mut changed = undo.keep();
        changed.sort_by_key(|path| *path == lock);
        if !loudness.quiet {
            for path in changed {
                terminal::remark(&format!("wrote {}", named(path.as_str())));
            }
            terminal::remark(&plan.closing(&notes, offer.as_deref(), &root, has_budgets));
        }
        Ok(Exit::Success)
    }

    /// The selected package, or the one of several that uses Burn.
    fn package<'a>(&self, workspace: &'a Workspace) -> Result<&'a Package, Refused> {
        let selected: Vec<_> = workspace.packages().collect();
        let uses_burn = |package: &&&Package| package.dependencies.iter().any(|dependency| dependency.name == "burn");
        let with_burn: Vec<_> = selected.iter().filter(uses_burn).copied().collect();
        match (selected.as_slice(), with_burn.as_slice()) {
            ([one], _) | (_, [one]) => Ok(one),
            (all, with_burn) => {
                let shown = if with_burn.is_empty() { all } else { with_burn };
                let names: Vec<_> = shown.iter().map(|package| package.name.as_str()).collect();
                Err(Refused::Several(names.join(", ")))
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
    ) -> Result<Plan<'a>, Stopped> {
        let library = library(package)?;
        let (burn, version) = require_burn(workspace, package, lock)?;
        let built = built_features(workspace, selection, &[package], true)?;
        let features = built.get(package.name.as_str()).cloned().unwrap_or_default();
        let program = package.targets.iter().find(|target| target.is_bin());
        let (scan, root, modules) = match (library, program) {
            (Some(library), _) => {
                let root = library.name.replace('-', "_");
                (
                    Scan::read(&library.src_path, features, false),
                    Some(root),
                    String::new(),
                )
            }
            (None, program) => {
                let main = program.map_or_else(|| folder.join("src/main.rs"), |program| program.src_path.clone());
                let scan = Scan::read(&main, features, true);
                if !self.from_binary || scan.files.is_empty() {
                    return Err(binary_only(package, folder, &main, &scan).into());
                }
                let modules = included(&scan, folder);
                (scan, None, modules)
            }
        };
        let dialect = Dialect::new((version.major, version.minor));
        let bench = Bench::new(&scan, dialect, root.as_deref(), &modules);
        let uses_train = built.get("burn").is_some_and(|features| features.contains("train"));
        let source = Source::find(
            self.path.as_deref(),
            Utf8Path::new(env!("CARGO_MANIFEST_DIR")),
            env!("CARGO_PKG_REPOSITORY"),
        );
        Ok(Plan {
            package,
            folder,
            trains: uses_train || bench.trains.is_some(),
            scan,
            bench,
            source: source.ok_or(Refused::NoSource)?,
            burn,
            adapter: adapter_feature(&version),
        })
    }
}

impl Plan<'_> {
    /// What was found, and what comes next.
    fn closing(&self, notes: &[String], offer: Option<&str>, root: &Utf8Path, has_budgets: bool) -> String {
        let mut text = String::new();
        let train = if self.trains {
            ", with `train`: cargo-vram has its feature `train` on"
        } else {
            ""
        };
        let _ = writeln!(text, "\n{} uses Burn {}{train}", self.package.name, self.burn);
        if let Source::Named(folder) | Source::Built(folder) = &self.source {
            let _ = writeln!(
                text,
                "cargo-vram is taken from {folder}: whoever builds the benchmarks needs it there"
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
                "  private: {}{more}; to name one in the benchmark, make it and its module `pub`",
                names.join(", ")
            );
        }
        for (model, feature) in &self.scan.hidden_train_steps {
            let _ = writeln!(
                text,
                "  {} implements `TrainStep` only with the feature {feature} of {package}: to have the benchmark train it, undo \
                 these changes and run `cargo vram init -p {package} --features {package}/{feature}`; `check` takes that option, too",
                quoted(model),
                package = self.package.name,
            );
        }
        let edit = match &self.bench.trains {
            Some(path) => format!(
                "in benches/vram.rs, replace the sizes and the optimizer of {} with those that you train with",
                quoted(path)
            ),
            None => "in benches/vram.rs, put your own model in the place of `First`".to_owned(),
        };
        let model = &self.bench.model;
        let limits = match has_budgets {
            false => format!(
                "in budgets.yaml, set the limits of {} to what your GPU has room for",
                quoted(model)
            ),
            true => format!(
                "in budgets.yaml, add limits under `models`, such as `{model}: {{ inputs: {{ batch_size: 32 }}, reserved: 8 GiB }}`"
            ),
        };
        let _ = writeln!(text, "\nnext:\n  1. {edit}\n  2. {limits}\n  3. run `cargo vram check`");
        text.push_str(
            "\nThe first check compiles Burn, which takes 4 to 8 minutes on two cores. Later checks compile only what changed.\n",
        );
        if let Some(offer) = offer {
            let _ = writeln!(
                text,
                "These lines in {} keep the build small, and run every model about three times as fast. `cargo vram init --write-profile` writes them:\n\n{}",
                root.join("Cargo.toml"),
                indented(offer)
            );
        }
        text.trim_end().to_owned()
    }
}

fn unwritable(path: &Utf8Path, source: std::io::Error) -> Refused {
    Refused::Unwritable {
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

fn read_manifest(path: &Utf8Path) -> Result<Manifest, Stopped> {
    let text = std::fs::read_to_string(path)
        .into_diagnostic()
        .wrap_err_with(|| path.to_string())?;
    Manifest::parse(text).into_diagnostic()
}

/// Writes what is missing of the profile; gives what that was.
fn write_profile(root: &Utf8Path, workspace: &Workspace, undo: &mut Undo) -> Result<String, Stopped> {
    let path = root.join("Cargo.toml");
    let mut manifest = read_manifest(&path)?;
    let added = manifest.add_profile(|name| workspace.has_package(name));
    undo.put(&path, manifest.text())
        .map_err(|source| unwritable(&path, source))?;
    Ok(added)
}

/// The library that a benchmark can link; nothing where the package has none.
fn library(package: &Package) -> Result<Option<&Target>, Refused> {
    const RUST: [TargetKind; 3] = [TargetKind::Lib, TargetKind::RLib, TargetKind::DyLib];
    const LIBRARIES: [TargetKind; 3] = [TargetKind::CDyLib, TargetKind::StaticLib, TargetKind::ProcMacro];
    let with = |kinds: &[TargetKind]| {
        let is_of = |target: &&Target| target.kind.iter().any(|kind| kinds.contains(kind));
        package.targets.iter().find(is_of)
    };
    match (with(&RUST), with(&LIBRARIES)) {
        (Some(library), _) => Ok(Some(library)),
        (None, None) => Ok(None),
        (None, Some(other)) => Err(Refused::Unlinkable {
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

/// The modules of a program, as the benchmark includes them.
fn included(scan: &Scan, folder: &Utf8Path) -> String {
    let from = folder.join("benches");
    let mut text = String::new();
    for (name, file) in &scan.files {
        let path = pathdiff::diff_utf8_paths(file, &from).unwrap_or_else(|| file.clone());
        let _ = writeln!(
            text,
            "#[allow(dead_code, unused_imports)]\n#[path = {:?}]\nmod {name};",
            path.as_str()
        );
    }
    text + "\n"
}

/// The two ways of a package that has only a binary, the smaller one first.
fn binary_only(package: &Package, folder: &Utf8Path, main: &Utf8Path, scan: &Scan) -> Refused {
    let short = |path: &Utf8Path| path.strip_prefix(folder).unwrap_or(path).to_string();
    let main_file = short(main);
    let in_main = scan.models().iter().any(|model| model.file == main);
    let files: Vec<_> = scan.files.iter().map(|(_, file)| short(file)).collect();
    let is_ready = !scan.models().is_empty() && !in_main && scan.files_stand_alone();
    let include = if is_ready {
        format!(
            "run `cargo vram init --from-binary`: the benchmark includes {} by path, and your sources stay as they are",
            files.join(", ")
        )
    } else {
        format!(
            "move the model from {main_file} into a file of its own, such as src/model.rs, which uses nothing of {main_file}; then run `cargo vram init --from-binary`"
        )
    };
    let name = package.name.replace('-', "_");
    let library = format!(
        "move the model from {main_file} into src/lib.rs (`pub mod model;`), use it from {main_file} as `{name}::model`; then run `cargo vram init`"
    );
    Refused::BinaryOnly {
        package: package.name.to_string(),
        ways: format!("nothing was written; there are two ways\n1. smaller: {include}\n2. a library: {library}"),
    }
}

/// The package's Burn, as people read it, and as a version. What Cargo resolved counts; the requirement alone where nothing was
/// resolved, as with a dependency that is optional.
fn require_burn(workspace: &Workspace, package: &Package, lock: &Utf8Path) -> Result<(String, Version), Refused> {
    let mut declared = package
        .dependencies
        .iter()
        .filter(|dependency| dependency.name == "burn");
    let Some(dependency) = declared.next() else {
        return Err(Refused::NoBurn(package.name.to_string()));
    };
    let required = supported_by(&dependency.req);
    let unsupported = |burn: String| Refused::UnsupportedBurn {
        package: package.name.to_string(),
        burn,
        supported: format!(
            "nothing was written; this version of cargo-vram supports Burn {}",
            supported_burn()
        ),
    };
    let versions = workspace.versions_in_graph(package, "burn", Some(env!("CARGO_PKG_NAME")));
    let Some(version) = versions
        .iter()
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
        Some(command) if required.is_some() => Err(Refused::LockedPrerelease {
            burn: version.to_string(),
            command: format!(
                "nothing was written; run this command, then `cargo vram init` again\n{}",
                in_lines(&command)
            ),
        }),
        _ => Err(unsupported(version.to_string())),
    }
}

/// A long command as a shell takes it over several lines: where a message is wrapped, it could not be copied.
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

/// Resolves the edited workspace: without the network if that is enough, so that no other version is chosen than those
/// that are here. Fails where Cargo does, or where the models could not be run.
fn resolve(selection: &Selection, package: &Package) -> Result<Workspace, Stopped> {
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
        WorkspaceError::Metadata { said, help, .. } => Stopped::from(Refused::Unresolved {
            package: package.name.to_string(),
            said,
            help,
        }),
        error => error.into(),
    })?;
    let (_, problems) = workspace::declared_targets(&workspace);
    match problems
        .into_iter()
        .find(|problem| problem.package == package.name.as_str())
    {
        Some(problem) => Err(Refused::Unusable {
            package: problem.package,
            said: problem.message,
            help: problem.help,
        }
        .into()),
        None => Ok(workspace),
    }
}

/// What the workspace's own binaries switch on of Burn.
#[derive(Default)]
struct DeployedFeatures {
    /// The features that they have and the benchmark lacks.
    missing: Vec<String>,
    /// Those binaries, as sentences name them.
    binaries: String,
    /// What there is to say where they have none of what the benchmark lacks.
    note: Option<String>,
}

/// Compares the benchmark's Burn with that of the workspace's own binaries.
fn deployed_features(
    workspace: &Workspace,
    selection: &Selection,
    package: &Package,
) -> Result<DeployedFeatures, Stopped> {
    let bench = built_features(workspace, selection, &[package], true)?;
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
            "the benchmark runs without Burn's {}, as no binary of this workspace switches that on: if a program that you deploy does, add it to the features of burn in [dev-dependencies]",
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
