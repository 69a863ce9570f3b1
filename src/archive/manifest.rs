//! What an archive says of itself: for which machine it is, which models are in it, and every file.

use std::collections::BTreeSet;

use serde::{Deserialize, Serialize};

use super::elf::Glibc;
use super::error::Refusal;
use super::machine::Machine;
use crate::bytes::Bytes;
use crate::driver;
use crate::protocol::Task;
use crate::workspace::KernelCompiler;

/// The layout of an archive. Another one is not read.
pub const FORMAT: u32 = 2;
/// The path of the manifest, which is the first entry.
pub const MANIFEST: &str = "manifest.json";
/// What the paths of models' executables begin with.
pub(super) const MODELS: &str = "models/";
/// The folder of the driver.
pub const DRIVER: &str = "driver";
/// The folder that stands for the workspace's.
pub const WORKSPACE: &str = "workspace";
/// The budgets, in [`WORKSPACE`].
pub const BUDGETS: &str = "workspace/budgets.yaml";
/// The baseline, in [`WORKSPACE`].
pub const BASELINE: &str = "workspace/budgets.lock";

/// The budgets of the base.
pub const BASE_BUDGETS: &str = "base/budgets.yaml";
/// The baseline of the base.
pub const BASE_BASELINE: &str = "base/budgets.lock";

/// The longest manifest that is read.
pub(super) const MOST_MANIFEST: Bytes = Bytes(4 << 20);
/// The most files.
pub(super) const MOST_FILES: usize = 10_000;
/// The most bytes of all files.
pub(super) const MOST_BYTES: Bytes = Bytes(8 << 30);

/// What an archive says of itself.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Manifest {
    /// [`FORMAT`].
    pub format: u32,
    /// The version of the tool that made it.
    pub tool: String,
    /// The fingerprint of the driver's source.
    pub driver: String,
    /// The protocol that the models speak.
    pub protocol: u32,
    /// The target triple of its programs.
    pub target: String,
    /// The oldest glibc that has all that its programs need.
    pub glibc: Option<Glibc>,
    /// The commit that the models were built from.
    pub commit: Option<String>,
    /// Whether there were changes on top of that commit; absent where nobody could tell.
    pub dirty: Option<bool>,
    /// Whether nothing of the workspace was left out.
    pub whole: bool,
    /// What the file of budgets is called in reports, where there is one.
    pub budgets: Option<String>,
    /// The revision whose limits this one's are compared with, where there is one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub base: Option<Base>,
    /// The targets that declare models.
    pub targets: Vec<Target>,
    /// Every file but the manifest, sorted by path.
    pub files: Vec<File>,
}

/// A revision whose budgets and baseline are in an archive, as far as it had any.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Base {
    /// As it was named: `origin/main`.
    pub revision: String,
    /// The commit of it that the archive's own parted from.
    pub commit: String,
}

/// A target that declares models.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Target {
    /// The package's name.
    pub package: String,
    /// The package's folder, below the workspace's; empty where it is that.
    pub folder: String,
    /// The target's name.
    pub name: String,
    /// Its kind.
    pub kind: Kind,
    /// Burn's version.
    pub burn: String,
    /// What compiles its kernels.
    pub kernel_compiler: KernelCompiler,
    /// Where its executable lies in the archive.
    pub executable: String,
    /// The models, in the target's own order.
    pub models: Vec<Model>,
}

/// A declared model.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Model {
    /// Its name.
    pub name: String,
    /// What it does.
    pub task: Task,
}

/// The kinds of targets that declare models.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Kind {
    /// A benchmark.
    Bench,
    /// An example.
    Example,
    /// A test.
    Test,
    /// A binary.
    Bin,
}

impl Kind {
    const ALL: [Self; 4] = [Self::Bench, Self::Example, Self::Test, Self::Bin];

    /// What Cargo's option for such a target is called.
    #[must_use]
    pub fn option(self) -> &'static str {
        match self {
            Self::Bench => "--bench",
            Self::Example => "--example",
            Self::Test => "--test",
            Self::Bin => "--bin",
        }
    }

    pub(super) fn of_option(option: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|kind| kind.option() == option)
    }
}

/// One file.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct File {
    /// Its path.
    pub path: String,
    /// Its length.
    pub bytes: Bytes,
    /// The hash of its bytes.
    pub sha256: String,
    /// Whether it is a program.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub executable: bool,
}

/// What every format has in common.
#[derive(Deserialize)]
struct Head {
    format: u64,
    #[serde(default)]
    tool: String,
}

