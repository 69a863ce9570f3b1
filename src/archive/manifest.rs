//! The manifest of an archive: the kind of machine, the models, and every file.

use std::collections::BTreeSet;

use serde::{Deserialize, Serialize};

use super::elf::Glibc;
use super::error::ArchiveRefusal;
use super::machine::Machine;
use crate::bytes::Bytes;
use crate::driver;
use crate::protocol::Task;
use crate::untrusted::{Foreign, PlainName};
use crate::workspace::KernelCompiler;

/// The format version of archives. Other versions are refused.
pub const FORMAT: u32 = 2;
/// The path of the manifest, the first entry.
pub const MANIFEST: &str = "manifest.json";
/// The folder of the models' executables.
pub(super) const MODELS: &str = "models/";
/// The folder of the virtual CUDA driver.
pub const DRIVER: &str = "driver";
/// The folder that replaces the workspace's folder.
pub const WORKSPACE: &str = "workspace";
/// The path of the budgets, in [`WORKSPACE`].
pub const BUDGETS: &str = "workspace/budgets.yaml";
/// The path of the baseline, in [`WORKSPACE`].
pub const BASELINE: &str = "workspace/budgets.lock";

/// The path of the base revision's budgets.
pub const BASE_BUDGETS: &str = "base/budgets.yaml";
/// The path of the base revision's baseline.
pub const BASE_BASELINE: &str = "base/budgets.lock";

/// The largest allowed manifest.
pub(super) const MOST_MANIFEST: Bytes = Bytes(4 << 20);
/// The largest allowed number of files and folders.
pub(super) const MOST_FILES: usize = 10_000;
/// The largest allowed length of a path, in bytes.
const MOST_PATH: usize = 255;
/// The largest allowed total size of all files.
pub(super) const MOST_BYTES: Bytes = Bytes(8 << 30);
/// How much larger than an archive its files may be, beyond [`ALWAYS_ALLOWED`].
pub(super) const MOST_RATIO: u64 = 50;
/// The total size of files that an archive of any size may have.
const ALWAYS_ALLOWED: Bytes = Bytes(64 << 20);

/// The manifest of an archive.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ArchiveManifest {
    /// The format version, [`FORMAT`].
    pub format: u32,
    /// The version of the tool that made the archive.
    pub tool: Foreign,
    /// The fingerprint of the virtual CUDA driver's source.
    pub driver: Foreign,
    /// The protocol version of the models.
    pub protocol: u32,
    /// The target triple of the programs.
    pub target: Foreign,
    /// The oldest glibc version that the programs can use.
    pub glibc: Option<Glibc>,
    /// The commit that the models were built from.
    pub commit: Option<PlainName>,
    /// Whether the work tree had changes since that commit; absent if unknown.
    pub dirty: Option<bool>,
    /// Whether the archive has all models of the workspace.
    pub whole: bool,
    /// The name of the budget file in reports, if there is a budget file.
    pub budgets: Option<PlainName>,
    /// The base revision whose limits are compared with the current limits, if there is one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub base: Option<ArchivedBase>,
    /// The Cargo targets that declare models.
    pub targets: Vec<ArchivedTarget>,
    /// All files except the manifest, sorted by path.
    pub files: Vec<ArchivedFile>,
}

/// A base revision whose budgets and baseline, if any, are in the archive.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ArchivedBase {
    /// The name of the revision: `origin/main`.
    pub revision: PlainName,
    /// The commit at which the archive's history branched off from the revision.
    pub commit: PlainName,
}

/// A Cargo target that declares models.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ArchivedTarget {
    /// The name of the package.
    pub package: PlainName,
    /// The package's folder, relative to the workspace's folder. Empty for the workspace's folder itself.
    pub folder: String,
    /// The name of the target.
    pub name: PlainName,
    /// The kind of the target.
    pub kind: FileKind,
    /// The version of Burn.
    pub burn: PlainName,
    /// The compiler of its kernels.
    pub kernel_compiler: KernelCompiler,
    /// The path of the executable in the archive.
    pub executable: String,
    /// The models, in the order of the target.
    pub models: Vec<ArchivedModel>,
}

