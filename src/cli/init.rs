//! `cargo vram init`: a first benchmark, its Cargo.toml entries, and a first budgets.yaml.

use camino::{Utf8Path, Utf8PathBuf};
use cargo_metadata::Package;
use clap::Args;
use miette::{Diagnostic, IntoDiagnostic, WrapErr};
use thiserror::Error;
use toml_edit::{ArrayOfTables, DocumentMut, InlineTable, Item, Table, Value, value};

use super::exit::Exit;
use super::options::{Loudness, Packages};
use super::{Stopped, terminal};
use crate::workspace::Workspace;

/// Write a benchmark with a first model, its Cargo.toml entries, and a first budgets.yaml
///
/// Nothing that is there is overwritten.
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  cargo vram init
  cargo vram init -p my-models --gpu a100-80gb")]
pub(super) struct Init {
    /// The card that the budgets are for
    #[arg(long, value_name = "ID", default_value = "l4")]
    gpu: String,
    /// Take the cargo-vram crate from this folder instead of from the registry
    #[arg(long, value_name = "FOLDER")]
    path: Option<Utf8PathBuf>,
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
    #[error("{package} has only a binary, and a benchmark cannot use what is in a binary")]
    #[diagnostic(
        code(init::binary_only),
        help(
            "move the model from {main} into {lib} (`pub mod model;`), use it from main.rs as `{name}::model`, then run `cargo vram init` again"
        )
    )]
    BinaryOnly {
        package: String,
        name: String,
        main: Utf8PathBuf,
        lib: Utf8PathBuf,
    },
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
}

/// The name and the path of the benchmark.
const BENCH: &str = "vram";

impl Init {
    pub(super) fn run(&self, loudness: Loudness) -> Result<Exit, Stopped> {
        let selection = self.packages.selection().into_diagnostic()?;
        let workspace = Workspace::load(&selection)?;
        let package = self.package(&workspace)?;
        crate::gpu::Profiles::builtin()?.get(&self.gpu)?;
        let folder = package.manifest_path.parent().unwrap_or(workspace.root());
        let bench = folder.join("benches").join(format!("{BENCH}.rs"));
        let budgets = workspace.root().join("budgets.yaml");
        let text = std::fs::read_to_string(&package.manifest_path)
            .into_diagnostic()
            .wrap_err_with(|| package.manifest_path.to_string())?;
        let mut manifest: DocumentMut = text.parse().into_diagnostic()?;
        // Everything is looked at before anything is written.
        require_library(package, folder)?;
        if !package.dependencies.iter().any(|dependency| dependency.name == "burn") {
            return Err(Refused::NoBurn(package.name.to_string()).into());
        }
        let is_there = |path: &Utf8Path| path.symlink_metadata().is_ok();
        if is_there(&bench) {
            return Err(Refused::Exists(bench).into());
        }
        // A folder, or a link that leads nowhere.
        if is_there(&budgets) && !budgets.is_file() {
            return Err(Refused::Exists(budgets).into());
        }
        self.declare(&mut manifest, &package.manifest_path)?;
        let mut files = vec![
            (package.manifest_path.clone(), manifest.to_string()),
            (bench, template(package)),
        ];
        if !budgets.exists() {
            files.push((budgets.clone(), first_budgets(&self.gpu)));
        }
        put_all(&files).map_err(|(path, source)| Refused::Unwritable { path, source })?;
        for (path, _) in files.iter().filter(|_| !loudness.quiet) {
            terminal::remark(&format!("wrote {path}"));
        }
        if !loudness.quiet {
            terminal::remark(
                "next: put your own model into benches/vram.rs, name it in budgets.yaml in place of `first`, then run `cargo vram check`",
            );
        }
        Ok(Exit::Success)
    }

