//! `cargo vram archive`: packs built models into one file, for machines without Rust and without the source.

use std::path::{Path, PathBuf};

use camino::Utf8PathBuf;
use clap::Args;

use super::exit::Exit;
use super::options::Packages;
use super::terminal;
use super::terminal::Progress;
use crate::archive::{self, ArchiveManifest, Contents, PackedArchive};
use crate::cli::error::CliError;
use crate::cli::session;
use crate::cli::session::base::Parted;
use crate::cli::temporary::TemporaryFolder;
use crate::render;
use crate::untrusted::PlainName;

/// Pack the built models into one file, to run them on other machines
///
/// Builds the models and packs them into a .tar.zst file, with the driver, budgets.yaml and budgets.lock. With
/// `--archive-file`, other commands run the models on a machine without Rust and without the source.
///
/// That machine needs the same architecture, the same version of cargo-vram, and the same or a newer glibc. The models
/// run in an empty folder, so files that they read from their package are missing.
///
/// An archive contains programs. Run an archive only if you trust its author.
#[derive(Debug, Args)]
#[command(after_long_help = "\
Examples:
  cargo vram archive                write FOLDER-vram.tar.zst, named after the
                                    workspace's folder
  cargo vram archive --release -o models.tar.zst
  cargo vram archive -p my-models --budgets ci/budgets.yaml

On the other machine:
  cargo vram check --archive-file models.tar.zst --partition hash:1/4")]
pub(super) struct ArchiveCommand {
    /// Pack this file of budgets [default: budgets.yaml at the workspace root]
    #[arg(long, value_name = "FILE", help_heading = "Selection")]
    budgets: Option<Utf8PathBuf>,
    /// Also pack the limits and the baseline of this git revision
    ///
    /// `cargo vram check --archive-file FILE --deny-edits` compares with them.
    #[arg(long, value_name = "REV", help_heading = "Baseline")]
    base: Option<String>,
    /// Write the archive to this file [default: FOLDER-vram.tar.zst]
    ///
    /// FOLDER is the name of the workspace's folder. The default file is in the current folder.
    #[arg(short, long, value_name = "FILE", help_heading = "Output")]
    output: Option<Utf8PathBuf>,
    #[command(flatten)]
    packages: Packages,
}

/// The budgets and the baseline of a revision, in a temporary folder that exists as long as this value.
struct BaseOnDisk {
    base: archive::ArchivedBase,
    budgets: Option<PathBuf>,
    lock: Option<PathBuf>,
    _folder: TemporaryFolder,
}

impl BaseOnDisk {
    fn write(revision: &str, prepared: &session::Prepared) -> Result<Self, CliError> {
        let root = prepared.source.root();
        let parted = Parted::find(revision, root)?;
        let at = |path: &Path| {
            let path = path.to_string_lossy().into_owned().into();
            move |source| session::SelectionError::File { path, source }
        };
        let folder = TemporaryFolder::new().map_err(at(&crate::folders::temporary()))?;
        let put = |name: &str, text: Option<String>| -> Result<Option<PathBuf>, CliError> {
            let Some(text) = text else { return Ok(None) };
            let path = folder.path().join(name);
            std::fs::write(&path, text).map_err(at(&path))?;
            Ok(Some(path))
        };
        Ok(Self {
            budgets: put("budgets.yaml", parted.file(root, &prepared.budgets_path)?)?,
            lock: put("budgets.lock", parted.file(root, &prepared.lock().0)?)?,
            base: archive::ArchivedBase {
                revision: PlainName::escaped(&parted.revision),
                commit: PlainName::escaped(&parted.commit),
            },
            _folder: folder,
        })
    }
}

impl ArchiveCommand {
    pub(super) fn run(&self) -> Result<Exit, CliError> {
        let prepared = session::prepare(&self.packages, None, self.budgets.as_deref())?;
        let source = &prepared.source;
        let base = self.base.as_deref();
        let base = base
            // Before the build: a wrong revision should not cost one. An
            // archive has no history, so it brings the files of its base.
            // See docs/design/edits.md.
            .map(|revision| BaseOnDisk::write(revision, &prepared))
            .transpose()?;
        let folder = source.scratch(None)?;
        let models = session::all_models(&prepared, &self.packages, folder.path())?;
        let mut exit = Exit::Success;
        for problem in &models.problems {
            terminal::remark(&render::terminal::report::problem(problem));
            exit = exit.or(Exit::from_code(&problem.code));
        }
        if exit != Exit::Success {
            // A model that is missing in the archive would silently pass every check.
            terminal::remark("no archive was written, because of the problems above");
            return Ok(exit);
        }
        let driver = source.driver()?;
        let ((commit, dirty), baseline) = (source.commit(), prepared.lock().0);
        let contents = Contents {
            root: source.root(),
            models: &models.declared,
            driver: &driver,
            budgets: prepared.budgets.as_ref().map(|_| prepared.budgets_path.as_path()),
            baseline: baseline.exists().then_some(baseline.as_path()),
            base: base
                .as_ref()
                .map(|on| (&on.base, on.budgets.as_deref(), on.lock.as_deref())),
            commit: commit.as_deref(),
            dirty,
            // A check of an archive with only some packages must
            // not call the baselines of the others outdated.
            whole: source.is_whole(),
        };
        let to = self.output.clone().unwrap_or_else(|| {
            let name = source.root().file_name().unwrap_or("models");
            Utf8PathBuf::from(format!("{name}-vram.tar.zst"))
        });
        let progress = Progress::spinner("packing");
        let packed = archive::pack(&contents, to.as_std_path())?;
        drop(progress);
        if !terminal::is_quiet() {
            terminal::show(&summary(&packed, &to));
        }
        Ok(Exit::Success)
    }
}

/// Returns the contents of an archive and its size, as text.
fn summary(packed: &PackedArchive, to: &Utf8PathBuf) -> String {
    let ArchiveManifest { target, glibc, .. } = &packed.manifest;
    let mut text = String::new();
    for target in &packed.manifest.targets {
        let models: Vec<_> = target.models.iter().map(|model| model.name.as_str()).collect();
        text += &format!("{} ({}): {}\n", target.package, target.name, models.join(", "));
    }
    let has = |path: &str| packed.manifest.files.iter().any(|file| file.path == path);
    let budgets = packed.manifest.budgets.as_deref().unwrap_or("no budgets");
    let baseline = if has(archive::BASELINE) {
        "a baseline"
    } else {
        "no baseline"
    };
    let glibc = glibc.map_or_else(String::new, |glibc| format!(" with glibc {glibc} or newer"));
    let commit = made_of(&packed.manifest);
    text += &format!("with {budgets} and {baseline}, {commit}\nfor {target}{glibc}\n");
    text += &format!("{to}: {} ({} unpacked)\n", packed.bytes, packed.manifest.total());
    text += &format!("to check these models on another machine, run `cargo-vram vram check --archive-file {to}`\n");
    text
}

/// Returns the commit that an archive was built from, as text.
pub(super) fn made_of(manifest: &ArchiveManifest) -> String {
    let commit = manifest.commit.as_deref().unwrap_or("unknown");
    let changes = match manifest.dirty {
        Some(true) => ", with uncommitted changes",
        Some(false) | None => "",
    };
    format!("built from commit {commit}{changes}")
}