/// A declared model.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ArchivedModel {
    /// The name of the model.
    pub name: PlainName,
    /// The task of the model.
    pub task: Task,
}

/// The kind of a Cargo target that declares models.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum FileKind {
    /// A benchmark.
    Bench,
    /// An example.
    Example,
    /// A test.
    Test,
    /// A binary.
    Bin,
}

impl FileKind {
    const ALL: [Self; 4] = [Self::Bench, Self::Example, Self::Test, Self::Bin];

    /// Returns Cargo's option for this kind of target.
    #[must_use]
    pub fn option(self) -> &'static str {
        match self {
            Self::Bench => "--bench",
            Self::Example => "--example",
            Self::Test => "--test",
            Self::Bin => "--bin",
        }
    }

    pub(super) fn from_option(option: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|kind| kind.option() == option)
    }
}

/// One file of an archive.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ArchivedFile {
    /// The path in the archive.
    pub path: String,
    /// The length in bytes.
    pub bytes: Bytes,
    /// The SHA-256 hash of the content, in hexadecimal.
    pub sha256: String,
    /// Whether the file is a program or a shared library of the driver.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub executable: bool,
}

/// The fields that all format versions have.
#[derive(Deserialize)]
struct ManifestHead {
    // Wider than ours, so that any later number is reported as a version and not as damage.
    format: u64,
    #[serde(default)]
    tool: Foreign,
}

impl ArchiveManifest {
    /// Parses a manifest, and checks that it is valid and for this machine. It checks the format and tool version
    /// first.
    pub(super) fn read(bytes: &[u8], machine: &Machine) -> Result<Self, ArchiveRefusal> {
        let unusable = |error: serde_json::Error| ArchiveRefusal::Manifest(error.to_string());
        // Another format may lack fields. Parsed as a whole, it would only be called invalid.
        let head: ManifestHead = serde_json::from_slice(bytes).map_err(unusable)?;
        if head.format != u64::from(FORMAT) {
            return Err(ArchiveRefusal::Format {
                theirs: head.format,
                ours: FORMAT,
            });
        }
        if head.tool != machine.tool {
            return Err(ArchiveRefusal::Tool(head.tool));
        }
        let manifest: Self = serde_json::from_slice(bytes).map_err(unusable)?;
        machine.takes(&manifest)?;
        manifest.validate()?;
        Ok(manifest)
    }

    /// Returns the total size of all files.
    #[must_use]
    pub fn total(&self) -> Bytes {
        let sizes = self.files.iter().map(|file| file.bytes.0);
        // A forged manifest may name sizes whose sum overflows.
        Bytes(sizes.fold(0, u64::saturating_add))
    }

    /// Checks that the files of an archive of this size are not much larger than it.
    ///
    /// Programs compress to about a sixth: an archive of 11.6 MiB had files of 75.2 MiB.
    pub(super) fn check_ratio(&self, packed: Bytes) -> Result<(), ArchiveRefusal> {
        let unpacked = self.total();
        let allowed = packed.0.saturating_mul(MOST_RATIO).saturating_add(ALWAYS_ALLOWED.0);
        match unpacked.0 > allowed {
            true => Err(ArchiveRefusal::Inflated { packed, unpacked }),
            false => Ok(()),
        }
    }

    fn validate(&self) -> Result<(), ArchiveRefusal> {
        if self.files.len() > MOST_FILES {
            return Err(ArchiveRefusal::TooMany);
        }
        if self.total() > MOST_BYTES {
            return Err(ArchiveRefusal::TooLarge(self.total()));
        }
        // A file must not take the path of the manifest either.
        let mut paths = BTreeSet::from([MANIFEST]);
        for ArchivedFile { path, .. } in &self.files {
            check(path)?;
            if !paths.insert(path) {
                return Err(ArchiveRefusal::Duplicate(path.clone()));
            }
        }
        let folders = self.targets.iter().map(ArchivedTarget::work_folder).collect::<Vec<_>>();
        for folder in &folders {
            check(folder)?;
            // A work folder must not have the path of a file.
            if paths.contains(folder.as_str()) {
                return Err(ArchiveRefusal::Overlap(folder.clone()));
            }
        }
        // An archive of a few kilobytes could otherwise have folders that fill the disk.
        let mut made: BTreeSet<&str> = folders.iter().map(String::as_str).collect();
        for path in paths.iter().copied().chain(folders.iter().map(String::as_str)) {
            made.extend(path.match_indices('/').map(|(at, _)| &path[..at]));
            if paths.len() + made.len() > MOST_FILES {
                return Err(ArchiveRefusal::TooMany);
            }
        }
        for path in paths.iter().copied().chain(folders.iter().map(String::as_str)) {
            // On disk, only one of the two could exist.
            let above = path.match_indices('/').map(|(at, _)| &path[..at]);
            if let Some(file) = above.into_iter().find(|folder| paths.contains(folder)) {
                return Err(ArchiveRefusal::Overlap(file.to_owned()));
            }
        }
        self.targets.iter().try_for_each(ArchivedTarget::validate)?;
        self.match_files(&paths)
    }

