//! `cargo vram archive`: built models in one file, for machines that have neither Rust nor the source.

use std::path::{Path, PathBuf};

use camino::Utf8PathBuf;
use clap::Args;

use super::base::Parted;
use super::exit::Exit;
use super::options::{Loudness, Packages};
use super::terminal::Progress;
use super::{Stopped, pipeline, terminal};
use crate::archive::{self, Contents, Manifest, Packed};
use crate::report::human;

/// Pack the built models into one file, to be run elsewhere
///
/// Builds the models and puts them into one .tar.zst, with the driver, budgets.yaml and budgets.lock. With
/// `--archive-file`, other commands run them from there: on a machine with neither Rust nor the source, of the same
/// architecture, with the same version of cargo-vram and a glibc that is no older. Models run in an empty folder there,
/// so files that they read from their package are missing. An archive holds programs: run none that you would not
/// run otherwise.
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  cargo vram archive                                  ./FOLDER-vram.tar.zst, by the name of the workspace's folder
  cargo vram archive --release -o models.tar.zst
  cargo vram archive -p my-models --budgets ci/budgets.yaml
and then, elsewhere:
  cargo vram check --archive-file models.tar.zst --partition hash:1/4")]
pub(super) struct Archive {
    /// The file to write; by default FOLDER-vram.tar.zst in this folder, by the name of the workspace's folder
    #[arg(short, long, value_name = "FILE")]
    output: Option<Utf8PathBuf>,
    /// The file of budgets to pack, instead of budgets.yaml at the workspace root
    #[arg(long, value_name = "FILE")]
    budgets: Option<Utf8PathBuf>,
    /// Pack the limits and the baseline of this revision, too, for `check --archive-file FILE --deny-edits`
    #[arg(long, value_name = "REV")]
    base: Option<String>,
    #[command(flatten)]
    packages: Packages,
}

/// A revision's limits, as files for as long as this is held.
struct BaseOnDisk {
    base: archive::Base,
    budgets: Option<PathBuf>,
    lock: Option<PathBuf>,
    _folder: tempfile::TempDir,
}

impl BaseOnDisk {
    fn write(revision: &str, prepared: &pipeline::Prepared) -> Result<Self, Stopped> {
        let root = prepared.source.root();
        let parted = Parted::find(revision, root)?;
        let at = |path: &Path| {
            let path = path.to_string_lossy().into_owned().into();
            move |source| pipeline::Asked::File { path, source }
        };
        let folder = tempfile::tempdir().map_err(at(&std::env::temp_dir()))?;
        let put = |name: &str, text: Option<String>| -> Result<Option<PathBuf>, Stopped> {
            let Some(text) = text else { return Ok(None) };
            let path = folder.path().join(name);
            std::fs::write(&path, text).map_err(at(&path))?;
            Ok(Some(path))
        };
        Ok(Self {
            budgets: put("budgets.yaml", parted.file(root, &prepared.budgets_path)?)?,
            lock: put("budgets.lock", parted.file(root, &prepared.lock().0)?)?,
            base: archive::Base {
                revision: parted.revision,
                commit: parted.commit,
            },
            _folder: folder,
        })
    }
}

impl Archive {
    pub(super) fn run(&self, loudness: Loudness) -> Result<Exit, Stopped> {
        let prepared = pipeline::prepare(&self.packages, None, self.budgets.as_deref())?;
        let source = &prepared.source;
        let base = self.base.as_deref();
        let base = base
            .map(|revision| BaseOnDisk::write(revision, &prepared))
            .transpose()?;
        let folder = source.scratch(None)?;
        let models = pipeline::models(&prepared, &self.packages, None, loudness, folder.path())?;
        let mut exit = Exit::Success;
        for problem in &models.problems {
            terminal::remark(&human::problem(problem));
            exit = exit.or(Exit::of_code(&problem.code));
        }
        if exit != Exit::Success {
            // A model that is silently missing would pass every check.
            terminal::remark("nothing was packed");
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
            whole: source.is_whole(),
        };
        let to = self.output.clone().unwrap_or_else(|| {
            let name = source.root().file_name().unwrap_or("models");
            Utf8PathBuf::from(format!("{name}-vram.tar.zst"))
        });
        let progress = Progress::spinner(loudness, "packing");
        let packed = archive::pack(&contents, to.as_std_path())?;
        drop(progress);
        if !loudness.quiet {
            terminal::show(&summary(&packed, &to));
        }
        Ok(Exit::Success)
    }
}

/// What is in it, and how large it is.
fn summary(packed: &Packed, to: &Utf8PathBuf) -> String {
    let Manifest { target, glibc, .. } = &packed.manifest;
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
    text += &format!("run it with `cargo-vram vram check --archive-file {to}`\n");
    text
}

/// What an archive was made of.
pub(super) fn made_of(manifest: &Manifest) -> String {
    let commit = manifest.commit.as_deref().unwrap_or("unknown");
    let changes = match manifest.dirty {
        Some(true) => ", with changes on top of it",
        Some(false) | None => "",
    };
    format!("of commit {commit}{changes}")
}
