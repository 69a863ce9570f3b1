//! Where models come from: a workspace, in which they are built, or an archive, in which they are.

use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};

use camino::{Utf8Path, Utf8PathBuf};
use miette::IntoDiagnostic;
use tempfile::TempDir;

use super::Stopped;
use super::base::BaseFiles;
use super::options::{Loudness, Packages};
use super::pipeline::Asked;
use super::survey::rustc;
use super::terminal::Progress;
use crate::archive::{self, ArchiveError, Manifest, Unpacked};
use crate::driver::{self, DriverLibrary};
use crate::report::Problem;
use crate::run::{self, Listed};
use crate::workspace::{self, Building, Built, DeployedBinary, Recompiled, Selection, Workspace, WorkspaceError};

/// The file of budgets, where no other is named.
const BUDGETS: &str = "budgets.yaml";

/// Where models come from.
pub(super) enum Source {
    /// They are built here.
    Workspace(Box<Here>),
    /// They were built elsewhere.
    Archive(Box<Brought>),
}

/// A workspace, and what of it is meant.
pub(super) struct Here {
    selection: Selection,
    workspace: Workspace,
    /// The revision that is checked out there, where that is not what the command was run in.
    revision: Option<String>,
}

/// An archive, unpacked for as long as this is held, and what of it is meant.
pub(super) struct Brought {
    file: Utf8PathBuf,
    packages: Vec<String>,
    unpacked: Unpacked,
    root: Utf8PathBuf,
    folder: TempDir,
}

/// A folder for the processes' files.
pub(super) struct Scratch {
    path: PathBuf,
    /// Goes with this, unless the files are kept.
    _temporary: Option<TempDir>,
}

impl Scratch {
    pub(super) fn path(&self) -> &Path {
        &self.path
    }
}

impl Source {
    /// Whether models are built here, rather than brought.
    pub(super) const fn builds(&self) -> bool {
        matches!(self, Self::Workspace(_))
    }

    /// Whether a model can run with checkpointing: it can be built for that, or every build of its Burn can.
    pub(super) fn checkpoints(&self, target: &workspace::DeclaredTarget) -> bool {
        self.builds() || target.explains_in_every_build()
    }

    /// Whether models are built here that can only be explained, or be run otherwise, where they are built for it.
    pub(super) fn builds_on_demand(&self) -> bool {
        match self {
            Self::Archive(_) => false,
            Self::Workspace(here) => {
                let (targets, _) = workspace::declared_targets(&here.workspace);
                !targets.iter().all(workspace::DeclaredTarget::explains_in_every_build)
            }
        }
    }

    /// Whether it is another revision of the workspace than the one that the command was run in.
    pub(super) fn is_elsewhere(&self) -> bool {
        matches!(self, Self::Workspace(here) if here.revision.is_some())
    }

    /// The workspace that is meant, or the archive, where one is named.
    pub(super) fn open(packages: &Packages, archive_file: Option<&Utf8Path>) -> Result<Self, Stopped> {
        let selection = packages.selection().into_diagnostic()?;
        match archive_file {
            None => {
                let workspace = Workspace::load(&selection)?;
                Ok(Self::workspace(selection, workspace, None))
            }
            Some(file) => Ok(Self::Archive(Box::new(Brought::open(file, selection.packages)?))),
        }
    }

    /// The same workspace at another revision.
    pub(super) fn at(selection: Selection, revision: &str) -> Result<Self, WorkspaceError> {
        let workspace = Workspace::load(&selection)?;
        Ok(Self::workspace(selection, workspace, Some(revision.to_owned())))
    }

    fn workspace(selection: Selection, workspace: Workspace, revision: Option<String>) -> Self {
        Self::Workspace(Box::new(Here {
            selection,
            workspace,
            revision,
        }))
    }

    /// The archive of that name, or the workspace that the command was run in, where there is one.
    pub(super) fn here(archive_file: Option<&Utf8Path>) -> Result<Option<Self>, Stopped> {
        if let Some(file) = archive_file {
            return Ok(Some(Self::Archive(Box::new(Brought::open(file, Vec::new())?))));
        }
        let selection = Selection::default();
        let workspace = Workspace::load(&selection).ok();
        Ok(workspace.map(|workspace| Self::workspace(selection, workspace, None)))
    }

