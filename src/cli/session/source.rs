//! The source of models: a workspace, which builds them, or an archive, which contains them.

use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Mutex, OnceLock, PoisonError};

use camino::{Utf8Path, Utf8PathBuf};

use crate::archive::{self, ArchiveError, ArchiveManifest, Unpacked};
use crate::cli::error::{CliError, NotUtf8};
use crate::cli::options::Packages;
use crate::cli::session::driver_build::DriverBuild;
use crate::cli::session::error::SelectionError;
use crate::cli::session::error::file_error;
use crate::cli::session::git::git;
use crate::cli::temporary::{self, TemporaryFolder};
use crate::cli::terminal::{self, Progress};
use crate::driver::{DriverError, DriverLibrary};
use crate::report::Problem;
use crate::run::{self, Listed};
use crate::untrusted::PlainName;
use crate::workspace::{self, Building, Built, DeployedBinary, Recompiled, Selection, Workspace, WorkspaceError};

/// The name of the default budgets file.
const BUDGETS: &str = "budgets.yaml";

/// The source of models.
pub(in crate::cli) enum ModelSource {
    /// A workspace that builds the models.
    Workspace(Box<WorkspaceSource>),
    /// An archive of models that were built elsewhere.
    Archive(Box<ArchiveSource>),
}

/// A workspace, and the packages that are selected in it.
pub(in crate::cli) struct WorkspaceSource {
    selection: Selection,
    workspace: Workspace,
    /// The revision of a temporary checkout; `None` for the workspace in which the command runs.
    revision: Option<String>,
    /// The driver, if it is known.
    driver: OnceLock<DriverLibrary>,
    /// The thread that gets the driver while Cargo builds the models, if it was started.
    driver_thread: Mutex<Option<DriverBuild>>,
}

/// An unpacked archive, and the packages that are selected in it. Drop removes the unpacked files.
pub(in crate::cli) struct ArchiveSource {
    file: Utf8PathBuf,
    packages: Vec<String>,
    unpacked: Unpacked,
    root: Utf8PathBuf,
    folder: TemporaryFolder,
}

/// The texts of the base's budgets and baseline; `None` for a file that does not exist.
#[derive(Debug, Default)]
pub(in crate::cli) struct BaseFiles {
    pub(in crate::cli) budgets: Option<String>,
    pub(in crate::cli) lock: Option<String>,
}

/// A folder for the files of the processes.
pub(in crate::cli) struct Scratch {
    path: PathBuf,
    /// Removes the folder on drop, unless the files are kept.
    _temporary: Option<TemporaryFolder>,
    /// The lock of a folder that stays.
    _lock: Option<std::fs::File>,
}

impl Scratch {
    pub(in crate::cli) fn path(&self) -> &Path {
        &self.path
    }
}

impl ModelSource {
    /// Whether this source builds its models.
    pub(in crate::cli) const fn builds(&self) -> bool {
        matches!(self, Self::Workspace(_))
    }

    /// Whether a model can run with checkpointing: it can be rebuilt for that, or its Burn supports it in every build.
    pub(in crate::cli) fn checkpoints(&self, target: &workspace::DeclaredTarget) -> bool {
        self.builds() || target.explains_in_every_build()
    }

    /// Whether this source builds models that need a separate build for explanations or what-ifs.
    pub(in crate::cli) fn builds_on_demand(&self) -> bool {
        match self {
            Self::Archive(_) => false,
            Self::Workspace(here) => {
                let (targets, _) = workspace::declared_targets(&here.workspace);
                !targets.iter().all(workspace::DeclaredTarget::explains_in_every_build)
            }
        }
    }

    /// Whether the source is a checkout of another revision, and not the workspace in which the command runs.
    pub(in crate::cli) fn is_elsewhere(&self) -> bool {
        matches!(self, Self::Workspace(here) if here.revision.is_some())
    }

