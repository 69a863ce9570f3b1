//! A temporary checkout of another commit in the target folder.

use std::collections::BTreeSet;
use std::fs::File;

use camino::{Utf8Path, Utf8PathBuf};

use super::BaseError;
use crate::cli::session::git::{git, git_or_why};
use crate::cli::terminal;

/// The `codegen-units` of the base's packages: a number that no other profile is likely to use.
const UNITS: u32 = 251;

/// A checkout of a commit, removed when this is dropped.
pub(super) struct Worktree {
    /// The repository of the commit.
    repository: Utf8PathBuf,
    path: Utf8PathBuf,
    /// The lock that allows only one checkout at a time per target folder.
    _alone: File,
}

impl Worktree {
    /// Checks a commit out in the target folder, always at the same path.
    ///
    /// Cargo then replaces the packages that it built there the last time, and does not add new ones beside them.
    pub(super) fn add(repository: &Utf8Path, commit: &str, target: &Utf8Path) -> Result<Self, BaseError> {
        let folder = target.join("vram/base");
        let path = folder.join("tree");
        let io = |source| BaseError::Folder {
            path: folder.clone(),
            source,
        };
        std::fs::create_dir_all(&folder).map_err(io)?;
        // The path is always the same, so a second run would remove this checkout.
        let lock = folder.join("lock");
        let alone = File::create(&lock).map_err(io)?;
        // The other command may build for minutes.
        if alone.try_lock().is_err() {
            if !terminal::is_quiet() {
                terminal::remark(&format!(
                    "waiting for another command that checks a base (lock: {lock})"
                ));
            }
            alone.lock().map_err(io)?;
        }
        // A killed run may have left its checkout behind.
        remove(repository, &path);
        let add = ["worktree", "add", "--quiet", "--detach", "--force"];
        // Git hooks are meant for checkouts that people work in.
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
        // `git worktree add` leaves submodules empty.
        if worktree.path.join(".gitmodules").exists() {
            let update = ["submodule", "--quiet", "update", "--init", "--recursive"];
            git_or_why(&worktree.path, &update).map_err(BaseError::Submodules)?;
        }
        Ok(worktree)
    }

    /// Returns the path of the Cargo configuration file for builds of this checkout.
    pub(super) fn config(&self) -> Utf8PathBuf {
        self.path.with_file_name("config.toml")
    }

    /// Writes a Cargo configuration that builds this checkout in the shared target folder, with other `codegen-units`.
    ///
    /// Cargo treats packages at the same place in two workspaces as one package, and uses the newer program for both.
    /// A different number of codegen units makes them two packages, and does not change what the programs do.
    pub(super) fn configure(
        &self,
        target: &Utf8Path,
        profile: Option<&str>,
        packages: &BTreeSet<String>,
    ) -> Result<(), BaseError> {
        let text = |text: &str| toml_edit::Value::from(text).to_string();
        let mut config = format!("[build]\ntarget-dir = {}\n", text(target.as_str()).trim());
        // By name and only these: other codegen units for a crate of the registry would compile it once more.
        // See docs/design/base.md.
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

/// Removes a checkout, and git's record of it.
fn remove(repository: &Utf8Path, path: &Utf8Path) {
    if path.exists() && git(repository, &["worktree", "remove", "--force", "--force", path.as_str()]).is_none() {
        // If git no longer knows the checkout, it is only a folder.
        let _ = std::fs::remove_dir_all(path);
    }
    let _ = git(repository, &["worktree", "prune"]);
}
