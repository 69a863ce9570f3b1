//! A temporary git repository, for tests that need revisions.

use std::path::Path;
use std::process::Command;

use cargo_vram::report::Report;

use super::Folder;

/// A repository that is removed after its tests.
pub(crate) struct Repository {
    pub(crate) folder: Folder,
}

impl Repository {
    /// Makes a repository without a commit.
    pub(crate) fn new() -> Self {
        Self::in_folder(Folder::new())
    }

    /// Makes a repository without a commit in an existing folder.
    pub(crate) fn in_folder(folder: Folder) -> Self {
        std::fs::create_dir_all(folder.root()).unwrap();
        let repository = Self { folder };
        repository.git(&["init", "--quiet", "--initial-branch", "main"]);
        repository
    }

    pub(crate) fn git_in(folder: &Path, arguments: &[&str]) {
        let settings = ["user.name=a", "user.email=a@localhost", "protocol.file.allow=always"];
        let output = Command::new("git")
            .args(settings.iter().flat_map(|setting| ["-c", setting]))
            .args(arguments)
            .current_dir(folder)
            .output()
            .unwrap();
        assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    }

    pub(crate) fn git(&self, arguments: &[&str]) {
        Self::git_in(self.folder.root(), arguments);
    }

    pub(crate) fn commit(&self, message: &str) {
        self.git(&["add", "--all"]);
        self.git(&["commit", "--quiet", "--message", message]);
    }

    /// Runs a check in a folder against a revision; returns its report, if it wrote one, its exit code and its output.
    pub(crate) fn check(folder: &Path, base: &str, more: &[&str]) -> (Option<Report>, i32, String) {
        let file = folder.join("report.json");
        let _ = std::fs::remove_file(&file);
        let base = format!("--base={base}");
        let mut arguments = vec![
            "check",
            "--estimate",
            &base,
            "--message-format",
            "json",
            "-o",
            "report.json",
        ];
        arguments.extend(more);
        let output = super::vram(&arguments).current_dir(folder).output().unwrap();
        let said = super::said(&output);
        let report = std::fs::read(&file)
            .ok()
            .map(|json| serde_json::from_slice(&json).unwrap());
        (report, output.status.code().unwrap(), said)
    }
}