    /// Opens the archive if one is given, or else the selected workspace.
    pub(in crate::cli) fn open(packages: &Packages, archive_file: Option<&Utf8Path>) -> Result<Self, CliError> {
        let selection = packages.selection()?;
        match archive_file {
            None => {
                let workspace = Workspace::load(&selection)?;
                Ok(Self::workspace(selection, workspace, None))
            }
            Some(file) => Ok(Self::Archive(Box::new(ArchiveSource::open(file, selection.packages)?))),
        }
    }

    /// Opens a checkout of the workspace at another revision.
    pub(in crate::cli) fn at(selection: Selection, revision: &str) -> Result<Self, WorkspaceError> {
        let workspace = Workspace::load(&selection)?;
        Ok(Self::workspace(selection, workspace, Some(revision.to_owned())))
    }

    fn workspace(selection: Selection, workspace: Workspace, revision: Option<String>) -> Self {
        Self::Workspace(Box::new(WorkspaceSource {
            selection,
            workspace,
            revision,
            driver: OnceLock::new(),
            driver_thread: Mutex::default(),
        }))
    }

    /// Opens the archive if one is given, or else the workspace in which the command runs; `None` if there is neither.
    pub(in crate::cli) fn here(archive_file: Option<&Utf8Path>) -> Result<Option<Self>, CliError> {
        if let Some(file) = archive_file {
            return Ok(Some(Self::Archive(Box::new(ArchiveSource::open(file, Vec::new())?))));
        }
        let selection = Selection::default();
        // The GPUs of a machine can be described outside of a workspace, too.
        let workspace = Workspace::load(&selection).ok();
        Ok(workspace.map(|workspace| Self::workspace(selection, workspace, None)))
    }

    /// Returns the root folder of the workspace, or the folder of the unpacked archive that replaces it.
    pub(in crate::cli) fn root(&self) -> &Utf8Path {
        match self {
            Self::Workspace(here) => here.workspace.root(),
            Self::Archive(brought) => &brought.root,
        }
    }

    /// Whether every package of the workspace is selected, with at least its default features.
    pub(in crate::cli) fn is_whole(&self) -> bool {
        match self {
            Self::Workspace(here) => here.workspace.is_whole(),
            Self::Archive(brought) => brought.unpacked.manifest.whole && brought.packages.is_empty(),
        }
    }

    /// Returns the commit that the models are built from, and whether there were uncommitted changes.
    pub(in crate::cli) fn commit(&self) -> (Option<String>, Option<bool>) {
        match self {
            Self::Workspace(here) => {
                let root = here.workspace.root();
                let commit = git(root, &["rev-parse", "HEAD"]).map(|text| text.trim().to_owned());
                let changes = commit
                    .as_ref()
                    // `git status` would otherwise write the index, and
                    // could get in the way of the user's own git.
                    .and_then(|_| git(root, &["--no-optional-locks", "status", "--porcelain"]));
                (commit, changes.map(|changes| !changes.is_empty()))
            }
            Self::Archive(brought) => {
                let manifest = &brought.unpacked.manifest;
                (manifest.commit.as_ref().map(ToString::to_string), manifest.dirty)
            }
        }
    }

    /// Returns the date of the models' commit as ISO 8601, in the committer's time zone. An archive does not store it.
    pub(in crate::cli) fn commit_date(&self) -> Option<String> {
        let Self::Workspace(here) = self else { return None };
        // If git is configured to show signatures, it would print one before the date.
        let date = git(
            here.workspace.root(),
            &["log", "-1", "--no-show-signature", "--format=%cI", "HEAD"],
        )?;
        Some(date.trim().to_owned()).filter(|date| !date.is_empty())
    }