    /// The workspace's folder, or the one that stands for it.
    pub(super) fn root(&self) -> &Utf8Path {
        match self {
            Self::Workspace(here) => here.workspace.root(),
            Self::Archive(brought) => &brought.root,
        }
    }

    /// Whether nothing of the workspace was left out.
    pub(super) fn is_whole(&self) -> bool {
        match self {
            Self::Workspace(here) => here.workspace.is_whole(),
            Self::Archive(brought) => brought.unpacked.manifest.whole && brought.packages.is_empty(),
        }
    }

    /// The commit that the models are built from, and whether anything was changed on top of it.
    pub(super) fn commit(&self) -> (Option<String>, Option<bool>) {
        match self {
            Self::Workspace(here) => {
                let root = here.workspace.root();
                let commit = git(root, &["rev-parse", "HEAD"]).map(|text| text.trim().to_owned());
                let changes = commit
                    .as_ref()
                    .and_then(|_| git(root, &["--no-optional-locks", "status", "--porcelain"]));
                (commit, changes.map(|changes| !changes.is_empty()))
            }
            Self::Archive(brought) => {
                let manifest = &brought.unpacked.manifest;
                (manifest.commit.clone(), manifest.dirty)
            }
        }
    }

    /// When the commit was made that the models are built from, as ISO 8601 with the committer's own time zone. An archive
    /// does not say.
    pub(super) fn commit_date(&self) -> Option<String> {
        let Self::Workspace(here) = self else { return None };
        // Signatures would be printed before it, where git is set up to show them.
        let date = git(
            here.workspace.root(),
            &["log", "-1", "--no-show-signature", "--format=%cI", "HEAD"],
        )?;
        Some(date.trim().to_owned()).filter(|date| !date.is_empty())
    }

    /// Where the file of budgets would be, and what people are shown of it.
    pub(super) fn budgets(&self) -> (Utf8PathBuf, String) {
        let shown = match self {
            Self::Workspace(_) => None,
            Self::Archive(brought) => brought.unpacked.manifest.budgets.clone(),
        };
        (self.root().join(BUDGETS), shown.unwrap_or_else(|| BUDGETS.to_owned()))
    }

    /// The base that an archive brings, with what is known of its limits.
    pub(super) fn base(&self) -> Option<(archive::Base, BaseFiles)> {
        let Self::Archive(brought) = self else { return None };
        let base = brought.unpacked.manifest.base.clone()?;
        let folder = brought.root.parent()?;
        let has = |path: &str| brought.unpacked.manifest.files.iter().any(|file| file.path == path);
        let read = |path: &str| has(path).then(|| std::fs::read_to_string(folder.join(path)).unwrap_or_default());
        let files = BaseFiles {
            budgets: read(archive::BASE_BUDGETS),
            lock: read(archive::BASE_BASELINE),
        };
        Some((base, files))
    }

    /// Why there are no budgets.
    pub(super) fn no_budgets(&self) -> Asked {
        match self {
            Self::Workspace(_) => Asked::NoBudgets(self.budgets().0),
            Self::Archive(brought) => Asked::NoBudgetsInArchive(brought.file.clone()),
        }
    }

    /// A folder for the processes' files: one that goes when this is dropped, or the one that was named.
    pub(super) fn scratch(&self, keep: Option<&Utf8Path>) -> Result<Scratch, Asked> {
        if let Some(keep) = keep {
            let made = std::fs::create_dir_all(keep).and_then(|()| keep.as_std_path().canonicalize());
            let path = made.map_err(file_error(keep.as_std_path()))?;
            return Ok(Scratch { path, _temporary: None });
        }
        let parent = match self {
            Self::Workspace(here) => here.workspace.target_directory().as_std_path().join("vram/run"),
            Self::Archive(brought) => brought.folder.path().to_owned(),
        };
        let temporary = std::fs::create_dir_all(&parent)
            .and_then(|()| tempfile::Builder::new().prefix("run-").tempdir_in(&parent))
            .map_err(file_error(&parent))?;
        Ok(Scratch {
            path: temporary.path().to_owned(),
            _temporary: Some(temporary),
        })
    }

    /// The binaries of the workspace that run Burn on a GPU; none that are known in an archive.
    pub(super) fn deployed(&self) -> Result<Vec<DeployedBinary>, WorkspaceError> {
        match self {
            Self::Workspace(here) => workspace::deployed_binaries(&here.workspace, &here.selection),
            Self::Archive(_) => Ok(Vec::new()),
        }
    }