    fn package<'a>(&self, workspace: &'a Workspace) -> Result<&'a Package, Refused> {
        let packages: Vec<_> = workspace.packages().collect();
        match packages.as_slice() {
            [one] => Ok(one),
            several => {
                let names: Vec<_> = several.iter().map(|package| package.name.as_str()).collect();
                Err(Refused::Several(names.join(", ")))
            }
        }
    }

    /// Adds the dependency and the target, and keeps everything else as it is written.
    fn declare(&self, manifest: &mut DocumentMut, path: &Utf8Path) -> Result<(), Refused> {
        let is_list = |item: &Item| item.is_array_of_tables();
        if manifest.get("bench").is_some_and(|item| !is_list(item)) {
            return Err(Refused::Declared(
                path.to_owned(),
                "its benchmarks as a value, to which no table can be added",
            ));
        }
        let targets = manifest.get("bench").and_then(Item::as_array_of_tables);
        if targets
            .into_iter()
            .flatten()
            .any(|target| target.get("name").and_then(Item::as_str) == Some(BENCH))
        {
            return Err(Refused::Declared(path.to_owned(), "a benchmark named `vram`"));
        }
        let dependencies = manifest
            .entry("dev-dependencies")
            .or_insert_with(|| Item::Table(Table::new()));
        if dependencies.get("cargo-vram").is_some() {
            return Err(Refused::Declared(path.to_owned(), "a dependency on cargo-vram"));
        }
        let mut dependency = InlineTable::new();
        match &self.path {
            Some(folder) => {
                // Cargo takes a path from the manifest's folder, people give it from where they are. What they give as
                // relative is so on other machines, too.
                let whole = |path: &Utf8Path| path.canonicalize_utf8().unwrap_or_else(|_| path.to_owned());
                let from = path.parent().map(whole).filter(|_| folder.is_relative());
                let relative = from.and_then(|from| pathdiff::diff_utf8_paths(whole(folder), from));
                let folder = relative.unwrap_or_else(|| whole(folder));
                dependency.insert("path", Value::from(folder.as_str()))
            }
            None => dependency.insert("version", Value::from(env!("CARGO_PKG_VERSION"))),
        };
        dependency.insert("default-features", Value::from(false));
        dependency.insert("features", Value::Array(["burn-0_21"].into_iter().collect()));
        dependencies["cargo-vram"] = value(dependency);
        let mut target = Table::new();
        target["name"] = value(BENCH);
        target["harness"] = value(false);
        let targets = manifest
            .entry("bench")
            .or_insert_with(|| Item::ArrayOfTables(ArrayOfTables::new()));
        if let Some(targets) = targets.as_array_of_tables_mut() {
            targets.push(target);
        }
        Ok(())
    }
}

fn require_library(package: &Package, folder: &Utf8Path) -> Result<(), Refused> {
    if package.targets.iter().any(|target| target.is_lib()) {
        return Ok(());
    }
    let binary = package.targets.iter().find(|target| target.is_bin());
    let main = binary.map_or_else(|| folder.join("src/main.rs"), |target| target.src_path.clone());
    let short = |path: Utf8PathBuf| path.strip_prefix(folder).map(Utf8Path::to_owned).unwrap_or(path);
    Err(Refused::BinaryOnly {
        package: package.name.to_string(),
        name: package.name.replace('-', "_"),
        main: short(main),
        lib: Utf8PathBuf::from("src/lib.rs"),
    })
}

/// Writes all of the files, or none: where one cannot be written, everything is as it was.
fn put_all(files: &[(Utf8PathBuf, String)]) -> Result<(), (Utf8PathBuf, std::io::Error)> {
    let mut undo = Undo::default();
    for (path, content) in files {
        undo.put(path, content).map_err(|error| (path.clone(), error))?;
    }
    undo.keep = true;
    Ok(())
}

/// What was done so far, which is taken back when this is dropped, unless it is kept.
#[derive(Default)]
struct Undo {
    keep: bool,
    /// Each file, with what was in it before; nothing where it was not there.
    written: Vec<(Utf8PathBuf, Option<Vec<u8>>)>,
    /// Folders that were not there, the outer ones first.
    made: Vec<Utf8PathBuf>,
}

impl Undo {
    fn put(&mut self, path: &Utf8Path, content: &str) -> std::io::Result<()> {
        let folders = path.ancestors().skip(1).take_while(|folder| !folder.exists());
        let missing: Vec<_> = folders.map(Utf8Path::to_owned).collect();
        for folder in missing.into_iter().rev() {
            std::fs::create_dir(&folder)?;
            self.made.push(folder);
        }
        let before = path.exists().then(|| std::fs::read(path)).transpose()?;
        self.written.push((path.to_owned(), before));
        std::fs::write(path, content)
    }
}

impl Drop for Undo {
    fn drop(&mut self) {
        if self.keep {
            return;
        }
        for (path, before) in self.written.drain(..).rev() {
            // What cannot be taken back could not be written either.
            let _ = match before {
                Some(before) => std::fs::write(&path, before),
                None => std::fs::remove_file(&path),
            };
        }
        for folder in self.made.drain(..).rev() {
            let _ = std::fs::remove_dir(&folder);
        }
    }
}

fn template(package: &Package) -> String {
    include_str!("init/vram.rs.template").replace("PACKAGE", &package.name.replace('-', "_"))
}

fn first_budgets(gpu: &str) -> String {
    include_str!("init/budgets.yaml.template").replace("gpu: GPU", &format!("gpu: {gpu}"))
}