    /// Returns the path of the default budgets file, and that path as messages show it. The file may not exist.
    pub(in crate::cli) fn budgets(&self) -> (Utf8PathBuf, String) {
        let shown = match self {
            Self::Workspace(_) => None,
            Self::Archive(brought) => brought.unpacked.manifest.budgets.as_ref(),
        };
        (
            self.root().join(BUDGETS),
            shown.map_or_else(|| BUDGETS.to_owned(), ToString::to_string),
        )
    }

    /// Returns the base that an archive contains, with its budgets and baseline.
    pub(in crate::cli) fn base(&self) -> Option<(archive::ArchivedBase, BaseFiles)> {
        let Self::Archive(brought) = self else { return None };
        let base = brought.unpacked.manifest.base.clone()?;
        let folder = brought.root.parent()?;
        let has = |path: &str| brought.unpacked.manifest.files.iter().any(|file| file.path == path);
        // Unpacking has checked that every listed file is there.
        let read = |path: &str| has(path).then(|| std::fs::read_to_string(folder.join(path)).unwrap_or_default());
        let files = BaseFiles {
            budgets: read(archive::BASE_BUDGETS),
            lock: read(archive::BASE_BASELINE),
        };
        Some((base, files))
    }

    /// Returns the error for missing budgets.
    pub(in crate::cli) fn no_budgets(&self) -> SelectionError {
        match self {
            Self::Workspace(_) => SelectionError::NoBudgets(self.budgets().0),
            Self::Archive(brought) => SelectionError::NoBudgetsInArchive(brought.file.clone()),
        }
    }

    /// Creates a folder for the files of the processes: `keep`, or else a temporary folder.
    pub(in crate::cli) fn scratch(&self, keep: Option<&Utf8Path>) -> Result<Scratch, SelectionError> {
        if let Some(keep) = keep {
            // Models run in the folders of their packages, where a relative path would be another one.
            let made = std::fs::create_dir_all(keep).and_then(|()| keep.as_std_path().canonicalize());
            let path = made.map_err(file_error(keep.as_std_path()))?;
            return Ok(Scratch {
                _lock: temporary::lock_unused(&path),
                path,
                _temporary: None,
            });
        }
        let parent = match self {
            Self::Workspace(here) => here.workspace.target_directory().as_std_path().join("vram/run"),
            Self::Archive(brought) => brought.folder.path().to_owned(),
        };
        let temporary = std::fs::create_dir_all(&parent)
            .and_then(|()| TemporaryFolder::new_in(&parent))
            .map_err(file_error(&parent))?;
        Ok(Scratch {
            path: temporary.path().to_owned(),
            _temporary: Some(temporary),
            _lock: None,
        })
    }

    /// Returns the binaries of the workspace that run Burn on a GPU. The list is empty for an archive.
    pub(in crate::cli) fn deployed(&self) -> Result<Vec<DeployedBinary>, WorkspaceError> {
        match self {
            Self::Workspace(here) => workspace::deployed_binaries(&here.workspace, &here.selection),
            Self::Archive(_) => Ok(Vec::new()),
        }
    }

    /// Starts to build the driver, unless it exists, so that it is there when the models are built.
    pub(in crate::cli) fn start_driver(&self) {
        if let Self::Workspace(here) = self {
            here.start_driver();
        }
    }

    /// Returns the driver library: built unless it exists, or taken from the archive.
    pub(in crate::cli) fn driver(&self) -> Result<DriverLibrary, CliError> {
        match self {
            Self::Workspace(here) => Ok(here.driver()?),
            Self::Archive(brought) => Ok(brought.driver().clone()),
        }
    }

    /// Returns the built targets that declare models, and the problems of the others.
    pub(in crate::cli) fn built(&self, packages: &Packages) -> Result<(Vec<Built>, Vec<Problem>), CliError> {
        match self {
            Self::Workspace(here) => here.build(packages),
            Self::Archive(brought) => Ok((brought.built()?, Vec::new())),
        }
    }