    /// The driver: compiled, unless it is there already.
    pub(super) fn driver(&self) -> Result<DriverLibrary, Stopped> {
        match self {
            Self::Workspace(here) => {
                let target = here.selection.target.as_deref();
                let folder = here.workspace.target_directory().as_std_path();
                Ok(driver::build(&rustc(), target, folder)?)
            }
            Self::Archive(brought) => Ok(brought.driver().clone()),
        }
    }

    /// The targets that declare models, built, and what is wrong with others.
    pub(super) fn built(&self, packages: &Packages, loudness: Loudness) -> Result<(Vec<Built>, Vec<Problem>), Stopped> {
        match self {
            Self::Workspace(here) => here.build(packages, loudness),
            Self::Archive(brought) => Ok((brought.built()?, Vec::new())),
        }
    }

    /// Asks the built targets for their models, with files in `folder`.
    pub(super) fn list(&self, built: &[Built], folder: &Path) -> Result<(Vec<Listed>, Vec<Problem>), Stopped> {
        let (listed, problems) = run::list(built, folder);
        if let Self::Archive(brought) = self {
            brought.compare(&listed, &problems)?;
        }
        Ok((listed, problems))
    }
}

impl Here {
    pub(super) fn workspace(&self) -> &Workspace {
        &self.workspace
    }

    fn build(&self, packages: &Packages, loudness: Loudness) -> Result<(Vec<Built>, Vec<Problem>), Stopped> {
        let (targets, mut problems) = workspace::declared_targets(&self.workspace);
        if targets.is_empty() && problems.is_empty() {
            let names: Vec<_> = self
                .workspace
                .packages()
                .map(|package| package.name.to_string())
                .collect();
            let which = match names.as_slice() {
                [one] => format!("the package {one}"),
                _ => "the selected packages".to_owned(),
            };
            return Err(WorkspaceError::NoModels(which).into());
        }
        let doing = match &self.revision {
            Some(revision) => format!("building models of {revision}"),
            None => "building models".to_owned(),
        };
        let progress = Progress::spinner(loudness, &doing);
        // Asked of Cargo once, and only where it compiles a dependency: the answer takes as long as a build of nothing.
        let explains = AtomicBool::new(!loudness.quiet && self.revision.is_none());
        let (built, failed) = workspace::build(
            &self.workspace,
            &self.selection,
            &packages.build(loudness.quiet),
            &targets,
            |what| match what {
                Building::Compiled {
                    name,
                    fresh,
                    done,
                    total,
                } => {
                    progress.reach(done, total, "crates");
                    if !fresh {
                        progress.say(name);
                        if self.is_dependency(name) && explains.swap(false, Ordering::Relaxed) {
                            // Where Cargo refuses, the build says so.
                            let recompiled = workspace::recompiled(&self.workspace, &self.selection, &targets);
                            if let Ok(Some(recompiled)) = recompiled {
                                progress.row(&compiled_again(&recompiled));
                            }
                        }
                    }
                }
                // A log, where there is no progress to see, would end here for minutes.
                Building::Waits(what) => progress.tell(what),
                Building::Goes => progress.say(""),
            },
        )?;
        problems.extend(failed);
        Ok((built, problems))
    }

    /// Whether a crate that Cargo compiles is not from this workspace.
    fn is_dependency(&self, name: &str) -> bool {
        let mut targets = self.workspace.members().flat_map(|member| &member.targets);
        name != "build-script-build" && !targets.any(|target| target.name == name)
    }
}

impl Brought {
    fn open(file: &Utf8Path, packages: Vec<String>) -> Result<Self, Stopped> {
        let folder = tempfile::Builder::new()
            .prefix("cargo-vram-")
            .tempdir()
            .map_err(file_error(&std::env::temp_dir()))?;
        let into = Utf8PathBuf::try_from(folder.path().join("archive")).into_diagnostic()?;
        let unpacked = archive::unpack(file.as_std_path(), &into)?;
        let brought = Self {
            file: file.to_owned(),
            packages,
            root: unpacked.root(),
            unpacked,
            folder,
        };
        // A mistyped name is told before anything is run.
        brought.built()?;
        Ok(brought)
    }

    pub(super) fn driver(&self) -> &DriverLibrary {
        &self.unpacked.driver
    }

