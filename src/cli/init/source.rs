//! The source from which a project gets the crate `cargo-vram`.

use camino::{Utf8Path, Utf8PathBuf};
use toml_edit::InlineTable;

/// The source of the crate.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum DependencySource {
    /// The folder of `--path`.
    Named(Utf8PathBuf),
    /// The folder from which this program was built.
    Built(Utf8PathBuf),
    /// The registry from which this program was installed.
    Registry,
    /// A git repository, at a commit or at the tag of this version.
    Git { url: String, commit: Option<String> },
}

impl DependencySource {
    /// Finds the source: the folder of `--path`, or else the place from which this program was built, or else the
    /// crate's repository.
    ///
    /// The place of the build counts only if it still contains this version of the crate. Returns `None` if no source
    /// is known.
    pub(super) fn find(named: Option<&Utf8Path>, built: &Utf8Path, repository: &str) -> Option<Self> {
        if let Some(folder) = named {
            return Some(Self::Named(folder.to_owned()));
        }
        let git = |commit| {
            (!repository.is_empty()).then(|| Self::Git {
                url: repository.to_owned(),
                commit,
            })
        };
        // The folder may be gone or have another version since this program was built.
        if !is_this_crate(built) {
            return git(None);
        }
        // Cargo puts this file into the folders of its cache. A manifest must not name them: Cargo may empty the cache.
        let cached = built.ancestors().find(|folder| folder.join(".cargo-ok").is_file());
        match cached {
            None => Some(Self::Built(built.to_owned())),
            Some(folder) if folder.join(".git").exists() => git(commit_of(folder)),
            Some(_) => Some(Self::Registry),
        }
    }

    /// Returns the keys of the dependency in a manifest.
    pub(super) fn keys(&self, manifest: &Utf8Path) -> InlineTable {
        let mut keys = InlineTable::new();
        match self {
            Self::Named(folder) => {
                // Cargo resolves a path from the manifest's folder, but users write it from their current folder. A
                // relative path stays relative, because it is then valid on other machines, too.
                let whole = |path: &Utf8Path| path.canonicalize_utf8().unwrap_or_else(|_| path.to_owned());
                let from = manifest.parent().map(whole).filter(|_| folder.is_relative());
                let relative = from.and_then(|from| pathdiff::diff_utf8_paths(whole(folder), from));
                let folder = relative.unwrap_or_else(|| whole(folder));
                keys.insert("path", folder.as_str().into());
            }
            Self::Built(folder) => {
                keys.insert("path", folder.as_str().into());
            }
            Self::Registry => {
                keys.insert("version", env!("CARGO_PKG_VERSION").into());
            }
            Self::Git { url, commit } => {
                keys.insert("git", url.as_str().into());
                match commit {
                    Some(commit) => keys.insert("rev", commit.as_str().into()),
                    None => keys.insert("tag", concat!("v", env!("CARGO_PKG_VERSION")).into()),
                };
            }
        }
        keys
    }
}

/// Whether a folder contains this crate in this version. A tool and a model of different versions do not work together.
fn is_this_crate(folder: &Utf8Path) -> bool {
    let text = std::fs::read_to_string(folder.join("Cargo.toml")).unwrap_or_default();
    let Ok(manifest) = toml_edit::Document::parse(text) else {
        return false;
    };
    let is = |key: &str, value: &str| {
        let package = manifest.get("package").and_then(|package| package.get(key));
        package.and_then(toml_edit::Item::as_str) == Some(value)
    };
    is("name", env!("CARGO_PKG_NAME")) && is("version", env!("CARGO_PKG_VERSION"))
}

/// Returns the commit of a checkout that Cargo made.
fn commit_of(checkout: &Utf8Path) -> Option<String> {
    let output = std::process::Command::new("git")
        .args(["-C", checkout.as_str(), "rev-parse", "HEAD"])
        .output()
        .ok()?;
    let commit = String::from_utf8(output.stdout).ok()?.trim().to_owned();
    (output.status.success() && !commit.is_empty()).then_some(commit)
}

#[cfg(test)]
mod tests {
    use super::*;

    const URL: &str = "https://example.org/somebody/cargo-vram";

    fn folder(version: &str) -> (tempfile::TempDir, Utf8PathBuf) {
        let folder = tempfile::tempdir().unwrap();
        let path = Utf8PathBuf::try_from(folder.path().to_owned()).unwrap();
        let manifest = format!("[package]\nname = \"cargo-vram\"\nversion = \"{version}\"\n");
        std::fs::write(path.join("Cargo.toml"), manifest).unwrap();
        (folder, path)
    }

    #[test]
    fn the_folder_that_the_tool_was_built_from_is_taken_while_it_has_this_version() {
        let (_held, this) = folder(env!("CARGO_PKG_VERSION"));
        assert_eq!(
            DependencySource::find(None, &this, ""),
            Some(DependencySource::Built(this.clone()))
        );
        assert_eq!(
            DependencySource::find(None, &this, URL),
            Some(DependencySource::Built(this.clone()))
        );
        let named = Utf8Path::new("../cargo-vram");
        assert_eq!(
            DependencySource::find(Some(named), &this, URL),
            Some(DependencySource::Named(named.to_owned()))
        );
        let (_held, other) = folder("99.0.0");
        assert_eq!(DependencySource::find(None, &other, ""), None);
    }

    #[test]
    fn the_repository_is_next_and_without_one_nothing_is_known() {
        let gone = Utf8Path::new("/nowhere/cargo-vram");
        assert_eq!(DependencySource::find(None, gone, ""), None);
        let source = DependencySource::find(None, gone, URL).unwrap();
        assert_eq!(
            source.keys(Utf8Path::new("/x/Cargo.toml")).to_string(),
            format!("{{ git = \"{URL}\", tag = \"v{}\" }}", env!("CARGO_PKG_VERSION"))
        );
    }

    #[test]
    fn a_folder_of_cargos_own_cache_is_no_path_for_a_manifest() {
        let (_held, this) = folder(env!("CARGO_PKG_VERSION"));
        std::fs::write(this.join(".cargo-ok"), "").unwrap();
        assert_eq!(
            DependencySource::find(None, &this, URL),
            Some(DependencySource::Registry)
        );
        std::fs::create_dir(this.join(".git")).unwrap();
        let git = DependencySource::Git {
            url: URL.to_owned(),
            commit: None,
        };
        assert_eq!(DependencySource::find(None, &this, URL), Some(git));
        assert_eq!(DependencySource::find(None, &this, ""), None);
    }
}