    /// Runs the built targets to list their models, with temporary files in `folder`.
    pub(in crate::cli) fn list(&self, built: &[Built], folder: &Path) -> Result<(Vec<Listed>, Vec<Problem>), CliError> {
        let (listed, problems) = run::list(built, folder);
        // `list` and `doctor` read only the manifest, so a program must not declare other models.
        if let Self::Archive(brought) = self {
            brought.compare(&listed, &problems)?;
        }
        Ok((listed, problems))
    }
}

impl WorkspaceSource {
    pub(in crate::cli) fn workspace(&self) -> &Workspace {
        &self.workspace
    }

    /// Starts to get the driver on another thread, unless it is known.
    fn start_driver(&self) {
        let mut thread = self.driver_thread.lock().unwrap_or_else(PoisonError::into_inner);
        if self.driver.get().is_none() && thread.is_none() {
            *thread = Some(self.driver_build());
        }
    }

    fn driver(&self) -> Result<DriverLibrary, DriverError> {
        if let Some(driver) = self.driver.get() {
            return Ok(driver.clone());
        }
        let thread = self.driver_thread.lock().unwrap_or_else(PoisonError::into_inner).take();
        let driver = thread.unwrap_or_else(|| self.driver_build()).wait()?;
        Ok(self.driver.get_or_init(|| driver).clone())
    }

    fn driver_build(&self) -> DriverBuild {
        // The driver is loaded into the models, so it must be for their target.
        // See docs/design/driver.md.
        let target = self.selection.target.clone();
        DriverBuild::start(target, self.workspace.target_directory().as_std_path())
    }

    fn build(&self, packages: &Packages) -> Result<(Vec<Built>, Vec<Problem>), CliError> {
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
        // With `--rebuild` there are two builds, and the second one looks like a repetition of the first.
        let doing = match &self.revision {
            Some(revision) => format!("building models of {revision}"),
            None => "building models".to_owned(),
        };
        let progress = Progress::spinner(&doing);
        // Ask Cargo only once, and only if it compiles a dependency: the answer takes as long as a build with no work.
        let explains = AtomicBool::new(!terminal::is_quiet() && self.revision.is_none());
        let (built, failed) = workspace::build(
            &self.workspace,
            &self.selection,
            &packages.build(terminal::is_quiet()),
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
                            // If Cargo refuses, the build reports the reason.
                            let recompiled = workspace::recompiled(&self.workspace, &self.selection, &targets);
                            if let Ok(Some(recompiled)) = recompiled {
                                progress.row(&compiled_again(&recompiled));
                            }
                        }
                    }
                }
                // It takes minutes, so the user reads why when it begins.
                Building::OnDemand(features) => {
                    if !terminal::is_quiet() {
                        progress.row(&built_on_demand(features));
                    }
                }
                // Without a terminal, a log would otherwise show nothing for minutes.
                Building::Waits(what) => progress.tell(what),
                Building::Goes => progress.say(""),
            },
        )?;
        problems.extend(failed);
        Ok((built, problems))
    }

    /// Whether a crate that Cargo compiles is not part of this workspace.
    fn is_dependency(&self, name: &str) -> bool {
        let mut targets = self.workspace.members().flat_map(|member| &member.targets);
        // Every build script has this name, those of the workspace as well.
        name != "build-script-build" && !targets.any(|target| target.name == name)
    }
}

impl ArchiveSource {
    fn open(file: &Utf8Path, packages: Vec<String>) -> Result<Self, CliError> {
        let folder = TemporaryFolder::new().map_err(file_error(&crate::folders::temporary()))?;
        let into = Utf8PathBuf::try_from(folder.path().join("archive")).map_err(NotUtf8)?;
        let unpacked = archive::unpack(file.as_std_path(), &into)?;
        let brought = Self {
            file: file.to_owned(),
            packages,
            root: unpacked.root(),
            unpacked,
            folder,
        };
        // A mistyped package name must fail before anything runs.
        brought.built()?;
        Ok(brought)
    }