    pub(super) fn manifest(&self) -> &Manifest {
        &self.unpacked.manifest
    }

    pub(super) fn file(&self) -> &Utf8Path {
        &self.file
    }

    /// The models of the named packages, as the archive says: no program is asked.
    pub(super) fn listed(&self) -> Vec<Listed> {
        let targets = self.unpacked.built().into_iter().zip(&self.unpacked.manifest.targets);
        let meant = |package: &String| self.packages.is_empty() || self.packages.contains(package);
        targets
            .filter(|(_, target)| meant(&target.package))
            .flat_map(|(built, target)| {
                let listed = |model: &archive::Model| Listed {
                    name: model.name.clone(),
                    task: model.task,
                    built: built.clone(),
                };
                target.models.iter().map(listed).collect::<Vec<_>>()
            })
            .collect()
    }

    /// The targets of the named packages; all, where none is named.
    fn built(&self) -> Result<Vec<Built>, ArchiveError> {
        let mut built = self.unpacked.built();
        let is_here = |package: &&String| built.iter().any(|built| built.target.package == **package);
        if let Some(unknown) = self.packages.iter().find(|package| !is_here(package)) {
            let known: std::collections::BTreeSet<_> =
                built.iter().map(|built| built.target.package.as_str()).collect();
            return Err(ArchiveError::UnknownPackage {
                file: self.file.clone().into(),
                package: unknown.clone(),
                known: known.into_iter().collect::<Vec<_>>().join(", "),
            });
        }
        built.retain(|built| self.packages.is_empty() || self.packages.contains(&built.target.package));
        Ok(built)
    }

    /// Compares what programs say with what the archive says of them. One that does not answer is a problem already.
    fn compare(&self, listed: &[Listed], problems: &[Problem]) -> Result<(), ArchiveError> {
        for (built, target) in self.unpacked.built().iter().zip(&self.unpacked.manifest.targets) {
            let declared = listed
                .iter()
                .filter(|model| model.built.executable == built.executable)
                .map(|model| (&model.name, model.task));
            let told = target.models.iter().map(|model| (&model.name, model.task));
            let is_meant = self.packages.is_empty() || self.packages.contains(&target.package);
            let is_problem = problems.iter().any(|problem| problem.package == target.package);
            if is_meant && !is_problem && !declared.eq(told) {
                return Err(ArchiveError::OtherModels {
                    file: self.file.clone().into(),
                    package: target.package.clone(),
                    target: target.name.clone(),
                });
            }
        }
        Ok(())
    }
}

/// Says what it costs to select packages, before Cargo compiles.
fn compiled_again(recompiled: &Recompiled) -> String {
    let Recompiled { packages, of, crates } = recompiled;
    let named = match crates.as_slice() {
        [first, second, rest @ ..] if rest.len() > 1 => format!("{first}, {second} and {} other crates", rest.len()),
        few => few.join(", "),
    };
    format!(
        "note: you selected {packages} of {of} packages with models\n  \
         Cargo builds {named} with other features for these than for all {of}\n  \
         it compiles these crates and everything that depends on them once more, unless that build exists already\n  \
         help: pass --workspace to use one build for all"
    )
}

fn file_error(path: &Path) -> impl FnOnce(std::io::Error) -> Asked + use<> {
    let path = Utf8PathBuf::from(path.to_string_lossy().into_owned());
    move |source| Asked::File { path, source }
}

/// What git says; nothing where it fails, or is not there.
pub(super) fn git(folder: &Utf8Path, arguments: &[&str]) -> Option<String> {
    git_or_why(folder, arguments).ok()
}

/// What git says, or why it fails.
pub(super) fn git_or_why(folder: &Utf8Path, arguments: &[&str]) -> Result<String, String> {
    let output = std::process::Command::new("git")
        .args(arguments)
        .current_dir(folder)
        // Set where a hook runs this, and of that hook's checkout.
        .env_remove("GIT_DIR")
        .env_remove("GIT_WORK_TREE")
        .env_remove("GIT_INDEX_FILE")
        .output()
        .map_err(|error| error.to_string())?;
    if output.status.success() {
        Ok(String::from_utf8_lossy(&output.stdout).into_owned())
    } else {
        Err(String::from_utf8_lossy(&output.stderr).trim().to_owned())
    }
}
