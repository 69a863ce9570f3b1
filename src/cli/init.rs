//! `cargo vram init`: writes a first benchmark, its Cargo.toml entries, and a first budgets.yaml.

mod bench;
mod conditions;
mod error;
mod features;
mod manifest;
mod package;
mod scan;
mod source;
mod undo;

use std::fmt::Write as _;

use camino::{Utf8Path, Utf8PathBuf};
use cargo_metadata::Package;
use clap::Args;

use self::bench::{Bench, Dialect, declared_models};
use self::error::InitError;
use self::features::deployed_features;
use self::manifest::CargoManifest;
use self::package::{binary_only, included, library, require_burn};
use self::scan::SourceScan;
use self::source::DependencySource;
use self::undo::Undo;
use super::exit::Exit;
use super::interrupt::Catching;
use super::options::Packages;
use super::terminal;
use super::terminal::Progress;
use crate::cli::error::CliError;
use crate::names::quoted;
use crate::untrusted::named;
use crate::workspace::{self, Selection, Workspace, WorkspaceError, adapter_feature, built_features};

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

/// The name of the benchmark target and of its file.
const BENCH: &str = "vram";
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

fn first_budgets(gpu: &str, models: &[String]) -> String {
    let template = include_str!("init/budgets.yaml.template").replace("gpu: GPU", &format!("gpu: {gpu}"));
    let (head, budget) = template.split_at(template.find("  MODEL:").unwrap_or(template.len()));
    let budgets = models
        .iter()
        .map(|model| budget.replace("MODEL:", &format!("{model}:")));
    head.to_owned() + &budgets.collect::<String>()
}