    pub(in crate::cli) fn driver(&self) -> &DriverLibrary {
        &self.unpacked.driver
    }

    pub(in crate::cli) fn manifest(&self) -> &ArchiveManifest {
        &self.unpacked.manifest
    }

    pub(in crate::cli) fn file(&self) -> &Utf8Path {
        &self.file
    }

    /// Returns the models of the selected packages from the archive's manifest, without running a program.
    pub(in crate::cli) fn listed(&self) -> Vec<Listed> {
        let targets = self.unpacked.built().into_iter().zip(&self.unpacked.manifest.targets);
        targets
            .filter(|(_, target)| self.is_meant(&target.package))
            .flat_map(|(built, target)| {
                let listed = |model: &archive::ArchivedModel| Listed {
                    name: model.name.clone(),
                    task: model.task,
                    built: built.clone(),
                };
                target.models.iter().map(listed).collect::<Vec<_>>()
            })
            .collect()
    }

    /// Whether a package is selected. All are if none was named.
    fn is_meant(&self, package: &PlainName) -> bool {
        self.packages.is_empty() || self.packages.iter().any(|meant| package == meant)
    }

    /// Returns the targets of the selected packages.
    fn built(&self) -> Result<Vec<Built>, ArchiveError> {
        let mut built = self.unpacked.built();
        let is_here = |package: &&String| built.iter().any(|built| built.target.package == package.as_str());
        if let Some(unknown) = self.packages.iter().find(|package| !is_here(package)) {
            let known: std::collections::BTreeSet<_> =
                built.iter().map(|built| built.target.package.as_str()).collect();
            return Err(ArchiveError::UnknownPackage {
                file: self.file.clone().into(),
                package: unknown.clone(),
                known: known.into_iter().collect::<Vec<_>>().join(", "),
            });
        }
        built.retain(|built| self.is_meant(&built.target.package));
        Ok(built)
    }

    /// Checks that each program lists the models of the archive's manifest. A program that fails is already a problem.
    fn compare(&self, listed: &[Listed], problems: &[Problem]) -> Result<(), ArchiveError> {
        for (built, target) in self.unpacked.built().iter().zip(&self.unpacked.manifest.targets) {
            let declared = listed
                .iter()
                .filter(|model| model.built.executable == built.executable)
                .map(|model| (&model.name, model.task));
            let told = target.models.iter().map(|model| (&model.name, model.task));
            let is_meant = self.is_meant(&target.package);
            let is_problem = problems.iter().any(|problem| problem.package == target.package);
            if is_meant && !is_problem && !declared.eq(told) {
                return Err(ArchiveError::OtherModels {
                    file: self.file.clone().into(),
                    package: target.package.to_string(),
                    target: target.name.to_string(),
                });
            }
        }
        Ok(())
    }
}

/// Returns a note that the selection of packages makes Cargo compile crates again.
fn compiled_again(recompiled: &Recompiled) -> String {
    let Recompiled { packages, of, crates } = recompiled;
    let named = match crates.as_slice() {
        [first, second, rest @ ..] if rest.len() > 1 => format!("{first}, {second} and {} other crates", rest.len()),
        few => few.join(", "),
    };
    format!(
        "note: you selected {packages} of {of} packages with models\n  \
         Cargo builds {named} with other features for these than for all {of} packages\n  \
         it compiles these crates, and everything that depends on them, once more unless that build already exists\n  \
         help: pass --workspace to use one build for all packages"
    )
}

/// Returns a note that models are built with additional features of cargo-vram, and how long that takes.
pub(in crate::cli) fn built_on_demand(features: &[&str]) -> String {
    let names: Vec<_> = features.iter().map(|feature| format!("`{feature}`")).collect();
    let plural = if names.len() == 1 { "" } else { "s" };
    format!(
        "building the models with the feature{plural} {}: the first such build takes 10 seconds to 2 minutes",
        names.join(" and "),
    )
}