impl Manifest {
    /// Reads it, and sees whether what it says can be and is for this machine. Nothing else is looked at before.
    pub(super) fn read(bytes: &[u8], machine: &Machine) -> Result<Self, Refusal> {
        let unusable = |error: serde_json::Error| Refusal::Manifest(error.to_string());
        let head: Head = serde_json::from_slice(bytes).map_err(unusable)?;
        if head.format != u64::from(FORMAT) {
            return Err(Refusal::Format {
                theirs: head.format,
                ours: FORMAT,
            });
        }
        if head.tool != machine.tool {
            return Err(Refusal::Tool(head.tool));
        }
        let manifest: Self = serde_json::from_slice(bytes).map_err(unusable)?;
        machine.takes(&manifest)?;
        manifest.validate()?;
        Ok(manifest)
    }

    /// The bytes of all files.
    #[must_use]
    pub fn total(&self) -> Bytes {
        let sizes = self.files.iter().map(|file| file.bytes.0);
        Bytes(sizes.fold(0, u64::saturating_add))
    }

    fn validate(&self) -> Result<(), Refusal> {
        if self.files.len() > MOST_FILES {
            return Err(Refusal::TooMany(self.files.len()));
        }
        if self.total() > MOST_BYTES {
            return Err(Refusal::TooLarge(self.total()));
        }
        let mut paths = BTreeSet::from([MANIFEST]);
        for File { path, .. } in &self.files {
            check(path)?;
            if !paths.insert(path) {
                return Err(Refusal::Duplicate(path.clone()));
            }
        }
        let folders = self.targets.iter().map(Target::work_folder).collect::<Vec<_>>();
        for folder in &folders {
            check(folder)?;
            // The folder's own name stands for a file in it.
            if paths.contains(folder.as_str()) {
                return Err(Refusal::Overlap(folder.clone()));
            }
        }
        for path in paths.iter().copied().chain(folders.iter().map(String::as_str)) {
            let above = path.match_indices('/').map(|(at, _)| &path[..at]);
            if let Some(file) = above.into_iter().find(|folder| paths.contains(folder)) {
                return Err(Refusal::Overlap(file.to_owned()));
            }
        }
        let base = self.base.iter().flat_map(|base| [&base.revision, &base.commit]);
        for text in self.commit.iter().chain(&self.budgets).chain(base) {
            plain(text)?;
        }
        self.targets.iter().try_for_each(Target::validate)?;
        self.match_files(&paths)
    }

    /// Sees that every part has its file, and every file is a part of something.
    fn match_files(&self, paths: &BTreeSet<&str>) -> Result<(), Refusal> {
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
            return Err(Refusal::Missing(path.to_owned()));
        }
        let is_data = |path: &str| match path {
            BASELINE => true,
            BUDGETS => self.budgets.is_some(),
            BASE_BUDGETS | BASE_BASELINE => self.base.is_some(),
            _ => false,
        };
        let known = |file: &File| {
            file.executable == programs.contains(file.path.as_str()) && (file.executable || is_data(&file.path))
        };
        self.files.iter().find(|file| !known(file)).map_or(Ok(()), |file| {
            let path = file.path.escape_debug();
            Err(Refusal::Manifest(format!("it does not say what `{path}` is for")))
        })
    }
}

impl Target {
    /// The folder that its models run in.
    pub(super) fn work_folder(&self) -> String {
        if self.folder.is_empty() {
            WORKSPACE.to_owned()
        } else {
            format!("{WORKSPACE}/{}", self.folder)
        }
    }

    fn validate(&self) -> Result<(), Refusal> {
        let names = [&self.package, &self.name, &self.burn];
        for text in names.into_iter().chain(self.models.iter().map(|model| &model.name)) {
            plain(text)?;
        }
        // Nothing of the driver's may stand in for a model, nor a model for a name that leads to the driver.
        if !self.executable.starts_with(MODELS) {
            return Err(Refusal::Manifest(format!(
                "`{}` is no place for a model",
                self.executable.escape_debug()
            )));
        }
        Ok(())
    }
}

/// What is shown on a terminal must not be able to steer it.
fn plain(text: &str) -> Result<(), Refusal> {
    if text.is_empty() || text.chars().any(char::is_control) {
        return Err(Refusal::Manifest(format!("`{}` is no name", text.escape_debug())));
    }
    Ok(())
}

fn check(path: &str) -> Result<(), Refusal> {
    path_problem(path).map_or(Ok(()), |why| {
        Err(Refusal::Path {
            path: path.to_owned(),
            why,
        })
    })
}

/// What is wrong with a path, if it is not one of plain names below the folder, the same on every system.
pub(super) fn path_problem(path: &str) -> Option<&'static str> {
    if path.is_empty() {
        return Some("it is empty");
    }
    if path.starts_with('/') {
        return Some("it does not start in the archive's folder");
    }
    if path.contains(['\\', ':']) || path.chars().any(char::is_control) {
        return Some("it has characters that mean something else elsewhere");
    }
    path.split('/').find_map(|part| match part {
        "" | "." => Some("a part of it has no name"),
        ".." => Some("it leaves the archive's folder"),
        _ => None,
    })
}
