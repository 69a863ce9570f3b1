//! Runs git.

use camino::Utf8Path;

/// Returns what git prints; `None` if git fails or is not installed.
pub(in crate::cli) fn git(folder: &Utf8Path, arguments: &[&str]) -> Option<String> {
    git_or_why(folder, arguments).ok()
}

/// Returns what git prints, or its error message if it fails.
pub(in crate::cli) fn git_or_why(folder: &Utf8Path, arguments: &[&str]) -> Result<String, String> {
    let output = std::process::Command::new("git")
        .args(arguments)
        .current_dir(folder)
        // A git hook sets these variables for its own checkout, which may differ from `folder`.
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
