//! Another commit, checked out beside the workspace for as long as it is needed.

use std::collections::BTreeSet;
use std::fs::File;

use camino::{Utf8Path, Utf8PathBuf};

use super::BaseError;
use crate::cli::source::{git, git_or_why};

/// Parts that the compiler takes a package in; nobody else asks for so many.
const UNITS: u32 = 251;

/// A checkout of its own, which goes when this is dropped.
pub(super) struct Worktree {
    /// The repository that it is of.
    repository: Utf8PathBuf,
    path: Utf8PathBuf,
    /// Held: there is one at a time in a target folder.
    _alone: File,
}

impl Worktree {
    /// Checks a commit out, in the target folder, always in the same place: its packages are then built anew in place of
    /// those of the last time, rather than beside them.
    pub(super) fn add(repository: &Utf8Path, commit: &str, target: &Utf8Path) -> Result<Self, BaseError> {
        let folder = target.join("vram/base");
        let path = folder.join("tree");
        let io = |source| BaseError::Folder {
            path: folder.clone(),
            source,
        };
        std::fs::create_dir_all(&folder).map_err(io)?;
        let alone = File::create(folder.join("lock")).map_err(io)?;
        alone.lock().map_err(io)?;
        // What a run left behind that was killed.
        remove(repository, &path);
        let add = ["worktree", "add", "--quiet", "--detach", "--force"];
        // A hook is for checkouts that people work in.
        let arguments: Vec<&str> = ["-c", "core.hooksPath=/dev/null"]
            .into_iter()
            .chain(add)
            .chain([path.as_str(), commit])
            .collect();
        git_or_why(repository, &arguments).map_err(|why| BaseError::Checkout {
            commit: commit.to_owned(),
            why,
        })?;
        let worktree = Self {
            repository: repository.to_owned(),
            path,
            _alone: alone,
        };
        if worktree.path.join(".gitmodules").exists() {
            let update = ["submodule", "--quiet", "update", "--init", "--recursive"];
            git_or_why(&worktree.path, &update).map_err(BaseError::Submodules)?;
        }
        Ok(worktree)
    }

    /// The file of Cargo's configuration for what is built of it.
    pub(super) fn config(&self) -> Utf8PathBuf {
        self.path.with_file_name("config.toml")
    }

    /// Has it built in the shared target folder, and tells its own packages from those of the other checkout: Cargo takes
    /// two packages at the same place of two workspaces for one, and the newer one's program for both. A profile that
    /// differs in how the compiler splits its work makes them two, and changes no program's meaning.
    pub(super) fn configure(
        &self,
        target: &Utf8Path,
        profile: Option<&str>,
        packages: &BTreeSet<String>,
    ) -> Result<(), BaseError> {
        let text = |text: &str| toml_edit::Value::from(text).to_string();
        let mut config = format!("[build]\ntarget-dir = {}\n", text(target.as_str()).trim());
        for package in packages {
            let (profile, package) = (text(profile.unwrap_or("dev")), text(package));
            config.push_str(&format!(
                "\n[profile.{}.package.{}]\ncodegen-units = {UNITS}\n",
                profile.trim(),
                package.trim()
            ));
        }
        let path = self.config();
        std::fs::write(&path, config).map_err(|source| BaseError::Folder { path, source })
    }

    pub(super) fn path(&self) -> &Utf8Path {
        &self.path
    }
}

impl Drop for Worktree {
    fn drop(&mut self) {
        remove(&self.repository, &self.path);
    }
}

/// Takes it away again, and what git knows of it.
fn remove(repository: &Utf8Path, path: &Utf8Path) {
    if path.exists() && git(repository, &["worktree", "remove", "--force", "--force", path.as_str()]).is_none() {
        // Where git no longer knows it, it is only a folder.
        let _ = std::fs::remove_dir_all(path);
    }
    let _ = git(repository, &["worktree", "prune"]);
}