    /// Checks that every part of the archive has its file, and that every file belongs to a part.
    fn match_files(&self, paths: &BTreeSet<&str>) -> Result<(), ArchiveRefusal> {
        let driver: Vec<_> = driver::FILES.iter().map(|file| format!("{DRIVER}/{file}")).collect();
        let executables = self.targets.iter().map(|target| target.executable.as_str());
        let programs: BTreeSet<_> = driver.iter().map(String::as_str).chain(executables).collect();
        let budgets = self.budgets.iter().map(|_| BUDGETS);
        if let Some(path) = programs
            .iter()
            .copied()
            .chain(budgets)
            .find(|path| !paths.contains(path))
        {
            return Err(ArchiveRefusal::Missing(path.to_owned()));
        }
        let is_data = |path: &str| match path {
            BASELINE => true,
            BUDGETS => self.budgets.is_some(),
            BASE_BUDGETS | BASE_BASELINE => self.base.is_some(),
            _ => false,
        };
        // A file that nothing uses is refused, not ignored. See docs/design/archives.md.
        let known = |file: &ArchivedFile| {
            file.executable == programs.contains(file.path.as_str()) && (file.executable || is_data(&file.path))
        };
        self.files.iter().find(|file| !known(file)).map_or(Ok(()), |file| {
            let path = file.path.escape_debug();
            Err(ArchiveRefusal::Manifest(format!(
                "it does not say what `{path}` is for"
            )))
        })
    }
}

impl ArchivedTarget {
    /// Returns the folder in which its models run.
    pub(super) fn work_folder(&self) -> String {
        Self::work_folder_of(&self.folder)
    }

    /// Returns the folder in which the models of a package run, from the package's folder.
    pub(super) fn work_folder_of(folder: &str) -> String {
        match folder {
            "" => WORKSPACE.to_owned(),
            folder => format!("{WORKSPACE}/{folder}"),
        }
    }

    fn validate(&self) -> Result<(), ArchiveRefusal> {
        // A file of the driver must not run as a model, and a model must not replace a file of the driver.
        if !self.executable.starts_with(MODELS) {
            return Err(ArchiveRefusal::Manifest(format!(
                "the executable `{}` is not in the folder `models`",
                self.executable.escape_debug()
            )));
        }
        Ok(())
    }
}

fn check(path: &str) -> Result<(), ArchiveRefusal> {
    path_problem(path).map_or(Ok(()), |why| {
        Err(ArchiveRefusal::Path {
            path: path.to_owned(),
            why,
        })
    })
}

/// Returns why a path is unsafe. A safe path has only plain names below the folder and means the same on every system.
pub(super) fn path_problem(path: &str) -> Option<&'static str> {
    if path.is_empty() {
        return Some("it is empty");
    }
    if path.len() > MOST_PATH {
        return Some("it has more than 255 bytes");
    }
    if path.starts_with('/') {
        return Some("it is absolute");
    }
    // On other systems, these separate folders and name drives.
    if path.contains(['\\', ':']) || path.chars().any(char::is_control) {
        return Some("it has a backslash, a colon or a control character");
    }
    path.split('/').find_map(|part| match part {
        "" | "." => Some("it has an empty part or `.`"),
        ".." => Some("it has `..`, which can leave the folder"),
        _ => None,
    })
}
